//! All targets, one file each.
//!
//! **Invariants**
//! - Every target is in [`TARGETS`], the single list for the driver, the tests and the wrappers.

pub mod manifest;
pub mod node;
pub mod open_directory;
pub mod page;
pub mod salvage;
pub mod script;
pub mod superblock;
pub mod wal;

use testudo_env::SplitMix;

/// Maximum bytes that a run may hold at once: a store's budget, its files in memory, and test data.
const MEMORY_BYTES_MAX: u64 = 96 << 20;

/// A function of any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Panics if an invariant does not hold.
    pub run: fn(&[u8]),
    /// Inputs to start from, made from real stores.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Maximum bytes that a run may hold at once.
    pub memory_bytes_max: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "superblock",
        about: "two slots with right checksums: opened or refused; reads match writes",
        run: superblock::run,
        seeds: superblock::seeds,
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
    Target {
        name: "manifest",
        about: "records with right checksums: replayed or refused; a state round-trips through its encoding",
        run: manifest::run,
        seeds: manifest::seeds,
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
    Target {
        name: "wal",
        about: "log segments, changed and sealed: commits in order, each once, or an error",
        run: wal::run,
        seeds: || random_inputs(24),
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
    Target {
        name: "page",
        about: "any payload in any block of a run: entries or an error, in every way of reading",
        run: page::run,
        seeds: page::seeds,
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
    Target {
        name: "node",
        about: "any bytes as nodes of a tree: a store that opens can be read, verified and written",
        run: node::run,
        seeds: node::seeds,
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
    Target {
        name: "open-directory",
        about: "a store's files, changed and sealed: opened, read, verified, written, closed",
        run: open_directory::run,
        seeds: || random_inputs(64),
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
    Target {
        name: "salvage",
        about: "a store's files, changed, sealed or missing: repaired, and salvaged into a valid store",
        run: salvage::run,
        seeds: || random_inputs(64),
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
    Target {
        name: "script",
        about: "any bytes as operations, with crashes: answers match a map",
        run: script::run,
        seeds: || random_inputs(16),
        memory_bytes_max: MEMORY_BYTES_MAX,
    },
];

/// Finds a target by name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Inputs of random bytes, of several lengths.
fn random_inputs(count: u64) -> Vec<Vec<u8>> {
    (0..count)
        .map(|seed| {
            let mut random = SplitMix::new(seed);
            let mut bytes = vec![0; testudo_base::num::usize_of(8 + random.below(120))];
            random.fill(&mut bytes);
            bytes
        })
        .collect()
}
