use testudo_base::{ObjectId, num::usize_of, sync::Arc};
use testudo_env::{CrashPolicy, MemEnv};

use super::*;
use crate::Manifest;

const STORE: StoreId = StoreId(42);

fn created() -> (Arc<MemEnv>, ManifestState) {
    let env = MemEnv::new(1);
    let directory = Path::new("/db");
    env.create_dir(directory).unwrap();
    let first = [Change::CreateKeyspace(KeyspaceId(1), "first".into(), vec![1])];
    let manifest = Manifest::create(env.clone(), directory, STORE, &first).unwrap();
    for object in 1..6 {
        manifest.commit(&[Change::PutObject(KeyspaceId(1), ObjectId(object), vec![1; 5000])]).unwrap();
    }
    manifest.commit(&[Change::CreateKeyspace(KeyspaceId(2), "second".into(), vec![1])]).unwrap();
    let state = manifest.with_state(Clone::clone);
    (env, state)
}

fn survey(env: &MemEnv) -> ManifestSurvey {
    survey_manifest(env, Path::new("/db"), STORE, 1).unwrap()
}

#[test]
fn a_valid_manifest_is_read_completely() {
    let (env, state) = created();
    let found = survey(&env);
    assert_eq!((found.damage, found.has_later_edits), (None, false));
    assert_eq!(found.state, state);
    assert_eq!(found.end, env.file_bytes("/db/manifest-0000000001").unwrap().len() as u64);
    assert_eq!(list_manifests(&*env, Path::new("/db")).unwrap(), [1]);
}

#[test]
fn keyspaces_created_after_the_damage_are_found() {
    let (env, _) = created();
    env.corrupt("/db/manifest-0000000001", 4096 + 100, 1).unwrap();
    let found = survey(&env);
    assert!(found.damage.is_some() && found.has_later_edits);
    assert_eq!((found.edits, found.state.keyspaces.len()), (1, 1));
    assert_eq!(found.keyspaces[&KeyspaceId(2)].name, "second");
}

#[test]
fn a_missing_edit_between_valid_ones_is_damage() {
    let (env, _) = created();
    let path = "/db/manifest-0000000001";
    let bytes = env.file_bytes(path).unwrap();
    let last = survey(&env);
    let whole = usize_of(last.end) - PAGE_SIZE;
    let pages = |range: std::ops::Range<usize>| bytes[range].to_vec();
    // The last edit occupies one page; the one before it occupies two.
    env.replace(path, &[pages(0..whole - 2 * PAGE_SIZE), pages(whole..bytes.len())].concat()).unwrap();
    let found = survey(&env);
    assert_eq!(found.damage.as_deref(), Some("an edit is missing"));
    assert!(found.has_later_edits && found.edits == last.edits - 2);
    assert_eq!(found.keyspaces[&KeyspaceId(2)].name, "second");
}

#[test]
fn no_truncation_and_no_flipped_byte_panics() {
    let (env, _) = created();
    let path = "/db/manifest-0000000001";
    let bytes = env.file_bytes(path).unwrap();
    for cut in (0..bytes.len()).step_by(509) {
        let copy = env.crash_image(&CrashPolicy::KEEP_ALL, 1);
        copy.replace(path, &bytes[..cut]).unwrap();
        assert!(survey(&copy).end <= cut.next_multiple_of(PAGE_SIZE) as u64);
    }
    for at in (0..bytes.len()).step_by(101) {
        let copy = env.crash_image(&CrashPolicy::KEEP_ALL, 1);
        copy.corrupt(path, at as u64, 0x40).unwrap();
        survey(&copy);
    }
}
