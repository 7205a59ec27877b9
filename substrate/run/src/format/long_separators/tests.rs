use super::*;

/// Sorted keys with shared prefixes of all lengths.
fn keys(letters: &[u8], length: usize) -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..length {
        let to = keys.len();
        for at in from..to {
            for &letter in letters {
                keys.push([&keys[at][..], &[letter]].concat());
            }
        }
        from = to;
    }
    keys.sort();
    keys
}

fn forks(firsts: &[&Vec<u8>]) -> Vec<Fork> {
    let mut forks = vec![Fork { shared: 7, byte: 9 }];
    forks.extend(firsts.windows(2).map(|pair| Fork::between(pair[0], pair[1])));
    forks
}

#[test]
fn forks_lead_every_key_to_its_block_with_few_comparisons() {
    let all = keys(b"\0a\xff", 4);
    for (step, start) in [(1, 0), (2, 1), (3, 0), (5, 2), (11, 3)] {
        let firsts: Vec<&Vec<u8>> = all.iter().skip(start).step_by(step).collect();
        let forks = forks(&firsts);
        for key in &all {
            let mut looks = 0;
            let found = count_at_or_before(key, &forks, |at| {
                looks += 1;
                Ok(compare_first(key, firsts[at]))
            });
            let expected = firsts.iter().filter(|first| **first <= key).count();
            assert_eq!(found.unwrap(), expected, "{key:?}");
            assert!(looks <= 2, "{looks} comparisons for {key:?}");
        }
    }
}

#[test]
fn forks_of_a_subset_follow_from_those_of_all_blocks() {
    let all = keys(b"abc", 4);
    for step in 2..9 {
        let mut led: Option<Fork> = None;
        for at in 1..all.len() {
            let fork = Fork::between(&all[at - 1], &all[at]);
            let joined = led.map_or(fork, |led| led.then(fork));
            led = Some(joined);
            if at % step == 0 {
                assert_eq!(led.take(), Some(Fork::between(&all[at - step], &all[at])));
            }
        }
    }
}

#[test]
fn the_search_terminates_with_wrong_forks() {
    let all = keys(b"ab", 3);
    let firsts: Vec<&Vec<u8>> = all.iter().collect();
    for seed in 0..200u32 {
        let wrong = |at: usize| {
            let mixed = (u32::try_from(at).unwrap() + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9) | 1);
            Fork { shared: mixed >> 29, byte: b'a' + u8::try_from(mixed >> 27 & 1).unwrap() }
        };
        let forks: Vec<Fork> = (0..firsts.len()).map(wrong).collect();
        for key in &all {
            let mut looks = 0;
            let found = count_at_or_before(key, &forks, |at| {
                looks += 1;
                Ok(compare_first(key, firsts[at]))
            });
            assert!(found.is_ok() && looks <= firsts.len());
        }
    }
}

#[test]
fn separators_are_cut_only_if_no_short_one_exists() {
    let long = |tail: &str| [&[b'p'; 300][..], tail.as_bytes()].concat();
    let short = Separator::between(b"a", &long("x"), b"q77");
    assert_eq!(short, Separator { bytes: b"q".to_vec(), fork: None });
    let cut = Separator::between(&long("bad"), &long("bcd"), &long("bce"));
    let fork = Some(Fork { shared: 301, byte: b'c' });
    assert_eq!(cut, Separator { bytes: vec![b'p'; MAX_SEPARATOR_BYTES], fork });
}
