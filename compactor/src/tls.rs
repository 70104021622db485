//! Encrypted connections, and who may connect: certificates on both sides where they are given. Files are
//! read again when their contents change; what cannot be used leaves the certificates of before in force.

use crate::files::file_content;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

fn read(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    files.iter().map(|file| file_content(file)).collect()
}

fn certificates(path: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    let all = all.map_err(|e| format!("{}: {e}", path.display()))?;
    if all.is_empty() { Err(format!("{}: no certificate in it", path.display())) } else { Ok(all) }
}

fn roots(path: &Path, content: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, content)? {
        roots.add(certificate).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(roots)
}

/// Something that is made of files, and made anew when their contents change.
struct OfFiles<T> {
    files: Vec<PathBuf>,
    contents: Vec<Vec<u8>>,
    made: T,
    looked: Instant,
    /// What was wrong with the files when it was told last.
    told: Option<String>,
}

impl<T> OfFiles<T> {
    fn read(
        files: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, String>,
    ) -> Result<OfFiles<T>, String> {
        let contents = read(&files)?;
        Ok(Self { made: make(&contents)?, files, contents, looked: Instant::now(), told: None })
    }

    /// Makes it anew where it is time to look, and the files have changed; whether they have.
    fn look(&mut self, every: Duration, make: impl Fn(&[Vec<u8>]) -> Result<T, String>) -> bool {
        if self.looked.elapsed() < every {
            return false;
        }
        self.looked = Instant::now();
        let made = match read(&self.files) {
            Ok(contents) if contents == self.contents => {
                self.told = None;
                return false;
            }
            contents => contents.and_then(|contents| Ok((make(&contents)?, contents))),
        };
        match made {
            Ok((made, contents)) => {
                (self.made, self.contents, self.told) = (made, contents, None);
                tracing::info!(target: "siltstone", "certificates of compaction were read again");
                true
            }
            Err(why) => {
                if self.told.as_ref() != Some(&why) {
                    tracing::warn!(target: "siltstone", "the certificates of before stay in force: {why}");
                    self.told = Some(why);
                }
                false
            }
        }
    }
}

/// The certificates of a server.
pub(crate) struct Tls {
    files: ServerTls,
    acceptor: Mutex<OfFiles<TlsAcceptor>>,
    is_stale: AtomicBool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({})", self.files.certificate.display())
    }
}

/// What a server speaks TLS with: its certificate, the key, and, where there is one, who signs those of
/// clients, in PEM, by their files and the contents of these. `verifier` says which certificates of clients
/// that hang on these roots are taken.
///
/// # Errors
/// What is wrong with a file, by its path.
pub fn server_config(
    files: &[PathBuf],
    contents: &[Vec<u8>],
    verifier: impl FnOnce(RootCertStore, Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String>,
) -> Result<ServerConfig, String> {
    let ([certificate, key, ca @ ..], [chain, key_content, ..]) = (files, contents) else {
        return Err("a certificate and its key are needed".into());
    };
    let chain = certificates(certificate, chain)?;
    let key = PrivateKeyDer::from_pem_slice(key_content).map_err(|e| format!("{}: {e}", key.display()))?;
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = match ca.first().zip(contents.get(2)) {
        None => builder.with_no_client_auth(),
        Some((file, content)) => {
            let verifier = verifier(roots(file, content)?, provider);
            builder.with_client_cert_verifier(verifier.map_err(|e| format!("{}: {e}", file.display()))?)
        }
    };
    builder.with_single_cert(chain, key).map_err(|e| format!("{}: {e}", certificate.display()))
}

/// A verifier of all certificates that hang on these.
fn any_of(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|e| e.to_string())
}

impl ServerTls {
    fn paths(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }

    fn acceptor(&self, contents: &[Vec<u8>]) -> Result<TlsAcceptor, String> {
        let mut config = server_config(&self.paths(), contents, any_of)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl Tls {
    pub(crate) fn read(files: &ServerTls) -> Result<Arc<Self>, String> {
        let acceptor = OfFiles::read(files.paths(), |contents| files.acceptor(contents))?;
        let (acceptor, is_stale) = (Mutex::new(acceptor), AtomicBool::new(false));
        Ok(Arc::new(Self { files: files.clone(), acceptor, is_stale }))
    }

    /// For the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.look(LOOK_EVERY);
        self.acceptor.lock().made.clone()
    }

    /// Reads the files again where it is time to.
    pub(crate) fn look_if_due(&self) {
        self.look(LOOK_EVERY);
    }

    /// Whether the files as they are cannot be used. Waits for no look.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    fn look(&self, every: Duration) -> bool {
        let mut acceptor = self.acceptor.lock();
        let is_new = acceptor.look(every, |contents| self.files.acceptor(contents));
        self.is_stale.store(acceptor.told.is_some(), Ordering::Relaxed);
        is_new
    }
}

/// The certificates with which servers are reached.
pub(crate) struct Certificates {
    files: ClientTls,
    now: Mutex<(OfFiles<ClientTlsConfig>, u64)>,
    is_stale: AtomicBool,
}

impl ClientTls {
    fn config(&self, contents: &[Vec<u8>]) -> Result<ClientTlsConfig, String> {
        roots(&self.ca, &contents[0])?;
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&contents[0]));
        if let [_, certificate, key] = contents {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            config = config.domain_name(domain.clone());
        }
        // Certificate and key are looked at where an endpoint takes them.
        let endpoint = Endpoint::from_static("https://localhost:1").tls_config(config.clone());
        endpoint.map_err(|e| {
            let file = self.certificate.as_ref().unwrap_or(&self.ca);
            format!("{}: {e}", file.display())
        })?;
        Ok(config)
    }
}

impl Certificates {
    pub(crate) fn read(files: &ClientTls) -> Result<Self, String> {
        let own = files.certificate.iter().zip(&files.key).flat_map(|(certificate, key)| [certificate, key]);
        let paths = std::iter::once(&files.ca).chain(own).cloned().collect();
        let config = OfFiles::read(paths, |contents| files.config(contents))?;
        Ok(Self { files: files.clone(), now: Mutex::new((config, 0)), is_stale: AtomicBool::new(false) })
    }

    /// How often they have changed.
    pub(crate) fn version(&self) -> u64 {
        self.look(LOOK_EVERY)
    }

    fn look(&self, every: Duration) -> u64 {
        let mut now = self.now.lock();
        if now.0.look(every, |contents| self.files.config(contents)) {
            now.1 += 1;
        }
        self.is_stale.store(now.0.told.is_some(), Ordering::Relaxed);
        now.1
    }

    /// Whether the files as they are cannot be used. Waits for no look.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    pub(crate) fn config(&self) -> ClientTlsConfig {
        self.now.lock().0.made.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn certificates_are_read_again_by_content_and_a_broken_file_leaves_those_of_before() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let sign = || {
            let (params, own) = (CertificateParams::new(Vec::new()).unwrap(), KeyPair::generate().unwrap());
            std::fs::write(&key, own.serialize_pem()).unwrap();
            std::fs::write(&cert, params.self_signed(&own).unwrap().pem()).unwrap();
        };
        sign();
        let client = ClientTls {
            ca: cert.clone(),
            certificate: Some(cert.clone()),
            key: Some(key.clone()),
            domain: None,
        };
        let server = ServerTls { certificate: cert.clone(), key: key.clone(), client_ca: Some(cert.clone()) };
        let (client, server) = (Certificates::read(&client).unwrap(), Tls::read(&server).unwrap());
        let look = || (client.look(Duration::ZERO), server.look(Duration::ZERO));
        let stale = || (client.is_stale(), server.is_stale());
        assert_eq!(look(), (0, false));
        // The same content, written anew, is no change.
        std::fs::write(&cert, std::fs::read(&cert).unwrap()).unwrap();
        assert_eq!(look(), (0, false));
        sign();
        assert_eq!(look(), (1, true));
        for broken in ["", "no certificate"] {
            std::fs::write(&cert, broken).unwrap();
            assert_eq!((look(), stale()), ((1, false), (true, true)), "{broken:?}");
        }
        std::fs::remove_file(&cert).unwrap();
        assert_eq!((look(), stale()), ((1, false), (true, true)));
        // Something that is no regular file is not opened.
        std::fs::create_dir(&cert).unwrap();
        assert_eq!((look(), stale()), ((1, false), (true, true)));
        std::fs::remove_dir(&cert).unwrap();
        sign();
        assert_eq!((look(), stale()), ((2, true), (false, false)));
    }
}
