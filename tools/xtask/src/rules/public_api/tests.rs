use super::{HEADER, PUBLIC_API, check, public_api};
use crate::checkout::sources::Source;

fn sources(engine: &str) -> Vec<Source> {
    let manifest = |folder: &str, name: &str| {
        Source::new(&format!("{folder}/Cargo.toml"), &format!("[package]\nname = \"{name}\"\n"))
    };
    vec![
        manifest("testudo", "testudo"),
        Source::new(
            "testudo/src/lib.rs",
            "//! All.\npub use testudo_db::{\n    Handle, Level as Depth,\n    Go, go, handles,\n};\n",
        ),
        manifest("engine/db", "testudo-db"),
        Source::new(
            "engine/db/src/lib.rs",
            "mod db;\nmod go;\npub use db::handles::{self, Handle};\npub use db::Level;\n\
             pub use go::{Go, go};\n",
        ),
        Source::new(
            "engine/db/src/db.rs",
            "pub mod handles;\npub enum Level {\n    /// x\n    Low,\n    High {\n        by: u8,\n    },\n\
             }\n\
             trait Internal {}\nimpl Internal for Level {}\n",
        ),
        Source::new("engine/db/src/db/handles.rs", engine),
        Source::new(
            "engine/db/src/go.rs",
            "pub fn go(mut steps: u8) {}\npub trait Go {\n    fn by(&self);\n    fn to(&self) {}\n}\n",
        ),
    ]
}

const HANDLES: &str = "\
/// A handle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Handle<'a> {
    /// Its name.
    pub name: &'a str,
    hidden: u8,
}

impl<'a> Handle<'a> {
    calls!();

    /// Opens.
    pub fn open(
        &self,
        name: &str,
    ) -> Result<()> {
        pub_inner()
    }

    fn own(&self) {}
}

impl fmt::Display for Handle<'_> {
    fn fmt(&self) {}
}

macro_rules! calls {
    () => {
        pub fn call(&self) -> u8 {
            1
        }
    };
}

group! {
    pub struct Sizes {
        #[metric(\"a\")]
        pub bytes: u64,
    }
}

pub struct Pinned(Arc<u8>, pub u64);
";

#[test]
fn list_has_fields_variants_methods_and_traits_of_every_export() {
    let list = public_api(&sources(HANDLES));
    assert_eq!(
        list.strip_prefix(HEADER).expect("the header").lines().collect::<Vec<_>>(),
        [
            "testudo::Depth: pub enum Level",
            "testudo::Depth: variant High { by: u8, }",
            "testudo::Depth: variant Low",
            "testudo::Go: fn by(&self)",
            "testudo::Go: fn to(&self) [provided]",
            "testudo::Go: pub trait Go",
            "testudo::Handle: impl fmt::Display for Handle<'_>",
            "testudo::Handle: pub fn call(&self) -> u8",
            "testudo::Handle: pub fn open(&self, name: &str) -> Result<()>",
            "testudo::Handle: pub name: &'a str",
            "testudo::Handle: pub struct Handle<'a> [Clone, Debug, has private fields, non_exhaustive]",
            "testudo::go: pub fn go(steps: u8)",
            "testudo::handles::Handle: the same as testudo::Handle",
            "testudo::handles::Pinned: pub struct Pinned(_, pub u64)",
            "testudo::handles::Sizes: pub bytes: u64",
            "testudo::handles::Sizes: pub struct Sizes",
        ]
    );
}

#[test]
fn changed_signature_is_a_finding() {
    let list = public_api(&sources(HANDLES));
    let with_list = |engine: &str| {
        let mut sources = sources(engine);
        sources.push(Source::new(PUBLIC_API, &list));
        check(&sources)
    };
    assert_eq!(with_list(HANDLES), None);
    assert_eq!(with_list(&HANDLES.replace("fn own(&self)", "fn own(&mut self)")), None, "it is private");
    let finding = with_list(&HANDLES.replace("name: &str,", "name: String,")).expect("a finding");
    assert!(finding.message.contains("public-api") && finding.line > HEADER.lines().count());
    assert!(check(&sources(HANDLES)).is_some_and(|finding| finding.message == "is missing"));
}
