use testudo_base::{ErrorKind, KeyspaceId, codec::Damage};

use testudo_values::LargeValues;

use super::{LARGE, LARGE_BELOW_2_PERCENT, MOVING, PLACED, Unreadable, large_below_two_percent, put_short};
use testudo_values::Placement;

use crate::{KeyspaceOptions, StoredOptions, Tree, passage::Passage};

impl StoredOptions {
    fn with_chosen(self, chosen: KeyspaceOptions) -> Self {
        let options = Self::from(chosen).with_passage(self.passage());
        options.with_large_values(self.large_values()).with_value_excess(self.value_excess())
    }

    fn placement(self, placement: Placement) -> Self {
        self.with_chosen(self.chosen().placement(placement))
    }

    fn merge_operator(self, name: &str) -> Self {
        self.with_chosen(self.chosen().merge_operator(name))
    }
}

/// Bytes that the first versions wrote.
fn golden() -> Vec<(StoredOptions, &'static [u8])> {
    let options = || StoredOptions::default().placement(Placement::inline());
    vec![
        (StoredOptions::default(), b"\x82\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
        (options().placement(large_below_two_percent()), b"\x81\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
        (options(), b"\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
        (
            options()
                .tree(Tree::splinter().with_run_bytes(4096).with_max_pivots(4))
                .merge_operator("add-u64"),
            b"\x02\0\x10\0\0\0\0\0\0\x04\0\0\0\0\0\0\0add-u64",
        ),
        (
            options()
                .tree(Tree::leveled().with_run_bytes(4096).with_growth_factor(2).with_level1_flushes(1))
                .merge_operator("append"),
            b"\x03\x18\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x06\0append",
        ),
        (
            options()
                .tree(Tree::treeline().with_run_bytes(4096).with_growth_factor(2).with_level1_flushes(1)),
            b"\x06\x18\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0",
        ),
        (
            options().tree(
                Tree::lsbm()
                    .with_run_bytes(4096)
                    .with_growth_factor(2)
                    .with_level1_flushes(1)
                    .with_retained_percent(10),
            ),
            b"\x05\x20\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\0\0",
        ),
        (
            options().placement(Placement::separate()),
            b"\x80\x0c\0\0\0\0\0\0\0\xf0\x3f\x0c\0\0\0\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        (
            options().placement(Placement::separate().with_small_ratio(0.5).unwrap()),
            b"\x80\x14\0\0\0\0\0\0\0\xf0\x3f\x0c\0\0\0\0\0\0\0\0\0\xe0\x3f\x01\0\0\
              \x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        (
            options()
                .placement(Placement::separate().with_moving_thresholds(true))
                .with_large_values(LargeValues::WithKeys)
                .with_value_excess(7),
            b"\x80\x21\0\0\0\0\0\0\0\xf0\x3f\x0c\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\
              \x01\x07\0\0\0\0\0\0\0\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
    ]
}

#[test]
fn encoding_of_options_is_stable() {
    for (options, bytes) in golden() {
        assert_eq!(options.encode(), bytes);
        assert_eq!(StoredOptions::decode(bytes), Ok(options));
    }
}

#[test]
fn every_preset_round_trips() {
    for (name, tree) in Tree::presets() {
        for options in [StoredOptions::default(), StoredOptions::default().merge_operator("append")] {
            for placement in
                [Placement::inline(), Placement::large(), Placement::hybrid(), Placement::automatic()]
                    .into_iter()
                    .chain([Placement::separate(), large_below_two_percent()])
            {
                let options = options.tree(tree).placement(placement);
                assert_eq!(StoredOptions::decode(&options.encode()), Ok(options), "{name}");
            }
        }
    }
}

#[test]
fn in_place_levels_round_trip() {
    for placement in [Placement::inline(), Placement::hybrid(), Placement::separate()] {
        let placement = placement.with_in_place_levels(2).unwrap();
        let options = StoredOptions::default().placement(placement);
        let mut bytes = options.encode();
        assert_eq!(StoredOptions::decode(&bytes), Ok(options));
        assert_eq!(bytes[..3], [PLACED, 24, 0]);
        bytes[23] = 3;
        let damage = Damage("a placement is out of bounds");
        assert_eq!(StoredOptions::decode(&bytes), Err(Unreadable::Damaged(damage)));
    }
}

#[test]
fn all_placement_flags_round_trip() {
    for choice in 0..16 {
        let has = |flag: u32| choice & flag != 0;
        let placement = Placement::hybrid().with_in_place_levels(1 + u32::from(has(1))).unwrap();
        let placement = placement.with_sizes_of_pairs(has(2)).with_logged_medium(has(4));
        let options = StoredOptions::default().placement(placement.with_moving_thresholds(has(8)));
        assert_eq!(StoredOptions::decode(&options.encode()), Ok(options));
    }
}

#[test]
fn truncated_options_are_damaged_or_decode_differently() {
    for (_, tree) in Tree::presets() {
        let options = StoredOptions::default().tree(tree).merge_operator("append");
        let options = options.placement(Placement::hybrid());
        let bytes = options.encode();
        for length in 0..bytes.len() {
            match StoredOptions::decode(&bytes[..length]) {
                Ok(other) => assert_ne!(other, options),
                Err(why) => assert!(matches!(why, Unreadable::Damaged(_)), "{length} bytes: {why:?}"),
            }
        }
    }
}

#[test]
fn newer_options_are_distinguished_from_damage() {
    for tag in (7..=u8::MAX).filter(|tag| ![PLACED, LARGE, LARGE_BELOW_2_PERCENT].contains(tag)) {
        let Err(Unreadable::Newer(what)) = StoredOptions::decode(&[tag, 0, 0, 0]) else {
            panic!("tree {tag} is unknown");
        };
        let error = Unreadable::Newer(what).into_error("manifest", KeyspaceId(7));
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("a newer version is needed"), "{error}");
    }
    assert!(matches!(StoredOptions::decode(&[0, 0, 0]), Err(Unreadable::Damaged(_))));
    let [.., (_, leveled), _, _, _, (_, placed)] = golden()[..] else { panic!("these come last") };
    let more_placement = [&[PLACED, 21, 0][..], &placed[3..23], &[7], &placed[23..]].concat();
    let more_settings = [&[3, 25, 0][..], &leveled[3..27], &[7], &leveled[27..]].concat();
    let more_options = [leveled, &[7]].concat();
    for bytes in [more_settings, more_options, more_placement] {
        assert!(matches!(StoredOptions::decode(&bytes), Err(Unreadable::Newer(_))), "{bytes:?}");
    }
}

#[test]
fn settings_out_of_bounds_are_damage() {
    let out = Tree::turtle().with_run_bytes(1).with_max_pivots(64);
    let bytes = StoredOptions::default().tree(out).encode();
    let why = Damage("settings of a keyspace are out of bounds");
    assert_eq!(StoredOptions::decode(&bytes), Err(Unreadable::Damaged(why)));
    let mut placed = StoredOptions::default().placement(Placement::separate()).encode();
    placed[10] = 0xff;
    let why_placed = Damage("a placement is out of bounds");
    assert_eq!(StoredOptions::decode(&placed), Err(Unreadable::Damaged(why_placed)));
    let long = StoredOptions::default().merge_operator(&"a".repeat(32)).encode();
    assert!(StoredOptions::decode(&long).is_ok());
    let too_long = [long, b"a".to_vec()].concat();
    assert_eq!(StoredOptions::decode(&too_long), Err(Unreadable::Damaged(why)));
}

#[test]
fn options_of_moving_and_moved_keyspaces_round_trip() {
    for (tree, passage) in [
        (Tree::leveled(), Passage::from_tree(Tree::turtle())),
        (Tree::splinter(), Passage::from_tree(Tree::leveled())),
        (Tree::leveled(), Passage::Ended),
        (Tree::turtle(), Passage::Ended),
    ] {
        for options in [StoredOptions::default(), StoredOptions::default().merge_operator("add-u64")] {
            let options = options.tree(tree).with_passage(passage);
            assert_eq!(StoredOptions::decode(&options.encode()).unwrap(), options);
        }
    }
}

/// A later version may move keyspaces to unknown trees.
#[test]
fn unknown_moves_are_newer_and_impossible_ones_are_damage() {
    let known = StoredOptions::default().placement(Placement::inline()).encode();
    let moving = |left: &[u8], tree: &[u8], more: &[u8]| {
        let mut settings = Vec::new();
        put_short(&mut settings, left);
        put_short(&mut settings, tree);
        settings.extend_from_slice(more);
        let mut out = vec![MOVING];
        put_short(&mut out, &settings);
        put_short(&mut out, b"");
        StoredOptions::decode(&out)
    };
    assert!(moving(&known, &known, b"").is_ok());
    for newer in
        [moving(&known, &[250, 0, 0, 0, 0], b""), moving(&[250], &known, b""), moving(b"", &known, b"?")]
    {
        assert!(matches!(newer, Err(Unreadable::Newer(_))), "{newer:?}");
    }
    let nested = StoredOptions::default().placement(Placement::inline());
    let nested = nested.with_passage(Passage::Ended).encode();
    let merging = StoredOptions::default().merge_operator("append").encode();
    for damaged in [moving(&nested, &known, b""), moving(&known, &merging, b""), moving(&known, b"", b"")] {
        assert!(matches!(damaged, Err(Unreadable::Damaged(_))), "{damaged:?}");
    }
}
