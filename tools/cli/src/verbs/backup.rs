//! `testudo backup`: creates, lists, verifies, restores and deletes backups in a repository directory.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use testudo::{
    Error,
    backup::{BackupInfo, CreateOptions, Repository, RepositoryReport, RestoreOptions, VerifyOptions},
};
use testudo_env::Env;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Missing, Outcome, Verdict, next_step as damage_of, say},
    output::{
        moment::show_moment,
        size::{show_count, show_size},
        table::Align,
        watched_work::watched,
    },
    store,
};

/// Arguments of `testudo backup`.
#[derive(Args, Debug)]
pub(crate) struct BackupArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Adds a backup of a store that no other process has open; creates the repository if needed
    Create {
        #[command(flatten)]
        store: StoreArguments,
        /// Directory of the repository
        repository: PathBuf,
        /// Verify files already in the repository, and copy damaged ones again
        #[arg(long)]
        recheck: bool,
    },
    /// Lists the backups, oldest first (exit code 1 if one cannot be read)
    List {
        #[command(flatten)]
        repository: RepositoryArguments,
    },
    /// Reads backups completely and checks every hash and page (exit code 1 if anything is damaged)
    Verify {
        #[command(flatten)]
        repository: RepositoryArguments,
        /// Id of the backup; all backups if omitted
        id: Option<u64>,
    },
    /// Creates a new store from a backup
    Restore {
        #[command(flatten)]
        repository: RepositoryArguments,
        /// Directory of the new store; must be empty or not exist
        target: PathBuf,
        /// Id of the backup; the newest if omitted
        #[arg(long)]
        id: Option<u64>,
    },
    /// Removes a backup and the files that no other backup needs
    Delete {
        #[command(flatten)]
        repository: RepositoryArguments,
        /// Id of the backup
        id: u64,
    },
}

#[derive(Args, Debug)]
struct RepositoryArguments {
    /// Directory of the repository
    repository: PathBuf,
}

impl BackupArguments {
    /// Whether the action checks backups for damage.
    pub(crate) fn is_check(&self) -> bool {
        matches!(self.action, Action::Verify { .. })
    }
}

/// Runs the action.
pub(crate) fn run(context: &mut Context, arguments: &BackupArguments) -> Outcome {
    match &arguments.action {
        Action::Create { store, repository, recheck } => create(context, store, repository, *recheck),
        Action::List { repository } => list(context, repository),
        Action::Verify { repository, id } => verify(context, repository, *id),
        Action::Restore { repository, target, id } => restore(context, repository, target, *id),
        Action::Delete { repository, id } => delete(context, repository, *id),
    }
}

fn at(context: &Context, directory: &Path) -> Repository {
    let env: std::sync::Arc<dyn Env> = context.env.clone();
    Repository::at(directory).env(env)
}

impl RepositoryArguments {
    /// Opens the repository; fails if it does not exist, or if backup `id` is not in it.
    fn open(&self, context: &Context, id: Option<u64>) -> Result<Repository, Failure> {
        let place = self.repository.display();
        match context.env.list_dir(&self.repository) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::missing(Missing::Repository, place, "there is no such directory"));
            }
            _ => {}
        }
        let repository = at(context, &self.repository);
        if let Some(id) = id {
            let backups = repository.list().map_err(|error| self.failure(&error))?;
            if !backups.iter().any(|backup| backup.id == id) {
                let reason = format!("has no backup {id}");
                return Err(Failure::missing(Missing::Backup, place, reason));
            }
        }
        Ok(repository)
    }

    fn failure(&self, error: &Error) -> Failure {
        Failure::with_help(self.repository.display(), error, || next_step(&self.repository))
    }
}

/// Suggested next step for damage in a repository.
fn next_step(repository: &Path) -> String {
    let repository = repository.display();
    format!(
        "next: `testudo backup verify {repository}` lists the damage; `testudo backup create STORE \
         {repository} --recheck` copies damaged files again"
    )
}

fn document(info: &BackupInfo) -> Result<Value, Failure> {
    serde_json::to_value(info).map_err(|error| Failure::new(format!("cannot write JSON: {error}")))
}

fn create(context: &mut Context, store: &StoreArguments, directory: &Path, recheck: bool) -> Outcome {
    let stopwatch = context.stopwatch();
    let db = store::open_for_reading(context, store)?;
    let repository = at(context, directory).recheck(recheck);
    let options = CreateOptions::new(&db);
    let new = watched(context, "backup", |observer| repository.create(options.observer(observer)))?;
    let what = format!("backup of {} to {}", store.dir.display(), directory.display());
    let info = new.map_err(|error| Failure::with_help(what, &error, || damage_of(&store.dir)))?.info;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        let mut document = document(&info)?;
        document["seconds"] = json!(seconds);
        context.console.json(&document)?;
    } else {
        context.console.line(format_args!(
            "backup {} of {} keyspaces at seqno {}: {} new in {} of {} runs, {} in all, {seconds:.1} s",
            info.id,
            info.keyspaces.len(),
            info.seqno,
            show_size(info.new_bytes),
            info.new_runs,
            info.runs,
            show_size(info.total_bytes),
        ))?;
    }
    Ok(Verdict::Fine)
}

fn list(context: &mut Context, arguments: &RepositoryArguments) -> Outcome {
    let backups = arguments.open(context, None)?.list().map_err(|error| arguments.failure(&error))?;
    let mut verdict = Verdict::Fine;
    let mut rows = Vec::new();
    for backup in &backups {
        match &backup.info {
            Ok(info) if context.json => context.console.json(&document(info)?)?,
            Ok(info) => rows.push(vec![
                info.id.to_string(),
                show_moment(info.time_ms),
                info.seqno.to_string(),
                show_size(info.new_bytes),
                show_size(info.total_bytes),
                info.keyspaces.join(", "),
            ]),
            Err(error) => {
                verdict = Verdict::Negative;
                if context.json {
                    context.console.json(&json!({ "id": backup.id, "damage": error.to_string() }))?;
                } else {
                    say(&format!("backup {} cannot be read: {error}", backup.id));
                }
            }
        }
    }
    if !context.json {
        let columns = [
            ("id", Align::Right),
            ("time (UTC)", Align::Left),
            ("seqno", Align::Right),
            ("new", Align::Right),
            ("total", Align::Right),
            ("keyspaces", Align::Left),
        ];
        context.console.table(&columns, &rows)?;
    }
    Ok(verdict)
}

fn verify(context: &mut Context, arguments: &RepositoryArguments, id: Option<u64>) -> Outcome {
    let stopwatch = context.stopwatch();
    let repository = arguments.open(context, id)?;
    let options = VerifyOptions::new(id);
    let report = watched(context, "verify", |observer| repository.verify(options.observer(observer)))?;
    let report = report.map_err(|error| arguments.failure(&error))?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        context.console.json(&json!({
            "sound": report.is_valid(), "backups": report.backups, "runs": report.runs, "bytes": report.bytes,
            "unused_files": report.unused_files, "findings": report.findings, "seconds": seconds,
        }))?;
    } else {
        print_report(context, &report, seconds)?;
        if !report.is_valid() {
            context.console.line(format_args!("{}", next_step(&arguments.repository)))?;
        }
    }
    Ok(if report.is_valid() { Verdict::Fine } else { Verdict::Negative })
}

fn print_report(context: &mut Context, report: &RepositoryReport, seconds: f64) -> Result<(), Failure> {
    for finding in &report.findings {
        let backups: Vec<String> = finding.backups.iter().map(u64::to_string).collect();
        let needed =
            if backups.is_empty() { String::new() } else { format!(" (backup {})", backups.join(", ")) };
        context.console.line(format_args!("damaged: {}{needed}", finding.what))?;
    }
    if !report.unused_files.is_empty() {
        let files = report.unused_files.len();
        context
            .console
            .line(format_args!("{files} files belong to no backup; the next backup may reuse them"))?;
    }
    let verdict = if report.is_valid() { "valid" } else { "damaged" };
    let (backups, runs) = (show_count(report.backups), show_count(report.runs));
    let bytes = show_size(report.bytes);
    context.console.line(format_args!("{verdict} ({backups} backups, {runs} runs, {bytes}, {seconds:.1} s)"))
}

fn restore(
    context: &mut Context,
    arguments: &RepositoryArguments,
    target: &Path,
    id: Option<u64>,
) -> Outcome {
    let stopwatch = context.stopwatch();
    let repository = arguments.open(context, id)?;
    let options = RestoreOptions::new(id);
    let info =
        watched(context, "restore", |observer| repository.restore(options.observer(observer), target))?;
    let info = info.map_err(|error| arguments.failure(&error))?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        let mut document = document(&info)?;
        document["target"] = json!(target.display().to_string());
        document["seconds"] = json!(seconds);
        context.console.json(&document)?;
    } else {
        let (id, bytes, target) = (info.id, show_size(info.total_bytes), target.display());
        context
            .console
            .line(format_args!("backup {id} ({bytes}) is now the store {target}, {seconds:.1} s"))?;
    }
    Ok(Verdict::Fine)
}

fn delete(context: &mut Context, arguments: &RepositoryArguments, id: u64) -> Outcome {
    let deleted = arguments.open(context, Some(id))?.delete(id).map_err(|error| arguments.failure(&error))?;
    if context.json {
        context.console.json(&json!({
            "id": id, "files": deleted.files, "bytes": deleted.bytes,
            "unreadable_backups": deleted.unreadable_backups,
        }))?;
        return Ok(Verdict::Fine);
    }
    for id in &deleted.unreadable_backups {
        say(&format!("backup {id} cannot be read; files that it may need were kept"));
    }
    let bytes = show_size(deleted.bytes);
    context.console.line(format_args!("backup {id} removed: {} files, {bytes}", deleted.files))?;
    Ok(Verdict::Fine)
}
