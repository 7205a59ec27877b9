//! The log: one-record commits, reserved, copied, checksummed and written to an in-memory file.
//!
//! **Invariants**
//! - Full buffers are written by the same thread, so results do not depend on thread scheduling.

use std::{path::Path, sync::Arc};

use testudo::{Error, Result};
use testudo_base::{Incarnation, StoreId};
use testudo_env::{Env, MemEnv};
use testudo_wal::{NoListener, Wal, WalOptions, WalStart};

use super::Bench;

/// Bytes of one encoded write of 24 + 100 bytes.
pub(crate) const PAYLOAD: [u8; 134] = [7; 134];
/// Interval, in commits, at which full buffers are written.
const WRITE_EVERY: u64 = 1024;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_names("log", &["append"])?;
    if !bench.wants("append", "testudo") {
        return Ok(());
    }
    let env = MemEnv::with_threads(1, 1);
    let directory = Path::new("/log");
    env.create_dir(directory).map_err(|error| Error::io("a directory in memory", error))?;
    let options = WalOptions { buffer_bytes: 1 << 20, buffer_count: 4, ..WalOptions::new(StoreId(1)) };
    let env: Arc<dyn Env> = env;
    let wal = Wal::create(
        Arc::clone(&env),
        directory,
        options,
        WalStart::new_store(Incarnation(1)),
        Arc::new(NoListener),
    )?;
    let ops = bench.args.ops;
    bench.measure("log", "append", ops, |number| {
        wal.reserve(PAYLOAD.len(), 1).expect("room in memory").write(&PAYLOAD);
        if number % WRITE_EVERY == WRITE_EVERY - 1 {
            wal.write_all().expect("a write to memory");
        }
    })
}
