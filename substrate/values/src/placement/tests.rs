use testudo_base::ErrorKind;

use super::*;

#[test]
fn values_are_classified_by_their_length_alone() {
    use ValueClass::{Large, Medium, Small};
    let hybrid = Placement::hybrid();
    let classes = [(0, Small), (47, Small), (48, Medium), (587, Medium), (588, Large), (1 << 30, Large)];
    assert_eq!(classes.map(|(bytes, _)| hybrid.class_of(bytes)), classes.map(|(_, class)| class));
    assert_eq!([1_535, 1_536].map(|bytes| Placement::default().class_of(bytes)), [Small, Large]);
    assert_eq!(Placement::inline().class_of(1 << 30), Small);
    assert_eq!([31, 32].map(|bytes| Placement::separate().class_of(bytes)), [Small, Large]);
    let few_bytes = Placement::by_value_bytes(Some(1), Some(2)).unwrap();
    assert_eq!([31, 32].map(|bytes| few_bytes.class_of(bytes)), [Small, Large], "a short value stays");
    let two_classes = Placement::by_value_bytes(None, Some(588)).unwrap();
    assert_eq!([587, 588].map(|bytes| two_classes.class_of(bytes)), [Small, Large]);
    let at_most_medium = hybrid.without_large();
    assert_eq!([47, 48, 588].map(|bytes| at_most_medium.class_of(bytes)), [Small, Medium, Medium]);
}

/// Parallax, §3: a pair is large if p < T_ML, and medium if p < T_SM, where p = prefix / (key + value).
#[test]
fn ratios_separate_the_pairs_whose_keys_are_as_long_as_the_prefix() {
    for prefix in [1_u32, 12, 24, 200] {
        for (medium, large) in
            [(0.2, 0.02), (1.0, 0.5), (0.1, 0.01), (0.2, 0.2), (0.0, 1.0 / 128.0), (0.7, 0.0)]
        {
            let placement = Placement::by_ratios(prefix, medium, large).unwrap();
            for (ratio, from) in [(medium, placement.medium_from()), (large, placement.large_from())] {
                let Some(from) = from else {
                    assert_eq!(ratio, 0.0);
                    continue;
                };
                let p = |value: u64| f64::from(prefix) / (f64::from(prefix) + value as f64);
                assert!(p(from + 1) < ratio, "{prefix} bytes, {ratio}: {from}");
                assert!(from == VALUE_BYTES_MIN || p(from - 1) > ratio, "{prefix} bytes, {ratio}: {from}");
            }
        }
    }
    assert_eq!(Placement::by_ratios(12, 0.2, 0.02).unwrap(), Placement::hybrid());
    assert_eq!(Placement::by_ratios(12, 0.0, 1.0).unwrap(), Placement::separate());
    assert!(Placement::by_ratios(12, 0.0, 0.0).unwrap().is_inline());
    assert!(Placement::by_ratios(12, 0.0, f64::MIN_POSITIVE).unwrap().is_inline(), "no value is that long");
}

#[test]
fn commits_log_values_of_one_class() {
    let hybrid = Placement::hybrid();
    for (placement, first, last) in [(hybrid, 588, 10_000), (hybrid.with_logged_medium(true), 48, 587)] {
        assert!(placement.uses_value_logs());
        for (bytes, is_one) in [(first - 1, false), (first, true), (last, true)] {
            assert_eq!(placement.goes_to_value_log(bytes), is_one, "{bytes} bytes by {placement}");
        }
    }
    let without_medium = Placement::separate().with_logged_medium(true);
    assert!(!without_medium.uses_value_logs() && !without_medium.goes_to_value_log(1_000));
    assert!(!Placement::inline().uses_value_logs());
}

#[test]
fn out_of_range_settings_are_invalid() {
    let kind = |placement: Result<Placement>| placement.unwrap_err().kind();
    for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(kind(Placement::by_ratios(12, ratio, 0.0)), ErrorKind::Invalid);
        assert_eq!(kind(Placement::by_ratios(12, 0.0, ratio)), ErrorKind::Invalid);
    }
    assert_eq!(kind(Placement::by_ratios(0, 0.2, 0.02)), ErrorKind::Invalid);
    assert_eq!(kind(Placement::by_ratios(12, 0.02, 0.2)), ErrorKind::Invalid);
    assert_eq!(kind(Placement::by_value_bytes(Some(589), Some(588))), ErrorKind::Invalid);
    for levels in [0, 3, u32::MAX] {
        assert_eq!(kind(Placement::hybrid().with_in_place_levels(levels)), ErrorKind::Invalid);
    }
    assert!(Placement::by_value_bytes(None, None).unwrap().is_inline());
    assert!(!Placement::by_value_bytes(Some(48), None).unwrap().is_inline());
}

#[test]
fn placements_round_trip_through_their_text() {
    for (name, preset) in Placement::presets() {
        assert_eq!(preset.to_string(), name);
        assert_eq!(name.parse::<Placement>().unwrap(), preset);
    }
    let hybrid = Placement::hybrid();
    for (placement, text) in [
        (Placement::by_value_bytes(None, Some(4_096)).unwrap(), "large=4096"),
        (Placement::by_value_bytes(Some(64), None).unwrap(), "medium=64"),
        (hybrid.without_large().with_moving_thresholds(true), "medium=48,moving"),
        (hybrid.with_in_place_levels(2).unwrap(), "large=588,medium=48,in-place-levels=2"),
        (hybrid.with_sizes_of_pairs(true), "large=588,medium=48,sizes-of-pairs"),
        (hybrid.with_logged_medium(true), "large=588,medium=48,logged-medium"),
    ] {
        assert_eq!(placement.to_string(), text);
        assert_eq!(text.parse::<Placement>().unwrap(), placement);
    }
    for wrong in ["medium", "", "large=", "large=-1", "large=4k", "medium=600,large=588", "in-place-levels=3"]
    {
        assert_eq!(wrong.parse::<Placement>().unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
}
