//! Access for `benches/active.rs` to active and flat memtables, which are not in the public API.

use super::{ActiveMemtable, FlatMemtable, MemoryOptions, Visibility};
use crate::types::{CellRef, Cursor, Generation, Kind, SeqNo, Timestamp};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bytes of chunks that the process has mapped, which no allocator sees.
pub fn mapped_bytes() -> usize {
    super::pages::MAPPED.load(std::sync::atomic::Ordering::Relaxed)
}

/// An active memtable of values with implicit timestamps.
pub struct ActiveProbe {
    active: Arc<ActiveMemtable>,
    seq: SeqNo,
}

/// The flat memtable made from an active one.
pub struct FlatProbe(Arc<FlatMemtable>);

impl ActiveProbe {
    /// Empty, with chunks as for an active memtable of that size.
    pub fn new(bytes: usize) -> Self {
        let options = MemoryOptions::for_active_bytes(bytes, 0, None);
        Self { active: Arc::new(ActiveMemtable::new(Generation(1), options)), seq: SeqNo::ZERO }
    }

    /// Inserts a value.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.seq = self.seq.next();
        let (timestamp, kind) = (Timestamp::ZERO, Kind::Value);
        self.active.writer().insert(&CellRef { key, timestamp, seq: self.seq, kind, written: 0, value });
    }

    /// Byte 50 of the key's newest value; values are longer.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        let mut found = None;
        let _ = self.active.get(key, SeqNo::MAX, &mut |cell, _| {
            found = Some(cell.value[50] as usize);
            ControlFlow::Break(())
        });
        found
    }

    /// Sums byte 50 of the values of up to `count` cells from the key on.
    pub fn walk(&self, key: &[u8], count: usize) -> usize {
        walk(&mut self.active.cursor(), key, count)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.active.bytes()
    }

    /// Flattens.
    pub fn flatten(&self) -> FlatProbe {
        let keep = Visibility { counts: false, visible: self.seq, snapshots: &[] };
        FlatProbe(Arc::new(FlatMemtable::from_active(&self.active, &keep)))
    }
}

impl FlatProbe {
    /// Byte 50 of the key's newest value; values are longer.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        let mut found = None;
        let _ = self.0.get(key, SeqNo::MAX, &mut |cell, _| {
            found = Some(cell.value[50] as usize);
            ControlFlow::Break(())
        });
        found
    }

    /// Sums byte 50 of the values of up to `count` cells from the key on.
    pub fn walk(&self, key: &[u8], count: usize) -> usize {
        walk(&mut self.0.cursor(), key, count)
    }
}

fn walk(cursor: &mut impl Cursor, key: &[u8], count: usize) -> usize {
    let mut sum = 0;
    if cursor.seek(key).is_err() {
        return sum;
    }
    for _ in 0..count {
        if !cursor.valid() {
            break;
        }
        sum += cursor.cell().value[50] as usize;
        if cursor.next().is_err() {
            break;
        }
    }
    sum
}
