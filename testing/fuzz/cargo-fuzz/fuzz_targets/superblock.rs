//! The target `superblock` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| testudo_fuzz::targets::superblock::run(bytes));
