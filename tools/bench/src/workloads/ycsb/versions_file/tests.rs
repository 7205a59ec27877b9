use super::{NAME, read, write};
use crate::workloads::ycsb::oracle::Oracle;

#[test]
fn versions_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(NAME);
    for records in [0, 1, 16, 17, 1_100_000] {
        let oracle = Oracle::new(records);
        for record in (0..records).step_by(7) {
            oracle.assume_version(record, (record % 16) as u8);
        }
        write(&file, 12, &oracle).unwrap();
        let again = Oracle::new(0);
        assert_eq!(read(&file, &again).unwrap(), 12);
        assert_eq!((again.acknowledged(), again.reserved()), (records, records));
        assert!((0..records).all(|record| again.version(record) == oracle.version(record)));
    }
}

#[test]
fn truncated_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(NAME);
    write(&file, 100, &Oracle::new(100)).unwrap();
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert!(read(&file, &Oracle::new(0)).unwrap_err().to_string().contains(NAME));
}
