//! The target `wal` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| testudo_fuzz::targets::wal::run(bytes));
