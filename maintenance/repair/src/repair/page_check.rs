//! Verifies every page that the trees refer to, and reports the loss caused by each damage.
//!
//! **Invariants**
//! - Every run is checked, regardless of damage to others; nothing is written.

use testudo_base::{PAGE_BYTES, Result, num::u64_of, sync::Arc};
use testudo_env::File;
use testudo_run::{PageWalk, RunRef, read_leniently};
use testudo_storage::{DATA_FILE, PageKind};
use testudo_store::long_work::Meter;

use super::Site;

impl Site<'_> {
    /// Checks all runs of all trees.
    pub(super) fn check_pages(&mut self, meter: &mut Meter<'_, '_>) -> Result<()> {
        let plan = self.plan;
        // For a value log that was not closed, the log tells which values are missing.
        let runs = || {
            plan.keyspaces.values().flat_map(|keyspace| {
                let logged = keyspace.logged.iter().filter(|source| !source.is_open);
                let logged = logged.map(|source| &source.reference);
                keyspace.sources.iter().map(|source| &source.reference).chain(logged)
            })
        };
        let Some(data) = self.evidence.data.clone() else {
            let action = "salvage recovers the contents of the log";
            self.report.needs_salvage(DATA_FILE, 0, "the file is missing", action);
            return Ok(());
        };
        meter.expect_more(runs().map(RunRef::stored_bytes).sum());
        for reference in runs() {
            self.check_run(&data, reference, meter)?;
        }
        Ok(())
    }

    fn check_run(
        &mut self,
        data: &Arc<dyn File>,
        reference: &RunRef,
        meter: &mut Meter<'_, '_>,
    ) -> Result<()> {
        let mut walk = PageWalk::new(reference, self.evidence.store, 0);
        let mut read = |first: u32, buffer: &mut [u8]| -> Result<()> {
            let (mut page, mut rest) = (first, buffer);
            while !rest.is_empty() {
                let Some((physical, room)) = reference.locate(page) else {
                    rest.fill(0);
                    return Ok(());
                };
                let bytes = testudo_base::num::usize_of(u64::from(room) * PAGE_BYTES).min(rest.len());
                let (chunk, after) = rest.split_at_mut(bytes);
                read_leniently(&**data, physical, chunk);
                page += testudo_base::num::u32_of(bytes / testudo_base::PAGE_SIZE);
                rest = after;
            }
            Ok(())
        };
        while let Some(stretch) = walk.next_stretch(&mut read)? {
            let bytes = u64_of(stretch.bytes.len());
            for block in stretch.blocks {
                let Some(why) = block.damage else { continue };
                let action = match block.identity.kind {
                    PageKind::Data | PageKind::Replaced => {
                        "salvage recovers all records except those of this page"
                    }
                    PageKind::Map => "salvage finds the replaced pages of the run without it",
                    _ => "salvage recovers all records",
                };
                let what = format!("{why} ({:?} page of run {})", block.identity.kind, reference.id);
                self.report.needs_salvage(
                    DATA_FILE,
                    block.identity.page.saturating_mul(PAGE_BYTES),
                    what,
                    action,
                );
            }
            self.report.checked_bytes += bytes;
            meter.advance(bytes)?;
        }
        Ok(())
    }
}
