use std::path::Path;

use super::*;

fn hit_ratio(cache: &dyn Subject, trace: &[u64]) -> f64 {
    let mut hits = 0_u32;
    for &page in trace {
        if cache.hit(page) {
            hits += 1;
        } else {
            cache.put(page, &[9; PAGE_SIZE]);
        }
    }
    f64::from(hits) / trace.len() as f64
}

#[test]
fn real_trace_hit_ratio_is_close_to_lru_or_better() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/git_trace.txt.zst");
    let trace = pages_of(&path).unwrap();
    let gains: Vec<f64> = [256, 1024, 4096]
        .into_iter()
        .map(|pages| {
            let cache = PageCache::new(pages * PAGE_BYTES);
            hit_ratio(&cache, &trace) - hit_ratio(&ShardedLru::new(usize_of(pages)), &trace)
        })
        .collect();
    assert!(gains.iter().all(|&gain| gain > -0.01), "{gains:?}");
    assert!(gains.iter().sum::<f64>() > 0.02, "{gains:?}");
}
