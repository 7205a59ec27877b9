use std::path::PathBuf;

use testudo_env::{CrashPolicy, MemEnv};

use super::*;

const STORE: StoreId = StoreId(42);

fn new_env() -> (std::sync::Arc<MemEnv>, PathBuf) {
    let env = MemEnv::new(1);
    let directory = PathBuf::from("/db");
    env.create_dir(&directory).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    (env, directory)
}

fn mark(number: u64) -> Watermark {
    Watermark { edit: number, seqno: Seqno(10 * number) }
}

#[test]
fn the_newest_slot_is_used_and_writing_resumes_after_reopening() {
    let (env, directory) = new_env();
    assert_eq!(read_watermark(&*env, &directory, STORE), Watermark::default());
    for number in 1..8 {
        let mut file = WatermarkFile::open(&*env, &directory, STORE).unwrap();
        file.write(&mark(number));
        assert_eq!(read_watermark(&*env, &directory, STORE), mark(number));
        assert_eq!(read_watermark(&*env, &directory, StoreId(43)), Watermark::default());
    }
}

#[test]
fn a_damaged_slot_falls_back_to_the_previous_one() {
    let (env, directory) = new_env();
    let mut file = WatermarkFile::open(&*env, &directory, STORE).unwrap();
    file.write(&mark(1));
    file.write(&mark(2));
    for byte in 0..u64_of(SLOT_BYTES) {
        env.corrupt(directory.join(WATERMARK_FILE), byte, 0x10).unwrap();
        // The four zero bytes are verified, too.
        assert_eq!(read_watermark(&*env, &directory, STORE), mark(1), "byte {byte}");
        env.corrupt(directory.join(WATERMARK_FILE), byte, 0x10).unwrap();
    }
}

#[test]
fn after_a_power_loss_the_watermark_is_at_most_what_was_written() {
    for seed in 0..200 {
        let (env, directory) = new_env();
        let mut file = WatermarkFile::open(&*env, &directory, STORE).unwrap();
        let last = 1 + seed % 7;
        (1..=last).for_each(|number| file.write(&mark(number)));
        let image = env.crash_image(&CrashPolicy::random(seed), seed);
        let found = read_watermark(&*image, &directory, STORE);
        assert!((0..=last).any(|number| found == mark(number)), "seed {seed}: {found:?}");
    }
}
