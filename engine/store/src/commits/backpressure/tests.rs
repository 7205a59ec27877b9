use testudo_env::MemEnv;

use super::*;

const MIB: u64 = 1 << 20;

/// Writes records until all of the write memory is in use, or for a second; returns the bytes in use and the
/// time that it took. The active buffer begins with `used` bytes of 32 MiB, and no flush has begun.
fn fill_before_flush(used: u64) -> (u64, Duration) {
    const RECORD_BYTES: u64 = 1 << 10;
    let env = MemEnv::new(1);
    let pressure = Backpressure::new(32 * MIB);
    pressure.set_active(used, used);
    let began = env.monotonic();
    while pressure.used() < 32 * MIB && env.monotonic() - began < Duration::from_secs(1) {
        pressure.admit_before_flush(&*env, RECORD_BYTES);
        pressure.active_bytes.fetch_add(RECORD_BYTES, Relaxed);
    }
    (pressure.used(), env.monotonic() - began)
}

#[test]
fn a_flush_that_is_due_delays_writers_before_it_begins() {
    let (used, took) = fill_before_flush(28 * MIB);
    assert!(used < 32 * MIB, "{used} bytes in {took:?}, although the flush may take half a second");
}

#[test]
fn writers_are_not_delayed_while_a_quarter_of_the_memory_is_free() {
    let env = MemEnv::new(1);
    let pressure = Backpressure::new(32 * MIB);
    pressure.set_active(20 * MIB, 20 * MIB);
    (0..1000).for_each(|_| pressure.admit_before_flush(&*env, 1 << 10));
    assert_eq!(pressure.delays.total_micros(), 0);
}
