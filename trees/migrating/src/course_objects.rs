//! The objects of a moving keyspace in the manifest: those of two trees, and the one with the course.

use testudo_base::{KeyspaceId, codec::Damage};
use testudo_storage::Change;

use crate::{
    Course,
    slot::{BORDER, Objects, Slot},
};

impl Course {
    /// Returns the course of a moving keyspace, and the objects of the source and the destination tree.
    ///
    /// Errors: [`Damage`] if the objects contradict each other.
    pub fn divide(mut objects: Objects) -> Result<(Self, Objects, Objects), Damage> {
        let border = objects.remove(&BORDER).ok_or(Damage("a moving keyspace has no border"))?;
        let course = Self::decode(&border)?;
        let (from, to) = (course.from.take(&mut objects), course.to.take(&mut objects));
        if objects.is_empty() { Ok((course, from, to)) } else { Err(Damage("objects of no tree")) }
    }

    /// Returns the slots of the source and destination objects.
    pub fn slots(&self) -> (Slot, Slot) {
        (self.from, self.to)
    }

    /// Returns the change that makes the course durable.
    pub fn put(&self, keyspace: KeyspaceId) -> Change {
        Change::PutObject(keyspace, BORDER, self.encode())
    }

    /// Returns the change that deletes it at the end.
    pub(crate) fn delete(keyspace: KeyspaceId) -> Change {
        Change::DeleteObject(keyspace, BORDER)
    }
}
