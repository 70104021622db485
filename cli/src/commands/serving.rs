//! Flags that all commands have which listen: what protects them, and what they log.

use crate::logs;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Protection {
    /// The server's certificate, in PEM; with --tls-key, connections are encrypted
    #[arg(long, env = "SILTSTONE_TLS_CERTIFICATE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The server's key, in PEM
    #[arg(long, env = "SILTSTONE_TLS_KEY", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Authority for the certificates of clients, in PEM; a client without one is turned away
    #[arg(long, env = "SILTSTONE_TLS_CLIENT_CA", requires = "tls_certificate")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Listen beyond this machine although nothing protects the server
    #[arg(long, env = "SILTSTONE_INSECURE")]
    pub(crate) insecure: bool,
}

impl Protection {
    /// Certificate and key.
    pub(crate) fn identity(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls_certificate.clone().zip(self.tls_key.clone())
    }
}

#[derive(Args)]
pub(crate) struct Logging {
    /// Filter of the log on standard error: a level, or levels by part, such as warn,siltstone=debug
    #[arg(long, env = "SILTSTONE_LOG", default_value = "info")]
    pub(crate) log: String,
    /// How it is written
    #[arg(long, env = "SILTSTONE_LOG_FORMAT", default_value = "text")]
    pub(crate) log_format: logs::Format,
}
