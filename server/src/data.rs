//! Service `google.bigtable.v2.Bigtable`: rows are read and written.

use crate::auth::Right;
use crate::budget::{self, Budget, Lease};
use crate::calls::Guard;
use crate::changes::{self, ChangeRead};
use crate::mutate;
use crate::proto::bigtable::bigtable_server::Bigtable;
use crate::proto::data::{
    CheckAndMutateRowRequest, CheckAndMutateRowResponse, GenerateInitialChangeStreamPartitionsRequest,
    GenerateInitialChangeStreamPartitionsResponse, MutateRowRequest, MutateRowResponse, MutateRowsRequest,
    MutateRowsResponse, PingAndWarmRequest, PingAndWarmResponse, ReadChangeStreamRequest,
    ReadChangeStreamResponse, ReadModifyWriteRowRequest, ReadModifyWriteRowResponse, ReadRowsRequest,
    SampleRowKeysRequest, SampleRowKeysResponse, mutate_rows_response,
};
use crate::read::Read;
use crate::rows;
use crate::server::{Call, Shared, blocking};
use crate::status::{entry_status, status};
use crate::tables::{Region, Table};
use bytes::Bytes;
use futures_util::future::ready;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use siltstone::Batch;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Messages of one scan that may wait for the client.
const MESSAGES_WAITING: usize = 2;
/// Bytes that a turn of a scan takes, about.
const TURN_BYTES: usize = 1 << 20;
/// After how long a scan that found no memory looks again.
const ROOM_AGAIN: Duration = Duration::from_millis(5);
/// How often it is looked whether a stream of changes may still be read, while there are none.
const CHANGES_LOOK: Duration = Duration::from_secs(1);
/// After how long a client that reads nothing of an answer is given up.
const SEND_WAIT: Duration = Duration::from_secs(60);
/// Rows that are read where the call came in.
const ROWS_AT_ONCE: usize = 16;
/// Bytes of a region for each sampled key, at least.
const SAMPLE_BYTES: u64 = 16 << 20;

type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service.
pub(crate) struct Data(pub(crate) Arc<Shared>);

fn unchecked_view(name: &str) -> Result<(), Status> {
    if name.is_empty() { Ok(()) } else { Err(Status::unimplemented("views")) }
}

/// Becomes true when nobody waits for the answer any more.
#[derive(Default)]
struct Interest(Arc<AtomicBool>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How a stream of messages ends: set before its sender is dropped, and said after all that was sent. A sender that just goes away
/// must not look like the end of what there is.
#[derive(Clone)]
struct End(Arc<Mutex<Option<Status>>>);

impl End {
    /// Where nothing else is said: the client took nothing for long.
    fn new() -> Self {
        let message = "nothing of the answer was taken for a minute: go on behind what came";
        Self(Arc::new(Mutex::new(Some(Status::aborted(message)))))
    }

    fn set(&self, end: Result<(), Status>) {
        *self.0.lock() = end.err();
    }

    /// The messages, and then the end.
    fn behind<T: Send + 'static>(self, messages: impl Stream<Item = T> + Send + 'static) -> Streaming<T> {
        let end = stream::once(async move { self.0.lock().take() });
        Box::pin(messages.map(Ok).chain(end.filter_map(|end| ready(end.map(Err)))))
    }
}

/// A message that waits to be sent, and the memory it takes.
type Waiting = (Bytes, Arc<Lease>);

/// Does a turn of a call's work where it may wait for the disk, and gives back what it was done with.
async fn turn<R: Send + 'static, T: Send + 'static>(
    call: &Guard,
    mut with: R,
    work: impl FnOnce(&mut R) -> Result<T, Status> + Send + 'static,
) -> Result<(R, T), Status> {
    let held = call.clone();
    blocking(move || {
        held.check()?;
        let done = work(&mut with)?;
        Ok((with, done))
    })
    .await
}

/// Sends a scan's messages, turn by turn, until it ends or the client is gone. Of the first turn there may be messages, and
/// memory for them.
async fn send_all(
    call: Guard,
    mut read: Read,
    (mut next, mut lent): (Vec<Bytes>, Option<Arc<Lease>>),
    budget: Arc<Budget>,
    into: mpsc::Sender<Waiting>,
    end: End,
) {
    loop {
        let lease = match lent.take() {
            Some(lease) => lease,
            // Before it reads: what waits for memory has none.
            None => match room(&call, &budget, &mut read, &into).await {
                Ok(lease) => lease,
                Err(e) => return end.set(Err(e)),
            },
        };
        if next.is_empty() {
            match turn(&call, read, Read::messages).await {
                Ok((back, messages)) => (read, next) = (back, messages),
                Err(e) => return end.set(Err(e)),
            }
        }
        let bytes: usize = next.iter().map(Bytes::len).sum();
        lease.add(bytes.saturating_sub(TURN_BYTES));
        for message in std::mem::take(&mut next) {
            let message = match into.try_send((message, lease.clone())) {
                Ok(()) => continue,
                Err(mpsc::error::TrySendError::Closed(_)) => return,
                Err(mpsc::error::TrySendError::Full(message)) => message,
            };
            // A client that takes its time holds no blocks and no snapshot; one that reads nothing for long is given up.
            read.rest();
            let sent = tokio::time::timeout(SEND_WAIT, into.send(message)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
        drop(lease);
        if read.is_ended() {
            return end.set(Ok(()));
        }
        if into.is_closed() {
            return;
        }
    }
}

/// Sends changes as they come, until the stream ends, the client is gone or may not read any more, or the server stops.
async fn send_changes(
    shared: Arc<Shared>,
    call: Guard,
    metadata: MetadataMap,
    mut read: ChangeRead,
    into: mpsc::Sender<ReadChangeStreamResponse>,
    end: End,
) {
    let mut news = shared.news.subscribe();
    loop {
        if let Err(e) = may_go_on(&shared, &metadata, &read) {
            return end.set(Err(e));
        }
        // What comes from now on is new.
        news.mark_unchanged();
        let found = match turn(&call, read, ChangeRead::turn).await {
            Ok((back, found)) => {
                read = back;
                found
            }
            Err(e) => return end.set(Err(e)),
        };
        for message in found.messages {
            // One that reads nothing for long is given up, and goes on from its last token.
            let sent = tokio::time::timeout(SEND_WAIT, into.send(message)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
        if read.is_ended() || into.is_closed() {
            return end.set(Ok(()));
        }
        let due = tokio::time::Instant::now() + read.rests();
        while found.waits {
            let look = due.min(tokio::time::Instant::now() + CHANGES_LOOK);
            tokio::select! {
                _ = news.changed() => break,
                () = into.closed() => return,
                () = tokio::time::sleep_until(look) => {}
            }
            if look == due {
                break;
            }
            if let Err(e) = may_go_on(&shared, &metadata, &read) {
                return end.set(Err(e));
            }
        }
    }
}

/// Whether a stream of changes may still be read: it may last longer than a token, or its table.
fn may_go_on(shared: &Shared, metadata: &MetadataMap, read: &ChangeRead) -> Result<(), Status> {
    if shared.stopping.load(Ordering::Relaxed) {
        return Err(Status::unavailable("the server is stopping"));
    }
    shared.who(metadata).and_then(|who| who.may(Right::Read, read.table_name()))?;
    read.check()
}

/// Waits until there is memory for a turn of a scan, as long as its client waits.
async fn room(
    call: &Guard,
    budget: &Arc<Budget>,
    read: &mut Read,
    into: &mpsc::Sender<Waiting>,
) -> Result<Arc<Lease>, Status> {
    if let Some(lease) = budget.lend_new(TURN_BYTES) {
        return Ok(lease);
    }
    let (began, _waits) = (tokio::time::Instant::now(), budget.wait());
    loop {
        if let Some(lease) = budget.lend(TURN_BYTES) {
            return Ok(lease);
        }
        if began.elapsed() >= SEND_WAIT {
            return Err(budget::no_memory());
        }
        if into.is_closed() {
            return Err(Status::cancelled("the client is gone"));
        }
        call.check()?;
        read.rest();
        tokio::time::sleep(ROOM_AGAIN).await;
    }
}

/// Whether a scan is of a few rows that are named.
fn is_short(request: &ReadRowsRequest) -> bool {
    let rows = request.rows.as_ref();
    rows.is_some_and(|rows| rows.row_ranges.is_empty() && (1..=ROWS_AT_ONCE).contains(&rows.row_keys.len()))
}

fn one<T: Send + 'static>(message: T) -> Streaming<T> {
    Box::pin(stream::iter([Ok(message)]))
}

#[tonic::async_trait]
impl Bigtable for Data {
    type ReadRowsStream = Streaming<Bytes>;
    type SampleRowKeysStream = Streaming<SampleRowKeysResponse>;
    type MutateRowsStream = Streaming<MutateRowsResponse>;
    type GenerateInitialChangeStreamPartitionsStream =
        Streaming<GenerateInitialChangeStreamPartitionsResponse>;
    type ReadChangeStreamStream = Streaming<ReadChangeStreamResponse>;

    async fn read_rows(
        &self,
        request: Request<ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        let call = self.0.begin(Call::ReadRows, &request)?;
        let peer = budget::peer_of(&request)?;
        let tells_scanned = crate::features::last_scanned_row(request.metadata());
        let request = request.into_inner();
        let tables = self.0.tables.clone();
        // Dropped with this future, then with the answer's stream: where the client is gone, the work ends soon.
        let interest = Interest::default();
        let canceled = interest.0.clone();
        let is_short = is_short(&request);
        let lent = if is_short { None } else { peer.answers.lend_new(TURN_BYTES) };
        let reads = is_short || lent.is_some();
        let (read, first) = call
            .run(is_short, move || {
                let mut read = Read::new(tables, &request, tells_scanned, canceled)?;
                let first = if reads { read.messages()? } else { Vec::new() };
                Ok((read, first))
            })
            .await?;
        if read.is_ended() {
            if let Some(lease) = &lent {
                lease.add(first.iter().map(Bytes::len).sum::<usize>().saturating_sub(TURN_BYTES));
            }
            let messages = stream::iter(first.into_iter().map(Ok));
            return Ok(Response::new(Box::pin(messages.inspect(move |_| _ = &lent))));
        }
        let (into, messages) = mpsc::channel(MESSAGES_WAITING);
        let end = End::new();
        tokio::spawn(send_all(call, read, (first, lent), peer.answers, into, end.clone()));
        let messages = ReceiverStream::new(messages).map(move |(message, _lease)| {
            let _interest = &interest;
            message
        });
        Ok(Response::new(end.behind(messages)))
    }

    async fn sample_row_keys(
        &self,
        request: Request<SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        let call = self.0.begin(Call::SampleRowKeys, &request)?;
        let request = request.into_inner();
        unchecked_view(&request.authorized_view_name)?;
        unchecked_view(&request.materialized_view_name)?;
        let table = self.0.tables.get(crate::names::table(&request.table_name)?)?;
        let samples = call.run(false, move || samples(&table)).await?;
        Ok(Response::new(Box::pin(stream::iter(samples.into_iter().map(Ok)))))
    }

    async fn mutate_row(
        &self,
        request: Request<MutateRowRequest>,
    ) -> Result<Response<MutateRowResponse>, Status> {
        let call = self.0.begin(Call::MutateRow, &request)?;
        let request = request.into_inner();
        unchecked_view(&request.authorized_view_name)?;
        let shared = self.0.clone();
        let at_once = shared.writes_at_once();
        let work = move || {
            let table = shared.tables.get(crate::names::table(&request.table_name)?)?;
            let _hold = table.hold();
            let mut batch = Batch::new();
            mutate::add(&mut batch, &table.now(), &request.row_key, &request.mutations)?;
            shared.tables.db.write_with(&batch, shared.durability).map_err(status)?;
            Ok(Response::new(MutateRowResponse {}))
        };
        call.run(at_once, work).await
    }

    async fn mutate_rows(
        &self,
        request: Request<MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let call = self.0.begin(Call::MutateRows, &request)?;
        let request = request.into_inner();
        unchecked_view(&request.authorized_view_name)?;
        let shared = self.0.clone();
        let at_once = shared.writes_at_once();
        Ok(Response::new(one(call.run(at_once, move || mutate_rows(&shared, &request)).await?)))
    }

    async fn check_and_mutate_row(
        &self,
        request: Request<CheckAndMutateRowRequest>,
    ) -> Result<Response<CheckAndMutateRowResponse>, Status> {
        let call = self.0.begin(Call::CheckAndMutateRow, &request)?;
        let request = request.into_inner();
        unchecked_view(&request.authorized_view_name)?;
        let shared = self.0.clone();
        let work = move || mutate::check_and_mutate(&shared.tables, &request, shared.durability);
        let predicate_matched = call.run(false, work).await?;
        Ok(Response::new(CheckAndMutateRowResponse { predicate_matched }))
    }

    async fn ping_and_warm(
        &self,
        request: Request<PingAndWarmRequest>,
    ) -> Result<Response<PingAndWarmResponse>, Status> {
        self.0.who(request.metadata())?;
        crate::names::instance(&request.get_ref().name)?;
        Ok(Response::new(PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        request: Request<ReadModifyWriteRowRequest>,
    ) -> Result<Response<ReadModifyWriteRowResponse>, Status> {
        let call = self.0.begin(Call::ReadModifyWriteRow, &request)?;
        let request = request.into_inner();
        unchecked_view(&request.authorized_view_name)?;
        let shared = self.0.clone();
        let work = move || mutate::read_modify_write(&shared.tables, &request, shared.durability);
        let row = call.run(false, work).await?;
        Ok(Response::new(ReadModifyWriteRowResponse { row: Some(row) }))
    }

    async fn generate_initial_change_stream_partitions(
        &self,
        request: Request<GenerateInitialChangeStreamPartitionsRequest>,
    ) -> Result<Response<Self::GenerateInitialChangeStreamPartitionsStream>, Status> {
        let _call = self.0.begin(Call::ReadChangeStream, &request)?;
        let name = crate::names::table(&request.get_ref().table_name)?;
        changes::check_enabled(&*self.0.tables.get(name)?, name)?;
        let partition = Some(changes::partition());
        Ok(Response::new(one(GenerateInitialChangeStreamPartitionsResponse { partition })))
    }

    async fn read_change_stream(
        &self,
        request: Request<ReadChangeStreamRequest>,
    ) -> Result<Response<Self::ReadChangeStreamStream>, Status> {
        let call = self.0.begin(Call::ReadChangeStream, &request)?;
        let metadata = request.metadata().clone();
        let (tables, request) = (self.0.tables.clone(), request.into_inner());
        let read = call.run(false, move || ChangeRead::new(tables, &request)).await?;
        let (into, messages) = mpsc::channel(MESSAGES_WAITING);
        let end = End::new();
        tokio::spawn(send_changes(self.0.clone(), call, metadata, read, into, end.clone()));
        Ok(Response::new(end.behind(ReceiverStream::new(messages))))
    }
}

/// Writes all entries that are right as one batch; each is told what became of it.
fn mutate_rows(shared: &Shared, request: &MutateRowsRequest) -> Result<MutateRowsResponse, Status> {
    let table = shared.tables.get(crate::names::table(&request.table_name)?)?;
    let mutations: usize = request.entries.iter().map(|entry| entry.mutations.len()).sum();
    if request.entries.is_empty() || mutations > mutate::MUTATIONS_MAX {
        let (entries, most) = (request.entries.len(), mutate::MUTATIONS_MAX);
        let message =
            format!("{entries} entries with {mutations} mutations; a call takes 1 to {most} mutations");
        return Err(Status::invalid_argument(message));
    }
    let _hold = table.hold();
    let layout = table.now();
    let mut batch = Batch::new();
    let mut statuses: Vec<Option<Status>> = Vec::with_capacity(request.entries.len());
    let mut ends = Vec::with_capacity(request.entries.len());
    for entry in &request.entries {
        statuses.push(mutate::add(&mut batch, &layout, &entry.row_key, &entry.mutations).err());
        ends.push(batch.len());
    }
    if !batch.is_empty()
        && let Err(e) = shared.tables.db.write_with(&batch, shared.durability)
    {
        let failed = status(e);
        statuses
            .iter_mut()
            .filter(|status| status.is_none())
            .for_each(|status| *status = Some(failed.clone()));
    }
    let entries = (0i64..)
        .zip(statuses)
        .map(|(index, status)| {
            let status = status.map_or_else(Default::default, |status| entry_status(&status));
            mutate_rows_response::Entry { index, status: Some(status) }
        })
        .collect();
    Ok(MutateRowsResponse { entries, rate_limit_info: None })
}

/// Rows that cut a table into parts of about the same size: where its regions begin, and the end.
fn samples(table: &Arc<Table>) -> Result<Vec<SampleRowKeysResponse>, Status> {
    let _hold = table.hold();
    let layout = table.now();
    let mut cuts = std::collections::BTreeMap::<Vec<u8>, u64>::new();
    let mut all = 0;
    for family in &layout.families {
        for Region { start, store, .. } in &family.regions {
            if !start.is_empty() {
                cuts.entry(start.to_vec()).or_default();
            }
            let shape = store.shape();
            for (_, _, of) in shape.tables() {
                all += of.bytes;
                if of.bytes >= SAMPLE_BYTES {
                    *cuts.entry(of.range.start.clone()).or_default() += of.bytes;
                }
            }
        }
    }
    let mut samples = Vec::new();
    let mut before = 0;
    for (key, bytes) in cuts {
        before += bytes;
        // A cut within a row is one before it.
        let row = rows::row_len(&key)
            .map_or(Bytes::new(), |len| Bytes::copy_from_slice(&rows::row_of(&key[..len])));
        if !row.is_empty() && samples.last().is_none_or(|last: &SampleRowKeysResponse| last.row_key < row) {
            let offset_bytes = i64::try_from(before).unwrap_or(i64::MAX);
            samples.push(SampleRowKeysResponse { row_key: row, offset_bytes });
        }
    }
    samples.push(SampleRowKeysResponse {
        row_key: Bytes::new(),
        offset_bytes: i64::try_from(all).unwrap_or(i64::MAX),
    });
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sender_that_goes_away_is_an_error_behind_what_it_sent() {
        let told = async |ends: Option<Result<(), Status>>| {
            let (into, messages) = mpsc::channel(MESSAGES_WAITING);
            let end = End::new();
            let stream = end.clone().behind(ReceiverStream::new(messages));
            into.send(1).await.unwrap();
            if let Some(ends) = ends {
                end.set(ends);
            }
            drop(into);
            stream.map(|message| message.map_err(|e| e.code())).collect::<Vec<_>>().await
        };
        assert_eq!(told(Some(Ok(()))).await, [Ok(1)]);
        assert_eq!(told(None).await, [Ok(1), Err(tonic::Code::Aborted)]);
        let lost = Status::data_loss("damaged");
        assert_eq!(told(Some(Err(lost))).await, [Ok(1), Err(tonic::Code::DataLoss)]);
    }
}
