//! A running server: the database, the listeners, the calls under way, and how it stops.

use crate::background;
use crate::cells::row_key;
use crate::config::Config;
use crate::net::access::Access;
use crate::net::auth::Tokens;
use crate::net::blocking::blocking;
use crate::net::budget::Budgets;
use crate::net::calls::CallMetrics;
use crate::net::door::{Door, Waits};
use crate::net::listen::{Connections, Places, Protocol, Tls};
use crate::net::methods;
use crate::net::serve;
use crate::services::admin::TableAdmin;
use crate::services::bigtable::BigtableService;
use crate::services::http;
use crate::services::instances::InstanceAdmin;
use crate::services::operations::OperationsService;
use crate::services::operator::OperatorService;
use crate::services::stubs::bigtable::bigtable_server::BigtableServer;
use crate::services::stubs::instance_admin::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use crate::services::stubs::operations::operations_server::OperationsServer;
use crate::services::stubs::operator::operator_server::OperatorServer;
use crate::services::stubs::table_admin::bigtable_table_admin_server::BigtableTableAdminServer;
use crate::shared::{FinishedOperations, Managing, News, Shared};
use crate::status::status;
use crate::tables::gc_sweep::Walk;
use crate::tables::hot_tablets::HotTablets;
use crate::tables::instance_set::Instances;
use crate::tables::layout::Table;
use crate::tables::regions;
use crate::tables::registry::Tables;
use crate::tables::schema;
use parking_lot::Mutex;
use siltstone::Waiting;
use siltstone_compactor::Compactors;
use siltstone_storage_object::LazyObjectStores;
use std::mem::discriminant;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::service::Routes;

/// How long calls under way may take when the server stops.
const STOP_WAIT: Duration = Duration::from_secs(20);
/// File descriptors that the server needs beside those of SSTables and connections: WAL files, listeners,
/// directories.
const DESCRIPTORS: u64 = 64;
/// Connections that a port must be able to have.
const CONNECTIONS_MIN: usize = 16;

/// A running server.
///
/// ```
/// # let temporary = tempfile::tempdir().unwrap();
/// use siltstone_server::{Config, Server};
/// let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
/// let dir = temporary.path().join("data");
/// let config = Config { dir, listen: any_port, http: any_port, ..Config::default() };
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

/// An open database, and what it needs.
struct Opened {
    instances: Instances,
    tables: Arc<Tables>,
    stores: Arc<LazyObjectStores>,
    compactors: Option<Arc<Compactors>>,
    manager: Option<Managing>,
}

/// Opens the database; `None` if `stopping` is set while it waits as a standby.
async fn open(config: &Config, stopping: Arc<AtomicBool>) -> Result<Option<Opened>, String> {
    let (dir, options, base) = (config.dir.clone(), config.options(), config.store_settings());
    let (directories, is_standby) = (config.directories(), config.standby);
    let (manager, compactors) = start_offload(config).await?;
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
        let db = match is_standby {
            true => builder.stand_by(&dir, goes_on(stopping)),
            false => builder.open(&dir).map(Some),
        };
        let Some(db) = db.map_err(|e| e.to_string())? else { return Ok(None) };
        let tables = Tables::open(db, base, directories).map(Arc::new);
        let opened = tables.and_then(|tables| Ok((Instances::open(tables.clone())?, tables)));
        opened.map(Some).map_err(|e| format!("{}: {}", dir.display(), e.message()))
    });
    let opened = opened.await.map_err(|e| e.to_string())??;
    Ok(opened.map(|(instances, tables)| Opened { instances, tables, stores, compactors, manager }))
}

/// Whether a standby goes on, which says in the log what it waits for.
fn goes_on(stopping: Arc<AtomicBool>) -> impl FnMut(&Waiting) -> bool {
    let mut told = None;
    move |waiting: &Waiting| {
        if told.replace(discriminant(waiting)) != Some(discriminant(waiting)) {
            match waiting {
                Waiting::Unanswered => tracing::info!("standing by: the owner does not know of it yet"),
                Waiting::Ready => tracing::info!("standing by: ready to take over when the owner is gone"),
                Waiting::Failing(error) => tracing::warn!(%error, "standing by: the store failed"),
                _ => {}
            }
        }
        !stopping.load(Ordering::Relaxed)
    }
}

/// How many files the process may have open, once it may have as many as it can.
fn descriptors() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Limits that cannot be raised stay.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current
}

/// How many connections each port may have: as many as are set, and no more than leave the database the
/// descriptors that it needs. It opens three quarters of all for tables.
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
    /// Opens the database and listens. As a standby ([`Config::standby`]) it waits for that as long as need
    /// be.
    ///
    /// # Errors
    /// A text that names what failed: the settings, the directory, an address.
    pub async fn start(config: Config) -> Result<Self, String> {
        let started = Self::start_unless(config, Arc::default()).await?;
        started.ok_or_else(|| "the standby waits no more".into())
    }

    /// Opens the database and listens; `None` if `stopping` is set while it waits as a standby.
    ///
    /// # Errors
    /// See [`Server::start`].
    pub async fn start_unless(config: Config, stopping: Arc<AtomicBool>) -> Result<Option<Self>, String> {
        config.check()?;
        let Some(opened) = open(&config, stopping).await? else { return Ok(None) };
        Self::serve(config, opened).await.map(Some)
    }

    /// Serves a database.
    async fn serve(config: Config, opened: Opened) -> Result<Self, String> {
        let Opened { instances, tables, stores, compactors, manager } = opened;
        tables.kept.keep_for(config.undelete_hours);
        let tls = config.tls.as_ref().map(Tls::read).transpose()?.map(Arc::new);
        let connections_max = connections_max(&config, descriptors())?;
        let access = Arc::new(Access {
            tokens: config.tokens.as_deref().map(Tokens::read).transpose()?,
            budgets: Budgets::new(config.call_memory.0),
            calls: CallMetrics::new(&config)?,
        });
        let shared = Arc::new(Shared {
            tables,
            instances,
            hot: HotTablets::new(&config),
            compactors,
            stores,
            manager,
            access,
            tls: tls.clone(),
            wide_files: Mutex::default(),
            connections: Places::new(connections_max),
            news: News::new(),
            durability: config.durability.into(),
            finished: FinishedOperations::default(),
            config,
            stopping: AtomicBool::new(false),
        });
        background::look_at_modes(&shared);
        // Counted apart: idle sockets of one port keep nobody from the other.
        let (places, for_page) = (shared.connections.clone(), Places::new(connections_max));
        let for_grpc = Connections::listen(shared.config.listen, Protocol::Grpc, tls.clone(), places).await?;
        let for_http = Connections::listen(shared.config.http, Protocol::Http, tls, for_page).await?;
        let (grpc, http) = (for_grpc.at(), for_http.at());
        let (stop, stopped) = watch::channel(false);
        let lookers = background::start(&shared);
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let bigtable = BigtableServer::new(BigtableService::new(shared.clone()));
        let routes = Routes::new(health_service)
            .add_service(bigtable.max_decoding_message_size(methods::WRITE_MAX))
            .add_service(BigtableTableAdminServer::new(TableAdmin(shared.clone())))
            .add_service(BigtableInstanceAdminServer::new(InstanceAdmin(shared.clone())))
            .add_service(OperationsServer::new(OperationsService(shared.clone())))
            .add_service(OperatorServer::new(OperatorService(shared.clone())));
        let waits = Waits::new(&shared.config);
        let door = Door::new(shared.access.clone(), routes, waits);
        let router = http::router(shared.clone());
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
        let rows =
            cuts.iter().filter_map(|at| Some(row_key::row_of(&at[..row_key::row_len(at)?]).into_owned()));
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
        let at = row_key::row_start(row);
        self.with_table(table, move |tables, table| tables.join(&table, &at)).await
    }

    /// Flushes all memory, so that as little of the WAL as possible is needed.
    ///
    /// # Errors
    /// What the engine answers.
    pub async fn flush(&self) -> Result<(), String> {
        let db = self.shared.tables.db.clone();
        let done = blocking(move || db.flush().map_err(status)).await;
        done.map_err(|e| e.message().to_string())
    }

    /// Flushes all memory, and waits until no compaction is due.
    ///
    /// # Errors
    /// What the engine answers.
    pub async fn settle(&self) -> Result<(), String> {
        let db = self.shared.tables.db.clone();
        let done = blocking(move || db.flush().and_then(|()| db.wait_idle()).map_err(status)).await;
        done.map_err(|e| e.message().to_string())
    }

    /// Compacts a whole table, so that no cell that is deleted or hidden by rules is left on disk.
    ///
    /// # Errors
    /// No such table, what the engine answers.
    pub async fn compact(&self, table: &str) -> Result<(), String> {
        let compact = |tables: &Tables, table: Arc<Table>| {
            let mut walk = Walk::default();
            let mut collect = || tables.collect(&table, &mut walk, crate::time::now_us());
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

    /// Does what is due for backups at that time, in microseconds since 1970, as the server does every
    /// minute.
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
