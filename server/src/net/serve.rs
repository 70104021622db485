//! Connections served: HTTP/2 for calls, HTTP/1 for the page.
//!
//! Each connection has a task, and each call one of its own. A connection ends when it does not begin in
//! time, when its client does not answer any more, when nothing was asked on it for long, and when its client
//! resets more calls than anybody has a use for. What one call does ends no other.

use crate::net::door::{Door, Side, Waits};
use crate::net::listen::{Connection, Connections, Place, Socket};
use axum::Router;
use bytes::Bytes;
use h2::{Ping, PingPong, Reason, server};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep, timeout};
use tower::Service;

/// How often a client is asked whether it is there, and how long it may take to say so.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Calls of a connection at a time.
const STREAMS_MAX: u32 = 256;
/// Calls that may have been reset before they were looked at.
const RESET_UNSEEN_MAX: usize = 4_096;
/// Resets of our own that are remembered, so that what was still on its way for them is no error; and errors
/// of streams in all.
const RESETS_REMEMBERED: usize = 1_024;
const STREAM_ERRORS_MAX: usize = 16_384;
/// Calls of a connection that its client may reset within a second.
const CANCELLED_MAX: usize = 10_000;
/// Bytes of the headers of a call.
const HEADERS_MAX: u32 = 16 << 10;
/// Bytes of requests that may be on their way: of a call, and of a connection.
const WINDOW: (u32, u32) = (1 << 20, 4 << 20);
/// Bytes of an answer that wait to be written to a connection.
const SEND_BUFFER: usize = 256 << 10;
/// How long a connection of the page is used, and how long its last answer may take.
const PAGE_CONNECTION: Duration = Duration::from_secs(60);
const PAGE_LAST: Duration = Duration::from_secs(10);

/// Serves connections until it is told to stop, and then ends when they have.
async fn serve<F: Future<Output = ()> + Send + 'static>(
    connections: Connections,
    mut stopped: watch::Receiver<bool>,
    each: impl Fn(Socket, Place, watch::Receiver<bool>) -> F,
) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            (socket, place) = connections.accept() => { let _ = tasks.spawn(each(socket, place, stopped.clone())); }
            () = told(&mut stopped) => break,
            Some(_) = tasks.join_next() => {}
        }
    }
    drop(connections);
    while tasks.join_next().await.is_some() {}
}

/// Waits until it is to stop.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Agrees on keys, and does what else begins a connection: within that time, as long as nobody else needs its
/// place more.
async fn begin<T>(
    place: &Place,
    within: Duration,
    stopped: &mut watch::Receiver<bool>,
    begun: impl Future<Output = Option<T>>,
) -> Option<T> {
    tokio::select! {
        begun = timeout(within, begun) => begun.ok().flatten(),
        () = place.evicted() => None,
        () = told(stopped) => None,
    }
}

/// Serves calls.
pub(crate) async fn calls(connections: Connections, door: Arc<Door>, stopped: watch::Receiver<bool>) {
    serve(connections, stopped, |socket, place, stopped| {
        let door = door.clone();
        async move { calls_of(socket, place, door, stopped).await }
    })
    .await;
}

async fn calls_of(socket: Socket, place: Place, door: Arc<Door>, mut stopped: watch::Receiver<bool>) {
    let begun = async {
        let connection = socket.agree().await?;
        settings().handshake::<Connection, Bytes>(connection).await.ok()
    };
    let Some(mut http2) = begin(&place, door.waits.begin, &mut stopped, begun).await else { return };
    place.stays();
    let side = Side::new(place.address());
    let mut pulse = Pulse::new(http2.ping_pong());
    let every = KEEPALIVE.min(door.waits.idle);
    let mut beats = interval_at(Instant::now() + every, every);
    let (mut used, mut is_ending) = (Instant::now(), false);
    let mut cancelled_since = Instant::now();
    loop {
        let accepted = tokio::select! {
            accepted = http2.accept() => accepted,
            _ = beats.tick() => {
                if !pulse.is_there(&side) {
                    return;
                }
                if side.calls.all() > 0 {
                    used = Instant::now();
                } else if used.elapsed() >= door.waits.idle && !is_ending {
                    http2.graceful_shutdown();
                    is_ending = true;
                }
                continue;
            }
            () = told(&mut stopped), if !is_ending => {
                http2.graceful_shutdown();
                is_ending = true;
                continue;
            }
        };
        let Some(Ok((request, respond))) = accepted else { return };
        used = Instant::now();
        if used.duration_since(cancelled_since) >= Duration::from_secs(1) {
            cancelled_since = used;
            side.cancelled.store(0, Ordering::Relaxed);
        }
        if side.cancelled.load(Ordering::Relaxed) > CANCELLED_MAX {
            http2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            is_ending = true;
            continue;
        }
        tokio::spawn(door.clone().answer(request, respond, side.clone()));
    }
}

/// The HTTP/2 settings: what clients are told about frames, and what is accepted of them.
fn settings() -> server::Builder {
    let mut settings = server::Builder::new();
    settings
        .initial_window_size(WINDOW.0)
        .initial_connection_window_size(WINDOW.1)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESET_UNSEEN_MAX)
        .max_concurrent_reset_streams(RESETS_REMEMBERED)
        .max_local_error_reset_streams(Some(STREAM_ERRORS_MAX))
        .max_header_list_size(HEADERS_MAX)
        .max_send_buffer_size(SEND_BUFFER);
    settings
}

/// Asks a client whether it is there.
struct Pulse {
    ping_pong: Option<PingPong>,
    is_asked: bool,
}

impl Pulse {
    fn new(ping_pong: Option<PingPong>) -> Self {
        Self { ping_pong, is_asked: false }
    }

    /// Whether it has answered since the last time, or sent something that came before the answer. Asks
    /// again.
    fn is_there(&mut self, side: &Side) -> bool {
        let is_heard = side.is_heard.swap(false, Ordering::Relaxed);
        let Some(ping_pong) = &mut self.ping_pong else { return true };
        if self.is_asked {
            // The next beat reads this, whatever woke the task.
            match ping_pong.poll_pong(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return false,
                Poll::Pending => return is_heard,
            }
        }
        self.is_asked = ping_pong.send_ping(Ping::opaque()).is_ok();
        true
    }
}

/// Serves the page.
pub(crate) async fn page(
    connections: Connections,
    router: Router,
    waits: Waits,
    stopped: watch::Receiver<bool>,
) {
    serve(connections, stopped, |socket, place, stopped| {
        let router = router.clone();
        async move { page_of(socket, place, router, waits, stopped).await }
    })
    .await;
}

async fn page_of(
    socket: Socket,
    place: Place,
    router: Router,
    waits: Waits,
    mut stopped: watch::Receiver<bool>,
) {
    let began = Instant::now();
    let Some(connection) = begin(&place, waits.begin, &mut stopped, socket.agree()).await else { return };
    let place = &place;
    let service = service_fn(move |request: Request<Incoming>| {
        place.stays();
        router.clone().call(request)
    });
    let left = waits.begin.saturating_sub(began.elapsed());
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(left.max(Duration::from_millis(1)))
        .serve_connection(TokioIo::new(connection), service);
    let mut serving = pin!(serving);
    let ends = async {
        tokio::select! {
            () = sleep(PAGE_CONNECTION) => {}
            () = told(&mut stopped) => {}
        }
    };
    tokio::select! {
        _ = serving.as_mut() => return,
        () = place.evicted() => return,
        () = ends => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = timeout(PAGE_LAST, serving).await;
}
