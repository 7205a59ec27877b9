//! The causes of delays of writers, as statistics report them.

use std::path::Path;

use testudo_env::MemEnv;
use testudo_options::KeyspaceOptions;
use testudo_store::commits::delays::StallCause;

use crate::Db;

#[test]
fn a_delay_names_its_cause_and_its_keyspace() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(4 << 20).open().unwrap();
    let [behind, other] =
        ["behind", "other"].map(|name| db.keyspace(name, KeyspaceOptions::default()).unwrap());
    for number in 0..1_000_u32 {
        behind.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    let before = db.stats().stalls;
    // The writer writes full buffers of the log itself.
    assert_eq!((before.max_cause, before.throttled_micros), (StallCause::Log, before.by_log_micros));
    // Jobs of a minute, as far as writers know.
    db.store().backpressure.behind.set(behind.core.id, (60 << 20, 0), Vec::new(), 1_000_000);
    for number in 0..20_u32 {
        behind.insert(number.to_be_bytes(), [8; 1_000]).unwrap();
        other.insert(number.to_be_bytes(), [8; 1_000]).unwrap();
    }
    let stalls = db.stats().stalls;
    assert!(stalls.by_jobs_micros > 0 && stalls.max_micros > 0, "{stalls:?}");
    assert_eq!(stalls.max_cause, StallCause::Jobs);
    assert_eq!(stalls.throttled_micros, stalls.by_jobs_micros + stalls.by_log_micros);
    let delayed = [&behind, &other].map(|keyspace| keyspace.stats().memtables.delayed_micros);
    assert_eq!(delayed, [stalls.by_jobs_micros, 0]);
}
