//! A keyspace on its way from one family of trees to another, while it is used (decision 0042).
//!
//! Its tree is a third one, [`Migrating`], which knows no family: on one side of a border keys are in the
//! tree that the keyspace leaves, on the other in the one where it goes. A job moves the next piece: it
//! writes the piece as runs of the bottom, and one edit puts these into the one tree, takes their keys from
//! the other, and moves the border.
//!
//! `pick → write the piece → install: with_piece + without_outside + border`
//!
//! **Invariants**
//! - Every key is in one of the two trees: what the other one still has of it is never read or merged.
//! - Both trees and the border change in one edit.
//! - For each key the newest run is one of the tree that has the key.

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
