//! The state that all calls share: tables, access, status, and the operations that were answered last.

use crate::config::Config;
use crate::net::access::Access;
use crate::net::answer::Single;
use crate::net::auth::{Tokens, Who};
use crate::net::calls::{self, Call, Guard};
use crate::net::listen::{Places, Tls};
use crate::proto::longrunning::{Operation, operation};
use crate::status::status;
use crate::tables::hot_tablets::HotTablets;
use crate::tables::instance_set::Instances;
use crate::tables::registry::Tables;
use parking_lot::Mutex;
use prost::Message;
use siltstone::{Durability, SeqNo};
use siltstone_compactor::{CompactionManager, Compactors};
use siltstone_storage_object::LazyObjectStores;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, watch};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Request, Response, Status};

/// The name of the header with a call's token.
const AUTHORIZATION: &str = "authorization";
/// Operations that can be asked for again.
const KEPT: usize = 1_000;
/// The most encoded bytes of all of them, and of one: a larger one is stored without its metadata and its
/// response.
const BYTES_KEPT: usize = 1 << 20;
const BYTES_OF_ONE: usize = 64 << 10;

/// The state that all calls share.
pub(crate) struct Shared {
    pub(crate) tables: Arc<Tables>,
    /// Instances that were made, with their application profiles.
    pub(crate) instances: Instances,
    /// Regions that were busy.
    pub(crate) hot: HotTablets,
    /// The compaction servers in use, if there are some.
    pub(crate) compactors: Option<Arc<Compactors>>,
    /// Object stores, if tables lie in one.
    pub(crate) stores: Arc<LazyObjectStores>,
    /// Compaction servers' manager, where it is in this process.
    pub(crate) manager: Option<Managing>,
    pub(crate) durability: Durability,
    pub(crate) finished: FinishedOperations,
    pub(crate) config: Config,
    /// The access control, and the limits of calls.
    pub(crate) access: Arc<Access>,
    pub(crate) tls: Option<Arc<Tls>>,
    /// Which files of secrets others than their owners can read, as lines of text.
    pub(crate) wide_files: Mutex<Vec<String>>,
    /// Connections for calls that are open.
    pub(crate) connections: Arc<Places>,
    /// Up to where changes can be read, for streams that wait for more.
    pub(crate) news: News,
    /// It takes no new calls.
    pub(crate) stopping: AtomicBool,
}

/// Wakes streams of changes when there are more: one task checks, for all.
pub(crate) struct News {
    newest: watch::Sender<SeqNo>,
    /// Somebody began to wait.
    awaited: Notify,
}

impl News {
    pub(crate) fn new() -> Self {
        Self { newest: watch::Sender::new(SeqNo::ZERO), awaited: Notify::new() }
    }

    /// For one more who waits.
    pub(crate) fn subscribe(&self) -> watch::Receiver<SeqNo> {
        let news = self.newest.subscribe();
        self.awaited.notify_one();
        news
    }

    /// Waits until somebody waits for changes.
    pub(crate) async fn awaited(&self) {
        if self.newest.receiver_count() == 0 {
            self.awaited.notified().await;
        }
    }

    /// Says up to where there are changes.
    pub(crate) fn set(&self, newest: SeqNo) {
        self.newest.send_if_modified(|seq| std::mem::replace(seq, newest) != newest);
    }

    /// Wakes all who wait.
    pub(crate) fn tell(&self) {
        self.newest.send_modify(|_| ());
    }
}

/// A manager, which must not be dropped where futures run.
pub(crate) struct Managing(pub(crate) Option<CompactionManager>);

impl Drop for Managing {
    fn drop(&mut self) {
        if let Some(manager) = self.0.take() {
            std::thread::spawn(move || drop(manager));
        }
    }
}

impl Shared {
    /// Whether a write is answered without a wait for the disk, or for flushes and compactions that are
    /// behind.
    pub(crate) fn writes_at_once(&self) -> bool {
        self.durability == Durability::Buffered && !self.tables.db.is_write_stalled()
    }

    /// The settings whose files cannot be used as they are, so that what they had before goes on.
    pub(crate) fn stale_files(&self) -> Vec<&'static str> {
        let tls = self.tls.as_ref().is_some_and(|tls| tls.is_stale());
        let offload = self.compactors.as_ref().map(|compactors| compactors.stale_files());
        let manager = self.manager().map(CompactionManager::stale_files);
        let (offload, manager) = (offload.unwrap_or_default(), manager.unwrap_or_default());
        let has_own = self.config.offload.certificate.is_some();
        // What is not the manager's own is that of `tls` and `offload`.
        let own = self.config.manager.as_ref();
        let own_secret = own.is_some_and(|own| own.secret_file.is_some());
        let own_ca = own.is_some_and(|own| own.client_ca.is_some());
        let all = [
            ("tokens", self.access.tokens.as_ref().is_some_and(Tokens::is_stale)),
            ("tls", tls),
            ("offload.secret-file", offload.secret),
            ("offload.ca", offload.certificates && !has_own),
            ("offload.ca, offload.certificate or offload.key", offload.certificates && has_own),
            ("manager.secret-file", manager.secret && own_secret),
            ("manager.client-ca", manager.certificates && own_ca && !tls),
        ];
        all.into_iter().filter_map(|(setting, is_stale)| is_stale.then_some(setting)).collect()
    }

    /// Compaction servers' manager, where it is in this process.
    pub(crate) fn manager(&self) -> Option<&CompactionManager> {
        self.manager.as_ref().and_then(|manager| manager.0.as_ref())
    }

    /// The caller of a call.
    pub(crate) fn who(&self, metadata: &MetadataMap) -> Result<Who, Status> {
        self.access.who(metadata.get(AUTHORIZATION).map(AsciiMetadataValue::as_bytes))
    }

    /// Begins the work of a call that the door let in. All calls that do work come through here.
    pub(crate) fn begin<T>(&self, call: Call, request: &Request<T>) -> Result<Guard, Status> {
        // Rights are looked at there, and nowhere else.
        let peer = calls::peer_of(request)?;
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Status::unavailable("the server is stopping"));
        }
        // Writes need no lease: those of a former owner fail.
        if matches!(call, Call::ReadRows | Call::SampleRowKeys | Call::Admin) {
            self.tables.db.check_lease().map_err(status)?;
        }
        let wait = calls::wait_of(request.metadata().as_ref());
        Ok(self.access.calls.begin(call, wait, peer))
    }
}

/// Does a call of administration from its beginning to its answer, on a thread where it may wait for the
/// disk.
pub(crate) async fn administer<Q: Send + 'static, R: Send + 'static>(
    shared: &Arc<Shared>,
    request: Request<Q>,
    work: impl FnOnce(&Shared, Q) -> Result<R, Status> + Send + 'static,
) -> Result<Response<R>, Status> {
    let call = shared.begin(Call::Admin, &request)?;
    let (shared, request) = (shared.clone(), request.into_inner());
    call.run(false, move || work(&shared, request).map(Response::new)).await
}

/// Does a call of administration whose answer may be long: it is counted until its client takes it, and
/// refused where there is no room.
pub(crate) async fn administer_long<Q: Send + 'static, R: Message + 'static>(
    shared: &Arc<Shared>,
    request: Request<Q>,
    work: impl FnOnce(&Shared, Q) -> Result<R, Status> + Send + 'static,
) -> Result<Response<Single<R>>, Status> {
    let memory = calls::peer_of(&request)?.answers;
    administer(shared, request, move |shared, request| Single::counted(work(shared, request)?, &memory)).await
}

/// The operations that were answered last.
#[derive(Default)]
pub(crate) struct FinishedOperations(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    next: u64,
    /// Each with the table that it is about.
    operations: VecDeque<(String, Operation)>,
    bytes: usize,
}

fn bytes_of((table, operation): &(String, Operation)) -> usize {
    table.len() + operation.encoded_len()
}

impl Recent {
    fn push(&mut self, table: &str, operation: &Operation) {
        let own = match table.len() + operation.encoded_len() > BYTES_OF_ONE {
            // That it is done, and went well, is what is asked for again.
            true => Operation {
                name: operation.name.clone(),
                metadata: None,
                done: operation.done,
                result: Some(operation::Result::Response(prost_types::Any::default())),
            },
            false => operation.clone(),
        };
        let kept = (table.to_string(), own);
        self.bytes += bytes_of(&kept);
        self.operations.push_back(kept);
        while self.operations.len() > KEPT || self.bytes > BYTES_KEPT {
            let Some(oldest) = self.operations.pop_front() else { return };
            self.bytes -= bytes_of(&oldest);
        }
    }
}

fn any(kind: &str, message: &impl Message) -> prost_types::Any {
    let type_url = format!("type.googleapis.com/google.bigtable.admin.v2.{kind}");
    prost_types::Any { type_url, value: message.encode_to_vec() }
}

impl FinishedOperations {
    /// An operation about a table, on what has that name, with its metadata and its response and the types of
    /// both.
    pub(crate) fn add<M: Message, R: Message>(
        &self,
        table: &str,
        name: &str,
        metadata: Option<(&str, M)>,
        response: (&str, &R),
    ) -> Operation {
        let metadata = metadata.map(|(kind, message)| any(kind, &message));
        let result = Some(operation::Result::Response(any(response.0, response.1)));
        let mut kept = self.0.lock();
        kept.next += 1;
        let operation = Operation {
            name: format!("operations/{name}/operations/{}", kept.next),
            metadata,
            done: true,
            result,
        };
        kept.push(table, &operation);
        operation
    }

    /// An operation of that name, and the table that it is about.
    pub(crate) fn get(&self, name: &str) -> Option<(String, Operation)> {
        self.0.lock().operations.iter().rev().find(|(_, operation)| operation.name == name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::admin;

    /// Adds an operation whose answer has about that many bytes, and returns its name.
    fn add(finished: &FinishedOperations, bytes: usize) -> String {
        let response = admin::Table { name: "n".repeat(bytes), ..Default::default() };
        let metadata = admin::UpdateTableMetadata { name: "t".into(), ..Default::default() };
        let metadata = Some(("UpdateTableMetadata", metadata));
        let answered = finished.add("t", "t", metadata, ("Table", &response));
        assert!(answered.metadata.is_some() && answered.encoded_len() > bytes, "the answer itself is whole");
        answered.name
    }

    #[test]
    fn operations_are_kept_by_number_and_by_bytes() {
        let finished = FinishedOperations::default();
        let names: Vec<_> = (0..=KEPT).map(|_| add(&finished, 10)).collect();
        assert!(finished.get(&names[0]).is_none() && finished.get(&names[1]).is_some());
        let large: Vec<_> = (0..40).map(|_| add(&finished, 60_000)).collect();
        let kept = finished.0.lock();
        assert!(kept.bytes <= BYTES_KEPT && kept.operations.len() < 20, "{} bytes", kept.bytes);
        assert_eq!(kept.bytes, kept.operations.iter().map(bytes_of).sum::<usize>());
        drop(kept);
        assert!(finished.get(&large[0]).is_none() && finished.get(&large[39]).is_some());
    }

    #[test]
    fn of_a_large_operation_only_that_it_is_done_is_kept() {
        let finished = FinishedOperations::default();
        let name = add(&finished, BYTES_OF_ONE);
        let (table, kept) = finished.get(&name).unwrap();
        assert!(kept.done && kept.metadata.is_none() && table == "t");
        assert_eq!(kept.result, Some(operation::Result::Response(prost_types::Any::default())));
        assert!(finished.0.lock().bytes < 1_000);
    }
}
