use std::{ffi::OsString, sync::Arc};

use clap::Parser;

use super::*;
use crate::{Testudo, args::BenchArgs, args::BenchCommand};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

#[test]
fn all_records_of_the_neighbors_are_right_on_every_tree() {
    let temporary = std::env::temp_dir();
    for tree in ["turtle", "splinter", "leveled", "lsbm", "treeline", "parallax"] {
        let line = ["bench", "neighbors", "--smoke", "--memory", "16MiB", "--tree", tree, "--tmp"];
        let line = line.into_iter().map(OsString::from).chain([temporary.clone().into_os_string()]);
        let BenchCommand::Neighbors(args) = Line::parse_from(line).bench.command else {
            panic!("another one")
        };
        let outcome = run_neighbors_on::<Testudo>(&args, &Context::new(Arc::default())).unwrap();
        assert_eq!(outcome, Outcome::Fine, "{tree}");
    }
}
