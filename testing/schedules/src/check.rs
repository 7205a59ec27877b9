//! Requirements of a history: each key behaves like one register, and a single order of commits exists of
//! which every snapshot, every scan and every crash image shows a prefix.
//!
//! Plain reads may see a batch operation by operation, so only per-key order applies to them. Everything else
//! must also follow the commit order, with whole batches.
//!
//! **Invariants**
//! - Real time counts: a call that returned before another one began precedes it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::{Action, Event, History, Key, Value},
    order::{Cell, Step, explain},
};

/// Content of a reopened store.
pub type Image = BTreeMap<Key, String>;

/// Checks a history. `image` is the content of the listed keys after a crash at its end.
///
/// Errors: the violation, with its events.
pub fn check(history: &History, image: Option<(&[Key], &Image)>) -> Result<(), String> {
    check_looks(history)?;
    check_keys(history)?;
    check_commits(history, image)
}

/// Checks that a snapshot gives the same answer for a key each time.
fn check_looks(history: &History) -> Result<(), String> {
    for event in &history.0 {
        let Action::Look(reads) = &event.action else { continue };
        let mut seen: BTreeMap<&Key, &Value> = BTreeMap::new();
        for (key, value) in reads {
            if let Some(before) = seen.insert(key, value)
                && before != value
            {
                return Err(format!(
                    "a snapshot showed {key} as {before:?} and later as {value:?}\n{history}"
                ));
            }
        }
    }
    Ok(())
}

/// Checks that each key by itself is a register: every access takes effect at one moment within its call.
fn check_keys(history: &History) -> Result<(), String> {
    let keys: BTreeSet<&Key> = history.0.iter().flat_map(keys_of).collect();
    for key in keys {
        let events: Vec<Event> = history.0.iter().filter_map(|event| project(event, key)).collect();
        find_order(&events, &[]).map_err(|unexplained| {
            format!("the answers about {key} fit no order; unexplained: {unexplained}\n{}", History(events))
        })?;
    }
    Ok(())
}

/// Checks that an order of all commits explains all looks, and that the image is a prefix of it that contains
/// all synced commits.
fn check_commits(history: &History, image: Option<(&[Key], &Image)>) -> Result<(), String> {
    let is_ordered = |event: &&Event| !matches!(event.action, Action::Get(..) | Action::Persist);
    let mut events: Vec<Event> = history.0.iter().filter(is_ordered).cloned().collect();
    let mut after_last = Vec::new();
    if let Some((keys, image)) = image {
        let persisted = history.0.iter().filter(|event| event.action == Action::Persist && event.is_synced);
        let persisted = persisted.map(|event| event.invoked).max().unwrap_or(0);
        for (index, event) in events.iter().enumerate() {
            let was_persisted = event.returned.is_some_and(|returned| returned < persisted);
            if event.is_synced || was_persisted {
                after_last.push(index);
            }
        }
        let reads = keys.iter().map(|key| (key.clone(), image.get(key).cloned())).collect();
        // The image shows any moment: only synced commits must be present.
        let action = Action::Look(reads);
        events.push(Event {
            client: usize::MAX,
            invoked: 0,
            returned: Some(u64::MAX),
            action,
            is_synced: false,
        });
    }
    find_order(&events, &after_last)
        .map_err(|unexplained| format!("no order of commits explains: {unexplained}\n{}", History(events)))
}

fn keys_of(event: &Event) -> Vec<&Key> {
    match &event.action {
        Action::Write(cells) | Action::Look(cells) => cells.iter().map(|(key, _)| key).collect(),
        Action::Modify { key, .. } | Action::Get(key, _) => vec![key],
        Action::Persist => Vec::new(),
    }
}

/// Restricts an event to one key.
fn project(event: &Event, wanted: &Key) -> Option<Event> {
    let of_key = |cells: &[(Key, Value)]| -> Vec<(Key, Value)> {
        cells.iter().filter(|(key, _)| key == wanted).cloned().collect()
    };
    let action = match &event.action {
        Action::Write(cells) => Action::Write(of_key(cells)),
        Action::Look(cells) => Action::Look(of_key(cells)),
        other => other.clone(),
    };
    let projected = Event { action, ..event.clone() };
    keys_of(&projected).contains(&wanted).then_some(projected)
}

/// Checks that an order explains `events`, with the last one after all of `after_last`; the error lists the
/// unexplained ones.
fn find_order(events: &[Event], after_last: &[usize]) -> Result<(), String> {
    let mut names = Names::default();
    let mut steps: Vec<Step> = events.iter().map(|event| names.step(event)).collect();
    for (index, event) in events.iter().enumerate() {
        let is_before = |other: &Event| other.returned.is_some_and(|returned| returned < event.invoked);
        let before = events.iter().enumerate().filter(|(_, other)| is_before(other));
        steps[index].follows = before.fold(0, |bits, (other, _)| bits | 1 << other);
    }
    if let Some(last) = steps.last_mut() {
        last.follows |= after_last.iter().fold(0, |bits, other| bits | 1 << other);
    }
    explain(&steps, vec![0; names.keys.len()]).map_err(|explained| {
        let unexplained = (0..events.len()).filter(|index| explained >> index & 1 == 0);
        let texts: Vec<String> = unexplained.map(|index| format!("{:?}", events[index].action)).collect();
        texts.join("; ")
    })
}

/// Numbers for keys and values; value 0 means none.
#[derive(Default)]
struct Names<'a> {
    keys: BTreeMap<&'a Key, usize>,
    values: BTreeMap<&'a String, u32>,
}

impl<'a> Names<'a> {
    fn cell(&mut self, key: &'a Key, value: &'a Value) -> Cell {
        let next_key = self.keys.len();
        let key = *self.keys.entry(key).or_insert(next_key);
        let next_value = u32::try_from(self.values.len()).map_or(u32::MAX, |count| count + 1);
        let value = value.as_ref().map_or(0, |value| *self.values.entry(value).or_insert(next_value));
        (key, value)
    }

    fn step(&mut self, event: &'a Event) -> Step {
        let mut step = Step { is_optional: event.returned.is_none(), ..Step::default() };
        match &event.action {
            Action::Write(cells) => step.writes = cells.iter().map(|(k, v)| self.cell(k, v)).collect(),
            Action::Look(cells) => step.expects = cells.iter().map(|(k, v)| self.cell(k, v)).collect(),
            Action::Get(key, value) => step.expects = vec![self.cell(key, value)],
            Action::Modify { key, before, after } => {
                step.expects = vec![self.cell(key, before)];
                step.writes = vec![self.cell(key, after)];
            }
            Action::Persist => {}
        }
        step
    }
}

#[cfg(test)]
mod tests;
