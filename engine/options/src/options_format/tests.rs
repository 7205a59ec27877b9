use testudo_base::{ErrorKind, KeyspaceId, codec::Damage};

use testudo_values::LargeValues;

use super::{
    MOVING, Unreadable,
    placement_format::{BY_LENGTHS, BY_RATIOS, DEFAULT, TWO_PERCENT},
    put_short,
};
use testudo_values::Placement;

use crate::{Forecast, KeyspaceOptions, Stage, StoredOptions, Tree, TreelineOptions, passage::Passage};

impl StoredOptions {
    fn with_chosen(self, chosen: KeyspaceOptions) -> Self {
        let options = Self::from(chosen).with_passage(self.passage());
        options.with_large_values(self.large_values()).with_value_excess(self.value_excess())
    }

    fn placed(self, placement: Placement) -> Self {
        self.with_chosen(self.chosen().placement(placement))
    }

    fn merge_operator(self, name: &str) -> Self {
        self.with_chosen(self.chosen().merge_operator(name))
    }
}

fn inline() -> StoredOptions {
    StoredOptions::default().placed(Placement::inline())
}

fn moving(medium_from: Option<u64>, large_from: Option<u64>) -> Placement {
    Placement::by_value_bytes(medium_from, large_from).unwrap().with_moving_thresholds(true)
}

/// Options, and their bytes.
fn golden() -> Vec<(StoredOptions, &'static [u8])> {
    let treeline = |pages: TreelineOptions| Tree::treeline().with_treeline(pages);
    let small = |tree: Tree| tree.with_run_bytes(4096).with_growth_factor(2).with_level1_flushes(1);
    vec![
        (StoredOptions::default(), b"\x82\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
        (inline(), b"\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
        (
            inline()
                .with_tree(Tree::splinter().with_run_bytes(4096).with_max_pivots(4))
                .merge_operator("add-u64"),
            b"\x02\0\x10\0\0\0\0\0\0\x04\0\0\0\0\0\0\0add-u64",
        ),
        (
            inline().with_tree(small(Tree::leveled())).merge_operator("append"),
            b"\x03\x18\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x06\0append",
        ),
        (
            inline().with_tree(small(Tree::treeline())),
            b"\x06\x18\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0",
        ),
        (
            inline().with_tree(small(treeline(TreelineOptions::new().with_stage(Stage::Sparse)))),
            b"\x06\x20\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
              \x01\0\0\0\0\0\0\0\0\0",
        ),
        (
            inline().with_tree(small(treeline(TreelineOptions::new().with_fill_percent(75)))),
            b"\x06\x28\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
              \0\0\0\0\0\0\0\0\x4b\0\0\0\0\0\0\0\0\0",
        ),
        (
            inline().with_tree(small(treeline(TreelineOptions::new().with_forecast(Forecast::Off)))),
            b"\x06\x30\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
              \0\0\0\0\0\0\0\0\x5e\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
        (
            inline().with_tree(small(Tree::lsbm().with_retained_percent(10))),
            b"\x05\x20\0\0\x10\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\0\0",
        ),
        (
            StoredOptions::default().placed(Placement::separate()),
            b"\x83\x1d\0\xff\xff\xff\xff\xff\xff\xff\xff\x20\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\0\0\0\0\0\0\
              \x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        (
            StoredOptions::default()
                .placed(
                    moving(Some(48), Some(588)).with_in_place_levels(2).unwrap().with_sizes_of_pairs(true),
                )
                .with_large_values(LargeValues::WithKeys)
                .with_value_excess(7),
            b"\x83\x1d\0\x30\0\0\0\0\0\0\0\x4c\x02\0\0\0\0\0\0\x02\0\0\0\x03\x07\0\0\0\0\0\0\0\
              \x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
    ]
}

/// Bytes of earlier versions, whose placements had ratios, and the options that they stand for.
fn golden_of_ratios() -> Vec<(StoredOptions, &'static [u8])> {
    let options = StoredOptions::default;
    vec![
        (options().placed(moving(None, Some(588))), b"\x81\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
        (
            options().placed(Placement::separate()),
            b"\x80\x0c\0\0\0\0\0\0\0\xf0\x3f\x0c\0\0\0\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        // A medium ratio of 0.5, below the large ratio of 1: no value is medium.
        (
            options().placed(Placement::separate()),
            b"\x80\x14\0\0\0\0\0\0\0\xf0\x3f\x0c\0\0\0\0\0\0\0\0\0\xe0\x3f\x01\0\0\
              \x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        (
            options()
                .placed(moving(None, Some(32)))
                .with_large_values(LargeValues::WithKeys)
                .with_value_excess(7),
            b"\x80\x21\0\0\0\0\0\0\0\xf0\x3f\x0c\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\
              \x01\x07\0\0\0\0\0\0\0\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        // The thesis's ratios, 0.02 and 0.2.
        (
            options().placed(Placement::hybrid()),
            b"\x80\x14\0\x7b\x14\xae\x47\xe1\x7a\x94\x3f\x0c\0\0\0\x9a\x99\x99\x99\x99\x99\xc9\x3f\x01\0\0\
              \x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        // 0.02 with a prefix of 24 bytes, no medium ratio, two levels in place, logged medium values.
        (
            options().placed(
                Placement::by_value_bytes(None, Some(1176))
                    .and_then(|placement| placement.with_in_place_levels(2))
                    .unwrap()
                    .with_logged_medium(true),
            ),
            b"\x80\x19\0\x7b\x14\xae\x47\xe1\x7a\x94\x3f\x18\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x0c\x01\0\0\
              \x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
        ),
        // The default, 1/128, after its values have returned to their keys.
        (
            options().with_large_values(LargeValues::WithKeys).with_value_excess(9),
            b"\x80\x21\0\0\0\0\0\0\0\x80\x3f\x0c\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\
              \x01\x09\0\0\0\0\0\0\0\x01\0\0\x20\0\0\0\0\0\x40\0\0\0\0\0\0\0",
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
fn placements_by_ratios_decode_to_lengths_and_are_not_written_again() {
    for (options, bytes) in golden_of_ratios() {
        assert_eq!(StoredOptions::decode(bytes), Ok(options), "{bytes:x?}");
        let rewritten = options.encode();
        assert_eq!(rewritten[0], BY_LENGTHS);
        assert_eq!(StoredOptions::decode(&rewritten), Ok(options));
    }
}

#[test]
fn every_preset_round_trips() {
    for (name, tree) in Tree::presets() {
        for options in [StoredOptions::default(), StoredOptions::default().merge_operator("append")] {
            for (_, placement) in Placement::presets() {
                let options = options.with_tree(tree).placed(placement);
                assert_eq!(StoredOptions::decode(&options.encode()), Ok(options), "{name}");
            }
        }
    }
}

#[test]
fn in_place_levels_round_trip() {
    for placement in [Placement::inline(), Placement::hybrid(), Placement::separate()] {
        let placement = placement.with_in_place_levels(2).unwrap();
        let options = StoredOptions::default().placed(placement);
        let mut bytes = options.encode();
        assert_eq!(StoredOptions::decode(&bytes), Ok(options));
        assert_eq!(bytes[..3], [BY_LENGTHS, 29, 0]);
        bytes[19] = 3;
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
        let options = StoredOptions::default().placed(placement.with_moving_thresholds(has(8)));
        assert_eq!(StoredOptions::decode(&options.encode()), Ok(options));
    }
}

#[test]
fn a_fill_of_pages_out_of_bounds_is_damage() {
    let (_, bytes) = golden().into_iter().find(|(_, bytes)| bytes.contains(&75)).unwrap();
    for (percent, is_valid) in [(49, false), (50, true), (100, true), (101, false)] {
        let mut bytes = bytes.to_vec();
        *bytes.iter_mut().find(|byte| **byte == 75).unwrap() = percent;
        assert_eq!(StoredOptions::decode(&bytes).is_ok(), is_valid, "{percent} %");
    }
    let mut bytes = bytes.to_vec();
    bytes[27] = 2;
    assert!(matches!(StoredOptions::decode(&bytes), Err(Unreadable::Newer(_))), "an unknown stage");
}

#[test]
fn truncated_options_are_damaged_or_decode_differently() {
    for (_, tree) in Tree::presets() {
        let options = StoredOptions::default().with_tree(tree).merge_operator("append");
        let options = options.placed(Placement::hybrid());
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
    let placements = [BY_RATIOS, TWO_PERCENT, DEFAULT, BY_LENGTHS];
    for tag in (7..=u8::MAX).filter(|tag| !placements.contains(tag)) {
        let Err(Unreadable::Newer(what)) = StoredOptions::decode(&[tag, 0, 0, 0]) else {
            panic!("tree {tag} is unknown");
        };
        let error = Unreadable::Newer(what).into_error("manifest", KeyspaceId(7));
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("a newer version is needed"), "{error}");
    }
    assert!(matches!(StoredOptions::decode(&[0, 0, 0]), Err(Unreadable::Damaged(_))));
    let [_, _, _, (_, leveled), .., (_, placed)] = golden()[..] else { panic!("there are as many") };
    let [.., (_, by_ratios)] = golden_of_ratios()[..] else { panic!("there are some") };
    let more_settings = [&[3, 25, 0][..], &leveled[3..27], &[7], &leveled[27..]].concat();
    let more_options = [leveled, &[7]].concat();
    let more_placement = [&[BY_LENGTHS, 30, 0][..], &placed[3..32], &[7], &placed[32..]].concat();
    let more_by_ratios = [&[BY_RATIOS, 34, 0][..], &by_ratios[3..36], &[7], &by_ratios[36..]].concat();
    let mut more_flags = placed.to_vec();
    more_flags[23] |= 16;
    for bytes in [more_settings, more_options, more_placement, more_by_ratios, more_flags] {
        assert!(matches!(StoredOptions::decode(&bytes), Err(Unreadable::Newer(_))), "{bytes:?}");
    }
}

#[test]
fn settings_out_of_bounds_are_damage() {
    let out = Tree::turtle().with_run_bytes(1);
    let bytes = StoredOptions::default().with_tree(out).encode();
    let why = Damage("settings of a keyspace are out of bounds");
    assert_eq!(StoredOptions::decode(&bytes), Err(Unreadable::Damaged(why)));
    let why_placed = Damage("a placement is out of bounds");
    let placed = StoredOptions::default().placed(Placement::hybrid()).encode();
    // Medium values from 600 and from 1 byte on, large ones from 588.
    for medium_from in [600_u64, 1] {
        let changed = [&placed[..3], &medium_from.to_le_bytes(), &placed[11..]].concat();
        assert_eq!(StoredOptions::decode(&changed), Err(Unreadable::Damaged(why_placed)));
    }
    let [.., (_, by_ratios)] = golden_of_ratios()[..] else { panic!("there are some") };
    let mut negative = by_ratios.to_vec();
    negative[10] = 0xff;
    assert_eq!(StoredOptions::decode(&negative), Err(Unreadable::Damaged(why_placed)));
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
            let options = options.with_tree(tree).with_passage(passage);
            assert_eq!(StoredOptions::decode(&options.encode()).unwrap(), options);
        }
    }
}

/// A later version may move keyspaces to unknown trees.
#[test]
fn unknown_moves_are_newer_and_impossible_ones_are_damage() {
    let known = inline().encode();
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
    let nested = inline().with_passage(Passage::Ended).encode();
    let merging = StoredOptions::default().merge_operator("append").encode();
    for damaged in [moving(&nested, &known, b""), moving(&known, &merging, b""), moving(&known, b"", b"")] {
        assert!(matches!(damaged, Err(Unreadable::Damaged(_))), "{damaged:?}");
    }
    // The placement precedes the move, in each of its forms.
    let placed = golden().into_iter().chain(golden_of_ratios()).filter(|(_, bytes)| bytes[0] >= BY_RATIOS);
    for (_, placed) in placed {
        for damaged in [moving(placed, &known, b""), moving(&known, placed, b"")] {
            assert!(matches!(damaged, Err(Unreadable::Damaged(_))), "{placed:x?}: {damaged:?}");
        }
    }
}
