//! Every layer, short, or a tenth of that. Tests start in the order of their names: those that wait most, for
//! the device and for threads, have names that start first.

use std::io::Write;

use testudo_sim::{Limits, layers::find};

/// Runs a tenth of a layer's short form, or all of it. Prints its report; panics with the replay command of a
/// failure.
fn run(name: &str) {
    let layer = find(name).expect("a layer of this name");
    match (layer.run)(&Limits::default()) {
        Ok(report) => {
            if let Some(reason) = &report.not_run {
                // Bypasses the harness, which hides the output of passing tests.
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
fn snapshots_show_the_state_when_taken() {
    run("snapshots");
}

#[test]
fn queue_end_reads_cost_the_same_after_many_removals() {
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
fn all_trees_give_equal_answers_in_every_way_of_running() {
    run("metamorphic");
}

#[test]
fn any_call_may_fail() {
    run("nth");
}

#[test]
fn transient_shortages_stop_nothing() {
    run("shortages");
}

#[test]
fn a_full_disk_loses_nothing() {
    run("full-disk");
}

#[test]
fn a_device_filled_by_others_accepts_every_removal() {
    run("filled");
}

#[test]
fn a_removal_eventually_frees_space() {
    run("removals");
}

#[test]
fn a_full_file_system_on_a_loop_device_loses_nothing() {
    run("loop-device");
}

#[test]
fn memory_is_bounded_for_any_request() {
    run("bounds");
}

#[test]
fn snapshots_and_iterators_share_held_data() {
    run("holders");
}

#[test]
fn lost_older_and_foreign_files_never_give_wrong_answers() {
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
fn a_thousand_openings_leave_the_files_of_one() {
    run("openings");
}

#[test]
fn hot_set_restores_give_right_answers() {
    run("hot-set");
}

#[test]
fn a_batch_is_seen_whole_and_counts_are_exact_across_threads() {
    run("concurrency");
}
