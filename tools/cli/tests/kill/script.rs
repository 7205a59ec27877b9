//! Steps of the writing process, each derived from the seed and its number alone, and their effect on a
//! model.
//!
//! **Invariants**
//! - Every batch also writes its number under [`MARKER`], so that the store records the progress.

use std::collections::BTreeMap;

use testudo_env::SplitMix;

/// Keyspaces that are written.
pub(crate) const KEYSPACES: [&str; 2] = ["left", "right"];
/// Key, in the first keyspace, of the number of the last batch.
pub(crate) const MARKER: &[u8] = b"~last batch";

const WRITES_PER_BATCH_MAX: u64 = 12;
/// Single values of at least this size are written in pieces.
const BYTES_IN_PIECES_MIN: usize = 70_000;

/// Contents of both keyspaces.
pub(crate) type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// A put or a delete.
pub(crate) struct Write {
    pub(crate) keyspace: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// One commit, or an operation that writes nothing.
pub(crate) enum Step {
    Single(Write),
    /// Put of a value that is long enough for pieces.
    InPieces(Write),
    Batch {
        writes: Vec<Write>,
        synced: bool,
    },
    Persist,
    Flush,
    /// Converts a keyspace to one of two trees of different families.
    SetTree {
        keyspace: usize,
        choice: usize,
    },
}

/// Parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    /// Number of keys.
    pub(crate) keys: u64,
    /// Percentage of additional writes to a fiftieth of the keys.
    pub(crate) hot_percent: u8,
    /// Before this step, all keys are equally likely, and flushes are rare.
    pub(crate) loaded: u64,
    /// Steps in a thousand that flush.
    pub(crate) flushes: u64,
    /// Steps in a thousand that change the tree of a keyspace.
    pub(crate) moves: u64,
    /// Values in a thousand that are longer than a page. A tenth of them are longer than 64 KiB.
    pub(crate) long_values: u64,
}

/// Returns step `number` of the script.
pub(crate) fn step(script: &Script, number: u64) -> Step {
    let mut random = SplitMix::new(script.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
    let is_load = number < script.loaded;
    let script = &if is_load { Script { hot_percent: 0, flushes: 1, ..*script } } else { *script };
    if random.below(1000) < script.flushes {
        return Step::Flush;
    }
    if random.below(1000) < script.moves {
        let (keyspace, choice) = (usize::from(random.percent(50)), usize::from(random.percent(50)));
        return Step::SetTree { keyspace, choice };
    }
    match random.below(1000) {
        0..20 => Step::Persist,
        20..250 => {
            let write = write(script, &mut random);
            let is_long = write.value.as_ref().is_some_and(|value| value.len() >= BYTES_IN_PIECES_MIN);
            if is_long { Step::InPieces(write) } else { Step::Single(write) }
        }
        choice => {
            let count = 1 + random.below(WRITES_PER_BATCH_MAX);
            let mut writes: Vec<Write> = (0..count).map(|_| write(script, &mut random)).collect();
            let value = Some(number.to_be_bytes().to_vec());
            writes.push(Write { keyspace: 0, key: MARKER.to_vec(), value });
            Step::Batch { writes, synced: choice >= 970 }
        }
    }
}

fn write(script: &Script, random: &mut SplitMix) -> Write {
    let keyspace = usize::from(random.percent(40));
    let keys = if random.percent(script.hot_percent) { script.keys / 50 } else { script.keys };
    let key = format!("key-{:05}", random.below(keys)).into_bytes();
    if random.percent(25) {
        return Write { keyspace, key, value: None };
    }
    let choice = random.below(1000);
    let bytes = if choice < script.long_values / 10 {
        70_000 + random.below(130_000)
    } else if choice < script.long_values {
        5000 + random.below(15_000)
    } else {
        random.below(300)
    };
    let mut value = vec![0; usize::try_from(bytes).unwrap()];
    random.fill(&mut value);
    Write { keyspace, key, value: Some(value) }
}

/// Applies a step to the model.
pub(crate) fn apply(model: &mut Model, step: Step) {
    let writes = match step {
        Step::Single(write) | Step::InPieces(write) => vec![write],
        Step::Batch { writes, .. } => writes,
        Step::Persist | Step::Flush | Step::SetTree { .. } => Vec::new(),
    };
    for Write { keyspace, key, value } in writes {
        match value {
            Some(value) => model[keyspace].insert(key, value),
            None => model[keyspace].remove(&key),
        };
    }
}
