//! Second part of the tour: guarantees about atomic and concurrent writes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use testudo::{Db, ErrorKind, Keyspace, KeyspaceOptions};
use testudo_base::num::{u64_of, usize_of};
use testudo_env::SplitMix;

use super::Demo;
use crate::{failure::Failure, output::size::show_count};

const RECORDS: u64 = 2000;
const ACCOUNTS: u64 = 100;
const OPENING_BALANCE: u64 = 1000;
const TRANSFERS: u64 = 5000;
const COUNTING_THREADS: u64 = 4;
const COUNTS_PER_THREAD: u64 = 2000;

impl Demo<'_> {
    /// Checks snapshots, batches across two keyspaces, and atomic updates.
    pub(super) fn promises(&mut self, db: &Db) -> Result<(), Failure> {
        self.report.section("promises", "Snapshots, atomic batches, atomic updates")?;
        self.snapshot(db)?;
        self.transfers(db)?;
        self.counting(db)?;
        self.swapping(db)
    }

    fn snapshot(&mut self, db: &Db) -> Result<(), Failure> {
        let weather = db.keyspace("weather", KeyspaceOptions::default)?;
        let key = |number: u64| format!("station-{number:05}");
        for number in 0..RECORDS {
            weather.insert(key(number), b"sunny")?;
        }
        let snapshot = db.snapshot()?;
        for number in 0..RECORDS {
            if number % 2 == 0 {
                weather.insert(key(number), b"rain")?
            } else {
                weather.remove(key(number))?
            }
        }
        let (mut held, mut current) = (0, 0);
        for entry in snapshot.iter(&weather)? {
            held += u64::from(&*entry?.value()? == b"sunny");
        }
        for entry in weather.iter()? {
            current += u64::from(&*entry?.value()? == b"rain");
        }
        self.report.check(held == RECORDS, "a snapshot changed")?;
        self.report.check(current == RECORDS / 2, "the current state differs from the writes")?;
        let show = |value: Option<testudo::Slice>| {
            value.map_or("deleted".to_owned(), |value| String::from_utf8_lossy(&value).into_owned())
        };
        let then = [show(snapshot.get(&weather, key(0))?), show(snapshot.get(&weather, key(1))?)];
        let now = [show(weather.get(key(0))?), show(weather.get(key(1))?)];
        let text = format!(
            "in the snapshot {} and {}, now {} and {}; {} records in the snapshot",
            then[0],
            then[1],
            now[0],
            now[1],
            show_count(held)
        );
        self.report.measurement("a snapshot during writes", &text, "snapshot_records", held)
    }

    /// Transfers money between accounts, with a journal in another keyspace, while snapshots add up all
    /// balances.
    fn transfers(&mut self, db: &Db) -> Result<(), Failure> {
        let accounts = db.keyspace("accounts", KeyspaceOptions::default)?;
        let journal = db.keyspace("journal", KeyspaceOptions::default)?;
        let mut opening = db.batch();
        for number in 0..ACCOUNTS {
            opening.insert(&accounts, account(number), number_bytes(OPENING_BALANCE));
        }
        opening.commit()?;
        let seed = self.random.next_u64();
        let done = AtomicBool::new(false);
        let (looks, written) = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let result = transfer_all(db, &accounts, &journal, seed);
                done.store(true, Ordering::SeqCst);
                result
            });
            let mut looks = 0;
            let mut look = || -> Result<(), Failure> {
                let snapshot = db.snapshot()?;
                let (accounts, journal) = (snapshot.keyspace(&accounts)?, snapshot.keyspace(&journal)?);
                let mut sum = 0;
                for entry in accounts.prefix(b"account-")? {
                    sum += number_of(&entry?.value()?);
                }
                self.report.check(sum == ACCOUNTS * OPENING_BALANCE, "a snapshot shows half a batch")?;
                let counted = accounts.get(b"transfers")?.map_or(0, |value| number_of(&value));
                let entries: Vec<_> = journal.iter()?.collect::<testudo::Result<_>>()?;
                let entries = u64_of(entries.len());
                self.report.check(counted == entries, "a batch is half visible across keyspaces")?;
                looks += 1;
                Ok(())
            };
            let mut looked = Ok(());
            while looked.is_ok() && !done.load(Ordering::SeqCst) {
                looked = look();
            }
            let written = writer.join().unwrap_or_else(|_| Err(Failure::new("demo: the writer panicked")));
            looked.and_then(|()| look()).map(|()| (looks, written))
        })?;
        written?;
        let text = format!(
            "{} transfers across two keyspaces; {} concurrent snapshots, each in balance",
            show_count(TRANSFERS),
            show_count(looks)
        );
        self.report.measurement("atomic batches", &text, "balanced_snapshots", looks)
    }

    fn counting(&mut self, db: &Db) -> Result<(), Failure> {
        let counters = db.keyspace("counters", KeyspaceOptions::default)?;
        let count = || -> testudo::Result<()> {
            for _ in 0..COUNTS_PER_THREAD {
                counters.update("visits", |old| Some(number_bytes(old.map_or(0, number_of) + 1).to_vec()))?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..COUNTING_THREADS).map(|_| scope.spawn(count)).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, testudo::Result<()>>| match thread.join() {
                Ok(result) => result.map_err(Failure::from),
                Err(_) => Err(Failure::new("demo: a counting thread panicked")),
            };
            threads.into_iter().try_for_each(join)
        })?;
        let total = counters.get("visits")?.map_or(0, |value| number_of(&value));
        self.report.check(total == COUNTING_THREADS * COUNTS_PER_THREAD, "an atomic update was lost")?;
        let text = format!("{COUNTING_THREADS} threads count to {} together, none lost", show_count(total));
        self.report.measurement("atomic updates", &text, "counted", total)
    }

    fn swapping(&mut self, db: &Db) -> Result<(), Failure> {
        let locks = db.keyspace("locks", KeyspaceOptions::default)?;
        locks.compare_and_swap("door", None, Some(b"closed"))?;
        let refused = locks.compare_and_swap("door", Some(b"open"), Some(b"broken"));
        let conflict = refused.is_err_and(|error| error.kind() == ErrorKind::Conflict);
        self.report.check(conflict, "compare_and_swap swapped despite a mismatch")?;
        locks.compare_and_swap("door", Some(b"closed"), Some(b"open"))?;
        let now = locks.get("door")?;
        self.report.check(now.as_deref() == Some(b"open"), "compare_and_swap did not swap")?;
        self.report.measurement("compare and swap", "swaps on a match, refuses on a mismatch", "swaps", 2)
    }
}

fn transfer_all(db: &Db, accounts: &Keyspace, journal: &Keyspace, seed: u64) -> Result<(), Failure> {
    let mut random = SplitMix::new(seed);
    let mut balances = vec![OPENING_BALANCE; usize_of(ACCOUNTS)];
    for number in 0..TRANSFERS {
        let from = random.below(ACCOUNTS);
        let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = random.below(balances[usize_of(from)] + 1);
        balances[usize_of(from)] -= amount;
        balances[usize_of(to)] += amount;
        let mut batch = db.batch();
        batch.insert(accounts, account(from), number_bytes(balances[usize_of(from)]));
        batch.insert(accounts, account(to), number_bytes(balances[usize_of(to)]));
        batch.insert(accounts, b"transfers", number_bytes(number + 1));
        batch.insert(journal, number.to_be_bytes(), format!("{from} pays {amount} to {to}"));
        batch.commit()?;
    }
    Ok(())
}

fn account(number: u64) -> String {
    format!("account-{number:04}")
}

fn number_bytes(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Decodes a number; malformed bytes are zero, which the sums then expose.
fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}
