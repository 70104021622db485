//! A running server: the database, the listeners, the calls under way, and how it stops.

use crate::admin::TableAdmin;
use crate::answer::Single;
use crate::auth::{Tokens, Who};
use crate::budget::{self, Budgets};
use crate::calls::{CallMetrics, Guard};
use crate::collect::Walk;
use crate::config::Config;
use crate::data::Data;
use crate::door::Door;
use crate::hot_tablets::HotTablets;
use crate::instance_set::Instances;
use crate::instances::InstanceAdmin;
use crate::listen::{Connections, Places, Protocol, Tls};
use crate::operations::{Finished, OperationsService};
use crate::operator::OperatorService;
use crate::proto::bigtable::bigtable_server::BigtableServer;
use crate::proto::instance_admin::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use crate::proto::operations::operations_server::OperationsServer;
use crate::proto::operator::operator_server::OperatorServer;
use crate::proto::table_admin::bigtable_table_admin_server::BigtableTableAdminServer;
use crate::regions::{Look, Looked};
use crate::status::status;
use crate::tables::{Table, Tables};
use crate::{methods, regions, rows, schema, serve};
use parking_lot::Mutex;
use siltstone::{Durability, SeqNo};
use siltstone_compactor::{CompactionManager, Compactors};
use siltstone_storage_object::LazyObjectStores;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

pub(crate) use crate::calls::Call;

/// Where a call's token stands.
const AUTHORIZATION: &str = "authorization";
/// How often regions, and files that may change, are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Every so many looks are at all regions.
const LOOKS_AT_ALL: u64 = 10;
/// When first, and how often, cells are looked for that are gone by rules of which the engine is not told, and how often the time of a chunk of that
/// is rested.
const COLLECT_FIRST: Duration = Duration::from_secs(300);
const COLLECT_EVERY: Duration = Duration::from_secs(3_600);
const COLLECT_RESTS: u32 = 9;
/// After how many failures a walk ends before its end.
const COLLECT_FAILURES: u32 = 10;
/// How often backups are made and deleted that are due.
const TEND_BACKUPS_EVERY: Duration = Duration::from_secs(60);
/// How long calls under way may take when the server stops.
const STOP_WAIT: Duration = Duration::from_secs(20);
/// How often it is looked whether there are changes, where somebody waits for some.
const CHANGES_AGAIN: Duration = Duration::from_millis(20);
/// File descriptors that the server needs beside those of tables and connections: logs, listeners, directories.
const DESCRIPTORS: u64 = 64;
/// Connections that a port must be able to have.
const CONNECTIONS_MIN: usize = 16;

/// What all calls share.
pub(crate) struct Shared {
    pub(crate) tables: Arc<Tables>,
    /// Those that were made, with their application profiles.
    pub(crate) instances: Instances,
    /// Regions that were busy.
    pub(crate) hot: HotTablets,
    /// Compaction servers that merges go to, if there are some.
    pub(crate) compactors: Option<Arc<Compactors>>,
    /// Object stores, if tables lie in one.
    stores: Arc<LazyObjectStores>,
    /// Compaction servers' manager, where it is in this process.
    manager: Option<Managing>,
    pub(crate) durability: Durability,
    pub(crate) calls: CallMetrics,
    pub(crate) finished: Finished,
    pub(crate) config: Config,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) tls: Option<Arc<Tls>>,
    /// Which files of secrets others than their owners can read, as lines of text.
    pub(crate) wide_files: Mutex<Vec<String>>,
    /// Memory for calls.
    pub(crate) budgets: Budgets,
    /// Connections for calls that are open.
    pub(crate) connections: Arc<Places>,
    /// Up to where changes can be read, for streams that wait for more.
    pub(crate) news: News,
    /// It takes no new calls.
    pub(crate) stopping: AtomicBool,
}

/// Tells streams of changes that there are more: one looks, for all.
pub(crate) struct News {
    newest: watch::Sender<SeqNo>,
    /// Somebody began to wait.
    awaited: Notify,
}

impl News {
    fn new() -> Self {
        Self { newest: watch::Sender::new(SeqNo::ZERO), awaited: Notify::new() }
    }

    /// For one more who waits.
    pub(crate) fn subscribe(&self) -> watch::Receiver<SeqNo> {
        let news = self.newest.subscribe();
        self.awaited.notify_one();
        news
    }

    /// Wakes all who wait.
    fn tell(&self) {
        self.newest.send_modify(|_| ());
    }
}

/// Looks for changes as long as somebody waits for some.
async fn look_for_changes(shared: Arc<Shared>) {
    loop {
        if shared.news.newest.receiver_count() == 0 {
            shared.news.awaited.notified().await;
        }
        let newest = shared.tables.db.snapshot().seq();
        shared.news.newest.send_if_modified(|seq| std::mem::replace(seq, newest) != newest);
        tokio::time::sleep(CHANGES_AGAIN).await;
    }
}

impl Shared {
    /// Whether a write is answered without a wait for the disk, or for memory and merges that are behind.
    pub(crate) fn writes_at_once(&self) -> bool {
        self.durability == Durability::Buffered && !self.tables.db.holds_writers_up()
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
            ("tokens", self.tokens.as_ref().is_some_and(Tokens::is_stale)),
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
    fn manager(&self) -> Option<&CompactionManager> {
        self.manager.as_ref().and_then(|manager| manager.0.as_ref())
    }

    /// Who makes a call.
    pub(crate) fn who(&self, metadata: &MetadataMap) -> Result<Who, Status> {
        self.who_of(metadata.get(AUTHORIZATION).map(AsciiMetadataValue::as_bytes))
    }

    /// The same by the header.
    pub(crate) fn who_of(&self, header: Option<&[u8]>) -> Result<Who, Status> {
        self.tokens.as_ref().map_or(Ok(Who::ANYONE), |tokens| tokens.who(header))
    }

    /// Begins the work of a call that the door let in. All calls that do work come through here.
    pub(crate) fn begin<T>(&self, call: Call, request: &Request<T>) -> Result<Guard, Status> {
        // Rights are looked at there, and nowhere else.
        let peer = budget::peer_of(request)?;
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Status::unavailable("the server is stopping"));
        }
        let wait = crate::calls::wait_of(request.metadata().as_ref());
        Ok(self.calls.begin(call, wait, peer))
    }
}

/// Does a call of administration from its beginning to its answer, on a thread where it may wait for the disk.
pub(crate) async fn administer<Q: Send + 'static, R: Send + 'static>(
    shared: &Arc<Shared>,
    request: Request<Q>,
    work: impl FnOnce(&Shared, Q) -> Result<R, Status> + Send + 'static,
) -> Result<Response<R>, Status> {
    let call = shared.begin(Call::Admin, &request)?;
    let (shared, request) = (shared.clone(), request.into_inner());
    call.run(false, move || work(&shared, request).map(Response::new)).await
}

/// The same of a call whose answer may be long: it is counted until its client takes it, and refused where there is no room.
pub(crate) async fn administer_long<Q: Send + 'static, R: prost::Message + 'static>(
    shared: &Arc<Shared>,
    request: Request<Q>,
    work: impl FnOnce(&Shared, Q) -> Result<R, Status> + Send + 'static,
) -> Result<Response<Single<R>>, Status> {
    let memory = budget::peer_of(&request)?.answers;
    administer(shared, request, move |shared, request| Single::counted(work(shared, request)?, &memory)).await
}

/// Runs work of the engine, which may wait for the disk, on a thread where it may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a call failed");
            Err(Status::internal("the call failed; the server's log says why"))
        }
    }
}

/// Reads certificates, tokens and secrets again if their files have changed.
fn look_at_files(shared: &Shared) {
    // These tell the log themselves.
    if let Some(compactors) = &shared.compactors {
        compactors.look_at_files();
    }
    if let Some(manager) = shared.manager() {
        manager.look_at_files();
    }
    let tls = shared.tls.as_ref().map(|tls| ("certificates", tls.look()));
    let tokens = shared.tokens.as_ref().map(|tokens| ("tokens", tokens.look()));
    for (what, looked) in tls.into_iter().chain(tokens) {
        match looked {
            Ok(true) => tracing::info!(what, "read again, as the file changed"),
            Ok(false) => {}
            Err(error) => tracing::error!(what, error, "the file changed and cannot be used; the old go on"),
        }
    }
}

/// Looks which files of secrets others than their owners can read, and says so when that has changed.
fn look_at_modes(shared: &Shared) {
    let of = |(setting, file): (&str, &Path)| {
        let mode = crate::watched::wide_mode(file)?;
        Some(format!(
            "{setting}: the file has mode {mode:o}, which lets others in than its owner: 600 is enough"
        ))
    };
    let found: Vec<String> = shared.config.secrets().filter_map(of).collect();
    let mut wide = shared.wide_files.lock();
    if *wide != found {
        found.iter().for_each(|what| tracing::warn!("{what}"));
        *wide = found;
    }
}

/// Looks at files that may change, and notes the moment, whatever else goes on.
async fn look_at_files_and_clock(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        shared.tables.note_moment();
        let shared = shared.clone();
        let look = move || {
            look_at_files(&shared);
            look_at_modes(&shared);
            Ok(())
        };
        if let Err(e) = blocking(look).await {
            tracing::error!(error = e.message(), "files were not looked at");
        }
    }
}

/// Looks at the regions every second, and at deleted tables whose time is over.
async fn look_now_and_then(shared: Arc<Shared>) {
    let mut last = Instant::now();
    let mut whole = true;
    for look in 0u64.. {
        tokio::time::sleep(LOOK_EVERY).await;
        let seconds = last.elapsed().as_secs_f64();
        last = Instant::now();
        let shared = shared.clone();
        let look_at = Look { seconds, whole: whole || look % LOOKS_AT_ALL == 0 };
        let work = move || {
            if let Err(e) = shared.tables.drop_deleted(crate::now_us()) {
                tracing::warn!(error = e.message(), "deleted tables whose time is over were not dropped");
            }
            let looked = shared.tables.look(shared.config.limits(), look_at);
            if look_at.whole {
                shared.hot.look(&shared.tables, crate::now_us());
            }
            looked
        };
        whole = false;
        match blocking(work).await {
            Ok(Looked { splits: 0, joins: 0, .. }) => {}
            Ok(looked) => {
                tracing::info!(splits = looked.splits, joins = looked.joins, "regions changed");
                // After a change there may be more to do.
                whole = true;
            }
            Err(e) => tracing::warn!(error = e.message(), "regions were not looked at"),
        }
    }
}

/// Makes and deletes the backups that are due. Apart from other looks, as a backup may take hours.
async fn tend_backups_now_and_then(shared: Arc<Shared>) {
    // Soon: something may have become due while no server ran.
    let mut wait = LOOK_EVERY;
    loop {
        tokio::time::sleep(wait).await;
        wait = TEND_BACKUPS_EVERY;
        let tables = shared.tables.clone();
        if let Err(e) = blocking(move || tables.tend_backups(crate::now_us())).await {
            tracing::warn!(error = e.message(), "backups that are due were not made or deleted");
        }
    }
}

/// Deletes what is gone by rules of which the engine is not told, every hour; a tenth of a core at most.
async fn collect_now_and_then(shared: Arc<Shared>) {
    let mut wait = COLLECT_FIRST;
    loop {
        tokio::time::sleep(wait).await;
        wait = COLLECT_EVERY;
        for (name, table) in shared.tables.all().iter() {
            let (mut walk, mut failures) = (Walk::default(), 0);
            while failures < COLLECT_FAILURES {
                let (tables, table, began) = (shared.tables.clone(), table.clone(), Instant::now());
                let mut taken = std::mem::take(&mut walk);
                let chunk = move || Ok((tables.collect(&table, &mut taken, crate::now_us()), taken));
                let Ok((goes_on, walked)) = blocking(chunk).await else { break };
                walk = walked;
                match goes_on {
                    Ok(true) => tokio::time::sleep(began.elapsed() * COLLECT_RESTS).await,
                    Ok(false) => break,
                    Err(e) => {
                        tracing::warn!(
                            table = name,
                            error = e.message(),
                            "cells that are gone were not deleted"
                        );
                        failures += 1;
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                }
            }
            if walk.deleted > 0 {
                tracing::info!(table = name, columns = walk.deleted, "cells that are gone were deleted");
            }
        }
    }
}

/// A running server.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone_server::{Config, Server};
/// let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
/// let config = Config { dir: dir.path().join("data"), listen: any_port, http: any_port, ..Config::default() };
/// tokio::runtime::Runtime::new().unwrap().block_on(async {
///     let server = Server::start(config).await.unwrap();
///     println!("BIGTABLE_EMULATOR_HOST={}", server.listens_at());
///     server.stop().await.unwrap();
/// });
/// ```
pub struct Server {
    shared: Arc<Shared>,
    grpc: SocketAddr,
    http: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    lookers: [JoinHandle<()>; 5],
}

/// A manager, which must not be dropped where futures run.
struct Managing(Option<CompactionManager>);

impl Drop for Managing {
    fn drop(&mut self) {
        if let Some(manager) = self.0.take() {
            std::thread::spawn(move || drop(manager));
        }
    }
}

/// Starts the manager, if this process has one, and knows the compaction servers, if there are any.
async fn start_offload(config: &Config) -> Result<(Option<Managing>, Option<Arc<Compactors>>), String> {
    let config = config.clone();
    // Both begin threads of their own, which cannot be done among these.
    let started = tokio::task::spawn_blocking(move || {
        let manager = config.manager.as_ref().map(|settings| settings.start(&config)).transpose()?;
        let compactors = config.offload.connect(manager.as_ref(), config.insecure)?.map(Arc::new);
        Ok::<_, String>((manager.map(|manager| Managing(Some(manager))), compactors))
    });
    started.await.map_err(|e| e.to_string())?
}

/// How many files the process may have open, once it may have as many as it can.
fn descriptors() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // What cannot be raised stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current
}

/// How many connections each port may have: as many as are set, and no more than leave the database the descriptors that it needs.
/// It opens three quarters of all for tables.
fn connections_max(config: &Config, descriptors: Option<u64>) -> Result<usize, String> {
    let left = |all: u64| usize::try_from((all / 4).saturating_sub(DESCRIPTORS) / 2).unwrap_or(usize::MAX);
    let most = descriptors.map_or(usize::MAX, left);
    if most < CONNECTIONS_MIN.min(config.connections_max) {
        let all = descriptors.unwrap_or_default();
        let least = 4 * (DESCRIPTORS + 2 * CONNECTIONS_MIN as u64);
        return Err(format!(
            "the process may have {all} files open (see `ulimit -n`), which are too few for tables and connections: {least} are needed"
        ));
    }
    if most < config.connections_max {
        tracing::warn!(
            most,
            set = config.connections_max,
            "fewer connections than connections-max, for want of file descriptors"
        );
    }
    Ok(most.min(config.connections_max))
}

impl Server {
    /// Opens the database and listens.
    ///
    /// # Errors
    /// A text that names what failed: the settings, the directory, an address.
    pub async fn start(config: Config) -> Result<Self, String> {
        config.check()?;
        let (dir, options, base) = (config.dir.clone(), config.options(), config.store_settings());
        let places = config.places();
        let (manager, compactors) = start_offload(&config).await?;
        let offload = compactors.clone();
        let stores = Arc::new(LazyObjectStores::new(config.object_stores()));
        let found = {
            let stores = stores.clone();
            move |location: &str| stores.open(location)
        };
        let opened = tokio::task::spawn_blocking(move || {
            let builder = schema::builder(options).object_stores(found);
            let builder = match offload {
                Some(offload) => builder.offload(offload),
                None => builder,
            };
            let db = builder.open(&dir).map_err(|e| e.to_string())?;
            let tables = Tables::open(db, base, places).map(Arc::new);
            let opened = tables.and_then(|tables| Ok((Instances::open(tables.clone())?, tables)));
            opened.map_err(|e| format!("{}: {}", dir.display(), e.message()))
        });
        let (instances, tables) = opened.await.map_err(|e| e.to_string())??;
        tables.kept.keep_for(config.undelete_hours);
        let tls = config.tls.as_ref().map(Tls::read).transpose()?.map(Arc::new);
        let connections_max = connections_max(&config, descriptors())?;
        let shared = Arc::new(Shared {
            tables,
            instances,
            hot: HotTablets::new(&config),
            compactors,
            stores,
            manager,
            tokens: config.tokens.as_deref().map(Tokens::read).transpose()?,
            tls: tls.clone(),
            wide_files: Mutex::default(),
            budgets: Budgets::new(config.call_memory.0),
            connections: Places::new(connections_max),
            news: News::new(),
            durability: config.durability.into(),
            calls: CallMetrics::new(&config)?,
            finished: Finished::default(),
            config,
            stopping: AtomicBool::new(false),
        });
        look_at_modes(&shared);
        // Counted apart: idle sockets of one port keep nobody from the other.
        let (places, for_page) = (shared.connections.clone(), Places::new(connections_max));
        let for_grpc = Connections::listen(shared.config.listen, Protocol::Grpc, tls.clone(), places).await?;
        let for_http = Connections::listen(shared.config.http, Protocol::Http, tls, for_page).await?;
        let (grpc, http) = (for_grpc.at(), for_http.at());
        let (stop, stopped) = watch::channel(false);
        let lookers = [
            tokio::spawn(look_now_and_then(shared.clone())),
            tokio::spawn(look_at_files_and_clock(shared.clone())),
            tokio::spawn(collect_now_and_then(shared.clone())),
            tokio::spawn(look_for_changes(shared.clone())),
            tokio::spawn(tend_backups_now_and_then(shared.clone())),
        ];
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let bigtable = BigtableServer::new(Data(shared.clone()));
        let routes = Routes::new(health_service)
            .add_service(bigtable.max_decoding_message_size(methods::WRITE_MAX))
            .add_service(BigtableTableAdminServer::new(TableAdmin(shared.clone())))
            .add_service(BigtableInstanceAdminServer::new(InstanceAdmin(shared.clone())))
            .add_service(OperationsServer::new(OperationsService(shared.clone())))
            .add_service(OperatorServer::new(OperatorService(shared.clone())));
        let door = Door::new(shared.clone(), routes);
        let (router, waits) = (crate::http::router(shared.clone()), door.waits);
        let tasks = vec![
            tokio::spawn(serve::calls(for_grpc, door, stopped.clone())),
            tokio::spawn(serve::page(for_http, router, waits, stopped)),
        ];
        Ok(Self { shared, grpc, http, stop, tasks, lookers })
    }

    /// The address of the gRPC API.
    pub fn listens_at(&self) -> SocketAddr {
        self.grpc
    }

    /// The address of the web page.
    pub fn page_at(&self) -> SocketAddr {
        self.http
    }

    /// The rows at which the regions of a table begin; the first begins with the empty one.
    ///
    /// # Errors
    /// No such table.
    pub fn regions(&self, table: &str) -> Result<Vec<Vec<u8>>, String> {
        let table = self.shared.tables.get(table).map_err(|e| e.message().to_string())?;
        let cuts = regions::cuts(&table.now());
        let rows = cuts.iter().filter_map(|at| Some(rows::row_of(&at[..rows::row_len(at)?]).into_owned()));
        Ok(std::iter::once(Vec::new()).chain(rows).collect())
    }

    /// Cuts a table before a row. It is put together again when its parts are small.
    ///
    /// # Errors
    /// No such table, a row key that is none, what the engine answers.
    pub async fn split(&self, table: &str, row: &[u8]) -> Result<(), String> {
        let row = row.to_vec();
        self.with_table(table, move |tables, table| tables.split(&table, &row)).await
    }

    /// Puts together the regions on both sides of a row at which a table is cut.
    ///
    /// # Errors
    /// No such table, what the engine answers.
    pub async fn join(&self, table: &str, row: &[u8]) -> Result<(), String> {
        let at = rows::row_start(row);
        self.with_table(table, move |tables, table| tables.join(&table, &at)).await
    }

    /// Writes all memory to tables, so that as little of the log as can be is needed.
    ///
    /// # Errors
    /// What the engine answers.
    pub async fn flush(&self) -> Result<(), String> {
        let db = self.shared.tables.db.clone();
        let done = blocking(move || db.flush().map_err(status)).await;
        done.map_err(|e| e.message().to_string())
    }

    /// The same, and waits until no merge is due.
    ///
    /// # Errors
    /// What the engine answers.
    pub async fn settle(&self) -> Result<(), String> {
        let db = self.shared.tables.db.clone();
        let done = blocking(move || db.flush().and_then(|()| db.settle()).map_err(status)).await;
        done.map_err(|e| e.message().to_string())
    }

    /// Merges all of a table's cells, so that nothing of what is deleted, or gone by rules, is left on disk.
    ///
    /// # Errors
    /// No such table, what the engine answers.
    pub async fn compact(&self, table: &str) -> Result<(), String> {
        let compact = |tables: &Tables, table: Arc<Table>| {
            let mut walk = Walk::default();
            let mut collect = || tables.collect(&table, &mut walk, crate::now_us());
            let collected = loop {
                match collect() {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(e) => break Err(e),
                }
            };
            let layout = table.now();
            let stores = layout.families.iter().flat_map(|family| &family.regions);
            let done = stores.into_iter().try_for_each(|region| region.store.compact::<&[u8]>(..));
            if done.is_err() {
                // A region that is joined to another meanwhile is no more: it is compacted with that one.
                drop(tables.change());
                if !Arc::ptr_eq(&layout, &table.now()) {
                    return Ok(true);
                }
            }
            done.map_err(status).and(collected).map(|()| false)
        };
        let until_done = move |tables: &Tables, table: Arc<Table>| {
            while compact(tables, table.clone())? {}
            Ok(())
        };
        self.with_table(table, until_done).await
    }

    /// Does what is due for backups at that time, in microseconds since 1970, as the server does every minute.
    ///
    /// # Errors
    /// What the engine answers.
    #[doc(hidden)]
    pub async fn tend_backups(&self, now_us: u64) -> Result<(), String> {
        let tables = self.shared.tables.clone();
        let done = blocking(move || tables.tend_backups(now_us)).await;
        done.map_err(|e| e.message().to_string())
    }

    async fn with_table(
        &self,
        table: &str,
        work: impl FnOnce(&Tables, Arc<Table>) -> Result<(), Status> + Send + 'static,
    ) -> Result<(), String> {
        let (tables, name) = (self.shared.tables.clone(), table.to_string());
        let done = blocking(move || work(&tables, tables.get(&name)?)).await;
        done.map_err(|e| e.message().to_string())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes no new calls, waits for those under way, 20 seconds at most, and closes the database.
    ///
    /// # Errors
    /// What failed on the way.
    pub async fn stop(self) -> Result<(), String> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let _ = self.stop.send(true);
        self.shared.news.tell();
        for looker in self.lookers {
            looker.abort();
            let _ = looker.await;
        }
        for mut task in self.tasks {
            // A stream that nobody ends, such as a watch of the health, is ended.
            match tokio::time::timeout(STOP_WAIT, &mut task).await {
                Ok(ended) => ended.map_err(|e| e.to_string())?,
                Err(_) => task.abort(),
            }
        }
        let db = self.shared.tables.db.clone();
        let stores = self.shared.stores.clone();
        let closed = tokio::task::spawn_blocking(move || {
            let closed = db.close();
            if let Err(error) = stores.close() {
                tracing::warn!(%error, "what the disk cache had in memory could not be written");
            }
            closed
        })
        .await;
        closed.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_database_its_descriptors_or_it_does_not_start() {
        let config = Config::default();
        assert_eq!(connections_max(&config, None).unwrap(), config.connections_max);
        assert_eq!(connections_max(&config, Some(1 << 20)).unwrap(), config.connections_max);
        assert_eq!(connections_max(&config, Some(1_024)).unwrap(), 96);
        let refused = connections_max(&config, Some(256)).unwrap_err();
        assert!(refused.contains("256") && refused.contains("384"), "{refused}");
        assert_eq!(connections_max(&config, Some(384)).unwrap(), CONNECTIONS_MIN);
    }
}
