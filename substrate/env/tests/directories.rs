#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Tests of directories that are moved, replaced and removed while they are open, and of locks whose file is,
//! on the real machine and on the in-memory one.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo_base::{Error, ErrorKind as StoreErrorKind};
use testudo_env::{DirLock, Env, File, LockCheckedEnv, LockHolder, MemEnv, OpenMode, OpenOptions, RealEnv};

/// An environment and a directory in it, to be opened and moved.
struct Place {
    env: Arc<dyn Env>,
    root: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl Place {
    fn real() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let place = Self { env: RealEnv::new(), root: guard.path().to_owned(), _guard: Some(guard) };
        place.env.create_dir(&place.path("db")).unwrap();
        place
    }

    fn memory() -> Self {
        let place = Self { env: MemEnv::new(1), root: "/place".into(), _guard: None };
        place.env.create_dir(&place.root).unwrap();
        place.env.create_dir(&place.path("db")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn anchored(&self) -> Arc<dyn Env> {
        self.env.anchor(&self.path("db")).unwrap()
    }
}

fn create(env: &dyn Env, path: &Path) -> std::io::Result<Arc<dyn File>> {
    env.open(path, OpenOptions { mode: OpenMode::CreateNew, direct: false })
}

fn names(env: &dyn Env, directory: &Path) -> Vec<String> {
    env.list_dir(directory).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn kind_of<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn anchored_directory_stays_the_same_when_moved(place: &Place) {
    let (env, db) = (place.anchored(), place.path("db"));
    create(&*env, &db.join("before")).unwrap();
    place.env.rename(&db, &place.path("moved")).unwrap();
    place.env.create_dir(&db).unwrap();
    create(&*place.env, &db.join("stranger")).unwrap();
    create(&*env, &db.join("after")).unwrap().write_at(0, b"mine").unwrap();
    env.rename(&db.join("before"), &db.join("renamed")).unwrap();
    env.sync_dir(&db).unwrap();
    assert_eq!(names(&*env, &db), ["after", "renamed"]);
    assert_eq!(names(&*place.env, &place.path("moved")), ["after", "renamed"]);
    assert_eq!(names(&*place.env, &db), ["stranger"], "the directory at the old path is another one");
    env.remove_file(&db.join("after")).unwrap();
    assert_eq!(kind_of(env.remove_file(&db.join("stranger"))), ErrorKind::NotFound);
    assert!(env.free_bytes(&db.join("renamed")).unwrap() > 0);
    env.sync_dir(&db.join("..")).unwrap();
    // Other paths resolve as before.
    create(&*env, &place.path("beside")).unwrap();
    assert_eq!(names(&*place.env, &place.root), ["beside", "db", "moved"]);
}

fn an_anchor_needs_a_directory(place: &Place) {
    create(&*place.env, &place.path("file")).unwrap();
    assert_eq!(kind_of(place.env.anchor(&place.path("file"))), ErrorKind::NotADirectory);
    assert_eq!(kind_of(place.env.anchor(&place.path("nothing"))), ErrorKind::NotFound);
}

fn anchor_removes_only_its_own_directory(place: &Place) {
    let (env, db) = (place.anchored(), place.path("db"));
    place.env.rename(&db, &place.path("moved")).unwrap();
    place.env.create_dir(&db).unwrap();
    assert_eq!(kind_of(env.remove_dir(&db)), ErrorKind::NotFound);
    place.env.remove_dir(&db).unwrap();
    place.env.rename(&place.path("moved"), &db).unwrap();
    create(&*env, &db.join("a")).unwrap();
    assert_eq!(kind_of(env.remove_dir(&db)), ErrorKind::DirectoryNotEmpty);
    env.remove_file(&db.join("a")).unwrap();
    env.remove_dir(&db).unwrap();
    assert_eq!(names(&*place.env, &place.root), Vec::<String>::new());
    assert_eq!(kind_of(create(&*env, &db.join("late"))), ErrorKind::NotFound);
    assert_eq!(names(&*env, &db), Vec::<String>::new());
}

fn nested_anchor_refers_to_the_same_directory(place: &Place) {
    let (env, db) = (place.anchored(), place.path("db"));
    place.env.rename(&db, &place.path("moved")).unwrap();
    let again = env.anchor(&db).unwrap();
    create(&*again, &db.join("a")).unwrap();
    assert_eq!(names(&*place.env, &place.path("moved")), ["a"]);
}

fn lock_holder_is_reported(place: &Place) {
    let lock = place.path("LOCK");
    assert_eq!(kind_of(place.env.lock_holder(&lock)), ErrorKind::NotFound);
    let held = place.env.lock(&lock, true, true).unwrap();
    let holder = place.env.lock_holder(&lock).unwrap();
    assert!([std::process::id(), 1].map(|id| LockHolder::Owner(Some(id))).contains(&holder), "{holder:?}");
    drop(held);
    assert_eq!(place.env.lock_holder(&lock).unwrap(), LockHolder::NoOwner);
    let _readers =
        [place.env.lock(&lock, false, false).unwrap(), place.env.lock(&lock, false, false).unwrap()];
    assert_eq!(place.env.lock_holder(&lock).unwrap(), LockHolder::NoOwner, "readers have no number");
}

fn lock_detects_removal_or_replacement_of_its_file(place: &Place) {
    let (env, lock) = (place.anchored(), place.path("db").join("LOCK"));
    let held = env.lock(&lock, true, true).unwrap();
    assert!(held.is_in_place().unwrap());
    place.env.rename(&place.path("db"), &place.path("moved")).unwrap();
    assert!(held.is_in_place().unwrap(), "the directory was moved, with the lock");
    let moved = place.path("moved");
    place.env.rename(&moved.join("LOCK"), &moved.join("aside")).unwrap();
    assert!(!held.is_in_place().unwrap());
    create(&*place.env, &moved.join("LOCK")).unwrap();
    assert!(!held.is_in_place().unwrap());
    place.env.rename(&moved.join("aside"), &moved.join("LOCK")).unwrap();
    assert!(held.is_in_place().unwrap());
}

fn nothing_is_written_once_the_lock_was_lost(place: &Place) {
    let (plain, db) = (place.anchored(), place.path("db"));
    let path = db.join("LOCK");
    let lock: Arc<dyn DirLock> = plain.lock(&path, true, true).unwrap().into();
    let env = LockCheckedEnv::new(Arc::clone(&plain), &lock, &path);
    let file = create(&*env, &db.join("a")).unwrap();
    file.write_at(0, b"before").unwrap();
    plain.remove_file(&path).unwrap();
    let refused = |result: std::io::Result<()>| {
        let error = Error::io("a", result.unwrap_err());
        assert_eq!(error.kind(), StoreErrorKind::Poisoned, "{error}");
        assert!(error.to_string().contains("LOCK"), "{error}");
    };
    refused(file.write_at(0, b"after"));
    // Recreating the file is not enough: another process may have owned the lock in between.
    create(&*plain, &path).unwrap();
    refused(file.set_len(0));
    refused(file.allocate(0, 9999));
    refused(file.punch_hole(0, 4096));
    refused(create(&*env, &db.join("b")).map(drop));
    refused(env.rename(&db.join("a"), &db.join("c")));
    refused(env.remove_file(&db.join("a")));
    file.sync().unwrap();
    let mut bytes = [0; 6];
    file.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"before");
    assert_eq!(names(&*plain, &db), ["LOCK", "a"]);
}

macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $fact() { super::$fact(&super::Place::real()); })*
        }
        mod memory {
            $(#[test] fn $fact() { super::$fact(&super::Place::memory()); })*
        }
    };
}

facts!(
    anchored_directory_stays_the_same_when_moved,
    an_anchor_needs_a_directory,
    anchor_removes_only_its_own_directory,
    nested_anchor_refers_to_the_same_directory,
    lock_holder_is_reported,
    lock_detects_removal_or_replacement_of_its_file,
    nothing_is_written_once_the_lock_was_lost,
);

#[test]
fn a_link_to_a_directory_is_followed_once() {
    let place = Place::real();
    let (link, db) = (place.path("link"), place.path("db"));
    std::os::unix::fs::symlink(&db, &link).unwrap();
    let env = place.env.anchor(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    create(&*env, &link.join("a")).unwrap();
    assert_eq!(names(&*place.env, &db), ["a"]);
    assert_eq!(names(&*env, &link), ["a"]);
    // A link within the directory is not one of its files.
    std::os::unix::fs::symlink(db.join("a"), db.join("b")).unwrap();
    let options = OpenOptions { mode: OpenMode::Write, direct: false };
    assert_eq!(kind_of(env.open(&link.join("b"), options)), ErrorKind::InvalidInput);
}
