//! Examples of idle detection, and of throttled work concurrent with writers.
//!
//! **Invariants**
//! - Every expectation is a rule in the header of the parent module.

use super::*;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn keyspace_is_idle_after_one_second_without_writes() {
    let mut idle = Idle::from(ms(500));
    assert!(!idle.is_idle(ms(1499)));
    assert!(idle.is_idle(ms(1500)));
    idle.interrupt(ms(2000));
    assert!(!idle.is_idle(ms(2999)));
    assert!(idle.is_idle(ms(3000)));
}

#[test]
fn idle_time_is_at_least_twice_the_flush_interval() {
    let mut idle = Idle::from(ms(0));
    idle.record_flush(ms(90_000));
    assert!(idle.is_idle(ms(91_000)), "one flush is no interval");
    idle.record_flush(ms(95_000));
    assert!(!idle.is_idle(ms(104_999)));
    assert!(idle.is_idle(ms(105_000)));
    idle.record_flush(ms(900_000));
    assert!(idle.is_idle(ms(960_000)), "the idle time is at most a minute");
}

/// Requests work each millisecond for ten minutes, concurrently with flushes every `period` that take
/// `flush`. Returns the milliseconds that work took at `step` each, those that flushes waited, and the
/// longest pause of work.
fn beside_flushes(period: u64, flush: u64, step: u64) -> (u64, u64, u64) {
    let (mut throttle, mut now, mut last_flush) = (Throttle::default(), 0, 0);
    let (mut worked, mut waited, mut ended, mut longest) = (0, 0, 0, 0);
    for due in (0..600_000).step_by(usize::try_from(period).unwrap()) {
        while now < due {
            if throttle.allows(ms(now), ms(now - last_flush)) {
                throttle.note(ms(now), ms(now + step));
                longest = longest.max(now - ended);
                worked += step;
                now += step;
                ended = now;
            } else {
                now += 1;
            }
        }
        waited += now - due;
        now += flush;
        last_flush = now;
    }
    (worked, waited, longest)
}

#[test]
fn work_takes_a_sixteenth_of_the_time_while_others_write() {
    let (worked, waited, longest) = beside_flushes(5000, 500, 50);
    assert!((30_000..=37_500).contains(&worked), "{worked}");
    assert!(waited < 1000, "{waited}");
    assert!(longest < 1500, "{longest}");
}

#[test]
fn work_shrinks_with_time_between_flushes_but_never_stops() {
    let mut before = u64::MAX;
    for flush in [200, 300, 350, 380] {
        let (worked, _, longest) = beside_flushes(400, flush, 50);
        assert!(worked < before && longest < 4500, "{flush}: {worked}, {longest}");
        before = worked;
    }
    assert!(before > 1000, "{before}");
}

#[test]
fn delayed_step_does_not_block_later_ones_for_long() {
    let mut throttle = Throttle::default();
    throttle.note(ms(0), ms(600_000));
    assert!(!throttle.allows(ms(614_999), ms(10_000)));
    assert!(throttle.allows(ms(615_000), ms(10_000)));
    throttle.record_stall(ms(700_000));
    assert!(!throttle.allows(ms(714_999), ms(10_000)));
    assert!(throttle.allows(ms(715_000), ms(10_000)));
}

#[test]
fn rest_takes_five_seconds_or_twice_the_flush_interval() {
    let mut idle = Idle::from(ms(0));
    assert!(!idle.is_at_rest(ms(4_999)) && idle.is_at_rest(ms(5_000)));
    idle.interrupt(ms(4_000));
    assert!(!idle.is_at_rest(ms(8_999)) && idle.is_at_rest(ms(9_000)));
    idle.record_flush(ms(9_000));
    idle.record_flush(ms(19_000));
    assert!(
        !idle.is_at_rest(ms(38_999)) && idle.is_at_rest(ms(39_000)),
        "a keyspace written occasionally is not flushed"
    );
}
