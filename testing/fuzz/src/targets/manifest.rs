//! Manifest records with any payload, each with right checksums and numbers.
//!
//! **Invariants**
//! - A state that is read accepts commits, can be written as one edit, and is the same when read again.

use std::{path::Path, sync::Arc};

use testudo_base::StoreId;
use testudo_env::{Env, MemEnv};
use testudo_storage::{Change, Manifest, ManifestState};

use crate::{base_store::base_stores, input::Input, seal::manifest_record};

const STORE: StoreId = StoreId(7);
/// Maximum records of one input.
const RECORDS_MAX: u64 = 32;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut file = Vec::new();
    for edit_number in 0..RECORDS_MAX {
        if input.is_empty() {
            break;
        }
        file.extend(manifest_record(input.chunk(), edit_number, STORE, 1));
    }
    let machine = MemEnv::new(1);
    let env = || Arc::clone(&machine) as Arc<dyn Env>;
    drop(Manifest::create(env(), Path::new("/"), STORE, &[]).expect("the disk is empty"));
    machine.replace("/manifest-0000000001", &file).expect("the disk has room");
    let Ok(manifest) = Manifest::open(env(), Path::new("/"), true) else { return };
    let state = state_of(&manifest);
    manifest.commit(&[]).expect("an empty edit contradicts nothing");
    drop(manifest);
    let again = Manifest::open(env(), Path::new("/"), true).expect("it was open before");
    assert!(state_of(&again) == state, "an empty edit changed the state");
    again.rewrite().expect("a state can be written");
    drop(again);
    let again = Manifest::open(env(), Path::new("/"), false).expect("it was rewritten");
    assert!(state_of(&again) == state, "a state does not round-trip through its encoding");
    // An edit that contradicts the state is an error, and no later edit is accepted.
    let writable = Manifest::open(env(), Path::new("/"), true).expect("it was open before");
    if let Some((&(keyspace, object), _)) = state.objects.first_key_value() {
        let twice = [Change::DeleteObject(keyspace, object), Change::DeleteObject(keyspace, object)];
        assert!(writable.commit(&twice).is_err() && writable.commit(&[]).is_err());
    }
}

/// Returns the state, with the log's start applied as a minimum to every keyspace's flushed seqno.
fn state_of(manifest: &Manifest) -> ManifestState {
    let mut state = manifest.with_state(ManifestState::clone);
    for record in state.keyspaces.values_mut() {
        record.flushed = record.flushed.max(state.log_seqno);
    }
    state
}

/// The records of valid stores.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for store in base_stores() {
        for file in store.files.iter().filter(|file| file.name.starts_with("manifest-")) {
            let mut seed = Vec::new();
            for site in &file.sites {
                let crate::seal::Site::Manifest(at) = *site else { continue };
                let mut header = Input::new(&file.bytes[at..]);
                let length = header.u32();
                seed.extend_from_slice(&length.to_le_bytes());
                seed.extend_from_slice(
                    Input::new(&file.bytes[at + 24..]).take(testudo_base::num::usize_of(length.into())),
                );
            }
            seeds.push(seed);
        }
    }
    seeds
}
