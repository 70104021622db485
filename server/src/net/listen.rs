//! Connections: accepted, counted, and with TLS agreed on keys, each without a wait for the others.
//!
//! The gRPC side and the HTTP side take theirs from [`Connections`]. All ports have a number of [`Places`],
//! and no address may have more than half of a port's. Where there is none left for one more, the oldest that
//! has not said anything yet makes room. Certificates are read again when their files change, and hold for
//! connections from then on.

use crate::config::TlsConfig;
use crate::net::budget::network_of;
use crate::net::client_certificates;
use crate::net::files::Watched;
use parking_lot::Mutex;
use siltstone_compactor::server_config;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long to wait after a connection could not be accepted: mostly for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

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

/// For gRPC and for HTTP, of certificates, their key, and the authority of clients' certificates if there is
/// one.
fn acceptors(files: &[PathBuf], contents: &[Vec<u8>]) -> Result<(TlsAcceptor, TlsAcceptor), String> {
    let config = server_config(files, contents, client_certificates::verifier)?;
    let speaking = |protocol: &[u8]| {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsAcceptor::from(Arc::new(config))
    };
    Ok((speaking(b"h2"), speaking(b"http/1.1")))
}

/// How many connections a port may have, and those that it has.
pub(crate) struct Places {
    taken: Mutex<Taken>,
    most: usize,
}

#[derive(Default)]
struct Taken {
    count: usize,
    of: HashMap<IpAddr, usize>,
    /// Connections that have not said anything yet, in the order in which they came.
    silent: BTreeMap<u64, (IpAddr, Arc<Eviction>)>,
    next: u64,
}

impl Taken {
    fn leave(&mut self, address: IpAddr) {
        self.count -= 1;
        if let Some(count) = self.of.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&address);
            }
        }
    }

    /// Has the oldest go that has not said anything yet: of that address, or of all. Whether there is one.
    fn evict(&mut self, of: Option<IpAddr>) -> bool {
        let mut silent = self.silent.iter();
        let oldest = silent.find(|(_, (address, _))| of.is_none_or(|of| of == *address));
        let Some((address, eviction)) = oldest.map(|(id, _)| *id).and_then(|id| self.silent.remove(&id))
        else {
            return false;
        };
        self.leave(address);
        eviction.is_out.store(true, Ordering::Relaxed);
        eviction.told.notify_one();
        true
    }
}

/// Tells a connection that it is to go.
#[derive(Default)]
struct Eviction {
    is_out: AtomicBool,
    told: Notify,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), most })
    }

    /// Connections that are open.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().count
    }

    /// A place for a connection from there, if there is one or can be.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let address = network_of(from);
        let mut taken = self.taken.lock();
        if taken.of.get(&address).is_some_and(|count| *count >= self.most.div_ceil(2)) {
            if !taken.evict(Some(address)) {
                return None;
            }
        } else if taken.count >= self.most && !taken.evict(None) {
            return None;
        }
        taken.count += 1;
        *taken.of.entry(address).or_default() += 1;
        let (id, eviction) = (taken.next, Arc::<Eviction>::default());
        taken.next += 1;
        taken.silent.insert(id, (address, eviction.clone()));
        drop(taken);
        Some(Place { places: self.clone(), address, id, eviction })
    }
}

/// A connection's place: until it is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    address: IpAddr,
    id: u64,
    eviction: Arc<Eviction>,
}

impl Place {
    /// The origin of a connection: an address, or a network.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// It has said something that makes sense, and stays.
    pub(crate) fn stays(&self) {
        self.places.taken.lock().silent.remove(&self.id);
    }

    /// Waits until it must make room for another.
    pub(crate) async fn evicted(&self) {
        self.eviction.told.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.silent.remove(&self.id);
        // Otherwise it was subtracted when it was told to go.
        if !self.eviction.is_out.load(Ordering::Relaxed) {
            taken.leave(self.address);
        }
    }
}

/// A port at which connections are accepted. It accepts no more once this is dropped.
pub(crate) struct Connections {
    listener: TcpListener,
    at: SocketAddr,
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    places: Arc<Places>,
}

impl Connections {
    /// Binds the port.
    ///
    /// # Errors
    /// An address that cannot be listened at.
    pub(crate) async fn listen(
        at: SocketAddr,
        protocol: Protocol,
        tls: Option<Arc<Tls>>,
        places: Arc<Places>,
    ) -> Result<Self, String> {
        let listener = TcpListener::bind(at).await.map_err(|e| format!("{at}: {e}"))?;
        let at = listener.local_addr().map_err(|e| e.to_string())?;
        Ok(Self { listener, at, protocol, tls, places })
    }

    /// The address at which it listens.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    /// The next connection that there is a place for.
    pub(crate) async fn accept(&self) -> (Socket, Place) {
        loop {
            let (stream, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            let Some(place) = self.places.take(from.ip()) else {
                tracing::warn!(%from, most = self.places.most, "a connection was closed: too many are open");
                continue;
            };
            // Answers are small, and each is waited for.
            let _ = stream.set_nodelay(true);
            let acceptor = self.tls.as_ref().map(|tls| tls.acceptor(self.protocol));
            return (Socket { stream, from, acceptor }, place);
        }
    }
}

/// A connection of which nothing is known yet.
pub(crate) struct Socket {
    stream: TcpStream,
    from: SocketAddr,
    acceptor: Option<TlsAcceptor>,
}

impl Socket {
    /// Agrees on keys, if it is to have some.
    pub(crate) async fn agree(self) -> Option<Connection> {
        let Some(acceptor) = self.acceptor else { return Some(Connection::Plain(self.stream)) };
        match acceptor.accept(self.stream).await {
            Ok(stream) => Some(Connection::Tls(Box::new(stream))),
            Err(error) => {
                tracing::debug!(from = %self.from, %error, "no TLS with a client");
                None
            }
        }
    }
}

/// A connection, with TLS or without.
pub(crate) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::net::Ipv4Addr;

    fn from(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn an_address_has_half_of_the_places_and_the_oldest_that_is_silent_makes_room() {
        let places = Places::new(4);
        let first = places.take(from(1)).unwrap();
        let second = places.take(from(1)).unwrap();
        let third = places.take(from(1)).unwrap();
        assert!(first.evicted().now_or_never().is_some() && second.evicted().now_or_never().is_none());
        assert_eq!(places.taken(), 2, "who must go is counted no more");
        drop(first);
        second.stays();
        third.stays();
        assert!(places.take(from(1)).is_none(), "who has spoken stays");
        let others = [places.take(from(2)).unwrap(), places.take(from(3)).unwrap()];
        others[0].stays();
        let last = places.take(from(4)).unwrap();
        assert!(others[1].evicted().now_or_never().is_some());
        last.stays();
        assert!(places.take(from(5)).is_none() && places.taken() == 4);
        drop((second, third, others, last));
        let taken = places.taken.lock();
        assert!(taken.count == 0 && taken.of.is_empty() && taken.silent.is_empty());
    }
}
