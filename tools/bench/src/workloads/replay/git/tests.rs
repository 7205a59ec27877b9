use std::io::Cursor;

use super::GitTrace;
use crate::workloads::replay::trace::Operation;

fn read(text: &'static [u8]) -> Result<Vec<Vec<Operation>>, String> {
    let mut trace = GitTrace::new(Box::new(Cursor::new(text)), "test".to_owned());
    let mut batches = Vec::new();
    loop {
        let mut batch = Vec::new();
        match trace.next_batch(&mut batch) {
            Ok(true) => batches.push(batch),
            Ok(false) => return Ok(batches),
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[test]
fn batches_keep_operations_and_keys_keep_spaces() {
    let batches = read(b"B 1163758366 2\nP 182 a/b/Make file\nD a/\xff\xc3\nB 0 0\nB 5 1\nP 0 x").unwrap();
    let expected = [
        vec![
            Operation::Put { key: b"a/b/Make file".to_vec(), bytes: 182 },
            Operation::Delete { key: b"a/\xff\xc3".to_vec() },
        ],
        vec![],
        vec![Operation::Put { key: b"x".to_vec(), bytes: 0 }],
    ];
    assert_eq!(batches, expected);
}

#[test]
fn invalid_lines_are_reported_by_number() {
    for (text, line) in [
        (b"P 1 x\n" as &[u8], "line 1"),
        (b"B 1 1\nQ 1 x\n", "line 2"),
        (b"B 1 1\nP many x\n", "line 2"),
        (b"B 1 2\nP 1 x\n", "line 3"),
        (b"B 1 2 3\n", "line 1"),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.contains(line), "{message}");
    }
}
