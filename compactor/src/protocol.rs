//! What goes over the connection: one stream of messages each way for each merge, and a call that asks how the server is.
//!
//! ```text
//! to the server      Begin(merge)   GoAhead ...  (one for each step made true)          end of stream: given up
//! to the database    Waits ...  Begun  Answer(how far) ...  Answer(step) ...  Failed    end of stream: behind the last step
//! ```
//!
//! A server is at most one step ahead of what was made true: it begins the step behind the next only when told to go ahead.
//! It says something at least every second as long as it works, so who hears nothing for long knows that nothing comes.

use prost::{Message, Oneof};

/// Of these messages. Who gets a message of another version refuses it.
pub(crate) const PROTOCOL_VERSION: u32 = 1;

/// Bytes of one message, at most: a merge names all its tables.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// From the database, on the stream of one merge.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ToCompactor {
    #[prost(oneof = "Ask", tags = "1, 2")]
    pub(crate) ask: Option<Ask>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Ask {
    /// The first message.
    #[prost(message, tag = "1")]
    Begin(Begin),
    /// A step was made true.
    #[prost(message, tag = "2")]
    GoAhead(GoAhead),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Begin {
    #[prost(uint32, tag = "1")]
    pub(crate) protocol_version: u32,
    /// A [`siltstone::offload::MergeSpec`], as it is carried.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) merge: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct GoAhead {}

/// From the server, on the same stream.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FromCompactor {
    #[prost(oneof = "Tell", tags = "1, 2, 3, 4")]
    pub(crate) tell: Option<Tell>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Tell {
    /// The merge waits for others: how many are before it.
    #[prost(message, tag = "1")]
    Waits(Waits),
    /// A [`siltstone::offload::MergeAnswer`], as it is carried.
    #[prost(bytes = "vec", tag = "2")]
    Answer(Vec<u8>),
    /// The merge has failed, and nothing more comes of it.
    #[prost(string, tag = "3")]
    Failed(String),
    /// The merge waits no more. Again and again: it is being worked at, with nothing to say yet.
    #[prost(message, tag = "4")]
    Begun(Begun),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Waits {
    #[prost(uint64, tag = "1")]
    pub(crate) before: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Begun {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StateRequest {}

/// How a compaction server is doing.
#[derive(Clone, PartialEq, Message)]
pub struct CompactorState {
    /// Version of the messages it understands.
    #[prost(uint32, tag = "1")]
    pub protocol_version: u32,
    /// Merges that it runs at a time, at most: l = floor(m/b) of OFF-7.
    #[prost(uint64, tag = "2")]
    pub slots: u64,
    /// Merges under way.
    #[prost(uint64, tag = "3")]
    pub running: u64,
    /// Merges that wait for others.
    #[prost(uint64, tag = "4")]
    pub queued: u64,
    /// Merges that may wait, at most.
    #[prost(uint64, tag = "5")]
    pub queue_max: u64,
    /// Merges finished since it began.
    #[prost(uint64, tag = "6")]
    pub done: u64,
    /// Merges that failed or were given up since it began.
    #[prost(uint64, tag = "7")]
    pub failed: u64,
    /// Bytes written to tables since it began.
    #[prost(uint64, tag = "8")]
    pub bytes_written: u64,
    /// Bytes a second written to tables lately.
    #[prost(uint64, tag = "9")]
    pub bytes_per_second: u64,
    /// Hundredths of a processor that the process used lately.
    #[prost(uint64, tag = "10")]
    pub cpu_percent: u64,
    /// Memory of the process, in bytes.
    #[prost(uint64, tag = "11")]
    pub memory_bytes: u64,
    /// Its bound for that.
    #[prost(uint64, tag = "12")]
    pub memory_max: u64,
    /// Seconds since it began.
    #[prost(uint64, tag = "13")]
    pub up_seconds: u64,
}

/// The stubs.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod stubs {
    include!(concat!(env!("OUT_DIR"), "/siltstone.compactor.v1.Compactor.rs"));
}

/// A message that tells this.
pub(crate) fn telling(tell: Tell) -> FromCompactor {
    FromCompactor { tell: Some(tell) }
}

/// A message that asks this.
pub(crate) fn asking(ask: Ask) -> ToCompactor {
    ToCompactor { ask: Some(ask) }
}
