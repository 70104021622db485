//! The compaction manager (OFF-2): knows which compaction servers there are, and says which stores'
//! compactions go to which.
//!
//! ```text
//! compaction servers   Announce(address, state)  every second     ->  manager
//! data servers         Ring()                    every second     ->  manager: servers, and which stores go where (`ring`)
//! ```
//!
//! Servers announce themselves, or the manager is given their addresses and asks them. One that has not been
//! heard of for some seconds is left out. The manager has no durable state: after a restart it knows all
//! servers a second later, and while it is down data servers go on with those that they know.

use crate::address::parts;
use crate::connect::{Line, Reach, may_listen};
use crate::files::StaleFiles;
use crate::listen::{bounded, connections};
use crate::protocol::stubs::compactor_client::CompactorClient;
use crate::protocol::stubs::manager_client::ManagerClient;
use crate::protocol::stubs::manager_server::{Manager as Service, ManagerServer};
use crate::protocol::{
    Announced, Announcement, CompactorState, PROTOCOL_VERSION, Ring, RingRequest, StateRequest,
};
use crate::ring::{Spread, number, ring};
use crate::secret::{Guard, Proof, Secret};
use crate::tls::{ClientTls, ServerTls, Tls};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status};

/// The interval at which servers announce themselves, servers are asked for their state, and databases ask
/// for the ring.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// The silence after which a server is left out.
const LOST_AFTER: Duration = Duration::from_secs(4);
/// The time within which an answer must come.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// The interval at which silent servers are looked for; other requests skip this, however many servers and
/// databases there are.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// When spreading by load, the ring is made anew this often: load moves faster than compactions end.
const NEW_RING_EVERY: Duration = Duration::from_secs(5);
/// The most servers. More are refused, as one that announces itself under many names would fill memory.
const SERVERS_MAX: usize = 1 << 12;
/// The most bytes of a message to it.
const ANNOUNCEMENT_BYTES_MAX: usize = 16 << 10;
/// Bytes of an address at most.
const ADDRESS_MAX: usize = 300;

/// Settings of a manager.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// Where it listens; beyond this machine only with TLS, and certificates or a secret of others, or
    /// `insecure`.
    pub listen: SocketAddr,
    /// Servers that do not announce themselves.
    pub servers: Vec<String>,
    /// How it spreads stores over servers.
    pub spread: Spread,
    /// Certificates, where connections are encrypted.
    pub tls: Option<ServerTls>,
    /// For the servers that it asks, where they speak TLS.
    pub servers_tls: Option<ClientTls>,
    /// A file with a secret of 16 bytes or more: only those that have it too may announce themselves or ask,
    /// and are asked. It is read again when it changes. Without it, and without certificates that are asked
    /// for, any process on this machine may.
    pub secret_file: Option<PathBuf>,
    /// Listens beyond this machine although nothing protects it.
    pub insecure: bool,
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            servers: Vec::new(),
            spread: Spread::default(),
            tls: None,
            servers_tls: None,
            secret_file: None,
            insecure: false,
        }
    }
}

/// A manager that runs.
#[derive(Debug)]
pub struct CompactionManager {
    listens_at: SocketAddr,
    pub(crate) shared: Arc<Managed>,
    secret: Option<Arc<Secret>>,
    tls: Option<Arc<Tls>>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// What a manager knows, and how it spreads stores.
pub(crate) struct Managed {
    spread: Spread,
    known: Mutex<Known>,
}

impl std::fmt::Debug for Managed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Managed({})", self.spread)
    }
}

impl Managed {
    /// The ring as it is now, for who has the one of that number.
    pub(crate) fn ring(&self, number: u64) -> Ring {
        let ring = self.known.lock().ring(self.spread);
        match ring.number == number {
            true => Ring { servers: Vec::new(), number },
            false => Ring::clone(&ring),
        }
    }
}

#[derive(Default)]
struct Known {
    servers: BTreeMap<String, (CompactorState, Instant)>,
    /// The ring as it was made last, of which servers, and when; when it was last looked whether they are
    /// there.
    ring: Arc<Ring>,
    of: Vec<String>,
    made: Option<Instant>,
    looked: Option<Instant>,
}

impl Known {
    /// Notes an announcement or an answer of a server.
    fn note(&mut self, address: String, state: CompactorState) -> Result<(), String> {
        if self.servers.len() >= SERVERS_MAX && !self.servers.contains_key(&address) {
            return Err(format!("{SERVERS_MAX} compaction servers are known, more are not taken"));
        }
        self.servers.insert(address, (state, Instant::now()));
        Ok(())
    }

    /// The ring of those that are there: anew when one came or went, and by load after a while.
    fn ring(&mut self, spread: Spread) -> Arc<Ring> {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_EVERY) {
            return self.ring.clone();
        }
        self.looked = Some(now);
        self.servers.retain(|_, (_, heard)| now.duration_since(*heard) < LOST_AFTER);
        let is_old = self.made.is_none_or(|made| now.duration_since(made) >= NEW_RING_EVERY);
        if self.made.is_none() || !self.servers.keys().eq(&self.of) || (is_old && spread == Spread::Load) {
            let states = self.servers.iter().map(|(at, (state, _))| (at.clone(), state.clone())).collect();
            let servers = ring(spread, &states);
            self.ring = Arc::new(Ring { number: number(&servers), servers });
            (self.of, self.made) = (self.servers.keys().cloned().collect(), Some(now));
        }
        self.ring.clone()
    }
}

impl CompactionManager {
    /// Starts it on a thread of its own; not to be called, nor the manager dropped, where futures run.
    ///
    /// # Errors
    /// What is wrong with the settings, or with the address.
    pub fn start(config: ManagerConfig) -> Result<Self, String> {
        let secret_file = config.secret_file.as_deref();
        if !may_listen(config.listen, config.tls.as_ref(), secret_file, config.insecure) {
            return Err(format!(
                "manager: {} can be reached from other machines: give a certificate, and who signs those of others or a \
                 secret, or say insecure",
                config.listen
            ));
        }
        let tls = config.tls.as_ref().map(Tls::read).transpose()?;
        let secret = secret_file.map(Secret::read).transpose()?;
        let reach = Reach::new(config.servers_tls.as_ref(), secret_file, config.insecure)?;
        let line = |address: &String| -> Result<_, String> {
            Ok((address.clone(), Line::new(&reach, address, asked)?))
        };
        let lines = config.servers.iter().map(line).collect::<Result<Vec<_>, String>>()?;
        let shared = Arc::new(Managed { spread: config.spread, known: Mutex::default() });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("compaction-manager")
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let listening = runtime.block_on(tokio::net::TcpListener::bind(config.listen));
        let listener = listening.map_err(|e| format!("manager: {}: {e}", config.listen))?;
        let listens_at = listener.local_addr().map_err(|e| e.to_string())?;
        for (address, line) in lines {
            runtime.spawn(ask(shared.clone(), address, line));
        }
        let service =
            ManagerServer::new(Manages(shared.clone())).max_decoding_message_size(ANNOUNCEMENT_BYTES_MAX);
        let guard = Guard::new(secret.as_ref(), listens_at.port(), tls.is_some());
        let service = InterceptedService::new(service, guard);
        let inside = runtime.enter();
        let incoming = connections(listener, tls.clone());
        drop(inside);
        runtime.spawn(bounded().add_service(service).serve_with_incoming(incoming));
        Ok(Self { listens_at, shared, secret, tls, runtime: Some(runtime) })
    }

    /// Reads the files of the secret and of certificates again when they are due; it may wait for the disk.
    pub fn look_at_files(&self) {
        if let Some(secret) = &self.secret {
            secret.look_if_due();
        }
        if let Some(tls) = &self.tls {
            tls.look_if_due();
        }
    }

    /// Which of these files were unusable at the last read. Does not wait.
    pub fn stale_files(&self) -> StaleFiles {
        StaleFiles {
            secret: self.secret.as_ref().is_some_and(|secret| secret.is_stale()),
            certificates: self.tls.as_ref().is_some_and(|tls| tls.is_stale()),
        }
    }

    /// Its address.
    pub fn listens_at(&self) -> SocketAddr {
        self.listens_at
    }
}

impl Drop for CompactionManager {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection to a manager, or to a server that is asked how it is.
pub(crate) fn asked(endpoint: Endpoint) -> Endpoint {
    endpoint.connect_timeout(ANSWER_WAIT).timeout(ANSWER_WAIT)
}

/// Asks a server that does not announce itself for its state, as long as the manager runs.
async fn ask(shared: Arc<Managed>, address: String, mut line: Line) {
    loop {
        let channel = line.channel();
        let ask = move |request: Request<StateRequest>| {
            let mut client = CompactorClient::new(channel.clone());
            async move { client.state(request).await }
        };
        if let Ok(state) = line.calls.unary(StateRequest {}, ask).await {
            // (Of those that are given there are never too many.)
            let _ = shared.known.lock().note(address.clone(), state);
        }
        tokio::time::sleep(EVERY).await;
    }
}

struct Manages(Arc<Managed>);

#[tonic::async_trait]
impl Service for Manages {
    async fn announce(&self, request: Request<Announcement>) -> Result<Response<Announced>, Status> {
        let proof = Proof::of(&request);
        let Announcement { protocol_version, address, state } = request.into_inner();
        check_version(protocol_version)?;
        if address.len() > ADDRESS_MAX || parts(&address).is_none() {
            return Err(Status::invalid_argument(format!(
                "an address of {} bytes that is none",
                address.len()
            )));
        }
        let state = state.ok_or_else(|| Status::invalid_argument("a server that does not say how it is"))?;
        self.0.known.lock().note(address, state).map_err(Status::resource_exhausted)?;
        Ok(proof.with(Announced {}))
    }

    async fn ring(&self, request: Request<RingRequest>) -> Result<Response<Ring>, Status> {
        let proof = Proof::of(&request);
        let request = request.into_inner();
        check_version(request.protocol_version)?;
        Ok(proof.with(self.0.ring(request.number)))
    }
}

fn check_version(theirs: u32) -> Result<(), Status> {
    if theirs == PROTOCOL_VERSION {
        return Ok(());
    }
    let message = format!("messages of version {theirs}, this manager has version {PROTOCOL_VERSION}");
    Err(Status::failed_precondition(message))
}

/// Announces a server and its state to a manager, for ever.
pub(crate) async fn announce(
    mut manager: Line,
    address: String,
    state: impl Fn() -> CompactorState + Send + 'static,
) {
    let mut told = true;
    loop {
        let announcement = Announcement {
            protocol_version: PROTOCOL_VERSION,
            address: address.clone(),
            state: Some(state()),
        };
        let channel = manager.channel();
        let announce = move |request: Request<Announcement>| {
            let mut client = ManagerClient::new(channel.clone());
            async move { client.announce(request).await }
        };
        match manager.calls.unary(announcement, announce).await {
            Ok(_) => told = true,
            // Logged once for each time that the manager becomes unreachable.
            Err(e) if std::mem::take(&mut told) => {
                tracing::warn!(target: "siltstone", "the compaction manager does not answer: {}", e.message());
            }
            Err(_) => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten thousand databases ask every second.
    #[test]
    fn names_are_told_once_to_each_database_and_looked_at_once_for_all_of_them() {
        let managed = Managed { spread: Spread::RoundRobin, known: Mutex::default() };
        for n in 0..SERVERS_MAX {
            managed.known.lock().note(format!("10.0.0.1:{n}"), CompactorState::default()).unwrap();
        }
        let refused = managed.known.lock().note("10.0.0.2:1".into(), CompactorState::default()).unwrap_err();
        assert!(refused.starts_with("4096 compaction servers are known"), "{refused}");
        let first = managed.ring(0);
        assert_eq!(first.servers.len(), SERVERS_MAX);
        let of = managed.known.lock().ring.clone();
        let began = Instant::now();
        let (mut looks, mut looked) = (0, managed.known.lock().looked);
        let mut told = 0;
        for _ in 0..10_000 {
            told += managed.ring(first.number).servers.len();
            let now = managed.known.lock().looked;
            looks += u128::from(now != looked);
            looked = now;
        }
        assert!(looks <= began.elapsed().as_millis() / LOOK_EVERY.as_millis() + 1, "{looks} looks");
        assert_eq!(told, 0, "names that were told already");
        assert!(Arc::ptr_eq(&managed.known.lock().ring, &of), "it is made once");
    }
}
