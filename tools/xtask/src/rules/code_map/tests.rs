use super::{CODE_MAP, check, code_map};
use crate::checkout::sources::Source;

fn sources() -> Vec<Source> {
    vec![
        Source::new("engine/db/Cargo.toml", "[package]\nname = \"testudo-db\"\ndescription = \"Handles.\"\n"),
        Source::new("engine/db/src/lib.rs", "//! The handles. And more.\n"),
        Source::new("substrate/wal/Cargo.toml", "[package]\nname = \"testudo-wal\"\n"),
        Source::new("substrate/wal/src/lib.rs", "#![x]\n//! The\n//! log.\n//!\n//! More.\n"),
        Source::new("substrate/wal/src/lib/tests.rs", "//! Left out.\n"),
    ]
}

#[test]
fn low_crates_come_first_and_each_file_has_its_first_sentence() {
    let map = code_map(&sources());
    let end = map.find("## substrate/wal").expect("the log");
    assert_eq!(
        map[end..],
        *"## substrate/wal\n\n\n\n- `lib.rs`: The log\n\n\
          ## engine/db\n\nHandles.\n\n- `lib.rs`: The handles\n"
    );
}

#[test]
fn a_map_that_differs_is_a_finding() {
    let mut sources = sources();
    assert!(check(&sources).is_some());
    let map = code_map(&sources);
    sources.push(Source::new(CODE_MAP, &map));
    assert!(check(&sources).is_none());
    sources[1].text = "//! Other.\n".to_owned();
    assert!(check(&sources).is_some_and(|finding| finding.message.contains("codemap")));
}
