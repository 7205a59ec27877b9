//! Every layer, short, or a tenth of that. Tests begin in the order of their names: those that wait most, for
//! the device and for threads, are named so that they begin first.

use std::io::Write;

use testudo_sim::{Limits, layers::find};

/// Runs a tenth of a layer's short form, or all of it. Prints what it did, panics with the command that
/// replays a failure.
fn run(name: &str) {
    let layer = find(name).expect("a layer of this name");
    match (layer.run)(&Limits::default()) {
        Ok(report) => {
            if let Some(reason) = &report.not_run {
                // Past the harness, which hides what passing tests print.
                let _ = writeln!(std::io::stderr(), "{name} was NOT RUN: {reason}");
            }
            if let Some(seed) = report.fresh_seeds_from {
                let _ = writeln!(std::io::stderr(), "{name}: fresh seeds from {seed}");
            }
            println!("{name}\n{report}");
        }
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn faults_of_every_kind_end_in_right_answers_or_clear_errors() {
    run("simulate");
}

#[test]
fn random_operations_give_the_answers_of_a_map() {
    run("model");
}

#[test]
fn snapshots_answer_as_of_their_moment() {
    run("snapshots");
}

#[test]
fn looks_at_the_ends_of_queues_cost_the_same_however_much_was_removed() {
    run("queues");
}

#[test]
fn power_losses_keep_the_prefix_rule() {
    run("crash");
}

#[test]
fn every_short_script_survives_a_power_loss_at_every_operation() {
    run("exhaustive");
}

#[test]
fn all_trees_give_equal_answers_however_they_are_run() {
    run("metamorphic");
}

#[test]
fn any_call_may_fail() {
    run("nth");
}

#[test]
fn what_is_lacking_for_a_moment_ends_nothing() {
    run("shortages");
}

#[test]
fn a_full_disk_loses_nothing() {
    run("full-disk");
}

#[test]
fn a_device_that_others_fill_takes_every_removal() {
    run("filled");
}

#[test]
fn a_removal_makes_room_in_the_end() {
    run("removals");
}

#[test]
fn a_full_file_system_on_a_loop_device_loses_nothing() {
    run("loop-device");
}

#[test]
fn memory_is_bounded_whatever_is_asked() {
    run("bounds");
}

#[test]
fn snapshots_and_iterators_share_what_they_hold() {
    run("holders");
}

#[test]
fn lost_older_and_exchanged_files_never_pass_for_the_store() {
    run("files");
}

#[test]
fn damage_never_gives_a_wrong_answer() {
    run("corruption");
}

#[test]
fn moved_and_replaced_directories_never_mix_two_stores() {
    run("directories");
}

#[test]
fn a_thousand_openings_leave_what_one_does() {
    run("openings");
}

#[test]
fn what_was_hot_comes_back_right() {
    run("hot-set");
}

#[test]
fn a_batch_is_seen_whole_and_counts_are_exact_among_threads() {
    run("concurrency");
}
