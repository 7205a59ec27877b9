//! Operands on their way down the levels: returned together with their base, never lost.

use testudo_treebed::operands_script;

use super::*;

#[test]
fn operands_are_returned_with_their_base_at_any_level() {
    operands_script(options(4096, 3, 2));
}
