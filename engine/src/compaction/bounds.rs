//! Bounds on the cells that a compaction reads and on those that it must keep, from the counts of its inputs:
//! a compaction in another process that reports other numbers has lost cells, or read wrong ones.
//!
//! *Read* cells follow from the indices, which have the number of cells of each block: at least the cells of
//! blocks wholly within the keys in question, at most those of all blocks that may have some of them.
//!
//! *Kept* of each key is at least one cell, since a cell is dropped only for a newer cell of the key, or
//! combined with others into one. There is no bound with a filter, where cells may have expired, or with very
//! many range tombstones. A point tombstone removes at most all of its own key, a range tombstone at most the
//! cells of the blocks with its keys. Where all versions are kept, the same is true of each version of a key,
//! without point tombstones. So at least this many are kept, less what tombstones may remove:
//! - the keys (or versions) of the run with most of them, for each stretch of overlapping SSTables; of all
//!   runs, where their versions have different times;
//! - the keys that the sketches of all SSTables count together, less an eighth (nearly eight times their
//!   standard error) and those that may come later.
//!
//! Where the runs do not share keys, and no SSTable has a key twice, both equal the cells read: then nothing
//! may be missing.
//!
//! *Dropped*, of the cells that a compaction reports as read, are at most those that tombstones may remove
//! and those that the runs may have in common. Where a compaction begins or ends within blocks, the number of
//! cells it reads is not known exactly, but the number of missing ones is.

use super::retention::disjoint;
use super::spec::{CompactionSpec, sum};
use crate::error::Result;
use crate::shape::TableInfo;
use crate::sstable::{CountedTo, Sstable};
use crate::types::{KeyRange, Sketch};
use crate::version::OpenTable;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most sketches that are read, as each costs a read.
const SKETCHES: usize = 32;
/// The most ranges under range tombstones that are counted: for each, the index of each SSTable is read.
const COVERS: usize = 1 << 10;
/// The error of sketches, as one part in so many.
const SKETCH_ERROR: u64 = 8;

/// Bounds on the cells that a compaction must have read and kept of some keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    /// Cells read: at least, and at most.
    pub(crate) taken: (u64, u64),
    /// Cells kept, at least.
    pub(crate) kept: u64,
    /// Cells read and not kept, at most.
    pub(crate) dropped: u64,
}

/// The bounds for a step, and for all steps so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    pub(crate) step: Counts,
    pub(crate) so_far: Counts,
}

#[cfg(any(test, feature = "testing"))]
impl Expected {
    /// Bounds that allow anything.
    pub(crate) const ANY: Self = {
        let any = Counts { taken: (0, u64::MAX), kept: 0, dropped: u64::MAX };
        Self { step: any, so_far: any }
    };
}

/// The bounds of one compaction, step by step; see the page above.
pub(crate) struct Bounds {
    /// The inputs, in the order in which their keys begin.
    inputs: Vec<Input>,
    /// One entry for each stretch of overlapping SSTables: whether its runs have no keys in common.
    stretches: Vec<bool>,
    /// Whether the inputs give a lower bound of the cells kept.
    tells: bool,
    tombstones: u64,
    /// The keys that sketches count, less their error; `None` until it is needed.
    keys: Option<u64>,
}

/// An input SSTable of the compaction.
struct Input {
    info: Arc<TableInfo>,
    /// `None` once all its cells are below a step: its file may be removed.
    open: Option<OpenTable>,
    run: usize,
    stretch: usize,
    /// The keys that the compaction reads from it.
    live: KeyRange,
    /// Cells of the whole file beyond one for each key, or version.
    more: u64,
    /// Whether its sketch is one of those that are read.
    is_sketched: bool,
    counted: CountedTo,
    /// Cells of the file below `live`, at least and at most; `None` until they are counted.
    dead: Option<(u64, u64)>,
    /// All its live cells, once they are counted.
    all: Option<Live>,
    /// Keys under range tombstones of the compaction that are not counted yet, and the most cells under those
    /// that are.
    covers: VecDeque<KeyRange>,
    covered: u64,
    /// Live cells of the steps so far.
    before: Live,
}

/// Live cells of an SSTable.
#[derive(Clone, Copy, Default)]
struct Live {
    least: u64,
    most: u64,
    /// Live cells that range tombstones may delete, at most.
    covered: u64,
}

/// Bounds of the cells of one run or several in a compaction.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Cells read, at most.
    most: u64,
    /// Cells kept, at least.
    left: u64,
    /// Cells read that are not kept, at most.
    gone: u64,
}

impl Part {
    /// Adds a part that has no key, or version, in common with this one.
    fn add(&mut self, other: Self) {
        self.most = self.most.saturating_add(other.most);
        self.left = self.left.saturating_add(other.left);
        self.gone = self.gone.saturating_add(other.gone);
    }

    /// Adds a run that may have all keys of this part, or this part all of the run's: in addition to the
    /// losses of each, at most all cells of one of the two are dropped.
    fn add_run_that_shares_keys(&mut self, run: Self) {
        let of_either = run.gone.saturating_add(self.most).min(self.gone.saturating_add(run.most));
        self.most = self.most.saturating_add(run.most);
        self.left = self.left.max(run.left);
        self.gone = of_either;
    }
}

impl Bounds {
    /// The bounds for a compaction with these inputs, run by run.
    pub(crate) fn new(spec: &CompactionSpec, runs: Vec<Vec<OpenTable>>) -> Result<Self> {
        let keep = &spec.keep;
        let infos = || runs.iter().flatten().map(|open| &*open.info);
        let tombstones = sum(infos().map(|table| table.tombstones));
        let expires = |table: &TableInfo| table.times.0.0.saturating_add(keep.ttl_us) <= keep.now_us;
        let covers = covers(&runs)?;
        let tells = keep.filter.is_none() && covers.is_some() && (keep.ttl_us == 0 || !infos().any(expires));
        let by_version = keep.explicit && keep.versions == 0 && tombstones == 0;
        let mut inputs = Vec::new();
        for (run, tables) in runs.into_iter().enumerate() {
            for open in tables {
                inputs.push(Input::new(open, run, spec, by_version)?);
            }
        }
        inputs.retain(|input| !input.live.is_empty());
        for input in &mut inputs {
            let of_input = covers.iter().flatten().filter(|range| range.overlaps(&input.live));
            input.covers = of_input.map(|range| range.intersect(&input.live)).collect();
        }
        inputs.sort_by(|a, b| a.live.start.cmp(&b.live.start));
        let stretches = stretches(&mut inputs, by_version);
        choose_sketches(&mut inputs);
        Ok(Self { inputs, stretches, tells, tombstones, keys: None })
    }

    /// The bounds for a step that ends before that key, or for the last step if there is none. Keys must not
    /// descend from call to call.
    pub(crate) fn below(&mut self, upto: Option<&[u8]>) -> Result<Expected> {
        if self.keys.is_none() && self.tells {
            self.keys = Some(self.sketched_keys()?);
        }
        let now: Vec<Live> = self.inputs.iter_mut().map(|input| input.below(upto)).collect::<Result<_>>()?;
        let since = |(input, now): (&Input, &Live)| Live {
            least: now.least.saturating_sub(input.before.most),
            most: now.most.saturating_sub(input.before.least),
            covered: now.covered.saturating_sub(input.before.covered),
        };
        let steps: Vec<Live> = self.inputs.iter().zip(&now).map(since).collect();
        let sketched = self.inputs.iter().zip(&now).filter(|(input, _)| input.is_sketched);
        let without = |(input, now): (&Input, &Live)| {
            input.info.cells.saturating_sub(now.least).saturating_add(now.covered)
        };
        let keys = self.keys.unwrap_or(0).saturating_sub(sum(sketched.map(without)));
        let mut so_far = self.counts(&now);
        so_far.kept = so_far.kept.max(keys.saturating_sub(self.tombstones));
        let step = self.counts(&steps);
        self.inputs.iter_mut().zip(now).for_each(|(input, now)| input.before = now);
        Ok(Expected { step, so_far })
    }

    /// The bounds if these cells of each input are read.
    fn counts(&self, cells: &[Live]) -> Counts {
        let taken = (sum(cells.iter().map(|cells| cells.least)), sum(cells.iter().map(|cells| cells.most)));
        if !self.tells {
            return Counts { taken, kept: 0, dropped: u64::MAX };
        }
        let mut by_run: BTreeMap<(usize, usize), Part> = BTreeMap::new();
        for (input, cells) in self.inputs.iter().zip(cells) {
            let gone = input.more.saturating_add(cells.covered);
            by_run.entry((input.stretch, input.run)).or_default().add(Part {
                most: cells.most,
                left: cells.least.saturating_sub(gone),
                gone: gone.min(cells.most),
            });
        }
        let mut by_stretch = vec![Part::default(); self.stretches.len()];
        for ((stretch, _), part) in by_run {
            let of = &mut by_stretch[stretch];
            match self.stretches[stretch] {
                true => of.add(part),
                false => of.add_run_that_shares_keys(part),
            }
        }
        let kept = sum(by_stretch.iter().map(|part| part.left)).saturating_sub(self.tombstones);
        let dropped = sum(by_stretch.iter().map(|part| part.gone)).saturating_add(self.tombstones);
        Counts { taken, kept, dropped }
    }

    /// The keys of all SSTables whose sketch is read, less the error of sketches.
    fn sketched_keys(&self) -> Result<u64> {
        let (mut union, mut most) = (Sketch::new(), 0u64);
        for input in self.inputs.iter().filter(|input| input.is_sketched) {
            if let Some(open) = &input.open {
                union.merge(&open.table()?.sketch()?);
                most = most.saturating_add(input.info.distinct);
            }
        }
        let estimate = union.estimate().min(most);
        Ok(estimate - estimate.div_ceil(SKETCH_ERROR))
    }
}

/// The keys under range tombstones of any input; `None` if there are too many.
fn covers(runs: &[Vec<OpenTable>]) -> Result<Option<Vec<KeyRange>>> {
    let with_ranges = runs.iter().flatten().filter(|open| open.has_ranges());
    let tables = with_ranges.map(OpenTable::table).collect::<Result<Vec<_>>>()?;
    let fragments = || tables.iter().flat_map(|table| table.fragments().iter());
    Ok((fragments().take(COVERS + 1).count() <= COVERS)
        .then(|| disjoint(fragments().map(|fragment| fragment.range.clone()).collect())))
}

/// Groups inputs that overlap, directly or through others, into stretches.
fn stretches(inputs: &mut [Input], by_version: bool) -> Vec<bool> {
    let mut reach: Option<KeyRange> = None;
    let mut all: Vec<BTreeMap<usize, (u64, u64)>> = Vec::new();
    for input in inputs {
        reach = match reach {
            Some(reach) if reach.ends_after(&input.live.start) => Some(reach.cover(&input.live)),
            _ => {
                all.push(BTreeMap::new());
                Some(input.live.clone())
            }
        };
        input.stretch = all.len() - 1;
        let (first, last) = input.info.times;
        if let Some(runs) = all.last_mut() {
            let times = runs.entry(input.run).or_insert((first.0, last.0));
            *times = (times.0.min(first.0), times.1.max(last.0));
        }
    }
    let are_apart = |runs: BTreeMap<usize, (u64, u64)>| {
        let mut times: Vec<(u64, u64)> = runs.into_values().collect();
        times.sort_unstable();
        times.windows(2).all(|two| two[0].1 < two[1].0)
    };
    all.into_iter().map(|runs| runs.len() == 1 || by_version && are_apart(runs)).collect()
}

/// Chooses the SSTables whose sketches are read: those with the most keys that the compaction reads whole.
/// Where no runs overlap, sketches add nothing.
fn choose_sketches(inputs: &mut [Input]) {
    let overlap = inputs.windows(2).any(|two| two[0].stretch == two[1].stretch && two[0].run != two[1].run);
    let mut whole: Vec<&mut Input> = inputs.iter_mut().filter(|input| overlap && input.is_whole()).collect();
    whole.sort_by_key(|input| std::cmp::Reverse(input.info.distinct));
    whole.into_iter().take(SKETCHES).for_each(|input| input.is_sketched = true);
}

impl Input {
    fn new(open: OpenTable, run: usize, spec: &CompactionSpec, by_version: bool) -> Result<Self> {
        let info = open.info.clone();
        let later = if by_version { open.table()?.properties().later_versions } else { 0 };
        Ok(Self {
            run,
            stretch: 0,
            live: info.live_range().intersect(&spec.range),
            more: info.cells.saturating_sub(info.distinct.saturating_add(later)),
            is_sketched: false,
            counted: CountedTo::default(),
            dead: None,
            all: None,
            covers: VecDeque::new(),
            covered: 0,
            before: Live::default(),
            open: Some(open),
            info,
        })
    }

    fn is_whole(&self) -> bool {
        self.info.is_whole() && self.live == self.info.range
    }

    /// Live cells below the key, at least and at most; all of them if there is none.
    fn below(&mut self, upto: Option<&[u8]>) -> Result<Live> {
        if upto.is_some_and(|upto| upto <= self.live.start.as_slice()) {
            return Ok(Live::default());
        }
        let end = upto.filter(|upto| self.live.ends_after(upto));
        if let Some(all) = self.all.filter(|_| end.is_none()) {
            return Ok(all);
        }
        // (After its end keys do not descend again.)
        let (info, cells) = (self.info.clone(), self.info.cells);
        let Some(open) = self.open.clone() else { return Ok(Live { least: 0, most: cells, covered: cells }) };
        let table = open.table()?;
        let dead = match self.dead {
            Some(dead) => dead,
            None if info.clip.is_none() && self.live.start == info.range.start => (0, 0),
            None => table.cells_below(&self.live.start, &mut self.counted)?,
        };
        self.dead = Some(dead);
        self.cover(table, end)?;
        let is_all = end.is_none() && info.above.is_none() && self.live.end == info.range.end;
        let cells = match end.or(self.live.end.as_deref()) {
            Some(end) if !is_all => table.cells_below(end, &mut self.counted)?,
            _ => (info.cells, info.cells),
        };
        let (least, most) = (cells.0.saturating_sub(dead.1), cells.1.saturating_sub(dead.0));
        let live = Live { least, most, covered: self.covered };
        if end.is_none() {
            (self.all, self.open) = (Some(live), None);
        }
        Ok(live)
    }

    /// Counts the cells that range tombstones may delete below the key.
    fn cover(&mut self, table: &Sstable, upto: Option<&[u8]>) -> Result<()> {
        while let Some(mut range) = self.covers.pop_front() {
            let rest = upto.filter(|upto| range.ends_after(upto)).map(<[u8]>::to_vec);
            if rest.as_ref().is_some_and(|upto| *upto <= range.start) {
                self.covers.push_front(range);
                return Ok(());
            }
            let from = table.cells_below(&range.start, &mut self.counted)?.0;
            let to = match rest.as_deref().or(range.end.as_deref()) {
                Some(end) => table.cells_below(end, &mut self.counted)?.1,
                None => self.info.cells,
            };
            self.covered = self.covered.saturating_add(to.saturating_sub(from));
            if let Some(upto) = rest {
                range.start = upto;
                self.covers.push_front(range);
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod tests;
