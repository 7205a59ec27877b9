//! Reads many pages and blocks into the cache with one round of I/O.
//!
//! **Invariants**
//! - Who reads some pages waits for those of other threads only when its own are there.

use testudo_base::{PAGE_BYTES, Result, num::u64_of, sync::atomic::Ordering::Relaxed};
use testudo_env::ReadRequest;

use crate::{
    DataFile, PageAddress,
    cache::{Arrival, Awaited},
    data_file::cached_block::BlockLoad,
};

impl DataFile {
    /// Reads many pages and blocks at once, into the cache, and waits for those that other threads are
    /// reading. Fails with the first error. Pages for which the cache has no room are read by who asks for
    /// them next.
    pub fn load_pages(&self, addresses: &[PageAddress]) -> Result<()> {
        let (mut loads, mut awaited) = (Vec::with_capacity(addresses.len()), Vec::new());
        let mut blocks = Vec::new();
        for address in addresses {
            if address.pages > 1 {
                match BlockLoad::begin(self, address) {
                    Ok(load) => blocks.push(load),
                    Err(load) => awaited.push(load),
                }
                continue;
            }
            match self.begin_load(address) {
                Arrival::Load(loading) => loads.push((address, loading)),
                Arrival::Elsewhere(load) => awaited.push(load),
                Arrival::Present(_) | Arrival::Refused => {}
            }
        }
        let mut requests: Vec<ReadRequest<'_>> = loads
            .iter_mut()
            .map(|(address, loading)| ReadRequest::new(address.page * PAGE_BYTES, loading.bytes()))
            .chain(blocks.iter_mut().map(BlockLoad::request))
            .collect();
        self.file.read_batch(&mut requests);
        self.io.read_rounds.fetch_add(1, Relaxed);
        self.io.page_reads.fetch_add(u64_of(requests.len()), Relaxed);
        let bytes: usize = requests.iter().map(|request| request.buffer.len()).sum();
        self.io.page_read_bytes.fetch_add(u64_of(bytes), Relaxed);
        let results: Vec<std::io::Result<()>> = requests.into_iter().map(|request| request.result).collect();
        let mut outcome = Ok(());
        let mut results = results.into_iter();
        for ((address, mut loading), result) in loads.into_iter().zip(&mut results) {
            let verified = result
                .map_err(|error| self.read_error(address.page, error))
                .and_then(|()| self.check(loading.bytes(), address));
            match verified {
                Ok(()) => drop(loading.finish()),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        for (load, result) in blocks.into_iter().zip(results) {
            let ended = result.map_err(|error| self.read_error(load.page(), error));
            outcome = outcome.and(ended.and_then(|()| load.end(self).map(drop)));
        }
        // Only now: whoever reads those may wait for ours.
        awaited.into_iter().for_each(Awaited::wait);
        outcome
    }
}
