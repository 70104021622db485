//! The cache around the switch from a merge's inputs to its outputs. With `step` and `write-through` blocks went in while the
//! tables were written (`table/fill.rs`); here is what is told of it, and what comes at the end of a step: bringing blocks of
//! its outputs into the cache before it is published (`table/warm_up.rs`), and taking out what the inputs have below the step's
//! clip once it is. They are brought from storage, all of them (`before`), or from the memory of a compaction server that made
//! the step: then as the database's own merges would have filled the cache.
//!
//! Bringing goes piece by piece between advances, and a worker never waits for another process. It may fail, and then readers
//! warm the rest: a fill that fails is no failure of the merge.

use crate::catalog::Catalog;
use crate::commit::Store;
use crate::error::Result;
use crate::event::EventKind;
use crate::merge::Totals;
use crate::offload::{RemoteCache, RemoteRead};
use crate::shape::TableInfo;
use crate::table::{Choice, Gather, Piece, Replaced, Wanted, WarmUp};
use crate::types::{KeyRange, TableId};
use crate::version::{OpenTable, TableHandle};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Pieces asked for ahead of the one that is waited for.
const PIECES_COMING: usize = 8;
/// A larger block is left to storage.
const BLOCK_MAX: u64 = 4 << 20;
/// Their bytes, but for one piece.
const COMING_BYTES: u64 = 1 << 20;

/// What a merge, or a flush that merged, did to the cache.
#[derive(Default)]
pub(crate) struct Fills {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    evicted_blocks: u64,
    evicted_bytes: u64,
    /// Blocks and bytes that the merge had filled when it was asked last.
    noted: (u64, u64),
    /// Of these, bytes in the file that came from another process's memory.
    pub(crate) remote_bytes: u64,
    /// Why bringing them ended.
    pub(crate) failed: Option<String>,
}

impl Fills {
    /// Takes down what the merge has put there by now; the bytes since the last time.
    pub(crate) fn note(&mut self, totals: &Totals) -> u64 {
        let filled = totals.filled;
        let (blocks, bytes) = (filled.0 - self.noted.0, filled.1 - self.noted.1);
        self.noted = filled;
        self.blocks += blocks;
        self.bytes += bytes;
        bytes
    }

    /// Takes down what left as a step was installed.
    pub(crate) fn note_evicted(&mut self, blocks: u64, bytes: u64) {
        self.evicted_blocks += blocks;
        self.evicted_bytes += bytes;
    }

    pub(crate) fn tell(&self, catalog: &Catalog, store: &Store, (keys, warm_keys): (u64, u64)) {
        if self.blocks + self.evicted_blocks == 0 && self.failed.is_none() {
            return;
        }
        let reason = match &self.failed {
            None => "blocks of a merge's outputs in, of its inputs out".into(),
            Some(why) => {
                format!("bringing outputs into the cache failed, the rest is left to readers: {why}")
            }
        };
        let numbers = [
            ("filled_blocks", self.blocks),
            ("filled_bytes", self.bytes),
            ("remote_bytes", self.remote_bytes),
            ("evicted_blocks", self.evicted_blocks),
            ("evicted_bytes", self.evicted_bytes),
            ("keys", keys),
            ("warm_keys", warm_keys),
        ];
        catalog.commit.events.record(EventKind::Fill, &store.name, reason, &numbers);
    }
}

/// Where blocks of a step's outputs are had from.
pub(crate) enum Origin {
    /// The table's file.
    Storage,
    /// The memory of who ran the merge.
    Remote(Arc<dyn RemoteCache>),
}

/// The outputs of a step on their way into the cache, before it is published.
pub(crate) struct WarmingUp {
    /// To be published. What is brought of them stays then.
    pub(crate) opened: BTreeMap<TableId, Arc<TableHandle>>,
    /// First what is wanted is gathered, where not all is.
    gathering: Option<Gathering>,
    warm_up: WarmUp,
    from: Origin,
    /// Asked for and not there yet, in order.
    coming: VecDeque<(Piece, Box<dyn RemoteRead>)>,
    coming_bytes: u64,
    /// Nothing more is to be asked for.
    is_all: bool,
    /// Bytes that came from another process's memory.
    pub(crate) remote_bytes: u64,
    /// Why nothing more is brought.
    pub(crate) failed: Option<String>,
}

struct Gathering {
    tables: Vec<Gather>,
    upto: Option<Vec<u8>>,
    wanted: Wanted,
    replaced: Replaced,
}

/// What a little of it came to.
pub(crate) enum Brought {
    /// So many blocks and bytes entered the cache.
    Blocks(u64, u64),
    /// Nothing is there yet.
    NotYet,
    /// That was all, or nothing more is to be had.
    All,
}

impl WarmingUp {
    /// Brings all blocks of these outputs.
    pub(crate) fn all(
        opened: BTreeMap<TableId, Arc<TableHandle>>,
        outputs: &[Arc<TableInfo>],
        from: Origin,
    ) -> Self {
        Self::new(opened, outputs, from, Choice::All, None)
    }

    /// Brings those blocks of these outputs of which the cache has what they replace: of these runs, from that key on and below that
    /// one.
    pub(crate) fn wanted(
        opened: BTreeMap<TableId, Arc<TableHandle>>,
        outputs: &[Arc<TableInfo>],
        from: Origin,
        runs: &[Vec<OpenTable>],
        (low, upto): (&[u8], Option<&[u8]>),
    ) -> Self {
        let mut replaced = Replaced::default();
        let mut tables = Vec::new();
        let range = KeyRange { start: low.to_vec(), end: upto.map(<[u8]>::to_vec) };
        for run in runs {
            let within: Vec<_> = run.iter().filter(|open| open.info.overlaps(&range)).collect();
            replaced.add_run(within.iter().map(|open| open.table()));
            tables.extend(within.iter().map(|open| Gather::new(open.table(), low.max(open.start()))));
        }
        let gathering = Gathering { tables, upto: range.end, wanted: Wanted::default(), replaced };
        Self::new(opened, outputs, from, Choice::All, Some(gathering))
    }

    fn new(
        opened: BTreeMap<TableId, Arc<TableHandle>>,
        outputs: &[Arc<TableInfo>],
        from: Origin,
        choice: Choice,
        gathering: Option<Gathering>,
    ) -> Self {
        let tables = outputs.iter().map(|info| opened[&info.id].table.clone()).collect();
        let block_max = if matches!(from, Origin::Storage) { u64::MAX } else { BLOCK_MAX };
        Self {
            opened,
            gathering,
            warm_up: WarmUp::new(tables, choice, block_max),
            from,
            coming: VecDeque::new(),
            coming_bytes: 0,
            is_all: false,
            remote_bytes: 0,
            failed: None,
        }
    }

    /// Does a little.
    pub(crate) fn advance(&mut self) -> Brought {
        self.try_advance().unwrap_or_else(|e| {
            self.failed = Some(e.to_string());
            Brought::All
        })
    }

    fn try_advance(&mut self) -> Result<Brought> {
        if let Some(gathering) = &mut self.gathering {
            if !gathering.advance() {
                let Some(Gathering { mut wanted, replaced, .. }) = self.gathering.take() else {
                    return Ok(Brought::All);
                };
                wanted.sort();
                self.warm_up.choose(Choice::Wanted(wanted, replaced));
            }
            return Ok(Brought::Blocks(0, 0));
        }
        let Origin::Remote(remote) = &self.from else {
            let Some(piece) = self.warm_up.next()? else { return Ok(Brought::All) };
            if piece.bytes() == 0 {
                return Ok(Brought::Blocks(0, 0));
            }
            let bytes = self.warm_up.read(&piece)?;
            let (blocks, bytes) = self.warm_up.put(&piece, &bytes)?;
            return Ok(Brought::Blocks(blocks, bytes));
        };
        // A new pass asks what came in the one before.
        let is_full = self.coming.len() >= PIECES_COMING || self.coming_bytes >= COMING_BYTES;
        if !self.is_all && !is_full && (self.coming.is_empty() || !self.warm_up.ends_pass()) {
            match self.warm_up.next()? {
                Some(piece) if piece.bytes() == 0 => return Ok(Brought::Blocks(0, 0)),
                Some(piece) => {
                    let table = self.warm_up.table(&piece).info().id;
                    let read = remote.read(table, piece.parts());
                    self.coming_bytes += piece.bytes();
                    self.coming.push_back((piece, read));
                    return Ok(Brought::Blocks(0, 0));
                }
                None => self.is_all = true,
            }
        }
        let Some((_, read)) = self.coming.front_mut() else { return Ok(Brought::All) };
        let come = match read.advance(Duration::ZERO) {
            Ok(None) => return Ok(Brought::NotYet),
            come => come,
        };
        let Some((piece, _)) = self.coming.pop_front() else { return Ok(Brought::All) };
        self.coming_bytes -= piece.bytes();
        let bytes = match come {
            Ok(bytes) => bytes.unwrap_or_default(),
            // That table is not to be had there, others may be.
            Err(e) => {
                self.warm_up.skip(&piece);
                self.failed.get_or_insert_with(|| e.to_string());
                return Ok(Brought::Blocks(0, 0));
            }
        };
        if self.warm_up.skips(&piece) {
            return Ok(Brought::Blocks(0, 0));
        }
        self.remote_bytes += bytes.len() as u64;
        let (blocks, bytes) = self.warm_up.put(&piece, &bytes)?;
        Ok(Brought::Blocks(blocks, bytes))
    }

    /// The merge has come to nothing: what was brought leaves again.
    pub(crate) fn undo(self) {
        self.warm_up.undo();
    }
}

impl Gathering {
    /// Goes on; whether there is more.
    fn advance(&mut self) -> bool {
        let Some(table) = self.tables.last_mut() else { return false };
        if !table.advance(self.upto.as_deref(), &mut self.wanted) {
            self.tables.pop();
        }
        true
    }
}
