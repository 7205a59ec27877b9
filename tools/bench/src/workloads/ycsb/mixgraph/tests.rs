use std::collections::HashMap;

use super::*;

const RECORDS: u64 = 300_000;

fn model() -> KeyModel {
    KeyModel::new(RECORDS, KeyMaker::new(48).unwrap())
}

/// The expected figures follow from the model's parameters, computed independently of this code.
#[test]
fn value_lengths_follow_the_model() {
    let mut random = SplitMix::new(1);
    let mut bytes: Vec<usize> = (0..200_000).map(|_| value_bytes(open_unit(&mut random))).collect();
    bytes.sort_unstable();
    let mean = bytes.iter().sum::<usize>() as f64 / bytes.len() as f64;
    assert!((mean - 36.4).abs() < 0.8, "{mean}");
    assert!((mean - VALUE_BYTES_MEAN as f64).abs() < 1.0, "{mean}");
    let at = |percent: usize| bytes[bytes.len() * percent / 100];
    assert!((19..=21).contains(&at(50)) && (78..=84).contains(&at(90)), "{} {}", at(50), at(90));
    assert!((215..=240).contains(&at(99)), "{}", at(99));
    assert!(bytes[0] >= 10 && bytes[bytes.len() - 1] <= 1_024);
}

#[test]
fn scan_lengths_follow_the_model() {
    let mut random = SplitMix::new(2);
    let mut entries: Vec<u64> = (0..200_000).map(|_| scan_length(&mut random)).collect();
    entries.sort_unstable();
    let mean = entries.iter().sum::<u64>() as f64 / entries.len() as f64;
    assert!((mean - 569.0).abs() < 25.0, "{mean}");
    let at = |percent: usize| entries[entries.len() * percent / 100];
    assert!((26..=28).contains(&at(50)) && (1_430..=1_550).contains(&at(90)), "{} {}", at(50), at(90));
}

#[test]
fn range_heat_follows_the_model() {
    let (model, mut random) = (model(), SplitMix::new(3));
    let mut shares: HashMap<u8, u32> = HashMap::new();
    for _ in 0..100_000 {
        let record = model.pick(&mut random);
        assert!(record < RECORDS);
        let part = floor(model.keys.fraction(record) * 30.0);
        *shares.entry(u8::try_from(part).unwrap()).or_default() += 1;
    }
    let mut shares: Vec<f64> = shares.into_values().map(|count| f64::from(count) / 1_000.0).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    assert_eq!(shares.len(), RANGES);
    for (share, expected) in shares.iter().zip([79.1, 5.6, 1.5, 1.2]) {
        assert!((share - expected).abs() < 0.5, "{share} for {expected}");
    }
}

#[test]
fn few_keys_of_a_range_are_hot() {
    let mut random = SplitMix::new(4);
    let seeds: Vec<u64> =
        (0..100_000).map(|_| floor((open_unit(&mut random) / 0.002_312).powf(1.0 / 0.3467).ceil())).collect();
    let up_to = |most: u64| seeds.iter().filter(|seed| **seed <= most).count() as f64 / 1_000.0;
    for (most, expected) in [(100, 1.1), (10_000, 5.6), (1_000_000, 27.8), (10_000_000, 61.8)] {
        assert!((up_to(most) - expected).abs() < 0.6, "{} for {expected}", up_to(most));
    }
    let model = model();
    assert_eq!(model.record_of(7, 1), model.record_of(7, 1), "a seed always yields the same record");
    let others = (2..100).filter(|seed| model.record_of(7, *seed) != model.record_of(7, 1)).count();
    assert!(others > 95, "{others}");
}
