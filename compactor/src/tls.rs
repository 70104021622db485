//! Encrypted connections, and who may connect: certificates on both sides where they are given.

use std::path::PathBuf;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Files of a server that speaks TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// Its certificate and those above it, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// Who signs the certificates of databases, in PEM. One without such a certificate is turned away.
    pub client_ca: Option<PathBuf>,
}

/// Files of a database that speaks TLS with its compaction servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Who signs the certificates of servers, in PEM.
    pub ca: PathBuf,
    /// Its own certificate, in PEM, for servers that ask for one.
    pub certificate: Option<PathBuf>,
    /// The key of that, in PEM.
    pub key: Option<PathBuf>,
    /// The name that servers' certificates have, where it is not the host of their address.
    pub domain: Option<String>,
}

fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

impl ServerTls {
    pub(crate) fn config(&self) -> Result<ServerTlsConfig, String> {
        let identity = Identity::from_pem(read(&self.certificate)?, read(&self.key)?);
        let config = ServerTlsConfig::new().identity(identity);
        Ok(match &self.client_ca {
            Some(ca) => config.client_ca_root(Certificate::from_pem(read(ca)?)),
            None => config,
        })
    }
}

impl ClientTls {
    pub(crate) fn config(&self) -> Result<ClientTlsConfig, String> {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&self.ca)?));
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        if let Some(domain) = &self.domain {
            config = config.domain_name(domain.clone());
        }
        Ok(config)
    }
}
