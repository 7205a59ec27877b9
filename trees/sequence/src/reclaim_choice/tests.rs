use super::*;

/// A leaf with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaf(usize);

impl ReclaimTarget for Leaf {
    fn is_merge(&self) -> bool {
        true
    }
}

/// A step's space and gain in KiB.
type Offer = (u64, u64);

/// Index of the step taken from those offered.
fn choose(least_gain: LeastGain, space_kib: u64, but: &[usize], offers: &[Offer]) -> Option<usize> {
    let tried =
        |&number: &usize| ReclaimStep { target: Leaf(number), space_bytes: 0, gain_bytes: 0 }.into_reclaim();
    let but: Vec<Reclaim> = but.iter().map(tried).collect();
    let limits = ReclaimLimits { space_bytes: space_kib << 10, least_gain, but: &but };
    let mut choice = ReclaimChoice::new(&limits, 2 << 20);
    for (number, (space, gain)) in offers.iter().enumerate() {
        choice.offer(Leaf(number), space << 10, gain << 10);
    }
    if least_gain == LeastGain::None {
        for (number, (space, _)) in offers.iter().enumerate() {
            choice.offer_next(Leaf(number), space << 10);
        }
    }
    choice.into_reclaim().map(|best| target_of::<Leaf>(&best).0)
}

#[test]
fn the_step_with_the_largest_gain_is_taken() {
    let offers = [(100, 40), (500, 90), (100, 90), (20, 30)];
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &offers), Some(1));
}

#[test]
fn a_step_that_does_not_fit_or_failed_is_not_taken() {
    let offers = [(100, 40), (500, 90), (100, 80), (20, 30)];
    assert_eq!(choose(LeastGain::Worthwhile, 400, &[], &offers), Some(2));
    assert_eq!(choose(LeastGain::Worthwhile, 400, &[2], &offers), Some(0));
    assert_eq!(choose(LeastGain::None, 19, &[], &offers), None);
}

#[test]
fn the_minimum_gain_is_a_32nd_unless_a_delete_waits() {
    // 8 KiB are the minimum of any run, and yield no gain.
    let (enough, too_little) = ((32 * 20 + 8, 20), (32 * 20 + 40, 20));
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &[enough]), Some(0));
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &[too_little]), None);
    assert_eq!(choose(LeastGain::Any, 1000, &[], &[too_little]), Some(0));
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &[(20, 15)]), None, "nor less than 16 KiB");
    assert_eq!(choose(LeastGain::Any, 1000, &[], &[(20, 15)]), Some(0));
}

#[test]
fn steps_without_gain_are_done_in_order_before_a_delete_is_refused() {
    let offers = [(300, 0), (100, 0), (20, 0)];
    assert_eq!(choose(LeastGain::Any, 1000, &[], &offers), None);
    assert_eq!(choose(LeastGain::None, 1000, &[], &offers), Some(0));
    assert_eq!(choose(LeastGain::None, 200, &[], &offers), Some(1));
    assert_eq!(choose(LeastGain::None, 200, &[1], &offers), Some(2));
    assert_eq!(choose(LeastGain::None, 1000, &[], &[(300, 0), (100, 1)]), Some(1), "but a gain comes first");
}
