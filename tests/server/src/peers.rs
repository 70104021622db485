//! Damaged and random messages to a compaction server and a manager: each is answered or refused, both live
//! on, and nothing of the database whose compaction is described is harmed. What is damaged are messages that
//! make sense: a compaction of existing SSTables, parts of its outputs, an announcement.

use crate::Extent;
use crate::child::{Server, channel, free_port, memory_of};
use crate::messages::{Raw, damaged, is_wrong, to_its_end};
use crate::offload::Helper;
use prost::encoding::{bool, bytes, fixed64, message, string, uint32, uint64};
use siltstone::offload::{CompactionSpec, Decision, Offer, Offload};
use siltstone::testing::sign_lines;
use siltstone::{Db, Rng, TableId};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::Request;

const SENDERS: u64 = 8;
const KEYS: u64 = 20_000;
/// The most memory of a compaction server: its bound, and the largest description of a compaction from each
/// sender.
const MEMORY_MAX: u64 = crate::offload::MEMORY_MAX + SENDERS * (16 << 20);
pub(crate) const PROTOCOL_VERSION: u32 = 4;
/// How long a client stays that has said everything.
const STAYS: Duration = Duration::from_millis(50);
/// Messages from which on a run also fails unless each method answered some, and more than one in a hundred
/// was a compaction that ran to its end.
pub(crate) const LEAST: u64 = 1_000;
const METHODS: [&str; 4] = ["Compactor/Merge", "Compactor/Read", "Manager/Announce", "Manager/Ring"];
const SERVICE: &str = "/siltstone.compactor.v1";

/// Copies the database when a compaction is offered, before it takes its inputs away, and notes the
/// compaction as one of the copy.
#[derive(Debug)]
struct Notes {
    dir: PathBuf,
    copy: PathBuf,
    noted: Mutex<Option<Noted>>,
}

/// The description of a compaction, with the number of its database and its first output.
#[derive(Debug)]
struct Noted {
    spec: String,
    database: u64,
    output: TableId,
    /// The job of the compaction that was begun last: each is another, so that their outputs have different
    /// names.
    job: AtomicU32,
}

impl Noted {
    /// The description of a compaction that has not been begun yet.
    fn fresh(&self) -> Vec<u8> {
        let job = |job: u32| format!("\"job\":{job}");
        let fresh = self.job.fetch_add(1, Ordering::Relaxed) + 1;
        let mut spec = self.spec.replace(&job(self.output.job), &job(fresh)).into_bytes();
        sign_lines(&mut spec);
        spec
    }

    /// An SSTable that a recently begun compaction may have written.
    fn written(&self, random: &mut Rng) -> TableId {
        let before = random.range(0..SENDERS).try_into().unwrap_or(0);
        TableId { job: self.job.load(Ordering::Relaxed).saturating_sub(before), ..self.output }
    }
}

impl Notes {
    fn copied(&self, spec: &CompactionSpec) -> Result<Noted, String> {
        let failed = |e: std::io::Error| e.to_string();
        std::fs::create_dir_all(&self.copy).map_err(failed)?;
        for file in std::fs::read_dir(&self.dir).map_err(failed)? {
            let file = file.map_err(failed)?;
            std::fs::copy(file.path(), self.copy.join(file.file_name())).map_err(failed)?;
        }
        let spec = spec.clone().with_dirs(|_| Ok(self.copy.clone())).map_err(|e| e.to_string())?;
        let (database, output) = (spec.database(), spec.first_output());
        let text =
            String::from_utf8(spec.to_bytes().map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        Ok(Noted { spec: text, database, output, job: AtomicU32::new(1_000) })
    }
}

impl Offload for Notes {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let copied = self.copied(offer.spec).inspect_err(|why| println!("no copy: {why}"));
        *self.noted.lock().expect("nobody panics") = copied.ok();
        Decision::here()
    }
}

/// A copy of a database, and a compaction of it.
fn database(place: &Path, copy: &Path) -> Result<Noted, String> {
    let failed = |e: siltstone::Error| e.to_string();
    let (dir, copy) = (place.join("original"), copy.to_path_buf());
    let notes = Arc::new(Notes { dir: dir.clone(), copy, noted: Mutex::default() });
    let db = Db::builder().offload(notes.clone()).open(&dir).map_err(failed)?;
    for salt in [1, 2] {
        let write = |key: u64| db.put(key.to_be_bytes(), (key ^ salt).to_be_bytes()).map(drop);
        (0..KEYS).try_for_each(write).map_err(failed)?;
        db.flush().map_err(failed)?;
    }
    db.default_family().compact::<&[u8]>(..).map_err(failed)?;
    db.close().map_err(failed)?;
    let noted = notes.noted.lock().expect("nobody panics").take();
    noted.ok_or_else(|| "no compaction was offered, or copied".into())
}

/// A stream of messages that begins with a compaction.
fn begin(random: &mut Rng, mut spec: Vec<u8>) -> Vec<u8> {
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    if random.next_u64().is_multiple_of(2) {
        // Still text, and something else.
        let at = random.index(spec.len());
        spec[at] = b"0123456789\"{}[],:-"[random.index(18)];
        // Mostly with a checksum that fits, so that it gets further than to that.
        if random.next_u64() & 3 > 0 {
            sign_lines(&mut spec);
        }
    }
    uint32::encode(1, &PROTOCOL_VERSION, &mut inner);
    bytes::encode(2, &spec, &mut inner);
    uint32::encode(3, &random.range(0..3).try_into().unwrap_or(0), &mut inner);
    bool::encode(4, &(random.next_u64().is_multiple_of(3)), &mut inner);
    prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, &mut outer);
    prost::encoding::encode_varint(inner.len() as u64, &mut outer);
    outer.extend(inner);
    outer
}

/// What follows it: go ahead, an answer, a refusal.
fn further(random: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    match random.range(0..3) {
        0 => message::encode(2, &(), &mut out),
        1 => bytes::encode(3, &vec![7_u8; random.index(4000)], &mut out),
        _ => string::encode(4, &"no".to_string(), &mut out),
    }
    out
}

/// Parts of an SSTable's file, mostly of one that a compaction wrote.
fn read(random: &mut Rng, noted: &Noted) -> Vec<u8> {
    let mut out = Vec::new();
    fixed64::encode(1, &noted.database, &mut out);
    let table = match random.one_in(4) {
        true => format!("000001-000001-00000{}-0001.table", random.range(0..9)),
        false => noted.written(random).file_name(),
    };
    string::encode(2, &table, &mut out);
    let upto = random.range(1..9_000);
    uint64::encode_packed(3, &[random.range(0..upto)], &mut out);
    uint64::encode_packed(4, &[upto], &mut out);
    bool::encode(5, &random.next_u64().is_multiple_of(2), &mut out);
    out
}

/// A compaction server that is not there, with an empty state.
fn announcement(random: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    uint32::encode(1, &PROTOCOL_VERSION, &mut out);
    string::encode(2, &format!("127.0.0.1:{}", random.range(0..1 << 17)), &mut out);
    message::encode(3, &(), &mut out);
    out
}

/// A question for the compaction servers that there are.
fn ring() -> Vec<u8> {
    let mut out = Vec::new();
    uint32::encode(1, &PROTOCOL_VERSION, &mut out);
    out
}

/// So many messages.
pub(crate) async fn run(extent: &Arc<Extent>, seed: u64) -> Result<String, String> {
    let manager_port = free_port();
    let config = format!(
        "memory = \"64MiB\"\nwrite-memory = \"16MiB\"\n[manager]\nlisten = \"127.0.0.1:{manager_port}\"\n"
    );
    let mut manager = Server::start(&config).await?;
    let place = manager.dir.path().to_path_buf();
    let copy = place.join("copy");
    let noted = Arc::new(database(&place, &copy)?);
    let port = free_port();
    let mut helper = Helper::start(&place, port, None)?;
    let (answered, refused) = (Arc::<[AtomicU64; 4]>::default(), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for sender in 0..SENDERS {
        let mut of_helper = tonic::client::Grpc::new(channel(port));
        let mut of_manager = tonic::client::Grpc::new(channel(manager_port));
        let (answered, refused, extent, noted) =
            (answered.clone(), refused.clone(), extent.clone(), noted.clone());
        let mut random = Rng::new(seed ^ (sender + 1));
        tasks.push(tokio::spawn(async move {
            while extent.goes_on() {
                extent.advance(1);
                let (method, mut messages) = match random.range(0..8) {
                    0..4 => {
                        let mut messages = vec![begin(&mut random, noted.fresh())];
                        messages.extend((0..random.range(0..4)).map(|_| further(&mut random)));
                        (0, messages)
                    }
                    4 | 5 => (1, vec![read(&mut random, &noted)]),
                    6 => (2, vec![announcement(&mut random)]),
                    _ => (3, vec![ring()]),
                };
                let (kind, method) = (method, METHODS[method]);
                let is_manager = method.starts_with("Manager");
                let at = random.index(messages.len());
                if random.one_in(2) {
                    messages[at] = damaged(&mut random, std::mem::take(&mut messages[at]));
                }
                // Mostly with checksums that fit.
                messages.iter_mut().filter(|_| !random.one_in(8)).for_each(siltstone_compactor::seal);
                let hex: String = messages[at].iter().take(4_000).map(|byte| format!("{byte:02x}")).collect();
                let client = if is_manager { &mut of_manager } else { &mut of_helper };
                client.ready().await.map_err(|e| format!("{method}: it is gone: {e}"))?;
                let path = format!("{SERVICE}.{method}").parse().map_err(|e| format!("{method}: {e}"))?;
                let mut request = Request::new(Messages::new(messages));
                request.set_timeout(Duration::from_secs(20));
                match to_its_end(client.streaming(request, path, Raw).await).await {
                    Ok(()) => answered[kind].fetch_add(1, Ordering::Relaxed),
                    Err(e) if is_wrong(&e) => return Err(format!("{method} with {hex}: {e}")),
                    Err(_) => refused.fetch_add(1, Ordering::Relaxed),
                };
            }
            Ok::<_, String>(())
        }));
    }
    for task in tasks {
        task.await.map_err(|e| e.to_string())??;
    }
    if !manager.lives() || manager.log().contains("panicked") {
        return Err(format!("the manager panicked: {}", manager.log()));
    }
    let process = helper.process().ok_or_else(|| format!("it ended: {}", helper.log()))?;
    if helper.log().contains("panicked") {
        return Err(format!("the compaction server panicked: {}", helper.log()));
    }
    // The database has its contents, and opening it removes the remains of cancelled compactions.
    let db = Db::builder().open(&copy).map_err(|e| format!("the database: {e}"))?;
    for key in 0..KEYS {
        let value = db.get(key.to_be_bytes()).map_err(|e| format!("the database: {e}"))?;
        if value.as_deref() != Some(&(key ^ 2).to_be_bytes()[..]) {
            return Err(format!("key {key} of the database is not as it was written"));
        }
    }
    let most = memory_of(process).1;
    let done = helper.log().matches("a compaction is done").count();
    let answered = answered.each_ref().map(|count| count.load(Ordering::Relaxed));
    let said = format!(
        "answered {}, {} refused, {done} compactions ran to their end, memory at most {} MiB",
        METHODS
            .iter()
            .zip(answered)
            .map(|(method, count)| format!("{method} {count}"))
            .collect::<Vec<_>>()
            .join(", "),
        refused.load(Ordering::Relaxed),
        most >> 20
    );
    let is_enough =
        extent.done() < LEAST || answered.iter().all(|count| *count > 0) && done as u64 > extent.done() / 100;
    if most > MEMORY_MAX || !is_enough { Err(said) } else { Ok(said) }
}

/// Messages to be sent, one after another, and then nothing for as long as a small compaction may take.
struct Messages {
    items: std::vec::IntoIter<Vec<u8>>,
    rest: Pin<Box<tokio::time::Sleep>>,
}

impl Messages {
    fn new(items: Vec<Vec<u8>>) -> Self {
        Self { items: items.into_iter(), rest: Box::pin(tokio::time::sleep(STAYS)) }
    }
}

impl tonic::codegen::tokio_stream::Stream for Messages {
    type Item = Vec<u8>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        match self.items.next() {
            Some(item) => Poll::Ready(Some(item)),
            None => self.rest.as_mut().poll(context).map(|()| None),
        }
    }
}
