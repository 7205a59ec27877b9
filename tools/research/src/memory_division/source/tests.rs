use super::*;

const RECORDS: u64 = 33_000;

fn draw(source: Source) -> Vec<Access> {
    Accesses::new(source, RECORDS, 1).take(20_000).collect()
}

fn sources() -> [Source; 8] {
    let zipf = Zipf::new(RECORDS);
    [
        Source::Scattered(zipf),
        Source::Clustered(zipf),
        Source::Range { count: RECORDS / 20 },
        Source::Latest { zipf, inserted: RECORDS / 2 },
        Source::Uniform,
        Source::Scans(zipf),
        Source::Mixed(Box::new([Source::Uniform, Source::Scans(zipf)])),
        Source::Mixgraph(mixgraph_shares()),
    ]
}

#[test]
fn accesses_are_deterministic_and_in_range() {
    for source in sources() {
        let accesses = draw(source.clone());
        assert_eq!(accesses, draw(source.clone()));
        for access in accesses {
            let (Access::Read(record) | Access::Write(record) | Access::Scan { first: record, .. }) = access;
            assert!(record < RECORDS, "{source:?}");
        }
    }
}

#[test]
fn hot_range_gets_its_share_of_reads() {
    let hot = RECORDS / 3..RECORDS / 3 + RECORDS / 20;
    let reads = draw(Source::Range { count: RECORDS / 20 });
    let inside = reads.iter().filter(|access| matches!(access, Access::Read(record) if hot.contains(record)));
    let share = inside.count() as f64 / reads.len() as f64;
    assert!((share - 0.981).abs() < 0.005, "{share}");
}

#[test]
fn latest_reads_only_inserted_records() {
    let (zipf, inserted) = (Zipf::new(RECORDS), RECORDS / 2);
    let mut known: std::collections::HashSet<u64> =
        (0..=inserted).map(|number| scatter(number, stride_of(RECORDS), RECORDS)).collect();
    let mut inserts = 0;
    for access in draw(Source::Latest { zipf, inserted }) {
        match access {
            Access::Write(record) => {
                inserts += 1;
                assert!(known.insert(record), "inserts must be new records");
            }
            Access::Read(record) => assert!(known.contains(&record)),
            Access::Scan { .. } => panic!("unexpected scan"),
        }
    }
    assert!((900..1_100).contains(&inserts), "{inserts}");
}

#[test]
fn mixgraph_has_its_hottest_range_and_mix() {
    let accesses = draw(Source::Mixgraph(mixgraph_shares()));
    let share = |is_one: &dyn Fn(&Access) -> bool| {
        accesses.iter().filter(|access| is_one(access)).count() as f64 / accesses.len() as f64
    };
    assert!((share(&|access| matches!(access, Access::Read(_))) - 0.83).abs() < 0.01);
    assert!((share(&|access| matches!(access, Access::Scan { .. })) - 0.03).abs() < 0.01);
    let hottest = share(&|access| {
        let (Access::Read(record) | Access::Write(record) | Access::Scan { first: record, .. }) = access;
        *record < RECORDS / RANGES
    });
    assert!((hottest - 0.791).abs() < 0.01, "{hottest}");
}

#[test]
fn trace_keys_are_numbered_in_key_order_and_repeat() {
    let keys = [&b"c"[..], b"a", b"c", b"b"].map(<[u8]>::to_vec);
    let records = records_of(&keys);
    assert_eq!((&records[..], count_of(&records)), (&[2, 0, 2, 1][..], 3));
    let reads: Vec<Access> = Accesses::new(Source::Trace { records, next: 0 }, 3, 1).take(5).collect();
    assert_eq!(reads, [2, 0, 2, 1, 2].map(Access::Read));
}
