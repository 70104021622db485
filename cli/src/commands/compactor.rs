//! A compaction server: compactions for databases of other processes.

use super::serving::{Logging, Protection};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::logs;
use crate::open;
use clap::Args;
use siltstone_compactor::{ClientTls, CompactorConfig, CompactorServer, ServerTls};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;

/// Run compactions for other servers and databases
///
/// A server (`siltstone serve --compactor HOST:PORT`) or an embedded database gives it compactions of
/// SSTables, which it reads and writes in directories that both reach by the same path, or gets and sends
/// over the connection. It may be started and ended at any time: its compactions go on elsewhere.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone compactor --tables /var/lib/siltstone
         siltstone compactor --tables /var/lib/siltstone --manager 127.0.0.1:7401 --listen 127.0.0.1:0
         siltstone compactor --listen 10.0.0.5:7400 --tables /mnt/shared --memory 8GiB \\
             --tls-certificate cert.pem --tls-key key.pem --tls-client-ca ca.pem")]
pub(crate) struct Compactor {
    /// Address on which it accepts compactions
    #[arg(long, env = "SILTSTONE_COMPACTOR_LISTEN", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// A directory or object store (s3://bucket/prefix) in which it may work, with all below it; may be given
    /// several times. Without one it shares no storage with databases, and SSTables go over the connection
    #[arg(long, env = "SILTSTONE_COMPACTOR_TABLES", value_delimiter = ',')]
    tables: Vec<PathBuf>,
    /// Memory in all; it runs as many compactions at a time as this has room for
    #[arg(long, env = "SILTSTONE_COMPACTOR_MEMORY", default_value = "1GiB", value_parser = siltstone::parse_size)]
    memory: u64,
    /// Memory that a compaction may take
    #[arg(long, default_value = "128MiB", value_parser = siltstone::parse_size)]
    merge_memory: u64,
    /// Compactions that may wait for others; more are refused
    #[arg(long, default_value_t = 4)]
    queue: u64,
    /// A compaction manager, to which this server announces itself every second
    #[arg(long, env = "SILTSTONE_COMPACTION_MANAGER", value_name = "HOST:PORT")]
    manager: Option<String>,
    /// The address under which databases reach this server, for the manager [default: where it listens]
    #[arg(long, value_name = "HOST:PORT", requires = "manager")]
    advertise: Option<String>,
    /// A file with a secret of 16 bytes or more: only databases and managers that have it too are served.
    /// Without it, and without --tls-client-ca, any process on this machine may have compactions run here
    #[arg(long, env = "SILTSTONE_COMPACTION_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Authority for the manager's certificate, in PEM, if it speaks TLS
    #[arg(long, value_name = "FILE", requires = "manager")]
    manager_ca: Option<PathBuf>,
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    logging: Logging,
}

impl Compactor {
    pub(crate) fn run(self) -> Outcome {
        let _logs = logs::start(&self.logging.log, self.logging.log_format, None).map_err(Failure::Usage)?;
        let (tls, client_ca) = (self.protection.identity(), self.protection.tls_client_ca);
        let config = CompactorConfig {
            listen: self.listen,
            tables: self.tables,
            memory: self.memory,
            merge_memory: self.merge_memory,
            queue: self.queue,
            manager: self.manager,
            advertise: self.advertise,
            // It shows the manager the certificate that it shows to databases.
            manager_tls: self.manager_ca.map(|ca| {
                let (certificate, key) = tls.clone().unzip();
                ClientTls { ca, certificate, key, domain: None }
            }),
            tls: tls.map(|(certificate, key)| ServerTls { certificate, key, client_ca }),
            secret_file: self.secret_file,
            insecure: self.protection.insecure,
        };
        let (stop, stopped) = mpsc::channel();
        interrupt::on_signal(move || {
            let _ = stop.send(());
            None
        });
        let builder = siltstone_server::with_operators(open::builder());
        let server = CompactorServer::start(config, builder).map_err(Failure::Failed)?;
        let mut out = io::stdout().lock();
        // Nobody may be listening.
        let _ = writeln!(out, "compactions are taken at {}", server.listens_at()).and_then(|()| out.flush());
        let _ = stopped.recv();
        drop(server);
        Ok(())
    }
}
