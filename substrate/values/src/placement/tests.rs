use testudo_base::ErrorKind;

use super::*;

#[test]
fn pairs_below_the_ratio_are_large() {
    let hybrid = Placement::hybrid();
    assert!(!hybrid.separates(24, 576), "p is the ratio");
    assert!(hybrid.separates(24, 577));
    assert!(!Placement::inline().separates(24, 1 << 30));
    assert!(Placement::separate().separates(1, 32));
    assert!(!Placement::separate().separates(65_536, 31), "a short value stays, however long its key");
    let wide = hybrid.with_prefix_bytes(24).unwrap();
    assert!(!wide.separates(24, 1_176) && wide.separates(24, 1_177));
}

#[test]
fn nonsense_is_invalid() {
    for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(Placement::hybrid().with_large_ratio(ratio).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(Placement::hybrid().with_prefix_bytes(0).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(Placement::separate().with_large_ratio(0.0).unwrap().is_inline());
}

#[test]
fn presets_are_known_by_their_names() {
    for (name, preset) in presets() {
        assert_eq!(preset.to_string(), name);
        assert_eq!(name.parse::<Placement>().unwrap(), preset);
    }
    assert_eq!("medium".parse::<Placement>().unwrap_err().kind(), ErrorKind::Invalid);
    let other = Placement::hybrid().with_large_ratio(0.5).unwrap();
    assert_eq!(other.to_string(), "large below 0.5, prefix of 12");
}
