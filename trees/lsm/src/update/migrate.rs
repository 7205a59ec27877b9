//! Operations for a keyspace that migrates to or from another tree: the ends of portions, a portion in the
//! bottom, and restricting levels to a range (decision 0042).
//!
//! At its lower end a sequence is cut exactly, by the fence of its first run. At its upper end runs extend
//! over the border, and their entries there are garbage: they are never merged
//! ([`testudo_contract::Work::keys`]). They disappear when the border has passed them, or when the tree is
//! cut because it accepts portions again.
//!
//! **Invariants**
//! - Only [`cut_to`] writes runs.

use std::sync::Arc;

use testudo_base::{Error, ErrorKind, Result};
use testudo_contract::{Heading, Portion, Work};
use testudo_run::{KeyBounds, Run};
use testudo_sequence::{Bounds, Fence, FencedRun};

use crate::{
    LsmOptions,
    levels::{
        Levels,
        component::{Component, Extent, LevelRun},
    },
    update::{
        destination::{Destination, put_in_place},
        plan::Floor,
        take_out::{head_of, heads_of, inside},
        write::write_all,
    },
};

/// Returns the end of a portion of about `bytes`, at one end of `rest`; `None` if it is all of `rest`.
pub(crate) fn next_border(
    levels: &Levels,
    rest: &KeyBounds,
    heading: Heading,
    bytes: u64,
) -> Result<Option<Vec<u8>>> {
    let rest = Bounds::from(rest);
    let mut begins = Vec::new();
    for component in levels.components() {
        for level_run in component.range(component.within(&rest)) {
            begins.push((level_run.extent()?.low, level_run.bytes));
        }
    }
    begins.sort_by(|a, b| a.0.cmp(&b.0));
    if heading == Heading::Down {
        begins.reverse();
    }
    let is_inside = |low: &Fence| {
        !low.is_empty()
            && rest.low.as_ref().is_none_or(|end| end < low)
            && rest.high.as_ref().is_none_or(|end| low < end)
    };
    let mut found = 0;
    for (low, begun) in begins {
        let before = found;
        found += begun;
        let is_enough = match heading {
            Heading::Up => before >= bytes,
            Heading::Down => found >= bytes,
        };
        if is_enough && is_inside(&low) {
            return Ok(Some(low.to_vec()));
        }
    }
    Ok(None)
}

/// Returns the levels with a portion in the bottom.
pub(crate) fn with_portion(levels: &Levels, portion: &Portion) -> Result<Levels> {
    let mut next = levels.clone();
    next.forget_retained();
    let bounds = Bounds::from(&portion.bounds);
    let lows: Vec<Fence> = portion.runs.iter().map(|(low, _)| low.as_slice().into()).collect();
    let level_run = |(at, (_, run)): (usize, &(Vec<u8>, Arc<Run>))| LevelRun {
        fenced: FencedRun { low: lows[at].clone(), run: Arc::clone(run) },
        bytes: run.reference().user_bytes,
        cover: Some(Bounds {
            low: lows[at].as_low(),
            high: lows.get(at + 1).or(bounds.high.as_ref()).cloned(),
        }),
        object: None,
    };
    let runs = portion.runs.iter().enumerate().map(level_run).collect();
    debug_assert!(lows.is_sorted_by(|a, b| a < b), "the runs of a portion are in key order");
    debug_assert!(
        bounds.low.as_ref().is_none_or(|low| lows.iter().all(|run| low <= run)),
        "runs are inside it"
    );
    let low = bounds.low.clone().unwrap_or_default();
    let at = next.bottom.runs_below(&low.bytes());
    let before = at.checked_sub(1).and_then(|before| next.bottom.get(before));
    if before.map(LevelRun::extent).transpose()?.is_some_and(|extent| extent.high > low) {
        let message = "a tree of a moving keyspace: a run has keys in a range still to be filled";
        return Err(Error::new(ErrorKind::Corruption, message));
    }
    next.bottom = put_in_place(&next.bottom, at..at, runs, None, &mut next.next_object)?;
    Ok(next)
}

/// Returns the levels without runs that have nothing inside `keep`.
pub(crate) fn without_outside(levels: &Levels, keep: &KeyBounds) -> Result<Levels> {
    let (mut next, keep) = (levels.clone(), Bounds::from(keep));
    next.forget_retained();
    let Levels { levels, bottom, witnesses, next_object, .. } = &mut next;
    let upper = levels.iter_mut().flat_map(|level| level.filling.iter_mut().chain(&mut level.emptying));
    for component in upper.chain([bottom]) {
        *component = restricted(component, &keep, next_object)?;
    }
    let knows_any = |level_run: &LevelRun| {
        level_run.cover.as_ref().is_some_and(|cover| !cover.intersection(&keep).is_empty())
    };
    witnesses.retain(knows_any);
    Ok(next)
}

fn restricted(component: &Component, keep: &Bounds, next_object: &mut u64) -> Result<Component> {
    let below = Bounds { low: None, high: keep.high.clone() };
    let behind = component.within(&below).end..component.len();
    let kept = component.splice(behind, Vec::new(), next_object)?;
    let Some(low) = &keep.low else { return Ok(kept) };
    let kept = kept.from(Some(low), next_object)?;
    // With long keys, only now is it known that the first run ends before its fence.
    let extent = kept.get(0).map(LevelRun::extent).transpose()?;
    let is_nothing = extent.is_some_and(|Extent { low, high }| high <= low);
    kept.splice(0..usize::from(is_nothing), Vec::new(), next_object)
}

/// Returns the levels in which nothing outside `keep` counts.
pub(crate) fn cut_to(levels: &Levels, work: &Work, options: &LsmOptions, keep: &KeyBounds) -> Result<Levels> {
    let mut next = without_outside(levels, keep)?;
    let Some(high) = Bounds::from(keep).high else { return Ok(next) };
    let behind = Bounds { low: Some(high), high: None };
    let mut heads = heads_of(&next, &behind)?;
    let upper = heads.len();
    let reaching = inside(&next.bottom, &behind)?;
    if let Some(mut head) = head_of(&next.bottom, &behind)? {
        head.floor = Floor::Bottom;
        heads.push(Destination::of_head(head));
    }
    let mut written = write_all(&mut heads, work, options, None)?;
    let mut of_bottom: Vec<LevelRun> = written.split_off(upper).into_iter().flatten().collect();
    next.take_out(&behind, 0, &mut written.into_iter())?;
    let replaced: Vec<LevelRun> = next.bottom.range(reaching.clone()).cloned().collect();
    if let (Some(first), Some(before)) = (of_bottom.first_mut(), replaced.first()) {
        first.fenced.low = before.fenced.low.clone();
    }
    next.bottom = next.bottom.splice(reaching, of_bottom, &mut next.next_object)?;
    next.keep_witnesses(replaced);
    Ok(next)
}
