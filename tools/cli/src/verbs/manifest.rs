//! `testudo manifest dump`: prints superblock and manifests as stored in the files.
//!
//! **Invariants**
//! - Damage is reported and skipped; exit code 1 means that there was damage.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use testudo_base::StoreId;
use testudo_env::Env;
use testudo_storage::{
    Change, ManifestSection, SUPERBLOCK_FILE, SlotContents, inspect_manifest, inspect_superblock,
    list_manifests, manifest_file_name, read_file,
};

use crate::{
    context::{Console, Context},
    failure::{Failure, Outcome, Verdict},
    input::bytes_text::{escape, to_hex},
    raw_store::{RawArguments, find_store_id},
};

/// Arguments of `testudo manifest`.
#[derive(Args, Debug)]
pub(crate) struct ManifestArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Prints both slots of the superblock and every edit of every manifest
    Dump(RawArguments),
}

/// Runs the dump.
pub(crate) fn run(context: &mut Context, arguments: &ManifestArguments) -> Outcome {
    let Action::Dump(arguments) = &arguments.action;
    let env = arguments.enter(context)?;
    let store = find_store_id(&env, &arguments.dir);
    let numbers = list_manifests(&*env, &arguments.dir).map_err(|error| arguments.failure(&error))?;
    let mut dump = Dump { console: &mut context.console, json: context.json, is_valid: true };
    dump.superblock(&*env, &arguments.dir)?;
    for number in numbers {
        dump.manifest(&*env, &arguments.dir, store, number)?;
    }
    Ok(if dump.is_valid { Verdict::Fine } else { Verdict::Negative })
}

struct Dump<'a> {
    console: &'a mut Console,
    json: bool,
    is_valid: bool,
}

impl Dump<'_> {
    fn put(&mut self, document: &Value, lines: &[String]) -> Result<(), Failure> {
        if self.json {
            return self.console.json(document);
        }
        lines.iter().try_for_each(|line| self.console.line(format_args!("{line}")))
    }

    fn damage(&mut self, file: &str, offset: u64, bytes: u64, why: &str) -> Result<(), Failure> {
        self.is_valid = false;
        let line = format!("{file} at offset {offset}: damaged: {why}");
        self.put(&json!({ "file": file, "offset": offset, "bytes": bytes, "damage": why }), &[line])
    }

    fn superblock(&mut self, env: &dyn Env, dir: &Path) -> Result<(), Failure> {
        let slots = match inspect_superblock(env, dir) {
            Ok(slots) => slots,
            Err(error) => return self.damage(SUPERBLOCK_FILE, 0, 0, &format!("cannot be read: {error}")),
        };
        for (slot, contents) in (0u64..).zip(slots) {
            match contents {
                SlotContents::Superblock(superblock) => {
                    let (durable, store) = (superblock.watermark, format!("{:032x}", superblock.store.0));
                    let line = format!(
                        "superblock slot {slot}: store {store}, generation {}, manifest {}, incarnation \
                         {:016x}, durable: edit {} and seqno {}{}",
                        superblock.generation,
                        superblock.manifest,
                        superblock.incarnation.0,
                        durable.edit,
                        durable.seqno.0,
                        if superblock.is_closed { ", closed" } else { "" },
                    );
                    let document = json!({
                        "file": SUPERBLOCK_FILE, "slot": slot, "store_id": store,
                        "generation": superblock.generation, "manifest": superblock.manifest,
                        "incarnation": format!("{:016x}", superblock.incarnation.0),
                        "last_edit": durable.edit, "last_seqno": durable.seqno.0,
                        "closed": superblock.is_closed,
                    });
                    self.put(&document, &[line])?;
                }
                SlotContents::Empty => {
                    let document = json!({ "file": SUPERBLOCK_FILE, "slot": slot, "empty": true });
                    self.put(&document, &[format!("superblock slot {slot}: empty")])?;
                }
                SlotContents::Damaged(why) => {
                    self.damage(SUPERBLOCK_FILE, slot * testudo_base::PAGE_BYTES, 0, &why)?;
                }
            }
        }
        Ok(())
    }

    fn manifest(
        &mut self,
        env: &dyn Env,
        dir: &Path,
        store: Option<StoreId>,
        number: u64,
    ) -> Result<(), Failure> {
        let name = manifest_file_name(number);
        let Some(store) = store else {
            return self.damage(
                &name,
                0,
                0,
                "cannot be read: neither superblock nor log state the store's id",
            );
        };
        let bytes = match read_file(env, dir, &name) {
            Ok(bytes) => bytes,
            Err(error) => return self.damage(&name, 0, 0, &format!("cannot be read: {error}")),
        };
        let (mut outcome, mut next) = (Ok(()), None);
        inspect_manifest(&bytes, store, number, &mut |section| {
            if outcome.is_ok() {
                outcome = self.section(&name, &section, &mut next);
            }
        });
        outcome
    }

    fn section(
        &mut self,
        name: &str,
        section: &ManifestSection,
        next: &mut Option<u64>,
    ) -> Result<(), Failure> {
        let (offset, bytes, number, edit) = match section {
            ManifestSection::Damage { offset, bytes, why } => return self.damage(name, *offset, *bytes, why),
            ManifestSection::Record { offset, bytes, edit_number, edit } => {
                (*offset, *bytes, *edit_number, edit)
            }
        };
        if let Some(next) = next.filter(|next| *next != number) {
            self.damage(name, offset, 0, &format!("expected edit {next}"))?;
        }
        *next = Some(number.saturating_add(1));
        let mut lines =
            vec![format!("{name} at offset {offset}: edit {number}, {} changes, {bytes} bytes", edit.len())];
        lines.extend(edit.iter().map(|change| format!("  {}", line_of(change))));
        let changes: Vec<Value> = edit.iter().map(document_of).collect();
        let document = json!({
            "file": name, "offset": offset, "bytes": bytes, "edit": number, "changes": changes,
        });
        self.put(&document, &lines)
    }
}

fn line_of(change: &Change) -> String {
    match change {
        Change::PutObject(keyspace, object, bytes) => {
            format!("keyspace {}: object {} is {} bytes", keyspace.0, object.0, bytes.len())
        }
        Change::DeleteObject(keyspace, object) => {
            format!("keyspace {}: object {} deleted", keyspace.0, object.0)
        }
        Change::References(span, count) => {
            format!("{} pages from page {}: references {count:+}", span.page_count, span.first_page)
        }
        Change::Flushed(keyspace, seqno) => {
            format!("keyspace {}: flushed up to seqno {}", keyspace.0, seqno.0)
        }
        Change::CreateKeyspace(keyspace, name, options) => {
            format!(
                "keyspace {}: created as {}, options {}",
                keyspace.0,
                escape(name.as_bytes()),
                to_hex(options)
            )
        }
        Change::DropKeyspace(keyspace) => format!("keyspace {}: dropped", keyspace.0),
        Change::LogStart(segment, seqno) => {
            format!("the log starts at segment {segment}; flushed up to seqno {}", seqno.0)
        }
        Change::NextRun(run) => format!("next run: {run} or later"),
        Change::NextKeyspace(keyspace) => format!("next keyspace: {} or later", keyspace.0),
        Change::SetOptions(keyspace, options) => {
            format!("keyspace {}: options {}", keyspace.0, to_hex(options))
        }
        Change::Opened(opening) => {
            let (incarnation, segment) = (opening.incarnation, opening.first_segment);
            format!("opened by incarnation {:016x}, whose log begins with segment {segment}", incarnation.0)
        }
    }
}

fn document_of(change: &Change) -> Value {
    match change {
        Change::PutObject(keyspace, object, bytes) => {
            let (keyspace, object, hex) = (keyspace.0, object.0, to_hex(bytes));
            json!({ "change": "put_object", "keyspace": keyspace, "object": object, "contents_hex": hex })
        }
        Change::DeleteObject(keyspace, object) => {
            json!({ "change": "delete_object", "keyspace": keyspace.0, "object": object.0 })
        }
        Change::References(span, count) => json!({
            "change": "references", "first_page": span.first_page, "pages": span.page_count, "count": count,
        }),
        Change::Flushed(keyspace, seqno) => {
            json!({ "change": "flushed", "keyspace": keyspace.0, "seqno": seqno.0 })
        }
        Change::CreateKeyspace(keyspace, name, options) => json!({
            "change": "create_keyspace", "keyspace": keyspace.0, "name": name, "options_hex": to_hex(options),
        }),
        Change::DropKeyspace(keyspace) => json!({ "change": "drop_keyspace", "keyspace": keyspace.0 }),
        Change::LogStart(segment, seqno) => {
            json!({ "change": "log_start", "segment": segment, "seqno": seqno.0 })
        }
        Change::NextRun(run) => json!({ "change": "next_run", "run": run.0 }),
        Change::NextKeyspace(keyspace) => json!({ "change": "next_keyspace", "keyspace": keyspace.0 }),
        Change::SetOptions(keyspace, options) => json!({
            "change": "set_options", "keyspace": keyspace.0, "options_hex": to_hex(options),
        }),
        Change::Opened(opening) => json!({
            "change": "opened", "incarnation": format!("{:016x}", opening.incarnation.0),
            "first_segment": opening.first_segment,
        }),
    }
}
