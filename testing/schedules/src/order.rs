//! Search for an order of steps that explains all answers (Wing and Gong, "Testing and Verifying Concurrent
//! Objects", JPDC 1993, with Lowe's memoization of failed states).
//!
//! **Invariants**
//! - Sound and complete for up to [`STEPS_MAX`] steps: an order is found if and only if one exists.
//! - Read-only steps are taken as soon as they fit, which loses no order: they change nothing.

use std::collections::HashSet;

/// Maximum steps of one search.
pub const STEPS_MAX: usize = 128;

/// Numbers of keys and values in the state that is searched through.
pub type Cell = (usize, u32);

/// An action that takes effect at one moment.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Required cells.
    pub expects: Vec<Cell>,
    /// Cells after the step.
    pub writes: Vec<Cell>,
    /// Bit set of steps that must precede it.
    pub follows: u128,
    /// Whether it may never have happened.
    pub is_optional: bool,
}

struct Search<'a> {
    steps: &'a [Step],
    required: u128,
    in_vain: HashSet<(u128, Vec<u32>)>,
    /// The largest set of steps that any order explained.
    deepest: u128,
}

/// Checks that some order of `steps` starting with `state` explains them all; the error is the bit set of
/// steps that the best order explains.
pub fn explain(steps: &[Step], state: Vec<u32>) -> Result<(), u128> {
    assert!(steps.len() <= STEPS_MAX, "histories are small");
    let required = (0..).zip(steps).filter(|(_, step)| !step.is_optional);
    let required = required.fold(0, |bits, (index, _)| bits | 1_u128 << index);
    let mut search = Search { steps, required, in_vain: HashSet::new(), deepest: 0 };
    if search.go_on(0, state) { Ok(()) } else { Err(search.deepest) }
}

impl Search<'_> {
    fn go_on(&mut self, mut taken: u128, mut state: Vec<u32>) -> bool {
        taken = self.take_reads(taken, &state);
        if taken.count_ones() > self.deepest.count_ones() {
            self.deepest = taken;
        }
        if taken & self.required == self.required {
            return true;
        }
        if !self.in_vain.insert((taken, state.clone())) {
            return false;
        }
        for index in 0..self.steps.len() {
            let step = &self.steps[index];
            if !self.is_next(taken, index, &state) || step.writes.is_empty() {
                continue;
            }
            let before: Vec<Cell> = step.writes.iter().map(|&(key, _)| (key, state[key])).collect();
            for &(key, value) in &step.writes {
                state[key] = value;
            }
            if self.go_on(taken | 1 << index, state.clone()) {
                return true;
            }
            for (key, value) in before.into_iter().rev() {
                state[key] = value;
            }
        }
        false
    }

    fn take_reads(&self, mut taken: u128, state: &[u32]) -> u128 {
        loop {
            let is_read =
                |index: &usize| self.steps[*index].writes.is_empty() && self.is_next(taken, *index, state);
            match (0..self.steps.len()).find(is_read) {
                Some(index) => taken |= 1 << index,
                None => return taken,
            }
        }
    }

    fn is_next(&self, taken: u128, index: usize, state: &[u32]) -> bool {
        let step = &self.steps[index];
        taken >> index & 1 == 0
            && step.follows & !taken == 0
            && step.expects.iter().all(|&(key, value)| state[key] == value)
    }
}

#[cfg(test)]
mod tests;
