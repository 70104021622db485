//! The compaction servers that a database knows: given to it, or named by a manager. Each is asked for its
//! state every second; one that does not answer, or fails a compaction, gets none until it answers again.
//! With a manager, a compaction of a store looks at the one server that is the store's, however many there
//! are.

use crate::address::Allowed;
use crate::connect::{Line, Reach};
use crate::manager::Managed;
use crate::options::CompactorsOptions;
use crate::protocol::stubs::compactor_client::CompactorClient;
use crate::protocol::stubs::manager_client::ManagerClient;
use crate::protocol::{
    CompactorState, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, Ring, RingRequest, StateRequest, WINDOW_BYTES,
};
use crate::ring::server_of;
use crate::secret::Calls;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

/// The interval at which servers are asked for their state.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to answer with its state.
const ASK_WAIT: Duration = Duration::from_secs(2);
/// The pause of a server that failed a compaction: twice as long after the next failure, and so on.
const FAILURE_REST: Duration = Duration::from_millis(250);
const FAILURE_REST_MAX: Duration = Duration::from_secs(15);
/// The most servers that are known at a time, where a manager names more and more.
const KNOWN_MAX: usize = 1 << 12;
/// How long connecting may take.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// The known servers, and the stores that go to each of them as the manager said last.
pub(crate) struct Directory {
    servers: Mutex<Arc<Vec<Arc<Server>>>>,
    ring: Mutex<Arc<Mapping>>,
    /// The number of servers that were given and not named by the manager; they come first.
    given: usize,
    manager: Option<String>,
    manager_answers: AtomicBool,
    /// The way in which servers are reached.
    pub(crate) reach: Arc<Reach>,
    allowed: Allowed,
    patience: Duration,
}

/// A manager's ring, with the servers that it names.
#[derive(Default)]
struct Mapping {
    number: u64,
    /// The server of each entry of the ring; none where it is not known: such stores go to any.
    servers: Vec<Option<Arc<Server>>>,
}

/// A manager as a database sees it.
#[derive(Clone, Debug)]
pub struct ManagerSeen {
    /// Its address.
    pub address: String,
    /// Whether it answered a second ago.
    pub answers: bool,
}

/// A compaction server as a database sees it.
#[derive(Clone, Debug)]
pub struct ServerSeen {
    /// Its address.
    pub address: String,
    /// Its state a second ago; `None` where it does not answer.
    pub state: Option<CompactorState>,
    /// Compactions that this database has there.
    pub given: u64,
}

#[cfg(test)]
thread_local! {
    /// The number of times that a server's room was checked.
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) calls: Calls,
    endpoint: Mutex<Endpoint>,
    /// The connection, replaced after each compaction that failed.
    channel: Mutex<Channel>,
    seen: Mutex<Seen>,
    /// Compactions that this database has there.
    pub(crate) given: AtomicU64,
}

/// The state of a server as it was seen last.
#[derive(Default)]
struct Seen {
    /// The server's last state; `None` where it did not answer, or failed a compaction since.
    state: Option<CompactorState>,
    /// Compactions of other databases that it had then.
    of_others: u64,
    /// The number of compactions in a row that it failed, and until when it therefore gets none.
    failed: u32,
    not_before: Option<Instant>,
}

impl Server {
    /// A server that is connected to when it is first used. To be called inside the runtime that connects.
    fn new(address: String, endpoint: Endpoint, calls: Calls) -> Arc<Self> {
        let channel = Mutex::new(endpoint.connect_lazy());
        let (endpoint, seen, given) = (Mutex::new(endpoint), Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { address, calls, endpoint, channel, seen, given })
    }

    /// Gives calls that begin from now on a connection to that endpoint. Inside the runtime.
    fn renew(&self, endpoint: Endpoint) {
        *self.channel.lock() = endpoint.connect_lazy();
        *self.endpoint.lock() = endpoint;
    }

    /// The connection for a call that begins now.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.lock().clone()
    }

    /// Notes that the server failed a compaction: it gets none before it has answered again, and the more it
    /// failed in a row, the longer. Later calls have a new connection: a damaged one may let small calls
    /// through and hold up large ones for good, where its two ends no longer agree on how much may be on the
    /// way. Inside the runtime.
    pub(crate) fn note_failure(&self) {
        let channel = self.endpoint.lock().connect_lazy();
        *self.channel.lock() = channel;
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

    fn seen(&self) -> ServerSeen {
        ServerSeen {
            address: self.address.clone(),
            state: self.seen.lock().state.clone(),
            given: self.given.load(Ordering::Relaxed),
        }
    }

    /// The room that the server has; `None` where it is to get nothing.
    fn room(&self) -> Option<Room> {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
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

impl Directory {
    /// The servers of a database to which so many are given; these are still to be added.
    pub(crate) fn new(given: usize, options: &CompactorsOptions, reach: &Arc<Reach>) -> Self {
        Self {
            servers: Mutex::default(),
            ring: Mutex::default(),
            given,
            manager: options.manager.clone(),
            manager_answers: AtomicBool::new(false),
            reach: reach.clone(),
            allowed: Allowed::new(&options.allow),
            patience: options.patience,
        }
    }

    pub(crate) fn servers(&self) -> Vec<ServerSeen> {
        self.servers.lock().iter().map(|server| server.seen()).collect()
    }

    pub(crate) fn manager(&self) -> Option<ManagerSeen> {
        let answers = self.manager_answers.load(Ordering::Relaxed);
        self.manager.clone().map(|address| ManagerSeen { address, answers })
    }

    /// The server that the manager has for the store, if it has room: O(1). Else the one with the most room
    /// that has any, which looks at all of them, from `first` on.
    pub(crate) fn choose(&self, store: u32, first: usize) -> Result<Chosen, String> {
        let ring = self.ring.lock().clone();
        if let Some(Some(own)) = server_of(&ring.servers, store)
            && let Some(has) = own.room().filter(|has| has.room > 0)
        {
            return Ok(Chosen { server: own.clone(), has });
        }
        let servers = self.servers.lock().clone();
        let (mut best, mut answer) = (None, 0);
        for n in 0..servers.len() {
            let server = &servers[(first + n) % servers.len()];
            let Some(has) = server.room() else { continue };
            answer += 1;
            if has.room == 0 {
                continue;
            }
            let chosen = Chosen { server: server.clone(), has };
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

    pub(crate) fn endpoint(&self, address: &str) -> Result<Endpoint, String> {
        let endpoint = self.reach.endpoint(&format!("compaction server {address}"), address)?;
        Ok(endpoint
            .connect_timeout(CONNECT_WAIT)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .http2_keep_alive_interval(ASK_EVERY)
            .keep_alive_timeout(self.patience))
    }

    /// The endpoint of a server that the manager names, if it may be named.
    fn endpoint_named(&self, address: &str) -> Result<Endpoint, String> {
        match self.allowed.has(address) {
            true => self.endpoint(address),
            false => Err(format!("{address} is none of the compaction servers that may be named")),
        }
    }

    /// Adds a server. To be called inside the runtime that is to ask it for its state.
    pub(crate) fn add(&self, address: String, endpoint: Endpoint) -> Arc<Server> {
        let calls = self.reach.calls(&address);
        let server = Server::new(address, endpoint, calls);
        tokio::spawn(watch(Arc::downgrade(&server)));
        Arc::make_mut(&mut *self.servers.lock()).push(server.clone());
        server
    }

    /// Takes over the manager's ring: servers that are new are known from now on. Those that it does not name
    /// any more stay known, as they may be there again, until there are too many; then all of them are
    /// forgotten. O(servers log servers) where the ring is another one than before, else O(1).
    fn take(&self, ring: &Ring) {
        if ring.number != 0 && self.ring.lock().number == ring.number {
            return;
        }
        let named: BTreeSet<&String> = ring.servers.iter().collect();
        let mut servers = self.servers.lock();
        let known: BTreeSet<&String> = servers.iter().map(|server| &server.address).collect();
        let new = named.iter().filter(|address| !known.contains(*address)).count();
        if servers.len() + new > KNOWN_MAX {
            let (given, others) = servers.split_at(self.given.min(servers.len()));
            let others = others.iter().filter(|server| named.contains(&server.address));
            *servers = Arc::new(given.iter().chain(others).cloned().collect());
        }
        drop(servers);
        let mut known: BTreeMap<String, Arc<Server>> =
            self.servers.lock().iter().map(|server| (server.address.clone(), server.clone())).collect();
        for address in named {
            if known.contains_key(address) || known.len() >= KNOWN_MAX {
                continue;
            }
            match self.endpoint_named(address) {
                Ok(endpoint) => _ = known.insert(address.clone(), self.add(address.clone(), endpoint)),
                Err(why) => tracing::warn!(target: "siltstone", "from the compaction manager: {why}"),
            }
        }
        let servers = ring.servers.iter().map(|address| known.get(address).cloned()).collect();
        *self.ring.lock() = Arc::new(Mapping { number: ring.number, servers });
    }
}

/// The room that a server has left.
pub(crate) struct Room {
    /// Compactions that it has room for.
    pub(crate) room: u64,
    /// The share of its processors that is in use.
    pub(crate) load: f64,
    pub(crate) shares_storage: bool,
}

/// A server that was chosen for a compaction, and the room it has.
pub(crate) struct Chosen {
    pub(crate) server: Arc<Server>,
    pub(crate) has: Room,
}

/// Asks the manager for servers, as long as somebody wants to know.
pub(crate) async fn follow_manager(known: std::sync::Weak<Directory>, mut line: Line) {
    loop {
        let Some(number) = known.upgrade().map(|of| of.ring.lock().number) else { return };
        let client = ManagerClient::new(line.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let request = RingRequest { protocol_version: PROTOCOL_VERSION, number };
        let ask = move |request: tonic::Request<RingRequest>| {
            let mut client = client.clone();
            async move { client.ring(request).await }
        };
        let ring = line.calls.unary(request, ask).await;
        let Some(of) = known.upgrade() else { return };
        of.manager_answers.store(ring.is_ok(), Ordering::Relaxed);
        if let Ok(ring) = ring {
            of.take(&ring);
        }
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Asks a manager in this process for servers, as long as somebody wants to know.
pub(crate) async fn follow_own_manager(known: std::sync::Weak<Directory>, manager: Arc<Managed>) {
    while let Some(of) = known.upgrade() {
        of.manager_answers.store(true, Ordering::Relaxed);
        let number = of.ring.lock().number;
        of.take(&manager.ring(number));
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Replaces the connections to servers once certificates have changed, as long as somebody wants to know the
/// servers.
pub(crate) async fn renew(known: std::sync::Weak<Directory>) {
    let mut version = 0;
    while let Some(of) = known.upgrade() {
        let now = of.reach.version();
        if std::mem::replace(&mut version, now) != now {
            let servers = of.servers.lock().clone();
            for server in servers.iter() {
                of.endpoint(&server.address).into_iter().for_each(|endpoint| server.renew(endpoint));
            }
        }
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Asks a server for its state, as long as somebody knows it.
async fn watch(server: std::sync::Weak<Server>) {
    loop {
        let Some(of) = server.upgrade() else { return };
        let ask = |request: tonic::Request<StateRequest>| {
            let mut client = CompactorClient::new(of.channel());
            async move { client.state(request).await }
        };
        let answer = tokio::time::timeout(ASK_WAIT, of.calls.unary(StateRequest {}, ask)).await;
        let state = answer.ok().and_then(Result::ok);
        let state = state.filter(|state| state.protocol_version == PROTOCOL_VERSION);
        of.note_state(state);
        drop(of);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(slots: u64) -> CompactorState {
        CompactorState {
            protocol_version: PROTOCOL_VERSION,
            slots,
            processors: 2,
            ..CompactorState::default()
        }
    }

    #[test]
    fn of_four_thousand_servers_a_compaction_looks_at_its_stores_own() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let allow = vec!["10.0.0.*".to_string()];
        let options = CompactorsOptions { allow, ..CompactorsOptions::default() };
        let reach = Reach::new(None, None, true).unwrap();
        let known = Directory::new(0, &options, &reach);
        let endpoint = Endpoint::from_static("http://127.0.0.1:1");
        let servers: Vec<_> = (0..KNOWN_MAX)
            .map(|n| Server::new(format!("10.0.0.1:{n}"), endpoint.clone(), reach.calls("")))
            .collect();
        servers.iter().for_each(|server| server.note_state(Some(state(1))));
        *known.servers.lock() = Arc::new(servers.clone());
        let names: Vec<String> = servers.iter().map(|server| server.address.clone()).collect();
        known.take(&Ring { number: 7, servers: names });
        assert_eq!(known.servers.lock().len(), KNOWN_MAX, "all were known");
        LOOKS.set(0);
        for store in 0..10_000_u32 {
            let chosen = known.choose(store, 0).unwrap();
            assert!(Arc::ptr_eq(&chosen.server, &servers[store as usize % KNOWN_MAX]));
        }
        assert_eq!(LOOKS.get(), 10_000);
        // One that has no room is done without, and a ring that is known costs nothing.
        servers[5].note_state(Some(state(0)));
        assert!(!Arc::ptr_eq(&known.choose(5, 0).unwrap().server, &servers[5]));
        let before = known.ring.lock().clone();
        known.take(&Ring { number: 7, servers: Vec::new() });
        assert!(Arc::ptr_eq(&before, &known.ring.lock()));
        // Without a new one nobody is forgotten; where there are too many, those that are not named are. An
        // entry that is no address leaves the others where they are.
        known.take(&Ring { number: 8, servers: vec!["10.0.0.1:9".into()] });
        assert_eq!(known.servers.lock().len(), KNOWN_MAX);
        let named = ["no address", "10.0.0.2:1", "10.0.0.1:9", "10.0.1.1:1"].map(String::from).to_vec();
        known.take(&Ring { number: 9, servers: named });
        assert_eq!(known.servers.lock().len(), 2, "and one that may not be named is not known");
        let ring = known.ring.lock().servers.clone();
        assert!(ring[0].is_none() && ring[3].is_none() && ring.len() == 4);
        assert!(Arc::ptr_eq(ring[2].as_ref().unwrap(), &servers[9]));
        assert!(Arc::ptr_eq(&known.choose(2, 0).unwrap().server, &servers[9]));
    }
}
