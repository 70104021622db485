//! Damaged and random messages to every method: the server answers each, lives on, and takes no memory for
//! what is not there.

use crate::Extent;
use crate::child::{INSTANCE, Server, TABLE, data, set};
use bytes::{Buf, BufMut};
use prost::Message;
use siltstone::Rng;
use siltstone_server::{Config, METHODS};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

const SENDERS: u64 = 8;
/// The fewest messages whose success says something: of so many some were answered, and some refused.
pub(crate) const LEAST: u64 = 1_000;
/// How much the server may take over what it has with a budget of 64 MiB.
const MEMORY_MAX: u64 = 320 << 20;
const CONFIG: &str =
    "memory = \"64MiB\"\nwrite-memory = \"16MiB\"\ndurability = \"buffered\"\ncall-memory = \"64MiB\"\n";

/// Bytes as they are.
#[derive(Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = usize;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = usize;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<usize>, Status> {
        let bytes = from.remaining();
        from.advance(bytes);
        Ok(Some(bytes))
    }
}

/// Reads an answer to its end.
pub(crate) async fn to_its_end(
    answer: Result<tonic::Response<tonic::Streaming<usize>>, Status>,
) -> Result<(), Status> {
    let mut stream = answer?.into_inner();
    while stream.message().await?.is_some() {}
    Ok(())
}

/// An answer that none of our code gives.
pub(crate) fn is_wrong(status: &Status) -> bool {
    matches!(status.code(), Code::Unknown | Code::DeadlineExceeded | Code::DataLoss)
}

/// A request that makes sense, to be damaged: with filters of all kinds, as these are the deepest.
fn sound(random: &mut Rng) -> Vec<u8> {
    let table_name = TABLE.to_string();
    match random.next_u64() % 4 {
        0 => {
            let filter = Some(filter(random, 4));
            data::ReadRowsRequest { table_name, filter, rows_limit: 3, ..Default::default() }.encode_to_vec()
        }
        1 => data::MutateRowRequest {
            table_name,
            row_key: random.next_u64().to_be_bytes().to_vec().into(),
            mutations: vec![set("f", "q", 1_000, vec![1; 40])],
            ..Default::default()
        }
        .encode_to_vec(),
        2 => data::CheckAndMutateRowRequest {
            table_name,
            row_key: "r".into(),
            predicate_filter: Some(filter(random, 3)),
            true_mutations: vec![set("f", "q", -1, vec![2; 10])],
            ..Default::default()
        }
        .encode_to_vec(),
        // Of most messages the first field is a name.
        _ => data::PingAndWarmRequest { name: INSTANCE.into(), ..Default::default() }.encode_to_vec(),
    }
}

fn filter(random: &mut Rng, depth: u32) -> data::RowFilter {
    use data::row_filter::{Chain, Condition, Filter, Interleave};
    let kind = if depth == 0 { 3 + random.next_u64() % 8 } else { random.next_u64() % 11 };
    let some = |random: &mut Rng| {
        (0..1 + random.next_u64() % 3).map(|_| filter(random, depth.saturating_sub(1))).collect::<Vec<_>>()
    };
    let pattern = |random: &mut Rng| {
        let parts: [&[u8]; 12] = [
            b"a",
            b".*",
            b"(a|b)*",
            b"[a-z]{1,40}",
            b"\\C",
            b"(",
            b"(?i)x",
            b"\\xff",
            b"[^",
            b"a{1000}{1000}",
            b"$",
            b"\\",
        ];
        (0..1 + random.next_u64() % 5)
            .flat_map(|_| parts[usize::try_from(random.next_u64() % 12).unwrap_or(0)].to_vec())
            .collect::<Vec<u8>>()
    };
    let number = i32::try_from(random.next_u64() % 5).unwrap_or(0) - 1;
    let filter = match kind {
        0 => Filter::Chain(Chain { filters: some(random) }),
        1 => Filter::Interleave(Interleave { filters: some(random) }),
        2 => Filter::Condition(Box::new(Condition {
            predicate_filter: some(random).pop().map(Box::new),
            true_filter: some(random).pop().map(Box::new),
            false_filter: None,
        })),
        3 => Filter::RowKeyRegexFilter(pattern(random).into()),
        4 => Filter::ColumnQualifierRegexFilter(pattern(random).into()),
        5 => Filter::ValueRegexFilter(pattern(random).into()),
        6 => Filter::FamilyNameRegexFilter(String::from_utf8_lossy(&pattern(random)).into_owned()),
        7 => Filter::CellsPerColumnLimitFilter(number),
        8 => Filter::CellsPerRowOffsetFilter(number),
        9 => Filter::RowSampleFilter(f64::from(number) / 2.0),
        _ => Filter::Sink(true),
    };
    data::RowFilter { filter: Some(filter) }
}

/// The message itself, a damaged copy, or random bytes.
pub(crate) fn damaged(random: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    let at = |random: &mut Rng, len: usize| usize::try_from(random.next_u64()).unwrap_or(0) % len.max(1);
    match random.next_u64() % 8 {
        0 => {}
        1 => bytes = (0..random.next_u64() % 200).map(|_| random.next_u64().to_le_bytes()[0]).collect(),
        2 => bytes.truncate(at(random, bytes.len())),
        3 => {
            // A length that is not there.
            let place = at(random, bytes.len());
            bytes.splice(place..place, [0x0a, 0xff, 0xff, 0xff, 0xff, 0x07]);
        }
        4 => {
            // Nested in itself, deep.
            for _ in 0..random.next_u64() % 300 {
                let mut outer = vec![0x2a];
                prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
                outer.extend(&bytes);
                bytes = outer;
            }
        }
        _ => {
            for _ in 0..1 + random.next_u64() % 4 {
                let place = at(random, bytes.len());
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << (random.next_u64() % 8);
                }
            }
        }
    }
    bytes
}

/// What a configuration may hold, to be put together and damaged.
const SETTINGS: [&str; 20] = [
    "dir = \"data\"",
    "listen = \"127.0.0.1:1\"",
    "http = \"[::1]:99999\"",
    "memory = \"512MiB\"",
    "write-memory = 99999999999999999999",
    "workers = 2",
    "durability = \"sync\"",
    "insecure = true",
    "region-rate = -1",
    "call-memory = \"1e9\"",
    "[tls]",
    "certificate = \"c\"\nkey = \"k\"",
    "[tables]",
    "strategy = \"leveled{sstable_bytes=128KiB, base_bytes=1MiB}\"",
    "compression = \"zstd:3\"",
    "block_bytes = 0",
    "[[table]]",
    "name = \"*\"",
    "settings = { bloom_bits = 99 }",
    "settings = { strategy = \"geometric{{{{\" }",
];

/// Damaged configurations: each is taken or refused with words, and what was taken can be written and read
/// again.
fn configurations(count: u64, seed: u64) -> Result<u64, String> {
    let mut random = Rng::new(seed);
    let mut taken = 0;
    for _ in 0..count {
        let lines = (0..random.next_u64() % 8)
            .map(|_| SETTINGS[usize::try_from(random.next_u64() % 20).unwrap_or(0)]);
        let mut bytes = lines.collect::<Vec<_>>().join("\n").into_bytes();
        for _ in 0..random.next_u64() % 3 {
            let place = usize::try_from(random.next_u64()).unwrap_or(0) % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << (random.next_u64() % 7);
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match std::panic::catch_unwind(|| Config::parse(&text)) {
            Err(_) => return Err(format!("a panic at the configuration {text:?}")),
            Ok(Err(why)) if why.trim().is_empty() => return Err(format!("no reason to refuse {text:?}")),
            Ok(Err(_)) => {}
            Ok(Ok(config)) => {
                taken += 1;
                let again =
                    Config::parse(&config.to_toml()).map_err(|e| format!("{text:?} as written: {e}"))?;
                if again.to_toml() != config.to_toml() {
                    return Err(format!("{text:?} is not the same when it was written and read"));
                }
            }
        }
    }
    Ok(taken)
}

/// So many messages.
pub(crate) async fn run(extent: &Arc<Extent>, seed: u64) -> Result<String, String> {
    let configurations = configurations(extent.count / 10, seed)?;
    let mut server = Server::start(CONFIG).await?;
    server.create(&["f", "g"]).await?;
    let (answered, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for sender in 0..SENDERS {
        let mut client = tonic::client::Grpc::new(server.channel());
        let (answered, refused, extent) = (answered.clone(), refused.clone(), extent.clone());
        let mut random = Rng::new(seed ^ (sender + 1));
        tasks.push(tokio::spawn(async move {
            while extent.goes_on() {
                extent.advance(1);
                let method = METHODS[usize::try_from(random.next_u64()).unwrap_or(0) % METHODS.len()];
                // The table stays, with what calls of it need, and streams that never end are for others.
                if [
                    "/DeleteTable",
                    "ReadChangeStream",
                    "ModifyColumnFamilies",
                    "DeleteInstance",
                    "AppProfile",
                ]
                .iter()
                .any(|name| method.ends_with(name))
                {
                    continue;
                }
                let path = method.parse().map_err(|e| format!("{method}: {e}"))?;
                client.ready().await.map_err(|e| format!("the server is gone: {e}"))?;
                let sound = sound(&mut random);
                let message = damaged(&mut random, sound);
                let mut request = Request::new(message.clone());
                request.set_timeout(std::time::Duration::from_secs(20));
                match to_its_end(client.server_streaming(request, path, Raw).await).await {
                    Ok(()) => answered.fetch_add(1, Ordering::Relaxed),
                    Err(e) if is_wrong(&e) => {
                        let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
                        return Err(format!("{method} with {hex}: {e}"));
                    }
                    Err(_) => refused.fetch_add(1, Ordering::Relaxed),
                };
            }
            Ok::<_, String>(())
        }));
    }
    for task in tasks {
        task.await.map_err(|e| e.to_string())??;
    }
    if !server.lives() || server.log().contains("panicked") {
        return Err(format!("the server panicked: {}", server.log()));
    }
    let most = server.memory().1;
    let (answered, refused) = (answered.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    let said = format!(
        "{answered} answered, {refused} refused, over {} methods, memory at most {} MiB; {configurations} damaged configurations taken",
        METHODS.len(),
        most >> 20
    );
    let both = [answered, refused, configurations].into_iter().all(|count| count > 0);
    let is_enough = extent.done() < LEAST || both;
    if most > MEMORY_MAX || !is_enough { Err(said) } else { Ok(said) }
}
