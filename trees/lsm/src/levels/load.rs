//! Loading the levels of a tree from their objects in the manifest. No page is read, except for maps.
//!
//! **Invariants**
//! - Objects that contradict each other or the live extents are reported as `Corruption`.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{Error, KeyspaceId, ObjectId, Result, RunId, codec::Damage};
use testudo_run::Run;
use testudo_sequence::{CompactionBuffer, Fence, FencedRun, Overwrites, decode_buffer, share_starts};
use testudo_storage::DataFile;

use crate::forecast::InsertForecast;
use crate::levels::{
    Level, Levels,
    component::{Component, LevelRun, Segment},
    levels_format::{ROOT, StoredComponent, StoredLevels, StoredRun, decode_root, decode_segment},
};

/// Exclusive upper bound of object ids, which no tree reaches.
const MAX_OBJECT: u64 = 1 << 60;

fn damaged(keyspace: KeyspaceId, object: ObjectId, why: &str) -> Error {
    Error::corruption("manifest", 0, format!("object {object} of keyspace {keyspace}: {why}"))
}

/// Opens sequences from the remaining objects.
struct Loader<'a> {
    data: &'a Arc<DataFile>,
    keyspace: KeyspaceId,
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
}

/// Loads the levels that `objects` describe; `None` if there are no objects.
pub(crate) fn load_levels(
    data: &Arc<DataFile>,
    keyspace: KeyspaceId,
    mut objects: BTreeMap<ObjectId, Arc<[u8]>>,
) -> Result<Option<Levels>> {
    let Some(root) = objects.remove(&ROOT) else {
        return if objects.is_empty() { Ok(None) } else { Err(damaged(keyspace, ROOT, "is missing")) };
    };
    let stored = decode_root(&root).map_err(|Damage(why)| damaged(keyspace, ROOT, why))?;
    let StoredLevels { next_object, flush_bytes, .. } = stored;
    if objects.keys().next_back().is_some_and(|last| last.0 >= next_object) || next_object > MAX_OBJECT {
        return Err(damaged(keyspace, ROOT, "the next object id is already in use"));
    }
    let mut loader = Loader { data, keyspace, objects };
    let mut levels = Vec::with_capacity(stored.levels.len());
    for level in stored.levels {
        let (filling, emptying) = (loader.components(level.filling)?, loader.components(level.emptying)?);
        levels.push(Level { filling, emptying, began_bytes: level.began_bytes, repeats: level.repeats });
    }
    let bottom = loader.component(stored.bottom)?;
    let witnesses = open_runs(data, stored.witnesses)?;
    let forecast = InsertForecast::new(data);
    let mut levels =
        Levels { levels, bottom, witnesses, next_object, flush_bytes, forecast, ..Levels::default() };
    (levels.overwrites, levels.bottom_repeats) = (Overwrites::UNKNOWN, stored.bottom_repeats);
    let mut opened = BTreeMap::new();
    for (number, id) in stored.buffers {
        let buffer = loader.buffer(id, &mut opened)?;
        if let Some(component) = levels.components_mut().nth(number) {
            component.set_buffer(Some(buffer));
        }
    }
    if !loader.objects.is_empty() {
        return Err(damaged(keyspace, ROOT, "some segments are unreachable"));
    }
    Ok(Some(levels))
}

/// Opens runs; their maps are read in one batch.
fn open_runs(data: &Arc<DataFile>, mut stored: Vec<StoredRun>) -> Result<Vec<LevelRun>> {
    let (mut rest, mut references) = (Vec::with_capacity(stored.len()), Vec::with_capacity(stored.len()));
    for StoredRun { low, reference, bytes, cover, object } in stored.drain(..) {
        references.push(reference);
        rest.push((low, bytes, cover, object));
    }
    let runs = Run::open_all(data, references)?;
    debug_assert_eq!(runs.len(), rest.len(), "a run for each reference");
    let level_run = |((low, bytes, cover, object), run)| LevelRun {
        fenced: FencedRun { low, run },
        bytes,
        cover,
        object,
    };
    Ok(rest.into_iter().zip(runs).map(level_run).collect())
}

impl Loader<'_> {
    /// Opens a compaction buffer. Runs that are in several are opened once.
    fn buffer(
        &mut self,
        id: ObjectId,
        opened: &mut BTreeMap<RunId, Arc<Run>>,
    ) -> Result<Arc<CompactionBuffer>> {
        let bytes = self.objects.remove(&id).ok_or_else(|| damaged(self.keyspace, id, "is missing"))?;
        let stored = decode_buffer(&bytes).map_err(|Damage(why)| damaged(self.keyspace, id, why))?;
        stored.open(id, self.data, opened)
    }

    fn components(&mut self, stored: Vec<StoredComponent>) -> Result<Vec<Component>> {
        stored.into_iter().map(|component| self.component(component)).collect()
    }

    fn component(&mut self, stored: StoredComponent) -> Result<Component> {
        let mut segments = Vec::with_capacity(stored.len());
        let mut before: Option<Fence> = None;
        for id in stored {
            // Objects are removed, so a segment that is named twice is reported as missing.
            let bytes = self.objects.remove(&id).ok_or_else(|| damaged(self.keyspace, id, "is missing"))?;
            let runs = decode_segment(&bytes, |object| self.objects.remove(&object))
                .map_err(|Damage(why)| damaged(self.keyspace, id, why))?;
            let mut runs = open_runs(self.data, runs)?;
            if before.is_some_and(|before| before >= runs[0].fenced.low) {
                return Err(damaged(self.keyspace, id, "the fences of a level do not ascend"));
            }
            before = runs.last().map(|last| last.fenced.low.clone());
            share_starts(runs.iter_mut().map(|level_run| &mut level_run.fenced.low).collect());
            segments.push(Arc::new(Segment { id, runs }));
        }
        Ok(Component::of_segments(segments))
    }
}
