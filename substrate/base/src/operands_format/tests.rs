use super::*;

#[test]
fn operands_stack_in_age_order() {
    let mut stack = Vec::new();
    assert_eq!(begin_stack(Kind::Value, b"base", &mut stack), Kind::Unmerged);
    stack.extend(encode_operand(b"first"));
    stack.extend(encode_operand(b""));
    let decoded = Stack::decode(Kind::Unmerged, &stack).unwrap();
    assert_eq!(decoded, Stack { existing: Some(b"base"), operands: vec![b"first", b""] });
    let mut more = Vec::new();
    assert_eq!(begin_stack(Kind::Unmerged, &stack, &mut more), Kind::Unmerged);
    assert_eq!(more, stack);
}

#[test]
fn a_missing_value_is_not_an_empty_one() {
    let mut stack = Vec::new();
    for (kind, existing) in [(Kind::Tombstone, None), (Kind::Value, Some(&[][..]))] {
        assert_eq!(begin_stack(kind, &[], &mut stack), Kind::Unmerged);
        stack.extend(encode_operand(b"x"));
        assert_eq!(Stack::decode(Kind::Unmerged, &stack).unwrap().existing, existing);
    }
    assert_eq!(begin_stack(Kind::Operands, &encode_operand(b"y"), &mut stack), Kind::Operands);
    assert_eq!(Stack::decode(Kind::Operands, &stack).unwrap().operands, [b"y"]);
}

#[test]
fn damaged_lists_are_refused() {
    for (kind, bytes) in [
        (Kind::Operands, &[][..]),
        (Kind::Operands, &[3, 1, 2]),
        (Kind::Unmerged, &[]),
        (Kind::Unmerged, &[0]),
        (Kind::Unmerged, &[9, 1]),
    ] {
        assert!(Stack::decode(kind, bytes).is_err(), "{kind:?} {bytes:?}");
        assert!(check_value(kind, bytes).is_err(), "{kind:?} {bytes:?}");
        assert!(check_value(Kind::Value, bytes).is_ok());
    }
}
