//! Connections: accepted, counted, and with TLS agreed on keys, each without a wait for the others.
//!
//! The gRPC side and the HTTP side take theirs from [`Connections`]. Certificates are read again when their files change, and hold for
//! connections from then on.

use crate::budget::{Budgets, Peer};
use crate::client_certificates;
use crate::config::TlsConfig;
use crate::watched::Watched;
use futures_util::Stream;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// How long a client may take to agree on keys.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted: mostly for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Connections that wait to be served.
const WAITING: usize = 16;

/// Which protocol is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http,
}

/// Keys and certificates.
pub(crate) struct Tls {
    /// For gRPC and for HTTP.
    acceptors: Watched<(TlsAcceptor, TlsAcceptor)>,
}

impl Tls {
    /// # Errors
    /// A file that cannot be read or is none of its kind.
    pub(crate) fn read(files: &TlsConfig) -> Result<Self, String> {
        let all = [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()];
        let all: Vec<PathBuf> = all.into_iter().flatten().cloned().collect();
        let names = all.clone();
        let make = move |contents: &[Vec<u8>]| acceptors(&names, contents);
        Ok(Self { acceptors: Watched::read(all, Box::new(make))? })
    }

    /// Reads the files again if they have changed; see [`Watched::look`].
    ///
    /// # Errors
    /// What is wrong with the new files. The old certificates go on.
    pub(crate) fn look(&self) -> Result<bool, String> {
        self.acceptors.look()
    }

    /// Whether the files as they are cannot be used.
    pub(crate) fn is_stale(&self) -> bool {
        self.acceptors.is_stale()
    }

    fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let now = self.acceptors.now();
        match protocol {
            Protocol::Grpc => now.0.clone(),
            Protocol::Http => now.1.clone(),
        }
    }
}

fn certificates(file: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let all: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(content).collect();
    let all = all.map_err(|e| wrong(&e))?;
    if all.is_empty() { Err(wrong(&"no certificate in it")) } else { Ok(all) }
}

/// For gRPC and for HTTP, of certificates, their key, and the authority of clients' certificates if there is one.
fn acceptors(files: &[PathBuf], contents: &[Vec<u8>]) -> Result<(TlsAcceptor, TlsAcceptor), String> {
    let ([certificate, key, ca @ ..], [chain, key_content, ..]) = (files, contents) else {
        return Err("a certificate and its key are needed".into());
    };
    let chain = certificates(certificate, chain)?;
    let key = PrivateKeyDer::from_pem_slice(key_content).map_err(|e| format!("{}: {e}", key.display()))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = match ca.first().zip(contents.get(2)) {
        None => builder.with_no_client_auth(),
        Some((file, content)) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file, content)? {
                roots.add(certificate).map_err(|e| format!("{}: {e}", file.display()))?;
            }
            let verifier = client_certificates::verifier(roots, provider);
            builder.with_client_cert_verifier(verifier.map_err(|e| format!("{}: {e}", file.display()))?)
        }
    };
    let config =
        builder.with_single_cert(chain, key).map_err(|e| format!("{}: {e}", certificate.display()))?;
    let speaking = |protocol: &[u8]| {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsAcceptor::from(Arc::new(config))
    };
    Ok((speaking(b"h2"), speaking(b"http/1.1")))
}

/// What connections are accepted with.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) budgets: Budgets,
    /// Connections that are open, on all ports.
    pub(crate) open: Arc<AtomicUsize>,
    /// Connections that may be open.
    pub(crate) most: usize,
}

/// Connections that were accepted on a port. It accepts no more once this is dropped.
pub(crate) struct Connections {
    accepted: mpsc::Receiver<io::Result<Connection>>,
    at: SocketAddr,
}

impl Connections {
    /// Binds the port and accepts on it.
    ///
    /// # Errors
    /// An address that cannot be listened at.
    pub(crate) async fn listen(at: SocketAddr, protocol: Protocol, terms: Terms) -> Result<Self, String> {
        let listener = TcpListener::bind(at).await.map_err(|e| format!("{at}: {e}"))?;
        let at = listener.local_addr().map_err(|e| e.to_string())?;
        let (into, accepted) = mpsc::channel(WAITING);
        tokio::spawn(accept_all(listener, protocol, terms, into));
        Ok(Self { accepted, at })
    }

    /// Where it listens.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.accepted.poll_recv(context)
    }
}

impl axum::serve::Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.accepted.recv().await {
                Some(Ok(connection)) => return (connection, self.at),
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.at)
    }
}

/// Accepts until nobody takes connections any more.
async fn accept_all(
    listener: TcpListener,
    protocol: Protocol,
    terms: Terms,
    into: mpsc::Sender<io::Result<Connection>>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = into.closed() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let open = Open::new(&terms.open);
        if open.before >= terms.most {
            tracing::warn!(%from, most = terms.most, "a connection was closed: too many are open");
            continue;
        }
        // Answers are small, and each is waited for.
        let _ = stream.set_nodelay(true);
        let peer = terms.budgets.peer();
        let Some(tls) = &terms.tls else {
            let connection = Connection { stream: Transport::Plain(stream), peer, _open: open };
            if into.send(Ok(connection)).await.is_err() {
                return;
            }
            continue;
        };
        let (acceptor, into) = (tls.acceptor(protocol), into.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_WAIT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let connection =
                        Connection { stream: Transport::Tls(Box::new(stream)), peer, _open: open };
                    let _ = into.send(Ok(connection)).await;
                }
                Ok(Err(error)) => tracing::debug!(%from, %error, "no TLS with a client"),
                Err(_) => tracing::debug!(%from, "a client took too long to agree on keys"),
            }
        });
    }
}

/// Counts a connection for as long as it is there.
struct Open {
    all: Arc<AtomicUsize>,
    before: usize,
}

impl Open {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        Self { all: all.clone(), before: all.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection, with TLS or without.
pub(crate) struct Connection {
    stream: Transport,
    peer: Peer,
    _open: Open,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(context),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
