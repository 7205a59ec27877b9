//! The testudo command line.
fn main() {}
