//! The settings of a server: a TOML file, and what the command line says over it.

use crate::names;
use crate::store_options;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siltstone::storage::{FileAccess, OpenObjectStore};
use siltstone::{CacheFill, Durability, FamilyOptions, Options, SstableReads};
use siltstone_compactor::{
    ClientTls, CompactionManager, Compactors, CompactorsOptions, ManagerConfig, ServerTls, Spread,
    is_loopback,
};
use siltstone_storage_object::{DiskCache, LazyObjectStores, Settings as ObjectSettings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::Status;

/// How long a write waits while flushes or compactions are far behind, before its client gets a retryable
/// error.
const STOP_WAIT_MS: u64 = 300;

/// The number of checks in a row, one a second, with more traffic than that after which a region is split.
const BUSY_LOOKS: u32 = 10;
/// The number of checks in a row with little traffic after which a region that was split for traffic may be
/// joined.
const CALM_LOOKS: u32 = 300;

/// The default time for which deleted tables can be restored: seven days, as in Google's service.
pub(crate) const UNDELETE_HOURS: u64 = 7 * 24;

/// The configuration of a server. Every field has a default; an unknown one in a file is an error that names
/// its line.
///
/// ```
/// let config: siltstone_server::Config = siltstone_server::Config::parse(
///     "dir = \"/var/lib/siltstone\"\nmemory = \"4GiB\"\ndurability = \"sync\"\n\
///      [tables]\nstrategy = \"leveled\"",
/// )?;
/// assert_eq!(config.memory.0, 4 << 30);
/// assert!(siltstone_server::Config::parse("memroy = \"4GiB\"").unwrap_err().contains("line 1"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The directory of the database.
    pub dir: PathBuf,
    /// The place of SSTables, apart from WAL and manifest: a directory, or an object store such as
    /// `s3://bucket/prefix`, reached by the settings of the environment (`AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT_URL` and so on). Set when the database is created; without it they lie in `dir`.
    pub sstable_store: Option<PathBuf>,
    /// The place of the whole database, if it is a shared one: an object store, or a directory by an absolute
    /// path. `dir` is a cache of it that may be lost. Whoever opens the database last owns it. A write is
    /// answered once it is in that place, whatever `durability` says. See docs/shared.md.
    pub shared: Option<PathBuf>,
    /// Wait until the process that has the shared database is gone, and serve it then: no port is listened at
    /// before.
    pub standby: bool,
    /// Bytes of an object store that are cached on the local disk, in a directory named like the database
    /// with `-cache` appended; 0 for none, or at least 64 MiB.
    pub disk_cache: Size,
    /// The place of backups: a directory, by default beside the database and named like it with `-backups`
    /// appended; or an object store such as `s3://bucket/prefix`, which servers may share, and where each
    /// finds the others' backups by their names.
    pub backups: Option<PathBuf>,
    /// How many hours a table that was deleted can come back (UndeleteTable), and takes its room on disk; 0
    /// for none.
    pub undelete_hours: u64,
    /// Address of the gRPC API.
    pub listen: SocketAddr,
    /// Address of the web page, `/healthz`, `/readyz` and `/metrics`.
    pub http: SocketAddr,
    /// Names, beside `localhost` and its own address, by which the web page may be asked for where neither
    /// tokens nor TLS protect it.
    pub http_names: Vec<String>,
    /// When a write is answered: `sync`, after it is safe from a power loss; `buffered`, after it is safe
    /// from the end of the process.
    pub durability: WriteDurability,
    /// Memory for the cache and for writes together.
    pub memory: Size,
    /// The part of it for writes.
    pub write_memory: Size,
    /// Threads for flushes and compactions.
    pub workers: usize,
    /// Bytes a second that compactions may write; 0 for no limit.
    pub rate_limit: Size,
    /// The blocks that compactions put into the cache.
    pub cache_fill: CacheFill,
    /// How SSTables are read: `page-cache`; `direct`, past the page cache; or `mapped`, what families without
    /// compression hold through memory mappings: faster where all of it fits the memory that is left beside
    /// `memory`, slower where it does not, as each page that is missing is a read of 4 KiB.
    pub sstable_reads: SstableReads,
    /// Who may read the files that the server makes: `owner`, its user alone; `group`; or `umask`, whom the
    /// process's umask lets.
    pub file_access: FileAccess,
    /// Keys and certificates; without, nothing is encrypted.
    pub tls: Option<TlsConfig>,
    /// A file of tokens and what each may do, read again when it changes; without, whoever can connect may do
    /// everything.
    pub tokens: Option<PathBuf>,
    /// Listen beyond this machine although TLS and tokens (or certificates of clients) do not protect it.
    pub insecure: bool,
    /// Bytes of WAL that are retained for streams of changes beyond those that the database needs.
    pub change_log: Size,
    /// Connections that a port may have open at a time, and an address half of them; for one more the oldest
    /// that has said nothing yet makes room, and where there is none it is closed. Fewer where the process
    /// may not have as many files open (`ulimit -n`).
    pub connections_max: usize,
    /// How many seconds a client may take to agree on keys and to send the first thing that makes sense: the
    /// beginning of HTTP/2, the headers of a request for the page.
    pub header_seconds: u64,
    /// How many seconds a connection without calls stays open.
    pub idle_seconds: u64,
    /// How many seconds a request may take to come in.
    pub request_seconds: u64,
    /// How many seconds a client may take nothing of an answer before the call is given up; 60 at most.
    pub answer_seconds: u64,
    /// Memory for calls under way, as what they become: half for requests, half for answers. Of the half for
    /// requests, a quarter and 16 MiB at most is for those of up to 64 KiB. A caller, known by a token or
    /// else by an address, may use half of that part, three quarters of the rest, and half of the memory for
    /// answers.
    pub call_memory: Size,
    /// Bytes at which a region of a table is split; two neighbours that have a quarter of it together are
    /// joined.
    pub region_bytes: Size,
    /// Ranges read and cells written a second at which, after ten seconds, a region is split, where that
    /// halves them; 0 for never. Its parts are joined after five minutes with less than a quarter of it, if
    /// they are small.
    pub region_rate: u64,
    /// Calls under way at a time, of which a caller may have half; more are answered `RESOURCE_EXHAUSTED` at
    /// once, with a time to try again.
    pub calls_max: usize,
    /// Streams of changes at a time, which are counted apart, and of which a caller may have half; more are
    /// answered `RESOURCE_EXHAUSTED`.
    pub change_streams_max: usize,
    /// The compaction servers for this server's compactions; without, it runs them itself.
    pub offload: OffloadConfig,
    /// A compaction manager in this process.
    pub manager: Option<ManagerSettings>,
    /// Options of all tables' stores, where nothing else is set for them.
    #[serde(with = "texts")]
    pub tables: Settings,
    /// Options of some tables, or of families of them. Later entries go over earlier ones, and what
    /// `siltstone table alter` sets goes over all.
    pub table: Vec<TableConfig>,
}

/// Files of keys and certificates, in PEM. They are read again when they change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlsConfig {
    /// The server's certificate, followed by its chain.
    pub certificate: PathBuf,
    /// The server's key.
    pub key: PathBuf,
    /// The authority for clients' certificates; if set, a client without one is turned away (mutual TLS).
    pub client_ca: Option<PathBuf>,
}

/// Compaction servers, and what goes to them. They must reach `dir` by the same path, and be let in there.
/// Each is trusted like this server itself: it reads tables, and writes them. So where `tokens` or `tls`
/// protect the API, or a server is on another machine, it has to prove itself: by a certificate (`ca`), or on
/// this machine, where the API is not encrypted, by the secret (`secret-file`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct OffloadConfig {
    /// Their addresses, such as `10.0.0.5:7400`.
    pub servers: Vec<String>,
    /// A compaction manager, which names more of them and assigns stores to servers; while it does not
    /// answer, its last answer holds. Without it, a compaction goes to the server with the most room. If this
    /// process has a manager, it is that one.
    pub manager: Option<String>,
    /// Compactions of fewer bytes are run by this server.
    pub bytes_min: Size,
    /// Larger ones too, where they cost less here.
    pub by_cost: bool,
    /// The seconds of silence of a compaction server after which its compaction goes on elsewhere.
    pub patience_seconds: u64,
    /// The authority for their certificates, in PEM; without, connections to them are not encrypted.
    pub ca: Option<PathBuf>,
    /// This server's certificate, for those that ask for one, in PEM.
    pub certificate: Option<PathBuf>,
    /// The key of that, in PEM.
    pub key: Option<PathBuf>,
    /// A file with a secret of 16 bytes or more, which compaction servers and their manager have too; those
    /// that do not show it get nothing. It is read again when it changes.
    pub secret_file: Option<PathBuf>,
    /// Which compaction servers a manager may name: `host` or `host:port`, where a host may begin or end with
    /// `*`; without, those on this machine.
    pub allow: Vec<String>,
}

impl Default for OffloadConfig {
    fn default() -> Self {
        let CompactorsOptions { bytes_min, by_cost, patience, .. } = CompactorsOptions::default();
        Self {
            servers: Vec::new(),
            manager: None,
            bytes_min: Size(bytes_min),
            by_cost,
            patience_seconds: patience.as_secs(),
            ca: None,
            certificate: None,
            key: None,
            secret_file: None,
            allow: Vec::new(),
        }
    }
}

impl OffloadConfig {
    /// For connections to compaction servers and their manager.
    fn tls(&self) -> Option<ClientTls> {
        self.ca.clone().map(|ca| ClientTls {
            ca,
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            domain: None,
        })
    }

    /// The servers, where there are some.
    pub(crate) fn connect(
        &self,
        own: Option<&CompactionManager>,
        insecure: bool,
    ) -> Result<Option<Compactors>, String> {
        if self.servers.is_empty() && self.manager.is_none() && own.is_none() {
            return Ok(None);
        }
        if self.ca.is_none() && (self.certificate.is_some() || self.key.is_some()) {
            return Err(
                "offload: a certificate or key is given, and no ca: connections would not be encrypted"
                    .into(),
            );
        }
        let tls = self.tls();
        let options = CompactorsOptions {
            bytes_min: self.bytes_min.0,
            by_cost: self.by_cost,
            patience: Duration::from_secs(self.patience_seconds.max(1)),
            manager: self.manager.clone(),
            tls,
            secret_file: self.secret_file.clone(),
            allow: self.allow.clone(),
            insecure,
            ..CompactorsOptions::default()
        };
        let servers = self.servers.iter().map(String::as_str);
        match own {
            Some(own) => Compactors::connect_managed(servers, options, own).map(Some),
            None => Compactors::connect_with(servers, options).map(Some),
        }
    }
}

/// A compaction manager: knows compaction servers, and assigns the compactions of regions to them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ManagerSettings {
    /// The address at which compaction servers announce themselves and data servers ask.
    pub listen: SocketAddr,
    /// Compaction servers that do not announce themselves.
    pub servers: Vec<String>,
    /// `round-robin`: each has as many regions as any other. `load`: by the processors and slots that each
    /// has left.
    pub spread: String,
    /// The authority for certificates of compaction servers and data servers, in PEM, apart from those of the
    /// API's clients: one without such a certificate is turned away. Needs `tls`, of which certificate and
    /// key are the manager's too.
    pub client_ca: Option<PathBuf>,
    /// A file with the secret that they have to show; without, that of `offload`.
    pub secret_file: Option<PathBuf>,
}

impl Default for ManagerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7401)),
            servers: Vec::new(),
            spread: Spread::default().to_string(),
            client_ca: None,
            secret_file: None,
        }
    }
}

impl ManagerSettings {
    /// The secret that is asked for.
    fn secret_file<'a>(&'a self, config: &'a Config) -> Option<&'a PathBuf> {
        self.secret_file.as_ref().or(config.offload.secret_file.as_ref())
    }

    /// Starts it; with the certificate of the server and, for servers that it asks, those of `offload`.
    pub(crate) fn start(&self, config: &Config) -> Result<CompactionManager, String> {
        let spread = self.spread.parse().map_err(|why| format!("manager.spread: {why}"))?;
        CompactionManager::start(ManagerConfig {
            listen: self.listen,
            servers: self.servers.clone(),
            spread,
            tls: config.tls.as_ref().map(|tls| ServerTls {
                certificate: tls.certificate.clone(),
                key: tls.key.clone(),
                client_ca: self.client_ca.clone(),
            }),
            servers_tls: config.offload.tls(),
            secret_file: self.secret_file(config).cloned(),
            insecure: config.insecure,
        })
    }
}

/// Options of the engine's families as text, by name.
pub type Settings = BTreeMap<String, String>;

/// Settings of the tables, or of the families, that it names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TableConfig {
    /// Full name of a table; one that ends in `*` means all that begin with what stands before it.
    pub name: String,
    /// One column family; all of them where there is none.
    #[serde(default)]
    pub family: Option<String>,
    /// What `siltstone family show` lists, such as `compression = "zstd:3"`.
    #[serde(with = "texts")]
    pub settings: Settings,
}

impl TableConfig {
    fn is_of(&self, table: &str, family: &str) -> bool {
        names::fits(&self.name, table) && self.family.as_ref().is_none_or(|own| own == family)
    }
}

/// The options for stores of tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreSettings {
    all: Settings,
    some: Vec<TableConfig>,
}

impl StoreSettings {
    /// The options of a family of a table: later entries over earlier ones.
    pub(crate) fn of(&self, table: &str, family: &str) -> Result<FamilyOptions, Status> {
        let own = self.some.iter().filter(|entry| entry.is_of(table, family)).map(|entry| &entry.settings);
        store_options::with(FamilyOptions::default(), std::iter::once(&self.all).chain(own).flatten())
    }
}

/// When regions are split, and when they are joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionLimits {
    /// Bytes of a region at which it is split.
    pub(crate) split_bytes: u64,
    /// Bytes of two neighbours together below which they are joined.
    pub(crate) join_bytes: u64,
    /// Ranges read and cells written a second at which a region is busy; a quarter of it keeps it from being
    /// joined.
    pub(crate) split_rate: f64,
    /// The number of busy checks in a row after which it is split.
    pub(crate) busy: u32,
    /// The number of checks with less traffic after which it is joined.
    pub(crate) calm: u32,
}

/// Directories beside the database's.
pub(crate) struct Directories {
    pub(crate) backups: BackupLocation,
    /// Where databases are made that are being restored, on the same file system as the database.
    pub(crate) restoring: PathBuf,
}

/// Where backups lie.
pub(crate) enum BackupLocation {
    Directory(PathBuf),
    /// A location in an object store, and how places there are opened.
    Store(String, Box<OpenObjectStore>),
}

/// Options as a TOML table: texts, numbers and truth values.
mod texts {
    use super::Settings;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(settings: &Settings, to: S) -> Result<S::Ok, S::Error> {
        settings.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Settings, D::Error> {
        let values = BTreeMap::<String, toml::Value>::deserialize(from)?;
        let texts = values.into_iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            crate::store_options::check(&name, &text).map_err(D::Error::custom)?;
            Ok((name, text))
        });
        texts.collect()
    }
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteDurability {
    /// After it is safe from a power loss.
    Sync,
    /// After it is safe from the end of the process.
    Buffered,
}

impl From<WriteDurability> for Durability {
    fn from(durability: WriteDurability) -> Self {
        match durability {
            WriteDurability::Sync => Self::Sync,
            WriteDurability::Buffered => Self::Buffered,
        }
    }
}

/// Bytes, written as a number or as text: `256MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let short = siltstone::size_text(self.0);
        // What is short is often rounded: `1.5 KiB` of 1,500 bytes.
        let exact = siltstone::parse_size(&short) == Ok(self.0);
        to.serialize_str(&if exact { short } else { format!("{} B", self.0) })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => siltstone::parse_size(&text).map(Self).map_err(serde::de::Error::custom),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("siltstone-data"),
            offload: OffloadConfig::default(),
            manager: None,
            backups: None,
            undelete_hours: UNDELETE_HOURS,
            listen: SocketAddr::from(([127, 0, 0, 1], 8086)),
            http: SocketAddr::from(([127, 0, 0, 1], 8087)),
            http_names: Vec::new(),
            durability: WriteDurability::Sync,
            memory: Size(512 << 20),
            write_memory: Size(128 << 20),
            workers: 2,
            rate_limit: Size(0),
            cache_fill: CacheFill::default(),
            sstable_reads: SstableReads::default(),
            file_access: FileAccess::default(),
            tls: None,
            tokens: None,
            insecure: false,
            change_log: Size(256 << 20),
            connections_max: 4_096,
            header_seconds: 10,
            idle_seconds: 300,
            request_seconds: 30,
            answer_seconds: 60,
            call_memory: Size(2 << 30),
            sstable_store: None,
            shared: None,
            standby: false,
            disk_cache: Size(4 << 30),
            region_bytes: Size(1 << 30),
            region_rate: 20_000,
            calls_max: 4_096,
            change_streams_max: 256,
            tables: Settings::new(),
            table: Vec::new(),
        }
    }
}

impl Config {
    /// The settings in a text.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_string())?;
        config.check()?;
        Ok(config)
    }

    /// The settings in a file.
    ///
    /// # Errors
    /// What is wrong, with the file and its line.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Whether these settings can be served.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        let open =
            [("listen", self.listen), ("http", self.http)].into_iter().find(|(_, at)| !at.ip().is_loopback());
        let knows_clients =
            self.tokens.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let missing = match (&self.tls, knows_clients) {
            (Some(_), true) => None,
            (Some(_), false) => Some("neither tokens nor tls.client-ca are set"),
            (None, _) => Some("tls is not set"),
        };
        if let (Some((name, at)), Some(missing)) = (open.filter(|_| !self.insecure), missing) {
            return Err(format!(
                "{name}: {at} can be reached from other machines, and {missing}; say insecure = true to allow that"
            ));
        }
        for (name, least, value) in [
            ("calls-max", 1, self.calls_max as u64),
            ("change-streams-max", 1, self.change_streams_max as u64),
            ("connections-max", 1, self.connections_max as u64),
            ("header-seconds", 1, self.header_seconds),
            ("idle-seconds", 1, self.idle_seconds),
            ("request-seconds", 1, self.request_seconds),
            ("answer-seconds", 1, self.answer_seconds),
            ("call-memory", 16 << 20, self.call_memory.0),
            ("region-bytes", 64 << 10, self.region_bytes.0),
        ] {
            if value < least {
                return Err(format!("{name} must be at least {least}"));
            }
        }
        if self.answer_seconds > 60 {
            return Err("answer-seconds must be at most 60".into());
        }
        if (1..64 << 20).contains(&self.disk_cache.0) {
            return Err("disk-cache must be 0, for none, or at least 64MiB".into());
        }
        if self.shared.is_some() && self.sstable_store.is_some() {
            return Err("shared and sstable-store are both set: a shared database has one place".into());
        }
        if self.standby && self.shared.is_none() {
            return Err("standby is set, and shared is not: only a shared database can have one".into());
        }
        if self.manager.is_some() && self.offload.manager.is_some() {
            return Err("offload.manager: this process is to be the manager itself".into());
        }
        if let Some(manager) = &self.manager {
            manager.spread.parse::<Spread>().map_err(|why| format!("manager.spread: {why}"))?;
        }
        self.check_offload()?;
        if self.dir.file_name().is_none() {
            return Err(format!("dir: {} names no directory of its own", self.dir.display()));
        }
        self.options().validate().map_err(|e| e.to_string())?;
        let of = self.store_settings();
        let entries = self.table.iter().map(|entry| (&*entry.name, entry.family.as_deref().unwrap_or("")));
        entries.chain([("", "")]).try_for_each(|(table, family)| {
            let options = of.of(table, family).map_err(|e| e.message().to_string())?;
            options.validate().map_err(|e| e.to_string())
        })
    }

    /// Checks that compaction servers and their manager have to prove who they are where that matters.
    fn check_offload(&self) -> Result<(), String> {
        let (offload, manager) = (&self.offload, self.manager.as_ref());
        if offload.servers.is_empty() && offload.manager.is_none() && manager.is_none() {
            return Ok(());
        }
        let protection = [(self.tokens.is_some(), "tokens"), (self.tls.is_some(), "tls")];
        let protection = protection.into_iter().find(|(is_set, _)| *is_set).map(|(_, name)| name);
        if let Some(manager) = manager {
            if manager.client_ca.is_some() && self.tls.is_none() {
                return Err("manager.client-ca: tls is not set, so certificates cannot be asked for".into());
            }
            let proves = manager.client_ca.is_some() || manager.secret_file(self).is_some();
            if let (Some(name), false) = (protection, proves) {
                return Err(format!(
                    "manager: whoever reaches {} could become a compaction server, and read and write all tables, though {name} \
                     protects the API: set manager.client-ca, or manager.secret-file",
                    manager.listen
                ));
            }
        }
        if offload.ca.is_some() {
            return Ok(());
        }
        if self.tls.is_some() {
            return Err(
                "offload.ca is not set: tables would go to compaction servers in plain text beside an API with tls".into(),
            );
        }
        if let (Some(name), None) = (protection, &offload.secret_file) {
            return Err(format!(
                "offload: whoever answers as a compaction server could read and write all tables, though {name} protects the \
                 API: set offload.ca, or offload.secret-file for servers on this machine"
            ));
        }
        let asked = manager.into_iter().flat_map(|manager| &manager.servers);
        let named = (offload.servers.iter().map(|at| ("offload.servers", at)))
            .chain(offload.manager.iter().map(|at| ("offload.manager", at)))
            .chain(asked.map(|at| ("manager.servers", at)));
        match named.into_iter().find(|(_, at)| !is_loopback(at)) {
            Some((name, at)) if !self.insecure => Err(format!(
                "{name}: {at} is not on this machine, and offload.ca, which says who signs its certificate, is not set; say \
                 insecure = true to allow that"
            )),
            _ => Ok(()),
        }
    }

    /// The directories beside the database's.
    pub(crate) fn directories(&self) -> Directories {
        let said = self.backups.clone().unwrap_or_else(|| self.beside("-backups"));
        let backups = match said.to_str().filter(|said| said.contains("://")) {
            Some(location) => {
                // Without the disk cache: what a backup has is read once.
                let stores = LazyObjectStores::new(ObjectSettings::default());
                let open = move |location: &str| stores.open(location);
                BackupLocation::Store(location.to_string(), Box::new(open))
            }
            None => BackupLocation::Directory(said),
        };
        Directories { backups, restoring: self.beside("-restoring") }
    }

    /// How object stores are reached.
    pub(crate) fn object_stores(&self) -> ObjectSettings {
        let cache = || DiskCache { dir: self.beside("-cache"), bytes: self.disk_cache.0 };
        ObjectSettings { disk: (self.disk_cache.0 > 0).then(cache), ..ObjectSettings::default() }
    }

    /// A directory beside the database's, with that behind its name.
    fn beside(&self, end: &str) -> PathBuf {
        // Without a slash at its end.
        let mut name = self.dir.components().collect::<PathBuf>().into_os_string();
        name.push(end);
        PathBuf::from(name)
    }

    pub(crate) fn limits(&self) -> RegionLimits {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let split_rate = if self.region_rate == 0 { f64::INFINITY } else { self.region_rate as f64 };
        RegionLimits {
            split_bytes: self.region_bytes.0,
            join_bytes: self.region_bytes.0 / 4,
            split_rate,
            busy: BUSY_LOOKS,
            calm: CALM_LOOKS,
        }
    }

    /// The files that have secrets, by the names of their settings.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let tokens = self.tokens.as_deref().map(|file| ("tokens", file));
        let key = self.tls.as_ref().map(|tls| ("tls.key", tls.key.as_path()));
        let offload_key = self.offload.key.as_deref().map(|file| ("offload.key", file));
        let offload = self.offload.secret_file.as_deref().map(|file| ("offload.secret-file", file));
        let manager = self.manager.as_ref().and_then(|manager| manager.secret_file.as_deref());
        let manager = manager.map(|file| ("manager.secret-file", file));
        [tokens, key, offload_key, offload, manager].into_iter().flatten()
    }

    /// The settings as a file that [`Config::read`] takes.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// The engine's options.
    pub(crate) fn options(&self) -> Options {
        Options {
            memory_budget: self.memory.0,
            write_memory: self.write_memory.0,
            workers: self.workers,
            rate_limit: self.rate_limit.0,
            change_log_bytes: self.change_log.0,
            cache_fill: self.cache_fill,
            sstable_reads: self.sstable_reads,
            file_access: self.file_access,
            sstable_store: self.sstable_store.clone(),
            shared: self.shared.clone(),
            latencies: true,
            write_stop_ms_max: STOP_WAIT_MS,
            // A row may have 256 MiB, and a batch a quarter of the WAL.
            wal_bytes_max: (4 * self.write_memory.0).max(1 << 30),
            ..Options::default()
        }
    }

    /// The options for stores.
    pub(crate) fn store_settings(&self) -> StoreSettings {
        StoreSettings { all: self.tables.clone(), some: self.table.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_served_and_read_back() {
        let config = Config::default();
        config.check().unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::to_string(&Config::parse(&text).unwrap()).unwrap(), text);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, expected) in [
            ("dir = \"x\"\nmemroy = 1", "line 2"),
            ("memory = \"many\"", "line 1"),
            ("listen = \"0.0.0.0:1\"", "insecure"),
            ("[tables]\nstrategy = \"fast\"", "fast"),
            ("[tables]\nversions = 3", "rules"),
            ("[[table]]\nname = \"t\"\nsettings = { blokc_bytes = 5 }", "block_bytes"),
            ("durability = \"maybe\"", "line 1"),
            ("calls-max = 0", "calls-max"),
            ("call-memory = 5", "call-memory"),
            ("answer-seconds = 61", "answer-seconds"),
            ("header-seconds = 0", "header-seconds"),
            ("[tls]\nkey = \"k\"", "certificate"),
            (
                "listen = \"0.0.0.0:1\"\n[tls]\ncertificate = \"c\"\nkey = \"k\"",
                "neither tokens nor tls.client-ca",
            ),
            ("write-memory = 0", "write_memory"),
            ("shared = \"s3://b/p\"\nsstable-store = \"/t\"", "shared and sstable-store"),
            ("shared = \"below\"", "shared is neither an absolute path"),
            ("standby = true", "only a shared database"),
        ] {
            let wrong = Config::parse(text).unwrap_err();
            assert!(wrong.contains(expected), "{text}: {wrong}");
        }
        let open = "listen = \"0.0.0.0:1\"\n";
        let tls = "[tls]\ncertificate = \"c\"\nkey = \"k\"\n";
        for right in [
            "insecure = true".to_string(),
            format!("tokens = \"t\"\n{tls}"),
            format!("{tls}client-ca = \"a\""),
        ] {
            assert!(Config::parse(&format!("{open}{right}")).is_ok(), "{right}");
        }
    }

    #[test]
    fn who_runs_compactions_has_to_prove_itself_where_the_api_is_protected_or_a_machine_is_another() {
        const TLS: &str = "[tls]\ncertificate = \"c\"\nkey = \"k\"\nclient-ca = \"a\"\n";
        const TOKENS: &str = "tokens = \"t\"\n";
        const MANAGER: &str = "[manager]\n";
        let here = |more: &str| format!("[offload]\nservers = [\"127.0.0.1:7400\"]\n{more}");
        let far = |more: &str| format!("[offload]\nservers = [\"10.0.0.5:7400\"]\n{more}");
        for (text, expected) in [
            (format!("{TOKENS}{MANAGER}"), "could become a compaction server"),
            (format!("{TLS}{MANAGER}"), "could become a compaction server"),
            (format!("insecure = true\n{TOKENS}{MANAGER}"), "could become a compaction server"),
            (format!("{MANAGER}client-ca = \"m\""), "tls is not set"),
            (format!("{TLS}{MANAGER}client-ca = \"m\""), "offload.ca is not set"),
            (format!("{TLS}{}", here("secret-file = \"s\"")), "offload.ca is not set"),
            (format!("{TOKENS}{}", here("")), "could read and write all tables"),
            (format!("{TOKENS}[offload]\nmanager = \"127.0.0.1:7401\""), "could read and write all tables"),
            (format!("{TOKENS}{}", far("secret-file = \"s\"")), "is not on this machine"),
            (far(""), "offload.servers: 10.0.0.5:7400 is not on this machine"),
            ("[offload]\nmanager = \"m.example.org:7401\"".into(), "offload.manager: m.example.org:7401"),
            (format!("{MANAGER}servers = [\"u@127.0.0.1:7400\"]"), "manager.servers: u@127.0.0.1:7400"),
        ] {
            let wrong = Config::parse(&text).unwrap_err();
            assert!(wrong.contains(expected), "{text}: {wrong}");
        }
        for right in [
            MANAGER.to_string(),
            here(""),
            format!("insecure = true\n{}", far("")),
            far("ca = \"o\""),
            format!("{TOKENS}{MANAGER}[offload]\nsecret-file = \"s\""),
            format!("{TOKENS}{}", here("secret-file = \"s\"")),
            format!("{TLS}{MANAGER}client-ca = \"m\"\n[offload]\nca = \"o\""),
            format!("{TLS}{MANAGER}secret-file = \"s\"\n[offload]\nca = \"o\"\nallow = [\"10.0.0.*\"]"),
        ] {
            assert!(Config::parse(&right).is_ok(), "{right}: {:?}", Config::parse(&right).err());
        }
    }
}
