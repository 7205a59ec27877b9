use testudo_base::ErrorKind;

use super::*;

#[test]
fn pairs_are_classified_by_the_part_that_an_index_keeps() {
    use PairClass::{Large, Medium, Small};
    let hybrid = Placement::hybrid();
    let classes = [(36, Small), (37, Medium), (576, Medium), (577, Large)];
    assert_eq!(classes.map(|(bytes, _)| hybrid.class_of(24, bytes)), classes.map(|(_, class)| class));
    assert_eq!(Placement::inline().class_of(24, 1 << 30), Small);
    assert_eq!(Placement::separate().class_of(1, 32), Large);
    assert_eq!(
        Placement::separate().class_of(65_536, 31),
        Small,
        "a short value stays, however long its key"
    );
    let wide = hybrid.with_prefix_bytes(24).unwrap();
    assert_eq!([1_176, 1_177].map(|bytes| wide.class_of(24, bytes)), [Medium, Large]);
    let two_classes = hybrid.with_small_ratio(0.0).unwrap();
    assert_eq!([576, 577].map(|bytes| two_classes.class_of(24, bytes)), [Small, Large]);
}

#[test]
fn commits_log_values_of_one_class() {
    let hybrid = Placement::hybrid();
    for (placement, first, last) in [(hybrid, 577, 10_000), (hybrid.with_logged_medium(true), 37, 576)] {
        assert!(placement.uses_value_logs());
        for (bytes, is_one) in [(first - 1, false), (first, true), (last, true)] {
            assert_eq!(placement.goes_to_value_log(24, bytes), is_one, "{bytes} bytes by {placement}");
        }
    }
    let without_medium = Placement::separate().with_logged_medium(true);
    assert!(!without_medium.uses_value_logs() && !without_medium.goes_to_value_log(24, 1_000));
    assert!(!Placement::inline().uses_value_logs());
}

#[test]
fn out_of_range_settings_are_invalid() {
    for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(Placement::hybrid().with_large_ratio(ratio).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Placement::hybrid().with_small_ratio(ratio).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(Placement::hybrid().with_prefix_bytes(0).unwrap_err().kind(), ErrorKind::Invalid);
    for levels in [0, 3, u32::MAX] {
        let placement = Placement::hybrid().with_in_place_levels(levels);
        assert_eq!(placement.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(Placement::separate().with_large_ratio(0.0).unwrap().is_inline());
    assert!(!Placement::hybrid().with_large_ratio(0.0).unwrap().is_inline());
}

#[test]
fn presets_round_trip_through_their_names() {
    for (name, preset) in presets() {
        assert_eq!(preset.to_string(), name);
        assert_eq!(name.parse::<Placement>().unwrap(), preset);
    }
    assert_eq!("medium".parse::<Placement>().unwrap_err().kind(), ErrorKind::Invalid);
    let other = Placement::hybrid().with_large_ratio(0.5).unwrap();
    assert_eq!(other.to_string(), "large below 0.5, small from 0.2, prefix of 12");
    let other = Placement::hybrid().with_sizes_of_pairs(true);
    assert_eq!(other.to_string(), "large below 0.02, small from 0.2, prefix of 12, levels sized by pairs");
    let other = Placement::hybrid().with_logged_medium(true);
    assert_eq!(other.to_string(), "large below 0.02, small from 0.2, prefix of 12, medium values logged");
}
