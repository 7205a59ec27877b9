//! Performs the checks of an open: trees, and the log as recovery reads it.
//!
//! **Invariants**
//! - Nothing is written, and no superblock is needed, since that is the part a repair can rebuild.

use testudo_base::{Error, ErrorKind, KeyspaceId, Result, Seqno};
use testudo_env::{OpenMode, OpenOptions};
use testudo_options::{StoredOptions, stored_tree::stored_tree};
use testudo_recovery::{
    found_values::FoundValues,
    replay::{check_commit, flushed_of},
};
use testudo_storage::{DATA_FILE, DataFile, ManifestState};
use testudo_store::long_work::Meter;
use testudo_wal::{LogEvent, Record, segment_file_name};

use super::Site;

/// Page cache size for opening trees; they do not read pages.
const CACHE_BYTES: u64 = 1 << 20;

impl Site<'_> {
    /// Opens all trees, without reading a page.
    pub(super) fn check_trees(&mut self) -> Result<()> {
        let Some(manifest) = &self.evidence.manifest else { return Ok(()) };
        match self.open_trees(&manifest.state) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let name = self.manifest_name();
                let (file, offset) = error.location().unwrap_or((&name, 0));
                self.report.needs_salvage(
                    file,
                    offset,
                    error.to_string(),
                    "salvage finds the runs without it",
                );
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn open_trees(&self, state: &ManifestState) -> Result<()> {
        if self.evidence.data.is_none() {
            // The missing file is reported separately.
            return Ok(());
        }
        let path = self.options.directory.join(DATA_FILE);
        let options = OpenOptions { mode: OpenMode::Read, direct: true };
        let file = self.options.env.open(&path, options).map_err(|e| Error::io(DATA_FILE, e))?;
        let live: Vec<_> = state.live_spans().collect();
        let data = DataFile::new(file, self.evidence.store, CACHE_BYTES, live.into_iter(), None)?;
        let mut names = std::collections::BTreeSet::new();
        for (&id, record) in &state.keyspaces {
            let options = StoredOptions::decode(&record.options)
                .map_err(|why| why.into_error(&self.manifest_name(), id))?;
            stored_tree(&data, &options, id, state.objects_of(id))
                .map_err(|error| error.in_keyspace(&record.name))?;
            if !names.insert(&record.name) {
                return Err(self.damaged_keyspace(id, "another keyspace has the same name"));
            }
        }
        Ok(())
    }

    fn damaged_keyspace(&self, id: KeyspaceId, why: &str) -> Error {
        Error::corruption(self.manifest_name(), 0, format!("keyspace {id}: {why}"))
    }

    /// Finds commits that are needed but lost.
    pub(super) fn check_log(&mut self, meter: &mut Meter<'_, '_>) -> Result<()> {
        let store = self.evidence.store;
        let Some(manifest) = &self.evidence.manifest else { return Ok(()) };
        let start = manifest.state.log_seqno;
        // Recovery's verdict counts; the survey locates all damage.
        let strict = self.replay(&manifest.state);
        let mut holes = Vec::new();
        self.evidence.log.read(store, Some(start), self.plan.proven, |event| {
            match event {
                LogEvent::Hole(hole) => holes.push(hole),
                LogEvent::Progress(bytes) => meter.advance(bytes)?,
                LogEvent::Commit(_) => {}
            }
            Ok(())
        })?;
        let has_holes = !holes.is_empty();
        for hole in holes {
            let Seqno(first) = hole.first_seqno;
            let what = format!("operations {first} to {} are missing", hole.last_seqno);
            self.report.needs_salvage(&hole.file, hole.offset, what, "salvage recovers all others");
        }
        match strict {
            Err(error) if error.kind() == ErrorKind::Corruption && !has_holes => {
                let (file, offset) = error.location().unwrap_or(("log", 0));
                self.report.needs_salvage(
                    file,
                    offset,
                    error.to_string(),
                    "salvage recovers all valid parts",
                );
            }
            Err(error) if error.kind() != ErrorKind::Corruption => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// Reads the log as recovery does.
    fn replay(&self, state: &ManifestState) -> Result<()> {
        let (segment, start) = (state.log_segment, state.log_seqno);
        let hole = |why| Error::corruption(segment_file_name(segment), 0, why);
        let mut is_first = true;
        let flushed_so_far = flushed_of(state);
        let mut found = match &self.evidence.data {
            Some(data) => FoundValues::of_state(data, self.evidence.store, state),
            None => FoundValues::default(),
        };
        let take = |record: Record<'_>| {
            if std::mem::take(&mut is_first) && record.first_seqno.0 > start.0.saturating_add(1) {
                return Err(hole("commits before the first one in the log are missing"));
            }
            check_commit(&record, state.next_keyspace, &flushed_so_far, &mut found)
        };
        let (env, directory) = (&*self.options.env, self.options.directory.as_path());
        let end = testudo_wal::replay(env, directory, self.evidence.store, &self.evidence.of_log, take)?;
        let first = end.segments.iter().find(|segment| segment.first_seqno.0 > 0);
        if first.is_some_and(|segment| segment.first_seqno.0 > start.0.saturating_add(1)) {
            return Err(hole("the segment lost its header"));
        }
        let flushed = state.keyspaces.values().map(|record| record.flushed).max().unwrap_or_default();
        if end.last_seqno < flushed && flushed > start {
            return Err(hole("the log ends before commits that were durable"));
        }
        Ok(())
    }
}
