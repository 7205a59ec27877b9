//! Operands on their way down a tree: returned together with their base, merged where it is known, never
//! lost.

use testudo_treebed::operands_script;

use super::*;

#[test]
fn operands_are_returned_with_their_base_at_any_height() {
    operands_script(turtle(4096, 4));
}
