//! Prints the record cache's hit rate on a zipfian trace; every miss fills the cache.
//!
//! Run with `cargo run --release -p testudo-records --example zipf -- [KEYS] [MEBIBYTES] [READS]`. The trace
//! is the same each time, so that instructions can be counted: `valgrind --tool=callgrind`, with few reads.

use testudo_base::{KeyspaceId, checksum::hash_key, chunks::ChunkPool};
use testudo_records::{KeyspaceRecords, RecordCache};

const THETA: f64 = 0.99;
const VALUE: [u8; 100] = [7; 100];

/// Ranks as in Gray and others, "Quickly generating billion-record synthetic databases", as in YCSB.
struct Zipf {
    keys: f64,
    zeta: f64,
    eta: f64,
    random: u64,
}

impl Zipf {
    fn new(keys: u32) -> Self {
        let zeta_of = |count: u32| (1..=count).map(|rank| f64::from(rank).powf(-THETA)).sum::<f64>();
        let (zeta, keys) = (zeta_of(keys), f64::from(keys));
        let eta = (1.0 - (2.0 / keys).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { keys, zeta, eta, random: 1 }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is small and not negative"
    )]
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let unit = f64::from(u32::try_from(self.random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        (self.keys * (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u32>().ok());
    let keys = arguments.next().unwrap_or(20_000_000);
    let mebibytes = u64::from(arguments.next().unwrap_or(160));
    let reads = arguments.next().unwrap_or(20_000_000);
    let pool = ChunkPool::new(mebibytes << 20);
    let cache = RecordCache::new(&pool, 256 << 20);
    let records = KeyspaceRecords::new(&cache, KeyspaceId(1));
    let mut zipf = Zipf::new(keys);
    let mut before = (0, 0);
    for read in 1..=reads {
        // A key of 24 bytes, determined by the rank.
        let hash = hash_key(&zipf.next().to_be_bytes());
        let mut key = [b'k'; 24];
        key[..8].copy_from_slice(&hash.to_be_bytes());
        let hash = hash_key(&key);
        if records.get(&key, hash).is_none() {
            records.fill(&key, hash, &VALUE, 0);
        }
        if read % (reads / 10).max(1) == 0 {
            let stats = cache.stats();
            let (hits, misses) = (stats.hits - before.0, stats.misses - before.1);
            before = (stats.hits, stats.misses);
            let share = 1000 * hits / (hits + misses).max(1);
            println!(
                "{read} reads: {}.{} % hits, {} records, {} bytes",
                share / 10,
                share % 10,
                stats.records,
                pool.total_bytes()
            );
        }
    }
}
