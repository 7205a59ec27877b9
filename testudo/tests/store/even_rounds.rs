//! Equal keyspaces do not do their expensive work in the same round.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use testudo::{Db, Keyspace, KeyspaceOptions, Tree};
use testudo_env::MemEnv;

const KEYSPACES: usize = 16;

/// First round in which the number of buffered runs drops, for each keyspace.
fn first_merges(db: &Db, keyspaces: &[Keyspace]) -> Vec<u32> {
    let mut first = vec![None; keyspaces.len()];
    let mut before = vec![0; keyspaces.len()];
    for round in 0..40_u32 {
        for keyspace in keyspaces {
            for n in 0..8_u32 {
                keyspace.insert((n * 1000 + round).to_be_bytes(), [7; 20]).unwrap();
            }
        }
        db.flush().unwrap();
        for (number, keyspace) in keyspaces.iter().enumerate() {
            let runs = keyspace.stats().tree.buffered_runs;
            if runs < before[number] {
                first[number].get_or_insert(round);
            }
            before[number] = runs;
        }
    }
    first.into_iter().map(Option::unwrap).collect()
}

#[test]
fn equal_splinter_keyspaces_merge_in_different_rounds() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(8 << 20).open().unwrap();
    let open =
        |n| db.keyspace(&format!("k{n}"), || KeyspaceOptions::default().tree(Tree::splinter())).unwrap();
    let keyspaces: Vec<Keyspace> = (0..KEYSPACES).map(open).collect();
    let rounds = first_merges(&db, &keyspaces);
    for round in &rounds {
        let together = rounds.iter().filter(|other| *other == round).count();
        assert!(together <= KEYSPACES / 8, "{together} of {rounds:?} in round {round}");
    }
}
