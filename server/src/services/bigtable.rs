//! Service `google.bigtable.v2.Bigtable`: rows are read and written.

use crate::cells::filter::Filter;
use crate::cells::row_key::{self, Span};
use crate::cells::subset::Subset;
use crate::net::answer::{self, SEND_WAIT, Sender, Single, Streaming};
use crate::net::auth::{Right, Scope};
use crate::net::blocking::blocking;
use crate::net::budget::{self, Budget, Lease};
use crate::net::calls::{self, Call, Guard};
use crate::net::wire::MUTATIONS_MAX;
use crate::net::work::{Caller, Work};
use crate::proto::data::{
    CheckAndMutateRowRequest, CheckAndMutateRowResponse, GenerateInitialChangeStreamPartitionsRequest,
    GenerateInitialChangeStreamPartitionsResponse, MutateRowRequest, MutateRowResponse, MutateRowsRequest,
    MutateRowsResponse, Mutation, PingAndWarmRequest, PingAndWarmResponse, ReadChangeStreamRequest,
    ReadChangeStreamResponse, ReadModifyWriteRowRequest, ReadModifyWriteRowResponse, ReadRowsRequest,
    SampleRowKeysRequest, SampleRowKeysResponse, mutate_rows_response,
};
use crate::rows::changes::{self, ChangeRead};
use crate::rows::chunks;
use crate::rows::mutate;
use crate::rows::read_rows::{Client, Read};
use crate::rows::row_cursor::{Cells, Rows, Step, View};
use crate::services::stubs::bigtable::bigtable_server::Bigtable;
use crate::shared::Shared;
use crate::status::{entry_status, status};
use crate::tables::layout::{Region, Table};
use crate::tables::profiles::Use;
use crate::tables::registry::Tables;
use crate::tables::views::Target;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use prost::Message;
use siltstone::{Batch, Pinned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Bytes that a turn of a scan takes, about.
const TURN_BYTES: usize = chunks::ROOM_BYTES;
/// After how long a scan that found no memory looks again.
const ROOM_AGAIN: Duration = Duration::from_millis(5);
/// How often it is looked whether a stream of changes may still be read, while there are none.
const CHANGES_LOOK: Duration = Duration::from_secs(1);
/// Rows that are read where the call came in.
const ROWS_AT_ONCE: usize = 16;
/// Entries of which one message tells, as it is encoded where all answers are.
const ENTRIES_TOLD: usize = 1_000;
/// What an entry takes beside its mutations.
static NO_MUTATION: Mutation = Mutation { mutation: None, timestamp_origin: 0 };
/// Bytes of a region for each sampled key, at least.
const SAMPLE_BYTES: u64 = 16 << 20;

/// The memory for answers of who makes a call.
fn memory_of<T>(request: &Request<T>) -> Result<Arc<Budget>, Status> {
    calls::peer_of(request).map(|peer| peer.answers)
}

/// What a call names: a table, or where it names none a view of one.
fn named<'a>(table: &'a str, view: &'a str) -> &'a str {
    if table.is_empty() { view } else { table }
}

/// The service.
pub(crate) struct Data(pub(crate) Arc<Shared>);

impl Data {
    /// Whether mutations are written where the call came in: they are few, and there is nothing to wait for.
    fn writes_at_once<'a>(&self, call: &Guard, mutations: impl IntoIterator<Item = &'a Mutation>) -> bool {
        if !self.0.writes_at_once() {
            return false;
        }
        let are_few = mutate::are_few(mutations);
        if !are_few {
            call.count_moved();
        }
        are_few
    }
}

/// Becomes true when nobody waits for the answer any more.
#[derive(Default)]
struct Interest(Arc<AtomicBool>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

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

/// A scan under way, for whom, and where its messages go.
struct Scan {
    call: Guard,
    caller: Caller,
    memory: Arc<Budget>,
    into: Sender<Bytes>,
}

impl Scan {
    /// Sends the scan's messages, turn by turn, until it ends or the client is gone. Of the first turn there may be messages, and
    /// memory for them.
    async fn send_all(self, read: Read, first: (Vec<Bytes>, Option<Arc<Lease>>)) {
        let ended = self.send(read, first).await;
        let Self { call, caller, into, .. } = self;
        // What it read may wait for its client; it takes no more turns.
        drop((call, caller));
        into.end(ended).await;
    }

    async fn send(
        &self,
        mut read: Read,
        (mut next, mut lent): (Vec<Bytes>, Option<Arc<Lease>>),
    ) -> Result<(), Status> {
        loop {
            let lease = match lent.take() {
                Some(lease) => lease,
                // Before it reads: what waits for memory has none.
                None => self.room(&mut read).await?,
            };
            let mut bytes = TURN_BYTES;
            if next.is_empty() {
                (read, next) = self.turn(read).await?;
            }
            // A large row is read as far as there is memory for it.
            while next.is_empty() && !read.is_ended() {
                let wanted = read.wants()?.max(TURN_BYTES);
                let may_fit = bytes + wanted <= self.memory.most();
                let fits = match read.needs_whole_rows() {
                    false => may_fit && lease.grow(wanted),
                    true if !may_fit => return Err(chunks::too_large(self.memory.most())),
                    true => self.wait(|| lease.grow(wanted).then_some(true)).await?,
                };
                match fits {
                    true => {
                        bytes += wanted;
                        read.allow(wanted);
                    }
                    // Those who waited for it would each hold a part of a row.
                    false => read.cut(),
                }
                (read, next) = self.turn(read).await?;
            }
            lease.add((bytes_of(&next) + read.held()).saturating_sub(bytes));
            for message in std::mem::take(&mut next) {
                // A client that takes its time holds no blocks and no snapshot, but within a row.
                if self.into.is_full() {
                    read.rest();
                }
                if !self.into.send(message, lease.clone()).await {
                    return Err(gone());
                }
            }
            drop(lease);
            if read.is_ended() {
                return Ok(());
            }
        }
    }

    async fn turn(&self, read: Read) -> Result<(Read, Vec<Bytes>), Status> {
        let caller = self.caller.clone();
        turn(&self.call, read, move |read| read.turn(&mut Work::unbounded(caller))).await
    }

    /// Waits until there is memory for a turn, as long as its client waits.
    async fn room(&self, read: &mut Read) -> Result<Arc<Lease>, Status> {
        if let Some(lease) = self.memory.lend_new(TURN_BYTES) {
            return Ok(lease);
        }
        read.rest();
        self.wait(|| self.memory.lend(TURN_BYTES)).await
    }

    async fn wait<T>(&self, try_it: impl FnMut() -> Option<T>) -> Result<T, Status> {
        wait_for_memory(&self.call, &self.memory, || self.into.is_gone(), try_it).await
    }
}

fn gone() -> Status {
    Status::cancelled("the client is gone")
}

fn bytes_of(messages: &[Bytes]) -> usize {
    messages.iter().map(Bytes::len).sum()
}

/// Waits until there is memory, for a minute at most, as long as the client waits.
async fn wait_for_memory<T>(
    call: &Guard,
    memory: &Arc<Budget>,
    is_gone: impl Fn() -> bool,
    mut try_it: impl FnMut() -> Option<T>,
) -> Result<T, Status> {
    let (began, _waits) = (tokio::time::Instant::now(), memory.wait());
    loop {
        if let Some(found) = try_it() {
            return Ok(found);
        }
        if began.elapsed() >= SEND_WAIT {
            return Err(budget::no_memory());
        }
        if is_gone() {
            return Err(gone());
        }
        call.check()?;
        tokio::time::sleep(ROOM_AGAIN).await;
    }
}

/// Sends changes as they come, until the stream ends, the client is gone or may not read any more, or the server stops.
async fn send_changes(
    shared: Arc<Shared>,
    call: Guard,
    metadata: MetadataMap,
    memory: Arc<Budget>,
    read: ChangeRead,
    into: Sender<ReadChangeStreamResponse>,
) {
    let ended = send_changes_of(&shared, &call, &metadata, &memory, read, &into).await;
    drop(call);
    into.end(ended).await;
}

async fn send_changes_of(
    shared: &Shared,
    call: &Guard,
    metadata: &MetadataMap,
    memory: &Arc<Budget>,
    mut read: ChangeRead,
    into: &Sender<ReadChangeStreamResponse>,
) -> Result<(), Status> {
    let mut news = shared.news.subscribe();
    while !read.is_ended() && !into.is_gone() {
        may_go_on(shared, metadata, &read)?;
        // What comes from now on is new.
        news.mark_unchanged();
        let found;
        (read, found) = turn(call, read, ChangeRead::turn).await?;
        let bytes: usize = found.messages.iter().map(Message::encoded_len).sum();
        if bytes > 0 {
            let part = bytes.min(TURN_BYTES);
            let lease = wait_for_memory(call, memory, || into.is_gone(), || memory.lend(part)).await?;
            lease.add(bytes - part);
            for message in found.messages {
                // One that reads nothing for long is given up, and goes on from its last token.
                if !into.send(message, lease.clone()).await {
                    return Err(gone());
                }
            }
        }
        if read.is_ended() {
            return Ok(());
        }
        if !found.waits {
            continue;
        }
        let due = tokio::time::Instant::now() + read.rests();
        loop {
            let look = due.min(tokio::time::Instant::now() + CHANGES_LOOK);
            tokio::select! {
                _ = news.changed() => break,
                () = into.gone() => return Ok(()),
                () = tokio::time::sleep_until(look) => {}
            }
            if look == due {
                break;
            }
            may_go_on(shared, metadata, &read)?;
        }
    }
    Ok(())
}

/// Whether a stream of changes may still be read: it may last longer than a token, or its table.
fn may_go_on(shared: &Shared, metadata: &MetadataMap, read: &ChangeRead) -> Result<(), Status> {
    if shared.stopping.load(Ordering::Relaxed) {
        return Err(Status::unavailable("the server is stopping"));
    }
    shared.who(metadata).and_then(|who| who.may(Right::Read, read.table_name()))?;
    read.check()
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
        let memory = memory_of(&request)?;
        let client = Client {
            tells_scanned: crate::services::features::last_scanned_row(request.metadata()),
            whole_rows: crate::services::features::whole_rows(request.metadata()),
        };
        let mut request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.0.instances.check_use(named, &request.app_profile_id, Use::Read)?;
        let tables = &self.0.tables;
        // Dropped with this future, then with the answer's stream: where the client is gone, the work ends soon.
        let interest = Interest::default();
        let caller = Caller::new(call.clone(), interest.0.clone(), memory.clone());
        let mut begun = None;
        if is_short(&request) {
            if Filter::is_light(request.filter.as_ref()) {
                let (tables, caller) = (tables.clone(), caller.clone());
                let work = move || {
                    let mut work = Work::at_once(caller);
                    let mut read = Read::new(tables, &request, client, &mut work)?;
                    let first = read.turn(&mut work)?;
                    Ok((request, read, first))
                };
                let (back, read, first) = call.run(true, work).await?;
                let bytes = bytes_of(&first) + read.held();
                if read.is_ended()
                    && let Some(lease) = answer::counted(&memory, bytes)
                {
                    return Ok(Response::new(answer::of(first, bytes, lease)));
                }
                call.count_moved();
                // Without memory for what it read it lets go of that, and begins again when there is some.
                begun = memory.lend_new(TURN_BYTES).map(|lease| (read, first, Some(lease)));
                request = back;
            } else {
                call.count_moved();
            }
        }
        let (read, first, lent) = match begun {
            Some(begun) => begun,
            None => {
                let lent = memory.lend_new(TURN_BYTES);
                let (reads, tables, caller) = (lent.is_some(), tables.clone(), caller.clone());
                let work = move || {
                    let mut work = Work::unbounded(caller);
                    let mut read = Read::new(tables, &request, client, &mut work)?;
                    let first = if reads { read.turn(&mut work)? } else { Vec::new() };
                    Ok((read, first))
                };
                let (read, first) = call.run(false, work).await?;
                (read, first, lent)
            }
        };
        if read.is_ended() {
            let bytes = bytes_of(&first);
            return Ok(Response::new(answer::of(first, bytes, memory.count(bytes))));
        }
        let (into, messages) = answer::queue();
        tokio::spawn(Scan { call, caller, memory, into }.send_all(read, (first, lent)));
        Ok(Response::new(Box::pin(messages.inspect(move |_| _ = &interest))))
    }

    async fn sample_row_keys(
        &self,
        request: Request<SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        let call = self.0.begin(Call::SampleRowKeys, &request)?;
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.0.instances.check_use(named, &request.app_profile_id, Use::Read)?;
        let target = self.0.tables.target(&request.table_name, &request.authorized_view_name)?;
        let (tables, interest) = (self.0.tables.clone(), Interest::default());
        let caller = Caller::new(call.clone(), interest.0.clone(), memory.clone());
        let work = move || match &target.view {
            None => samples(&tables, &target.table, caller),
            Some(view) => Ok(samples_within(&target.table, view)),
        };
        let samples = call.run(false, work).await?;
        let bytes = samples.iter().map(Message::encoded_len).sum();
        let lease = answer::counted(&memory, bytes).ok_or_else(budget::no_memory)?;
        Ok(Response::new(answer::of(samples, bytes, lease)))
    }

    async fn mutate_row(
        &self,
        request: Request<MutateRowRequest>,
    ) -> Result<Response<MutateRowResponse>, Status> {
        let call = self.0.begin(Call::MutateRow, &request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.0.instances.check_use(named, &request.app_profile_id, Use::Write)?;
        if request.mutations.is_empty() {
            return Err(mutate::no_mutations());
        }
        row_key::check_row(&request.row_key)?;
        let shared = self.0.clone();
        let at_once = self.writes_at_once(&call, &request.mutations);
        let work = move || {
            let Target { table, view } =
                shared.tables.target(&request.table_name, &request.authorized_view_name)?;
            mutate::check_within(view.as_deref(), &request.row_key, &request.mutations)?;
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
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.0.instances.check_use(named, &request.app_profile_id, Use::Write)?;
        let shared = self.0.clone();
        // Of more entries none is looked at before.
        let some = request.entries.iter().take(mutate::FEW_MUTATIONS + 1);
        let mutations = some.flat_map(|entry| entry.mutations.iter().chain([&NO_MUTATION]));
        let at_once = self.writes_at_once(&call, mutations);
        let work = move || {
            let answered = mutate_rows(&shared, &request)?;
            let bytes: usize = answered.iter().map(Message::encoded_len).sum();
            Ok((answered, bytes))
        };
        let (answered, bytes) = call.run(at_once, work).await?;
        // What was written is told, whether there is memory or not.
        Ok(Response::new(answer::of(answered, bytes, memory.count(bytes))))
    }

    async fn check_and_mutate_row(
        &self,
        request: Request<CheckAndMutateRowRequest>,
    ) -> Result<Response<CheckAndMutateRowResponse>, Status> {
        let call = self.0.begin(Call::CheckAndMutateRow, &request)?;
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.0.instances.check_use(named, &request.app_profile_id, Use::Transaction)?;
        let shared = self.0.clone();
        let interest = Interest::default();
        let caller = Caller::new(call.clone(), interest.0.clone(), memory);
        let work = move || mutate::check_and_mutate(&shared.tables, &request, shared.durability, &caller);
        let predicate_matched = call.run(false, work).await?;
        Ok(Response::new(CheckAndMutateRowResponse { predicate_matched }))
    }

    async fn ping_and_warm(
        &self,
        request: Request<PingAndWarmRequest>,
    ) -> Result<Response<PingAndWarmResponse>, Status> {
        let who = self.0.who(request.metadata())?;
        let request = request.get_ref();
        crate::names::instance(&request.name)?;
        // Of profiles those learn who have a right there.
        if who.sees_of(Scope::Instance(&request.name)) {
            self.0.instances.check_use(&request.name, &request.app_profile_id, Use::Read)?;
        }
        Ok(Response::new(PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        request: Request<ReadModifyWriteRowRequest>,
    ) -> Result<Response<Single<ReadModifyWriteRowResponse>>, Status> {
        let call = self.0.begin(Call::ReadModifyWriteRow, &request)?;
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.0.instances.check_use(named, &request.app_profile_id, Use::Transaction)?;
        let shared = self.0.clone();
        let interest = Interest::default();
        let caller = Caller::new(call.clone(), interest.0.clone(), memory.clone());
        let with = (caller, memory.clone());
        let work = move || mutate::read_modify_write(&shared.tables, &request, shared.durability, with);
        let row = call.run(false, work).await?;
        // What was written is told, whether there is memory or not.
        let response = ReadModifyWriteRowResponse { row: Some(row) };
        let bytes = response.encoded_len();
        Ok(Response::new(Single::new(response, bytes, memory.count(bytes))))
    }

    async fn generate_initial_change_stream_partitions(
        &self,
        request: Request<GenerateInitialChangeStreamPartitionsRequest>,
    ) -> Result<Response<Self::GenerateInitialChangeStreamPartitionsStream>, Status> {
        let _call = self.0.begin(Call::ReadChangeStream, &request)?;
        let request = request.get_ref();
        let name = crate::names::table(&request.table_name)?;
        self.0.instances.check_use(name, &request.app_profile_id, Use::Read)?;
        changes::check_enabled(&*self.0.tables.get(name)?, name)?;
        let partition = Some(changes::partition());
        Ok(Response::new(one(GenerateInitialChangeStreamPartitionsResponse { partition })))
    }

    async fn read_change_stream(
        &self,
        request: Request<ReadChangeStreamRequest>,
    ) -> Result<Response<Self::ReadChangeStreamStream>, Status> {
        let call = self.0.begin(Call::ReadChangeStream, &request)?;
        let (metadata, memory) = (request.metadata().clone(), memory_of(&request)?);
        let (tables, request) = (self.0.tables.clone(), request.into_inner());
        self.0.instances.check_use(&request.table_name, &request.app_profile_id, Use::Read)?;
        let read = call.run(false, move || ChangeRead::new(tables, &request)).await?;
        let (into, messages) = answer::queue();
        tokio::spawn(send_changes(self.0.clone(), call, metadata, memory, read, into));
        Ok(Response::new(messages))
    }
}

/// Writes all entries that are right as one batch; each is told what became of it.
fn mutate_rows(shared: &Shared, request: &MutateRowsRequest) -> Result<Vec<MutateRowsResponse>, Status> {
    let mutations: usize = request.entries.iter().map(|entry| entry.mutations.len()).sum();
    if mutations == 0 {
        return Err(mutate::no_mutations());
    }
    let Target { table, view } = shared.tables.target(&request.table_name, &request.authorized_view_name)?;
    if mutations > MUTATIONS_MAX {
        let (entries, most) = (request.entries.len(), MUTATIONS_MAX);
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
        let (row, mutations) = (&entry.row_key, &entry.mutations);
        let added = mutate::check_within(view.as_deref(), row, mutations)
            .and_then(|()| mutate::add(&mut batch, &layout, row, mutations));
        statuses.push(added.err());
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
    let entries = (0i64..).zip(statuses).map(|(index, status)| {
        let status = status.map_or_else(Default::default, |status| entry_status(&status));
        mutate_rows_response::Entry { index, status: Some(status) }
    });
    let entries: Vec<_> = entries.collect();
    let message = |some: &[mutate_rows_response::Entry]| MutateRowsResponse {
        entries: some.to_vec(),
        rate_limit_info: None,
    };
    Ok(entries.chunks(ENTRIES_TOLD).map(message).collect())
}

/// Rows that cut a table into parts of about the same size: where its regions begin, and the end. Of a table that is small the
/// last row is told, too, and how many bytes the values before each have; of others, how many their files have.
fn samples(
    tables: &Tables,
    table: &Arc<Table>,
    caller: Caller,
) -> Result<Vec<SampleRowKeysResponse>, Status> {
    let (cuts, all) = cuts(table);
    let sizes = match all < SAMPLE_BYTES {
        true => sizes(tables, table, &mut Work::at_once(caller))?,
        false => None,
    };
    let mut samples = Vec::new();
    match sizes {
        Some(sizes) => {
            let before = |row: &Bytes| sizes.range(..row.clone()).map(|(_, bytes)| bytes).sum::<u64>();
            let last = sizes.last_key_value().map(|(row, _)| row);
            let keys: BTreeSet<&Bytes> = cuts.keys().filter(|row| !row.is_empty()).chain(last).collect();
            for row in keys {
                samples.push(sample(row.clone(), before(row)));
            }
            samples.push(sample(Bytes::new(), sizes.values().sum()));
        }
        None => {
            let mut before = 0;
            for (row, bytes) in cuts {
                before += bytes;
                if !row.is_empty() {
                    samples.push(sample(row, before));
                }
            }
            samples.push(sample(Bytes::new(), all));
        }
    }
    Ok(samples)
}

/// Where regions and large files begin (no row for the first), with the bytes of the files there, and the bytes of all files.
fn cuts(table: &Table) -> (BTreeMap<Bytes, u64>, u64) {
    let _hold = table.hold();
    let layout = table.now();
    let (mut cuts, mut all) = (BTreeMap::<Bytes, u64>::new(), 0);
    // A cut within a row is one before it.
    let row = |key: &[u8]| {
        row_key::row_len(key)
            .map_or(Bytes::new(), |len| Bytes::copy_from_slice(&row_key::row_of(&key[..len])))
    };
    if layout.families.is_empty() {
        cuts.extend(layout.schema.cuts.iter().map(|cut| (row(cut), 0)));
    }
    for family in &layout.families {
        for Region { start, store, .. } in &family.regions {
            cuts.entry(row(start)).or_default();
            let shape = store.shape();
            for (_, _, of) in shape.tables() {
                all += of.bytes;
                if of.bytes >= SAMPLE_BYTES {
                    *cuts.entry(row(&of.range.start)).or_default() += of.bytes;
                }
            }
        }
    }
    (cuts, all)
}

/// The bytes of the values of a row.
#[derive(Default)]
struct RowSize {
    row: Vec<u8>,
    bytes: u64,
}

impl Cells for RowSize {
    fn begin(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.bytes = 0;
    }

    fn add(&mut self, _: &Arc<str>, _: &[u8], _: i64, value: &Pinned) -> bool {
        self.bytes += value.len() as u64;
        false
    }
}

/// The rows of a table and the bytes of their values; `None` where the work is over before all were read.
fn sizes(
    tables: &Tables,
    table: &Arc<Table>,
    work: &mut Work,
) -> Result<Option<BTreeMap<Bytes, u64>>, Status> {
    let needs = table.now().needs(&Filter::PassAll, None);
    let all = Span { start: Vec::new(), end: None };
    let mut rows = Rows::new(View::now(tables, table, false), &needs, &all);
    let (mut row, mut sizes) = (RowSize::default(), BTreeMap::new());
    loop {
        match rows.next(&mut row, work)? {
            Step::Row => _ = sizes.insert(Bytes::copy_from_slice(&row.row), row.bytes),
            Step::Paused => return Ok(None),
            Step::End => return Ok(Some(sizes)),
        }
    }
}

/// The same of what a view has, however small the table: where its maker cut it, where large files begin of families of which the
/// view has all, and the ends of the view. Where regions or files begin else may be a row that the view has not.
fn samples_within(table: &Arc<Table>, view: &Subset) -> Vec<SampleRowKeysResponse> {
    let _hold = table.hold();
    let layout = table.now();
    // The first key of each file, and behind its last.
    let mut files: Vec<(Vec<u8>, Option<Vec<u8>>, u64)> = Vec::new();
    for family in layout.families.iter().filter(|family| view.has_family(&family.name)) {
        for Region { start, store, .. } in &family.regions {
            let shape = store.shape();
            let tables = shape.tables().filter(|(_, _, of)| of.range.start != **start);
            files.extend(tables.map(|(_, _, of)| (of.range.start.clone(), of.range.end.clone(), of.bytes)));
        }
    }
    let mut samples: Vec<SampleRowKeysResponse> = Vec::new();
    let mut before = 0;
    for span in view.rows() {
        // Bytes from there on, and whether it is told.
        let mut cuts = BTreeMap::<&[u8], (u64, bool)>::new();
        cuts.extend(layout.schema.cuts.iter().filter(|cut| span.has(cut)).map(|cut| (&cut[..], (0, true))));
        let ends = |end: &Vec<u8>| span.end.as_ref().is_none_or(|own| end <= own);
        for (start, end, bytes) in files.iter().filter(|(start, ..)| span.has(start)) {
            // Of one that is in the view in part nothing is known of that part.
            if end.as_ref().map_or(span.end.is_none(), ends) {
                let (all, is_told) = cuts.entry(&start[..]).or_default();
                *all += bytes;
                *is_told |= *bytes >= SAMPLE_BYTES;
            }
        }
        for (key, (bytes, is_told)) in cuts {
            before += bytes;
            let row = row_key::row_len(key).filter(|_| is_told).map(|len| row_key::row_of(&key[..len]));
            if let Some(row) = row
                && samples.last().is_none_or(|last| last.row_key[..] < row[..])
            {
                samples.push(sample(Bytes::copy_from_slice(&row), before));
            }
        }
        let end = span.end.as_ref().map_or(Bytes::new(), |end| {
            Bytes::copy_from_slice(&row_key::row_of(&[&end[..], b"\0\x01"].concat()))
        });
        samples.push(sample(end, before));
    }
    samples
}

fn sample(row_key: Bytes, offset: u64) -> SampleRowKeysResponse {
    SampleRowKeysResponse { row_key, offset_bytes: i64::try_from(offset).unwrap_or(i64::MAX) }
}
