//! When work is done beside writers, by examples.
//!
//! **Invariants**
//! - Every expectation is a rule of the parent's head.

use super::*;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn what_was_left_alone_for_a_second_rests() {
    let mut idle = Idle::from(ms(500));
    assert!(!idle.is_idle(ms(1499)));
    assert!(idle.is_idle(ms(1500)));
    idle.interrupt(ms(2000));
    assert!(!idle.is_idle(ms(2999)));
    assert!(idle.is_idle(ms(3000)));
}

#[test]
fn what_is_flushed_now_and_then_is_idle_once_it_has_paused_for_twice_as_long() {
    let mut idle = Idle::from(ms(0));
    idle.record_flush(ms(90_000));
    assert!(idle.is_idle(ms(91_000)), "one flush is no rhythm");
    idle.record_flush(ms(95_000));
    assert!(!idle.is_idle(ms(104_999)));
    assert!(idle.is_idle(ms(105_000)));
    idle.record_flush(ms(900_000));
    assert!(idle.is_idle(ms(960_000)), "nobody waits longer than a minute");
}

/// Work that is asked for each millisecond over ten minutes, beside flushes that come every `period` and take
/// `flush`; how many milliseconds it took, a piece taking `piece`, how many of them flushes waited, and its
/// longest pause.
fn beside_flushes(period: u64, flush: u64, piece: u64) -> (u64, u64, u64) {
    let (mut throttle, mut now, mut last_flush) = (Throttle::default(), 0, 0);
    let (mut worked, mut waited, mut ended, mut longest) = (0, 0, 0, 0);
    for due in (0..600_000).step_by(usize::try_from(period).unwrap()) {
        while now < due {
            if throttle.allows(ms(now), ms(now - last_flush)) {
                throttle.note(ms(now), ms(now + piece));
                longest = longest.max(now - ended);
                worked += piece;
                now += piece;
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
fn beside_writers_work_takes_a_sixteenth_of_the_time() {
    let (worked, waited, longest) = beside_flushes(5000, 500, 50);
    assert!((30_000..=37_500).contains(&worked), "{worked}");
    assert!(waited < 1000, "{waited}");
    assert!(longest < 1500, "{longest}");
}

#[test]
fn the_less_time_flushes_leave_the_less_work_is_done_but_never_none() {
    let mut before = u64::MAX;
    for flush in [200, 300, 350, 380] {
        let (worked, _, longest) = beside_flushes(400, flush, 50);
        assert!(worked < before && longest < 4500, "{flush}: {worked}, {longest}");
        before = worked;
    }
    assert!(before > 1000, "{before}");
}

#[test]
fn a_piece_that_was_held_up_holds_nothing_up_for_long() {
    let mut throttle = Throttle::default();
    throttle.note(ms(0), ms(600_000));
    assert!(!throttle.allows(ms(614_999), ms(10_000)));
    assert!(throttle.allows(ms(615_000), ms(10_000)));
    throttle.record_stall(ms(700_000));
    assert!(!throttle.allows(ms(714_999), ms(10_000)));
    assert!(throttle.allows(ms(715_000), ms(10_000)));
}

#[test]
fn a_keyspace_is_at_rest_five_seconds_after_the_last_write_or_twice_the_pause_of_its_flushes() {
    let mut idle = Idle::from(ms(0));
    assert!(!idle.is_at_rest(ms(4_999)) && idle.is_at_rest(ms(5_000)));
    idle.interrupt(ms(4_000));
    assert!(!idle.is_at_rest(ms(8_999)) && idle.is_at_rest(ms(9_000)));
    idle.record_flush(ms(9_000));
    idle.record_flush(ms(19_000));
    assert!(
        !idle.is_at_rest(ms(38_999)) && idle.is_at_rest(ms(39_000)),
        "who writes now and then is not flushed"
    );
}
