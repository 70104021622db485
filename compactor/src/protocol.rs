//! The protocol: one stream of messages each way for each compaction, a call for blocks of its outputs, and
//! one for the server's state.
//!
//! ```text
//! to the server      Begin(merge)   GoAhead ...  (one for each step made true)          end of stream: given up, or all is done
//! to the database    Waits ...  Begun  Answer(how far) ...  Answer(step) ...  Failed
//!
//! of a merge that is carried, to the database    Fetch(part of an input)   Store(part of an output)
//!                            to the server      Done(bytes)               Done()                       Refused(why)
//!
//! to the server      ReadRequest(table, parts of its file)
//! to the database    ReadPiece(bytes) ...                                               NotFound: not in memory (any more)
//! ```
//!
//! A server is at most one step ahead of the last installed one: it begins the step after the next only on a
//! message to go ahead. If the compaction asks for it, it holds a step's SSTables in memory until then, and
//! those of the last step until the stream ends. It sends a message at least every second as long as it
//! works, so a longer silence means a failure. Each message has a checksum (`codec`).

use prost::bytes::Bytes;
use prost::{Message, Oneof};
use siltstone::offload::RetainOutputs;

/// The version of these messages. A receiver refuses messages of another version.
pub(crate) const PROTOCOL_VERSION: u32 = 4;

/// The most bytes of one message: a compaction names all its SSTables.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Bytes of an input or output that are carried in one message.
pub(crate) const CARRIED_BYTES: usize = 1 << 20;

/// The most parts of an SSTable's file, and bytes of them, that a database may ask for at once. It reads a
/// larger block from storage.
pub(crate) const PARTS_MAX: usize = 4 << 10;
pub(crate) const READ_BYTES_MAX: u64 = 8 << 20;

/// The flow-control windows of a stream and of a connection: a few pieces of an SSTable.
pub(crate) const WINDOW_BYTES: u32 = 8 << 20;

/// A message from the database, on the stream of one compaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ToCompactor {
    #[prost(oneof = "ClientRequest", tags = "1, 2, 3, 4")]
    pub(crate) ask: Option<ClientRequest>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum ClientRequest {
    /// The first message.
    #[prost(message, tag = "1")]
    Begin(Begin),
    /// A step was installed.
    #[prost(message, tag = "2")]
    GoAhead(GoAhead),
    /// The answer in a compaction without shared storage: the bytes of an input that were asked for, or
    /// nothing where an output was written.
    #[prost(bytes = "bytes", tag = "3")]
    Done(Bytes),
    /// The refusal in a compaction without shared storage: why an input was not read, or an output not
    /// written.
    #[prost(string, tag = "4")]
    Refused(String),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Begin {
    #[prost(uint32, tag = "1")]
    pub(crate) protocol_version: u32,
    /// A [`siltstone::offload::CompactionSpec`], as it is carried.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) merge: Vec<u8>,
    /// How long its outputs are held in memory: 0 not at all, 1 each step until it is installed, 2 as long as
    /// there is room.
    #[prost(uint32, tag = "3")]
    pub(crate) keep: u32,
    /// Whether inputs come and outputs go over this stream, as both share no storage.
    #[prost(bool, tag = "4")]
    pub(crate) carried: bool,
}

impl Begin {
    /// The meaning of `keep`.
    pub(crate) fn keeps(&self) -> Option<RetainOutputs> {
        [RetainOutputs::No, RetainOutputs::UntilPublished, RetainOutputs::WhileThereIsRoom]
            .into_iter()
            .find(|keep| *keep as u32 == self.keep)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct GoAhead {}

/// A message from the server, on the same stream.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FromCompactor {
    #[prost(oneof = "ServerMessage", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) tell: Option<ServerMessage>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum ServerMessage {
    /// The compaction waits: how many are before it.
    #[prost(message, tag = "1")]
    Waits(Waits),
    /// A [`siltstone::offload::CompactionAnswer`], as it is carried.
    #[prost(bytes = "vec", tag = "2")]
    Answer(Vec<u8>),
    /// The compaction has failed, and nothing more comes of it.
    #[prost(string, tag = "3")]
    Failed(String),
    /// The compaction waits no more. Sent again and again while it runs, with nothing to say yet.
    #[prost(message, tag = "4")]
    Begun(Begun),
    /// A request in a compaction without shared storage: for a part of an input. The next message to the
    /// server is the answer, or one to go ahead.
    #[prost(message, tag = "5")]
    Fetch(Fetch),
    /// A part of an output to be written, answered like a `Fetch`.
    #[prost(message, tag = "6")]
    Store(Store),
}

/// A part of the file of an input.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Fetch {
    /// The name of its file.
    #[prost(string, tag = "1")]
    pub(crate) table: String,
    #[prost(uint64, tag = "2")]
    pub(crate) offset: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) bytes: u64,
}

/// The next bytes of the file of an output.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Store {
    /// The name of its file.
    #[prost(string, tag = "1")]
    pub(crate) table: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) bytes: Bytes,
    /// Whether all of the file is to be made durable.
    #[prost(bool, tag = "3")]
    pub(crate) sync: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Waits {
    #[prost(uint64, tag = "1")]
    pub(crate) before: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Begun {}

/// A request for parts of the file of an SSTable that the server wrote.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ReadRequest {
    /// The number of the database.
    #[prost(fixed64, tag = "1")]
    pub(crate) database: u64,
    /// The name of the SSTable's file.
    #[prost(string, tag = "2")]
    pub(crate) table: String,
    /// Where each part begins, and where it ends.
    #[prost(uint64, repeated, tag = "3")]
    pub(crate) starts: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub(crate) ends: Vec<u64>,
    /// Whether the SSTable is not compressed, so that its bytes are to be compressed on the way.
    #[prost(bool, tag = "5")]
    pub(crate) compress: bool,
}

/// Some of the bytes that were asked for, in order.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ReadPiece {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) bytes: Bytes,
    /// The decompressed length of an lz4 block. 0: the bytes are as in the file.
    #[prost(uint32, tag = "2")]
    pub(crate) raw: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StateRequest {}

/// The state of a compaction server.
#[derive(Clone, PartialEq, Message)]
pub struct CompactorState {
    /// The version of the messages that it understands.
    #[prost(uint32, tag = "1")]
    pub protocol_version: u32,
    /// The most compactions that it runs at a time: l = floor(m/b) of OFF-7.
    #[prost(uint64, tag = "2")]
    pub slots: u64,
    /// Running compactions.
    #[prost(uint64, tag = "3")]
    pub running: u64,
    /// Compactions that wait for others.
    #[prost(uint64, tag = "4")]
    pub queued: u64,
    /// The most compactions that may wait.
    #[prost(uint64, tag = "5")]
    pub queue_max: u64,
    /// Compactions finished since the server started.
    #[prost(uint64, tag = "6")]
    pub done: u64,
    /// Compactions that failed or were given up since the server started.
    #[prost(uint64, tag = "7")]
    pub failed: u64,
    /// Bytes written to SSTables since the server started.
    #[prost(uint64, tag = "8")]
    pub bytes_written: u64,
    /// Bytes a second written to SSTables lately.
    #[prost(uint64, tag = "9")]
    pub bytes_per_second: u64,
    /// Hundredths of a processor that the process used lately.
    #[prost(uint64, tag = "10")]
    pub cpu_percent: u64,
    /// Memory of the process, in bytes.
    #[prost(uint64, tag = "11")]
    pub memory_bytes: u64,
    /// The bound on the process's memory, in bytes.
    #[prost(uint64, tag = "12")]
    pub memory_max: u64,
    /// Seconds since the server started.
    #[prost(uint64, tag = "13")]
    pub up_seconds: u64,
    /// Processors that it may use.
    #[prost(uint64, tag = "14")]
    pub processors: u64,
    /// Bytes of SSTables in memory for databases to fetch.
    #[prost(uint64, tag = "15")]
    pub kept_bytes: u64,
    /// Bytes of SSTables that databases fetched since the server started.
    #[prost(uint64, tag = "16")]
    pub fetched_bytes: u64,
    /// Whether it shares storage with databases. Otherwise inputs and outputs of its compactions go over the
    /// connection.
    #[prost(bool, tag = "17")]
    pub shares_storage: bool,
    /// Input bytes of the compactions that it finished.
    #[prost(uint64, tag = "18")]
    pub merged_bytes: u64,
    /// Microseconds that it worked at these compactions.
    #[prost(uint64, tag = "19")]
    pub merging_us: u64,
    /// Microseconds that these compactions waited for their databases to install steps.
    #[prost(uint64, tag = "20")]
    pub handing_over_us: u64,
}

impl CompactorState {
    /// The number of running and waiting compactions.
    pub(crate) fn merges(&self) -> u64 {
        self.running.saturating_add(self.queued)
    }

    /// The share of its processors that it uses.
    pub(crate) fn load(&self) -> f64 {
        self.cpu_percent as f64 / 100.0 / self.processors.max(1) as f64
    }
}

/// The announcement of a compaction server to a manager.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Announcement {
    #[prost(uint32, tag = "1")]
    pub(crate) protocol_version: u32,
    /// The address at which databases reach the server.
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) state: Option<CompactorState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Announced {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct RingRequest {
    #[prost(uint32, tag = "1")]
    pub(crate) protocol_version: u32,
    /// The number of the ring that the caller has; 0 where it has none.
    #[prost(fixed64, tag = "2")]
    pub(crate) number: u64,
}

/// The servers that there are, each as often as it has shares of all stores: store number n goes to entry n
/// modulo their number.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Ring {
    /// The servers; none where the caller has this ring already.
    #[prost(string, repeated, tag = "1")]
    pub(crate) servers: Vec<String>,
    /// The ring's number, which tells it from other rings; never 0.
    #[prost(fixed64, tag = "2")]
    pub(crate) number: u64,
}

/// The stubs.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod stubs {
    include!(concat!(env!("OUT_DIR"), "/siltstone.compactor.v1.Compactor.rs"));
    include!(concat!(env!("OUT_DIR"), "/siltstone.compactor.v1.Manager.rs"));
}

/// A message to a database.
pub(crate) fn telling(tell: ServerMessage) -> FromCompactor {
    FromCompactor { tell: Some(tell) }
}

/// A message to a server.
pub(crate) fn asking(ask: ClientRequest) -> ToCompactor {
    ToCompactor { ask: Some(ask) }
}
