use std::collections::HashSet;

use testudo_env::SplitMix;

use super::{Picker, THETA, Zipf, hot_range, scatter, stride_of, zeta};
use crate::{Distribution, workloads::ycsb::keys::KeyMaker};

fn picker(distribution: Distribution, records: u64) -> Picker {
    Picker::new(distribution, records, KeyMaker::new(24).unwrap(), 0.05)
}

#[test]
fn approximated_zeta_is_close_to_exact() {
    for theta in [0.7, THETA, 1.2] {
        for count in [1u64, 2, 999, 1_000, 1_001, 50_000, 1_000_000] {
            let exact: f64 = (1..=count).map(|rank| (rank as f64).powf(-theta)).sum();
            assert!((zeta(count, theta) / exact - 1.0).abs() < 1e-9, "{count}, {theta}");
        }
    }
}

#[test]
fn hottest_shares_follow_the_formula() {
    for theta in [0.7, THETA, 1.2] {
        shares_are_those_of_the_formula(theta);
    }
}

fn shares_are_those_of_the_formula(theta: f64) {
    let count = 1_000_000;
    let zipf = Zipf::with_skew(count, theta);
    let mut random = SplitMix::new(1);
    let draws = 1_000_000u32;
    let (mut first, mut hundred, mut tenth) = (0u32, 0u32, 0u32);
    for _ in 0..draws {
        let rank = zipf.rank(&mut random);
        assert!(rank < count);
        first += u32::from(rank == 0);
        hundred += u32::from(rank < 100);
        tenth += u32::from(rank < count / 10);
    }
    let share = |ranks: u64| zeta(ranks, theta) / zeta(count, theta);
    for (seen, ranks) in [(first, 1), (hundred, 100), (tenth, count / 10)] {
        let seen = f64::from(seen) / f64::from(draws);
        assert!((seen / share(ranks) - 1.0).abs() < 0.05, "{ranks}: {seen} for {}", share(ranks));
    }
}

#[test]
fn scattering_reaches_every_record_once() {
    for count in [1u64, 2, 3, 10, 97, 1_000, 4_096] {
        let stride = stride_of(count);
        let reached: HashSet<u64> = (0..count).map(|rank| scatter(rank, stride, count)).collect();
        assert_eq!(reached.len() as u64, count);
        assert!(reached.iter().all(|record| *record < count));
    }
}

#[test]
fn picks_are_below_the_acknowledged_count() {
    let mut random = SplitMix::new(2);
    for distribution in
        [Distribution::Zipfian, Distribution::Uniform, Distribution::Latest, Distribution::RangeHot]
    {
        for records in [1u64, 2, 3, 10, 1_000] {
            let picker = picker(distribution, records);
            assert!((0..2_000).all(|_| picker.pick(&mut random, records + 5) < records + 5));
        }
    }
}

#[test]
fn latest_prefers_the_newest() {
    let picker = picker(Distribution::Latest, 1_000);
    let mut random = SplitMix::new(3);
    let newest = (0..10_000).filter(|_| picker.pick(&mut random, 2_000) == 1_999).count();
    assert!(newest > 1_000, "{newest}");
}

#[test]
fn hot_range_has_the_requested_share_and_its_picks() {
    let keys = KeyMaker::new(24).unwrap();
    for (share, records) in [(0.02, 200_000), (0.05, 100_000), (0.5, 50_000)] {
        let range = hot_range(share);
        let hot: HashSet<u64> =
            (0..records).filter(|record| range.contains(&keys.fraction(*record))).collect();
        let found = hot.len() as f64 / (share * records as f64);
        assert!((0.95..1.05).contains(&found), "{share}: {}", hot.len());
        let picker = Picker::new(Distribution::RangeHot, records, keys, share);
        let mut random = SplitMix::new(4);
        let mut counts = vec![0u32; usize::try_from(records).unwrap()];
        for _ in 0..100_000 {
            counts[usize::try_from(picker.pick(&mut random, records)).unwrap()] += 1;
        }
        let hits: u32 = hot.iter().map(|record| counts[usize::try_from(*record).unwrap()]).sum();
        // 98 % of all picks, and the hot share of the rest.
        let due = 98_000.0 + 2_000.0 * share;
        assert!((f64::from(hits) - due).abs() < 200.0, "{share}: {hits}");
        let most = hot.iter().map(|record| counts[usize::try_from(*record).unwrap()]).max().unwrap();
        let each = due / hot.len() as f64;
        assert!(f64::from(most) < each * 3.0 + 12.0, "{share}: uniform, {each} each, not {most}");
    }
}
