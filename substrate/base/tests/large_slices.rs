//! Memory of large slices returns to the system. In a separate process, because only the memory of a whole
//! process can be measured.

#[cfg(all(target_os = "linux", not(miri)))]
use testudo_base::LargeSlice;

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn dropped_large_slices_return_to_the_system() {
    const COUNT: usize = 128;
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let mut slices: Vec<_> = (0..COUNT).map(|_| Some(LargeSlice::<u8>::zeroed(256 << 10))).collect();
    slices.iter_mut().flatten().for_each(|slice| slice.fill(1));
    let full = resident();
    slices.iter_mut().step_by(2).for_each(|slice| *slice = None);
    let left = resident();
    assert!(left + COUNT / 2 * (256 << 10) < full + (4 << 20), "{full} before, {left} after");
}
