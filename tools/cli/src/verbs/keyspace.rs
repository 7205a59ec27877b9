//! `testudo keyspace`: creates, converts, drops and lists keyspaces.

mod convert;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use testudo::{Db, KeyspaceOptions, MergeOperators, Placement, TreePreset};

use crate::{
    arguments::{StoreArguments, parse_name},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::bytes_text::escape,
    store,
    verbs::ls,
};

/// Arguments of `testudo keyspace`.
#[derive(Args, Debug)]
pub(crate) struct KeyspaceArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates a keyspace that does not exist yet
    Create {
        #[command(flatten)]
        store: StoreArguments,
        /// Name of the keyspace
        #[arg(value_parser = parse_name)]
        name: String,
        /// Kind of tree; parallax is leveled with --placement automatic
        #[arg(long, default_value = "turtle")]
        tree: TreePreset,
        /// Placement of values: inline, hybrid (large and medium ones in value segments), automatic (as
        /// hybrid, but large ones return to their keys if that suits scans and merges better), large (only
        /// large ones in value segments), separate, or thresholds in bytes of a value, as in
        /// large=4096,medium=64,moving [default: large, for parallax automatic]
        #[arg(long)]
        placement: Option<Placement>,
        #[arg(long, value_name = "NAME", help = merge_operator_help())]
        merge_operator: Option<String>,
        /// Create the store and the directories above it if they do not exist
        #[arg(long)]
        create: bool,
    },
    /// Changes the tree of a keyspace, or the placement of its values
    ///
    /// Conversions between turtle and splinter move no data, nor do those between leveled, lsbm and treeline.
    /// From one of these groups to the other, the keyspace moves range by range while a process has the store
    /// open for writing, and resumes at the next opening. `testudo stat --keyspace` shows the progress.
    /// Converting back reverses the move.
    Convert {
        #[command(flatten)]
        store: StoreArguments,
        /// Name of the keyspace
        #[arg(value_parser = parse_name)]
        name: String,
        /// Kind of tree; parallax is leveled with --placement automatic
        #[arg(long, required_unless_present = "placement")]
        tree: Option<TreePreset>,
        /// Placement of values: inline, large, hybrid, automatic, separate or thresholds, as for create
        #[arg(long)]
        placement: Option<Placement>,
        /// Wait until the whole keyspace has moved
        #[arg(long)]
        wait: bool,
    },
    /// Drops a keyspace with all its records
    Drop {
        #[command(flatten)]
        store: StoreArguments,
        /// Name of the keyspace
        #[arg(value_parser = parse_name)]
        name: String,
    },
    /// Lists the keyspaces, like `testudo ls`
    List(ls::LsArguments),
}

fn merge_operator_help() -> String {
    let operators = MergeOperators::default();
    format!("Merge operator: {}", operators.names().collect::<Vec<_>>().join(", "))
}

/// Runs the command.
pub(crate) fn run(context: &mut Context, arguments: &KeyspaceArguments) -> Outcome {
    match &arguments.command {
        Command::Create { store, name, tree, placement, merge_operator, create: may_create } => {
            let db = store::open_or_create(context, store, *may_create)?;
            let options = KeyspaceOptions::default().tree(*tree);
            let options = placement.map_or(options, |placement| options.placement(placement));
            let options = merge_operator.iter().fold(options, |options, name| options.merge_operator(name));
            let outcome = create(&db, store, name, options);
            store.close(db, outcome)?;
            if context.json {
                let mut document = json!({
                    "keyspace": name, "tree": options.get_tree().to_string(),
                    "placement": options.get_placement().to_string(),
                });
                if let Some(operator) = merge_operator {
                    document["merge_operator"] = json!(operator);
                }
                context.console.json(&document)?;
            }
            Ok(Verdict::Fine)
        }
        Command::Convert { store, name, tree, placement, wait } => convert::run(
            context,
            store,
            name,
            &convert::Target { tree: *tree, placement: *placement, waits: *wait },
        ),
        Command::Drop { store, name } => {
            let db = store::open_for_writing(context, store)?;
            let outcome = drop_keyspace(&db, store, name);
            store.close(db, outcome)?;
            report(context, &json!({ "keyspace": name, "dropped": true }))
        }
        Command::List(arguments) => ls::run(context, arguments),
    }
}

fn create(db: &Db, store: &StoreArguments, name: &str, options: KeyspaceOptions) -> Outcome {
    if db.keyspace_names().iter().any(|existing| existing == name) {
        return Err(Failure::about(
            store.dir.display(),
            format!("already has a keyspace '{}'", escape(name.as_bytes())),
        ));
    }
    db.keyspace(name, || options).map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

/// Reports the change.
fn report(context: &mut Context, document: &Value) -> Outcome {
    if context.json {
        context.console.json(document)?;
    }
    Ok(Verdict::Fine)
}

fn drop_keyspace(db: &Db, store: &StoreArguments, name: &str) -> Outcome {
    match db.drop_keyspace(name).map_err(|error| store.failure(&error))? {
        true => Ok(Verdict::Fine),
        false => Err(store.no_keyspace(&db.keyspace_names(), name)),
    }
}
