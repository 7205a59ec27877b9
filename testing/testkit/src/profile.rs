//! Composition of a generated script as plain data: weights of ops, sizes of keys and values.
//!
//! **Invariants**
//! - Weights are relative; a weight of zero excludes the op.

/// Relative frequencies of ops.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each field is the weight of the operation of that name")]
pub struct Weights {
    pub insert: u32,
    pub remove: u32,
    pub batch: u32,
    pub merge: u32,
    pub get: u32,
    pub multi_get: u32,
    pub scan: u32,
    pub update: u32,
    pub swap: u32,
    pub snapshot: u32,
    pub snapshot_get: u32,
    pub snapshot_scan: u32,
    pub snapshot_check: u32,
    pub snapshot_drop: u32,
    pub create: u32,
    pub drop: u32,
    pub set_tree: u32,
    pub persist: u32,
    pub flush: u32,
    pub step: u32,
    /// A part of the weight of `step`.
    pub compact_range: u32,
    pub reopen: u32,
    pub kill: u32,
    pub crash: u32,
    pub arm: u32,
    pub verify: u32,
}

impl Default for Weights {
    /// Every op occurs; about one in 500 restarts the store.
    fn default() -> Self {
        Self {
            insert: 2600,
            remove: 800,
            batch: 700,
            merge: 900,
            get: 2400,
            multi_get: 300,
            scan: 400,
            update: 500,
            swap: 300,
            snapshot: 30,
            snapshot_get: 150,
            snapshot_scan: 100,
            snapshot_check: 10,
            snapshot_drop: 30,
            create: 10,
            drop: 4,
            set_tree: 20,
            persist: 60,
            flush: 20,
            step: 1200,
            compact_range: 40,
            reopen: 5,
            kill: 4,
            crash: 8,
            arm: 4,
            verify: 4,
        }
    }
}

impl Weights {
    /// Mostly writes, background work and power losses, for crash tests.
    pub fn crashing() -> Self {
        Self {
            get: 200,
            multi_get: 30,
            scan: 30,
            snapshot_check: 4,
            persist: 150,
            flush: 60,
            reopen: 20,
            kill: 20,
            crash: 110,
            arm: 140,
            create: 40,
            drop: 20,
            set_tree: 30,
            ..Self::default()
        }
    }
}

/// Relative frequencies of value sizes.
#[derive(Clone, Debug)]
pub struct ValueSizes {
    /// No bytes.
    pub empty: u32,
    /// 1 to 120 bytes.
    pub small: u32,
    /// 120 to 2,000 bytes.
    pub medium: u32,
    /// 4,000 to 9,000 bytes: around a page and larger.
    pub page: u32,
    /// Half of `huge_bytes` up to `huge_bytes`: larger than a leaf.
    pub huge: u32,
    /// Largest value.
    pub huge_bytes: u32,
}

impl Default for ValueSizes {
    fn default() -> Self {
        Self { empty: 50, small: 1500, medium: 300, page: 60, huge: 2, huge_bytes: 100_000 }
    }
}

/// The shape of generated scripts.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Relative frequencies of ops.
    pub weights: Weights,
    /// Relative frequencies of value sizes.
    pub values: ValueSizes,
    /// Maximum number of keyspaces in use.
    pub keyspace_count: u8,
    /// Distinct keys of each keyspace.
    pub key_count: u32,
    /// One in this many keys is long (up to 3,000 bytes); zero means none.
    pub long_key_one_in: u32,
    /// Whether two keys have the maximum length, 64 KiB.
    pub longest_keys: bool,
    /// Whether most keys share prefixes of hundreds or thousands of bytes.
    pub shares_long_starts: bool,
    /// Percentage of batches that are synced.
    pub synced_percent: u8,
    /// Maximum writes of a batch.
    pub batch_writes_max: u32,
    /// Maximum bytes of keys and values of a batch; a store with the minimum budget accepts them.
    pub batch_bytes_max: usize,
    /// Maximum I/O operations before an armed power loss strikes.
    pub arm_operations_max: u64,
    /// Maximum I/O operations of a recovery before power fails again.
    pub nested_operations_max: u64,
    /// Percentage of power losses that also strike during recovery.
    pub nested_percent: u8,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            weights: Weights::default(),
            values: ValueSizes::default(),
            keyspace_count: 3,
            key_count: 600,
            long_key_one_in: 60,
            longest_keys: false,
            shares_long_starts: false,
            synced_percent: 20,
            batch_writes_max: 12,
            batch_bytes_max: 260_000,
            arm_operations_max: 60,
            nested_operations_max: 30,
            nested_percent: 30,
        }
    }
}

impl Profile {
    /// For crash tests: small, quick to recover, frequent power losses.
    pub fn crashing() -> Self {
        let values = ValueSizes { huge: 1, huge_bytes: 30_000, ..ValueSizes::default() };
        Self { weights: Weights::crashing(), values, key_count: 150, ..Self::default() }
    }

    /// One keyspace with many keys, which makes trees deep.
    pub fn tall() -> Self {
        Self { keyspace_count: 1, key_count: 3000, ..Self::default() }
    }

    /// Many keyspaces with few keys each.
    pub fn wide() -> Self {
        Self { keyspace_count: 24, key_count: 40, ..Self::default() }
    }

    /// Keys that differ only in their last bytes, many more than fit in one leaf.
    pub fn alike() -> Self {
        let values = ValueSizes { huge: 0, page: 10, ..ValueSizes::default() };
        Self { values, keyspace_count: 2, key_count: 500, shares_long_starts: true, ..Self::default() }
    }

    /// Keys and values of extreme sizes.
    pub fn bulky() -> Self {
        let values =
            ValueSizes { empty: 200, small: 500, medium: 300, page: 300, huge: 30, huge_bytes: 300_000 };
        Self {
            values,
            key_count: 80,
            long_key_one_in: 4,
            longest_keys: true,
            batch_bytes_max: 520_000,
            ..Self::default()
        }
    }
}
