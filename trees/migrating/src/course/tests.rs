use super::*;

#[test]
fn a_turn_swaps_the_trees_and_keeps_the_border() {
    let course = Course { border: b"k".to_vec(), ..Course::beginning(Slot::default()) };
    let turned = course.turned();
    assert_eq!(turned.keys_of(Side::From), course.keys_of(Side::To));
    assert_eq!(turned.keys_of(Side::To), course.keys_of(Side::From));
    assert!(!turned.is_cut, "the former source may have entries beyond the border");
    assert_eq!(turned.turned(), Course { is_cut: false, ..course });
}
