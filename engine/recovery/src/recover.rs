//! Recovers an existing store: its trees, then the old log, then a new log.
//!
//! **Invariants**
//! - Recovery can crash at any point and be repeated: it only adds manifest edits that are already true.
//! - After a crash, log segments and manifest are rewritten to fresh files before anything that depends on
//!   them becomes durable: the data read may exist only in volatile caches.

use std::path::Path;

use testudo_base::{Result, Seqno, planted, sync::Arc};
use testudo_env::Env;
use testudo_flush::space::hold_space::{first_segment_bytes, make_space_for_log};
use testudo_options::Settings;
use testudo_storage::Manifest;
use testudo_store::{Store, values::tail_values_format::read_tail};
use testudo_wal::{Wal, WalOptions, WalStart};

use crate::{
    durability_listener::{StoreListener, log_evidence},
    found_values::settle_found_values,
    load_keyspaces::load_keyspaces,
    replay::replay,
    warm::restore::find_hot_set,
};

/// Recovers the store. `was_closed`: the last writer closed it, so everything is durable.
pub fn recover(settings: &Settings, mut store: Store, was_closed: bool) -> Result<Arc<Store>> {
    debug_assert!(store.log.wal.is_none(), "there is no new log yet");
    load_keyspaces(&store)?;
    let mut evidence = log_evidence(&store.manifest);
    if settings.read_only && !was_closed {
        evidence.tail = read_tail(&*store.env, &store.directory, store.id, evidence.first_segment)?;
    }
    let log_seqno = store.manifest.with_state(|state| state.log_seqno);
    let end = replay(&store, settings.read_only, &evidence, log_seqno)?;
    store.log.record_recovered(end.last_seqno.max(log_seqno));
    if let Some(incarnation) = store.data.writer().filter(|_| !settings.read_only) {
        store.manifest.remove_strays()?;
        if was_closed {
            // The log is complete; a tail file that could not be removed is older.
            testudo_wal::remove_tail_files(&*store.env, &store.directory)?;
        }
        if let Some((segment, offset)) = end.unbacked {
            testudo_wal::cut_segment(&*store.env, &store.directory, segment, offset)?;
        }
        if !was_closed && !planted!("unproven-values-believed") {
            settle_found_values(&store)?;
        }
        // Everything read is durable by now.
        store.manifest.record_durable(0, store.last_seqno())?;
        store.manifest.state_watermark()?;
        testudo_wal::remove_segments(&*store.env, &store.directory, evidence.first_segment)?;
        make_space_for_log(&store)?;
        let options = WalOptions {
            segment_bytes: first_segment_bytes(&store),
            buffer_bytes: store.memory.shares().wal_buffer_bytes,
            ..WalOptions::new(store.id)
        };
        let mut start = WalStart::after(&end, incarnation);
        if end.last_seqno < log_seqno {
            start.next_seqno = Seqno(log_seqno.0 + 1);
            start.recovered_seqno = log_seqno;
        }
        let listener = Arc::new(StoreListener {
            manifest: Arc::clone(&store.manifest),
            beginning: Arc::clone(&store.beginning),
            value_logs: Arc::clone(&store.value_logs),
        });
        store.log.wal =
            Some(Wal::create(Arc::clone(&store.env), &store.directory, options, start, listener)?);
        debug_assert!(store.last_seqno() >= end.last_seqno.max(log_seqno), "seqnos are never assigned again");
        store.log.end_recovery();
    }
    find_hot_set(&store);
    Ok(Arc::new(store))
}

/// Rewrites files that a crash may have left only in volatile caches, before anything depends on them.
pub fn make_durable(env: &dyn Env, directory: &Path, manifest: &Manifest) -> Result<()> {
    let log_segment = manifest.with_state(|state| state.log_segment);
    if !planted!("unproven-log-believed") {
        testudo_wal::rewrite_unproven(env, directory, log_segment)?;
    }
    manifest.rewrite()
}
