//! Online migration of a keyspace from one family of trees to another (decision 0042).
//!
//! Its tree is a third one, [`Migrating`], which is independent of families. Keys on one side of a border are
//! in the source tree, those on the other in the destination. A job moves the next portion: it writes the
//! portion as runs of the bottom. One edit adds these to the destination, removes their keys from the source,
//! and moves the border.
//!
//! `pick → write the portion → install: with_portion + without_outside + border`
//!
//! **Invariants**
//! - Every key is in one of the two trees: leftovers of it in the other are never read or merged.
//! - Both trees and the border change in one edit.
//! - For each key the newest run belongs to the tree that has the key.

mod course;
mod course_format;
mod course_objects;
mod halves;
mod jobs;
mod layout;
mod migrating;
mod slot;
mod split_updates;

pub use course::Course;
pub use migrating::Migrating;
pub use slot::{Objects, Slot};
