//! Share of pages in groups of several, and index entries saved by grouping (TreeLine fig. 9 and §5.4.2),
//! for key sets, by page goal and by the error bound of a line.
//!
//! **Invariants**
//! - No tree of a store uses this layout; no store is written.

use serde::Serialize;
use testudo_base::{Result, num::u64_of};
use testudo_bench::{Experiment, Findings, Line, LineChart, key_sets};

use crate::groups::{PageFill, PageGroup, Placed, cut_groups};

/// Per-record overhead on a page, and space for records on a page (TreeLine §3.2).
pub(crate) const SLOT_BYTES: u64 = 10;
pub(crate) const PAGE_ROOM_BYTES: u64 = 4096 - 89;

/// Goals and epsilons for one record size, in hundredths of a record. The first of each is the paper's; it is
/// fixed while the other one varies.
struct Shape {
    record_bytes: u64,
    goals: &'static [u64],
    epsilons: &'static [u64],
}

const SHAPES: [Shape; 2] = [
    Shape { record_bytes: 64, goals: &[4_400, 2_400, 3_400], epsilons: &[500, 100, 200, 300] },
    Shape { record_bytes: 1024, goals: &[200, 150, 250], epsilons: &[50, 10, 25] },
];

#[derive(Serialize)]
struct Point<'a> {
    keys: &'a str,
    record_bytes: u64,
    goal_bytes: u64,
    /// In records.
    goal: f64,
    epsilon: f64,
    records: u64,
    pages: u64,
    groups: u64,
    percent_of_pages_in_groups: f64,
    pages_per_index_entry: f64,
    /// Bytes of pages per byte of records.
    space: f64,
}

struct Record<'a> {
    key: &'a [u8],
    bytes: u64,
}

impl Placed for Record<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let head = ["keys", "record", "goal", "epsilon", "pages", "in groups", "pages / entry", "space"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let (mut by_epsilon, mut by_goal) = (Vec::new(), Vec::new());
    for set in key_sets(experiment)? {
        let mut keys = set.keys;
        keys.sort_unstable();
        keys.dedup();
        for Shape { record_bytes, goals, epsilons } in SHAPES {
            let settings = epsilons.iter().map(|epsilon| (goals[0], *epsilon));
            let settings = settings.chain(goals.iter().skip(1).map(|goal| (*goal, epsilons[0])));
            let mut points: Vec<Point<'_>> = settings
                .map(|(goal, epsilon)| measure(&set.name, &keys, record_bytes, (goal, epsilon)))
                .collect();
            for point in &points {
                let setting = format!("keys={} record={record_bytes}", point.keys);
                experiment.result(&setting, point)?;
                findings.table.push(row(point));
            }
            let name = || format!("{}, {record_bytes} B", set.name);
            let line = |points: &[Point<'_>], x: fn(&Point<'_>) -> f64| Line {
                name: name(),
                points: points.iter().map(|point| (x(point), point.percent_of_pages_in_groups)).collect(),
            };
            let by_epsilons = epsilons.len();
            points[..by_epsilons].sort_by(|a, b| a.epsilon.total_cmp(&b.epsilon));
            by_epsilon.push(line(&points[..by_epsilons], |point| point.epsilon / point.goal));
            let share = |point: &Point<'_>| point.percent_of_pages_in_groups;
            let rises = points[..by_epsilons].is_sorted_by(|a, b| share(a) <= share(b));
            // The first epsilon is the largest, so its point sorts last.
            let mut of_goals = points.split_off(by_epsilons - 1);
            of_goals.sort_by(|a, b| a.goal.total_cmp(&b.goal));
            let falls = of_goals.is_sorted_by(|a, b| share(a) >= share(b));
            findings.remarks.push(remark(&name(), rises, falls));
            by_goal.push(line(&of_goals, |point| point.goal_bytes as f64));
        }
    }
    let chart = |title: &str, x_name: &str, lines: Vec<Line>| LineChart {
        title: title.to_owned(),
        x_name: x_name.to_owned(),
        y_name: "% of pages in groups of several".to_owned(),
        x_doubles: false,
        lines,
    };
    let epsilon = chart("Pages in groups against epsilon", "epsilon / goal", by_epsilon);
    findings.charts.push(("treeline-groups-epsilon".to_owned(), epsilon));
    let goal = chart("Pages in groups against the goal", "goal, bytes", by_goal);
    findings.charts.push(("treeline-groups-goal".to_owned(), goal));
    Ok(findings)
}

/// Lays out the keys; `goal` and `epsilon` are in hundredths of a record.
fn measure<'a>(name: &'a str, keys: &[Vec<u8>], record_bytes: u64, (goal, epsilon): (u64, u64)) -> Point<'a> {
    let bytes = record_bytes + SLOT_BYTES;
    let fill = PageFill::new(bytes * goal / 100, bytes * epsilon / 100, PAGE_ROOM_BYTES);
    let records: Vec<Record<'_>> = keys.iter().map(|key| Record { key, bytes }).collect();
    let groups = cut_groups(&records, &fill);
    let pages_of = |groups: &mut dyn Iterator<Item = &PageGroup>| -> u64 {
        groups.map(|group| u64::from(group.pages())).sum()
    };
    let pages = pages_of(&mut groups.iter());
    let grouped = pages_of(&mut groups.iter().filter(|group| group.pages() > 1));
    Point {
        keys: name,
        record_bytes,
        goal_bytes: fill.goal_bytes,
        goal: goal as f64 / 100.0,
        epsilon: epsilon as f64 / 100.0,
        records: u64_of(keys.len()),
        pages,
        groups: u64_of(groups.len()),
        percent_of_pages_in_groups: grouped as f64 * 100.0 / pages.max(1) as f64,
        pages_per_index_entry: pages as f64 / u64_of(groups.len()).max(1) as f64,
        space: pages as f64 * 4096.0 / (u64_of(keys.len()) * record_bytes).max(1) as f64,
    }
}

fn row(point: &Point<'_>) -> Vec<String> {
    vec![
        point.keys.to_owned(),
        format!("{} B", point.record_bytes),
        format!("{:.1}", point.goal),
        format!("{:.2}", point.epsilon),
        point.pages.to_string(),
        format!("{:.1} %", point.percent_of_pages_in_groups),
        format!("{:.2}", point.pages_per_index_entry),
        format!("{:.2}", point.space),
    ]
}

fn remark(name: &str, rises: bool, falls: bool) -> String {
    let said = |is_so: bool| if is_so { "more" } else { "not always more" };
    format!("{name}: larger epsilon: {} pages in groups of several; lower goal: {}", said(rises), said(falls))
}
