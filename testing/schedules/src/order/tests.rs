use super::{Step, explain};

fn write(key: usize, value: u32) -> Step {
    Step { writes: vec![(key, value)], ..Step::default() }
}

fn read(cells: &[(usize, u32)]) -> Step {
    Step { expects: cells.to_vec(), ..Step::default() }
}

#[test]
fn an_order_is_found_for_any_order_of_the_list() {
    let steps = [read(&[(0, 2), (1, 0)]), write(1, 3), write(0, 2), read(&[(0, 2), (1, 3)])];
    assert_eq!(explain(&steps, vec![0, 0]), Ok(()));
}

#[test]
fn reads_that_need_opposite_orders_have_no_explanation() {
    let steps = [write(0, 1), write(1, 1), read(&[(0, 1), (1, 0)]), read(&[(0, 0), (1, 1)])];
    assert!(explain(&steps, vec![0, 0]).is_err());
}

#[test]
fn required_predecessors_come_first() {
    let late = Step { follows: 1, ..read(&[(0, 0)]) };
    assert!(explain(&[write(0, 1), late], vec![0]).is_err());
    assert_eq!(explain(&[write(0, 1), read(&[(0, 0)])], vec![0]), Ok(()));
}

#[test]
fn an_optional_step_is_taken_or_skipped_as_needed() {
    let open = Step { is_optional: true, ..write(0, 1) };
    assert_eq!(explain(&[open.clone(), read(&[(0, 0)])], vec![0]), Ok(()));
    assert_eq!(explain(&[open.clone(), read(&[(0, 1)])], vec![0]), Ok(()));
    assert!(explain(&[open, read(&[(0, 2)])], vec![0]).is_err());
}

#[test]
fn twelve_concurrent_writes_are_explained_quickly() {
    let with_last_read = |value: u32| {
        let mut steps: Vec<Step> = (0..12).map(|value| write(0, value + 1)).collect();
        steps.push(Step { follows: (1 << 12) - 1, ..read(&[(0, value)]) });
        explain(&steps, vec![0])
    };
    assert_eq!(with_last_read(3), Ok(()));
    assert!(with_last_read(99).is_err());
}
