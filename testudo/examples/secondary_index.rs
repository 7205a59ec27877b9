//! Users by id, and an index by city that is always consistent with them.
//!
//! One batch writes a record and its index entry, so no crash and no reader sees one without the other. A
//! batch does not track the reads of its writer, though. Changing a record requires removing its old index
//! entry, and two writers that read the same old record would leave one behind. A lock around read and commit
//! prevents this. Readers take a snapshot instead, and never wait.
//!
//! Run with `cargo run -p testudo --example secondary_index`.

use std::{
    error::Error,
    sync::{Mutex, PoisonError},
    thread,
};

use testudo::{Db, Keyspace, KeyspaceOptions, Snapshot};

struct Users {
    db: Db,
    /// Id to city.
    by_id: Keyspace,
    /// City, a zero byte and id, with empty values.
    by_city: Keyspace,
    writing: Mutex<()>,
}

/// The zero byte terminates the city, so that `Rome` does not match `Romeoville`; no city may contain one.
fn index_prefix(city: &str) -> Vec<u8> {
    [city.as_bytes(), b"\0"].concat()
}

fn index_key(city: &str, id: u32) -> Vec<u8> {
    [&index_prefix(city)[..], &id.to_be_bytes()].concat()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Users {
    fn new(db: Db) -> testudo::Result<Self> {
        let by_id = db.keyspace("users", KeyspaceOptions::default())?;
        let by_city = db.keyspace("users by city", KeyspaceOptions::default())?;
        Ok(Self { db, by_id, by_city, writing: Mutex::new(()) })
    }

    /// Sets a user's city, or removes the user (`None`).
    fn set(&self, id: u32, city: Option<&str>) -> testudo::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = self.db.batch();
        if let Some(old) = self.by_id.get(id.to_be_bytes())? {
            batch.remove(&self.by_city, index_key(&text(&old), id));
        }
        match city {
            Some(city) => {
                batch.insert(&self.by_id, id.to_be_bytes(), city);
                // After the removal: if both have the same key, the later write wins.
                batch.insert(&self.by_city, index_key(city, id), "");
            }
            None => batch.remove(&self.by_id, id.to_be_bytes()),
        }
        batch.commit()
    }

    /// Users in `city`, ordered by id.
    fn in_city(&self, snapshot: &Snapshot, city: &str) -> Result<Vec<u32>, Box<dyn Error>> {
        let prefix = index_prefix(city);
        let ids = snapshot.prefix(&self.by_city, &prefix)?.map(|entry| {
            let entry = entry?;
            Ok(u32::from_be_bytes(entry.key()[prefix.len()..].try_into()?))
        });
        ids.collect()
    }

    /// Compares all records of a snapshot with the whole index, and returns their number.
    fn check(&self, snapshot: &Snapshot) -> Result<usize, Box<dyn Error>> {
        let mut expected = Vec::new();
        for entry in snapshot.iter(&self.by_id)? {
            let (id, city) = entry?.into_pair()?;
            expected.push(index_key(&text(&city), u32::from_be_bytes(id[..].try_into()?)));
        }
        expected.sort();
        let mut found = Vec::new();
        for entry in snapshot.iter(&self.by_city)? {
            found.push(entry?.key().to_vec());
        }
        assert_eq!(found, expected, "index and records differ");
        Ok(found.len())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path().join("users")).memory_bytes(16 << 20).open()?;
    let users = Users::new(db)?;

    users.set(1, Some("Rome"))?;
    users.set(2, Some("Romeoville"))?;
    users.set(3, Some("Rome"))?;
    let before = users.db.snapshot()?;
    users.set(3, Some("Oslo"))?;
    users.set(1, None)?;
    let after = users.db.snapshot()?;
    println!(
        "in Rome before: {:?}, after: {:?}",
        users.in_city(&before, "Rome")?,
        users.in_city(&after, "Rome")?
    );
    assert_eq!(users.in_city(&before, "Rome")?, [1, 3]);
    assert!(users.in_city(&after, "Rome")?.is_empty());
    assert_eq!(users.in_city(&after, "Oslo")?, [3]);

    // Two writers move users while snapshots are compared.
    let cities = ["Rome", "Oslo", "Lima", "Kyiv"];
    let checks = thread::scope(|scope| {
        let move_about = |writer: u32| {
            (0..5_000_u32).try_for_each(|step| {
                let city = cities[usize::try_from((step / 7 + writer) % 4).unwrap_or(0)];
                users.set(step * (writer + 1) % 100, (step % 11 != 0).then_some(city))
            })
        };
        let writers: Vec<_> = [0, 1].map(|writer| scope.spawn(move || move_about(writer))).into();
        let mut checks = 0;
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            users.check(&users.db.snapshot()?)?;
            checks += 1;
        }
        for writer in writers {
            writer.join().expect("the writer does not panic")?;
        }
        Ok::<_, Box<dyn Error>>(checks)
    })?;
    let count = users.check(&users.db.snapshot()?)?;
    println!("{checks} snapshots during two writers, and the final state of {count} users: all consistent");
    assert!(count > 40);
    Ok(())
}
