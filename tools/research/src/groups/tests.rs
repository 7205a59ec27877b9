use super::*;

struct Record {
    key: Vec<u8>,
    bytes: u64,
}

impl Placed for Record {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 32
}

const FILL: PageFill = PageFill { goal_bytes: 3_256, epsilon_bytes: 370, capacity_bytes: 3_996 };

/// Checks that every record is in one group, pages are in order, and none exceeds its capacity.
fn check(records: &[Record], fill: &PageFill) -> Vec<PageGroup> {
    let groups = cut_groups(records, fill);
    let mut rest = records;
    for group in &groups {
        let (own, behind) = rest.split_at(group.records);
        rest = behind;
        assert!(!own.is_empty());
        assert!(group.pages().is_power_of_two() && group.pages() <= GROUP_PAGES_MAX);
        let mut bytes = vec![(0, 0); usize::try_from(group.pages()).unwrap()];
        let mut before = 0;
        for record in own {
            let page = group.page_of(record.key());
            assert!(page >= before, "pages ascend");
            before = page;
            let page = &mut bytes[usize::try_from(page).unwrap()];
            *page = (page.0 + record.bytes, page.1 + 1);
        }
        assert!(bytes.iter().all(|(bytes, records)| *bytes <= fill.capacity_bytes || *records == 1));
    }
    assert!(rest.is_empty());
    groups
}

#[test]
fn equidistant_keys_make_groups_of_sixteen_pages() {
    let records: Vec<Record> =
        (0..10_000u64).map(|at| Record { key: (at * 7).to_be_bytes().to_vec(), bytes: 74 }).collect();
    let groups = check(&records, &FILL);
    let pages: u32 = groups.iter().map(PageGroup::pages).sum();
    assert!(groups.len() <= 18, "{} groups, {pages} pages", groups.len());
    // 44 records of 74 bytes per page.
    assert!((225..=232).contains(&pages), "{pages}");
}

#[test]
fn keys_of_any_shape_and_records_of_any_size_are_placed() {
    let mut state = 3;
    for round in 0..60u64 {
        let mut records: Vec<Record> = (0..600)
            .map(|_| {
                let bytes = 20 + random(&mut state) % if round % 3 == 0 { 6_000 } else { 200 };
                let key = match round % 4 {
                    0 => random(&mut state).to_be_bytes().to_vec(),
                    1 => format!("host-{:06}", random(&mut state) % 1_000_000).into_bytes(),
                    2 => vec![
                        u8::try_from(random(&mut state) % 3).unwrap();
                        usize::try_from(random(&mut state) % 90).unwrap()
                    ],
                    _ => {
                        let bunch = random(&mut state) % 7 * 1_000_003;
                        (bunch + random(&mut state) % 300).to_be_bytes().to_vec()
                    }
                };
                Record { key, bytes }
            })
            .collect();
        records.sort_by(|a, b| a.key.cmp(&b.key));
        records.dedup_by(|a, b| a.key == b.key);
        check(&records, &FILL);
        check(&records, &PageFill::new(1_000, 4_000, 3_996));
        check(&records, &PageFill::new(3_996, 0, 3_996));
    }
}

#[test]
fn a_larger_epsilon_makes_larger_groups_of_random_keys() {
    let mut state = 5;
    let mut keys: Vec<u64> = (0..40_000).map(|_| (random(&mut state) << 31) | random(&mut state)).collect();
    keys.sort_unstable();
    keys.dedup();
    let records: Vec<Record> =
        keys.iter().map(|key| Record { key: key.to_be_bytes().to_vec(), bytes: 74 }).collect();
    let groups_with = |epsilon: u64| {
        let groups = check(&records, &PageFill::new(30 * 74, epsilon * 74, 54 * 74));
        groups.len()
    };
    let counts = [1, 5, 12].map(groups_with);
    assert!(counts[0] > counts[1] && counts[1] > counts[2], "{counts:?}");
}

#[test]
fn absent_keys_map_to_the_page_they_would_be_on() {
    let records: Vec<Record> =
        (0..704u64).map(|at| Record { key: (at * 1_000).to_be_bytes().to_vec(), bytes: 74 }).collect();
    let groups = check(&records, &FILL);
    assert_eq!(groups[0].pages(), 16);
    let pages: Vec<u32> = (0..704_000u64).map(|key| groups[0].page_of(&key.to_be_bytes())).collect();
    assert!(pages.is_sorted());
    assert_eq!((pages[0], pages[703_999]), (0, 15));
}
