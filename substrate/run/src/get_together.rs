//! Looking several keys up in few reads: for who knows which keys will be needed.
//!
//! **Invariants**
//! - Each block is read once, however many of the keys are in it. Blocks that lie side by side are one read;
//!   all reads are under way together.
//! - Every block is verified before it is parsed.

use std::ops::Range;

use testudo_base::{
    ExtentSpan, PAGE_SIZE, Result,
    num::{u64_of, usize_of},
};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, PageAddress, PageKind, payload_of};

use crate::{
    Access, Lookup, Run,
    format::{block::Block, footer::BlockPosition},
};

/// A key in a run that is known to hold it.
#[derive(Clone, Copy, Debug)]
pub struct KnownKey<'a> {
    /// The run.
    pub run: &'a Run,
    /// The key.
    pub key: &'a [u8],
}

/// A block that has to be read, and which of the keys are in it.
struct Wanted {
    position: BlockPosition,
    address: PageAddress,
    pieces: Vec<ExtentSpan>,
    keys: Vec<usize>,
}

impl Wanted {
    fn bytes(&self) -> usize {
        usize_of(u64::from(self.position.pages)) * PAGE_SIZE
    }
}

/// What each of the runs says of its key: [`Lookup::Absent`] if it does not hold it after all. All runs are
/// in `data`. What is in the cache is not read, and single pages go there; longer blocks never do.
///
/// Errors: `Io`, `Corruption`; then nothing is known of any key.
pub fn get_known_together(data: &DataFile, keys: &[KnownKey<'_>]) -> Result<Vec<Lookup>> {
    let mut found = vec![Lookup::Absent; keys.len()];
    let wanted = wanted_blocks(data, keys, &mut found)?;
    let mut buffer = AlignedBuffer::unfilled(wanted.iter().map(Wanted::bytes).sum());
    read_all(data, &wanted, &mut buffer)?;
    let mut rest: &[u8] = &buffer;
    for block in &wanted {
        let (bytes, behind) = rest.split_at(block.bytes());
        rest = behind;
        data.verify(bytes, &block.address)?;
        if block.position.pages == 1 {
            data.admit(&block.address, bytes);
        }
        for &at in &block.keys {
            let KnownKey { run, key } = keys[at];
            found[at] = look_up(bytes, key).map_err(|damage| run.damaged(block.position.page, damage))?;
        }
    }
    Ok(found)
}

/// The blocks that are not in the cache, in the order of their places, each once. What is in the cache is put
/// into `found`.
fn wanted_blocks(data: &DataFile, keys: &[KnownKey<'_>], found: &mut [Lookup]) -> Result<Vec<Wanted>> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for (at, KnownKey { run, key }) in keys.iter().enumerate() {
        if !run.reference().keys.may_hold(key) {
            continue;
        }
        let position = run.block_for(key, Access::Blocking)?.expect("a blocking read returns its block");
        let address = run.address(PageKind::Data, position.page)?;
        // Keys often come in the order of their runs.
        if let Some(last) = wanted.last_mut().filter(|last| last.address == address) {
            last.keys.push(at);
        } else if position.pages == 1
            && let Some(page) = data.cached_page(&address)
        {
            found[at] = look_up(&page, key).map_err(|damage| run.damaged(position.page, damage))?;
        } else {
            wanted.push(Wanted { position, address, pieces: run.pieces(position)?, keys: vec![at] });
        }
    }
    wanted.sort_by_key(|block| block.address.page);
    wanted.dedup_by(|block, before| {
        let is_same = block.address == before.address;
        if is_same {
            before.keys.append(&mut block.keys);
        }
        is_same
    });
    Ok(wanted)
}

/// Reads blocks into the buffer, one behind the other.
fn read_all(data: &DataFile, wanted: &[Wanted], buffer: &mut [u8]) -> Result<()> {
    // Where each read begins in the file, and which bytes of the buffer it fills.
    let mut reads: Vec<(u64, Range<usize>)> = Vec::new();
    let mut end = 0;
    for piece in wanted.iter().flat_map(|block| &block.pieces) {
        let bytes = usize_of(piece.bytes());
        match reads.last_mut() {
            Some((page, range)) if *page + u64_of(range.len() / PAGE_SIZE) == piece.first_page => {
                range.end += bytes;
            }
            _ => reads.push((piece.first_page, end..end + bytes)),
        }
        end += bytes;
    }
    let mut rest = buffer;
    let mut requests = Vec::with_capacity(reads.len());
    for (page, range) in reads {
        let (bytes, behind) = rest.split_at_mut(range.len());
        requests.push((page, bytes));
        rest = behind;
    }
    if requests.is_empty() {
        return Ok(());
    }
    data.read_many(&mut requests).into_iter().collect()
}

fn look_up(bytes: &[u8], key: &[u8]) -> std::result::Result<Lookup, testudo_base::codec::Damage> {
    let block = Block::parse(payload_of(bytes))?;
    let (index, is_equal) = block.lower_bound(key)?;
    if !is_equal {
        return Ok(Lookup::Absent);
    }
    let cell = block.cell(index)?;
    Ok(Lookup::Found(cell.kind, cell.value.to_vec(), testudo_storage::Neighbours::default()))
}
