//! `testudo wal dump`: prints the log as stored in the files.
//!
//! **Invariants**
//! - Damage is reported and skipped; exit code 1 means that there was damage.

use clap::{Args, Subcommand};
use serde_json::json;
use testudo::inspect_commit;
use testudo_wal::{
    HeaderContents, RecordHeader, RecordKind, SegmentSection, inspect_segment, inspect_segment_header,
    list_segments, segment_file_name,
};

use crate::{
    context::{Console, Context},
    failure::{Failure, Outcome, Verdict},
    raw_store::{RawArguments, operation_document, operation_line},
};

/// Arguments of `testudo wal`.
#[derive(Args, Debug)]
pub(crate) struct WalArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Prints every record of every segment, with its operations
    Dump(RawArguments),
}

/// Runs the dump.
pub(crate) fn run(context: &mut Context, arguments: &WalArguments) -> Outcome {
    let Action::Dump(arguments) = &arguments.action;
    let env = arguments.enter(context)?;
    let segments = list_segments(&*env, &arguments.dir).map_err(|error| arguments.failure(&error))?;
    let mut dump = Dump {
        console: &mut context.console,
        json: context.json,
        name: String::new(),
        is_valid: true,
        outcome: Ok(()),
    };
    for number in segments {
        dump.name = segment_file_name(number);
        match inspect_segment_header(&*env, &arguments.dir, number) {
            Ok(header) => dump.header(&header),
            Err(error) => dump.damage(0, 0, &format!("cannot be read: {error}")),
        }
        if let Err(error) =
            inspect_segment(&*env, &arguments.dir, number, &mut |section| dump.section(&section))
        {
            dump.damage(0, 0, &format!("cannot be read to its end: {error}"));
        }
    }
    let is_valid = dump.is_valid;
    dump.outcome?;
    Ok(if is_valid { Verdict::Fine } else { Verdict::Negative })
}

struct Dump<'a> {
    console: &'a mut Console,
    json: bool,
    /// File name of the segment.
    name: String,
    is_valid: bool,
    /// First failed write; nothing is written after it.
    outcome: Result<(), Failure>,
}

impl Dump<'_> {
    fn put(&mut self, document: &serde_json::Value, lines: &[String]) {
        if self.outcome.is_err() {
            return;
        }
        self.outcome = if self.json {
            self.console.json(document)
        } else {
            lines.iter().try_for_each(|line| self.console.line(format_args!("{line}")))
        };
    }

    fn header(&mut self, header: &HeaderContents) {
        let name = self.name.clone();
        match header {
            HeaderContents::Header(header) => self.put(
                &json!({
                    "file": name, "store_id": format!("{:032x}", header.store_id.0), "number": header.number,
                    "incarnation": format!("{:016x}", header.incarnation.0),
                    "first_seqno": header.first_seqno.0,
                    "durable_seqno": header.durable_seqno.0, "recovered_seqno": header.recovered_seqno.0,
                    "bytes": header.segment_bytes, "manifest_edit": header.newest_edit,
                }),
                &[format!(
                    "{name}: segment {} of store {:032x}, incarnation {:016x}, first seqno {}, durable {}, \
                     recovered {}, {} bytes, manifest edit {}",
                    header.number,
                    header.store_id.0,
                    header.incarnation.0,
                    header.first_seqno.0,
                    header.durable_seqno.0,
                    header.recovered_seqno.0,
                    header.segment_bytes,
                    header.newest_edit,
                )],
            ),
            HeaderContents::Empty => {
                self.put(&json!({ "file": name, "empty": true }), &[format!("{name}: preallocated, empty")]);
            }
            HeaderContents::Damaged(why) => self.damage(0, 0, &format!("the header is damaged: {why}")),
        }
    }

    fn damage(&mut self, offset: u64, bytes: u64, why: &str) {
        self.is_valid = false;
        let line = format!("{} at offset {offset}: damaged: {why}", self.name);
        self.put(&json!({ "file": self.name, "offset": offset, "bytes": bytes, "damage": why }), &[line]);
    }

    fn section(&mut self, section: &SegmentSection<'_>) {
        match section {
            SegmentSection::Damage { offset, bytes } => {
                self.damage(*offset, *bytes, &format!("{bytes} bytes without a readable record"));
            }
            SegmentSection::Record { offset, header, payload: None } => {
                let why = format!("seqno {}: the payload's checksum does not match", header.first_seqno.0);
                self.damage(*offset, u64::from(header.payload_bytes), &why);
            }
            SegmentSection::Record { offset, header, payload: Some(payload) } => {
                self.record(*offset, header, payload);
            }
        }
    }

    fn record(&mut self, offset: u64, header: &RecordHeader, payload: &[u8]) {
        let kind = match header.kind {
            RecordKind::Commit => "commit",
            other => return self.mark(offset, header, &format!("{other:?}").to_lowercase()),
        };
        let (operations, damage) = inspect_commit(payload);
        let first = header.first_seqno.0;
        let mut lines = vec![format!(
            "{} at offset {offset}: {kind} of seqno {first}, {} operations, {} bytes, durable {}",
            self.name, header.seqno_count, header.payload_bytes, header.durable_seqno.0,
        )];
        let mut documents = Vec::new();
        for operation in &operations {
            let entry = operation.entry.as_entry();
            if self.json {
                let mut document = operation_document(&entry);
                document.insert("keyspace".to_owned(), json!(operation.keyspace.0));
                documents.push(document);
            } else {
                lines.push(format!("  keyspace {}: {}", operation.keyspace.0, operation_line(&entry)));
            }
        }
        let document = json!({
            "file": self.name, "offset": offset, "kind": kind, "first_seqno": first,
            "seqno_count": header.seqno_count, "durable_seqno": header.durable_seqno.0,
            "payload_bytes": header.payload_bytes, "operations": documents,
        });
        self.put(&document, &lines);
        if let Some(why) = damage {
            self.damage(offset, u64::from(header.payload_bytes), why);
        }
    }

    fn mark(&mut self, offset: u64, header: &RecordHeader, kind: &str) {
        let document = json!({
            "file": self.name, "offset": offset, "kind": kind, "first_seqno": header.first_seqno.0,
            "seqno_count": header.seqno_count, "durable_seqno": header.durable_seqno.0,
        });
        let line = format!(
            "{} at offset {offset}: {kind}, seqno {}, {} seqnos, durable {}",
            self.name, header.first_seqno.0, header.seqno_count, header.durable_seqno.0,
        );
        self.put(&document, &[line]);
    }
}
