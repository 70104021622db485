//! Clients that speak the protocol wrongly, or stop in the middle: they are told so, and hold nothing.

use crate::support::{World, builder, eventually, merged, server, write};
use prost::{Message, Oneof};
use siltstone::offload::{CompactionSpec, Decision, Offer, Offload};
use siltstone_compactor::{CompactorServer, Compactors};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::Codec;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

/// The version of the messages.
const VERSION: u32 = 4;

/// The messages, written down once more.
#[derive(Clone, PartialEq, Message)]
struct To {
    #[prost(oneof = "Ask", tags = "1, 2")]
    ask: Option<Ask>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Ask {
    #[prost(message, tag = "1")]
    Begin(Begin),
    #[prost(message, tag = "2")]
    GoAhead(Nothing),
}

#[derive(Clone, PartialEq, Message)]
struct Begin {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(bytes = "vec", tag = "2")]
    merge: Vec<u8>,
    #[prost(uint32, tag = "3")]
    keep: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Read {
    #[prost(fixed64, tag = "1")]
    database: u64,
    #[prost(string, tag = "2")]
    table: String,
    #[prost(uint64, repeated, tag = "3")]
    starts: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    ends: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct Told {
    #[prost(bytes = "vec", optional, tag = "2")]
    answer: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    failed: Option<String>,
}

type Asks = mpsc::Sender<To>;

async fn ask(channel: &Channel, first: Option<Ask>) -> Result<(Asks, Streaming<Told>), Status> {
    ask_by(channel, first, siltstone_compactor::CheckedCodec::<To, Told>::default()).await
}

async fn ask_by(
    channel: &Channel,
    first: Option<Ask>,
    codec: impl Codec<Encode = To, Decode = Told>,
) -> Result<(Asks, Streaming<Told>), Status> {
    let (asks, asked) = mpsc::channel(8);
    if let Some(ask) = first {
        asks.send(To { ask: Some(ask) }).await.unwrap();
    }
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let path = PathAndQuery::from_static("/siltstone.compactor.v1.Compactor/Merge");
    let request = tonic::Request::new(ReceiverStream::new(asked));
    Ok((asks, client.streaming(request, path, codec).await?.into_inner()))
}

/// The number of bytes that come for these parts of an SSTable.
async fn read(channel: &Channel, read: Read) -> Result<usize, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let path = PathAndQuery::from_static("/siltstone.compactor.v1.Compactor/Read");
    let codec = siltstone_compactor::CheckedCodec::<Read, Piece>::default();
    let answer = client.server_streaming(tonic::Request::new(read), path, codec).await?;
    let (mut pieces, mut bytes) = (answer.into_inner(), 0);
    while let Some(Piece { bytes: piece }) = pieces.message().await? {
        bytes += piece.len();
    }
    Ok(bytes)
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

/// The description of a compaction with other values of these fields, signed.
fn changed(merge: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut json = String::from_utf8(merge[9..].to_vec()).unwrap();
    for (field, value) in fields {
        let name = format!("\"{field}\":");
        let at = json.find(&name).unwrap() + name.len();
        let end = at + json[at..].find([',', '}']).unwrap();
        json.replace_range(at..end, value);
    }
    format!("{:08x} {json}", crc32c::crc32c(json.as_bytes())).into_bytes()
}

/// The reason why the compaction failed.
async fn failure(stream: &mut Streaming<Told>) -> String {
    loop {
        match stream.message().await {
            Ok(Some(Told { failed: Some(why), .. })) => return why,
            Ok(Some(_)) => {}
            end => return format!("{end:?}"),
        }
    }
}

/// The number of steps that come before nothing more does for a second.
async fn steps(stream: &mut Streaming<Told>) -> usize {
    let mut steps = 0;
    let mut quiet = std::time::Instant::now();
    while quiet.elapsed() < std::time::Duration::from_secs(1) {
        let message = tokio::time::timeout(std::time::Duration::from_millis(200), stream.message()).await;
        let answer = message.ok().and_then(Result::ok).flatten().and_then(|message| message.answer);
        let is_step = |bytes| siltstone::offload::CompactionAnswer::from_bytes(bytes).unwrap().is_step();
        if answer.as_deref().is_some_and(is_step) {
            steps += 1;
            quiet = std::time::Instant::now();
        }
    }
    steps
}

/// An [`Offload`] that tries all wrong messages with the first compaction that it is offered, and takes none.
struct Plays {
    at: String,
    seen: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Plays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.at)
    }
}

async fn play(at: &str, spec: &CompactionSpec) -> Vec<String> {
    let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect_lazy();
    let merge = spec.to_bytes().unwrap();
    let begin = |version, merge: &[u8]| Some(Ask::Begin(Begin { version, merge: merge.to_vec(), keep: 1 }));
    let mut seen = Vec::new();
    let mut wrong = Vec::new();
    wrong.push(ask(&channel, Some(Ask::GoAhead(Nothing {}))).await.err().unwrap());
    wrong.push(ask(&channel, begin(VERSION, b"no compaction")).await.err().unwrap());
    wrong.push(ask(&channel, begin(99, &merge)).await.err().unwrap());
    let outside = spec.clone().with_dirs(|_| Ok("/etc".into())).unwrap().to_bytes().unwrap();
    wrong.push(ask(&channel, begin(VERSION, &outside)).await.err().unwrap());
    wrong.push(ask(&channel, begin(VERSION, &vec![b' '; 17 << 20])).await.err().unwrap());
    let kept_somehow = Some(Ask::Begin(Begin { version: VERSION, merge: merge.clone(), keep: 9 }));
    wrong.push(ask(&channel, kept_somehow).await.err().unwrap());
    let wanted = |table: &str, starts: &[u64], ends: &[u64]| Read {
        database: spec.database(),
        table: table.into(),
        starts: starts.to_vec(),
        ends: ends.to_vec(),
    };
    let unchecked = tonic_prost::ProstCodec::<To, Told>::default();
    wrong.push(ask_by(&channel, begin(VERSION, &merge), unchecked).await.err().unwrap());
    let name = spec.first_output().file_name();
    for (table, starts, ends) in
        [("../CURRENT", &[0][..], &[9][..]), (&*name, &[0, 1], &[9]), (&*name, &[0], &[9])]
    {
        wrong.push(read(&channel, wanted(table, starts, ends)).await.err().unwrap());
    }
    // The WAL lies in another directory than the SSTables, none of which needs it.
    let dir = format!("\"{}\"", spec.log_dir().display());
    let elsewhere = changed(&merge, &[("place", &dir), ("log_dir", "\"/etc\"")]);
    wrong.push(ask(&channel, begin(VERSION, &elsewhere)).await.err().unwrap());
    seen.extend(wrong.iter().map(|status| format!("{:?}: {}", status.code(), status.message())));
    let (asks, mut stream) =
        ask(&channel, begin(VERSION, &changed(&merge, &[("table_bytes", "1")]))).await.unwrap();
    seen.push(failure(&mut stream).await);
    drop((asks, stream));
    // Two steps come without a word, and no third.
    let (asks, mut stream) = ask(&channel, begin(VERSION, &merge)).await.unwrap();
    seen.push(format!("{} steps", steps(&mut stream).await));
    seen.push(format!("{:?} bytes", read(&channel, wanted(&name, &[0, 50], &[40, 90])).await.ok()));
    for (start, end) in [(0, u64::MAX), (9, 3), (u64::MAX, 0), (1 << 40, (1 << 40) + 1)] {
        let status = read(&channel, wanted(&name, &[start], &[end])).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
    let often = read(&channel, wanted(&name, &[0; 5_000], &[1; 5_000])).await.unwrap_err();
    assert_eq!(often.code(), Code::InvalidArgument, "{often}");
    let much = read(&channel, wanted(&name, &[0; 4_000], &[10_000; 4_000])).await.unwrap_err();
    assert_eq!(much.code(), Code::NotFound, "{much}");
    asks.send(To { ask: Some(Ask::GoAhead(Nothing {})) }).await.unwrap();
    seen.push(format!("{} steps", steps(&mut stream).await));
    drop((asks, stream));
    seen
}

impl Offload for Plays {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let spec = offer.spec;
        let mut seen = self.seen.lock().unwrap();
        if seen.is_empty() && spec.input_bytes() > 300_000 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            *seen = runtime.block_on(play(&self.at, spec));
        }
        Decision::here()
    }
}

fn is_idle(server: &CompactorServer) -> bool {
    let seen = Compactors::connect([server.listens_at().to_string()]).unwrap();
    eventually("it answers", || seen.servers()[0].state.is_some());
    let state = seen.servers()[0].state.clone().unwrap();
    state.running + state.queued == 0
}

#[test]
fn wrong_messages_are_refused_and_a_client_that_stops_leaves_its_slot() {
    let world = World::new();
    let server = server(&world, 1);
    let plays = Arc::new(Plays { at: server.listens_at().to_string(), seen: Mutex::default() });
    let db = builder().offload(plays.clone()).open(world.dir.path().join("db")).unwrap();
    let mut round = 0;
    while plays.seen.lock().unwrap().is_empty() {
        write(&db, round, 4_000);
        merged(&db);
        round += 1;
    }
    let seen = plays.seen.lock().unwrap().clone();
    let expected = [
        "names no compaction",
        "the description of a compaction",
        "messages of version 99",
        "is not below a directory",
        "",
        "there is no way 9 of keeping outputs",
        "InvalidArgument: a message without a checksum",
        "../CURRENT is no name of a table",
        "2 parts begin, 1 end",
        "is not in memory",
        "/etc is not below a directory",
        "sstable_bytes is under 512 B",
        "2 steps",
        "Some(80) bytes",
        "1 steps",
    ];
    for (seen, expected) in seen.iter().zip(expected) {
        assert!(seen.contains(expected), "{seen}, not {expected}");
    }
    assert_eq!(seen.len(), expected.len());
    assert!(seen[4].starts_with(&format!("{:?}", Code::OutOfRange)), "{}", seen[4]);
    eventually("its slot is free", || is_idle(&server));
}
