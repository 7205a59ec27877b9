//! Ctrl-C during a load: it ends after a whole batch, and the store opens.

use std::{
    io::{Read, Write},
    process::{Child, Stdio},
    time::Duration,
};

use testudo_env::{Env, RealEnv};

use crate::program::{Answer, Place, await_handler, interrupt, program};

fn start(place: &Place, arguments: &[&str], input: Stdio) -> Child {
    let mut command = program();
    command.args(arguments).current_dir(place.path("."));
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Parses the number in `the N records of lines 1 to N are stored`.
fn stored(message: &str) -> u64 {
    let rest = message.split("interrupted; the ").nth(1).unwrap_or_else(|| panic!("{message}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn ctrl_c_while_loading_keeps_the_records_read() {
    let place = Place::new();
    let mut child = start(&place, &["load", "STORE", "-", "--create", "--format", "lines"], Stdio::piped());
    let mut input = child.stdin.take().unwrap();
    let mut number = 0;
    while number < 150_000 {
        writeln!(input, "{number:010}").unwrap();
        number += 1;
    }
    input.flush().unwrap();
    // Most of the input does not fit into the pipe: the program has read it and waits for more, which never
    // comes.
    interrupt(&mut child);
    let answer = Answer::of(child.wait_with_output().unwrap());
    answer.refused(&["interrupted", "are stored"]);
    assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), format!("{}\n", stored(&answer.err)));
    assert!(stored(&answer.err) > 0);
    place.run(&["verify", "STORE", "--full"]).fine();
    drop(input);
}

#[test]
fn ctrl_c_in_the_middle_of_a_file_ends_after_a_batch() {
    let place = Place::new();
    let lines: String = (0..2_000_000).map(|number| format!("{number:016}\n")).collect();
    place.write("many", lines.as_bytes());
    for pause in [150, 400] {
        let mut child =
            start(&place, &["load", "STORE", "many", "--create", "--format", "lines"], Stdio::null());
        await_handler(&mut child);
        RealEnv::new().sleep(Duration::from_millis(pause));
        if child.try_wait().unwrap().is_some() {
            continue;
        }
        interrupt(&mut child);
        let answer = Answer::of(child.wait_with_output().unwrap());
        if answer.code.is_none() || answer.code == Some(0) {
            // Too early to be caught, or too late to matter.
            continue;
        }
        answer.refused(&["interrupted"]);
        place.run(&["verify", "STORE"]).fine();
        let count = place.run(&["scan", "STORE", "--count"]).fine();
        if answer.err.contains("are stored") {
            let stored = stored(&answer.err);
            assert!(count.trim().parse::<u64>().unwrap() >= stored);
            let last = format!("{:016}", stored - 1);
            place.run(&["get", "STORE", &last]).fine();
        }
    }
}

#[test]
fn ctrl_c_ends_the_demo_and_removes_its_directory() {
    let place = Place::new();
    let mut child = start(&place, &["demo", "--records", "1000000"], Stdio::null());
    let mut output = child.stdout.take().unwrap();
    let mut first = [0; 16];
    output.read_exact(&mut first).unwrap();
    interrupt(&mut child);
    // Drains the pipe, so that the demo reaches its next check for interruption.
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!(answer.code, Some(2), "{}", answer.err);
    assert!(answer.err.contains("interrupted"), "{}", answer.err);
    assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), 0);
}
