//! Compaction servers that lie, stall and fill, and those who name themselves to a manager.

use super::wire::{ADMIN, Plain, number, part, parts, read_rows, set_cell, table};
use super::{Caller, Outcome, Scene};
use crate::peers::PROTOCOL_VERSION;
use serde_json::{Value, json};
use siltstone::testing::sign_lines;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codegen::{BoxFuture, BoxStream, Context, Poll, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::{Code, Request, Response, Status, Streaming};

/// How long it may take until a compaction is offered.
const OFFERED_AFTER: Duration = Duration::from_secs(60);
/// How long it may take until one that hands over without end is refused.
const REFUSED_AFTER: Duration = Duration::from_secs(50);
/// Bytes of each of many outputs, and of each piece of one that is large.
const OUTPUT_BYTES: usize = 1 << 10;
const PIECE_BYTES: usize = 1 << 20;

/// The behaviour of a rogue compaction server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// Says that it is done and no cell survived.
    Lies,
    /// Says each second that it works.
    Stalls,
    /// Hands over outputs without end.
    Fills,
    /// Hands over one output without end.
    Swells,
    /// Asks for the same bytes again and again.
    Fetches,
}

/// A compaction server of that manner, and what came of it.
struct Rogue {
    manner: Manner,
    merges: AtomicU64,
    /// Whether a compaction was taken back.
    taken_back: AtomicBool,
    /// Parts of inputs that it got.
    carried: AtomicU64,
    /// How each compaction ended whose outputs were sent without end.
    ends: Mutex<Vec<End>>,
}

/// How a compaction ended whose outputs come without end.
#[derive(Debug)]
struct End {
    /// Outputs, or pieces of one, that the database took, and that it may have taken at most.
    taken: u64,
    most: u64,
    /// Why it took no more; empty where it went on.
    refusal: String,
}

impl Rogue {
    /// One that listens at that port.
    fn start(scene: &Scene, port: u16, manner: Manner) -> Result<Arc<Self>, String> {
        let rogue = Arc::new(Self {
            manner,
            merges: AtomicU64::default(),
            taken_back: AtomicBool::default(),
            carried: AtomicU64::default(),
            ends: Mutex::default(),
        });
        let listen = tokio::net::TcpListener::bind(("127.0.0.1", port));
        let listener = scene.handle.block_on(listen).map_err(|e| format!("port {port}: {e}"))?;
        let serve = tonic::transport::Server::builder()
            .add_service(Calls(rogue.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        scene.handle.spawn(serve);
        Ok(rogue)
    }

    fn merges(&self) -> u64 {
        self.merges.load(Ordering::Relaxed)
    }

    fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    fn is_taken_back(&self) -> bool {
        self.taken_back.load(Ordering::Relaxed)
    }

    /// Answers one compaction. It ends when the database does not listen any more.
    async fn merge(self: Arc<Self>, mut asks: Streaming<Vec<u8>>, tell: Tell) -> Option<()> {
        let spec = described(&asks.message().await.ok()??)?;
        self.merges.fetch_add(1, Ordering::Relaxed);
        match self.manner {
            Manner::Lies => tell.say(&part(2, lie(&spec))).await?,
            Manner::Stalls => {
                while tell.say(&part(4, b"")).await.is_some() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                self.taken_back.store(true, Ordering::Relaxed);
            }
            Manner::Fills | Manner::Swells => self.fill(&spec, &mut asks, &tell).await?,
            Manner::Fetches => {
                let first = inputs(&spec).next()?;
                let wanted = [part(1, file(&first["id"], 0)), number(2, 0), number(3, 4_096)].concat();
                while tell.say(&part(5, &wanted)).await.is_some()
                    && matches!(asks.message().await, Ok(Some(_)))
                {
                    self.carried.fetch_add(1, Ordering::Relaxed);
                }
                self.taken_back.store(true, Ordering::Relaxed);
            }
        }
        // Whoever says nothing more still has the stream.
        while asks.message().await.ok()?.is_some() {}
        Some(())
    }

    fn ends(&self) -> MutexGuard<'_, Vec<End>> {
        self.ends.lock().expect("who answers merges does not panic")
    }

    /// Hands over outputs, or pieces of one, until the database takes no more, or took one more than it may.
    async fn fill(&self, spec: &Value, asks: &mut Streaming<Vec<u8>>, tell: &Tell) -> Option<()> {
        let (output, swells) = (&spec["output"], self.manner == Manner::Swells);
        let bytes: u64 = inputs(spec).filter_map(|table| table["bytes"].as_u64()).sum();
        let bytes_max = 2 * bytes + (64 << 20);
        let tables_max = bytes_max / output["table_bytes"].as_u64()?.max(1)
            + output["cuts"].as_array().map_or(0, Vec::len) as u64
            + 8;
        let (piece, most) = match swells {
            true => (PIECE_BYTES, bytes_max / PIECE_BYTES as u64),
            false => (OUTPUT_BYTES, tables_max),
        };
        let mut end = End { taken: 0, most, refusal: String::new() };
        while end.taken <= most {
            let more = if swells { 0 } else { end.taken };
            // One of many is done with its only piece, so that its file is closed.
            let sync = number(3, u64::from(!swells));
            let store = [part(1, file(&output["id"], more)), part(2, vec![b'x'; piece]), sync].concat();
            tell.say(&part(6, store)).await?;
            // Field 4 is a refusal.
            let answer = parts(&asks.message().await.ok()??);
            if let Some((_, why)) = answer.iter().find(|(field, _)| *field == 4) {
                end.refusal = String::from_utf8_lossy(why).into_owned();
                break;
            }
            end.taken += 1;
        }
        self.ends().push(end);
        tell.say(&part(3, "done")).await
    }
}

/// To the database.
struct Tell(mpsc::Sender<Result<Vec<u8>, Status>>);

impl Tell {
    /// Says that, under its checksum; nothing where nobody listens.
    async fn say(&self, message: &[u8]) -> Option<()> {
        let mut message = message.to_vec();
        siltstone_compactor::seal(&mut message);
        self.0.send(Ok(message)).await.ok()
    }
}

/// The description in the first message of a compaction.
fn described(message: &[u8]) -> Option<Value> {
    let begin = parts(message).into_iter().find(|(field, _)| *field == 1)?.1;
    let merge = parts(&begin).into_iter().find(|(field, _)| *field == 2)?.1;
    // Behind its checksum.
    serde_json::from_slice(merge.get(9..)?).ok()
}

/// The input SSTables of a compaction.
fn inputs(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["inputs"].as_array().into_iter().flatten().filter_map(Value::as_array).flatten()
}

/// The name of an SSTable's file, so many after that of the identity.
fn file(id: &Value, more: u64) -> String {
    let of = |name: &str| id[name].as_u64().unwrap_or(0);
    format!("{:06x}-{:06x}-{:06x}-{:04x}.table", of("store"), of("epoch"), of("job"), of("part") + more)
}

/// The answer that everything was read and nothing kept.
fn lie(spec: &Value) -> Vec<u8> {
    let cells: u64 = inputs(spec).filter_map(|table| table["cells"].as_u64()).sum();
    let totals = json!({
        "bytes_written": 0, "taken": cells, "kept": 0, "aside": 0, "range_tombstones": 0, "forgotten": 0,
        "filled": [0, 0], "keys": [0, 0],
    });
    let answer = json!({ "totals": totals, "step": { "outputs": [], "upto": null } });
    let mut text = format!("00000000 {answer}").into_bytes();
    sign_lines(&mut text);
    text
}

/// How such a server says that it is: with much room.
fn state(shares_storage: bool) -> Vec<u8> {
    let version = number(1, u64::from(PROTOCOL_VERSION));
    let room = [number(2, 64), number(12, 1 << 34), number(14, 64)].concat();
    [version, room, if shares_storage { number(17, 1) } else { Vec::new() }].concat()
}

/// The calls of a compaction server.
#[derive(Clone)]
struct Calls(Arc<Rogue>);

impl NamedService for Calls {
    const NAME: &'static str = "siltstone.compactor.v1.Compactor";
}

impl Service<http::Request<tonic::body::Body>> for Calls {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let calls = self.clone();
        Box::pin(async move {
            let is_merge = request.uri().path().ends_with("/Merge");
            let mut grpc = Grpc::new(Plain);
            Ok(match is_merge {
                true => grpc.streaming(calls, request).await,
                false => grpc.unary(calls, request).await,
            })
        })
    }
}

impl UnaryService<Vec<u8>> for Calls {
    type Response = Vec<u8>;
    type Future = BoxFuture<Response<Vec<u8>>, Status>;

    fn call(&mut self, _: Request<Vec<u8>>) -> Self::Future {
        let mut state = state(self.0.manner == Manner::Stalls);
        siltstone_compactor::seal(&mut state);
        Box::pin(async move { Ok(Response::new(state)) })
    }
}

impl StreamingService<Vec<u8>> for Calls {
    type Response = Vec<u8>;
    type ResponseStream = BoxStream<Vec<u8>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Vec<u8>>>) -> Self::Future {
        let (tell, told) = mpsc::channel(4);
        let merge = self.0.clone().merge(request.into_inner(), Tell(tell));
        tokio::spawn(merge);
        let stream: Self::ResponseStream = Box::pin(ReceiverStream::new(told));
        Box::pin(async move { Ok(Response::new(stream)) })
    }
}

/// Writes rows of keys at random until the rogue was given a compaction, or it takes too long. How many were
/// acknowledged.
fn load(scene: &Scene, root: &Caller, wait: Duration, is_met: impl Fn() -> bool) -> Result<usize, String> {
    let (mut random, began, mut rows) = (scene.rng(), Instant::now(), 0);
    while !is_met() && began.elapsed() < wait {
        let entry = |random: &mut siltstone::Rng| {
            let cell = set_cell("q", random.bytes(900));
            part(2, [part(1, random.bytes(8)), part(2, cell)].concat())
        };
        let entries: Vec<u8> = (0..300).flat_map(|_| entry(&mut random)).collect();
        let asked = Instant::now();
        let answer = root.must("MutateRows", [part(1, table("t")), entries].concat())?;
        // The owner's load is no attack: it leaves the disk to the good client for as long as it took.
        std::thread::sleep(asked.elapsed().max(Duration::from_millis(20)));
        let entries = answer.iter().flat_map(|message| parts(message)).filter(|(field, _)| *field == 1);
        rows += 300 - entries.filter(|(_, entry)| is_refused(entry)).count();
    }
    Ok(rows)
}

/// Whether what is said of an entry has a status that is not empty, which OK is.
fn is_refused(entry: &[u8]) -> bool {
    parts(entry).iter().any(|(field, status)| *field == 2 && !status.is_empty())
}

/// A rogue of that manner, and how many rows were written until a compaction came to it.
fn offered(scene: &Scene, manner: Manner) -> Result<(Arc<Rogue>, usize), String> {
    let rogue = Rogue::start(scene, scene.helper, manner)?;
    let rows = load(scene, &scene.caller("root"), OFFERED_AFTER, || rogue.merges() > 0)?;
    match rogue.merges() {
        0 => Err(format!("no compaction was offered while {rows} rows were written")),
        _ => Ok((rogue, rows)),
    }
}

/// It says that no cell survived a compaction: no row may be lost by that.
pub(super) fn lies(scene: &Scene) -> Outcome {
    let (rogue, rows) = offered(scene, Manner::Lies)?;
    std::thread::sleep(scene.lasts);
    // Without values, which would be many.
    let answer = scene.caller("root").must("ReadRows", read_rows("t", &[], Some(&number(13, 1))))?;
    let chunks = answer.iter().flat_map(|message| parts(message)).filter(|(field, _)| *field == 1);
    let begins_row = |chunk: &Vec<u8>| parts(chunk).iter().any(|(field, key)| *field == 1 && key.len() == 8);
    let left = chunks.filter(|(_, chunk)| begins_row(chunk)).count();
    match left >= rows {
        true => {
            Ok(format!("{} compactions answered with a lie, all of {rows} rows are there", rogue.merges()))
        }
        false => Err(format!("{left} of {rows} rows are left after a lie")),
    }
}

/// It works for ever: compactions are taken back.
pub(super) fn stalls(scene: &Scene) -> Outcome {
    let (rogue, _) = offered(scene, Manner::Stalls)?;
    std::thread::sleep(scene.lasts);
    match rogue.is_taken_back() || !scene.is_longer_than(80) {
        true => Ok(format!("{} compactions, taken back: {}", rogue.merges(), rogue.is_taken_back())),
        false => Err("a compaction is left to a server that only says that it works".into()),
    }
}

/// One that sends outputs without end is refused once it has sent as much as the compaction may have.
fn is_bounded(scene: &Scene, manner: Manner) -> Outcome {
    let (rogue, _) = offered(scene, manner)?;
    let began = Instant::now();
    while rogue.ends().is_empty() && began.elapsed() < REFUSED_AFTER {
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(scene.lasts);
    let ends = rogue.ends();
    if let Some(End { taken, most, .. }) = ends.iter().find(|end| end.taken > end.most) {
        return Err(format!("{taken} outputs or pieces were taken of a compaction that may have {most}"));
    }
    match ends.iter().find(|end| end.refusal.contains("more than the ")) {
        Some(End { taken, refusal, .. }) => Ok(format!(
            "{} compactions, of one {taken} outputs or pieces taken, and then: {refusal}",
            rogue.merges()
        )),
        None => Err(format!("of {} compactions none was refused for what it has: {ends:?}", rogue.merges())),
    }
}

/// It hands over more outputs than the compaction can have.
pub(super) fn fills(scene: &Scene) -> Outcome {
    is_bounded(scene, Manner::Fills)
}

/// It hands over an output of more bytes than the compaction can have.
pub(super) fn swells(scene: &Scene) -> Outcome {
    is_bounded(scene, Manner::Swells)
}

/// It reads the same bytes for ever.
pub(super) fn fetches(scene: &Scene) -> Outcome {
    let (rogue, _) = offered(scene, Manner::Fetches)?;
    std::thread::sleep(scene.lasts);
    match rogue.is_taken_back() || !scene.is_longer_than(80) {
        true => Ok(format!("{} parts fetched, taken back: {}", rogue.carried(), rogue.is_taken_back())),
        false => Err("a compaction is left to a server that reads the same bytes for ever".into()),
    }
}

/// Names an address to the manager, which must not know who does.
fn announce(stranger: &Caller, address: &str) -> Result<(), String> {
    let version = number(1, u64::from(PROTOCOL_VERSION));
    let mut message = [version, part(2, address), part(3, state(false))].concat();
    siltstone_compactor::seal(&mut message);
    match stranger.code("/siltstone.compactor.v1.Manager/Announce", message) {
        Code::Unauthenticated => Ok(()),
        code => Err(format!("a stranger who names {address} to the manager is answered {code:?}")),
    }
}

/// A stranger at the manager's port names a compaction server: that must get no compaction.
pub(super) fn announced(scene: &Scene) -> Outcome {
    let stranger = scene.stranger(scene.manager);
    let rogue = Rogue::start(scene, scene.helper, Manner::Fetches)?;
    let address = format!("127.0.0.1:{}", scene.helper);
    for n in 0..200 {
        announce(&stranger, &format!("name{n}.invalid:1"))?;
    }
    load(scene, &scene.caller("root"), scene.lasts.max(Duration::from_secs(5)), || {
        announce(&stranger, &address).is_err() || rogue.merges() > 0
    })?;
    announce(&stranger, &address)?;
    match rogue.merges() {
        0 => Ok("strangers are refused, and get no compaction".into()),
        merges => Err(format!("{merges} compactions were given to a server that a stranger named")),
    }
}

/// Names addresses that are no compaction servers: the database must not connect to them.
pub(super) fn dialled(scene: &Scene) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    listener.set_nonblocking(true).map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let stranger = scene.stranger(scene.manager);
    for n in 0..40 {
        announce(&stranger, &format!("u{n}@127.0.0.1:{port}"))?;
    }
    std::thread::sleep(scene.lasts.max(Duration::from_secs(3)));
    let came = std::iter::from_fn(|| listener.accept().ok()).count();
    // An existing SSTable shows that the database goes on.
    scene.caller("root").must(&format!("{ADMIN}GetTable"), part(1, table("t")))?;
    match came {
        0 => Ok("no connection to an address that a stranger named".into()),
        came => Err(format!("{came} connections to an address that a stranger named")),
    }
}
