use testudo_testkit::Script;

use super::compare;

#[test]
fn a_different_answer_is_detected_and_a_missing_one_is_ignored() {
    let script: Script = "get 0 a\nget 0 b".parse().unwrap();
    let reference = [Some(1), Some(2), Some(3)];
    assert!(compare(&reference, &[Some(1), None, Some(3)], &script).is_ok());
    let wrong = compare(&reference, &[Some(1), Some(9), Some(3)], &script).unwrap_err();
    assert!(wrong.contains("step 1, get 0 b"), "{wrong}");
    let wrong = compare(&reference, &[Some(1), Some(2), Some(4)], &script).unwrap_err();
    assert!(wrong.contains("the final content"), "{wrong}");
    assert!(compare(&reference, &[Some(1)], &script).is_err());
}
