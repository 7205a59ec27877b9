//! Minimizes a failing script: drops parts of it while it still fails.
//!
//! Plain delta debugging (Zeller, Hildebrandt: "Simplifying and Isolating Failure-Inducing Input", TSE 2002):
//! halves, quarters and so on down to single ops.
//!
//! **Invariants**
//! - The result fails whenever the given script does.

use crate::Script;

/// Returns the smallest failing script found in at most `runs_max` runs. `fails` tests parts of `script`.
pub fn shrink(script: &Script, runs_max: usize, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let mut best = script.clone();
    let mut runs = 0;
    // Reads rarely matter and make up most of a script.
    let mut writes = best.clone();
    writes.0.retain(|op| op.is_write() || op.is_structural());
    if writes.0.len() < best.0.len() && runs < runs_max {
        runs += 1;
        if fails(&writes) {
            best = writes;
        }
    }
    let mut part = best.0.len().div_ceil(2);
    while part > 0 && !best.0.is_empty() {
        let mut removed = false;
        let mut end = best.0.len();
        // Backward: most ops at the end come after the damage.
        while end > 0 {
            let start = end.saturating_sub(part);
            let mut shorter = best.clone();
            shorter.0.drain(start..end);
            if runs == runs_max {
                return best;
            }
            runs += 1;
            if fails(&shorter) {
                best = shorter;
                removed = true;
            }
            end = start;
        }
        part = match (part, removed) {
            (1, false) => 0,
            (1, true) => 1,
            _ => part / 2,
        };
    }
    best
}

#[cfg(test)]
mod tests;
