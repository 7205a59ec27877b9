use super::*;

fn key(prefix: usize, tail: &str) -> Vec<u8> {
    [&vec![b'p'; prefix][..], tail.as_bytes()].concat()
}

fn shared(keys: &[Vec<u8>]) -> Vec<Fence> {
    let mut fences: Vec<Fence> = keys.iter().map(|key| Fence::from(key.as_slice())).collect();
    share_starts(fences.iter_mut().collect());
    fences
}

#[test]
fn fences_compare_like_their_bytes_shared_or_not() {
    let mut keys = vec![Vec::new(), key(767, ""), key(900, ""), key(900, "\u{7f}"), key(3, "")];
    for tail in ["a", "ab", "b", "\0", "zz"] {
        keys.extend([key(0, tail), key(800, tail), key(900, tail), key(4000, tail)]);
    }
    let whole: Vec<Fence> = keys.iter().map(|key| Fence::from(key.clone())).collect();
    let fences = shared(&keys);
    for (a, key_a) in fences.iter().zip(&keys) {
        assert_eq!((a.to_vec(), a.len(), a.is_empty()), (key_a.clone(), key_a.len(), key_a.is_empty()));
        for (at, key_b) in keys.iter().enumerate() {
            let order = key_a.cmp(key_b);
            assert_eq!((a.order_to(key_b), a.is_at_most(key_b)), (order, order.is_le()));
            assert_eq!(
                (a.cmp(&fences[at]), a.cmp(&whole[at]), whole[at].cmp(a)),
                (order, order, order.reverse())
            );
        }
    }
}

#[test]
fn common_prefixes_of_long_fences_are_stored_once() {
    let keys: Vec<_> =
        (0..60).map(|n| key(if n % 2 == 0 { 60_000 } else { 500 }, &format!("{n:02}"))).collect();
    let fences = shared(&keys);
    let own: usize = fences.iter().map(|fence| fence.rest.len()).sum();
    let starts: Vec<_> = fences.iter().filter_map(|fence| fence.start.as_ref()).collect();
    let different = starts.windows(2).filter(|pair| !Arc::ptr_eq(pair[0], pair[1])).count();
    assert!(
        own + different * 60_000 <= 2 * 60_000 + 60 * SHARED_BYTES_MIN,
        "{own} bytes, {different} starts"
    );
}

#[test]
fn chained_fences_have_the_intended_keys() {
    let mut before = Fence::default();
    let mut expected = Vec::new();
    for step in 0..3000usize {
        let shared = (step * 7919 % 2000).min(before.len());
        let tail = vec![b'a' + u8::try_from(step % 26).unwrap(); step * 31 % 700];
        expected.truncate(shared);
        expected.extend_from_slice(&tail);
        before = Fence::after(&before, shared, &tail);
        assert!(before.to_vec() == expected && before.order_to(&expected).is_eq(), "step {step}");
    }
}

#[test]
fn sharing_again_changes_no_key() {
    let keys: Vec<_> = (10..40).map(|n| key(1000, &format!("{n}"))).collect();
    let mut fences = shared(&keys);
    share_starts(fences.iter_mut().rev().collect());
    assert!(fences.iter().zip(&keys).all(|(fence, key)| fence.to_vec() == *key));
}

#[test]
fn a_head_compares_with_run_ends_like_its_fence() {
    let keys = [key(10, "a"), key(256, ""), key(257, ""), key(900, "a"), key(900, "b"), key(2000, "c")];
    let ends: Vec<_> = keys.iter().map(|last| testudo_run::KeyEnds::of(b"a", last)).collect();
    for (fence, key) in shared(&keys).iter().zip(&keys) {
        for ends in &ends {
            assert_eq!(ends.end_before(&fence.head()), ends.end_before(key));
            assert_eq!(ends.begin_at_or_after(&fence.head()), ends.begin_at_or_after(key));
        }
    }
}
