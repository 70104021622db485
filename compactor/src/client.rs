//! The database's side: which compactions go to a server, and to which one.
//!
//! One thread follows all servers (`known`) and all compactions (`follow`). The database's workers never wait
//! for it: they ask for answers that have come ([`OffloadedCompaction::advance`]) and do other work
//! meanwhile.

use crate::connect::{Line, Reach};
use crate::cost::{Costs, Facts};
use crate::directory::{
    ASK_EVERY, Chosen, Directory, ManagerSeen, Room, ServerSeen, follow_manager, follow_own_manager, renew,
};
use crate::drive::{Gives, RemoteCompaction, ServerSlot, follow};
use crate::fetch::Memory;
use crate::files::StaleFiles;
use crate::load::Load;
use crate::manager::{CompactionManager, Managed, asked};
use crate::options::CompactorsOptions;
use crate::protocol::{Begin, PROTOCOL_VERSION};
use siltstone::offload::{Decision, Offer, Offload, RetainOutputs};
use siltstone::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use tokio::sync::mpsc;

/// The compaction servers that a database knows. Given to [`siltstone::Builder::offload`].
pub struct Compactors {
    known: Arc<Directory>,
    options: CompactorsOptions,
    /// The index at which the next search for a server begins, so that equal ones take turns.
    next: AtomicU64,
    runtime: Option<tokio::runtime::Runtime>,
    load: Arc<Load>,
}

impl Compactors {
    /// Connects to the servers at these addresses (`host:port`), which need not be there yet.
    ///
    /// # Errors
    /// An address that is none.
    pub fn connect<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, String> {
        Self::connect_with(addresses, CompactorsOptions::default())
    }

    /// Connects to the servers at these addresses with these settings.
    ///
    /// # Errors
    /// An address that is none, or is of another machine that proves nothing; a certificate or secret that
    /// cannot be read.
    pub fn connect_with<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
        options: CompactorsOptions,
    ) -> Result<Self, String> {
        Self::start(addresses.into_iter().map(Into::into).collect(), options, None)
    }

    /// Connects to the servers at these addresses, with a manager in this process, which is asked without a
    /// connection.
    ///
    /// # Errors
    /// An address that is none, or a certificate that cannot be read.
    pub fn connect_managed<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
        mut options: CompactorsOptions,
        manager: &CompactionManager,
    ) -> Result<Self, String> {
        options.manager = Some(manager.listens_at().to_string());
        Self::start(addresses.into_iter().map(Into::into).collect(), options, Some(manager.shared.clone()))
    }

    fn start(
        addresses: Vec<String>,
        options: CompactorsOptions,
        own: Option<Arc<Managed>>,
    ) -> Result<Self, String> {
        let reach = Reach::new(options.tls.as_ref(), options.secret_file.as_deref(), options.insecure)?;
        let elsewhere = options.manager.as_ref().filter(|_| own.is_none());
        let manager = elsewhere.map(|at| Line::new(&reach, at, asked)).transpose()?;
        let known = Arc::new(Directory::new(addresses.len(), &options, &reach));
        let endpoints = addresses
            .into_iter()
            .map(|address| Ok((known.endpoint(&address)?, address)))
            .collect::<Result<Vec<_>, String>>()?;
        // Last, as a runtime must not be dropped where other futures run, and this may be called there.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("siltstone-offload")
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let inside = runtime.enter();
        endpoints.into_iter().for_each(|(endpoint, address)| drop(known.add(address, endpoint)));
        runtime.spawn(renew(Arc::downgrade(&known)));
        if let Some(line) = manager {
            runtime.spawn(follow_manager(Arc::downgrade(&known), line));
        }
        if let Some(own) = own {
            runtime.spawn(follow_own_manager(Arc::downgrade(&known), own));
        }
        drop(inside);
        let load = Arc::new(Load::new());
        runtime.spawn(look_at_load(Arc::downgrade(&load)));
        Ok(Self { known, options, next: AtomicU64::new(0), runtime: Some(runtime), load })
    }

    /// The servers, as they were a second ago.
    pub fn servers(&self) -> Vec<ServerSeen> {
        self.known.servers()
    }

    /// The manager, if there is one.
    pub fn manager(&self) -> Option<ManagerSeen> {
        self.known.manager()
    }

    /// Reads the files of the secret and of certificates again when they are due; it may wait for the disk.
    pub fn look_at_files(&self) {
        self.known.reach.look_if_due();
    }

    /// The files of the secret and of certificates that were unusable at the last read. Does not wait.
    pub fn stale_files(&self) -> StaleFiles {
        self.known.reach.stale_files()
    }

    /// Chooses the server for a compaction of the store.
    fn choose(&self, store: u32) -> Result<Chosen, String> {
        self.known.choose(store, usize::try_from(self.next.fetch_add(1, Ordering::Relaxed)).unwrap_or(0))
    }
}

impl std::fmt::Debug for Compactors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compactors").field("servers", &self.servers()).finish_non_exhaustive()
    }
}

impl Drop for Compactors {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Offload for Compactors {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let (spec, bytes) = (offer.spec, offer.spec.input_bytes());
        if bytes < self.options.bytes_min {
            return Decision::here();
        }
        let here = |why: String, numbers| Decision {
            run: None,
            reason: format!("a compaction is run here: {why}"),
            numbers,
        };
        let store = spec.first_output().store.0;
        let Chosen { server, has: Room { room, load, shares_storage } } = match self.choose(store) {
            Ok(chosen) => chosen,
            Err(why) => return here(why, vec![("bytes", bytes)]),
        };
        let facts = Facts {
            overhead_bytes: self.options.bytes_min,
            input_bytes: bytes,
            predicted_bytes: offer.predicted_bytes(),
            cached_bytes: offer.cached_bytes(),
            load_here: self.load.share(),
            load_there: load,
            hands_over: offer.keep != RetainOutputs::No,
            is_carried: !shares_storage,
        };
        if !shares_storage && spec.needs_log() {
            return here("values of it lie in the WAL, which is not carried".into(), vec![("bytes", bytes)]);
        }
        let costs = facts.costs();
        let numbers = numbers(&facts, costs, spec.inputs().count() as u64, room);
        if self.options.by_cost && costs.there >= costs.here {
            return here("it costs less than to hand it over".into(), numbers);
        }
        let merge = match spec.clone().with_dirs(as_it_is).and_then(|spec| spec.without_log().to_bytes()) {
            Ok(merge) => merge,
            Err(e) => return here(e.to_string(), numbers),
        };
        let Some(runtime) = &self.runtime else { return here("nobody sends it any more".into(), numbers) };
        let (keep, carried) = (offer.keep as u32, !shares_storage);
        let begin = Begin { protocol_version: PROTOCOL_VERSION, merge, keep, carried };
        let tables = carried.then(|| offer.tables());
        let (answers, come) = std_mpsc::channel();
        let (go_ahead, allowed) = mpsc::unbounded_channel();
        let CompactorsOptions { patience, stall, .. } = self.options;
        let input_bytes = spec.inputs().fold(0u64, |sum, table| sum.saturating_add(table.bytes));
        let gives = Gives { merge: begin, input_bytes, carried: tables, patience, stall };
        runtime.spawn(follow(ServerSlot::new(server.clone()), gives, answers, allowed));
        let memory = Memory::new(runtime.handle(), &server, spec, self.options.patience);
        let there = RemoteCompaction::new(server.clone(), runtime.handle().clone(), come, go_ahead, memory);
        let reason = format!("a compaction goes to {}", server.address);
        Decision { run: Some(Box::new(there)), reason, numbers }
    }
}

/// The directory's path without links, by which a server on the same machine, or one that mounts the same,
/// knows it.
fn as_it_is(dir: &Path) -> siltstone::Result<PathBuf> {
    std::fs::canonicalize(dir)
        .map_err(|e| Error::new(ErrorKind::Io, format!("the directory {}: {e}", dir.display())))
}

fn numbers(facts: &Facts, costs: Costs, tables: u64, room: u64) -> Vec<(&'static str, u64)> {
    let percent = |share: f64| (share * 100.0) as u64;
    vec![
        ("bytes", facts.input_bytes),
        ("predicted_bytes", facts.predicted_bytes),
        ("cached_bytes", facts.cached_bytes),
        ("load_here_percent", percent(facts.load_here)),
        ("load_there_percent", percent(facts.load_there)),
        ("cost_here", costs.here),
        ("cost_there", costs.there),
        ("tables", tables),
        ("room", room),
    ]
}

/// Samples the load of this process, as long as somebody wants to know.
async fn look_at_load(load: std::sync::Weak<Load>) {
    while let Some(of) = load.upgrade() {
        of.rates(0);
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}
