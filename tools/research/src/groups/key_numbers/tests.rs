use super::*;

fn numbers_of(keys: &[&str]) -> KeyNumbers {
    KeyNumbers::of(keys.iter().map(|key| key.as_bytes()))
}

#[test]
fn decimal_digits_are_as_regular_as_their_numbers() {
    let keys: Vec<String> = (0..1000).map(|number| format!("user{number:03}")).collect();
    let numbers = KeyNumbers::of(keys.iter().map(String::as_bytes));
    for (expected, key) in (0u64..).zip(&keys) {
        assert_eq!(numbers.number(key.as_bytes()), expected);
    }
    assert_eq!(numbers.greatest(), 999);
}

#[test]
fn other_keys_keep_their_order() {
    let numbers = numbers_of(&["user300", "user345", "user577"]);
    let mut others = vec![
        "", "a", "use", "user", "user!", "user3", "user3!!", "user300", "user3000", "user34", "user345",
        "user35", "user3z", "user4", "user444", "user499", "user577", "user5~", "user9", "usez", "z",
    ];
    others.sort_unstable();
    let all: Vec<u64> = others.iter().map(|key| numbers.number(key.as_bytes())).collect();
    assert!(all.is_sorted(), "{all:?}");
    assert!(all.iter().all(|number| *number <= numbers.greatest()));
}

#[test]
fn random_byte_keys_keep_their_order() {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for _ in 0..200 {
        let mut key = |alphabet: u64| -> Vec<u8> {
            (0..random() % 12).map(|_| u8::try_from(random() % alphabet).unwrap()).collect()
        };
        let mut made_for: Vec<Vec<u8>> = (0..20).map(|_| key(4)).collect();
        made_for.sort_unstable();
        let numbers = KeyNumbers::of(made_for.iter().map(Vec::as_slice));
        let mut keys: Vec<Vec<u8>> = (0..200).map(|_| key(7)).collect();
        keys.sort_unstable();
        let all: Vec<u64> = keys.iter().map(|key| numbers.number(key)).collect();
        assert!(all.is_sorted(), "made for {made_for:?}");
    }
}

#[test]
fn no_keys_and_one_key_have_numbers() {
    assert_eq!(numbers_of(&[]).number(b"a"), 0);
    assert_eq!(numbers_of(&["key"]).number(b"key"), 0);
}
