use testudo_base::operands_format::begin_stack;

use super::*;

#[test]
fn operands_on_a_value_in_pieces_keep_only_the_value() {
    let mut reference = Vec::new();
    ValueReference::to_long_value(7, 100_000).encode(&mut reference);
    let mut stack = Vec::new();
    let kind = begin_stack(Kind::Reference, &reference, &mut stack);
    stack.extend_from_slice(b"\x01+");
    assert_eq!(long_value_without_operands(kind, &stack), Some((Kind::Reference, reference.clone())));
    assert_eq!(long_value_without_operands(Kind::Reference, &reference), None);
    let mut elsewhere = Vec::new();
    ValueReference { segment: testudo_base::RunId(7), number: 1, length: 9 }.encode(&mut elsewhere);
    let mut stack = Vec::new();
    let kind = begin_stack(Kind::Reference, &elsewhere, &mut stack);
    assert_eq!(long_value_without_operands(kind, &stack), None);
    assert_eq!(reference_to_long_value(Kind::Reference, &elsewhere), None);
}
