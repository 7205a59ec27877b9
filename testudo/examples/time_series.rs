//! Measurements of many sensors: prefix scans over time, and two ways to delete old data.
//!
//! Each day has its own keyspace. Deleting a day means dropping its keyspace: one edit regardless of its
//! size, and its space is free immediately. Deleting a part of a day means removing its keys in batches of
//! bounded size: each removal is a write, and space is reclaimed when the tree is compacted. So let one
//! keyspace cover the period that is deleted at once.
//!
//! Run with `cargo run -p testudo --example time_series`.

use std::error::Error;

use testudo::{Db, Keyspace, KeyspaceOptions};

const SENSORS: u32 = 20;
const DAYS: u32 = 4;
const MEASUREMENTS_PER_DAY: u32 = 24 * 12;
const DAYS_KEPT: usize = 3;

/// `sensor/` and the time: the data of a sensor is contiguous, in time order.
fn key_of(sensor: u32, second: u32) -> Vec<u8> {
    let mut key = prefix_of(sensor);
    key.extend(second.to_be_bytes());
    key
}

/// Fixed width, so that no sensor's prefix is a prefix of another.
fn prefix_of(sensor: u32) -> Vec<u8> {
    format!("{sensor:08}/").into_bytes()
}

fn day_name(day: u32) -> String {
    format!("measurements/{day:05}")
}

/// The existing days, oldest first: names of keyspaces are sorted.
fn days(db: &Db) -> testudo::Result<Vec<(String, Keyspace)>> {
    let mut days = Vec::new();
    for name in db.keyspace_names() {
        if name.starts_with("measurements/")
            && let Some(day) = db.open_keyspace(&name)?
        {
            days.push((name, day));
        }
    }
    Ok(days)
}

/// Count and mean of all measurements of a sensor, over all days.
fn mean(db: &Db, sensor: u32) -> Result<(u32, f64), Box<dyn Error>> {
    let (mut count, mut sum) = (0, 0.0);
    for (_, day) in days(db)? {
        for entry in day.prefix(prefix_of(sensor))? {
            sum += f64::from_le_bytes(entry?.value()?[..].try_into()?);
            count += 1;
        }
    }
    Ok((count, sum / f64::from(count.max(1))))
}

/// Drops all but the newest days.
fn keep_days(db: &Db, kept: usize) -> testudo::Result<usize> {
    let days = days(db)?;
    let dropped = days.len().saturating_sub(kept);
    for (name, _) in &days[..dropped] {
        db.drop_keyspace(name)?;
    }
    Ok(dropped)
}

/// Removes measurements of a sensor before `second`.
fn remove_before(db: &Db, day: &Keyspace, sensor: u32, second: u32) -> testudo::Result<usize> {
    let mut removed = 0;
    let mut batch = db.batch();
    for entry in day.range(key_of(sensor, 0)..key_of(sensor, second))? {
        let entry = entry?;
        if !batch.has_room_for(entry.key().len(), 0) {
            std::mem::replace(&mut batch, db.batch()).commit()?;
        }
        batch.remove(day, entry.key());
        removed += 1;
    }
    batch.commit()?;
    Ok(removed)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path().join("series")).memory_bytes(16 << 20).open()?;

    for day in 0..DAYS {
        let keyspace = db.keyspace(&day_name(day), KeyspaceOptions::default())?;
        for measurement in 0..MEASUREMENTS_PER_DAY {
            for sensor in 0..SENSORS {
                let value = f64::from(sensor) + f64::from(day) / 10.0;
                keyspace.insert(key_of(sensor, measurement * 300), value.to_le_bytes())?;
            }
        }
    }
    let (count, all_days) = mean(&db, 7)?;
    println!("sensor 7: {count} measurements, mean {all_days:.2}");
    assert_eq!(count, DAYS * MEASUREMENTS_PER_DAY);
    assert!((all_days - 7.15).abs() < 1e-9);

    // The last hour of a sensor's day, newest first.
    let last = db.open_keyspace(&day_name(DAYS - 1))?.ok_or("the day is missing")?;
    let hour = last.range(key_of(7, 23 * 3600)..key_of(7, 24 * 3600))?.rev();
    assert_eq!(hour.count(), 12);

    let dropped = keep_days(&db, DAYS_KEPT)?;
    let (count, kept_days) = mean(&db, 7)?;
    println!("sensor 7 without the oldest day: {count} measurements, mean {kept_days:.2}");
    assert_eq!((dropped, count), (1, 3 * MEASUREMENTS_PER_DAY));
    assert!((kept_days - 7.2).abs() < 1e-9);

    let removed = remove_before(&db, &last, 7, 12 * 3600)?;
    println!("sensor 7 without the first half of the last day: {removed} measurements removed");
    assert_eq!(removed, 144);
    assert_eq!(last.prefix(prefix_of(7))?.count(), 144);
    assert_eq!(last.prefix(prefix_of(8))?.count(), 288, "other sensors keep theirs");
    Ok(())
}
