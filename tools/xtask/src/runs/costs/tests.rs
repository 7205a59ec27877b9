use super::{Cost, folder_of, is_within, table, ticks_of_children};

fn cost(target: &str, test: &str, seconds: f64) -> Cost {
    Cost { target: target.to_owned(), test: test.to_owned(), seconds }
}

#[test]
fn cpu_time_of_children_is_parsed_after_a_name_with_spaces() {
    let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 130 14 15 16 17";
    assert_eq!(ticks_of_children(stat), Some(144));
    assert_eq!(ticks_of_children("7 (a"), None);
}

#[test]
fn a_target_is_in_the_folder_of_its_package() {
    for target in ["tools/cli/tests/verbs", "tools/cli/src", "tools/cli/src/main", "tools/cli/examples/a"] {
        assert_eq!(folder_of(target), "tools/cli");
    }
}

#[test]
fn slow_tests_are_listed_first_and_limited() {
    let all = [cost("a/src", "short", 0.5), cost("b/src", "long", 2.0), cost("a/src", "longer", 9.0)];
    assert!(is_within(&all));
    let text = table(&all);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let expected = ["9.00  a/src longer", "2.00  b/src long", "", "9.50  a/src", "2.00  b/src"];
    assert_eq!(lines[..5], expected);
    assert!(lines[5].starts_with("11.50"));
    assert!(!is_within(&[cost("a/src", "too_long", 10.5)]));
}
