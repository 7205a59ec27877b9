//! Expected content of a store: the commits in order, which of them are durable, and the prefix rule.
//!
//! After a crash the content must equal the state after some commit that is not older than the newest durable
//! one, across all keyspaces: no hole, no partial batch. A commit whose call failed is uncertain: it may or
//! may not be present.
//!
//! **Invariants**
//! - `base` is the content after all commits before `log[0]`, which are all durable.
//! - `live` is `base` with the certain commits of `log` applied.
//! - `doubtful` holds the keys whose live value depends on uncertain commits, with every possible value.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    op::Slot,
    operator::merged,
    state::{Bytes, Delta, State},
    store::{RawScan, RawWalk},
};

/// Maximum combinations of uncertain commits that are tracked at once.
const CANDIDATES_MAX: usize = 512;

/// Outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged; a crash may lose it.
    Buffered,
    /// Acknowledged as durable, together with every earlier commit.
    Synced,
    /// The call failed; the commit may or may not have happened.
    Failed,
}

#[derive(Clone, Debug)]
struct Commit {
    deltas: Vec<Delta>,
    certain: bool,
}

/// The expected content.
#[derive(Clone, Debug, Default)]
pub struct Model {
    base: State,
    log: Vec<Commit>,
    /// Number of durable commits at the start of `log`.
    durable: usize,
    live: State,
    doubtful: BTreeMap<(Slot, Bytes), Vec<Option<Bytes>>>,
    doubtful_keyspaces: BTreeSet<Slot>,
    /// Syncs no longer guarantee durability.
    is_distrusted: bool,
}

impl Model {
    /// Content that reads see, except for doubtful keys.
    pub fn live(&self) -> &State {
        &self.live
    }

    /// Number of commits that a crash may lose.
    pub fn unsynced_count(&self) -> usize {
        self.log.len() - self.durable
    }

    /// Whether some live content is uncertain.
    pub fn has_doubts(&self) -> bool {
        !self.doubtful.is_empty() || !self.doubtful_keyspaces.is_empty()
    }

    /// Whether the content of a keyspace is entirely uncertain.
    pub fn is_doubtful_keyspace(&self, keyspace: Slot) -> bool {
        self.doubtful_keyspaces.contains(&keyspace)
    }

    /// Whether a key's live value depends on uncertain commits.
    pub fn is_doubtful(&self, keyspace: Slot, key: &[u8]) -> bool {
        self.has_doubts()
            && (self.is_doubtful_keyspace(keyspace) || self.doubtful.contains_key(&(keyspace, key.into())))
    }

    /// Whether a read of the key may return `found`.
    pub fn allows(&self, keyspace: Slot, key: &[u8], found: Option<&[u8]>) -> bool {
        if self.has_doubts() {
            if self.is_doubtful_keyspace(keyspace) {
                return true;
            }
            if let Some(values) = self.doubtful.get(&(keyspace, key.into())) {
                return values.iter().any(|value| value.as_deref() == found);
            }
        }
        self.live.get(keyspace, key).map(|value| &**value) == found
    }

    /// Adds a commit.
    pub fn commit(&mut self, deltas: Vec<Delta>, outcome: Outcome) {
        let certain = outcome != Outcome::Failed;
        for delta in &deltas {
            if certain {
                self.settle_doubt(delta);
                self.live.apply(delta);
            } else {
                self.add_doubt(delta);
            }
        }
        self.log.push(Commit { deltas, certain });
        if outcome == Outcome::Synced {
            self.sync();
        }
    }

    /// From now on the device may lose synced writes: later commits may be lost even if synced, but only from
    /// the end of the commit order. Commits that are already durable stay durable.
    pub fn distrust(&mut self) {
        self.is_distrusted = true;
    }

    /// Marks all commits so far as durable.
    pub fn sync(&mut self) {
        if self.is_distrusted {
            return;
        }
        self.durable = self.log.len();
        if self.log.iter().all(|commit| commit.certain) {
            for delta in self.log.drain(..).flat_map(|commit| commit.deltas) {
                self.base.apply(&delta);
            }
            self.durable = 0;
        }
    }

    /// Checks the content after a crash or a close against the prefix rule, and returns the number of lost
    /// commits. On success the model continues from that content as durable. The error explains the
    /// violation.
    pub fn recover(&mut self, found: &State) -> Result<usize, String> {
        let count = match self.last_exact_match(found) {
            Ok(count) => count,
            Err(TooManyCandidates) => self.last_loose_match(found),
        };
        let Some(count) = count else {
            return Err(self.explain_loss(found));
        };
        let lost = self.log.len() - count;
        if self.is_distrusted {
            // The content found may be lost the next time; the older commits still give the order of the
            // loss.
            self.log.truncate(count);
            self.live.clone_from(found);
            self.doubtful.clear();
            self.doubtful_keyspaces.clear();
            return Ok(lost);
        }
        *self = Self { base: found.clone(), live: found.clone(), ..Self::default() };
        Ok(lost)
    }

    /// Finds the longest allowed prefix whose content, with some of the uncertain commits, is `found`.
    fn last_exact_match(&self, found: &State) -> Result<Option<usize>, TooManyCandidates> {
        let mut candidates = vec![self.base.clone()];
        let mut matching = None;
        for count in 0..=self.log.len() {
            if count > 0 {
                advance(&mut candidates, &self.log[count - 1])?;
            }
            let equal = |state: &State| state.fingerprint() == found.fingerprint() && state == found;
            if count >= self.durable && candidates.iter().any(equal) {
                matching = Some(count);
            }
        }
        Ok(matching)
    }

    /// Same as `last_exact_match` for too many failed commits to combine: judges each key on its own, so a
    /// partial failed batch goes unnoticed. Keyspaces that failed calls created or dropped are not judged at
    /// all.
    fn last_loose_match(&self, found: &State) -> Option<usize> {
        let mut prefix = Self { base: self.base.clone(), live: self.base.clone(), ..Self::default() };
        let mut matching = None;
        for count in 0..=self.log.len() {
            if count > 0 {
                let Commit { deltas, certain } = self.log[count - 1].clone();
                let outcome = if certain { Outcome::Buffered } else { Outcome::Failed };
                prefix.commit(deltas, outcome);
            }
            if count >= self.durable && prefix.allows_all(found) {
                matching = Some(count);
            }
        }
        matching
    }

    /// Whether reads of everything may return what `found` holds.
    fn allows_all(&self, found: &State) -> bool {
        let slots: BTreeSet<Slot> = self.live.slots().into_iter().chain(found.slots()).collect();
        slots.into_iter().filter(|slot| !self.is_doubtful_keyspace(*slot)).all(|slot| {
            let all = RawScan::all(RawWalk::Forward);
            let mut keys = self.live.scan(slot, &all).into_iter().chain(found.scan(slot, &all));
            let same =
                |(key, _): (&[u8], &[u8])| self.allows(slot, key, found.get(slot, key).map(|value| &**value));
            self.live.has(slot) == found.has(slot) && keys.all(same)
        })
    }

    /// Ends the doubt about the keys that a certain change touches.
    fn settle_doubt(&mut self, delta: &Delta) {
        if !self.has_doubts() {
            return;
        }
        match delta {
            Delta::Write { keyspace, key, .. } => {
                self.doubtful.remove(&(*keyspace, Arc::clone(key)));
            }
            // The key stays doubtful: every possible value changes.
            Delta::Merge { keyspace, key, operand } => {
                for value in self.doubtful.get_mut(&(*keyspace, Arc::clone(key))).into_iter().flatten() {
                    *value = Some(merged(*keyspace, value.as_deref(), operand).into());
                }
            }
            // A keyspace that a failed drop may have emptied stays doubtful when it is reopened.
            Delta::Create(_) => {}
            Delta::Drop(keyspace) => {
                self.doubtful_keyspaces.remove(keyspace);
                self.doubtful.retain(|(slot, _), _| slot != keyspace);
            }
        }
    }

    fn add_doubt(&mut self, delta: &Delta) {
        match delta {
            Delta::Create(keyspace) | Delta::Drop(keyspace) => {
                self.doubtful_keyspaces.insert(*keyspace);
            }
            Delta::Write { keyspace, key, value } => {
                let current = self.live.get(*keyspace, key).cloned();
                let values =
                    self.doubtful.entry((*keyspace, Arc::clone(key))).or_insert_with(|| vec![current]);
                values.push(value.clone());
            }
            Delta::Merge { keyspace, key, operand } => {
                let current = self.live.get(*keyspace, key).cloned();
                let values =
                    self.doubtful.entry((*keyspace, Arc::clone(key))).or_insert_with(|| vec![current]);
                let changed =
                    |value: &Option<Bytes>| Some(Bytes::from(merged(*keyspace, value.as_deref(), operand)));
                let changed: Vec<_> = values.iter().map(changed).collect();
                values.extend(changed);
                if values.len() > CANDIDATES_MAX {
                    self.doubtful_keyspaces.insert(*keyspace);
                }
            }
        }
    }

    /// Describes how `found` differs from the oldest and the newest allowed content.
    fn explain_loss(&self, found: &State) -> String {
        let mut oldest = self.base.clone();
        let mut earlier = None;
        for (index, commit) in self.log[..self.durable].iter().enumerate() {
            if oldest == *found {
                earlier = Some(self.durable - index);
            }
            commit.deltas.iter().filter(|_| commit.certain).for_each(|delta| oldest.apply(delta));
        }
        let mut text = format!(
            "the content is not an allowed prefix: {} commits may be lost, {} pairs were found\n",
            self.unsynced_count(),
            found.len()
        );
        if let Some(count) = earlier {
            text += &format!("it is an older state: {count} durable commits are lost\n");
        }
        text += &format!("against the oldest allowed state:\n{}\n", oldest.explain_difference(found));
        text += &format!("against the newest state:\n{}", self.live.explain_difference(found));
        text
    }
}

/// Error: too many combinations of uncertain commits.
struct TooManyCandidates;

/// Applies a commit to every candidate; an uncertain one also keeps each candidate without it.
fn advance(candidates: &mut Vec<State>, commit: &Commit) -> Result<(), TooManyCandidates> {
    let without = if commit.certain { Vec::new() } else { candidates.clone() };
    for state in candidates.iter_mut() {
        commit.deltas.iter().for_each(|delta| state.apply(delta));
    }
    for state in without {
        if candidates.iter().all(|candidate| candidate.fingerprint() != state.fingerprint()) {
            candidates.push(state);
        }
    }
    if candidates.len() > CANDIDATES_MAX { Err(TooManyCandidates) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
