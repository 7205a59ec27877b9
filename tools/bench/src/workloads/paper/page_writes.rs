//! Cost of safe page updates (TreeLine §4.3; T5) on the device at hand: writing pages to free places, or
//! overwriting them in place after writing and syncing images of all of them.
//!
//! Both alternate, batch by batch, on the same file; both sync it, as an edit of the tree does. Pages of a
//! batch are written in ascending order, in one batch of requests, as by a tree.
//!
//! **Invariants**
//! - Both write the same number of the same pages. Free places are those released by earlier batches.

use std::{collections::VecDeque, path::Path, sync::Arc, time::Duration};

use serde::Serialize;
use testudo::{Error, Result};
use testudo_base::num::{u64_of, usize_of};
use testudo_env::{AlignedBuffer, Env, File, OpenMode, OpenOptions, SplitMix, WriteRequest};

use super::{Findings, experiment::Experiment};
use crate::{
    report::{
        line_chart::{Line, LineChart},
        size::{human_count, quotient},
    },
    workloads::ycsb::zipf::below,
};

const WAYS: [&str; 2] = ["free places", "in place after images"];
const BATCH_PAGES: [u64; 5] = [1, 8, 64, 512, 4096];
const PAGE: u64 = 4096;
/// The images are behind the pages.
const IMAGES_PAGES: u64 = 4096;

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Point {
    pages: u64,
    seconds: f64,
    written_bytes: u64,
}

#[derive(Serialize)]
struct Shown<'a> {
    way: &'a str,
    batch_pages: u64,
    #[serde(flatten)]
    point: Point,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let mut lines: Vec<Line> =
        WAYS.iter().map(|way| Line { name: (*way).to_owned(), points: Vec::new() }).collect();
    let pages: u64 = experiment.scaled(1 << 13, 1 << 16, 1 << 19);
    let time = Duration::from_secs_f64(experiment.scaled(0.02, 2.0, 20.0));
    let scratch = experiment.scratch()?;
    let bed = Bed::new(&*experiment.context().env, scratch.path(), pages)?;
    let mut map: Vec<u64> = (0..pages).collect();
    // The largest batch needs this many free places.
    let mut free: VecDeque<u64> = (pages..pages + IMAGES_PAGES).collect();
    let mut random = SplitMix::new(7);
    for batch in BATCH_PAGES.into_iter().filter(|batch| *batch <= pages / 8) {
        let mut points = [Point::default(); WAYS.len()];
        while points.iter().any(|point| point.seconds < time.as_secs_f64()) {
            experiment.check_stopped()?;
            let mut chosen: Vec<u64> = (0..batch).map(|_| below(&mut random, pages)).collect();
            chosen.sort_unstable();
            chosen.dedup();
            bed.to_free_places(&mut points[0], &chosen, &mut map, &mut free)?;
            bed.in_place(&mut points[1], &chosen, &map)?;
        }
        let rates = points.map(|point| quotient(point.pages as f64, point.seconds));
        for (way, (point, line)) in points.iter().zip(&mut lines).enumerate() {
            let shown = Shown { way: WAYS[way], batch_pages: batch, point: *point };
            experiment.result(&format!("{} batch={batch}", WAYS[way]), &shown)?;
            line.points.push((batch as f64, rates[way]));
        }
        let mut row = vec![batch.to_string()];
        row.extend(rates.iter().map(|rate| human_count(*rate)));
        row.push(format!("{:.2}", quotient(rates[0], rates[1])));
        findings.table.push(row);
    }
    findings.charts.push((
        "treeline-writes".to_owned(),
        LineChart {
            title: "Pages written and synced".to_owned(),
            x_name: "pages per batch".to_owned(),
            y_name: "pages/s".to_owned(),
            x_doubles: true,
            lines,
        },
    ));
    Ok(findings)
}

/// A file with pages, free places and space for images.
struct Bed<'e> {
    env: &'e dyn Env,
    file: Arc<dyn File>,
    images_at: u64,
    page: Vec<u8>,
}

impl<'e> Bed<'e> {
    fn new(env: &'e dyn Env, dir: &Path, pages: u64) -> Result<Self> {
        let path = dir.join("pages");
        let io = |error| Error::io(path.display().to_string(), error);
        let file = env.open(&path, OpenOptions { mode: OpenMode::CreateNew, direct: true }).map_err(io)?;
        let mut page = vec![0; usize_of(PAGE)];
        SplitMix::new(3).fill(&mut page);
        let bed = Self { env, file, images_at: pages + IMAGES_PAGES, page };
        // Every block is written once, so that the file system allocates no extents later.
        let all: Vec<u64> = (0..bed.images_at + IMAGES_PAGES).collect();
        for some in all.chunks(256) {
            bed.write(some)?;
        }
        bed.sync()?;
        Ok(bed)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|error| Error::io("pages", error))
    }

    /// Writes pages to ascending places in one batch, as the store does; neighbors are one write.
    fn write(&self, places: &[u64]) -> Result<()> {
        let mut buffer = AlignedBuffer::unfilled(places.len() * self.page.len());
        buffer.chunks_exact_mut(self.page.len()).for_each(|bytes| bytes.copy_from_slice(&self.page));
        let mut rest = &buffer[..];
        let mut writes = Vec::new();
        for adjacent in places.chunk_by(|a, b| a + 1 == *b) {
            let (bytes, others) = rest.split_at(adjacent.len() * self.page.len());
            writes.push(WriteRequest::new(adjacent[0] * PAGE, bytes));
            rest = others;
        }
        self.file.write_batch(&mut writes);
        writes.into_iter().try_for_each(|write| write.result).map_err(|error| Error::io("pages", error))
    }

    fn timed(
        &self,
        point: &mut Point,
        pages: usize,
        written: usize,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let began = self.env.monotonic();
        act()?;
        point.seconds += (self.env.monotonic() - began).as_secs_f64();
        point.pages += u64_of(pages);
        point.written_bytes += u64_of(written) * PAGE;
        Ok(())
    }

    fn to_free_places(
        &self,
        point: &mut Point,
        chosen: &[u64],
        map: &mut [u64],
        free: &mut VecDeque<u64>,
    ) -> Result<()> {
        // The places released first are used first.
        let mut places: Vec<u64> = free.drain(..chosen.len()).collect();
        places.sort_unstable();
        self.timed(point, chosen.len(), chosen.len(), || {
            self.write(&places)?;
            self.sync()
        })?;
        for (page, place) in chosen.iter().zip(places) {
            free.push_back(std::mem::replace(&mut map[usize_of(*page)], place));
        }
        Ok(())
    }

    fn in_place(&self, point: &mut Point, chosen: &[u64], map: &[u64]) -> Result<()> {
        let mut places: Vec<u64> = chosen.iter().map(|page| map[usize_of(*page)]).collect();
        places.sort_unstable();
        let images: Vec<u64> = (self.images_at..).take(places.len()).collect();
        self.timed(point, chosen.len(), chosen.len() * 2, || {
            self.write(&images)?;
            self.sync()?;
            self.write(&places)?;
            self.sync()
        })
    }
}

fn head() -> Vec<String> {
    let of_way = |way: &&str| format!("{way}, pages/s");
    let ways = WAYS.iter().map(of_way);
    ["pages per batch".to_owned()].into_iter().chain(ways).chain(["ratio".to_owned()]).collect()
}
