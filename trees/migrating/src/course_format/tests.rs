use super::*;

fn courses() -> Vec<Course> {
    let first = Course { border: b"border".to_vec(), ..Course::beginning(Slot::default()) };
    vec![Course::beginning(Slot::default()), first.clone(), first.turned(), first.turned().turned()]
}

#[test]
fn a_course_round_trips() {
    for course in courses() {
        assert_eq!(Course::decode(&course.encode()).unwrap(), course);
    }
    assert_eq!(courses()[1].encode(), b"\x01\x00\x01\x00\x06\0\0\0border");
}

#[test]
fn other_bytes_are_damage() {
    let bytes = courses()[1].encode();
    for length in 0..bytes.len() {
        assert!(Course::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    for (at, byte) in [(0, 2), (1, 1), (1, 2), (2, 0), (2, 15), (3, 4), (4, 7)] {
        let mut changed = bytes.clone();
        changed[at] = byte;
        assert!(Course::decode(&changed).is_err(), "byte {at} is {byte}");
    }
}
