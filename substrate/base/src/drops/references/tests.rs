use super::*;

fn to(segment: u64, number: u32) -> ValueReference {
    ValueReference { segment: RunId(segment), number, length: number.wrapping_add(100) }
}

fn of(ended: &[(u64, u32)], made: &[(u64, u32)]) -> ReferenceDrops {
    let mut drops = ReferenceDrops::default();
    made.iter().for_each(|(segment, number)| drops.made(&to(*segment, *number)));
    ended.iter().for_each(|(segment, number)| drops.dropped(&to(*segment, *number)));
    drops
}

#[test]
fn net_drops_remain_in_any_order() {
    let mut drops = of(&[(7, 64), (7, 3), (9, 200), (7, 63), (7, 3)], &[(7, 3)]);
    drops += of(&[(8, 0), (9, 1)], &[(9, 200)]);
    let left: Vec<_> = drops
        .iter()
        .map(|(segment, drops)| {
            let numbers: Vec<u32> = drops.numbers().collect();
            (segment.0, drops.values(), drops.bytes(), numbers)
        })
        .collect();
    let expected = [(7, 3, 430, vec![3, 63, 64]), (8, 1, 100, vec![0]), (9, 1, 101, vec![1])];
    assert_eq!(left, expected);
}

#[test]
fn largest_number_has_its_bit() {
    let drops = of(&[(1, u32::MAX)], &[]);
    assert_eq!(drops.iter().flat_map(|(_, drops)| drops.numbers()).collect::<Vec<_>>(), [u32::MAX]);
}

#[test]
fn double_drop_has_fewer_numbers_than_values() {
    let drops = of(&[(1, 5), (1, 5), (1, 6)], &[]);
    let (_, of_segment) = drops.iter().next().unwrap();
    assert_eq!((of_segment.values(), of_segment.numbers().count()), (3, 1));
}
