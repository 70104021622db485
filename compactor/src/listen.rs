//! Connections that come to a manager or a compaction server: counted, encrypted with certificates that may
//! change, and closed where no call is let in soon.

use crate::tls::Tls;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::Connected;

/// Connections that may be open on a port; more are closed at once.
const CONNECTIONS_MAX: usize = 1 << 10;
/// How long a client may take to agree on keys, and then until a call of it is let in.
const FIRST_CALL_WAIT: Duration = Duration::from_secs(10);
/// After how long a client that says nothing is asked whether it lives, and after how long it does not.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));
/// Calls of a connection at a time.
const STREAMS_MAX: u32 = 64;
/// Bytes of the headers of a call.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// How long a call may take until its answer begins.
const CALL_WAIT: Duration = Duration::from_secs(20);
/// Connections that wait to be served.
const WAITING: usize = 16;
/// How long to wait after a connection could not be accepted: mostly for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A server with limits for each connection.
pub(crate) fn bounded() -> Server {
    Server::builder()
        .timeout(CALL_WAIT)
        .http2_keepalive_interval(Some(KEEP_ALIVE.0))
        .http2_keepalive_timeout(Some(KEEP_ALIVE.1))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
}

/// What bounds the connections of a port.
#[derive(Clone, Copy)]
struct Limits {
    connections: usize,
    first_call: Duration,
}

/// The connections that come, as long as somebody takes them. Inside a runtime.
pub(crate) fn connections(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
) -> ReceiverStream<io::Result<Connection>> {
    bounded_connections(listener, tls, Limits { connections: CONNECTIONS_MAX, first_call: FIRST_CALL_WAIT })
}

fn bounded_connections(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    limits: Limits,
) -> ReceiverStream<io::Result<Connection>> {
    let (into, accepted) = mpsc::channel(WAITING);
    tokio::spawn(accept_all(listener, tls, limits, into));
    ReceiverStream::new(accepted)
}

async fn accept_all(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    into: mpsc::Sender<io::Result<Connection>>,
) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = into.closed() => return,
        };
        let Ok((stream, from)) = accepted else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let counted = Open::new(&open);
        if counted.before >= limits.connections {
            tracing::warn!(target: "siltstone", %from, "a connection was closed: too many are open");
            continue;
        }
        // Answers do not wait for more to be sent with them.
        let _ = stream.set_nodelay(true);
        let connection = move |stream: Transport| Connection {
            stream,
            peer: Peer::default(),
            until: Some(Box::pin(tokio::time::sleep(limits.first_call))),
            _open: counted,
        };
        let Some(tls) = &tls else {
            if into.send(Ok(connection(Transport::Plain(stream)))).await.is_err() {
                return;
            }
            continue;
        };
        let (acceptor, into) = (tls.acceptor(), into.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(limits.first_call, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(into.send(Ok(connection(Transport::Tls(Box::new(stream))))).await),
                Ok(Err(error)) => tracing::debug!(target: "siltstone", %from, %error, "no TLS with a client"),
                Err(_) => {
                    tracing::debug!(target: "siltstone", %from, "a client took too long to agree on keys")
                }
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

/// Who is at the other end of a connection, as far as its calls show.
#[derive(Clone, Default)]
pub(crate) struct Peer {
    was_let_in: Arc<AtomicBool>,
}

impl Peer {
    /// A call of it is served.
    pub(crate) fn let_in(&self) {
        self.was_let_in.store(true, Ordering::Relaxed);
    }
}

/// A connection, with TLS or without.
pub(crate) struct Connection {
    stream: Transport,
    peer: Peer,
    /// When it is closed unless a call was let in by then.
    until: Option<Pin<Box<Sleep>>>,
    _open: Open,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Whether it has had the time that it has for its first call.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let Some(until) = &mut self.until else { return false };
        if self.peer.was_let_in.load(Ordering::Relaxed) {
            self.until = None;
            return false;
        }
        until.as_mut().poll(context).is_ready()
    }
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
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio_stream::StreamExt;

    async fn listening(limits: Limits) -> (std::net::SocketAddr, ReceiverStream<io::Result<Connection>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        (at, bounded_connections(listener, None, limits))
    }

    #[tokio::test]
    async fn more_connections_than_may_be_open_are_closed_at_once() {
        let limits = Limits { connections: 2, first_call: Duration::from_secs(60) };
        let (at, mut accepted) = listening(limits).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(at).await.unwrap());
        }
        let first = accepted.next().await.unwrap().unwrap();
        let _second = accepted.next().await.unwrap().unwrap();
        // The end of the stream, or a reset.
        let read = clients.pop().unwrap().read(&mut [0; 1]).await;
        assert!(read.is_err() || read.is_ok_and(|bytes| bytes == 0), "the third is closed");
        drop(first);
        let _fourth = TcpStream::connect(at).await.unwrap();
        assert!(accepted.next().await.unwrap().is_ok(), "there is room again");
    }

    #[tokio::test]
    async fn a_connection_of_which_no_call_is_let_in_is_closed_and_another_stays() {
        let limits = Limits { connections: 2, first_call: Duration::from_millis(50) };
        let (at, mut accepted) = listening(limits).await;
        let _silent = TcpStream::connect(at).await.unwrap();
        let mut silent = accepted.next().await.unwrap().unwrap();
        let closed = silent.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::TimedOut);
        let client = TcpStream::connect(at).await.unwrap();
        let mut served = accepted.next().await.unwrap().unwrap();
        served.connect_info().let_in();
        tokio::time::sleep(limits.first_call * 2).await;
        client.writable().await.unwrap();
        client.try_write(b"x").unwrap();
        assert_eq!(served.read(&mut [0; 1]).await.unwrap(), 1);
    }
}
