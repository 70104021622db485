//! The database's side: which merges go, where to, and what comes back.
//!
//! One thread follows all servers and all merges. The database's workers never wait for it: they ask what has come
//! ([`OffloadedMerge::advance`]) and do other work meanwhile. Each server is asked every second how it is; one that does not
//! answer, or fails a merge, gets none until it answers again.

use crate::protocol::stubs::compactor_client::CompactorClient;
use crate::protocol::{
    Ask, Begin, Begun, CompactorState, GoAhead, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, StateRequest, Tell,
    Waits, asking,
};
use crate::tls::ClientTls;
use parking_lot::Mutex;
use siltstone::offload::{Decision, MergeAnswer, MergeSpec, Offload, OffloadedMerge};
use siltstone::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// How often servers are asked how they are.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long that may take.
const ASK_WAIT: Duration = Duration::from_secs(2);
/// How long a merge may wait for others there: meanwhile it waits here for nothing.
const QUEUE_WAIT: Duration = Duration::from_secs(3);
/// A server that failed a merge gets none for this long, twice as long after the next, and so on.
const FAILURE_REST: Duration = Duration::from_millis(250);
const FAILURE_REST_MAX: Duration = Duration::from_secs(15);
/// How long connecting may take.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Settings of the database's side.
#[derive(Clone, Debug)]
pub struct CompactorsOptions {
    /// Merges of fewer bytes stay here: sending them costs more than it saves.
    pub bytes_min: u64,
    /// After how long without a word from a server its merge goes on elsewhere.
    pub patience: Duration,
    /// Certificates, where the servers speak TLS.
    pub tls: Option<ClientTls>,
}

impl Default for CompactorsOptions {
    fn default() -> Self {
        Self { bytes_min: 4 << 20, patience: Duration::from_secs(10), tls: None }
    }
}

/// The compaction servers that a database knows. Given to [`siltstone::Builder::offload`].
pub struct Compactors {
    servers: Vec<Arc<Server>>,
    options: CompactorsOptions,
    /// Where the search for a server begins, so that equals take turns.
    next: AtomicU64,
    runtime: Option<tokio::runtime::Runtime>,
}

struct Server {
    address: String,
    channel: Channel,
    seen: Mutex<Seen>,
    /// Merges that this database has there.
    given: AtomicU64,
}

/// What is known of a server.
#[derive(Default)]
struct Seen {
    /// As it was last; `None` where it did not answer, or failed a merge since.
    state: Option<CompactorState>,
    /// Merges that it was given since then.
    since: u64,
    /// Merges in a row that it failed, and until when it therefore gets none.
    failed: u32,
    not_before: Option<Instant>,
}

impl Server {
    /// It failed a merge: it gets none before it has answered again, and the more it failed in a row, the longer.
    fn note_failure(&self) {
        let mut seen = self.seen.lock();
        seen.state = None;
        seen.failed += 1;
        seen.not_before =
            Some(Instant::now() + (FAILURE_REST * (1 << seen.failed.min(6))).min(FAILURE_REST_MAX));
    }

    fn note_state(&self, state: Option<CompactorState>) {
        let mut seen = self.seen.lock();
        (seen.state, seen.since) = (state, 0);
    }

    fn note_success(&self) {
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
        let tls = options.tls.as_ref().map(ClientTls::config).transpose()?;
        let mut endpoints = Vec::new();
        for address in addresses {
            let address = address.into();
            let scheme = if tls.is_some() { "https" } else { "http" };
            let wrong = |e: tonic::transport::Error| format!("compaction server {address}: {e}");
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
                .map_err(wrong)?
                .connect_timeout(CONNECT_WAIT)
                .http2_keep_alive_interval(ASK_EVERY)
                .keep_alive_timeout(options.patience);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(wrong)?;
            }
            endpoints.push((address, endpoint));
        }
        // Last, as a runtime must not be dropped where other futures run, and this may be called there.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("siltstone-offload")
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let start = |(address, endpoint): (String, Endpoint)| {
            let _inside = runtime.enter();
            let (channel, given) = (endpoint.connect_lazy(), AtomicU64::new(0));
            let server = Arc::new(Server { address, channel, seen: Mutex::default(), given });
            runtime.spawn(watch(Arc::downgrade(&server)));
            server
        };
        let servers = endpoints.into_iter().map(start).collect();
        Ok(Self { servers, options, next: AtomicU64::new(0), runtime: Some(runtime) })
    }

    /// The servers, as they were a second ago.
    pub fn servers(&self) -> Vec<ServerSeen> {
        let seen = |server: &Arc<Server>| ServerSeen {
            address: server.address.clone(),
            state: server.seen.lock().state.clone(),
            given: server.given.load(Ordering::Relaxed),
        };
        self.servers.iter().map(seen).collect()
    }

    /// The server with the most room that has any.
    fn choose(&self) -> Result<(Arc<Server>, u64), String> {
        let first = usize::try_from(self.next.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        let (mut best, mut answer) = (None, 0);
        for n in 0..self.servers.len() {
            let server = &self.servers[(first + n) % self.servers.len()];
            let seen = server.seen.lock();
            let rests = seen.not_before.is_some_and(|until| Instant::now() < until);
            let Some(state) = seen.state.as_ref().filter(|_| !rests) else { continue };
            answer += 1;
            let room = state.slots.saturating_sub(state.running + state.queued + seen.since);
            if room > 0 && best.as_ref().is_none_or(|(_, most)| room > *most) {
                best = Some((server.clone(), room));
            }
        }
        let Some((server, room)) = best else {
            return Err(match answer {
                0 => format!("none of {} compaction servers answers", self.servers.len()),
                _ => format!("{answer} compaction servers have all they can run"),
            });
        };
        server.seen.lock().since += 1;
        Ok((server, room))
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
    fn decide(&self, spec: &MergeSpec) -> Decision {
        let bytes = spec.input_bytes();
        if bytes < self.options.bytes_min {
            return Decision::here();
        }
        let (server, room) = match self.choose() {
            Ok(chosen) => chosen,
            Err(why) => {
                let reason = format!("a merge is run here: {why}");
                return Decision { run: None, reason, numbers: vec![("bytes", bytes)] };
            }
        };
        let Some(runtime) = &self.runtime else { return Decision::here() };
        // The other end knows directories by what they are without links and `..`.
        let named = |dir: &Path| {
            std::fs::canonicalize(dir)
                .map_err(|e| Error::new(ErrorKind::Io, format!("the directory {}: {e}", dir.display())))
        };
        let merge = match spec.clone().with_dirs(named).and_then(|spec| spec.to_bytes()) {
            Ok(merge) => Begin { protocol_version: PROTOCOL_VERSION, merge },
            Err(e) => {
                let reason = format!("a merge is run here: {e}");
                return Decision { run: None, reason, numbers: vec![("bytes", bytes)] };
            }
        };
        let (answers, come) = std_mpsc::channel();
        let (go_ahead, allowed) = mpsc::unbounded_channel();
        let guard = Given::new(server.clone());
        runtime.spawn(follow(guard, merge, answers, allowed, self.options.patience));
        let numbers = vec![("bytes", bytes), ("tables", spec.inputs().count() as u64), ("room", room)];
        let reason = format!("a merge goes to {}", server.address);
        let there = There { address: server.address.clone(), come, go_ahead, owes: false };
        Decision { run: Some(Box::new(there)), reason, numbers }
    }
}

/// A merge that a server has, counted there.
struct Given(Arc<Server>);

impl Given {
    fn new(server: Arc<Server>) -> Self {
        server.given.fetch_add(1, Ordering::Relaxed);
        Self(server)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.0.given.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A merge under way at a server.
struct There {
    address: String,
    come: std_mpsc::Receiver<Result<MergeAnswer, String>>,
    go_ahead: mpsc::UnboundedSender<()>,
    /// A step was handed on; who asks for more has made it true.
    owes: bool,
}

impl OffloadedMerge for There {
    fn advance(&mut self) -> siltstone::Result<Option<MergeAnswer>> {
        if std::mem::take(&mut self.owes) {
            // Where nobody listens any more, what has come says why.
            let _ = self.go_ahead.send(());
        }
        let failed =
            |why: &str| Error::new(ErrorKind::Io, format!("compaction server {}: {why}", self.address));
        match self.come.try_recv() {
            Ok(Ok(answer)) => {
                self.owes = answer.is_step();
                Ok(Some(answer))
            }
            Ok(Err(why)) => Err(failed(&why)),
            Err(std_mpsc::TryRecvError::Empty) => Ok(None),
            Err(std_mpsc::TryRecvError::Disconnected) => Err(failed("it went away")),
        }
    }
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

/// How a merge ended before its last step.
enum Ended {
    /// There was no room for it.
    Full(String),
    Failed(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Gives a merge to a server and passes on what comes of it, until it ends or nobody wants it any more.
async fn follow(
    given: Given,
    merge: Begin,
    answers: std_mpsc::Sender<Result<MergeAnswer, String>>,
    mut allowed: mpsc::UnboundedReceiver<()>,
    patience: Duration,
) {
    let server = &given.0;
    let end = follow_to_end(server, merge, &answers, &mut allowed, patience).await;
    match end {
        Ok(()) => server.note_success(),
        Err(Ended::Full(why)) => drop(answers.send(Err(why))),
        Err(Ended::Failed(why)) => {
            server.note_failure();
            let _ = answers.send(Err(why));
        }
    }
}

async fn follow_to_end(
    server: &Server,
    merge: Begin,
    answers: &std_mpsc::Sender<Result<MergeAnswer, String>>,
    allowed: &mut mpsc::UnboundedReceiver<()>,
    patience: Duration,
) -> Result<(), Ended> {
    let silent = || format!("it has said nothing for {} s", patience.as_secs_f32());
    let (asks, asked) = mpsc::channel(4);
    let begun = asks.send(asking(Ask::Begin(merge))).await;
    begun.map_err(|e| e.to_string())?;
    let mut client = CompactorClient::new(server.channel.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let begun = tokio::time::timeout(patience, client.merge(ReceiverStream::new(asked))).await;
    let told = begun.map_err(|_| silent())?.map_err(|e| match e.code() {
        tonic::Code::ResourceExhausted => Ended::Full(e.message().to_string()),
        _ => Ended::Failed(e.message().to_string()),
    });
    let (mut told, asked_at, mut has_begun) = (told?.into_inner(), Instant::now(), false);
    loop {
        let message = tokio::select! {
            message = tokio::time::timeout(patience, told.message()) => message,
            step = allowed.recv() => match step {
                // Nobody wants it any more: the end of the stream says so.
                None => return Ok(()),
                Some(()) => {
                    let _ = asks.send(asking(Ask::GoAhead(GoAhead {}))).await;
                    continue;
                }
            },
        };
        let message = message.map_err(|_| silent())?.map_err(|e| e.message().to_string())?;
        let Some(message) = message else { return Err("its answer ended too early".to_string().into()) };
        match message.tell {
            Some(Tell::Answer(bytes)) => {
                let answer = MergeAnswer::from_bytes(&bytes).map_err(|e| e.to_string())?;
                let is_last = answer.is_last();
                has_begun = true;
                if answers.send(Ok(answer)).is_err() || is_last {
                    return Ok(());
                }
            }
            Some(Tell::Waits(Waits { before })) if !has_begun && asked_at.elapsed() >= QUEUE_WAIT => {
                return Err(Ended::Full(format!("{before} merges were still before it")));
            }
            Some(Tell::Waits(_)) => {}
            Some(Tell::Begun(Begun {})) => has_begun = true,
            Some(Tell::Failed(why)) => return Err(why.into()),
            None => return Err("a message that says nothing".to_string().into()),
        }
    }
}
