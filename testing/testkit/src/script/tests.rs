use super::Script;
use crate::{Generator, Profile};

const EVERY_OP: &str = "\
create 0
drop 255
insert 0 user/1 7:100
remove 0 @
batch synced 0/a/b=1:10 1/%00%ff+9=- 0/@=2:0
batch buffered
get 0 k+65535
multi_get 0 a b @
scan 0 forward all 10
scan 0 backward prefix:%ff 1
scan 0 zigzag [a..b) 4294967295
scan 0 seek:m (a..*] 3
scan 0 moves:2,-3,=user/-,1,=@ all 9
scan 0 forward *..b] 3
scan 0 forward *..* 3
update 0 a set:1:2
update 0 a follow:1:2
update 0 a remove
swap 0 a right 3:4
swap 0 a wrong -
snapshot 1
snapshot_get 1 0 a
snapshot_scan 1 0 forward all 3
snapshot_check 1
snapshot_drop 1
persist
flush
compact_range 0 [a..b)
compact_range 1 prefix:user/
step 3
reopen
kill
crash 50 mix 99
crash 0 keep 1 nested 3 12
arm 17 100 zero 5
arm 17 90 garbage 5 nested 1
verify
";

#[test]
fn every_op_round_trips_through_text() {
    let text = EVERY_OP.replace("(a..*]", "(a..*");
    let script: Script = text.parse().unwrap();
    assert_eq!(script.to_string(), text);
    assert_eq!(script.0.len(), text.lines().count());
}

#[test]
fn generated_scripts_round_trip_through_text() {
    for seed in 0..20 {
        let script = Generator::new(&Profile::default(), seed).script(500);
        assert_eq!(script.to_string().parse(), Ok(script));
    }
}

#[test]
fn comments_and_empty_lines_are_skipped() {
    let script: Script = "# why\n\n  persist  # here\n".parse().unwrap();
    assert_eq!(script.to_string(), "persist\n");
}

#[test]
fn a_bad_line_is_named() {
    for line in ["jump", "get 0", "get x a", "persist now", "crash 50 half 1", "scan 0 forward a..b 1"] {
        let error = format!("persist\n{line}\n").parse::<Script>().unwrap_err();
        assert!(error.starts_with("line 2: "), "{line}: {error}");
    }
}
