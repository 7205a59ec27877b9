use std::{path::Path, sync::Arc};

use super::OverlayFile;
use crate::{AlignedBuffer, Env, File, MemEnv, OpenMode, OpenOptions, ReadRequest, SplitMix};

const PAGE: usize = 4096;

fn file(env: &MemEnv, pages: usize) -> Arc<dyn File> {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    let file = env.open(Path::new("/file"), options).unwrap();
    for page in 0..pages {
        let byte = u8::try_from(page % 250).unwrap() + 1;
        file.write_at((page * PAGE) as u64, &[byte; PAGE]).unwrap();
    }
    file
}

#[test]
fn random_changes_match_a_model_and_leave_the_base_unchanged() {
    let env = MemEnv::new(1);
    let base = file(&env, 40);
    let before = env.file_bytes("/file").unwrap();
    let files_before = env.all_files();
    let overlay = OverlayFile::over(base, env.clone()).unwrap();
    let mut model = before.clone();
    let mut random = SplitMix::new(7);
    for _ in 0..2_000 {
        let at = PAGE * usize::try_from(random.below(60)).unwrap();
        let bytes = PAGE * usize::try_from(1 + random.below(6)).unwrap();
        match random.below(12) {
            0 => {
                overlay.set_len((at + PAGE) as u64).unwrap();
                model.resize(at + PAGE, 0);
            }
            1 => {
                overlay.allocate(at as u64, bytes as u64).unwrap();
                model.resize(model.len().max(at + bytes), 0);
            }
            2 | 3 => {
                overlay.punch_hole(at as u64, bytes as u64).unwrap();
                let end = model.len().min(at + bytes);
                model[at.min(end)..end].fill(0);
            }
            _ => {
                let mut written = AlignedBuffer::zeroed(bytes);
                written.fill(u8::try_from(random.below(256)).unwrap());
                overlay.write_at(at as u64, &written).unwrap();
                model.resize(model.len().max(at + bytes), 0);
                model[at..at + bytes].copy_from_slice(&written);
            }
        }
        assert_eq!(overlay.len().unwrap(), model.len() as u64);
        let mut read = AlignedBuffer::zeroed(model.len());
        overlay.read_at(0, &mut read).unwrap();
        assert!(*read == *model, "a read of all of the file differs");
    }
    let mut beyond = AlignedBuffer::zeroed(PAGE);
    assert!(overlay.read_at(model.len() as u64, &mut beyond).is_err());
    assert!(env.file_bytes("/file").unwrap() == before, "the underlying file has changed");
    assert_eq!(env.all_files(), files_before, "the temporary file has a name");
}

#[test]
fn batch_reads_base_and_changes_in_request_order() {
    let env = MemEnv::new(1);
    let overlay = OverlayFile::over(file(&env, 8), env.clone()).unwrap();
    let mut written = AlignedBuffer::zeroed(2 * PAGE);
    written.fill(99);
    overlay.write_at(PAGE as u64, &written).unwrap();
    let mut buffers: Vec<_> = (0..5).map(|_| AlignedBuffer::zeroed(PAGE)).collect();
    let mut requests: Vec<ReadRequest<'_>> = buffers
        .iter_mut()
        .enumerate()
        .map(|(page, buffer)| ReadRequest::new((page * PAGE) as u64, buffer))
        .collect();
    overlay.read_batch(&mut requests);
    assert!(requests.iter().all(|request| request.result.is_ok() && request.buffer.len() == PAGE));
    let firsts: Vec<u8> = buffers.iter().map(|buffer| buffer[0]).collect();
    assert_eq!(firsts, [1, 99, 99, 4, 5]);
}
