//! The checks as a test: `cargo test --workspace` fails if `cargo run -p xtask -- tidy` does.

use std::path::Path;

#[test]
fn the_checkout_is_tidy() {
    let findings = xtask::tidy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let findings = findings.expect("the checkout is readable");
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}
