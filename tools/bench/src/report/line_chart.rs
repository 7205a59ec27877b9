//! Line charts as SVG: a measurement as a function of a parameter.
//!
//! **Invariants**
//! - A chart is self-contained: no scripts, fonts or network access.
//! - Points that are not finite are omitted.

use std::{fmt::Write as _, io::Write as _, path::Path};

use testudo::{Error, Result};

use crate::report::output::create_file;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;
const COLORS: [&str; 8] =
    ["#3b6ea5", "#b03a3a", "#5a9e4b", "#d98c21", "#7a4ba0", "#2b9c9c", "#8c6239", "#555555"];

/// A named line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// In drawing order.
    pub points: Vec<(f64, f64)>,
}

/// Contents of a chart.
#[derive(Clone, Debug, Default)]
pub struct LineChart {
    /// Text above the chart.
    pub title: String,
    /// Label of the horizontal axis.
    pub x_name: String,
    /// Label of the vertical axis.
    pub y_name: String,
    /// Whether the horizontal axis is logarithmic, to base 2.
    pub x_doubles: bool,
    /// Lines, in the order of the legend.
    pub lines: Vec<Line>,
}

impl LineChart {
    /// Writes the chart as `dir/name.svg`; creates `dir` if it is missing.
    pub(crate) fn write(&self, dir: &Path, name: &str) -> Result<()> {
        let shown = || format!("--plot {}", dir.display());
        std::fs::create_dir_all(dir).map_err(|error| Error::io(shown(), error))?;
        let mut sink = create_file(&dir.join(format!("{name}.svg")))?;
        sink.write_all(self.svg().as_bytes()).map_err(|error| Error::io(shown(), error))
    }

    fn place_x(&self, x: f64) -> f64 {
        if self.x_doubles { x.max(f64::MIN_POSITIVE).log2() } else { x }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let all = self.lines.iter().flat_map(|line| line.points.iter().copied());
        all.filter(|(x, y)| x.is_finite() && y.is_finite())
    }

    fn svg(&self) -> String {
        let places = || self.points().map(|(x, _)| self.place_x(x));
        let low = places().fold(f64::MAX, f64::min).min(f64::MAX);
        let span = (places().fold(f64::MIN, f64::max) - low).max(f64::MIN_POSITIVE);
        let top = self.points().map(|(_, y)| y).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
        let x_of = |x: f64| LEFT + (WIDTH - LEFT - RIGHT) * (self.place_x(x) - low) / span;
        let y_of = |y: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - y / top);
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' \
             font-family='sans-serif' \
             font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n"
        );
        svg.push_str(&text(LEFT + (WIDTH - LEFT - RIGHT) / 2.0, 20.0, "middle", &self.title));
        svg.push_str(&text(LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 14.0, "middle", &self.x_name));
        svg.push_str(&text(8.0, TOP - 12.0, "start", &self.y_name));
        for step in 0..=4u8 {
            let value = top * f64::from(step) / 4.0;
            let (y, right) = (y_of(value), WIDTH - RIGHT);
            // Writing to a string cannot fail.
            let _ = writeln!(svg, "<line x1='{LEFT}' x2='{right}' y1='{y:.1}' y2='{y:.1}' stroke='#ddd'/>");
            svg.push_str(&text(LEFT - 6.0, y + 4.0, "end", &short(value)));
        }
        let mut marks: Vec<f64> = self.points().map(|(x, _)| x).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        for mark in marks {
            svg.push_str(&text(x_of(mark), HEIGHT - BOTTOM + 18.0, "middle", &short(mark)));
        }
        for (index, line) in self.lines.iter().enumerate() {
            self.draw(&mut svg, index, line, (&x_of, &y_of));
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(
        &self,
        svg: &mut String,
        index: usize,
        line: &Line,
        (x_of, y_of): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
    ) {
        let color = COLORS[index % COLORS.len()];
        let mut way = String::new();
        for (x, y) in line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
            let (px, py) = (x_of(*x), y_of(*y));
            let _ = write!(way, "{px:.1},{py:.1} ");
            let _ = writeln!(
                svg,
                "<circle cx='{px:.1}' cy='{py:.1}' r='4' fill='{color}'><title>{}: {} → \
                 {}</title></circle>",
                escaped(&line.name),
                short(*x),
                short(*y)
            );
        }
        let _ = writeln!(svg, "<polyline points='{way}' fill='none' stroke='{color}' stroke-width='2'/>");
        let y = TOP + 18.0 * index as f64;
        let _ = writeln!(
            svg,
            "<rect x='{}' y='{:.1}' width='12' height='4' fill='{color}'/>",
            WIDTH - RIGHT + 12.0,
            y - 5.0
        );
        svg.push_str(&text(WIDTH - RIGHT + 30.0, y, "start", &line.name));
    }
}

/// Formats a number in few characters.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.1}M", value / 1e6),
        size if size >= 1e4 => format!("{:.0}k", value / 1e3),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    format!("<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{}</text>\n", escaped(content))
}

fn escaped(content: &str) -> String {
    content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
