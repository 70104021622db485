//! A compaction server: merges of other processes' databases, in directories that both reach.

use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::logs;
use clap::Args;
use siltstone_compactor::{CompactorConfig, CompactorServer, ServerTls};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;

/// Run merges for other servers and databases
///
/// A server (`siltstone serve --compactor HOST:PORT`) or an embedded database gives it merges of tables, which it reads and writes in
/// directories that both reach by the same path. It may be started and ended at any time: what it was doing goes on elsewhere.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone compactor --tables /var/lib/siltstone
         siltstone compactor --listen 10.0.0.5:7400 --tables /mnt/shared --memory 8GiB \\
             --tls-certificate cert.pem --tls-key key.pem --tls-client-ca ca.pem")]
pub(crate) struct Compactor {
    /// Address on which merges are taken
    #[arg(long, env = "SILTSTONE_COMPACTOR_LISTEN", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// A directory in which it may work, with all below it; may be given several times
    #[arg(long, env = "SILTSTONE_COMPACTOR_TABLES", value_delimiter = ',', required = true)]
    tables: Vec<PathBuf>,
    /// Memory in all; so many merges run at a time as it has room for
    #[arg(long, env = "SILTSTONE_COMPACTOR_MEMORY", default_value = "1GiB", value_parser = siltstone::parse_size)]
    memory: u64,
    /// Memory that a merge may take
    #[arg(long, default_value = "128MiB", value_parser = siltstone::parse_size)]
    merge_memory: u64,
    /// Merges that may wait for others; more are refused
    #[arg(long, default_value_t = 4)]
    queue: u64,
    /// Its certificate, in PEM; with --tls-key, connections are encrypted
    #[arg(long, env = "SILTSTONE_TLS_CERTIFICATE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, env = "SILTSTONE_TLS_KEY", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Who signs the certificates of those that give it merges, in PEM; one without is turned away
    #[arg(long, env = "SILTSTONE_TLS_CLIENT_CA", requires = "tls_certificate")]
    tls_client_ca: Option<PathBuf>,
    /// Listen beyond this machine although nothing protects it
    #[arg(long, env = "SILTSTONE_INSECURE")]
    insecure: bool,
    /// What is logged to standard error: a level, or levels by part, such as warn,siltstone=debug
    #[arg(long, env = "SILTSTONE_LOG", default_value = "info")]
    log: String,
    /// How it is written
    #[arg(long, env = "SILTSTONE_LOG_FORMAT", default_value = "text")]
    log_format: logs::Format,
}

impl Compactor {
    pub(crate) fn run(self) -> Outcome {
        let _logs = logs::start(&self.log, self.log_format, None).map_err(Failure::Usage)?;
        let tls = self.tls_certificate.zip(self.tls_key);
        let client_ca = self.tls_client_ca;
        let config = CompactorConfig {
            listen: self.listen,
            tables: self.tables,
            memory: self.memory,
            merge_memory: self.merge_memory,
            queue: self.queue,
            tls: tls.map(|(certificate, key)| ServerTls { certificate, key, client_ca }),
            insecure: self.insecure,
        };
        let (stop, stopped) = mpsc::channel();
        interrupt::on_signal(move || {
            let _ = stop.send(());
            None
        });
        let builder = siltstone_server::with_operators(siltstone::Db::builder());
        let server = CompactorServer::start(config, builder).map_err(Failure::Failed)?;
        let mut out = io::stdout().lock();
        // Nobody may be listening.
        let _ = writeln!(out, "merges are taken at {}", server.listens_at()).and_then(|()| out.flush());
        let _ = stopped.recv();
        drop(server);
        Ok(())
    }
}
