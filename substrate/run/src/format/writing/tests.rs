use super::*;

fn writing(generation: u64, incarnation: u32) -> Writing {
    Writing { generation: RunId(generation), incarnation }
}

#[test]
fn each_writing_is_returned_for_its_code() {
    let far = u64::MAX - 3;
    let all = [
        writing(7, 1),
        writing(9, 1),
        writing(9, 1),
        writing(9, 2),
        writing(1 << 24, 2),
        writing((1 << 24) + 5, 3),
        writing(8, 1),
        writing(1 << 50, 3),
        writing(far, u32::MAX),
    ];
    let (writings, codes) = WritingCodes::of(all.iter().copied());
    let found: Vec<Writing> = codes.iter().map(|code| writings.get(*code)).collect();
    assert_eq!(found, all);
}

#[test]
fn many_writings_of_an_incarnation_take_no_memory_of_their_own() {
    let all: Vec<Writing> = (0..500).map(|number| writing(1000 + number * 17, 4)).collect();
    let (writings, codes) = WritingCodes::of(all.iter().copied());
    assert_eq!(writings.memory_bytes(), size_of::<Stretch>());
    assert!(codes.iter().zip(&all).all(|(code, writing)| writings.get(*code) == *writing));
}
