//! The cache around the switch from a compaction's inputs to its outputs. With `step` and `write-through`
//! blocks went in while the SSTables were written (`sstable/fill.rs`), and the install takes out what the
//! inputs have below a step's clip; that is counted here. What is done here is bringing blocks of a step's
//! outputs into the cache before it is published (`sstable/warm_up.rs`): from storage, all of them
//! (`before`), or from the memory of a compaction server that made the step, then as the database's own
//! compactions would have filled the cache.
//!
//! Bringing goes piece by piece between advances, and a worker never waits for another process. It may fail,
//! and then readers warm the rest: a fill that fails is no failure of the compaction.

use crate::catalog::Catalog;
use crate::commit::Store;
use crate::compaction::{Step, Totals};
use crate::error::Result;
use crate::event::EventKind;
use crate::offload::{RemoteCache, RemoteRead, RetainOutputs};
use crate::options::CacheFill;
use crate::shape::TableInfo;
use crate::sstable::{Choice, Gather, Piece, Replaced, Wanted, WarmUp};
use crate::types::{KeyRange, TableId};
use crate::version::{OpenTable, TableHandle};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pieces asked for ahead of the one that is waited for.
const PIECES_COMING: usize = 8;
/// Bytes of these pieces, but for one.
const COMING_BYTES: u64 = 1 << 20;
/// The largest block that is brought from another process; larger ones are left to storage.
const BLOCK_MAX: u64 = 4 << 20;

/// Outputs that are open before they are published.
pub(in crate::work::jobs) type Opened = BTreeMap<TableId, Arc<TableHandle>>;

/// What a compaction, or a flush that merged, did to the cache.
#[derive(Default)]
pub(crate) struct FillStats {
    blocks: u64,
    pub(super) bytes: u64,
    evicted_blocks: u64,
    evicted_bytes: u64,
    /// Blocks and bytes that the compaction had filled when it was asked last.
    noted: (u64, u64),
    /// Bytes of the files that came from another process's memory.
    remote_bytes: u64,
    /// Why bringing blocks ended.
    failed: Option<String>,
}

impl FillStats {
    /// Takes down what the compaction has put into the cache by now; the bytes since the last time.
    pub(crate) fn note(&mut self, totals: &Totals) -> u64 {
        let filled = totals.filled;
        let (blocks, bytes) = (filled.0 - self.noted.0, filled.1 - self.noted.1);
        self.noted = filled;
        self.blocks += blocks;
        self.bytes += bytes;
        bytes
    }

    /// Takes down what a prefill has put into the cache.
    pub(super) fn note_brought(&mut self, blocks: u64, bytes: u64) {
        self.blocks += blocks;
        self.bytes += bytes;
    }

    /// Takes down how a prefill ended.
    pub(super) fn note_prefilled(&mut self, catalog: &Catalog, prefill: &Prefill) {
        self.failed = self.failed.take().or_else(|| prefill.failed.clone());
        self.remote_bytes += prefill.remote_bytes;
        catalog.remote_bytes.fetch_add(prefill.remote_bytes, Ordering::Relaxed);
    }

    /// Takes down what left the cache as a step was installed.
    pub(crate) fn note_evicted(&mut self, blocks: u64, bytes: u64) {
        self.evicted_blocks += blocks;
        self.evicted_bytes += bytes;
    }

    /// Records the event, if anything entered or left.
    pub(crate) fn record_event(&self, catalog: &Catalog, store: &Store, (keys, warm_keys): (u64, u64)) {
        if self.blocks + self.evicted_blocks == 0 && self.failed.is_none() {
            return;
        }
        let reason = match &self.failed {
            None => "blocks of a compaction's outputs in, of its inputs out".into(),
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
        catalog.cx.events.record(EventKind::CacheFill, &store.name, reason, &numbers);
    }
}

/// Where blocks of a step's outputs are had from.
enum Origin {
    /// The SSTable's file.
    #[cfg(feature = "papers")]
    Storage,
    /// The memory of the process that ran the compaction.
    Remote(Arc<dyn RemoteCache>),
}

/// A step that is ready, with its outputs being brought into the cache where that is wanted.
pub(super) struct Publishing {
    pub(super) step: Step,
    /// The outputs, if they are open already and nothing of them is to be brought.
    pub(super) opened: Option<Opened>,
    pub(super) prefill: Option<Prefill>,
}

/// The outputs of a step on their way into the cache, before it is published.
pub(super) struct Prefill {
    /// The outputs to be published. What is brought of them stays then.
    pub(super) opened: Opened,
    /// What finds the blocks that are wanted, first, where not all are.
    gathering: Option<Gathering>,
    warm_up: WarmUp,
    from: Origin,
    /// Pieces asked for and not there yet, in order.
    coming: VecDeque<(Piece, Box<dyn RemoteRead>)>,
    coming_bytes: u64,
    /// Whether nothing more is to be asked for.
    is_all: bool,
    /// Bytes that came from another process's memory.
    pub(super) remote_bytes: u64,
    /// Why nothing more is brought.
    pub(super) failed: Option<String>,
}

/// The search for what of the inputs is in the cache, and so wanted of the outputs.
struct Gathering {
    tables: Vec<Gather>,
    upto: Option<Vec<u8>>,
    wanted: Wanted,
    replaced: Replaced,
}

/// What an advance of a prefill came to.
pub(super) enum FillProgress {
    /// So many blocks and bytes entered the cache.
    Blocks(u64, u64),
    /// Nothing is there yet.
    NotYet,
    /// All is there, or nothing more is to be had.
    All,
}

impl Publishing {
    /// A step, and what of it is to be brought into the cache before it is published: from the memory of the
    /// process that made it, if that can be read, or from storage. `inputs` are the SSTables that were
    /// merged, run by run, and `keys` those that the step has merged.
    pub(super) fn new(
        catalog: &Catalog,
        step: Step,
        opened: Option<Opened>,
        remote: Option<Arc<dyn RemoteCache>>,
        inputs: impl FnOnce() -> Vec<Vec<OpenTable>>,
        keys: KeyRange,
    ) -> Result<Self> {
        let outputs = &step.outputs;
        let remote = remote.filter(|_| !outputs.is_empty());
        let fill = catalog.cx.settings.options.cache_fill;
        let (prefill, opened) = match (fill, remote, opened) {
            #[cfg(feature = "papers")]
            (CacheFill::Before, None, opened) if !outputs.is_empty() => {
                let open = || catalog.open_tables(outputs, &mut []);
                let opened = opened.map_or_else(open, Ok).inspect_err(|_| catalog.remove_outputs(outputs))?;
                (Some(Prefill::all(opened, outputs, Origin::Storage)), None)
            }
            (CacheFill::Step, Some(remote), Some(opened)) => {
                (Some(Prefill::wanted(opened, outputs, Origin::Remote(remote), &inputs(), keys)), None)
            }
            // The other process keeps these outputs until the step is published, so that all their blocks can
            // be read from it.
            (fill, Some(remote), Some(opened))
                if RetainOutputs::from(fill) == RetainOutputs::UntilPublished =>
            {
                (Some(Prefill::all(opened, outputs, Origin::Remote(remote))), None)
            }
            (_, _, opened) => (None, opened),
        };
        Ok(Self { step, opened, prefill })
    }
}

impl Prefill {
    /// Brings all blocks of these outputs.
    fn all(opened: Opened, outputs: &[Arc<TableInfo>], from: Origin) -> Self {
        Self::new(opened, outputs, from, None)
    }

    /// Brings the blocks of these outputs of which the cache has what they replace: the blocks of these runs,
    /// in `range`.
    fn wanted(
        opened: Opened,
        outputs: &[Arc<TableInfo>],
        from: Origin,
        runs: &[Vec<OpenTable>],
        range: KeyRange,
    ) -> Self {
        let mut replaced = Replaced::default();
        let mut tables = Vec::new();
        for run in runs {
            let within: Vec<_> = run.iter().filter(|open| open.info.overlaps(&range)).collect();
            // Of what is not open nothing is in the cache.
            replaced.add_run(within.iter().filter_map(|open| open.opened()));
            tables.extend(within.iter().filter_map(|open| {
                Some(Gather::new(open.opened()?, range.start.as_slice().max(open.start())))
            }));
        }
        let gathering = Gathering { tables, upto: range.end, wanted: Wanted::default(), replaced };
        Self::new(opened, outputs, from, Some(gathering))
    }

    fn new(opened: Opened, outputs: &[Arc<TableInfo>], from: Origin, gathering: Option<Gathering>) -> Self {
        let tables = outputs.iter().filter_map(|info| opened[&info.id].opened().cloned()).collect();
        let block_max = match from {
            #[cfg(feature = "papers")]
            Origin::Storage => u64::MAX,
            Origin::Remote(_) => BLOCK_MAX,
        };
        Self {
            opened,
            gathering,
            warm_up: WarmUp::new(tables, Choice::All, block_max),
            from,
            coming: VecDeque::new(),
            coming_bytes: 0,
            is_all: false,
            remote_bytes: 0,
            failed: None,
        }
    }

    /// Does a little.
    pub(super) fn advance(&mut self) -> FillProgress {
        self.try_advance().unwrap_or_else(|e| {
            self.failed = Some(e.to_string());
            FillProgress::All
        })
    }

    fn try_advance(&mut self) -> Result<FillProgress> {
        if let Some(gathering) = &mut self.gathering {
            if !gathering.advance() {
                let Some(Gathering { mut wanted, replaced, .. }) = self.gathering.take() else {
                    return Ok(FillProgress::All);
                };
                wanted.sort();
                self.warm_up.choose(Choice::Wanted(wanted, replaced));
            }
            return Ok(FillProgress::Blocks(0, 0));
        }
        #[cfg_attr(not(feature = "papers"), allow(irrefutable_let_patterns))]
        let Origin::Remote(remote) = &self.from else {
            let Some(piece) = self.warm_up.next()? else { return Ok(FillProgress::All) };
            if piece.bytes == 0 {
                return Ok(FillProgress::Blocks(0, 0));
            }
            let bytes = self.warm_up.read(&piece)?;
            let (blocks, bytes) = self.warm_up.put(&piece, &bytes)?;
            return Ok(FillProgress::Blocks(blocks, bytes));
        };
        // A new pass asks what came in the one before.
        let is_full = self.coming.len() >= PIECES_COMING || self.coming_bytes >= COMING_BYTES;
        if !self.is_all && !is_full && (self.coming.is_empty() || !self.warm_up.ends_pass()) {
            match self.warm_up.next()? {
                Some(piece) if piece.bytes == 0 => return Ok(FillProgress::Blocks(0, 0)),
                Some(piece) => {
                    let table = self.warm_up.table(&piece).info().id;
                    let read = remote.read(table, piece.parts());
                    self.coming_bytes += piece.bytes;
                    self.coming.push_back((piece, read));
                    return Ok(FillProgress::Blocks(0, 0));
                }
                None => self.is_all = true,
            }
        }
        let Some((_, read)) = self.coming.front_mut() else { return Ok(FillProgress::All) };
        let come = match read.advance(Duration::ZERO) {
            Ok(None) => return Ok(FillProgress::NotYet),
            come => come,
        };
        let Some((piece, _)) = self.coming.pop_front() else { return Ok(FillProgress::All) };
        self.coming_bytes -= piece.bytes;
        let bytes = match come {
            Ok(bytes) => bytes.unwrap_or_default(),
            // This SSTable is not to be had there, others may be.
            Err(e) => {
                self.warm_up.skip(&piece);
                self.failed.get_or_insert_with(|| e.to_string());
                return Ok(FillProgress::Blocks(0, 0));
            }
        };
        if self.warm_up.skips(&piece) {
            return Ok(FillProgress::Blocks(0, 0));
        }
        self.remote_bytes += bytes.len() as u64;
        let (blocks, bytes) = self.warm_up.put(&piece, &bytes)?;
        Ok(FillProgress::Blocks(blocks, bytes))
    }

    /// Takes out again what was brought: the step has come to nothing.
    pub(super) fn undo(self) {
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
