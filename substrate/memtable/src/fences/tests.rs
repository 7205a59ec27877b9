use super::Fences;

fn naive(keys: &[Vec<u8>], key: &[u8]) -> (usize, usize) {
    (
        keys.iter().filter(|&fence| &**fence <= key).count(),
        keys.iter().filter(|&fence| &**fence < key).count(),
    )
}

fn check(fences: &Fences, keys: &[Vec<u8>]) {
    assert_eq!(fences.len(), keys.len());
    let near = |key: &Vec<u8>| {
        let mut below = key.clone();
        below.pop();
        [key.clone(), [key, &b"\0"[..]].concat(), [key, &b"\xff\xff"[..]].concat(), below]
    };
    let probes = keys.iter().flat_map(near).chain([vec![], vec![0; 9], vec![0xff; 30], b"prefix/".to_vec()]);
    for probe in probes {
        assert_eq!((fences.child_of(&probe), fences.child_before(&probe)), naive(keys, &probe), "{probe:?}");
    }
}

fn keys_of(shape: usize, count: u32) -> Vec<Vec<u8>> {
    let of = |i: u32| match shape {
        0 => (i * 2_654_435).to_be_bytes().to_vec(),
        1 => [&b"prefix/that/is/long/"[..], &i.to_be_bytes()].concat(),
        2 => vec![b'a'; 1 + i as usize],
        _ => vec![0; 1 + i as usize],
    };
    let mut keys: Vec<_> = (0..count).map(of).collect();
    keys.sort();
    keys
}

#[test]
fn ranks_match_a_linear_scan_for_any_insert_order() {
    for shape in 0..4 {
        let all = keys_of(shape, 40);
        let mut fences = Fences::default();
        let mut present: Vec<Vec<u8>> = Vec::new();
        check(&fences, &present);
        for step in 0..all.len() {
            let key = all[step * 17 % all.len()].clone();
            let at = present.partition_point(|other| *other < key);
            fences.insert(at, key.clone());
            present.insert(at, key);
            check(&fences, &present);
        }
        let (middle, right) = fences.split(15);
        assert_eq!(middle, present[15]);
        check(&fences, &present[..15]);
        check(&right, &present[16..]);
    }
}
