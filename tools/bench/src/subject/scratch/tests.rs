use testudo_env::RealEnv;

use super::Scratch;

#[test]
fn created_directory_is_removed_and_named_one_is_kept() {
    let env = RealEnv::new();
    let parent = tempfile::tempdir().unwrap();
    let made = Scratch::new(&*env, None, Some(parent.path())).unwrap();
    std::fs::write(made.path().join("data"), "x").unwrap();
    let made_path = made.path().to_owned();
    drop(made);
    assert!(!made_path.exists());

    let named = parent.path().join("store");
    for _ in 0..2 {
        let scratch = Scratch::new(&*env, Some(&named), None).unwrap();
        assert_eq!(scratch.path(), named);
    }
    assert!(named.exists());
}

#[test]
fn directory_creation_error_names_the_flag() {
    let env = RealEnv::new();
    let parent = tempfile::tempdir().unwrap();
    let error = Scratch::new(&*env, Some(&parent.path().join("a/b")), None).unwrap_err();
    assert!(error.to_string().contains("--dir"), "{error}");
}
