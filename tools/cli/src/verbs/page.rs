//! `testudo page dump`: prints pages as stored in the data file.
//!
//! **Invariants**
//! - Damage is reported and skipped; exit code 1 means that there was damage.
//! - The length in a header is trusted only if the header names the right page.

use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use testudo_base::{
    PAGE_BYTES, PAGE_SIZE, StoreId,
    num::{u64_of, usize_of},
    planted,
};
use testudo_env::{AlignedBuffer, File, OpenMode, OpenOptions};
use testudo_run::{
    BlockContents, EnclosedContents, OverflowPage, PagePart, ReplacedPageRecord, inspect_block,
};
use testudo_storage::{
    DATA_FILE, PAGE_HEADER_BYTES, PageHeader, PageIdentity, PageKind, payload_of, verify_pages,
};

use crate::{
    context::{Console, Context},
    failure::{Failure, Missing, Outcome, Verdict},
    input::bytes_text::{escape, to_hex},
    raw_store::{RawArguments, find_store_id, operation_document, operation_line, shown},
};

/// Arguments of `testudo page`.
#[derive(Args, Debug)]
pub(crate) struct PageArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Prints header and entries of the block that begins at a page
    Dump {
        #[command(flatten)]
        raw: RawArguments,
        /// Page number, or `@` and an offset in the data file, as in messages: the page that contains the
        /// offset
        #[arg(value_parser = parse_page)]
        page: PageName,
        /// Number of pages to dump
        #[arg(long, default_value_t = 1)]
        count: u64,
    },
}

/// Page as named on the command line.
#[derive(Clone, Copy, Debug)]
struct PageName {
    page: u64,
    /// Typed offset, if any.
    offset: Option<u64>,
}

/// Parses a page such as `17` or `@69632`.
fn parse_page(text: &str) -> Result<PageName, String> {
    let number =
        |digits: &str| digits.parse::<u64>().map_err(|_| "not a page, nor an offset like @4096".to_owned());
    match text.strip_prefix('@') {
        None => Ok(PageName { page: number(text)?, offset: None }),
        Some(offset) => {
            let offset = number(offset)?;
            let page = if planted!("offset-names-first-page") { 0 } else { offset / PAGE_BYTES };
            Ok(PageName { page, offset: Some(offset) })
        }
    }
}

/// Runs the dump.
pub(crate) fn run(context: &mut Context, arguments: &PageArguments) -> Outcome {
    let Action::Dump { raw, page: PageName { page, offset }, count } = &arguments.action;
    let env = raw.enter(context)?;
    let store = find_store_id(&env, &raw.dir);
    let path = raw.dir.join(DATA_FILE);
    let failed = |error| Failure::about(path.display(), error);
    let options = OpenOptions { mode: OpenMode::Read, direct: true };
    let file = env.open(&path, options).map_err(failed)?;
    let pages = file.len().map_err(failed)? / PAGE_BYTES;
    if *page >= pages {
        let reason = format!("has {pages} pages; there is no page {page}");
        return Err(Failure::missing(Missing::Page, path.display(), reason));
    }
    if let Some(offset) = offset.filter(|offset| !context.json && !offset.is_multiple_of(PAGE_BYTES)) {
        let start = page * PAGE_BYTES;
        context.console.line(format_args!("offset {offset} is in page {page}, which begins at @{start}"))?;
    }
    let end = page.saturating_add(*count).min(pages);
    let mut dump =
        Dump { console: &mut context.console, json: context.json, file, pages, store, is_valid: true };
    let mut next = *page;
    while next < end {
        next += dump.block(next)?;
    }
    Ok(if dump.is_valid { Verdict::Fine } else { Verdict::Negative })
}

struct Dump<'a> {
    console: &'a mut Console,
    json: bool,
    file: Arc<dyn File>,
    /// Pages in the file.
    pages: u64,
    store: Option<StoreId>,
    is_valid: bool,
}

impl Dump<'_> {
    /// Prints the block that begins at page `page`; returns its number of pages.
    fn block(&mut self, page: u64) -> Result<u64, Failure> {
        let mut bytes = match self.read(page, 1) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.damaged(page, None, &format!("cannot be read: {error}"))?;
                return Ok(1);
            }
        };
        if bytes.iter().all(|&byte| byte == 0) {
            let document = json!({ "page": page, "offset": page * PAGE_BYTES, "empty": true });
            self.put(&document, &[format!("page {page}: zeros")])?;
            return Ok(1);
        }
        let Some((header, kind)) = PageHeader::read(&bytes).and_then(|header| Some((header, header.kind?)))
        else {
            self.damaged(page, None, "no header: damaged, or inside a longer block")?;
            return Ok(1);
        };
        if header.page != page {
            let why = format!("its header states page {}: damaged, or inside a longer block", header.page);
            self.damaged(page, Some(&header), &why)?;
            return Ok(1);
        }
        let length = u64_of(PAGE_HEADER_BYTES) + u64::from(header.payload_bytes);
        let block_pages = length.div_ceil(PAGE_BYTES);
        if block_pages > self.pages - page {
            self.damaged(page, Some(&header), "its length exceeds the file")?;
            return Ok(1);
        }
        if block_pages > 1 {
            match self.read(page, block_pages) {
                Ok(all) => bytes = all,
                Err(error) => {
                    self.damaged(page, Some(&header), &format!("cannot be read completely: {error}"))?;
                    return Ok(1);
                }
            }
        }
        let damage = self.store.and_then(|store| {
            let PageHeader { generation, keyspace, incarnation, .. } = header;
            let identity = PageIdentity { store, kind, page, generation, keyspace, incarnation };
            verify_pages(&bytes, &identity).err()
        });
        self.contents(&header, kind, &bytes, damage)?;
        // The length of an invalid block cannot be trusted.
        Ok(if damage.is_some() { 1 } else { block_pages })
    }

    fn contents(
        &mut self,
        header: &PageHeader,
        kind: PageKind,
        bytes: &[u8],
        damage: Option<&str>,
    ) -> Result<(), Failure> {
        let (contents, undecoded) = inspect_block(kind, payload_of(bytes));
        let mut lines = vec![format!(
            "page {}: {} block of {} pages, {} bytes, run {}, keyspace {}, incarnation …{:08x}",
            header.page,
            name_of(kind),
            bytes.len() / PAGE_SIZE,
            header.payload_bytes,
            header.generation,
            header.keyspace.0,
            header.incarnation,
        )];
        if self.store.is_none() {
            lines.push(
                "  neither superblock nor log state the store's id: the checksum is not verified".to_owned(),
            );
        }
        let why = damage.or(undecoded);
        if let Some(why) = why {
            self.is_valid = false;
            lines.push(format!("  damaged: {why}"));
        }
        let replaced = Some(kind).filter(|kind| *kind == PageKind::Replaced);
        let replaced = replaced.and_then(|_| ReplacedPageRecord::read(payload_of(bytes)).ok());
        if let Some(record) = &replaced {
            lines.push(format!(
                "  {} of page {} of run {}",
                shown_part(&record.part),
                record.page,
                record.run
            ));
        }
        let document = json!({
            "page": header.page, "offset": header.page * PAGE_BYTES, "kind": name_of(kind),
            "pages": bytes.len() / PAGE_SIZE, "payload_bytes": header.payload_bytes,
            "run": header.generation.0,
            "keyspace": header.keyspace.0, "incarnation": header.incarnation,
            "checksum_checked": self.store.is_some(), "damage": why,
            "replaced": replaced.as_ref().map(document_of_replaced),
            "contents": if self.json { document_of(&contents) } else { Value::Null },
        });
        if !self.json {
            add_lines(&mut lines, &contents);
        }
        self.put(&document, &lines)
    }

    fn damaged(&mut self, page: u64, header: Option<&PageHeader>, why: &str) -> Result<(), Failure> {
        self.is_valid = false;
        let header = header.map(|header| {
            json!({
                "page": header.page, "kind": header.kind_number, "payload_bytes": header.payload_bytes,
                "run": header.generation.0, "keyspace": header.keyspace.0,
            })
        });
        let document = json!({ "page": page, "offset": page * PAGE_BYTES, "damage": why, "header": header });
        self.put(&document, &[format!("page {page}: {why}")])
    }

    fn read(&self, page: u64, pages: u64) -> std::io::Result<AlignedBuffer> {
        let mut bytes = AlignedBuffer::zeroed(usize_of(pages * PAGE_BYTES));
        self.file.read_at(page * PAGE_BYTES, &mut bytes)?;
        Ok(bytes)
    }

    fn put(&mut self, document: &Value, lines: &[String]) -> Result<(), Failure> {
        if self.json {
            return self.console.json(document);
        }
        lines.iter().try_for_each(|line| self.console.line(format_args!("{line}")))
    }
}

fn name_of(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Data => "data",
        PageKind::Index => "index",
        PageKind::Filter => "filter",
        PageKind::Footer => "footer",
        PageKind::Replaced => "replaced data",
        PageKind::Map => "map",
    }
}

/// Names the entries of a page that a replaced page holds.
fn shown_part(part: &PagePart) -> String {
    match part {
        PagePart::All => "all entries".to_owned(),
        PagePart::BeforeBorder => "the entries before a border".to_owned(),
        PagePart::Overflow => "the entries from a border on".to_owned(),
        PagePart::Section { low, high } => {
            let end = |border: &Option<Box<[u8]>>| border.as_ref().map_or("…".to_owned(), |key| shown(key));
            format!("the entries from {} to {}", end(low), end(high))
        }
    }
}

fn document_of_replaced(record: &ReplacedPageRecord) -> Value {
    let (low, high) = match &record.part {
        PagePart::Section { low, high } => (low.as_deref(), high.as_deref()),
        PagePart::All | PagePart::BeforeBorder | PagePart::Overflow => (None, None),
    };
    json!({
        "run": record.run.0, "page": record.page, "newest_seqno": record.newest_seqno.0,
        "low_hex": low.map(to_hex), "high_hex": high.map(to_hex),
    })
}

fn add_lines(lines: &mut Vec<String>, contents: &BlockContents) {
    let places = |blocks: &[(Vec<u8>, u32, u32)]| -> Vec<String> {
        let line = |(key, page, pages): &(Vec<u8>, u32, u32)| {
            format!("  from {}: {pages} pages from page {page} of the run", shown(key))
        };
        blocks.iter().map(line).collect()
    };
    match contents {
        BlockContents::Entries(entries, continued_bytes) => {
            lines.extend(entries.iter().map(|entry| format!("  {}", operation_line(&entry.as_entry()))));
            if *continued_bytes > 0 {
                lines.push(format!("  {continued_bytes} more bytes of the last value are on the next page"));
            }
        }
        BlockContents::Index(blocks) => lines.extend(places(blocks)),
        BlockContents::Filter(bytes) => lines.push(format!("  a partition of the filter, {bytes} bytes")),
        BlockContents::Footer(record, blocks, enclosed) => {
            let reference = &record.reference;
            // Only the beginning of a long key is stored.
            let end = |key: &[u8], is_cut: bool| format!("{}{}", shown(key), if is_cut { "…" } else { "" });
            lines.push(format!(
                "  run {} of keyspace {} in store {:032x}: {} entries, {} of them removals, newest seqno \
                 {}, keys {} to {}",
                reference.id,
                escape(record.keyspace_name.as_bytes()),
                record.store.0,
                reference.entries,
                reference.tombstones,
                reference.newest_seqno.0,
                end(reference.keys.first(), reference.keys.first_is_cut()),
                end(reference.keys.last(), reference.keys.last_is_cut()),
            ));
            match enclosed {
                None => lines.extend(places(blocks)),
                Some(EnclosedContents { blocks, filter_bytes }) => {
                    lines.push(format!("  contains index and filter, {filter_bytes} bytes of filter"));
                    lines.extend(places(blocks));
                }
            }
        }
        BlockContents::Map(map) => {
            let replaced = &map.replaced;
            lines.push(format!(
                "  map of run {}: {} replaced pages, {} overflow pages, newest seqno {}",
                map.run,
                replaced.page_count(),
                replaced.overflow().len(),
                map.newest_seqno.0,
            ));
            lines
                .extend(replaced.pages().map(|(page, place)| format!("  page {page} in place {}", place.at)));
            lines.extend(replaced.overflow().iter().map(|overflow| {
                let OverflowPage { of, border, place } = overflow;
                format!("  overflow of page {of} from {} in place {}", shown(border), place.at)
            }));
        }
        BlockContents::Nothing => {}
    }
}

fn document_of(contents: &BlockContents) -> Value {
    let places = |blocks: &[(Vec<u8>, u32, u32)]| -> Vec<Value> {
        let place = |(key, page, pages): &(Vec<u8>, u32, u32)| {
            let separator = to_hex(key);
            json!({ "separator_hex": separator, "page": page, "pages": pages })
        };
        blocks.iter().map(place).collect()
    };
    match contents {
        BlockContents::Entries(entries, continued_bytes) => {
            let document =
                |entry: &testudo_base::OwnedEntry| Value::Object(operation_document(&entry.as_entry()));
            let entries: Vec<Value> = entries.iter().map(document).collect();
            json!({ "entries": entries, "last_value_bytes_in_next_page": continued_bytes })
        }
        BlockContents::Index(blocks) => json!({ "blocks": places(blocks) }),
        BlockContents::Filter(bytes) => json!({ "filter_bytes": bytes }),
        BlockContents::Footer(record, blocks, enclosed) => {
            let reference = &record.reference;
            let enclosed = enclosed.as_ref().map(|EnclosedContents { blocks, filter_bytes }| {
                json!({ "blocks": places(blocks), "filter_bytes": filter_bytes })
            });
            let spans: Vec<Value> = reference
                .spans
                .iter()
                .map(|span| json!({ "first_page": span.first_page, "pages": span.page_count }))
                .collect();
            json!({
                "store_id": format!("{:032x}", record.store.0), "keyspace_name": record.keyspace_name,
                "run": reference.id.0, "newest_seqno": reference.newest_seqno.0, "entries": reference.entries,
                "tombstones": reference.tombstones, "spans": spans,
                "first_key_hex": to_hex(reference.keys.first()),
                "first_key_is_cut": reference.keys.first_is_cut(),
                "last_key_hex": to_hex(reference.keys.last()),
                "last_key_is_cut": reference.keys.last_is_cut(),
                "index_blocks": places(blocks), "enclosed": enclosed,
            })
        }
        BlockContents::Map(map) => {
            let pages = map.replaced.pages();
            let pages: Vec<Value> =
                pages.map(|(page, place)| json!({ "page": page, "place": place.at })).collect();
            let overflow = map.replaced.overflow().iter();
            let overflow: Vec<Value> = overflow
                .map(|overflow| {
                    let border = to_hex(&overflow.border);
                    json!({ "page": overflow.of, "border_hex": border, "place": overflow.place.at })
                })
                .collect();
            json!({
                "run": map.run.0, "newest_seqno": map.newest_seqno.0, "replaced_pages": pages,
                "overflow_pages": overflow,
            })
        }
        BlockContents::Nothing => Value::Null,
    }
}
