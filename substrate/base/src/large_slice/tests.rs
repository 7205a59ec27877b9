use super::{LargeSlice, MAPPED_BYTES_MIN};

#[test]
fn slices_of_all_sizes_start_zeroed_and_hold_writes() {
    for len in [0, 1, MAPPED_BYTES_MIN / 8 - 1, MAPPED_BYTES_MIN / 8, MAPPED_BYTES_MIN / 8 + 1] {
        let mut slice = LargeSlice::<u64>::zeroed(len);
        assert_eq!(slice.len(), len);
        assert!(slice.iter().all(|&word| word == 0));
        slice.fill(7);
        let moved = slice;
        assert!(moved.iter().all(|&word| word == 7));
    }
}

#[test]
#[cfg(all(unix, not(miri)))]
fn large_slices_are_page_aligned() {
    let slices: Vec<_> = (0..4).map(|more| LargeSlice::<u8>::zeroed(MAPPED_BYTES_MIN + more)).collect();
    assert!(slices.iter().all(|slice| slice.as_ptr().addr() % 4096 == 0));
}

#[test]
fn zeroed_slice_is_zero_on_reused_memory() {
    for len in [MAPPED_BYTES_MIN / 8, MAPPED_BYTES_MIN / 8 + 1, 3 * MAPPED_BYTES_MIN / 8] {
        for _ in 0..4 {
            let mut slice = LargeSlice::<u64>::zeroed(len);
            assert!(slice.iter().all(|&word| word == 0));
            slice.fill(u64::MAX);
        }
    }
}

#[test]
fn default_slice_is_initialized_on_reused_memory() {
    #[derive(Debug, PartialEq)]
    struct Seven(u64);
    impl Default for Seven {
        fn default() -> Self {
            Self(7)
        }
    }
    for len in [0, 1, MAPPED_BYTES_MIN / 8 - 1, MAPPED_BYTES_MIN / 8, 3 * MAPPED_BYTES_MIN / 8] {
        for _ in 0..4 {
            let mut slice = LargeSlice::<Seven>::of_default(len);
            assert_eq!(slice.len(), len);
            assert!(slice.iter().all(|word| *word == Seven(7)));
            slice.iter_mut().for_each(|word| word.0 = 8);
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn successive_slices_reuse_pages_without_faults() {
    const BYTES: usize = 400 << 10;
    const COUNT: usize = 64;
    let faults = || {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let behind_name = text.rsplit(')').next().unwrap();
        behind_name.split_whitespace().nth(7).unwrap().parse::<usize>().unwrap()
    };
    let before = faults();
    for _ in 0..COUNT {
        LargeSlice::<u8>::unfilled(BYTES).fill(1);
    }
    // Other tests may take or evict the cached mappings in between, though not each time.
    let after = faults();
    assert!(after - before < COUNT * BYTES / 4096 / 2, "{} page faults", after - before);
}

#[test]
fn grown_slice_keeps_its_elements_and_drops_normally() {
    let first = MAPPED_BYTES_MIN / 8;
    let mut slice = LargeSlice::<u64>::zeroed(3);
    slice.copy_from_slice(&[1, 2, 3]);
    for len in [3, 4, first - 1, first, first + 1, 3 * first, 100 * first] {
        slice.grow(len);
        assert_eq!((slice.len(), &slice[..3]), (len, &[1, 2, 3][..]), "{len}");
        slice[len - 1] = if len > 3 { 9 } else { 3 };
    }
    slice.fill(u64::MAX);
    drop(slice);
    assert!(LargeSlice::<u64>::zeroed(3 * first).iter().all(|&word| word == 0));
}
