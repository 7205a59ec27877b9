use super::*;

#[test]
fn a_tree_with_all_its_values_buffers_in_full() {
    for share in [TreeShare::default(), TreeShare::of(1 << 40, 0), TreeShare::of(0, 0)] {
        assert_eq!((share.waiting(1000), share.waiting_if_new(1000)), (1000, 1000));
    }
}

#[test]
fn a_share_of_a_hundredth_buffers_a_tenth() {
    let share = TreeShare::of(1 << 20, 99 << 20);
    assert_eq!((share.waiting(2560), share.waiting_if_new(2560)), (250, 1405));
    assert_eq!(TreeShare::of(1, u64::MAX).waiting(2560), 10, "it is never zero");
    assert!(TreeShare::of(1, 8).is_minor() && !TreeShare::of(2, 15).is_minor());
    assert_eq!(TreeShare::of(1 << 20, 7 << 20), TreeShare::ALL, "a larger share is expensive to rewrite");
}
