//! The target `open-directory` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| testudo_fuzz::targets::open_directory::run(bytes));
