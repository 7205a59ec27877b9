//! One test for each rule about the state after a power loss.

use std::{collections::BTreeSet, path::Path};

use super::{contents, create, create_unsynced, create_with, names};
use crate::{CrashPolicy, Env, MemEnv, TornMode};

const SEEDS: u64 = 200;

fn keep(keep_percent: u8) -> CrashPolicy {
    CrashPolicy { keep_percent, torn: TornMode::Keep }
}

/// Returns all contents of `path` seen after crashes under `policy`; `None` means no such file.
fn outcomes(env: &MemEnv, path: &str, policy: CrashPolicy) -> BTreeSet<Option<Vec<u8>>> {
    (0..SEEDS).map(|seed| env.crash_image(&policy, seed).file_bytes(path).ok()).collect()
}

/// The same for the sets of names in the root.
fn name_outcomes(env: &MemEnv, policy: CrashPolicy) -> BTreeSet<Vec<String>> {
    (0..SEEDS).map(|seed| names(&env.crash_image(&policy, seed))).collect()
}

fn sectors(values: &[u8]) -> Vec<u8> {
    values.iter().flat_map(|&value| [value; 512]).collect()
}

#[test]
fn synced_bytes_survive_every_crash() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &[7; 10_000]);
    file.write_at(20_480, &[9; 4096]).unwrap();
    for policy in CrashPolicy::all() {
        for seed in 0..20 {
            let bytes = env.crash_image(&policy, seed).file_bytes("/a").unwrap();
            assert_eq!(bytes[..10_000], [7; 10_000]);
        }
    }
}

#[test]
fn lose_all_keeps_nothing_unsynced_and_keep_all_everything() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &[1; 9_000]);
    let before = contents(&env);
    file.write_at(100, &[2; 10_000]).unwrap();
    file.punch_hole(0, 8192).unwrap();
    file.write_at(4000, &[3; 10]).unwrap();
    create_unsynced(&env, "/b");
    env.rename(Path::new("/a"), Path::new("/c")).unwrap();
    let lost = env.crash_image(&CrashPolicy::LOSE_ALL, 1);
    assert_eq!(contents(&lost), before);
    assert_eq!(lost.used_bytes(), 3 * 4096);
    let kept = env.crash_image(&CrashPolicy::KEEP_ALL, 1);
    assert_eq!(contents(&kept), contents(&env));
    assert_eq!(kept.used_bytes(), env.used_bytes());
}

#[test]
fn each_unsynced_sector_survives_independently() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[1, 1, 1]));
    file.write_at(0, &sectors(&[2, 2, 2])).unwrap();
    let expected: BTreeSet<_> = (0..8_u8)
        .map(|bits| Some(sectors(&[1 + (bits & 1), 1 + (bits >> 1 & 1), 1 + (bits >> 2)])))
        .collect();
    assert_eq!(outcomes(&env, "/a", keep(50)), expected);
}

#[test]
fn partial_overwrite_changes_whole_sectors() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[1, 1]));
    file.write_at(500, &[2; 24]).unwrap();
    let mut left = sectors(&[1, 1]);
    left[500..512].fill(2);
    let mut right = sectors(&[1, 1]);
    right[512..524].fill(2);
    let mut both = left.clone();
    both[512..524].fill(2);
    let expected = BTreeSet::from([Some(sectors(&[1, 1])), Some(left), Some(right), Some(both)]);
    assert_eq!(outcomes(&env, "/a", keep(50)), expected);
}

#[test]
fn any_version_of_a_sector_since_the_sync_may_survive() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[1]));
    for value in 2..=5 {
        file.write_at(0, &sectors(&[value])).unwrap();
    }
    let expected = (1..=5).map(|value| Some(sectors(&[value]))).collect();
    assert_eq!(outcomes(&env, "/a", keep(50)), expected);
    file.sync().unwrap();
    assert_eq!(outcomes(&env, "/a", keep(50)), BTreeSet::from([Some(sectors(&[5]))]));
}

#[test]
fn repeatedly_overwritten_sector_keeps_its_newest_versions() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[0, 0]));
    file.write_at(512, &sectors(&[99])).unwrap();
    for value in 1..=50 {
        file.write_at(0, &sectors(&[value])).unwrap();
    }
    let firsts: BTreeSet<u8> =
        outcomes(&env, "/a", keep(10)).into_iter().map(|bytes| bytes.unwrap()[0]).collect();
    assert_eq!(firsts, [0].into_iter().chain(43..=50).collect());
    let kept = env.crash_image(&CrashPolicy::KEEP_ALL, 0).file_bytes("/a").unwrap();
    assert_eq!(kept, sectors(&[50, 99]), "a dropped version passes its other sectors to the next");
}

#[test]
fn content_and_length_survive_independently() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[1]));
    file.write_at(512, &sectors(&[2])).unwrap();
    let lost_length = sectors(&[1]);
    let lost_content = sectors(&[1, 0]);
    let expected = BTreeSet::from([Some(lost_length), Some(lost_content), Some(sectors(&[1, 2]))]);
    assert_eq!(outcomes(&env, "/a", keep(50)), expected);
}

#[test]
fn bytes_beyond_a_lost_length_stay_lost_when_the_file_grows() {
    let env = MemEnv::new(1);
    let file = create(&env, "/a");
    file.write_at(0, &[5; 6000]).unwrap();
    let lost = (0..SEEDS).map(|seed| env.crash_image(&keep(50), seed));
    let image = lost.into_iter().find(|image| image.file_bytes("/a").unwrap().is_empty()).unwrap();
    image.truncate("/a", 6000).unwrap();
    assert_eq!(image.file_bytes("/a").unwrap(), [0; 6000]);
}

#[test]
fn each_unsynced_length_may_survive() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &[0; 10]);
    for length in [700, 300, 900] {
        file.set_len(length).unwrap();
    }
    file.allocate(0, 1000).unwrap();
    let lengths: BTreeSet<usize> =
        outcomes(&env, "/a", keep(50)).into_iter().map(|bytes| bytes.unwrap().len()).collect();
    assert_eq!(lengths, BTreeSet::from([10, 300, 700, 900, 1000]));
}

#[test]
fn lost_truncation_restores_old_bytes_or_zeros() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[1, 2]));
    file.set_len(512).unwrap();
    let expected = BTreeSet::from([sectors(&[1]), sectors(&[1, 0]), sectors(&[1, 2])].map(Some));
    assert_eq!(outcomes(&env, "/a", keep(50)), expected);
}

#[test]
fn hole_is_present_or_absent_but_never_garbage() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &[1; 8192]);
    file.punch_hole(0, 4096).unwrap();
    for torn in CrashPolicy::TORN_MODES {
        for seed in 0..SEEDS {
            let bytes =
                env.crash_image(&CrashPolicy { keep_percent: 50, torn }, seed).file_bytes("/a").unwrap();
            assert!(bytes[..4096].chunks(512).all(|sector| sector == [0; 512] || sector == [1; 512]));
            assert_eq!(bytes[4096..], [1; 4096]);
        }
    }
}

#[test]
fn tearing_corrupts_only_unsynced_sectors() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[1; 16]));
    file.write_at(2048, &sectors(&[2; 8])).unwrap();
    for torn in CrashPolicy::TORN_MODES {
        let (mut zeros, mut garbage, mut valid) = (0, 0, 0);
        for seed in 0..SEEDS {
            let bytes =
                env.crash_image(&CrashPolicy { keep_percent: 90, torn }, seed).file_bytes("/a").unwrap();
            for (index, sector) in bytes.chunks(512).enumerate() {
                let whole = sector.iter().all(|&byte| byte == sector[0]);
                match sector[0] {
                    0 if whole => zeros += 1,
                    1 | 2 if whole => valid += 1,
                    _ => garbage += 1,
                }
                assert!((4..12).contains(&index) || sector == [1; 512]);
            }
        }
        assert!(valid > 0);
        assert_eq!(zeros > 0, matches!(torn, TornMode::Zero | TornMode::Mix), "{torn:?}");
        assert_eq!(garbage > 0, matches!(torn, TornMode::Garbage | TornMode::Mix), "{torn:?}");
    }
}

#[test]
fn created_name_may_vanish_even_if_the_file_was_synced() {
    let env = MemEnv::new(1);
    let file = create_unsynced(&env, "/a");
    file.write_at(0, b"abc").unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&env, "/a", keep(50)), BTreeSet::from([None, Some(b"abc".to_vec())]));
    env.sync_dir(Path::new("/")).unwrap();
    assert_eq!(outcomes(&env, "/a", keep(0)), BTreeSet::from([Some(b"abc".to_vec())]));
}

#[test]
fn a_synced_name_does_not_sync_the_file() {
    let env = MemEnv::new(1);
    let file = create_unsynced(&env, "/a");
    file.write_at(0, b"abc").unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    assert_eq!(outcomes(&env, "/a", keep(0)), BTreeSet::from([Some(Vec::new())]));
}

#[test]
fn a_rename_is_atomic() {
    let env = MemEnv::new(1);
    create_with(&env, "/a", b"new");
    create_with(&env, "/b", b"old");
    env.rename(Path::new("/a"), Path::new("/b")).unwrap();
    let expected: BTreeSet<_> = [vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned()]].into();
    assert_eq!(name_outcomes(&env, keep(50)), expected);
    for seed in 0..SEEDS {
        let image = env.crash_image(&keep(50), seed);
        let replaced = image.file_bytes("/a").is_err();
        assert_eq!(image.file_bytes("/b").unwrap(), if replaced { b"new" } else { b"old" });
    }
}

#[test]
fn a_kept_rename_of_a_lost_creation_keeps_the_file() {
    let env = MemEnv::new(1);
    create_unsynced(&env, "/a").sync().unwrap();
    env.rename(Path::new("/a"), Path::new("/b")).unwrap();
    let expected = [vec![], vec!["a".to_owned()], vec!["b".to_owned()]].into();
    assert_eq!(name_outcomes(&env, keep(50)), expected);
}

#[test]
fn a_file_renamed_twice_never_has_two_names() {
    let env = MemEnv::new(1);
    create_with(&env, "/a", b"x");
    env.rename(Path::new("/a"), Path::new("/b")).unwrap();
    env.rename(Path::new("/b"), Path::new("/c")).unwrap();
    let expected = ["a", "b", "c"].map(|name| vec![name.to_owned()]).into();
    assert_eq!(name_outcomes(&env, keep(50)), expected);
}

#[test]
fn removal_may_be_undone_with_its_content() {
    let env = MemEnv::new(1);
    create_with(&env, "/a", b"abc");
    env.remove_file(Path::new("/a")).unwrap();
    assert_eq!(outcomes(&env, "/a", keep(50)), BTreeSet::from([None, Some(b"abc".to_vec())]));
    env.sync_dir(Path::new("/")).unwrap();
    assert_eq!(outcomes(&env, "/a", keep(0)), BTreeSet::from([None]));
}

#[test]
fn recreated_name_is_old_new_or_gone() {
    let env = MemEnv::new(1);
    create_with(&env, "/a", b"old");
    env.remove_file(Path::new("/a")).unwrap();
    let file = create_unsynced(&env, "/a");
    file.write_at(0, b"new").unwrap();
    file.sync().unwrap();
    let expected = BTreeSet::from([None, Some(b"old".to_vec()), Some(b"new".to_vec())]);
    assert_eq!(outcomes(&env, "/a", keep(50)), expected);
}

#[test]
fn lost_directory_loses_its_contents() {
    let env = MemEnv::new(1);
    env.create_dir(Path::new("/d")).unwrap();
    create_with(&env, "/d/a", b"abc");
    assert_eq!(outcomes(&env, "/d/a", keep(50)), BTreeSet::from([None, Some(b"abc".to_vec())]));
    let image = env.crash_image(&CrashPolicy::LOSE_ALL, 0);
    assert!(names(&image).is_empty());
    assert_eq!(image.used_bytes(), 0);
}

#[test]
fn equal_seeds_give_equal_images_and_others_differ() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", &sectors(&[1; 64]));
    file.write_at(0, &sectors(&[3; 64])).unwrap();
    create_unsynced(&env, "/b").write_at(0, &sectors(&[2; 64])).unwrap();
    let policy = CrashPolicy { keep_percent: 50, torn: TornMode::Mix };
    let images: BTreeSet<_> = (0..20)
        .map(|seed| {
            let image = contents(&env.crash_image(&policy, seed));
            assert_eq!(image, contents(&env.crash_image(&policy, seed)));
            image
        })
        .collect();
    assert_eq!(images.len(), 20);
}

#[test]
fn image_is_durable_unlocked_and_independent() {
    let env = MemEnv::new(1);
    let file = create(&env, "/a");
    file.write_at(0, b"abc").unwrap();
    let _lock = env.lock(Path::new("/a"), false, true).unwrap();
    let image = env.crash_image(&CrashPolicy::KEEP_ALL, 3);
    image.lock(Path::new("/a"), false, true).unwrap();
    assert_eq!(contents(&image.crash_image(&CrashPolicy::LOSE_ALL, 4)), contents(&image));
    file.write_at(0, b"xyz").unwrap();
    assert_eq!(image.file_bytes("/a").unwrap(), b"abc");
    image.replace("/a", b"image").unwrap();
    let mut bytes = [0; 3];
    file.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"xyz");
}

#[test]
fn policies_cover_all_combinations() {
    let all: Vec<CrashPolicy> = CrashPolicy::all().collect();
    assert_eq!(all.len(), 20);
    assert!(all.contains(&CrashPolicy::LOSE_ALL) && all.contains(&CrashPolicy::KEEP_ALL));
    assert!(all.iter().all(|policy| (0..1000).any(|seed| CrashPolicy::random(seed) == *policy)));
}

#[test]
fn sync_after_a_failed_sync_does_not_write_lost_changes() {
    let (lose, keep_all) = (keep(0), keep(100));
    for evicted in [false, true] {
        let env = MemEnv::new(1);
        let file = create_with(&env, "/a", &[1; 4096]);
        file.write_at(0, &[2; 4096]).unwrap();
        env.fail_sync("/a", &lose, evicted, 1).unwrap();
        let live = if evicted { [1; 4096] } else { [2; 4096] };
        assert_eq!(env.file_bytes("/a").unwrap(), live, "evicted: {evicted}");
        file.sync().unwrap();
        assert_eq!(env.crash_image(&keep_all, 1).file_bytes("/a").unwrap(), [1; 4096]);
        // A new write makes its pages dirty again.
        file.write_at(0, &[3; 4096]).unwrap();
        file.sync().unwrap();
        assert_eq!(env.crash_image(&lose, 1).file_bytes("/a").unwrap(), [3; 4096]);
    }
}
