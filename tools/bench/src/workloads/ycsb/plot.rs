//! Charts of a run as SVG: throughput as bars, latency percentiles as marks on a logarithmic scale.
//!
//! **Invariants**
//! - A chart is self-contained: no scripts, fonts or network access.

use std::{fmt::Write as _, io::Write as _, path::Path};

use testudo::{Error, Result};

use crate::report::{
    Report,
    output::create_file,
    size::{floor, human_count},
};

const COLUMN: f64 = 90.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;

/// Name, color and value of a percentile.
type Mark = (&'static str, &'static str, fn(&Report) -> f64);

/// Writes `throughput.svg` and `latency.svg` to `dir`; creates `dir` if it is missing.
pub(crate) fn write_charts(dir: &Path, reports: &[Report]) -> Result<()> {
    let name = || format!("--plot {}", dir.display());
    std::fs::create_dir_all(dir).map_err(|error| Error::io(name(), error))?;
    for (file, chart) in [("throughput.svg", throughput(reports)), ("latency.svg", latency(reports))] {
        let mut sink = create_file(&dir.join(file))?;
        sink.write_all(chart.as_bytes()).map_err(|error| Error::io(name(), error))?;
    }
    Ok(())
}

fn throughput(reports: &[Report]) -> String {
    let largest = reports.iter().map(|report| report.ops_per_second).fold(1.0, f64::max);
    let mut body = String::new();
    for (index, report) in reports.iter().enumerate() {
        let height = HEIGHT * report.ops_per_second / largest;
        let (x, y) = (column(index), TOP + HEIGHT - height);
        let width = COLUMN * 0.6;
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            "<rect x='{x:.1}' y='{y:.1}' width='{width}' height='{height:.1}' fill='#3b6ea5'/>"
        );
        body.push_str(&text(x + width / 2.0, y - 6.0, &human_count(report.ops_per_second)));
    }
    frame("Operations per second", reports, &body)
}

fn latency(reports: &[Report]) -> String {
    let marks: [Mark; 4] = [
        ("p50", "#3b6ea5", |report| report.latency_us.p50),
        ("p99", "#5a9e4b", |report| report.latency_us.p99),
        ("p99.9", "#d98c21", |report| report.latency_us.p999),
        ("max", "#b03a3a", |report| report.latency_us.max),
    ];
    let values = || reports.iter().flat_map(|report| marks.iter().map(|mark| mark.2(report).max(0.01)));
    let low = values().fold(f64::MAX, f64::min).min(1.0).log10().floor();
    let high = values().fold(10.0, f64::max).log10().ceil();
    let y_of = |value: f64| TOP + HEIGHT * (high - value.max(0.01).log10()) / (high - low);
    let mut body = String::new();
    let decades = floor(high - low);
    for decade in 0..=decades {
        let value = 10f64.powf(low + decade as f64);
        let (y, right) = (y_of(value), LEFT + COLUMN * reports.len() as f64);
        let _ = writeln!(body, "<line x1='{LEFT}' x2='{right}' y1='{y:.1}' y2='{y:.1}' stroke='#ddd'/>");
        body.push_str(&text(LEFT - 30.0, y + 4.0, &format!("{value} µs")));
    }
    for (index, report) in reports.iter().enumerate() {
        for (name, color, value) in &marks {
            let (x, y) = (column(index) + COLUMN * 0.3, y_of(value(report)));
            let value = value(report);
            let _ = writeln!(
                body,
                "<circle cx='{x:.1}' cy='{y:.1}' r='5' fill='{color}'><title>{name} {value:.1} \
                 µs</title></circle>"
            );
        }
    }
    for (index, (name, color, _)) in marks.iter().enumerate() {
        let (x, y) = (LEFT + 60.0 * index as f64, TOP + HEIGHT + 48.0);
        let _ = writeln!(body, "<circle cx='{x}' cy='{:.1}' r='5' fill='{color}'/>", y - 4.0);
        body.push_str(&text(x + 26.0, y, name));
    }
    frame("Latency (logarithmic)", reports, &body)
}

fn frame(title: &str, reports: &[Report], body: &str) -> String {
    let width = LEFT + COLUMN * reports.len().max(3) as f64 + 20.0;
    let height = TOP + HEIGHT + 70.0;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' font-family='sans-serif' \
         font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n"
    );
    svg.push_str(&text(width / 2.0, 20.0, title));
    svg.push_str(body);
    for (index, report) in reports.iter().enumerate() {
        svg.push_str(&text(column(index) + COLUMN * 0.3, TOP + HEIGHT + 20.0, &report.workload));
    }
    svg.push_str("</svg>\n");
    svg
}

fn column(index: usize) -> f64 {
    LEFT + COLUMN * (index as f64 + 0.2)
}

/// Returns centered text; the names used here need no escaping.
fn text(x: f64, y: f64, content: &str) -> String {
    format!("<text x='{x:.1}' y='{y:.1}' text-anchor='middle'>{content}</text>\n")
}

#[cfg(test)]
mod tests;
