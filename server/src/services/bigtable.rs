//! Service `google.bigtable.v2.Bigtable`: rows are read and written.

use crate::cells::filter::Filter;
use crate::cells::row_key;
use crate::names;
use crate::net::answer::{self, Single, Streaming};
use crate::net::auth::Scope;
use crate::net::budget::{self, Budget};
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
use crate::rows::combine::RowCalls;
use crate::rows::mutate;
use crate::rows::read_rows::{Client, RowScan};
use crate::rows::samples::{samples, samples_within};
use crate::services::features;
use crate::services::stubs::bigtable::bigtable_server::Bigtable;
use crate::services::turns::{Interest, Scan, TURN_BYTES, bytes_of, send_changes};
use crate::shared::Shared;
use crate::status::{entry_status, status};
use crate::tables::profiles::Use;
use crate::tables::views::Target;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use prost::Message;
use siltstone::Batch;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Rows that are read where the call came in.
const ROWS_AT_ONCE: usize = 16;
/// Entries of which one message tells, as it is encoded where all answers are.
const ENTRIES_TOLD: usize = 1_000;
/// The cost of an entry beside its mutations: that of one more mutation.
static NO_MUTATION: Mutation = Mutation { mutation: None, timestamp_origin: 0 };
/// The caller's share of memory for answers.
fn memory_of<T>(request: &Request<T>) -> Result<Arc<Budget>, Status> {
    calls::peer_of(request).map(|peer| peer.answers)
}

/// The target of a call: a table, or a view of one.
fn named<'a>(table: &'a str, view: &'a str) -> &'a str {
    if table.is_empty() { view } else { table }
}

/// The service.
pub(crate) struct BigtableService {
    shared: Arc<Shared>,
    /// Calls that read a row before they write it.
    row_calls: Arc<RowCalls>,
}

impl BigtableService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let row_calls = Arc::new(RowCalls::new(shared.tables.clone(), shared.durability));
        Self { shared, row_calls }
    }

    /// Whether mutations are written where the call came in: they are few, and there is nothing to wait for.
    fn writes_at_once<'a>(&self, call: &Guard, mutations: impl IntoIterator<Item = &'a Mutation>) -> bool {
        if !self.shared.writes_at_once() {
            return false;
        }
        let are_few = mutate::are_few(mutations);
        if !are_few {
            call.count_moved();
        }
        are_few
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
impl Bigtable for BigtableService {
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
        let call = self.shared.begin(Call::ReadRows, &request)?;
        let memory = memory_of(&request)?;
        let client = Client {
            tells_scanned: features::last_scanned_row(request.metadata()),
            whole_rows: features::whole_rows(request.metadata()),
        };
        let mut request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.shared.instances.check_use(named, &request.app_profile_id, Use::Read)?;
        let tables = &self.shared.tables;
        // Dropped with this future, then with the answer's stream: where the client is gone, the work ends
        // soon.
        let interest = Interest::default();
        let caller = Caller::new(call.clone(), interest.0.clone(), memory.clone());
        let mut begun = None;
        if is_short(&request) {
            if Filter::is_light(request.filter.as_ref()) {
                let (tables, caller) = (tables.clone(), caller.clone());
                let work = move || {
                    let mut work = Work::at_once(caller);
                    let mut read = RowScan::new(tables, &request, client, &mut work)?;
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
                    let mut read = RowScan::new(tables, &request, client, &mut work)?;
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
        let call = self.shared.begin(Call::SampleRowKeys, &request)?;
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.shared.instances.check_use(named, &request.app_profile_id, Use::Read)?;
        let target = self.shared.tables.target(&request.table_name, &request.authorized_view_name)?;
        let (tables, interest) = (self.shared.tables.clone(), Interest::default());
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
        let call = self.shared.begin(Call::MutateRow, &request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.shared.instances.check_use(named, &request.app_profile_id, Use::Write)?;
        if request.mutations.is_empty() {
            return Err(mutate::no_mutations());
        }
        row_key::check_row(&request.row_key)?;
        let shared = self.shared.clone();
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
        let call = self.shared.begin(Call::MutateRows, &request)?;
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.shared.instances.check_use(named, &request.app_profile_id, Use::Write)?;
        let shared = self.shared.clone();
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
        let call = self.shared.begin(Call::CheckAndMutateRow, &request)?;
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.shared.instances.check_use(named, &request.app_profile_id, Use::Transaction)?;
        let row_calls = self.row_calls.clone();
        let interest = Interest::default();
        let caller = Caller::new(call.clone(), interest.0.clone(), memory);
        let work = move || row_calls.check_and_mutate(request, caller);
        let predicate_matched = call.run(false, work).await?;
        Ok(Response::new(CheckAndMutateRowResponse { predicate_matched }))
    }

    async fn ping_and_warm(
        &self,
        request: Request<PingAndWarmRequest>,
    ) -> Result<Response<PingAndWarmResponse>, Status> {
        let who = self.shared.who(request.metadata())?;
        let request = request.get_ref();
        names::instance(&request.name)?;
        // Of profiles those learn who have a right there.
        if who.sees_of(Scope::Instance(&request.name)) {
            self.shared.instances.check_use(&request.name, &request.app_profile_id, Use::Read)?;
        }
        Ok(Response::new(PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        request: Request<ReadModifyWriteRowRequest>,
    ) -> Result<Response<Single<ReadModifyWriteRowResponse>>, Status> {
        let call = self.shared.begin(Call::ReadModifyWriteRow, &request)?;
        let memory = memory_of(&request)?;
        let request = request.into_inner();
        let named = named(&request.table_name, &request.authorized_view_name);
        self.shared.instances.check_use(named, &request.app_profile_id, Use::Transaction)?;
        let (row_calls, budget) = (self.row_calls.clone(), memory.clone());
        let interest = Interest::default();
        let caller = Caller::new(call.clone(), interest.0.clone(), memory.clone());
        let work = move || row_calls.read_modify_write(request, caller, budget);
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
        let _call = self.shared.begin(Call::ReadChangeStream, &request)?;
        let request = request.get_ref();
        let name = names::table(&request.table_name)?;
        self.shared.instances.check_use(name, &request.app_profile_id, Use::Read)?;
        changes::check_enabled(&*self.shared.tables.get(name)?, name)?;
        let partition = Some(changes::partition());
        Ok(Response::new(one(GenerateInitialChangeStreamPartitionsResponse { partition })))
    }

    async fn read_change_stream(
        &self,
        request: Request<ReadChangeStreamRequest>,
    ) -> Result<Response<Self::ReadChangeStreamStream>, Status> {
        let call = self.shared.begin(Call::ReadChangeStream, &request)?;
        let (metadata, memory) = (request.metadata().clone(), memory_of(&request)?);
        let (tables, request) = (self.shared.tables.clone(), request.into_inner());
        self.shared.instances.check_use(&request.table_name, &request.app_profile_id, Use::Read)?;
        let read = call.run(false, move || ChangeRead::new(tables, &request)).await?;
        let (into, messages) = answer::queue();
        tokio::spawn(send_changes(self.shared.clone(), call, metadata, memory, read, into));
        Ok(Response::new(messages))
    }
}

/// Writes all valid entries as one batch; each has its result in the answer.
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
