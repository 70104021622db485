//! The database's side: which merges go, and where to.
//!
//! One thread follows all servers and all merges. The database's workers never wait for it: they ask what has come
//! ([`OffloadedMerge::advance`]) and do other work meanwhile. Each server is asked every second how it is; one that does not
//! answer, or fails a merge, gets none until it answers again.

use crate::cost::{Costs, Facts};
use crate::fetch::Memory;
use crate::follow::{Given, There, follow};
use crate::load::Load;
use crate::manager::{CompactionManager, Managed, asked_at};
use crate::protocol::stubs::compactor_client::CompactorClient;
use crate::protocol::stubs::manager_client::ManagerClient;
use crate::protocol::{
    Begin, CompactorState, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, RingRequest, StateRequest, WINDOW_BYTES,
};
use crate::reach::endpoint;
use crate::ring::server_of;
use crate::tls::ClientTls;
use parking_lot::Mutex;
use siltstone::offload::{Decision, KeepOutputs, Offer, Offload};
use siltstone::{Error, ErrorKind};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};

/// How often servers are asked how they are.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long that may take.
const ASK_WAIT: Duration = Duration::from_secs(2);
/// A server that failed a merge gets none for this long, twice as long after the next, and so on.
const FAILURE_REST: Duration = Duration::from_millis(250);
const FAILURE_REST_MAX: Duration = Duration::from_secs(15);
/// Servers that are known at a time, where a manager names more and more.
const KNOWN_MAX: usize = 1 << 12;
/// How long connecting may take.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Settings of the database's side.
#[derive(Clone, Debug)]
pub struct CompactorsOptions {
    /// Merges of fewer bytes stay here: sending one costs as much work as so many bytes do.
    pub bytes_min: u64,
    /// Larger ones stay too where they cost less here (size, what the sketches predict, what is cached, load here and there). Without
    /// it every one of them goes as long as a server has room.
    pub by_cost: bool,
    /// After how long without a word from a server its merge goes on elsewhere.
    pub patience: Duration,
    /// A manager, which says what other servers there are, and which stores' merges go to which; while it does not answer, what it
    /// said last holds. Without it, and where that server has no room, a merge goes to the known server with the most room.
    pub manager: Option<String>,
    /// Certificates, where the servers and the manager speak TLS.
    pub tls: Option<ClientTls>,
}

impl Default for CompactorsOptions {
    fn default() -> Self {
        Self {
            bytes_min: 4 << 20,
            by_cost: true,
            patience: Duration::from_secs(10),
            manager: None,
            tls: None,
        }
    }
}

/// The compaction servers that a database knows. Given to [`siltstone::Builder::offload`].
pub struct Compactors {
    known: Arc<Known>,
    options: CompactorsOptions,
    /// Where the search for a server begins, so that equals take turns.
    next: AtomicU64,
    runtime: Option<tokio::runtime::Runtime>,
    load: Arc<Load>,
}

/// The servers that are known, and which stores go where as the manager said last.
struct Known {
    servers: Mutex<Vec<Arc<Server>>>,
    ring: Mutex<Arc<Vec<String>>>,
    /// The first so many of the servers were given, not named by the manager.
    given: usize,
    manager: Option<String>,
    manager_answers: AtomicBool,
    /// How servers are reached.
    tls: Option<ClientTls>,
    patience: Duration,
}

/// What a database knows of its manager.
#[derive(Clone, Debug)]
pub struct ManagerSeen {
    /// Its address.
    pub address: String,
    /// Whether it answered a second ago.
    pub answers: bool,
}

pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) channel: Channel,
    seen: Mutex<Seen>,
    /// Merges that this database has there.
    pub(crate) given: AtomicU64,
}

/// What is known of a server.
#[derive(Default)]
struct Seen {
    /// As it was last; `None` where it did not answer, or failed a merge since.
    state: Option<CompactorState>,
    /// Merges that it had then of others.
    of_others: u64,
    /// Merges in a row that it failed, and until when it therefore gets none.
    failed: u32,
    not_before: Option<Instant>,
}

impl Server {
    /// It failed a merge: it gets none before it has answered again, and the more it failed in a row, the longer.
    pub(crate) fn note_failure(&self) {
        let mut seen = self.seen.lock();
        seen.state = None;
        seen.failed += 1;
        seen.not_before =
            Some(Instant::now() + (FAILURE_REST * (1 << seen.failed.min(6))).min(FAILURE_REST_MAX));
    }

    fn note_state(&self, state: Option<CompactorState>) {
        let given = self.given.load(Ordering::Relaxed);
        let of_others = state.as_ref().map_or(0, |state| state.merges().saturating_sub(given));
        let mut seen = self.seen.lock();
        (seen.state, seen.of_others) = (state, of_others);
    }

    /// What it has room for; `None` where it is to get nothing.
    fn room(&self) -> Option<Room> {
        let seen = self.seen.lock();
        if seen.not_before.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let state = seen.state.as_ref()?;
        let room =
            state.slots.saturating_sub(seen.of_others.saturating_add(self.given.load(Ordering::Relaxed)));
        Some(Room { room, load: state.load(), shares_storage: state.shares_storage })
    }

    pub(crate) fn note_success(&self) {
        let mut seen = self.seen.lock();
        (seen.failed, seen.not_before) = (0, None);
    }
}

/// A compaction server as a database sees it.
#[derive(Clone, Debug)]
pub struct ServerSeen {
    /// Its address.
    pub address: String,
    /// How it was a second ago; `None` where it does not answer.
    pub state: Option<CompactorState>,
    /// Merges that this database has there.
    pub given: u64,
}

impl Compactors {
    /// Knows the servers at these addresses (`host:port`), which need not be there yet.
    ///
    /// # Errors
    /// An address that is none.
    pub fn connect<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, String> {
        Self::connect_with(addresses, CompactorsOptions::default())
    }

    /// The same with other settings.
    ///
    /// # Errors
    /// An address that is none, or a certificate that cannot be read.
    pub fn connect_with<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
        options: CompactorsOptions,
    ) -> Result<Self, String> {
        Self::start(addresses.into_iter().map(Into::into).collect(), options, None)
    }

    /// The same with a manager in this process, which is asked without a connection.
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
        let elsewhere = options.manager.as_ref().filter(|_| own.is_none());
        let manager = elsewhere.map(|at| asked_at(at, options.tls.as_ref())).transpose()?;
        let known = Arc::new(Known {
            servers: Mutex::default(),
            ring: Mutex::default(),
            given: addresses.len(),
            manager: options.manager.clone(),
            manager_answers: AtomicBool::new(false),
            tls: options.tls.clone(),
            patience: options.patience,
        });
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
        endpoints.into_iter().for_each(|(endpoint, address)| known.add(address, &endpoint));
        if let Some(manager) = manager {
            runtime.spawn(follow_manager(Arc::downgrade(&known), manager.connect_lazy()));
        }
        if let Some(own) = own {
            known.manager_answers.store(true, Ordering::Relaxed);
            runtime.spawn(follow_own_manager(Arc::downgrade(&known), own));
        }
        drop(inside);
        let load = Arc::new(Load::new());
        runtime.spawn(look_at_load(Arc::downgrade(&load)));
        Ok(Self { known, options, next: AtomicU64::new(0), runtime: Some(runtime), load })
    }

    /// The servers, as they were a second ago.
    pub fn servers(&self) -> Vec<ServerSeen> {
        let seen = |server: &Arc<Server>| ServerSeen {
            address: server.address.clone(),
            state: server.seen.lock().state.clone(),
            given: server.given.load(Ordering::Relaxed),
        };
        self.known.servers.lock().iter().map(seen).collect()
    }

    /// The manager, if there is one.
    pub fn manager(&self) -> Option<ManagerSeen> {
        let answers = self.known.manager_answers.load(Ordering::Relaxed);
        self.known.manager.clone().map(|address| ManagerSeen { address, answers })
    }

    /// The server that the manager has for the store, if it has room; else the one with the most room that has any.
    fn choose(&self, store: u32) -> Result<Chosen, String> {
        let servers = self.known.servers.lock().clone();
        let ring = self.known.ring.lock().clone();
        let first = usize::try_from(self.next.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        let own = server_of(&ring, store);
        let (mut best, mut answer) = (None, 0);
        for n in 0..servers.len() {
            let server = &servers[(first + n) % servers.len()];
            let Some(has) = server.room() else { continue };
            answer += 1;
            if has.room == 0 {
                continue;
            }
            let chosen = Chosen { server: server.clone(), has };
            if own == Some(&server.address) {
                return Ok(chosen);
            }
            if best.as_ref().is_none_or(|best: &Chosen| chosen.has.room > best.has.room) {
                best = Some(chosen);
            }
        }
        best.ok_or_else(|| match (answer, servers.len()) {
            (0, 0) => "no compaction server is known".to_string(),
            (0, known) => format!("none of {known} compaction servers answers"),
            _ => format!("{answer} compaction servers have all they can run"),
        })
    }
}

impl Known {
    fn endpoint(&self, address: &str) -> Result<Endpoint, String> {
        Ok(endpoint(&format!("compaction server {address}"), address, self.tls.as_ref())?
            .connect_timeout(CONNECT_WAIT)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .http2_keep_alive_interval(ASK_EVERY)
            .keep_alive_timeout(self.patience))
    }

    /// Knows a server more. To be called inside the runtime that is to ask it how it is.
    fn add(&self, address: String, endpoint: &Endpoint) {
        let (channel, given) = (endpoint.connect_lazy(), AtomicU64::new(0));
        let server = Arc::new(Server { address, channel, seen: Mutex::default(), given });
        tokio::spawn(watch(Arc::downgrade(&server)));
        self.servers.lock().push(server);
    }

    /// Takes what the manager says: servers that are new are known from now on. Those that it does not name any more stay known, up
    /// to a number: they may be there again, and one that does not answer is asked nothing else.
    fn take(&self, ring: Vec<String>) {
        if **self.ring.lock() == ring {
            return;
        }
        let named: BTreeSet<&String> = ring.iter().collect();
        let known: BTreeSet<String> =
            self.servers.lock().iter().map(|server| server.address.clone()).collect();
        for address in named.iter().copied().filter(|address| !known.contains(*address)) {
            let mut servers = self.servers.lock();
            if servers.len() >= KNOWN_MAX {
                // Those that were given stay.
                let is_gone = |server: &Arc<Server>| !named.contains(&server.address);
                let Some(gone) = (self.given..servers.len()).find(|n| is_gone(&servers[*n])) else {
                    continue;
                };
                servers.remove(gone);
            }
            drop(servers);
            match self.endpoint(address) {
                Ok(endpoint) => self.add(address.clone(), &endpoint),
                Err(why) => tracing::warn!(target: "siltstone", "from the compaction manager: {why}"),
            }
        }
        *self.ring.lock() = Arc::new(ring);
    }
}

/// Asks the manager for servers, as long as somebody wants to know.
async fn follow_manager(known: std::sync::Weak<Known>, channel: Channel) {
    let mut client = ManagerClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    loop {
        let ring = client.ring(RingRequest { protocol_version: PROTOCOL_VERSION }).await;
        let Some(of) = known.upgrade() else { return };
        of.manager_answers.store(ring.is_ok(), Ordering::Relaxed);
        if let Ok(ring) = ring {
            of.take(ring.into_inner().servers);
        }
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The same of a manager in this process.
async fn follow_own_manager(known: std::sync::Weak<Known>, manager: Arc<Managed>) {
    while let Some(of) = known.upgrade() {
        of.take(manager.ring());
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// What a server has left.
struct Room {
    /// Merges that it has room for.
    room: u64,
    /// The share of its processors that is in use.
    load: f64,
    shares_storage: bool,
}

/// A server that has room for a merge.
struct Chosen {
    server: Arc<Server>,
    has: Room,
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
            reason: format!("a merge is run here: {why}"),
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
            hands_over: offer.keep != KeepOutputs::No,
            is_carried: !shares_storage,
        };
        if !shares_storage && spec.log_bytes() > 0 {
            return here("values of it lie in the log, which is not carried".into(), vec![("bytes", bytes)]);
        }
        let costs = facts.costs();
        let numbers = numbers(&facts, costs, spec.inputs().count() as u64, room);
        if self.options.by_cost && costs.there >= costs.here {
            return here("it costs less than to hand it over".into(), numbers);
        }
        let merge = match spec.clone().with_dirs(as_it_is).and_then(|spec| spec.to_bytes()) {
            Ok(merge) => merge,
            Err(e) => return here(e.to_string(), numbers),
        };
        let Some(runtime) = &self.runtime else { return here("nobody sends it any more".into(), numbers) };
        let (keep, carried) = (offer.keep as u32, !shares_storage);
        let begin = Begin { protocol_version: PROTOCOL_VERSION, merge, keep, carried };
        let tables = carried.then(|| offer.tables());
        let (answers, come) = std_mpsc::channel();
        let (go_ahead, allowed) = mpsc::unbounded_channel();
        let (given, patience) = (Given::new(server.clone()), self.options.patience);
        runtime.spawn(follow(given, begin, answers, allowed, patience, tables));
        let memory = Memory::new(runtime.handle(), &server.channel, spec, self.options.patience);
        let there = There::new(server.address.clone(), come, go_ahead, memory);
        let reason = format!("a merge goes to {}", server.address);
        Decision { run: Some(Box::new(there)), reason, numbers }
    }
}

/// A directory's name as it is without links, which is how a server on the same machine, or one that mounts the same, knows it.
fn as_it_is(dir: &Path) -> siltstone::Result<std::path::PathBuf> {
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

/// Asks a server how it is, as long as somebody knows it.
async fn watch(server: std::sync::Weak<Server>) {
    loop {
        let Some(of) = server.upgrade() else { return };
        let mut client = CompactorClient::new(of.channel.clone());
        let answer = tokio::time::timeout(ASK_WAIT, client.state(StateRequest {})).await;
        let state = answer.ok().and_then(Result::ok).map(tonic::Response::into_inner);
        let state = state.filter(|state| state.protocol_version == PROTOCOL_VERSION);
        of.note_state(state);
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Looks at what this process uses, as long as somebody wants to know.
async fn look_at_load(load: std::sync::Weak<Load>) {
    while let Some(of) = load.upgrade() {
        of.rates(0);
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}
