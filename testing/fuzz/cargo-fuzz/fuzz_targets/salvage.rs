//! The target `salvage` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| testudo_fuzz::targets::salvage::run(bytes));
