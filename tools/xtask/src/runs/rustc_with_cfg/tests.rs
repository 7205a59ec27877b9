use std::path::Path;

use super::cfg_of;

#[test]
fn wrapper_adds_the_cfg_named_by_its_folder() {
    let cfg = |path: &str| cfg_of(Path::new(path)).map(|cfg| cfg.to_string_lossy().into_owned());
    assert_eq!(cfg("/target/special/testudo_planted/rustc-with-cfg").as_deref(), Some("testudo_planted"));
    assert_eq!(cfg("/target/debug/xtask"), None);
    assert_eq!(cfg("/target/debug/rustc"), None);
}
