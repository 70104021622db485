//! A family's options with the names in them resolved, and the compaction debt that its strategy inherited.

use super::rules::ReadRules;
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::{ActiveMemtable, MemoryOptions};
use crate::operator::Registry;
use crate::options::{FamilyOptions, Timestamps};
use crate::shape::Shape;
use crate::sstable::TableOptions;
use crate::strategy::ByRange;
use crate::sync::{AtomicU64, Ordering};
use crate::types::{Generation, StoreId};
use std::sync::Arc;

/// Name of the family that every database has.
pub const DEFAULT_FAMILY: &str = "default";

/// Options with the names in them resolved.
#[repr(C)]
pub(crate) struct FamilySettings {
    /// Whether cells store the time of writing, and whether they have explicit timestamps; each write reads
    /// this.
    pub(crate) keeps_written: bool,
    pub(crate) explicit: bool,
    pub(crate) options: FamilyOptions,
    pub(crate) read: ReadRules,
    pub(crate) inherited: Arc<Inherited>,
    pub(crate) papers_missing: Option<PapersMissing>,
}

/// The compaction debt and the runs in L0 that a family had when its strategy took it over, at the open or by
/// `alter`. SSTables that another strategy left may be many times what backpressure allows, and no writer
/// should wait until all of them are compacted. So writers are delayed only for what they add, while
/// compactions work off the inherited part.
pub(crate) struct Inherited {
    debt: AtomicU64,
    level0_runs: AtomicU64,
}

impl Inherited {
    fn new() -> Self {
        Self { debt: AtomicU64::new(u64::MAX), level0_runs: AtomicU64::new(u64::MAX) }
    }

    /// The part of the present debt that was not inherited. The debt of the first call is what was inherited,
    /// and that only shrinks.
    pub(crate) fn debt_beyond(&self, now: u64) -> u64 {
        now - self.debt.fetch_min(now, Ordering::Relaxed).min(now)
    }

    /// The part of the runs now in L0 that was not inherited, as [`Inherited::debt_beyond`] has it for debt.
    pub(crate) fn level0_beyond(&self, now: u64) -> u64 {
        now - self.level0_runs.fetch_min(now, Ordering::Relaxed).min(now)
    }
}

/// The stored options of a family that needs options this build lacks, and the error for its writers. It is
/// not compacted before it is altered.
pub(crate) type PapersMissing = (Error, Arc<str>);

impl FamilySettings {
    /// What the strategy decides about ranges of memory, if it flushes one range at a time.
    pub(crate) fn by_range(&self) -> Option<&dyn ByRange> {
        self.options.strategy.strategy().by_range()
    }

    /// The keys at which ranges of memory begin, but for the first; none where a flush takes all memory.
    pub(crate) fn range_bounds(&self, shape: &Shape) -> Vec<Vec<u8>> {
        self.by_range().map_or(Vec::new(), |by_range| by_range.bounds(shape))
    }

    /// Resolves the options of a new family; an operator or filter that is not registered is an error.
    pub(crate) fn resolve(name: &str, options: FamilyOptions, registry: &Registry) -> Result<Self> {
        let settings = Self::resolve_known(name, options, registry)?;
        let missing = settings.read.operator_missing.as_ref().or(settings.read.filter_missing.as_ref());
        missing.cloned().map_or(Ok(settings), Err)
    }

    /// Resolves the options of a family that exists already. An operator or filter that is not registered is
    /// an error only for calls that need it.
    pub(crate) fn resolve_known(name: &str, options: FamilyOptions, registry: &Registry) -> Result<Self> {
        options.validate()?;
        let missing = |what: &str, wanted: &Option<String>, found: bool| {
            let wanted = wanted.as_ref().filter(|_| !found)?;
            let message = format!("family {name} needs the {what} \"{wanted}\", which is not registered");
            Some(Error::new(ErrorKind::Unsupported, message))
        };
        let operator =
            options.merge_operator.as_ref().and_then(|wanted| registry.operators.get(wanted)).cloned();
        let filter =
            options.compaction_filter.as_ref().and_then(|wanted| registry.filters.get(wanted)).cloned();
        let read = ReadRules {
            explicit: options.timestamps == Timestamps::Explicit,
            versions: options.versions,
            ttl_us: options.ttl_us,
            operator_missing: missing("merge operator", &options.merge_operator, operator.is_some()),
            filter_missing: missing("compaction filter", &options.compaction_filter, filter.is_some()),
            operator,
            filter,
        };
        let (keeps_written, explicit) = (options.keeps_written(), read.explicit);
        Ok(Self {
            keeps_written,
            explicit,
            options,
            read,
            inherited: Arc::new(Inherited::new()),
            papers_missing: None,
        })
    }

    /// An error where the family has options that this build does not.
    #[inline]
    pub(crate) fn check_papers(&self) -> Result<()> {
        self.papers_missing.as_ref().map_or(Ok(()), |(missing, _)| Err(missing.clone()))
    }

    /// Whether the family keeps a limited number of versions of a key.
    pub(crate) fn counts_versions(&self) -> bool {
        self.read.explicit && self.read.versions > 0
    }

    /// How many cells of a key a compaction keeps at most.
    pub(crate) fn versions_kept(&self) -> u64 {
        match (self.read.explicit, self.read.versions) {
            (true, 0) => u64::MAX,
            (true, versions) => versions.into(),
            (false, _) => 1,
        }
    }

    pub(crate) fn table_options(&self, last_level: bool) -> TableOptions {
        let o = &self.options;
        let compression = match (last_level, o.compression_last) {
            (true, Some(last)) => last,
            _ => o.compression,
        };
        TableOptions {
            block_bytes: o.block_bytes,
            bloom_bits: o.bloom_bits,
            compression,
            ..TableOptions::default()
        }
    }
}

/// Names in an SSTable's properties: the number, name and options of the family it was written for.
pub(crate) const STORE: &str = "store";

pub(crate) const FAMILY: &str = "family";

pub(crate) const OPTIONS: &str = "options";

pub(crate) fn table_names(id: StoreId, name: &str, options: String) -> Vec<(&'static str, String)> {
    vec![(STORE, id.to_string()), (FAMILY, name.to_string()), (OPTIONS, options)]
}

/// The first active memtable of a family where the database's write memory is `write_memory`.
pub(crate) fn first_active(
    family: &FamilyOptions,
    generation: Generation,
    write_memory: u64,
) -> Arc<ActiveMemtable> {
    let bytes = family.active_bytes(write_memory) as usize;
    Arc::new(ActiveMemtable::new(generation, MemoryOptions::for_active_bytes(bytes, 0, None)))
}
