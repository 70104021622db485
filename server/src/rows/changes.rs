//! A call of ReadChangeStream: what was written to a table, from the engine's stream of changes.
//!
//! The engine's stream has the writes of all stores in the order in which they became visible, from the WAL.
//! Here those of one table and a range of rows are picked, and put together row by row as the mutations that
//! a client would send. A token is the sequence number of a row's last write, or a lower one; a stream goes
//! on behind it. So a table has one partition, which is all of it, whatever its regions: reading it in parts
//! would read the WAL once for each part.
//!
//! The WAL is retained for this up to `change-log` bytes. A request for older changes gets an error
//! (`OUT_OF_RANGE`), never a part of them. Regions of a table whose changes are streamed are not joined: a
//! store that is gone has no name any more, and its writes in the WAL would belong to nobody.

use crate::cells::row_key::{self, Span};
use crate::proto::data::mutation::{self, Mutation as Kind};
use crate::proto::data::read_change_stream_request::StartFrom;
use crate::proto::data::read_change_stream_response::{
    CloseStream, DataChange, Heartbeat, MutationChunk, StreamRecord, data_change, mutation_chunk::ChunkInfo,
};
use crate::proto::data::{
    ReadChangeStreamRequest, ReadChangeStreamResponse, RowRange, StreamContinuationToken, StreamPartition,
    TimestampRange, ToldMutation, Value, value,
};
use crate::proto::rpc;
use crate::rows::read_rows::span_of;
use crate::status::status;
use crate::tables::attached;
use crate::tables::layout::{Table, owner_of};
use crate::tables::registry::Tables;
use crate::time::timestamp;
use bytes::Bytes;
use prost::Message;
use siltstone::{ChangeBatch, ChangeKind, Changes, ErrorKind, SeqNo, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Status;

/// Bytes of changes for one message, about, and of a piece of a value.
const MESSAGE_BYTES: usize = 1 << 20;
/// Bytes of changes that one turn reads, about.
const TURN_BYTES: usize = 1 << 20;
/// Batches that one turn reads, so that a stream of a quiet table in a busy server says something.
const TURN_BATCHES: usize = 10_000;
/// Writes are stamped before they are on disk and seen, so one may come this much behind others of its time,
/// in microseconds.
const LATE_US: u64 = 500_000;
/// How much later than its time a write may come that is on its way into a shared database's store: so long
/// the store is asked again.
const IN_FLIGHT_US: u64 = 60_000_000;
/// The least pause of a stream that has no changes.
const REST_MIN: Duration = Duration::from_millis(20);
/// How often a client hears something, unless it says: at least this often, and not more often than that.
const HEARTBEAT: Duration = Duration::from_secs(5);
const HEARTBEAT_RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(300));

/// The one partition of a table.
pub(crate) fn partition() -> StreamPartition {
    StreamPartition { row_range: Some(RowRange::default()) }
}

/// A stream of changes under way.
pub(crate) struct ChangeRead {
    tables: Arc<Tables>,
    name: String,
    table: Arc<Table>,
    partition: StreamPartition,
    span: Span,
    changes: Changes,
    /// Nothing that was written earlier is wanted.
    from_us: u64,
    /// Nothing that was written from then on.
    end_us: Option<u64>,
    /// The number before the first write that was left out as it came after the end, while earlier ones came
    /// behind it: who goes on from here must get it, so no token is higher.
    left_out: Option<SeqNo>,
    /// The WAL did not hold everything, and it is not known yet whether something is missed.
    lost: Option<Status>,
    heartbeat: Duration,
    told: Instant,
    ended: bool,
}

/// The result of a turn.
pub(crate) struct Turn {
    pub(crate) messages: Vec<ReadChangeStreamResponse>,
    /// There was no more for now.
    pub(crate) waits: bool,
}

fn response(record: StreamRecord) -> ReadChangeStreamResponse {
    ReadChangeStreamResponse { stream_record: Some(record) }
}

fn micros(time: &prost_types::Timestamp) -> u64 {
    crate::time::micros(time.seconds, time.nanos).unwrap_or(0)
}

impl ChangeRead {
    /// Checks the request and begins.
    pub(crate) fn new(tables: Arc<Tables>, request: &ReadChangeStreamRequest) -> Result<Self, Status> {
        let table = tables.get(crate::names::table(&request.table_name)?)?;
        let enabled_us = check_enabled(&table, &request.table_name)?;
        let partition = request.partition.clone().unwrap_or_else(partition);
        let span = span_of(&partition.row_range.clone().unwrap_or_default())?;
        let now = crate::time::now_us();
        let (from, from_us) = match &request.start_from {
            None => (tables.db.snapshot().seq(), 0),
            Some(StartFrom::StartTime(time)) => {
                let us = micros(time);
                if us > now {
                    return Err(Status::invalid_argument("start_time is in the future"));
                }
                // Writes from before changes were streamed may be there or not.
                let us = us.max(enabled_us);
                (tables.moments.seq_before(us), us)
            }
            Some(StartFrom::ContinuationTokens(tokens)) => {
                let seq = |token: &StreamContinuationToken| {
                    let seq = u64::from_str_radix(&token.token, 16).map(SeqNo);
                    seq.map_err(|_| {
                        Status::invalid_argument(format!("\"{}\" is no token of this server", token.token))
                    })
                };
                let seqs: Result<Vec<_>, _> = tokens.tokens.iter().map(seq).collect();
                // Where one goes on from several, from the one that is furthest behind: some comes twice, and
                // nothing is missed.
                let first = seqs?.into_iter().min();
                (first.ok_or_else(|| Status::invalid_argument("no continuation token"))?, 0)
            }
        };
        let heartbeat = request.heartbeat_duration.map_or(HEARTBEAT, |d| {
            let millis = d.seconds.saturating_mul(1_000).saturating_add(i64::from(d.nanos / 1_000_000));
            let wanted = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
            wanted.clamp(HEARTBEAT_RANGE.0, HEARTBEAT_RANGE.1)
        });
        let changes = tables.db.changes_since(from).map_err(status)?;
        Ok(Self {
            tables,
            name: request.table_name.clone(),
            table,
            partition,
            span,
            changes,
            from_us,
            end_us: request.end_time.as_ref().map(micros),
            left_out: None,
            lost: None,
            heartbeat,
            told: Instant::now(),
            ended: false,
        })
    }

    /// Whether there is nothing more.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn table_name(&self) -> &str {
        &self.name
    }

    /// Whether its table is still there: it may be another by now, or none, or its changes streamed no more.
    pub(crate) fn check(&self) -> Result<(), Status> {
        let now = self.tables.get(&self.name)?;
        check_enabled(&now, &self.name)?;
        match Arc::ptr_eq(&now, &self.table) {
            true => Ok(()),
            false => Err(Status::not_found(format!("table {} was deleted", self.name))),
        }
    }

    /// How long there is nothing to say if nothing is written.
    pub(crate) fn rests(&self) -> Duration {
        let left = |end: u64| end.saturating_add(LATE_US).saturating_sub(crate::time::now_us());
        let until_end = self.end_us.map_or(Duration::MAX, |end| Duration::from_micros(left(end)));
        self.heartbeat.saturating_sub(self.told.elapsed()).min(until_end).max(REST_MIN)
    }

    /// The next changes, or a sign of life, or nothing for now.
    pub(crate) fn turn(&mut self) -> Result<Turn, Status> {
        self.check()?;
        let began_us = crate::time::now_us();
        let mut messages = Vec::new();
        let (mut bytes, mut waits) = (0, false);
        // All writes up to then have come.
        let mut seen_us = began_us.saturating_sub(LATE_US);
        for _ in 0..TURN_BATCHES {
            let before = self.changes.seq();
            let is_behind = self.changes.is_behind();
            match self.changes.next_batch() {
                Ok(Some(batch)) => {
                    seen_us = batch.written_us.saturating_sub(LATE_US).min(seen_us);
                    match self.end_us.and_then(|end| batch.written_us.checked_sub(end)) {
                        None => self.take(&batch, &mut messages)?,
                        Some(_) if self.lost.is_some() => return Err(self.lost.take().unwrap_or_else(gone)),
                        // An earlier one may come behind it.
                        Some(over) if over < LATE_US => _ = self.left_out.get_or_insert(before),
                        Some(_) => self.close(&mut messages),
                    }
                }
                Ok(None) => {
                    // Nothing that is left tells how old it was.
                    if let Some(lost) = self.lost.take() {
                        return Err(lost);
                    }
                    let late_us = if is_behind { LATE_US + IN_FLIGHT_US } else { LATE_US };
                    seen_us = began_us.saturating_sub(late_us);
                    if self.end_us.is_some_and(|end| seen_us >= end) {
                        self.close(&mut messages);
                    }
                    waits = true;
                }
                Err(e) if e.kind() == ErrorKind::ChangesLost && self.nothing_lost() => {}
                Err(e) if e.kind() == ErrorKind::ChangesLost && self.from_us > 0 => {
                    self.lost = Some(status(e))
                }
                Err(e) => return Err(status(e)),
            }
            bytes += messages.last().map_or(0, Message::encoded_len);
            if waits || self.ended || bytes >= TURN_BYTES {
                break;
            }
        }
        if !messages.is_empty() {
            self.told = Instant::now();
        } else if self.told.elapsed() >= self.heartbeat && self.lost.is_none() {
            self.told = Instant::now();
            messages.push(response(StreamRecord::Heartbeat(Heartbeat {
                continuation_token: Some(self.token()),
                estimated_low_watermark: Some(timestamp(seen_us)),
            })));
        }
        Ok(Turn { messages, waits })
    }

    /// Whether the numbers missing in the WAL were never logged, as they are from attaching the stores of
    /// restored tables.
    fn nothing_lost(&self) -> bool {
        let Some((first, last)) = self.changes.lost() else { return false };
        let were_attached = || attached::were_attached(&self.tables.records, first, last).unwrap_or(false);
        if were_attached() {
            return true;
        }
        // It is noted right after; who attaches holds this.
        drop(self.tables.change());
        were_attached()
    }

    fn token(&self) -> StreamContinuationToken {
        let seq = self.changes.seq();
        let token = format!("{:016x}", self.left_out.unwrap_or(seq).0);
        StreamContinuationToken { partition: Some(self.partition.clone()), token }
    }

    fn close(&mut self, messages: &mut Vec<ReadChangeStreamResponse>) {
        self.ended = true;
        messages.push(response(StreamRecord::CloseStream(CloseStream {
            status: Some(rpc::Status::default()),
            ..Default::default()
        })));
    }

    /// Picks of a batch what is of the table, the rows and the time.
    fn take(
        &mut self,
        batch: &ChangeBatch,
        messages: &mut Vec<ReadChangeStreamResponse>,
    ) -> Result<(), Status> {
        if batch.written_us < self.from_us {
            // The lost writes are older still.
            self.lost = None;
            return Ok(());
        }
        if let Some(lost) = self.lost.take() {
            return Err(lost);
        }
        let layout = self.table.now();
        let mut row: Option<RowChange> = None;
        for change in &batch.changes {
            let owner = change.family.as_deref().and_then(owner_of);
            let Some((_, family)) = owner.filter(|(table, _)| *table == layout.schema.id) else { continue };
            let named = layout.families.iter().find(|own| own.id == family);
            // A family that was deleted meanwhile has no name any more.
            let Some(named) = named else { continue };
            let Some((key, mutation)) = mutation_of(&named.name, &change.kind) else { continue };
            if !self.span.has(&key) {
                continue;
            }
            let key = Bytes::copy_from_slice(&row_key::row_of(&key));
            if row.as_ref().is_none_or(|row| row.key != key)
                && let Some(done) = row.replace(RowChange::new(key, batch.written_us, self.left_out))
            {
                done.finish(messages);
            }
            if let Some(row) = &mut row {
                row.add(mutation, change.seq, messages);
            }
        }
        if let Some(done) = row {
            done.finish(messages);
        }
        Ok(())
    }
}

fn gone() -> Status {
    Status::out_of_range("the WAL does not hold the writes that were asked for")
}

/// Since when the changes of a table are streamed.
pub(crate) fn check_enabled(table: &Table, name: &str) -> Result<u64, Status> {
    let now = table.now();
    match now.schema.change_retention_us {
        Some(_) => Ok(now.schema.changes_from_us),
        None => Err(Status::failed_precondition(format!("the changes of table {name} are not streamed"))),
    }
}

/// The row's part of a key, and the mutation that a client would send; `None` for what is of more than one
/// row.
pub(crate) fn mutation_of(family: &str, change: &ChangeKind) -> Option<(Vec<u8>, Kind)> {
    let parts = |key: &[u8]| {
        let len = row_key::row_len(key)?;
        Some((key[..len].to_vec(), Bytes::copy_from_slice(&key[len..])))
    };
    let micros = |at: Timestamp| i64::try_from(at.0).unwrap_or(i64::MAX);
    let family_name = family.to_string();
    let of_column = |column_qualifier: Bytes, time_range: Option<TimestampRange>| {
        let family_name = family_name.clone();
        Kind::DeleteFromColumn(mutation::DeleteFromColumn { family_name, column_qualifier, time_range })
    };
    match change {
        ChangeKind::Put { key, timestamp, value } => {
            let (row, column_qualifier) = parts(key)?;
            let (timestamp_micros, value) = (micros(*timestamp), Bytes::copy_from_slice(value));
            let set = mutation::SetCell { family_name, column_qualifier, timestamp_micros, value };
            Some((row, Kind::SetCell(set)))
        }
        ChangeKind::Merge { key, timestamp, operand } => {
            let (row, qualifier) = parts(key)?;
            let value = |kind: value::Kind| Some(Value { kind: Some(kind), ..Default::default() });
            let column_qualifier = value(value::Kind::RawValue(qualifier));
            let timestamp = value(value::Kind::RawTimestampMicros(micros(*timestamp)));
            let input = value(value::Kind::RawValue(Bytes::copy_from_slice(operand)));
            let merge = mutation::MergeToCell { family_name, column_qualifier, timestamp, input };
            Some((row, Kind::MergeToCell(merge)))
        }
        ChangeKind::Delete { key, .. } => {
            let (row, qualifier) = parts(key)?;
            Some((row, of_column(qualifier, None)))
        }
        ChangeKind::DeleteRange { range, from, to } => {
            let (row, qualifier) = parts(&range.start)?;
            let end = range.end.as_deref()?;
            if end == row_key::row_end(&row_key::row_of(&row)) && qualifier.is_empty() {
                return Some((row, Kind::DeleteFromFamily(mutation::DeleteFromFamily { family_name })));
            }
            // One column between two times.
            let is_column = end.strip_suffix(b"\0") == Some(&range.start[..]);
            let end_timestamp_micros = if *to == Timestamp::MAX { 0 } else { micros(*to).saturating_add(1) };
            let times = TimestampRange { start_timestamp_micros: micros(*from), end_timestamp_micros };
            is_column.then(|| (row, of_column(qualifier, Some(times))))
        }
        _ => None,
    }
}

/// The mutations of one row that were written together.
struct RowChange {
    key: Bytes,
    written_us: u64,
    last: SeqNo,
    /// No token is higher.
    left_out: Option<SeqNo>,
    chunks: Vec<MutationChunk>,
    bytes: usize,
    began: bool,
}

impl RowChange {
    fn new(key: Bytes, written_us: u64, left_out: Option<SeqNo>) -> Self {
        Self { key, written_us, last: SeqNo::ZERO, left_out, chunks: Vec::new(), bytes: 0, began: false }
    }

    fn add(&mut self, mutation: Kind, seq: SeqNo, messages: &mut Vec<ReadChangeStreamResponse>) {
        self.last = seq;
        match mutation {
            Kind::SetCell(set) if set.value.len() > MESSAGE_BYTES => {
                let whole = set.value.len();
                for begin in (0..whole).step_by(MESSAGE_BYTES) {
                    let end = (begin + MESSAGE_BYTES).min(whole);
                    let of = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
                    let chunk_info = Some(ChunkInfo {
                        chunked_value_size: of(whole),
                        chunked_value_offset: of(begin),
                        last_chunk: end == whole,
                    });
                    let piece = mutation::SetCell { value: set.value.slice(begin..end), ..set.clone() };
                    self.push(chunk_info, Kind::SetCell(piece), messages);
                }
            }
            mutation => self.push(None, mutation, messages),
        }
    }

    fn push(
        &mut self,
        chunk_info: Option<ChunkInfo>,
        mutation: Kind,
        messages: &mut Vec<ReadChangeStreamResponse>,
    ) {
        let chunk = MutationChunk { chunk_info, mutation: Some(ToldMutation { mutation: Some(mutation) }) };
        let bytes = chunk.encoded_len();
        if self.bytes + bytes > MESSAGE_BYTES && !self.chunks.is_empty() {
            self.send(false, messages);
        }
        self.bytes += bytes;
        self.chunks.push(chunk);
    }

    /// One message of the row: the first says whose it is, the last where to go on from.
    fn send(&mut self, done: bool, messages: &mut Vec<ReadChangeStreamResponse>) {
        let written = Some(timestamp(self.written_us));
        let mut change = DataChange {
            r#type: data_change::Type::Continuation as i32,
            chunks: std::mem::take(&mut self.chunks),
            done,
            ..Default::default()
        };
        self.bytes = 0;
        if !std::mem::replace(&mut self.began, true) {
            change.r#type = data_change::Type::User as i32;
            change.source_cluster_id = crate::names::CLUSTER.to_string();
            change.row_key = self.key.clone();
            change.commit_timestamp = written;
            // Of two with the same time the later has the higher.
            change.tiebreaker = i32::try_from(self.last.0 & 0x7fff_ffff).unwrap_or_default();
        }
        if done {
            change.token = format!("{:016x}", self.left_out.unwrap_or(self.last).0);
            change.estimated_low_watermark = Some(timestamp(self.written_us.saturating_sub(LATE_US)));
        }
        messages.push(response(StreamRecord::DataChange(change)));
    }

    fn finish(mut self, messages: &mut Vec<ReadChangeStreamResponse>) {
        self.send(true, messages);
    }
}
