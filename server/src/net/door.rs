//! The door through which calls come: checks caller, rights and size before a request is decoded.
//!
//! A call is looked at as its parts come in. By its headers: the token, the method, and whether one more may
//! be under way. By the first bytes of its request: how long it says it is, and, where there are tokens, the
//! table that it names. Only what the caller may do is taken, piece by piece, each counted in the caller's
//! share, and within a time. Once it is whole it is weighed as what it becomes (`crate::net::wire`), counted
//! for that too, and handed to the service. Its answer goes out as the client takes it; one that takes
//! nothing for long loses the call, and what was read for it is freed.

use crate::config::Config;
use crate::net::access::Access;
use crate::net::auth::Who;
use crate::net::budget::{Budget, Budgets, Caller, Lease, RequestLease, SMALL};
use crate::net::calls::{self, Peer, Slot};
use crate::net::counts::Counts;
use crate::net::methods::{self, Allowed, Method, Said};
use crate::net::wire;
use crate::status::overloaded;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderValue, Request, Response, header};
use http_body::{Body as _, Frame};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service;

/// Bytes before each message: whether it is compressed, and how long it is.
const HEAD: usize = 5;
/// Bytes of a piece of a request that comes in several, at least and at most.
const PIECE: (usize, usize) = (4 << 10, 1 << 20);
/// The first bytes of a request, which must name its table if rights depend on it.
const NAMED_WITHIN: usize = 64 << 10;
/// A request may be slow for that long; then it has to come at that many bytes a second.
const SLOW_START: Duration = Duration::from_secs(5);
const BYTES_A_SECOND: usize = 64 << 10;
/// The interval at which an answer of which nothing is taken is checked, and the time after which it yields
/// to those who wait for its room.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const YIELDS_AFTER: Duration = Duration::from_secs(2);
/// Bytes of an answer that must be taken for the time to begin anew.
const TAKEN_MIN: usize = 16 << 10;
/// Bytes of an answer that are not counted on their way out.
const UNCOUNTED: usize = 1 << 10;

/// How long clients may take for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// To agree on keys and to say the first thing that makes sense.
    pub(crate) begin: Duration,
    /// To say nothing more on a connection without calls.
    pub(crate) idle: Duration,
    /// To send a request to its end.
    request: Duration,
    /// To take something of an answer.
    answer: Duration,
}

impl Waits {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            begin: Duration::from_secs(config.header_seconds),
            idle: Duration::from_secs(config.idle_seconds),
            request: Duration::from_secs(config.request_seconds),
            answer: Duration::from_secs(config.answer_seconds),
        }
    }

    /// How long a request may take of which so many bytes have come.
    fn of_request(&self, came: usize) -> Duration {
        let for_bytes = Duration::from_secs((came / BYTES_A_SECOND) as u64);
        self.request.min(SLOW_START + for_bytes)
    }
}

/// A connection, as its calls see it.
pub(crate) struct Side {
    address: IpAddr,
    /// Who called last, and what this connection has of their share for answers.
    caller: Mutex<Option<(Arc<Caller>, Arc<Budget>)>>,
    /// Calls under way.
    pub(crate) calls: Arc<Counts>,
    /// Calls that were reset before they were answered, lately.
    pub(crate) cancelled: AtomicUsize,
    /// Some of a request has come since this was last looked at.
    pub(crate) is_heard: AtomicBool,
}

impl Side {
    pub(crate) fn new(address: IpAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            caller: Mutex::new(None),
            calls: Arc::default(),
            cancelled: AtomicUsize::new(0),
            is_heard: AtomicBool::new(false),
        })
    }

    fn caller(&self, budgets: &Budgets, token: Option<&str>) -> (Arc<Caller>, Arc<Budget>) {
        let mut last = self.caller.lock();
        if let Some(last) = last.as_ref().filter(|(caller, _)| caller.is(token, self.address)) {
            return last.clone();
        }
        let caller = budgets.caller(token, self.address);
        let answers = caller.answers.of_connection();
        if token.is_none() && last.is_some() {
            // A question for the health between calls with a token: what those have is not forgotten.
            return (caller, answers);
        }
        last.insert((caller, answers)).clone()
    }
}

/// The door.
pub(crate) struct Door {
    access: Arc<Access>,
    routes: Routes,
    pub(crate) waits: Waits,
}

/// The answer of a service, and the call's place among running ones.
struct Answer {
    response: Response<Body>,
    slot: Arc<Slot>,
    /// What counts it on its way out.
    answers: Arc<Budget>,
}

impl Door {
    pub(crate) fn new(access: Arc<Access>, routes: Routes, waits: Waits) -> Arc<Self> {
        Arc::new(Self { access, routes: routes.prepare(), waits })
    }

    /// Answers a call, unless its client resets it.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        side: Arc<Side>,
    ) {
        let answered = {
            let mut handling = pin!(self.handle(request, &side));
            let or_reset = |context: &mut Context<'_>| match handling.as_mut().poll(context) {
                Poll::Ready(answered) => Poll::Ready(Some(answered)),
                Poll::Pending => respond.poll_reset(context).map(|_| None),
            };
            poll_fn(or_reset).await
        };
        let is_sent = match answered {
            None => false,
            Some(Ok(answer)) => self.send(answer, &mut respond).await,
            Some(Err(status)) => respond.send_response(status.into_http(), true).is_ok(),
        };
        if !is_sent {
            side.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets a call in, and has it answered.
    async fn handle(&self, request: Request<RecvStream>, side: &Side) -> Result<Answer, Status> {
        let (parts, mut body) = request.into_parts();
        let path = parts.uri.path();
        let method = methods::of(path).ok_or_else(|| methods::not_served(path))?;
        let header = parts.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let who = if method.is_open() { Who::ANYONE } else { self.access.who(header)? };
        let until = calls::wait_of(&parts.headers).and_then(|wait| Instant::now().checked_add(wait));
        let (caller, answers) = side.caller(&self.access.budgets, who.name());
        let slot = self.access.calls.enter(method.kind, &caller, &side.calls)?;
        let mut lease = RequestLease::new(caller);
        let said = method.said(&parts.headers);
        let whole = self.receive(method, (&who, &said), &mut body, &mut lease, side).await?;
        let mut request = Request::from_parts(parts, Body::new(whole));
        // Counted as long as somebody works on it, also where the client is gone.
        let lease = Arc::new(lease);
        let peer = Peer { answers: answers.clone(), _held: (slot.clone(), lease.clone()) };
        request.extensions_mut().insert(peer);
        let call = self.routes.clone().call(request);
        let response = match until {
            None => call.await,
            Some(until) => match timeout_at(until, call).await {
                Ok(response) => response,
                Err(_) => return Err(Status::deadline_exceeded("the call's time is over")),
            },
        };
        drop(lease);
        match response {
            Ok(response) => Ok(Answer { response, slot, answers }),
            Err(never) => match never {},
        }
    }

    /// Takes a request to its end, as far as its caller may send it.
    async fn receive(
        &self,
        method: &Method,
        (who, said): (&Who, &Said),
        body: &mut RecvStream,
        lease: &mut RequestLease,
        side: &Side,
    ) -> Result<Whole, Status> {
        let mut request = Receiving::default();
        let mut is_allowed = who.name().is_none();
        if !is_allowed {
            method.allows_said(who, said)?;
        }
        let mut began = None;
        loop {
            // Most requests are there with their headers, and need no clock.
            let data = match body.data().now_or_never() {
                Some(data) => data,
                None => {
                    let began = *began.get_or_insert_with(Instant::now);
                    let until = began + self.waits.of_request(request.came);
                    match timeout_at(until, body.data()).await {
                        Ok(data) => data,
                        Err(_) => return Err(too_slow()),
                    }
                }
            };
            let Some(data) = data else { break };
            let data = data.map_err(|e| Status::cancelled(e.to_string()))?;
            let _ = body.flow_control().release_capacity(data.len());
            side.is_heard.store(true, Ordering::Relaxed);
            if request.take(data, method, lease)? {
                break;
            }
            is_allowed = is_allowed || request.is_allowed(method, who, said)?;
        }
        request.end(method, (who, said), lease)
    }

    /// Sends an answer as its client takes it; whether it came to its end.
    async fn send(&self, answer: Answer, respond: &mut SendResponse<Bytes>) -> bool {
        let Answer { response, slot, answers } = answer;
        let (parts, mut body) = response.into_parts();
        let head = Response::from_parts(parts, ());
        if body.is_end_stream() {
            drop(slot);
            return respond.send_response(head, true).is_ok();
        }
        let Ok(mut stream) = respond.send_response(head, false) else { return false };
        loop {
            let or_reset = |context: &mut Context<'_>| match Pin::new(&mut body).poll_frame(context) {
                Poll::Ready(frame) => Poll::Ready(Some(frame)),
                Poll::Pending => stream.poll_reset(context).map(|_| None),
            };
            let frame = match poll_fn(or_reset).await {
                None => return false,
                // The call is over before its client hears that it is.
                Some(None) => {
                    drop(slot);
                    return stream.send_data(Bytes::new(), true).is_ok();
                }
                Some(Some(Err(_))) => {
                    stream.send_reset(Reason::INTERNAL_ERROR);
                    return true;
                }
                Some(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(data) => {
                    if !self.send_data(data, &mut stream, &answers).await {
                        return false;
                    }
                }
                Err(frame) => {
                    drop(slot);
                    return frame.into_trailers().is_ok_and(|last| stream.send_trailers(last).is_ok());
                }
            }
        }
    }

    /// Sends a part of an answer, and no more of it than the client has room for: what it does not take can
    /// be taken back. Returns whether it took all. A client that takes next to nothing for long is given up,
    /// as is one that takes nothing while others wait for the room.
    async fn send_data(&self, data: Bytes, stream: &mut SendStream<Bytes>, answers: &Arc<Budget>) -> bool {
        let mut left = match data.len() {
            0..=UNCOUNTED => data,
            bytes => Bytes::from_owner(Counted { data, _lease: answers.counted(bytes) }),
        };
        let mut waits = None;
        let mut taken = 0;
        while !left.is_empty() {
            stream.reserve_capacity(left.len());
            while stream.capacity() == 0 {
                let began: Instant = *waits.get_or_insert_with(Instant::now);
                match timeout(LOOK_EVERY, poll_fn(|context| stream.poll_capacity(context))).await {
                    Ok(Some(Ok(_))) => {}
                    Ok(_) => return false,
                    Err(_) if began.elapsed() >= self.waits.answer => return give_up(stream),
                    Err(_) if began.elapsed() >= YIELDS_AFTER && answers.is_wanted() => {
                        return give_up(stream);
                    }
                    Err(_) => {}
                }
            }
            let part = left.split_to(stream.capacity().min(left.len()));
            taken += part.len();
            if taken >= TAKEN_MIN {
                answers.is_taken_from();
                (waits, taken) = (None, 0);
            }
            if stream.send_data(part, false).is_err() {
                return false;
            }
        }
        true
    }
}

/// Resets an answer of which nothing is taken, as an error after which clients read on behind what they have.
fn give_up(stream: &mut SendStream<Bytes>) -> bool {
    stream.send_reset(Reason::INTERNAL_ERROR);
    false
}

/// A part of an answer on its way out, counted until it is gone.
struct Counted {
    data: Bytes,
    _lease: Lease,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

fn too_slow() -> Status {
    overloaded(tonic::Code::ResourceExhausted, "the request came too slowly")
}

/// A request on its way in.
#[derive(Default)]
struct Receiving {
    /// One that came in one piece.
    one: Option<Bytes>,
    /// One that came in several, copied, as each holds memory of its connection.
    blocks: Vec<BytesMut>,
    /// Bytes that have come.
    came: usize,
    /// Bytes that it says it has, with those before the message.
    claimed: Option<usize>,
}

impl Receiving {
    /// Takes a piece; whether that is all.
    fn take(&mut self, mut data: Bytes, method: &Method, lease: &mut RequestLease) -> Result<bool, Status> {
        if self.came == 0 && data.len() >= HEAD {
            let claimed = claimed(&data, method)?;
            self.claimed = Some(claimed);
            if data.len() == claimed {
                lease.grow_whole(claimed, claimed <= SMALL)?;
                self.came = claimed;
                self.one = Some(data);
                return Ok(true);
            }
        }
        while !data.is_empty() {
            let room = self.blocks.last().map_or(0, |block| block.capacity() - block.len());
            if room == 0 {
                // Nothing is reserved beyond twice of what came, whatever it says it has.
                let bytes = self.came.max(data.len()).clamp(PIECE.0, PIECE.1);
                let missing = self.claimed.map_or(bytes, |claimed| claimed.saturating_sub(self.came));
                let bytes = bytes.min(missing.max(PIECE.0));
                lease.grow(bytes, self.claimed.is_none_or(|claimed| claimed <= SMALL))?;
                self.blocks.push(BytesMut::with_capacity(bytes));
                continue;
            }
            let part = data.split_to(room.min(data.len()));
            self.came += part.len();
            if let Some(block) = self.blocks.last_mut() {
                block.extend_from_slice(&part);
            }
            if self.claimed.is_none() && self.came >= HEAD {
                self.claimed = Some(claimed(&self.blocks[0], method)?);
            }
            if self.claimed.is_some_and(|claimed| self.came > claimed) {
                return Err(Status::invalid_argument("more than one message in a request"));
            }
        }
        Ok(self.claimed == Some(self.came))
    }

    /// Whether what has come so far says that it may go on; where it does not tell yet, false.
    fn is_allowed(&self, method: &Method, who: &Who, said: &Said) -> Result<bool, Status> {
        let Some(claimed) = self.claimed else { return Ok(false) };
        if siltstone::planted_bug!(RightsAfterBody) {
            return Ok(true);
        }
        match method.allows(who, &self.blocks, HEAD, claimed - HEAD)? {
            Allowed::Yes => Ok(true),
            Allowed::NotYet if self.came < NAMED_WITHIN => Ok(false),
            Allowed::NotYet => match method.allows_said(who, said)? {
                Allowed::Yes => Ok(true),
                Allowed::NotYet => {
                    let message = format!("a request names its table within its first {NAMED_WITHIN} bytes");
                    Err(Status::invalid_argument(message))
                }
            },
        }
    }

    /// Checks all of it, and counts its size when decoded.
    fn end(self, method: &Method, caller: (&Who, &Said), lease: &mut RequestLease) -> Result<Whole, Status> {
        match self.claimed {
            Some(claimed) if claimed == self.came => {}
            _ => return Err(Status::invalid_argument("the request ends before its message does")),
        }
        match self.one {
            Some(one) => {
                look_at(std::slice::from_ref(&one), self.came, method, caller, lease)?;
                Ok(Whole { first: Some(one), rest: Vec::new().into_iter() })
            }
            None => {
                let mut blocks = self.blocks;
                look_at(&blocks, self.came, method, caller, lease)?;
                // Its length goes ahead, so that there is room for all of it where it is put together.
                let head = blocks[0].split_to(HEAD).freeze();
                let rest: Vec<Bytes> = blocks.into_iter().map(BytesMut::freeze).collect();
                Ok(Whole { first: Some(head), rest: rest.into_iter() })
            }
        }
    }
}

/// Checks a complete request.
fn look_at<B: AsRef<[u8]>>(
    pieces: &[B],
    bytes: usize,
    method: &Method,
    (who, said): (&Who, &Said),
    lease: &mut RequestLease,
) -> Result<(), Status> {
    if who.name().is_some() {
        method.allows(who, pieces, HEAD, bytes - HEAD)?;
    }
    method.check_said(said, pieces, HEAD, bytes - HEAD)?;
    if siltstone::planted_bug!(UncountedDecode) {
        return Ok(());
    }
    let becomes = wire::weigh(pieces, HEAD, method.shape, method.request)?;
    lease.grow_whole(becomes, bytes <= SMALL)
}

/// Bytes that a request says it has, with those before its message.
fn claimed(head: &[u8], method: &Method) -> Result<usize, Status> {
    let [compressed, length @ ..] = *head.first_chunk::<HEAD>().unwrap_or(&[0; HEAD]);
    if compressed != 0 {
        return Err(Status::unimplemented("requests that are compressed"));
    }
    let bytes = u32::from_be_bytes(length) as usize;
    if bytes > method.bytes_max {
        let most = method.bytes_max;
        return Err(Status::invalid_argument(format!("the request has {bytes} bytes, the limit is {most}")));
    }
    Ok(HEAD + bytes)
}

/// A request that is there.
struct Whole {
    first: Option<Bytes>,
    rest: std::vec::IntoIter<Bytes>,
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = self.first.take().or_else(|| self.rest.next());
        Poll::Ready(next.map(|data| Ok(Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const MUTATE_ROWS: &str = "/google.bigtable.v2.Bigtable/MutateRows";

    fn framed(claims: u32, message: &[u8]) -> Vec<u8> {
        [&[0u8][..], &claims.to_be_bytes(), message].concat()
    }

    /// Takes a request in pieces; what was reserved for it at most, and how it ended.
    fn taken(pieces: &[Vec<u8>]) -> (usize, Result<usize, Status>) {
        let budgets = Budgets::new(64 << 20);
        let mut lease = RequestLease::new(budgets.caller(None, Ipv4Addr::LOCALHOST.into()));
        let method = methods::of(MUTATE_ROWS).unwrap();
        let mut request = Receiving::default();
        for piece in pieces {
            match request.take(Bytes::copy_from_slice(piece), method, &mut lease) {
                Ok(true) => break,
                Ok(false) => {}
                Err(e) => return (budgets.used(), Err(e)),
            }
        }
        let reserved = budgets.used();
        let whole = request.end(method, (&Who::ANYONE, &Said::default()), &mut lease);
        let bytes =
            |whole: Whole| whole.first.into_iter().chain(whole.rest).map(|piece| piece.len()).sum::<usize>();
        (reserved, whole.map(bytes))
    }

    #[test]
    fn nothing_is_reserved_for_what_a_request_only_says_that_it_has() {
        let claims = framed(200 << 20, &[]);
        let (reserved, ended) = taken(std::slice::from_ref(&claims));
        assert!(reserved <= PIECE.0 && ended.unwrap_err().code() == tonic::Code::InvalidArgument);
        let some: Vec<_> = std::iter::once(claims).chain(vec![vec![b'x'; 10_000]; 100]).collect();
        let (reserved, _) = taken(&some);
        assert!((1_000_000..=2_100_000).contains(&reserved), "{reserved}");
        let (_, over) = taken(&[framed(258 << 20, &[])]);
        assert!(over.unwrap_err().message().contains("limit"));
        let mut small = framed(4, &[18, 2, 10, 0]);
        assert_eq!(taken(std::slice::from_ref(&small)).1.unwrap(), 9);
        let bytes: Vec<_> = small.iter().map(|byte| vec![*byte]).collect();
        assert_eq!(taken(&bytes).1.unwrap(), 9);
        small.push(0);
        assert!(taken(&[small]).1.unwrap_err().message().contains("more than one"));
        let (_, compressed) = taken(&[vec![1, 0, 0, 0, 0]]);
        assert_eq!(compressed.unwrap_err().code(), tonic::Code::Unimplemented);
    }

    #[test]
    fn a_request_may_be_slow_for_a_moment_and_then_has_to_come() {
        let waits = Waits::new(&Config::default());
        assert_eq!(waits.of_request(0), SLOW_START);
        assert_eq!(waits.of_request(10 * BYTES_A_SECOND), SLOW_START + Duration::from_secs(10));
        assert_eq!(waits.of_request(usize::MAX), Duration::from_secs(30));
    }
}
