use super::*;

fn decoded(dead: &DeadValues) -> DeadValues {
    let mut bytes = Vec::new();
    dead.encode(&mut bytes);
    let mut reader = Reader::new(&bytes);
    let decoded = DeadValues::decode(&mut reader).unwrap();
    assert!(reader.is_empty());
    decoded
}

#[test]
fn a_value_becomes_dead_once() {
    let mut dead = DeadValues::none_of(130);
    assert_eq!(decoded(&dead), dead);
    for number in [0, 63, 64, 129] {
        assert!(!dead.contains(number));
        assert!(dead.insert(number));
        assert!(!dead.insert(number), "already dead");
        assert!(dead.contains(number));
    }
    assert!(!dead.insert(130), "no such value");
    assert_eq!((dead.count(), dead.dead()), (130, 4));
    assert_eq!(decoded(&dead), dead);
}

#[test]
fn bits_beyond_the_last_value_are_damage() {
    let mut bytes = Vec::new();
    codec::put_u32(&mut bytes, 65);
    codec::put_u32(&mut bytes, 2);
    codec::put_u64(&mut bytes, 1);
    codec::put_u64(&mut bytes, 2);
    assert!(DeadValues::decode(&mut Reader::new(&bytes)).is_err());
    bytes[4] = 1;
    assert!(DeadValues::decode(&mut Reader::new(&bytes)).is_err(), "a word is missing");
}
