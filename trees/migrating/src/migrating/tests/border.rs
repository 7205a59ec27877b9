//! Updates on both sides of the border, and keys at it.

use super::*;

/// A tree in the middle of a migration, and its border.
fn half_moved(from: Family, to: Family) -> (Bed, Vec<u8>) {
    let mut random = SplitMix::new(11);
    let mut bed = Bed::new(from);
    (0..12).for_each(|_| bed.apply(random_batch(&mut random, 400, 0)));
    bed.move_to(to);
    loop {
        let half = bed.prepare().expect("a moving tree has a job");
        bed.install(half);
        let (course, ..) = Course::divide(bed.durable.objects.clone()).unwrap();
        if course.border.as_slice() > b"key01000".as_slice() {
            return (bed, course.border);
        }
    }
}

#[test]
fn a_flush_across_the_border_goes_into_both_trees() {
    for (from, to) in [(0, 2), (2, 0)] {
        let (mut bed, border) = half_moved(SMALL[from], SMALL[to]);
        let before = [border.as_slice(), &[0]].concat();
        let keys = [b"".to_vec(), b"key00500".to_vec(), border.clone(), before, b"key02500".to_vec()];
        let batch = |value: Option<&[u8]>| -> Batch {
            keys.iter().map(|key| (key.clone(), value.map(<[u8]>::to_vec))).collect()
        };
        let mut random = SplitMix::new(1);
        bed.apply(batch(Some(b"across")));
        bed.check(&mut random);
        bed.apply_on_top(batch(None));
        bed.check(&mut random);
        bed.apply(batch(Some(b"again")));
        bed.turn();
        bed.check(&mut random);
        bed.apply(batch(Some(b"turned")));
        bed.check(&mut random);
        bed.finish();
        bed.check(&mut random);
    }
}

#[test]
fn each_key_has_one_side_and_portions_are_contiguous() {
    let course = Course { border: b"m".to_vec(), ..Course::beginning(crate::Slot::default()) };
    for course in [course.clone(), course.turned()] {
        for key in [&b""[..], b"a", b"lz", b"m", b"m\0", b"z"] {
            let having = SIDES.map(|side| course.keys_of(side).contains(key));
            assert_eq!(having.iter().filter(|has| **has).count(), 1, "{key:?}");
            assert!(course.keys_of(course.side_of(key)).contains(key), "{key:?}");
        }
        let [first, second] = course.in_key_order().map(|side| course.keys_of(side));
        assert_eq!((first.low, first.high, second.high), (None, second.low, None));
        assert_eq!(course.portion_up_to(None), course.keys_of(Side::From));
    }
    let portion = course.portion_up_to(Some(b"p"));
    assert_eq!((portion.low, portion.high), (Some(b"m".to_vec()), Some(b"p".to_vec())));
    let portion = course.turned().portion_up_to(Some(b"c"));
    assert_eq!((portion.low, portion.high), (Some(b"c".to_vec()), Some(b"m".to_vec())));
}

#[test]
fn estimates_and_parts_cover_both_trees() {
    let (bed, border) = half_moved(SMALL[0], SMALL[2]);
    let all = bed.tree.bytes_between(None, None).unwrap();
    let halves = bed.tree.bytes_between(None, Some(&border)).unwrap()
        + bed.tree.bytes_between(Some(&border), None).unwrap();
    assert_eq!(all, halves);
    let moving = bed.tree.stats().moving.expect("it is moving");
    assert!(moving.moved_bytes > 0 && moving.left_bytes > 0, "{moving:?}");
    let first = &bed.tree.outline()[0];
    assert_eq!((first.depth, first.what), (0, "left"));
}
