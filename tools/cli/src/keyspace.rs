//! `testudo keyspace`: creates, converts, drops and lists keyspaces.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use testudo::{Db, KeyspaceOptions, Tree};

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Outcome, Verdict, say},
    ls, store,
};

/// Arguments of `testudo keyspace`.
#[derive(Args, Debug)]
pub(crate) struct KeyspaceArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates a keyspace; it must not exist yet
    Create {
        #[command(flatten)]
        store: StoreArguments,
        /// Name of the keyspace
        name: String,
        /// Kind of tree
        #[arg(long, default_value_t = Tree::turtle())]
        tree: Tree,
        /// Merge operator: add-u64, append, max or min
        #[arg(long, value_name = "NAME")]
        merge_operator: Option<String>,
    },
    /// Stores a keyspace in another tree from now on (exit code 1 if it does not exist)
    Convert {
        #[command(flatten)]
        store: StoreArguments,
        /// Name of the keyspace
        name: String,
        /// Kind of tree
        #[arg(long)]
        tree: Tree,
    },
    /// Drops a keyspace with all its records (exit code 1 if it does not exist)
    Drop {
        #[command(flatten)]
        store: StoreArguments,
        /// Name of the keyspace
        name: String,
    },
    /// Lists the keyspaces, as `testudo ls` does
    List(ls::LsArguments),
}

/// Does what was asked.
pub(crate) fn run(context: &mut Context, arguments: &KeyspaceArguments) -> Outcome {
    match &arguments.command {
        Command::Create { store, name, tree, merge_operator } => {
            let db = store::open_for_writing(context, store, false)?;
            let options = KeyspaceOptions::default().tree(*tree);
            let options = merge_operator.iter().fold(options, |options, name| options.merge_operator(name));
            let outcome = create(&db, store, name, options);
            store.close(db, outcome)?;
            if store.json {
                let mut document = json!({ "keyspace": name, "tree": tree.to_string() });
                if let Some(operator) = merge_operator {
                    document["merge_operator"] = json!(operator);
                }
                context.console.json(&document)?;
            }
            Ok(Verdict::Fine)
        }
        Command::Convert { store, name, tree } => {
            let db = store::open_for_writing(context, store, false)?;
            let outcome = convert(&db, store, name, *tree);
            let verdict = store.close(db, outcome)?;
            report(context, store, name, ("tree", json!(tree.to_string())), verdict)
        }
        Command::Drop { store, name } => {
            let db = store::open_for_writing(context, store, false)?;
            let outcome = drop_keyspace(&db, store, name);
            let verdict = store.close(db, outcome)?;
            report(context, store, name, ("dropped", json!(verdict == Verdict::Fine)), verdict)
        }
        Command::List(arguments) => ls::run(context, arguments),
    }
}

fn create(db: &Db, store: &StoreArguments, name: &str, options: KeyspaceOptions) -> Outcome {
    if db.keyspace_names().iter().any(|existing| existing == name) {
        return Err(Failure::about(store.dir.display(), format!("has a keyspace '{name}' already")));
    }
    db.keyspace(name, || options).map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

/// Says what was done, or that there is no such keyspace.
fn report(
    context: &mut Context,
    store: &StoreArguments,
    name: &str,
    (what, value): (&str, Value),
    verdict: Verdict,
) -> Outcome {
    if store.json && (verdict == Verdict::Fine || what == "dropped") {
        context.console.json(&json!({ "keyspace": name, what: value }))?;
    } else if verdict == Verdict::Negative {
        say(&format!("{}: has no keyspace '{name}'", store.dir.display()));
    }
    Ok(verdict)
}

fn convert(db: &Db, store: &StoreArguments, name: &str, tree: Tree) -> Outcome {
    let Some(keyspace) = db.open_keyspace(name).map_err(|error| store.failure(&error))? else {
        return Ok(Verdict::Negative);
    };
    keyspace.set_tree(tree).map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

fn drop_keyspace(db: &Db, store: &StoreArguments, name: &str) -> Outcome {
    match db.drop_keyspace(name).map_err(|error| store.failure(&error))? {
        true => Ok(Verdict::Fine),
        false => Ok(Verdict::Negative),
    }
}
