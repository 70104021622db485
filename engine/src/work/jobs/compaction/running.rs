//! A compaction as whoever runs it does it: this process, or another one, of which everything is checked.

use super::cache_fill::Opened;
use super::spec::{cached, in_small_steps, open_runs, predicted};
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::compaction::{Bounds, CompactionRun, CompactionSpec, MemoryInputs, Step, Totals, Verifier};
use crate::error::Result;
use crate::event::EventKind;
use crate::offload::{CompactionTables, Decision, Offer, OffloadedRun, OwnTables, RemoteCache};
use crate::shape::TableInfo;
use crate::version::{OpenTable, Version};
use std::cell::LazyCell;
use std::sync::Arc;

/// A compaction that runs, here or elsewhere.
pub(in crate::work::jobs) struct Running {
    pub(in crate::work::jobs) run: Box<dyn CompactionRun>,
    /// What checks the steps; `None` for one that runs here.
    verifier: Option<(Verifier, Bounds)>,
    /// The memory of the process that runs it, if that can be read.
    pub(super) remote: Option<Arc<dyn RemoteCache>>,
}

impl Running {
    /// Begins the compaction: elsewhere if somebody takes it, else here.
    pub(super) fn begin(
        catalog: &Catalog,
        store: &Store,
        version: &Version,
        spec: &CompactionSpec,
    ) -> Result<Self> {
        Self::elsewhere(catalog, store, version, spec, &[])
            .map_or_else(|| Self::here(catalog, spec, None), Ok)
    }

    /// Begins the compaction elsewhere, if somebody takes it. `carried` are those SSTables, of its first run,
    /// that the version lacks.
    pub(in crate::work::jobs) fn elsewhere(
        catalog: &Catalog,
        store: &Store,
        version: &Version,
        spec: &CompactionSpec,
        carried: &[OpenTable],
    ) -> Option<Self> {
        let offload = catalog.offload.as_ref()?;
        let mut runs = open_runs(version, spec.inputs.iter().map(|run| run.iter().map(|table| table.id)));
        // What cannot be opened is met here, and told.
        runs.iter().flatten().try_for_each(|open| open.table().map(|_| ())).ok()?;
        let keep = catalog.cx.settings.options.cache_fill.into();
        let kept = store.settings().versions_kept();
        let cached = LazyCell::new(|| cached(version, spec));
        let there = in_small_steps(catalog, store, spec, &|| *cached);
        let (predicted, cached) = (&|| predicted(version, spec, kept), &|| *cached);
        let tables =
            &|| -> Arc<dyn CompactionTables> { Arc::new(OwnTables::new(catalog.tables.store(), &there)) };
        let offer = Offer { spec: &there, keep, predicted, cached, tables };
        let Decision { run, reason, numbers } = offload.decide(&offer);
        if !reason.is_empty() {
            catalog.cx.events.record(EventKind::Offload, &store.name, reason, &numbers);
        }
        let run = run?;
        if let Some(first) = runs.first_mut() {
            first.extend_from_slice(carried);
        }
        let verifier = Some((Verifier::new(&there), Bounds::new(&there, runs).ok()?));
        let remote = run.remote_cache();
        Some(Self { run: Box::new(OffloadedRun::new(run, &there)), verifier, remote })
    }

    /// Begins the compaction in this process, of that memory too if it is a flush.
    pub(in crate::work::jobs) fn here(
        catalog: &Catalog,
        spec: &CompactionSpec,
        memory: Option<MemoryInputs>,
    ) -> Result<Self> {
        Ok(Self { run: catalog.local.begin(spec, memory)?, verifier: None, remote: None })
    }

    pub(in crate::work::jobs) fn is_elsewhere(&self) -> bool {
        self.verifier.is_some()
    }

    /// What was done; for a compaction elsewhere, what was found to be true.
    pub(in crate::work::jobs) fn totals(&self) -> Totals {
        self.verifier.as_ref().map_or_else(|| self.run.totals(), |(verifier, _)| verifier.totals())
    }

    /// Checks a step that was made elsewhere before it is made true; its outputs, open.
    pub(in crate::work::jobs) fn verify(&mut self, catalog: &Catalog, step: &Step) -> Result<Option<Opened>> {
        #[cfg(feature = "papers")]
        let remote = self.remote.clone();
        let Self { run, verifier: Some((verifier, bounds)), .. } = self else { return Ok(None) };
        let expected = bounds.below(step.upto.as_deref())?;
        let next = verifier
            .step(&step.outputs, step.upto.as_deref(), &run.totals(), &expected)
            .map_err(|why| run.refused(&format!("what cannot be: {why}")))?;
        let open = |info: &Arc<TableInfo>| {
            // As it is in storage.
            let handle = catalog.tables.open(info, None)?;
            handle.table()?.verify_index()?;
            #[cfg(feature = "papers")]
            if let Some(handle) = super::remote_reads::open(catalog, info, remote.as_ref())? {
                return Ok((info.id, handle));
            }
            Ok((info.id, handle))
        };
        let opened = step.outputs.iter().map(open).collect::<Result<Opened>>();
        let opened = opened.map_err(|e| run.refused(&format!("an SSTable that is not as it says: {e}")))?;
        *verifier = next;
        Ok(Some(opened))
    }

    /// Removes what was written and not made true; elsewhere, what lies there and can be nothing else.
    pub(in crate::work::jobs) fn remove_left(&self, catalog: &Catalog) {
        match &self.verifier {
            None => catalog.remove_tables(&self.run.leftovers()),
            Some((verifier, _)) => catalog.remove_strays_of(verifier),
        }
    }
}
