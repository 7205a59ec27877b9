//! The objects of a moving keyspace in the manifest: those of two trees, and the one that says where it
//! stands.

use testudo_base::{KeyspaceId, codec::Damage};
use testudo_storage::Change;

use crate::{
    Course,
    slot::{BORDER, Objects, Slot},
};

impl Course {
    /// Where a moving keyspace stands, and the objects of both trees: of the one that is left, and of the one
    /// where it goes.
    ///
    /// Errors: [`Damage`] if the objects contradict each other.
    pub fn divide(mut objects: Objects) -> Result<(Self, Objects, Objects), Damage> {
        let border = objects.remove(&BORDER).ok_or(Damage("a moving keyspace has no border"))?;
        let course = Self::decode(&border)?;
        let (from, to) = (course.from.take(&mut objects), course.to.take(&mut objects));
        if objects.is_empty() { Ok((course, from, to)) } else { Err(Damage("objects of no tree")) }
    }

    /// Both trees as they change their objects.
    pub fn slots(&self) -> (Slot, Slot) {
        (self.from, self.to)
    }

    /// The change that makes this durable.
    pub fn put(&self, keyspace: KeyspaceId) -> Change {
        Change::PutObject(keyspace, BORDER, self.encode())
    }

    /// The change at the end.
    pub(crate) fn delete(keyspace: KeyspaceId) -> Change {
        Change::DeleteObject(keyspace, BORDER)
    }
}
