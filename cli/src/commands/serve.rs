//! The server: settings from a file, the environment and flags, and a clean stop at a signal.

mod demo;

use super::serving::{Logging, Protection};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::logs;
use crate::open;
use clap::{Args, ValueEnum};
use siltstone_server::{Config, Server, Size, TlsConfig, WriteDurability};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Serve the Bigtable API on a local directory
///
/// Clients reach it with BIGTABLE_EMULATOR_HOST, without changes. Settings come from the file, then from the
/// environment (SILTSTONE_LISTEN, ...), then from flags. SIGTERM or Ctrl-C ends it once the calls under way
/// are answered.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone serve --demo
         siltstone serve /var/lib/siltstone --memory 4GiB
         siltstone serve /var/lib/siltstone --manager
         siltstone serve --config /etc/siltstone.toml --print-config")]
pub(crate) struct Serve {
    /// Directory of the database; it is made if it is not there [default: siltstone-data]
    #[arg(env = "SILTSTONE_DIR")]
    dir: Option<PathBuf>,
    /// Settings as TOML; an unknown one is an error
    #[arg(long, env = "SILTSTONE_CONFIG")]
    config: Option<PathBuf>,
    /// Address of the gRPC API [default: 127.0.0.1:8086]
    #[arg(long, env = "SILTSTONE_LISTEN")]
    listen: Option<SocketAddr>,
    /// Address of the web page, /healthz, /readyz and /metrics [default: 127.0.0.1:8087]
    #[arg(long, env = "SILTSTONE_HTTP")]
    http: Option<SocketAddr>,
    /// When a write is answered: safe from a power loss, or from the end of the process [default: sync]
    #[arg(long, env = "SILTSTONE_DURABILITY")]
    durability: Option<When>,
    /// Memory for the cache and for writes together [default: 512MiB]
    #[arg(long, env = "SILTSTONE_MEMORY", value_parser = size)]
    memory: Option<Size>,
    #[command(flatten)]
    protection: Protection,
    /// File of tokens and their rights, as `siltstone token` prints them; a call without one is turned away
    #[arg(long, env = "SILTSTONE_TOKENS")]
    tokens: Option<PathBuf>,
    /// Place of SSTables, apart from the WAL: a directory, or an object store, as s3://bucket/prefix
    /// [default: in the directory of the database]
    #[arg(long, env = "SILTSTONE_TABLE_STORE", value_name = "PLACE")]
    sstable_store: Option<PathBuf>,
    /// Place of the whole database, of which DIR is a cache then: another directory, or an object store, as
    /// s3://bucket/prefix
    #[arg(long, env = "SILTSTONE_SHARED", value_name = "LOCATION", value_parser = open::place)]
    shared: Option<PathBuf>,
    /// Wait until the server that has the shared database is gone, and serve it then; the port is not
    /// listened at before
    #[arg(long, env = "SILTSTONE_STANDBY")]
    standby: bool,
    /// Disk space for cached bytes of an object store; 0 for none [default: 4GiB]
    #[arg(long, env = "SILTSTONE_DISK_CACHE", value_parser = size)]
    disk_cache: Option<Size>,
    /// A compaction server to use, as host:port; may be given several times
    #[arg(long = "compactor", env = "SILTSTONE_COMPACTORS", value_delimiter = ',')]
    compactors: Vec<String>,
    /// Be a compaction manager too: compaction servers announce themselves there [default address:
    /// 127.0.0.1:7401]
    #[arg(long, env = "SILTSTONE_MANAGER", num_args = 0..=1, default_missing_value = "127.0.0.1:7401", value_name = "ADDRESS")]
    manager: Option<SocketAddr>,
    /// A compaction manager elsewhere, as host:port, which names the compaction servers
    #[arg(long, env = "SILTSTONE_COMPACTION_MANAGER", conflicts_with = "manager", value_name = "HOST:PORT")]
    compaction_manager: Option<String>,
    /// A file with the secret that compaction servers and their manager share with this server
    #[arg(long, env = "SILTSTONE_COMPACTION_SECRET_FILE", value_name = "FILE")]
    compaction_secret_file: Option<PathBuf>,
    #[command(flatten)]
    logging: Logging,
    /// Collector of OpenTelemetry that gets a span for each call, such as http://127.0.0.1:4317 (needs the
    /// feature otel)
    #[arg(long, env = "SILTSTONE_OTLP")]
    otlp: Option<String>,
    /// Load the machine's package index as a table `packages`, unless it is there
    #[arg(long)]
    demo: bool,
    /// Print the settings and end
    #[arg(long)]
    print_config: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum When {
    Sync,
    Buffered,
}

fn size(text: &str) -> Result<Size, String> {
    siltstone::parse_size(text).map(Size).map_err(|e| e.to_string())
}

impl Serve {
    pub(crate) fn run(self) -> Outcome {
        let demo = self.demo;
        let print = self.print_config;
        let (log, format, collector) = (self.logging.log.clone(), self.logging.log_format, self.otlp.clone());
        let config = self.config()?;
        if print {
            print!("{}", config.to_toml());
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::Failed(format!("threads for the server: {e}")))?;
        let _entered = runtime.enter();
        let _logs = logs::start(&log, format, collector.as_deref()).map_err(Failure::Usage)?;
        let (stop, mut stopped) = mpsc::unbounded_channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let on_signal = stopping.clone();
        interrupt::on_signal(move || {
            on_signal.store(true, Ordering::Relaxed);
            let _ = stop.send(());
            None
        });
        let dir = config.dir.display().to_string();
        if let Some(shared) = config.shared.as_ref().filter(|_| config.standby) {
            say(&format!("standing by for {}", shared.display()));
        }
        let started = runtime.block_on(Server::start_unless(config, stopping)).map_err(Failure::Failed)?;
        let Some(server) = started else { return Ok(()) };
        if demo {
            demo::load(&server).map_err(Failure::Failed)?;
        }
        say(&format!(
            "serving {dir} at {} (Bigtable gRPC), http://{}/ (page)",
            server.listens_at(),
            server.page_at()
        ));
        if demo {
            demo::tell(server.listens_at());
        }
        runtime
            .block_on(async {
                stopped.recv().await;
                say("stopping: answering the calls under way");
                server.stop().await
            })
            .map_err(Failure::Failed)
    }

    /// The file's settings, and over them those given.
    fn config(self) -> Outcome<Config> {
        let mut config = match &self.config {
            Some(file) => Config::read(file).map_err(Failure::Usage)?,
            None => Config::default(),
        };
        config.dir = self.dir.unwrap_or(config.dir);
        config.listen = self.listen.unwrap_or(config.listen);
        config.http = self.http.unwrap_or(config.http);
        if let Some(memory) = self.memory {
            config.memory = memory;
            // The part for writes is a part of it.
            config.write_memory = config.write_memory.min(Size(memory.0 / 4));
        }
        config.sstable_store = self.sstable_store.or(config.sstable_store);
        config.shared = self.shared.or(config.shared);
        config.standby |= self.standby;
        config.disk_cache = self.disk_cache.unwrap_or(config.disk_cache);
        config.insecure |= self.protection.insecure;
        config.tokens = self.tokens.or(config.tokens);
        if let Some((certificate, key)) = self.protection.identity() {
            // Who must show a certificate by the file must do so still.
            let client_ca = self.protection.tls_client_ca.or(config.tls.and_then(|tls| tls.client_ca));
            config.tls = Some(TlsConfig { certificate, key, client_ca });
        }
        if !self.compactors.is_empty() {
            config.offload.servers = self.compactors;
        }
        if let Some(listen) = self.manager {
            config.manager.get_or_insert_default().listen = listen;
        }
        config.offload.secret_file = self.compaction_secret_file.or(config.offload.secret_file);
        config.offload.manager = self.compaction_manager.or(config.offload.manager);
        if let Some(when) = self.durability {
            config.durability = match when {
                When::Sync => WriteDurability::Sync,
                When::Buffered => WriteDurability::Buffered,
            };
        }
        config.check().map_err(Failure::Usage)?;
        Ok(config)
    }
}

/// A line for the caller, who may no longer read it.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
