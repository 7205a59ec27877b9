use std::io::Cursor;

use super::BlockTrace;
use crate::workloads::replay::trace::Operation;

fn request(bytes: u32, op: u8, block: u64) -> Vec<u8> {
    let mut record = 77u64.to_be_bytes().to_vec();
    record.extend(bytes.to_be_bytes());
    record.push(op);
    record.extend(block.to_be_bytes());
    record
}

#[test]
fn requests_parse_as_block_reads_and_writes() {
    let bytes = [request(4096, 1, 258), request(512, 0, 258)].concat();
    let mut trace = BlockTrace::requests(Box::new(Cursor::new(bytes)), "test".to_owned());
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch).unwrap() {}
    let key = vec![0, 0, 0, 0, 0, 0, 1, 2];
    assert_eq!(batch, [Operation::Put { key: key.clone(), bytes: 4096 }, Operation::Get { key }]);
}

#[test]
fn bare_block_numbers_are_fetches() {
    let mut trace = BlockTrace::accesses(Box::new(Cursor::new(vec![0, 0, 1, 2])), "test".to_owned());
    let mut batch = Vec::new();
    assert!(trace.next_batch(&mut batch).unwrap());
    assert!(!trace.next_batch(&mut batch).unwrap());
    assert_eq!(batch, [Operation::Fetch { key: vec![0, 0, 0, 0, 0, 0, 1, 2], bytes: 4096 }]);
}

#[test]
fn truncated_or_unknown_record_is_an_error() {
    let mut short = request(1, 1, 1);
    short.pop();
    for bytes in [short, request(1, 2, 1)] {
        let mut trace = BlockTrace::requests(Box::new(Cursor::new(bytes)), "test".to_owned());
        let error = trace.next_batch(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("record 0"), "{error}");
    }
}
