//! Damaged and random messages to a compaction server and a manager: each is answered or refused, both live on, and nothing of the
//! database whose merge is described is harmed. What is damaged are messages that make sense: a merge of tables that are there, parts
//! of what such a merge wrote, an announcement.

use crate::Extent;
use crate::child::{Server, channel, free_port, memory_of};
use crate::messages::{Raw, damaged};
use crate::offload::Helper;
use prost::encoding::{bool, bytes, fixed64, message, string, uint32, uint64};
use siltstone::offload::{Decision, MergeSpec, Offer, Offload};
use siltstone::{Db, Rng};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::{Code, Request, Status};

const SENDERS: u64 = 8;
const KEYS: u64 = 20_000;
/// How much a compaction server may take: 1 GiB is what it was given for merges.
const MEMORY_MAX: u64 = 512 << 20;
const PROTOCOL_VERSION: u32 = 2;
/// How long a client stays that has said everything.
const STAYS: Duration = Duration::from_millis(50);
const SERVICE: &str = "/siltstone.compactor.v1";

/// Copies the database when a merge is offered, before it takes its inputs away, and notes the merge as one of the copy.
#[derive(Debug)]
struct Notes {
    dir: PathBuf,
    copy: PathBuf,
    noted: Mutex<Option<(Vec<u8>, u64)>>,
}

impl Notes {
    fn copied(&self, spec: &MergeSpec) -> Result<(Vec<u8>, u64), String> {
        let failed = |e: std::io::Error| e.to_string();
        std::fs::create_dir_all(&self.copy).map_err(failed)?;
        for file in std::fs::read_dir(&self.dir).map_err(failed)? {
            let file = file.map_err(failed)?;
            std::fs::copy(file.path(), self.copy.join(file.file_name())).map_err(failed)?;
        }
        let spec = spec.clone().with_dirs(|_| Ok(self.copy.clone())).map_err(|e| e.to_string())?;
        Ok((spec.to_bytes().map_err(|e| e.to_string())?, spec.database()))
    }
}

impl Offload for Notes {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let copied = self.copied(offer.spec).inspect_err(|why| println!("no copy: {why}"));
        *self.noted.lock().expect("nobody panics") = copied.ok();
        Decision::here()
    }
}

/// A copy of a database, the description of a merge of it, and its number.
fn database(place: &Path, copy: &Path) -> Result<(Vec<u8>, u64), String> {
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
    noted.ok_or_else(|| "no merge was offered, or copied".into())
}

/// A stream of messages that begins with a merge.
fn begin(random: &mut Rng, spec: &[u8]) -> Vec<u8> {
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    let mut spec = spec.to_vec();
    if random.next_u64().is_multiple_of(2) {
        // Still text, and something else.
        let at = random.index(spec.len());
        spec[at] = b"0123456789\"{}[],:-"[random.index(18)];
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

/// Parts of a table's file.
fn read(random: &mut Rng, database: u64) -> Vec<u8> {
    let mut out = Vec::new();
    fixed64::encode(1, &database, &mut out);
    string::encode(
        2,
        &format!("00000{}-000001-00000{}-0001.table", random.range(0..3), random.range(0..9)),
        &mut out,
    );
    uint64::encode_packed(3, &[0, random.range(0..9_000)], &mut out);
    uint64::encode_packed(4, &[random.range(0..9_000), u64::MAX >> random.range(0..64)], &mut out);
    bool::encode(5, &(random.next_u64().is_multiple_of(2)), &mut out);
    out
}

/// A compaction server that is not there.
fn announcement(random: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    uint32::encode(1, &PROTOCOL_VERSION, &mut out);
    string::encode(2, &format!("127.0.0.1:{}", random.range(0..1 << 17)), &mut out);
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
    let (spec, database) = database(&place, &copy)?;
    let port = free_port();
    let mut helper = Helper::start(&place, port, None)?;
    let (answered, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let spec = Arc::new(spec);
    let mut tasks = Vec::new();
    for sender in 0..SENDERS {
        let mut of_helper = tonic::client::Grpc::new(channel(port));
        let mut of_manager = tonic::client::Grpc::new(channel(manager_port));
        let (answered, refused, extent, spec) =
            (answered.clone(), refused.clone(), extent.clone(), spec.clone());
        let mut random = Rng::new(seed ^ (sender + 1));
        tasks.push(tokio::spawn(async move {
            while extent.goes_on() {
                extent.advance(1);
                let (is_manager, method, mut messages) = match random.range(0..8) {
                    0..4 => {
                        let rest = random.range(0..4);
                        let begin = begin(&mut random, &spec);
                        let rest = (0..rest).map(|_| further(&mut random));
                        (
                            false,
                            "Compactor/Merge",
                            std::iter::once(begin).chain(rest.collect::<Vec<_>>()).collect(),
                        )
                    }
                    4 | 5 => (false, "Compactor/Read", vec![read(&mut random, database)]),
                    6 => (true, "Manager/Announce", vec![announcement(&mut random)]),
                    _ => (true, "Manager/Ring", vec![vec![0x08, 0x02]]),
                };
                let at = random.index(messages.len());
                messages[at] = damaged(&mut random, std::mem::take(&mut messages[at]));
                let hex: String = messages[at].iter().take(4_000).map(|byte| format!("{byte:02x}")).collect();
                let client = if is_manager { &mut of_manager } else { &mut of_helper };
                client.ready().await.map_err(|e| format!("{method}: it is gone: {e}"))?;
                let path = format!("{SERVICE}.{method}").parse().map_err(|e| format!("{method}: {e}"))?;
                let mut request = Request::new(Messages::new(messages));
                request.set_timeout(Duration::from_secs(20));
                let ended = match client.streaming(request, path, Raw).await {
                    Ok(stream) => {
                        let mut stream = stream.into_inner();
                        loop {
                            match stream.message().await {
                                Ok(Some(_)) => {}
                                Ok(None) => break Ok(()),
                                Err(e) => break Err(e),
                            }
                        }
                    }
                    Err(e) => Err(e),
                };
                match ended {
                    Ok(()) => answered.fetch_add(1, Ordering::Relaxed),
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
    // The database has what it had, and whoever opens it removes what merges that nobody wanted have left.
    let db = Db::builder().open(&copy).map_err(|e| format!("the database: {e}"))?;
    for key in 0..KEYS {
        let value = db.get(key.to_be_bytes()).map_err(|e| format!("the database: {e}"))?;
        if value.as_deref() != Some(&(key ^ 2).to_be_bytes()[..]) {
            return Err(format!("key {key} of the database is not as it was written"));
        }
    }
    let most = memory_of(process).1;
    let done = helper.log().matches("a merge is done").count();
    let said = format!(
        "{} answered, {} refused, {done} merges ran to their end, memory at most {} MiB",
        answered.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
        most >> 20
    );
    if most > MEMORY_MAX || done == 0 { Err(said) } else { Ok(said) }
}

/// An answer that none of our code gives.
fn is_wrong(status: &Status) -> bool {
    matches!(status.code(), Code::Unknown | Code::DeadlineExceeded | Code::DataLoss)
}

/// Messages to be sent, one after another, and then nothing for as long as a small merge may take.
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
