use clap::{CommandFactory, Parser, ValueEnum};

use super::{BenchArgs, BenchCommand, Distribution, Mix, Workload, YcsbArgs};

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str) -> Result<BenchCommand, String> {
    let parsed = CommandLine::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()));
    parsed.map(|line| line.bench.command).map_err(|error| error.to_string())
}

fn parse_ycsb(line: &str) -> YcsbArgs {
    match parse(line) {
        Ok(BenchCommand::Ycsb(args)) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clap_definitions_are_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn documented_flags_are_accepted() {
    let args = parse_ycsb(
        "ycsb --tree turtle --workloads load,a,scan --records 20M --key-bytes 24 --value-bytes 1KiB \
         --memory 256MiB --threads 8 --ops 2k --distribution uniform --sync --dir d --json - --plot p",
    );
    assert_eq!(args.workloads, [Workload::Load, Workload::A, Workload::Scan]);
    assert_eq!((args.records, args.value_bytes, args.ops), (Some(20_000_000), 1024, Some(2_000)));
    assert_eq!((args.store.memory, args.threads), (256 << 20, 8));
    assert_eq!(args.distribution, Some(Distribution::Uniform));
    assert!(args.sync);
}

#[test]
fn defaults_are_as_documented() {
    let args = parse_ycsb("ycsb");
    assert_eq!(args.workloads.len(), 7);
    assert_eq!((args.key_bytes, args.value_bytes, args.threads, args.keyspaces), (24, 100, 2, 1));
    assert!(args.ops.is_none() && args.seconds.is_none() && args.distribution.is_none());
}

#[test]
fn mixed_rangehot_and_mixgraph_are_subcommands() {
    let Ok(BenchCommand::Mixed(mixed)) = parse("mixed --mix sd --records 5k") else {
        panic!("bench mixed was not parsed")
    };
    assert_eq!((mixed.mix, mixed.records, mixed.workloads.len()), (Some(Mix::Sd), Some(5_000), 7));
    let missing = parse("mixed --records 5k").unwrap_err();
    assert!(missing.contains("--mix <MIX>"), "{missing}");
    let Ok(BenchCommand::Rangehot(hot)) = parse("rangehot --updates-beside 4k --hot-fraction 0.01") else {
        panic!("bench rangehot was not parsed")
    };
    assert_eq!((hot.workloads, hot.updates_beside), (vec![Workload::Load, Workload::RangeHot], 4_000));
    assert!((hot.hot_fraction - 0.01).abs() < 1e-9, "{}", hot.hot_fraction);
    let Ok(BenchCommand::Mixgraph(graph)) = parse("mixgraph --seconds 5") else {
        panic!("bench mixgraph was not parsed")
    };
    assert_eq!((graph.workloads, graph.mix), (vec![Workload::Load, Workload::Mixgraph], Some(Mix::Pareto)));
    assert_eq!(graph.key_bytes, 48);
    assert!(parse("ycsb").is_ok(), "ycsb does not require --mix");
}

#[test]
fn names_of_workloads_are_parsed_and_listed() {
    let lengths = [Workload::RangeScan(1), Workload::RangeScan(10_000)];
    for workload in Workload::value_variants().iter().chain(&lengths) {
        assert_eq!(parse_ycsb(&format!("ycsb --workloads {}", workload.name())).workloads, [*workload]);
    }
    let earlier = parse_ycsb("ycsb --workloads delete-every-second --hot-share 0.25");
    assert_eq!(earlier.workloads, [Workload::DeleteHalf]);
    assert!((earlier.hot_fraction - 0.25).abs() < 1e-9);
    let help = parse("ycsb --help").unwrap_err();
    for name in ["range-overwrite", "cluster-overwrite", "delete-half", "queue", "range-scan-N"] {
        assert!(help.contains(&format!("- {name}:")), "{name} in {help}");
    }
}

#[test]
fn invalid_value_error_names_the_flag() {
    let cases = [
        ("ycsb --memory 5apples", "--memory"),
        ("ycsb --records 0", "--records"),
        ("ycsb --threads 0", "--threads"),
        ("ycsb --workloads load,z", "--workloads"),
        ("ycsb --seconds -3", "-3"),
        ("ycsb --ops 1 --seconds 1", "--seconds"),
        ("ycsb --reopen-each --plot p", "--plot"),
        ("ycsb --step 1", "--reopen-each"),
        ("ycsb --hot-fraction 1.5", "--hot-fraction"),
        ("ycsb --workloads load,range-scan-0", "range-scan-0"),
        ("ycsb --workloads load,range-scan-N", "range-scan-N"),
        ("ycsb --sequential-share 101", "--sequential-share"),
        ("ycsb --sequential-share 5 --ordered-load", "--ordered-load"),
        ("replay x --value-scale nan", "--value-scale"),
        ("device --file-bytes 1Q", "--file-bytes"),
    ];
    for (line, flag) in cases {
        let message = parse(line).unwrap_err();
        assert!(message.contains(flag), "{line}: {message}");
    }
}
