#![expect(unsafe_code, reason = "a page that the kernel wipes in forked children")]
//! A word that is not zero in this process, and zero in a forked child of it until that writes it.
//!
//! It lies in a page of its own that the kernel wipes at a fork (`MADV_WIPEONFORK`), whoever forks and by
//! which call: handlers of `pthread_atfork` would miss a plain `clone`.
//!
//! **Invariants**
//! - The page is made once, and is there until the process ends.
//! - Nobody waits here: a child may come from the middle of any call of another thread.

#[cfg(all(target_os = "linux", not(miri)))]
mod page {
    use std::{
        ptr::{self, NonNull},
        sync::atomic::{
            AtomicBool, AtomicPtr, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    };

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    const PAGE_BYTES: usize = 4096;

    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    /// The kernel cannot wipe pages.
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);

    pub(crate) fn word() -> Option<&'static AtomicU64> {
        let known = WORD.load(Acquire);
        if !known.is_null() {
            // SAFETY: as below, whoever stored it.
            return Some(unsafe { &*known });
        }
        if IS_REFUSED.load(Relaxed) {
            return None;
        }
        let Some(fresh) = map() else {
            IS_REFUSED.store(true, Relaxed);
            return None;
        };
        let stored = match WORD.compare_exchange(ptr::null_mut(), fresh.as_ptr(), AcqRel, Acquire) {
            Ok(_) => fresh.as_ptr(),
            Err(first) => {
                unmap(fresh);
                first
            }
        };
        // SAFETY: it points to a page of zeroes, which are an `AtomicU64`, that is written through it alone
        // and never unmapped.
        Some(unsafe { &*stored })
    }

    fn map() -> Option<NonNull<AtomicU64>> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping anywhere, which nobody else has.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, flags) };
        let page: NonNull<AtomicU64> = NonNull::new(start.ok()?.cast())?;
        // SAFETY: the page is ours alone, and is zero before as well as after a fork.
        let advised = unsafe { madvise(page.as_ptr().cast(), PAGE_BYTES, Advice::LinuxWipeOnFork) };
        if advised.is_err() {
            unmap(page);
            return None;
        }
        Some(page)
    }

    /// REQUIRES: `map` made it, and nobody else has it.
    fn unmap(page: NonNull<AtomicU64>) {
        // SAFETY: exactly this was mapped, and its only owner gives it up.
        let _ = unsafe { munmap(page.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod page {
    use std::sync::atomic::AtomicU64;

    pub(crate) fn word() -> Option<&'static AtomicU64> {
        None
    }
}

/// The word; `None` where the kernel cannot wipe a page.
pub(crate) use page::word;
