//! Two slots of the superblock with any content, sealed or not.
//!
//! **Invariants**
//! - An accepted superblock is one of the slots, field by field as in docs/FORMAT.md.
//! - A later write is read back, or refused because a counter exceeds its maximum.

use std::path::Path;

use testudo_base::{Incarnation, PAGE_SIZE, Seqno, StoreId};
use testudo_env::{Env, MemEnv};
use testudo_storage::{Superblock, SuperblockFile, Watermark};

use crate::{base_store::base_stores, input::Input, mutate::overwrite, seal::seal_superblock};

/// Bytes of a slot in use.
const SLOT_BYTES: usize = 104;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.u8();
    let mut file = vec![0; 2 * PAGE_SIZE];
    for slot in 0..2 {
        overwrite(&mut file, slot * PAGE_SIZE, input.take(SLOT_BYTES));
        if sealed >> slot & 1 == 0 {
            // The slot is long enough.
            let _ = seal_superblock(&mut file, slot * PAGE_SIZE);
        }
    }
    let machine = MemEnv::new(1);
    machine.replace("/superblock", &file).expect("the disk has room");
    let Ok((open, found)) = SuperblockFile::open(&*machine, Path::new("/"), true) else { return };
    let is_slot = |slot: usize| read(&file[slot * PAGE_SIZE..]) == found;
    assert!(is_slot(0) || is_slot(1), "{found:?} is in neither slot");
    let Some(generation) = found.generation.checked_add(1) else { return };
    let next = Superblock { generation, is_closed: !found.is_closed, ..found };
    if let Err(error) = open.write(&next) {
        assert!(generation > 1 << 62, "{next:?} was refused: {error}");
        return;
    }
    let (_, again) =
        SuperblockFile::open(&*machine as &dyn Env, Path::new("/"), false).expect("it was written");
    // A slot in the wrong place, as in no valid store, may have been the newest.
    let is_in_place = |slot: usize| {
        let kept = read(&file[slot * PAGE_SIZE..]);
        kept != found || kept.generation % 2 == testudo_base::num::u64_of(slot)
    };
    assert!(again == next || !(is_in_place(0) && is_in_place(1)), "{next:?} was written, {again:?} is read");
}

fn read(slot: &[u8]) -> Superblock {
    let number = |at: usize| u64::from_le_bytes(*slot[at..].first_chunk().expect("a slot is longer"));
    Superblock {
        store: StoreId(u128::from_le_bytes(*slot[32..].first_chunk().expect("a slot is longer"))),
        generation: number(48),
        manifest: number(56),
        watermark: Watermark { edit: number(64), seqno: Seqno(number(72)) },
        incarnation: Incarnation(number(88)),
        is_closed: slot[12..16] == [1, 0, 0, 0],
    }
}

/// The superblocks of valid stores.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for store in base_stores() {
        for file in store.files.iter().filter(|file| file.name == "superblock") {
            let mut seed = vec![0];
            seed.extend_from_slice(&file.bytes[..SLOT_BYTES]);
            seed.extend_from_slice(&file.bytes[PAGE_SIZE..PAGE_SIZE + SLOT_BYTES]);
            seeds.push(seed);
        }
    }
    seeds
}
