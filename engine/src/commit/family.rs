//! A family's options with the names in them resolved, and what a strategy that took it over inherited.

use super::rules::ReadRules;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::MemoryOptions;
use crate::operator::Registry;
use crate::options::{FamilyOptions, Timestamps};
use crate::sync::{AtomicU64, Ordering};
use crate::table::TableOptions;
use crate::types::StoreId;
use std::sync::Arc;

/// Name of the family that every database has.
pub const DEFAULT_FAMILY: &str = "default";

/// Options with the names in them resolved.
#[repr(C)]
pub(crate) struct FamilySettings {
    /// Whether cells keep the time of writing, and whether they have timestamps of their own: what each write
    /// asks.
    pub(crate) keeps_written: bool,
    pub(crate) explicit: bool,
    pub(crate) options: FamilyOptions,
    pub(crate) read: ReadRules,
    pub(crate) inherited: Arc<Inherited>,
}

/// What a strategy owed of a family when it took that over, by opening or `alter`. Tables that another
/// strategy left may be many times what backpressure allows, and no writer is to wait until all of them are
/// merged. So it is not held against writers: what they add is, while this is worked off.
pub(crate) struct Inherited {
    debt: AtomicU64,
    level0_runs: AtomicU64,
}

impl Inherited {
    fn new() -> Self {
        Self { debt: AtomicU64::new(u64::MAX), level0_runs: AtomicU64::new(u64::MAX) }
    }

    /// The part of the debt there is now that was not inherited. What it is asked first is what was
    /// inherited.
    pub(crate) fn debt_beyond(&self, now: u64) -> u64 {
        now - self.debt.fetch_min(now, Ordering::Relaxed).min(now)
    }

    /// The same of runs in level 0.
    pub(crate) fn level0_beyond(&self, now: u64) -> u64 {
        now - self.level0_runs.fetch_min(now, Ordering::Relaxed).min(now)
    }
}

impl FamilySettings {
    /// Refuses options that name an operator or filter that is not registered.
    pub(crate) fn resolve(name: &str, options: FamilyOptions, registry: &Registry) -> Result<Self> {
        let settings = Self::resolve_known(name, options, registry)?;
        let missing = settings.read.operator_missing.as_ref().or(settings.read.filter_missing.as_ref());
        missing.cloned().map_or(Ok(settings), Err)
    }

    /// The same of a family that is there: without them whatever does not need them goes on.
    pub(crate) fn resolve_known(name: &str, options: FamilyOptions, registry: &Registry) -> Result<Self> {
        options.validate()?;
        let missing = |what: &str, wanted: &Option<String>, found: bool| {
            let wanted = wanted.as_ref().filter(|_| !found)?;
            let message = format!("family {name} needs the {what} \"{wanted}\", which is not registered");
            Some(Error::new(ErrorKind::Unsupported, message))
        };
        let operator =
            options.merge_operator.as_ref().and_then(|wanted| registry.operators.get(wanted)).cloned();
        let filter = options.filter.as_ref().and_then(|wanted| registry.filters.get(wanted)).cloned();
        let read = ReadRules {
            explicit: options.timestamps == Timestamps::Explicit,
            versions: options.versions,
            ttl_us: options.ttl_us,
            operator_missing: missing("merge operator", &options.merge_operator, operator.is_some()),
            filter_missing: missing("filter", &options.filter, filter.is_some()),
            operator,
            filter,
        };
        let (keeps_written, explicit) = (options.keeps_written(), read.explicit);
        Ok(Self { keeps_written, explicit, options, read, inherited: Arc::new(Inherited::new()) })
    }

    /// Whether a number of versions is kept.
    pub(crate) fn counts_versions(&self) -> bool {
        self.read.explicit && self.read.versions > 0
    }

    /// How many cells of a key a merge keeps at most.
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

/// Names in a table's properties: the number, name and options of the family it was written for.
pub(crate) const STORE: &str = "store";

pub(crate) const FAMILY: &str = "family";

pub(crate) const OPTIONS: &str = "options";

pub(crate) fn table_names(id: StoreId, name: &str, options: String) -> Vec<(&'static str, String)> {
    vec![(STORE, id.to_string()), (FAMILY, name.to_string()), (OPTIONS, options)]
}

/// How a family's segments use memory where the database's write memory is `write_memory`.
pub(crate) fn memory_options(family: &FamilyOptions, write_memory: u64) -> MemoryOptions {
    MemoryOptions::for_active_bytes(family.active_bytes(write_memory) as usize, 0, None)
}
