//! SSTables: immutable files of sorted cells, from their bytes to their readers.
//!
//! The byte layout is specified in `docs/format-sstable.md`. Inside the folder, from the bytes up: `frame`
//! puts every block under a checksum seeded with the SSTable's identity and the block's offset, `footer` has
//! header and footer, `compression` the codecs (`zstd` one of them); `block_builder` and `block_cursor` write
//! and walk the sorted block (`cache/block.rs`), `index` has separators and index entries, `properties` and
//! `tombstones` the small blocks; `reference` reads values that are in the WAL. Above these are `builder`
//! (writes an SSTable), `reader` (opens it; `remote_footer` reads the end of one in an object store), `get`
//! (point reads; `mapped` reads blocks in a mapping), `cursor` (both directions, read-ahead), `fill` (blocks
//! that compactions put into the cache and remove; `filled` holds them until the SSTable is published),
//! `warm_up` (the same for outputs of other processes), `pin` (values that outlive the read), and for people
//! and repair `inspect`, `verify` and `scan`.
//!
//! Not owned here: which SSTables exist and up to which *clip* their cells have moved (`version`; a reader
//! here answers for the whole file), which versions of a key survive (`compaction`), how long blocks stay in
//! memory (`cache`), when a file is removed or its directory synced (the caller).
//!
//! `forge` has the decoders, for fuzzing.

mod block_builder;
mod block_cursor;
mod builder;
mod compression;
mod cursor;
mod fill;
mod filled;
mod footer;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod forge;
mod frame;
mod get;
mod index;
mod inspect;
mod mapped;
mod pin;
mod properties;
mod reader;
mod reference;
mod remote_footer;
mod scan;
mod tombstones;
mod verify;
mod warm_up;

#[cfg(test)]
mod tests;
mod zstd;

pub(crate) use builder::TableBuilder;
pub use compression::Compression;
pub(crate) use cursor::{CursorOptions, TableCursor};
pub(crate) use fill::Replaced;
pub(crate) use filled::Filled;
pub(crate) use footer::{ends_as_table, is_own as is_own_file};
pub use inspect::BlockListing;
pub(crate) use inspect::CountedTo;
pub(crate) use reader::{Access, Sstable, Through, WrapFile};
pub(crate) use reference::{Reference, VALUE_BYTES_MIN};
pub(crate) use remote_footer::tail_bytes;
pub(crate) use scan::{ScanReport, scan_readable};
pub(crate) use warm_up::{Choice, Gather, Piece, Wanted, WarmUp};

/// The largest target size of a block.
pub(crate) const BLOCK_TARGET_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct TableOptions {
    /// A data block is cut once its uncompressed size reaches this.
    pub(crate) block_bytes: usize,
    /// Number of data block entries per whole key.
    pub(crate) restart_interval: usize,
    pub(crate) compression: Compression,
    /// Bloom filter bits for each distinct key; 0 for no filter.
    pub(crate) bloom_bits: u32,
    /// An index partition is cut once its uncompressed size reaches this.
    pub(crate) index_partition_bytes: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            restart_interval: 16,
            compression: Compression::default(),
            bloom_bits: 10,
            index_partition_bytes: 4096,
        }
    }
}
