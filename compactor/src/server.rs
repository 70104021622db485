//! The compaction server: admits compactions, runs each on a thread of its own with the engine's code, and
//! sends its steps to the database.
//!
//! A compaction lives as long as its stream. Where the database goes away, or says nothing in time, the
//! compaction ends, and its slot is free again. SSTables that it wrote and did not hand out are removed by
//! the database: only the owner of a directory deletes there (I5).

use crate::admission::{Admission, Queued};
use crate::connect::{Line, Reach, may_listen};
use crate::listen::{bounded, connections};
use crate::load::{Load, memory_bytes, processors};
use crate::manager::{announce, asked};
use crate::protocol::stubs::compactor_server::{Compactor, CompactorServer as Service};
use crate::protocol::{
    Begin, Begun, ClientRequest, CompactorState, FromCompactor, MESSAGE_BYTES_MAX, PARTS_MAX,
    PROTOCOL_VERSION, READ_BYTES_MAX, ReadPiece, ReadRequest, ServerMessage, StateRequest, ToCompactor,
    WINDOW_BYTES, Waits, telling,
};
use crate::secret::{Guard, Proof, Secret};
use crate::table_transfer::OverStream;
use crate::tls::{ClientTls, ServerTls, Tls};
use prost::bytes::Bytes;
use siltstone::offload::{CompactionRunner, CompactionSpec, RetainOutputs, RunningCompaction};
use siltstone::{Builder, Error, ErrorKind, TableId};
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};

/// How long a connection may take to name its compaction.
const BEGIN_WAIT: Duration = Duration::from_secs(10);
/// The interval at which a compaction reports its progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// The interval at which a waiting compaction says so.
const WAITS_EVERY: Duration = Duration::from_secs(1);
/// The most messages that may wait for a slow database.
const MESSAGES_WAITING: usize = 4;
/// The part of the memory for blocks that compactions read again.
const CACHE_PART: u64 = 8;
/// The part of the remaining memory for SSTables that compactions wrote, until databases have fetched them:
/// half of the memory that a compaction may take (b).
const KEPT_PART: u64 = 2;
/// Bytes of an SSTable in one message.
const PIECE_BYTES: usize = 1 << 20;
/// The part by which compression must shorten bytes for them to be sent compressed.
const SAVED_PART: usize = 8;
/// Threads for work other than compactions.
const THREADS_BESIDE: usize = 8;
/// The time in one piece of work after which a compaction counts as hung, and no longer reports to its
/// database that it works.
const HUNG: Duration = Duration::from_secs(60);
/// The time after which a message is sent again if there was no room for it.
const ROOM_AGAIN: Duration = Duration::from_millis(5);

/// Settings of a compaction server.
#[derive(Clone, Debug)]
pub struct CompactorConfig {
    /// The address at which it listens; beyond this machine only with TLS, and certificates or a secret of
    /// databases, or `insecure`.
    pub listen: SocketAddr,
    /// Directories and object stores (`s3://bucket/prefix`) in and below which it may read and write
    /// SSTables. With none, and no object store given to the builder, it shares no storage with databases:
    /// inputs and outputs of compactions go over the connection. The builder must find object stores
    /// ([`Builder::object_stores`]).
    pub tables: Vec<PathBuf>,
    /// Memory in bytes, m of OFF-7: it runs floor(m/b) compactions at a time, at least one.
    pub memory: u64,
    /// Memory that a compaction may take, b.
    pub merge_memory: u64,
    /// Compactions that may wait for others; more are refused.
    pub queue: u64,
    /// A manager to which it announces itself every second.
    pub manager: Option<String>,
    /// The address that it announces to the manager, at which databases reach it; by default the one at which
    /// it listens.
    pub advertise: Option<String>,
    /// The authority that signs the manager's certificate, and the server's own certificate for the manager,
    /// where that speaks TLS.
    pub manager_tls: Option<ClientTls>,
    /// Certificates, where connections are encrypted. They are read again when they change.
    pub tls: Option<ServerTls>,
    /// A file with a secret of 16 bytes or more: only databases and managers that have it too are served, and
    /// the server announces itself only to a manager that has it. It is read again when it changes. Without
    /// it, and without certificates that are asked for, any process on this machine may have compactions run
    /// here, and read the SSTables of other databases' compactions.
    pub secret_file: Option<PathBuf>,
    /// Whether it listens beyond this machine although nothing protects it.
    pub insecure: bool,
}

impl Default for CompactorConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tables: Vec::new(),
            memory: 1 << 30,
            merge_memory: 128 << 20,
            queue: 4,
            manager: None,
            advertise: None,
            manager_tls: None,
            tls: None,
            secret_file: None,
            insecure: false,
        }
    }
}

/// A compaction server that runs.
#[derive(Debug)]
pub struct CompactorServer {
    listens_at: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl CompactorServer {
    /// Starts the server on threads of its own; not to be called, nor the server dropped, where futures run.
    /// The builder says which operators and filters it has, and the object store with the SSTables, if they
    /// lie in one.
    ///
    /// # Errors
    /// A message that says what is wrong with the settings, or with the address.
    pub fn start(config: CompactorConfig, builder: Builder) -> Result<Self, String> {
        let secret_file = config.secret_file.as_deref();
        if !may_listen(config.listen, config.tls.as_ref(), secret_file, config.insecure) {
            return Err(format!(
                "{} can be reached from other machines: give a certificate, and who signs those of databases or a secret, or \
                 say insecure",
                config.listen
            ));
        }
        let tls = config.tls.as_ref().map(Tls::read).transpose()?;
        let secret = secret_file.map(Secret::read).transpose()?;
        let mut tables = Vec::new();
        let (stores, dirs): (Vec<_>, Vec<_>) =
            config.tables.iter().partition(|place| place.to_string_lossy().contains("://"));
        let mut objects = Vec::new();
        for store in stores {
            let location = store.to_string_lossy().trim_end_matches('/').to_string();
            let rest = location.split_once("://").map_or("", |(_, rest)| rest);
            if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(format!("{} names no place in an object store", store.display()));
            }
            objects.push(location);
        }
        for dir in dirs {
            // Without links, as compactions name it.
            tables.push(std::fs::canonicalize(dir).map_err(|e| format!("{}: {e}", dir.display()))?);
        }
        let cache = config.memory / CACHE_PART;
        let admission = Arc::new(Admission::new(config.memory - cache, config.merge_memory, config.queue));
        let threads = usize::try_from(admission.slots).unwrap_or(1);
        let shared = Arc::new(Shared {
            runner: builder.compaction_runner(cache, (config.memory - cache) / KEPT_PART),
            tables,
            objects,
            admission,
            memory_max: config.memory,
            began: Instant::now(),
            load: Load::new(),
            counts: Counts::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(threads + THREADS_BESIDE)
            .thread_name("compactor")
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(config.listen))
            .map_err(|e| format!("{}: {e}", config.listen))?;
        let listens_at = listener.local_addr().map_err(|e| e.to_string())?;
        if let Some(manager) = &config.manager {
            let reach = Reach::new(config.manager_tls.as_ref(), secret_file, config.insecure)?;
            let manager = Line::new(&reach, manager, asked)?;
            let address = match &config.advertise {
                Some(address) => address.clone(),
                None if listens_at.ip().is_unspecified() => {
                    return Err(format!(
                        "{listens_at} is no address that others reach: say which one to advertise"
                    ));
                }
                None => listens_at.to_string(),
            };
            let shared = shared.clone();
            runtime.spawn(announce(manager, address, move || shared.state()));
        }
        let service = Service::new(Compactions(shared))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let guard = Guard::new(secret.as_ref(), listens_at.port(), tls.is_some());
        let service = InterceptedService::new(service, guard);
        let mut server =
            bounded().initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
        let inside = runtime.enter();
        let incoming = connections(listener, tls);
        drop(inside);
        let (stop, stopped) = oneshot::channel();
        let serving = server.add_service(service).serve_with_incoming_shutdown(incoming, async move {
            let _ = stopped.await;
        });
        runtime.spawn(serving);
        Ok(Self { listens_at, stop: Some(stop), runtime: Some(runtime) })
    }

    /// The address at which it listens.
    pub fn listens_at(&self) -> SocketAddr {
        self.listens_at
    }
}

impl Drop for CompactorServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(runtime) = self.runtime.take() {
            // Compactions end when they notice that nobody listens any more.
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    bytes_written: AtomicU64,
    fetched: AtomicU64,
    /// Sums over finished compactions: input bytes, time at work, time of waiting for the database.
    merged_bytes: AtomicU64,
    merging_us: AtomicU64,
    handing_over_us: AtomicU64,
}

struct Shared {
    runner: CompactionRunner,
    tables: Vec<PathBuf>,
    /// Locations of object stores.
    objects: Vec<String>,
    admission: Arc<Admission>,
    memory_max: u64,
    began: Instant,
    load: Load,
    counts: Counts,
}

impl Shared {
    /// The compaction that a database asks for, if it may be run here.
    fn merge_of(&self, begin: &Begin) -> Result<Job, Status> {
        let wrong = |what: String| Err(Status::invalid_argument(what));
        if begin.protocol_version != PROTOCOL_VERSION {
            let theirs = begin.protocol_version;
            return wrong(format!(
                "messages of version {theirs}, this server has version {PROTOCOL_VERSION}"
            ));
        }
        let Some(keep) = begin.keeps() else {
            return wrong(format!("there is no way {} of keeping outputs", begin.keep));
        };
        let spec =
            CompactionSpec::from_bytes(&begin.merge).map_err(|e| Status::invalid_argument(e.to_string()))?;
        if begin.carried {
            return Ok(Job { spec, keep, is_carried: true });
        }
        if let Some(store) = spec.object_store().filter(|store| !self.may_work_at(store)) {
            let message = format!("{store} is not below an object store that this server was given");
            return Err(Status::permission_denied(message));
        }
        // Of SSTables in an object store that have no values in a WAL, no directory is named.
        let names_none = spec.log_dir().as_os_str().is_empty() && !spec.needs_log();
        let named = |dir: &Path| match dir.as_os_str().is_empty() && names_none && spec.table_dir().is_none()
        {
            true => Ok(PathBuf::new()),
            false => self.may_work_in(dir),
        };
        let spec = spec.clone().with_dirs(named).map_err(|e| Status::permission_denied(e.to_string()))?;
        Ok(Job { spec, keep, is_carried: false })
    }

    /// The directory's path without links, if it is one that was given, or below one. A path that leads out
    /// again by `..`, or begins where this process happens to be, is refused.
    fn may_work_in(&self, dir: &Path) -> siltstone::Result<PathBuf> {
        let is_plain = dir.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // One that is not there holds no SSTables.
        let found = std::fs::canonicalize(dir).ok().filter(|_| is_plain && dir.is_absolute());
        found.filter(|found| self.tables.iter().any(|given| found.starts_with(given))).ok_or_else(|| {
            let message = format!("{} is not below a directory that this server was given", dir.display());
            Error::new(ErrorKind::Invalid, message)
        })
    }

    /// Whether the server may work at a place in an object store: one that was given, or below one.
    fn may_work_at(&self, store: &str) -> bool {
        let is_below = |given: &String| {
            let rest = store.strip_prefix(given.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_plain = !store.split('/').any(|part| part == "." || part == "..");
        self.runner.object_store().as_deref() == Some(store) || is_plain && self.objects.iter().any(is_below)
    }

    fn state(&self) -> CompactorState {
        let bytes_written = self.counts.bytes_written.load(Ordering::Relaxed);
        let rates = self.load.rates(bytes_written);
        CompactorState {
            protocol_version: PROTOCOL_VERSION,
            slots: self.admission.slots,
            running: self.admission.running(),
            queued: self.admission.queued(),
            queue_max: self.admission.queue_max,
            done: self.counts.done.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
            bytes_written,
            bytes_per_second: rates.bytes_per_second,
            cpu_percent: rates.cpu_percent,
            memory_bytes: memory_bytes(),
            memory_max: self.memory_max,
            up_seconds: self.began.elapsed().as_secs(),
            processors: processors(),
            kept_bytes: self.runner.kept().bytes(),
            fetched_bytes: self.counts.fetched.load(Ordering::Relaxed),
            shares_storage: !self.tables.is_empty()
                || !self.objects.is_empty()
                || self.runner.object_store().is_some(),
            merged_bytes: self.counts.merged_bytes.load(Ordering::Relaxed),
            merging_us: self.counts.merging_us.load(Ordering::Relaxed),
            handing_over_us: self.counts.handing_over_us.load(Ordering::Relaxed),
        }
    }
}

/// A compaction that a database asks for.
struct Job {
    spec: CompactionSpec,
    keep: RetainOutputs,
    /// Whether inputs come and outputs go over the stream.
    is_carried: bool,
}

struct Compactions(Arc<Shared>);

type ServerReply = Result<FromCompactor, Status>;

#[tonic::async_trait]
impl Compactor for Compactions {
    type MergeStream = ReceiverStream<ServerReply>;
    type ReadStream = tokio_stream::Iter<std::vec::IntoIter<Result<ReadPiece, Status>>>;

    async fn merge(
        &self,
        request: Request<Streaming<ToCompactor>>,
    ) -> Result<Response<Self::MergeStream>, Status> {
        let proof = Proof::of(&request);
        let mut asks = request.into_inner();
        let first = tokio::time::timeout(BEGIN_WAIT, asks.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no compaction was named in time"))??;
        let Some(ClientRequest::Begin(begin)) = first.and_then(|message| message.ask) else {
            return Err(Status::invalid_argument("the first message names no compaction"));
        };
        let shared = self.0.clone();
        // It looks at directories, which may take a while.
        let job = tokio::task::spawn_blocking(move || shared.merge_of(&begin)).await;
        let job = job.map_err(|e| Status::internal(e.to_string()))??;
        let queued = self.0.admission.queue().map_err(Status::resource_exhausted)?;
        let (into, told) = mpsc::channel(MESSAGES_WAITING);
        tokio::spawn(follow(self.0.clone(), queued, job, asks, into));
        Ok(proof.with(ReceiverStream::new(told)))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let proof = Proof::of(&request);
        let ReadRequest { database, table, starts, ends, compress } = request.into_inner();
        let table = TableId::parse_file_name(&table)
            .ok_or_else(|| Status::invalid_argument(format!("{table} is no name of a table")))?;
        if starts.len() != ends.len() {
            return Err(Status::invalid_argument(format!(
                "{} parts begin, {} end",
                starts.len(),
                ends.len()
            )));
        }
        if starts.len() > PARTS_MAX {
            return Err(Status::invalid_argument(format!("{} parts at once", starts.len())));
        }
        let parts: Vec<_> = starts.into_iter().zip(ends).map(|(start, end)| start..end).collect();
        let bytes = self.0.runner.kept().read(database, table, &parts, READ_BYTES_MAX);
        let bytes = Bytes::from(bytes.ok_or_else(|| Status::not_found(format!("{table} is not in memory")))?);
        self.0.counts.fetched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let piece = |at: usize| {
            let raw = bytes.slice(at..(at + PIECE_BYTES).min(bytes.len()));
            Ok(if compress { compressed(raw) } else { ReadPiece { bytes: raw, raw: 0 } })
        };
        let pieces: Vec<_> = (0..bytes.len()).step_by(PIECE_BYTES).map(piece).collect();
        Ok(proof.with(tokio_stream::iter(pieces)))
    }

    async fn state(&self, request: Request<StateRequest>) -> Result<Response<CompactorState>, Status> {
        Ok(Proof::of(&request).with(self.0.state()))
    }
}

/// The piece as it is sent: compressed, if that makes it shorter.
fn compressed(raw: Bytes) -> ReadPiece {
    let bytes = lz4_flex::block::compress(&raw);
    if bytes.len() > raw.len() - raw.len() / SAVED_PART {
        return ReadPiece { bytes: raw, raw: 0 };
    }
    ReadPiece { bytes: bytes.into(), raw: raw.len() as u32 }
}

/// Handles a compaction from its queueing to its end, with the database's messages meanwhile. After the last
/// step it holds the SSTables that the database has not fetched.
async fn follow(
    shared: Arc<Shared>,
    queued: Queued,
    job: Job,
    mut asks: Streaming<ToCompactor>,
    into: mpsc::Sender<ServerReply>,
) {
    let mut turn = std::pin::pin!(shared.admission.turn(queued));
    let running = loop {
        tokio::select! {
            biased;
            running = &mut turn => break running,
            () = into.closed() => return,
            ask = asks.message() => if !matches!(ask, Ok(Some(_))) { return },
            () = tokio::time::sleep(WAITS_EVERY) => {
                let before = shared.admission.queued().saturating_sub(1);
                let _ = into.try_send(Ok(telling(ServerMessage::Waits(Waits { before }))));
            }
        }
    };
    let _ = into.try_send(Ok(telling(ServerMessage::Begun(Begun {}))));
    let (gone, steps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (go_ahead, allowed) = std_mpsc::channel();
    let (answers, answered) = std_mpsc::channel();
    let keep = job.keep;
    let work = {
        let (shared, gone, into, steps) = (shared.clone(), gone.clone(), into.clone(), steps.clone());
        tokio::task::spawn_blocking(move || {
            let _running = running;
            let to = Sink { into: &into, gone: &gone, steps: &steps };
            let carried = job.is_carried.then(|| OverStream::new(into.clone(), gone.clone(), answered));
            let spec = &job.spec;
            let worked = run(&shared, &job, carried, &to, &allowed);
            let counts = &shared.counts;
            let count = if worked.is_ok() { &counts.done } else { &counts.failed };
            count.fetch_add(1, Ordering::Relaxed);
            let (table, bytes) = (spec.first_output(), spec.input_bytes());
            match worked {
                Ok(compaction) => {
                    tracing::info!(target: "siltstone", %table, bytes, "a compaction is done");
                    return Some(compaction);
                }
                Err(why) => {
                    tracing::warn!(target: "siltstone", %table, bytes, "a compaction has failed: {why}");
                    let _ = Sink { into: &into, gone: &gone, steps: &steps }.tell(ServerMessage::Failed(why));
                }
            }
            None
        })
    };
    let mut work = std::pin::pin!(work);
    let mut alive = tokio::time::interval(WAITS_EVERY);
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        tokio::select! {
            worked = &mut work => match worked.ok().flatten() {
                Some(compaction) if keep != RetainOutputs::No => return hand_over(compaction, asks, into).await,
                _ => return,
            },
            _ = alive.tick() => {
                let now = steps.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
                if since.elapsed() < HUNG {
                    // If there is no room, the database has unread messages enough.
                    let _ = into.try_send(Ok(telling(ServerMessage::Begun(Begun {}))));
                }
            }
            ask = asks.message() => match ask {
                Ok(Some(message)) => match message.ask {
                    Some(ClientRequest::GoAhead(_)) => drop(go_ahead.send(())),
                    Some(ClientRequest::Done(bytes)) => drop(answers.send(Ok(bytes))),
                    Some(ClientRequest::Refused(why)) => drop(answers.send(Err(why))),
                    // Unknown messages are ignored.
                    Some(ClientRequest::Begin(_)) | None => {}
                },
                // Nobody waits for it any more.
                Ok(None) | Err(_) => break,
            },
            () = into.closed() => break,
        }
    }
    gone.store(true, Ordering::Relaxed);
    drop(go_ahead);
    let _ = work.await;
}

/// Holds the outputs of a compaction in memory until the database has installed its last step, or is gone.
async fn hand_over(
    mut compaction: RunningCompaction,
    mut asks: Streaming<ToCompactor>,
    into: mpsc::Sender<ServerReply>,
) {
    let mut alive = tokio::time::interval(WAITS_EVERY);
    loop {
        tokio::select! {
            _ = alive.tick() => drop(into.try_send(Ok(telling(ServerMessage::Begun(Begun {}))))),
            ask = asks.message() => match ask {
                Ok(Some(_)) => compaction.published(),
                Ok(None) | Err(_) => return,
            },
            () = into.closed() => return,
        }
    }
}

/// The receiver of a compaction's messages, and the compaction's progress.
struct Sink<'a> {
    into: &'a mpsc::Sender<ServerReply>,
    gone: &'a AtomicBool,
    /// A count that grows while the compaction is worked at.
    steps: &'a AtomicU64,
}

impl Sink<'_> {
    /// Sends a message, as soon as there is room.
    fn tell(&self, tell: ServerMessage) -> Result<(), String> {
        let mut message = Ok(telling(tell));
        loop {
            message = match self.into.try_send(message) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Closed(_)) => return Err(given_up()),
                Err(mpsc::error::TrySendError::Full(message)) => message,
            };
            self.check()?;
            std::thread::sleep(ROOM_AGAIN);
        }
    }

    /// Checks that the database still waits for the compaction.
    fn check(&self) -> Result<(), String> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        if self.gone.load(Ordering::Relaxed) { Err(given_up()) } else { Ok(()) }
    }
}

fn given_up() -> String {
    "the database has given it up".to_string()
}

/// Runs a compaction to its end, or until the database is gone.
fn run(
    shared: &Shared,
    job: &Job,
    carried: Option<OverStream>,
    to: &Sink<'_>,
    allowed: &std_mpsc::Receiver<()>,
) -> Result<RunningCompaction, String> {
    let begun = match carried {
        Some(carried) => shared.runner.begin_carried(&job.spec, job.keep, Arc::new(carried)),
        None => shared.runner.begin(&job.spec, job.keep),
    };
    let mut compaction = begun.map_err(|e| e.to_string())?;
    let (mut told, mut written, mut ahead) = (Instant::now(), 0, 0);
    let (began, mut waited) = (Instant::now(), Duration::ZERO);
    loop {
        to.check()?;
        let answer = compaction.advance().map_err(|e| e.to_string())?;
        let by_now = answer.bytes_written().max(written);
        shared.counts.bytes_written.fetch_add(by_now - written, Ordering::Relaxed);
        written = by_now;
        if !answer.is_step() {
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                to.tell(ServerMessage::Answer(answer.to_bytes()))?;
            }
            continue;
        }
        to.tell(ServerMessage::Answer(answer.to_bytes()))?;
        told = Instant::now();
        if answer.is_last() {
            let counts = &shared.counts;
            let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            counts.merged_bytes.fetch_add(job.spec.input_bytes(), Ordering::Relaxed);
            counts.merging_us.fetch_add(us(began.elapsed() - waited), Ordering::Relaxed);
            counts.handing_over_us.fetch_add(us(waited), Ordering::Relaxed);
            return Ok(compaction);
        }
        ahead += 1;
        let since = Instant::now();
        while ahead > 1 {
            match allowed.recv_timeout(WAITS_EVERY) {
                Ok(()) => {
                    compaction.published();
                    ahead -= 1;
                }
                Err(std_mpsc::RecvTimeoutError::Timeout) => to.check()?,
                Err(std_mpsc::RecvTimeoutError::Disconnected) => return Err(given_up()),
            }
        }
        waited += since.elapsed();
        for () in allowed.try_iter().take(ahead) {
            compaction.published();
            ahead -= 1;
        }
    }
}
