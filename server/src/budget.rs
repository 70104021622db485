//! Memory of calls: what their requests take until they are answered, and what is read for clients that have not taken it yet.
//!
//! There is a budget for requests and one for answers, so that clients that are slow to read do not keep others from asking. All
//! connections share them, and no connection may use more than its part. A request that does not fit is refused as it
//! comes in, before it is put together ([`Counted`]); a scan waits until there is room for its next messages.

use crate::server::Shared;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tonic::Status;
use tower::{Layer, Service};

/// Bytes that may be used, by all or by one connection.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    most: usize,
    /// Scans that wait for room.
    waiting: AtomicUsize,
    /// What it is a part of.
    of: Option<Arc<Budget>>,
}

/// A scan that waits for room, until it is dropped.
pub(crate) struct Waits(Arc<Budget>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budget {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), most, waiting: AtomicUsize::new(0), of: None })
    }

    /// One connection's part: half of the whole.
    fn part(self: &Arc<Self>) -> Arc<Self> {
        let (used, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { used, most: self.most / 2, waiting, of: Some(self.clone()) })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be used.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Counts bytes that are there already.
    pub(crate) fn count(self: &Arc<Self>, bytes: usize) -> Arc<Lease> {
        let lease = self.lease();
        lease.add(bytes);
        lease
    }

    /// Takes bytes of it and of what it is a part of, or nothing.
    fn take(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits =
            before.saturating_add(bytes) <= self.most && self.of.as_ref().is_none_or(|of| of.take(bytes));
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Takes bytes whether there is room or not.
    fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(of) = &self.of {
            of.add(bytes);
        }
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(of) = &self.of {
            of.give_back(bytes);
        }
    }

    fn lease(self: &Arc<Self>) -> Arc<Lease> {
        Arc::new(Lease { budget: self.clone(), bytes: AtomicUsize::new(0) })
    }

    /// Says that a scan waits for room, for as long as what is returned lives.
    pub(crate) fn wait(self: &Arc<Self>) -> Waits {
        let whole = self.of.as_ref().unwrap_or(self);
        whole.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(whole.clone())
    }

    /// The same as [`Budget::lend`] for who comes new: not where others wait already.
    pub(crate) fn lend_new(self: &Arc<Self>, bytes: usize) -> Option<Arc<Lease>> {
        let whole = self.of.as_ref().unwrap_or(self);
        (whole.waiting.load(Ordering::Relaxed) == 0).then(|| self.lend(bytes)).flatten()
    }

    /// Bytes that are in use until the lease is dropped; `None` where there is no room now.
    pub(crate) fn lend(self: &Arc<Self>, bytes: usize) -> Option<Arc<Lease>> {
        let lease = self.lease();
        lease.grow(bytes).then_some(lease)
    }
}

/// Bytes of a budget in use: until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Lease {
    /// Counts bytes that are there already.
    pub(crate) fn add(&self, bytes: usize) {
        self.budget.add(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes so many bytes more; false where there is no room for them now.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let fits = self.budget.take(bytes);
        if fits {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.give_back(*self.bytes.get_mut());
    }
}

/// What is known of a call's connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) requests: Arc<Budget>,
    pub(crate) answers: Arc<Budget>,
}

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Budgets {
    pub(crate) requests: Arc<Budget>,
    pub(crate) answers: Arc<Budget>,
}

impl Budgets {
    /// Of so many bytes together.
    pub(crate) fn new(bytes: u64) -> Self {
        let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        Self { requests: Budget::new(half), answers: Budget::new(half) }
    }

    /// Of one more connection.
    pub(crate) fn peer(&self) -> Peer {
        Peer { requests: self.requests.part(), answers: self.answers.part() }
    }

    pub(crate) fn used(&self) -> usize {
        self.requests.used() + self.answers.used()
    }
}

/// Counts the requests of a service, and takes nothing from who has no token that is known, if there are tokens.
#[derive(Clone)]
pub(crate) struct CountedLayer(pub(crate) Arc<Shared>);

impl<S> Layer<S> for CountedLayer {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, shared: self.0.clone() }
    }
}

/// A service whose requests are counted until they are answered.
#[derive(Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    shared: Arc<Shared>,
}

type Answer<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

impl<S, R> Service<http::Request<tonic::body::Body>> for Counted<S>
where
    S: Service<http::Request<tonic::body::Body>, Response = R>,
    S::Future: Send + 'static,
    R: 'static,
    S::Error: 'static,
{
    type Response = R;
    type Error = S::Error;
    type Future = Answer<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let Some(peer) = request.extensions().get::<Peer>() else {
            return Box::pin(self.inner.call(request));
        };
        let lease = peer.requests.lease();
        let held = lease.clone();
        let header = request.headers().get(http::header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        // The health service asks for none, and its requests are small.
        let is_open = request.uri().path().starts_with("/grpc.health.");
        let refused = if is_open { None } else { self.shared.who_of(header).err() };
        let request = request.map(|body| tonic::body::Body::new(CountedBody { body, lease, refused }));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answered = answer.await;
            drop(held);
            answered
        })
    }
}

/// The bytes of a request, counted as they come in.
struct CountedBody {
    body: tonic::body::Body,
    lease: Arc<Lease>,
    /// Why nothing of it is read.
    refused: Option<Status>,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(refused) = self.refused.take() {
            return Poll::Ready(Some(Err(refused)));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && !self.lease.grow(data.len())
        {
            return Poll::Ready(Some(Err(no_memory())));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What is told to whom there is no memory for.
pub(crate) fn no_memory() -> Status {
    crate::calls::overloaded(tonic::Code::ResourceExhausted, "the memory for calls is in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_over_its_half_and_all_parts_together_never_over_the_whole() {
        let whole = Budget::new(100);
        let (a, b, c) = (whole.part(), whole.part(), whole.part());
        assert!(a.lend(51).is_none() && whole.used() == 0);
        let first = a.lend(50).unwrap();
        let second = b.lend(40).unwrap();
        assert!(c.lend(11).is_none() && c.used() == 0 && whole.used() == 90);
        assert!(second.grow(10) && !second.grow(1));
        drop(first);
        assert_eq!((a.used(), whole.used()), (0, 50));
        drop((c.lend(50).unwrap(), second));
        assert_eq!(whole.used(), 0);
    }
}
