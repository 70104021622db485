//! Answers that wait for their client: messages, and the memory that they take.
//!
//! Waiting bytes are counted until the transport takes them. A client that takes nothing for a minute is
//! given up: its waiting bytes are dropped, whether the transport asks for them or not, and it gets an error
//! if it comes back.

use crate::net::budget::{self, Budget, Lease};
use crate::proto::codec::Checked;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use prost::Message;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

/// Messages of one answer that may wait for the client while more are read.
const MESSAGES_WAITING: usize = 2;
/// After how long a client that takes nothing of an answer is given up.
pub(crate) const SEND_WAIT: Duration = Duration::from_secs(60);
/// The size up to which an answer waits as long as its connection lasts: watching it would cost more.
const SMALL_BYTES: usize = 4 << 10;

/// Messages for a client, and how they end.
pub(crate) type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

struct State<T> {
    /// With the memory that each takes.
    messages: VecDeque<(T, Arc<Lease>)>,
    /// The end of the answer, which follows the messages.
    end: Option<Result<(), Status>>,
    reader: Option<Waker>,
    is_gone: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// The client took a message, or is gone.
    taken: Notify,
}

impl<T> Shared<T> {
    /// Changes the state, and wakes who waits for messages.
    fn change<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        let (changed, reader) = {
            let mut state = self.state.lock();
            (change(&mut state), state.reader.take())
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        changed
    }
}

/// The sender of an answer's messages. Dropping it must not look like the end of a complete answer.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// The messages as the transport takes them.
struct Messages<T>(Arc<Shared<T>>);

/// An answer whose messages come one after the other.
pub(crate) fn queue<T: Send + 'static>() -> (Sender<T>, Streaming<T>) {
    let state = State { messages: VecDeque::new(), end: None, reader: None, is_gone: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), taken: Notify::new() });
    (Sender(shared.clone()), Box::pin(Messages(shared)))
}

/// A complete answer, with the memory of its messages.
pub(crate) fn of<T: Send + 'static>(messages: Vec<T>, bytes: usize, lease: Arc<Lease>) -> Streaming<T> {
    if bytes <= SMALL_BYTES {
        return Box::pin(stream::iter(messages.into_iter().map(Ok)).inspect(move |_| _ = &lease));
    }
    let (sender, answer) = queue();
    sender.0.change(|state| {
        state.messages.extend(messages.into_iter().map(|message| (message, lease.clone())));
        state.end = Some(Ok(()));
    });
    tokio::spawn(async move { sender.until_taken().await });
    answer
}

/// Counts the bytes of a complete answer, if there is room for it; a small one in any case.
pub(crate) fn counted(budget: &Arc<Budget>, bytes: usize) -> Option<Arc<Lease>> {
    match bytes <= SMALL_BYTES {
        true => Some(budget.count(bytes)),
        false => budget.lend_new(bytes),
    }
}

impl<T: Send + 'static> Sender<T> {
    /// Whether the client has enough to take.
    pub(crate) fn is_full(&self) -> bool {
        self.0.state.lock().messages.len() >= MESSAGES_WAITING
    }

    fn is_taken(&self) -> bool {
        self.0.state.lock().messages.is_empty()
    }

    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.state.lock().is_gone
    }

    /// Waits until nobody waits for the answer any more.
    pub(crate) async fn gone(&self) {
        while !self.is_gone() {
            self.0.taken.notified().await;
        }
    }

    /// Appends a message, as soon as there is room. False if the client is gone or given up.
    pub(crate) async fn send(&self, message: T, lease: Arc<Lease>) -> bool {
        loop {
            if self.is_gone() {
                return false;
            }
            if !self.is_full() {
                self.0.change(|state| state.messages.push_back((message, lease)));
                return true;
            }
            if !self.waits().await {
                return false;
            }
        }
    }

    /// Ends the answer, and waits until all of it is taken, or the client is gone or given up.
    pub(crate) async fn end(self, end: Result<(), Status>) {
        self.0.change(|state| _ = state.end.get_or_insert(end));
        self.until_taken().await;
    }

    async fn until_taken(&self) {
        while !self.is_taken() && self.waits().await {}
    }

    /// Waits until the client takes a message; one that takes none for long is given up.
    async fn waits(&self) -> bool {
        let taken = tokio::time::timeout(SEND_WAIT, self.0.taken.notified()).await;
        if taken.is_err() {
            self.0.change(|state| {
                state.messages.clear();
                state.end = Some(Err(given_up()));
            });
        }
        taken.is_ok()
    }
}

/// An answer of one message, with its share of memory.
type Kept<T> = Arc<Mutex<Option<(T, Arc<Lease>)>>>;

/// An answer of one message.
pub(crate) struct Single<T> {
    kept: Kept<T>,
    /// Dropped with it, so that it is not watched any more.
    _watched: Option<oneshot::Sender<()>>,
}

impl<T: Send + 'static> Single<T> {
    /// A message of so many bytes.
    pub(crate) fn new(message: T, bytes: usize, lease: Arc<Lease>) -> Self {
        let kept: Kept<T> = Arc::new(Mutex::new(Some((message, lease))));
        if bytes <= SMALL_BYTES {
            return Self { kept, _watched: None };
        }
        let (watched, taken) = oneshot::channel();
        let own = kept.clone();
        tokio::spawn(async move {
            if tokio::time::timeout(SEND_WAIT, taken).await.is_err() {
                own.lock().take();
            }
        });
        Self { kept, _watched: Some(watched) }
    }
}

impl<T: Message + 'static> Single<T> {
    /// A message for which there is memory already.
    pub(crate) fn of((message, lease): (T, Arc<Lease>)) -> Self {
        let bytes = message.encoded_len();
        Self::new(message, bytes, lease)
    }

    /// A message, if there is memory for it and for its bytes as they are sent.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`.
    pub(crate) fn counted(message: T, memory: &Arc<Budget>) -> Result<Self, Status> {
        let lease = counted(memory, 2 * message.encoded_len()).ok_or_else(budget::no_memory)?;
        Ok(Self::of((message, lease)))
    }
}

impl<T> Single<T> {
    /// The message, if it was not given up.
    pub(crate) fn take(self) -> Result<(T, Arc<Lease>), Status> {
        self.kept.lock().take().ok_or_else(given_up)
    }
}

/// Answers of one message, which may be large, and wait for a while ([`Single`]); and their requests.
pub(crate) struct SingleCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SingleCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Sends the waiting answer.
pub(crate) struct SingleEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for SingleEncoder<T> {
    type Item = Single<T>;
    type Error = Status;

    fn encode(&mut self, single: Single<T>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let (message, _lease) = single.take()?;
        message.encode(into).map_err(|e| Status::internal(e.to_string()))
    }
}

impl<T: Message + 'static, U: Message + Default + 'static> Codec for SingleCodec<T, U> {
    type Encode = Single<T>;
    type Decode = U;
    type Encoder = SingleEncoder<T>;
    type Decoder = Checked<<ProstCodec<T, U> as Codec>::Decoder>;

    fn encoder(&mut self) -> SingleEncoder<T> {
        SingleEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        Checked(ProstCodec::<T, U>::default().decoder())
    }
}

fn given_up() -> Status {
    Status::aborted("nothing of the answer was taken for a minute: go on behind what came")
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change(|state| _ = state.end.get_or_insert_with(|| Err(given_up())));
    }
}

impl<T> Stream for Messages<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.state.lock();
        if let Some((message, _lease)) = state.messages.pop_front() {
            self.0.taken.notify_one();
            return Poll::Ready(Some(Ok(message)));
        }
        match &mut state.end {
            Some(end) => Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err)),
            None => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Messages<T> {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.is_gone = true;
            state.messages.clear();
        });
        self.0.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::budget::Budgets;

    fn budget() -> Arc<Budget> {
        Budgets::new(2 << 20).caller(None, [127, 0, 0, 1].into()).answers.clone()
    }

    #[tokio::test]
    async fn a_sender_that_goes_away_is_an_error_behind_what_it_sent() {
        let told = async |ends: Option<Result<(), Status>>| {
            let (sender, answer) = queue();
            assert!(sender.send(1, budget().count(1)).await);
            match ends {
                Some(end) => drop(tokio::spawn(sender.end(end))),
                None => drop(sender),
            }
            answer.map(|message| message.map_err(|e| e.code())).collect::<Vec<_>>().await
        };
        assert_eq!(told(Some(Ok(()))).await, [Ok(1)]);
        assert_eq!(told(None).await, [Ok(1), Err(tonic::Code::Aborted)]);
        let lost = Status::data_loss("damaged");
        assert_eq!(told(Some(Err(lost))).await, [Ok(1), Err(tonic::Code::DataLoss)]);
    }

    #[tokio::test]
    async fn what_waits_is_counted_until_it_is_taken_or_its_client_is_gone() {
        let budget = budget();
        let lease = || counted(&budget, 100_000).unwrap();
        let mut answer = of(vec![1, 2], 100_000, lease());
        assert_eq!(budget.used(), 100_000);
        assert_eq!(answer.next().await.unwrap().unwrap(), 1);
        assert_eq!(budget.used(), 100_000, "both are counted together");
        assert_eq!(answer.next().await.unwrap().unwrap(), 2);
        assert_eq!(budget.used(), 0);
        assert!(answer.next().await.is_none());
        let answer = of(vec![1], 100_000, lease());
        drop(answer);
        assert_eq!(budget.used(), 0);
        let answer = of(vec![1], 10, counted(&budget, 10).unwrap());
        assert_eq!(budget.used(), 10);
        drop(answer);
        assert_eq!(budget.used(), 0);
        assert!(counted(&budget, 1 << 30).is_none());
    }

    #[tokio::test]
    async fn a_message_is_counted_as_it_is_told_and_as_it_is_sent_or_refused() {
        let budget = budget();
        let message = |bytes: usize| "m".repeat(bytes);
        let answer = Single::counted(message(200_000), &budget).unwrap();
        assert!(budget.used() >= 400_000, "{}", budget.used());
        let refused = Single::counted(message(100_000), &budget).err().unwrap();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        assert!(Single::counted(message(100), &budget).is_ok(), "what is small has room");
        drop(answer.take().unwrap());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up_though_nobody_asks_for_its_messages() {
        let budget = budget();
        let mut answer = of(vec![1, 2], 100_000, budget.count(100_000));
        tokio::time::sleep(SEND_WAIT / 2).await;
        assert_eq!(answer.next().await.unwrap().unwrap(), 1);
        tokio::time::sleep(SEND_WAIT / 2 + Duration::from_secs(1)).await;
        assert_eq!(budget.used(), 100_000, "it took one since");
        tokio::time::sleep(SEND_WAIT).await;
        assert_eq!(budget.used(), 0);
        assert_eq!(answer.next().await.unwrap().unwrap_err().code(), tonic::Code::Aborted);
        assert!(answer.next().await.is_none());
        let single = Single::new(1, 100_000, budget.count(100_000));
        tokio::time::sleep(SEND_WAIT + Duration::from_secs(1)).await;
        assert_eq!(budget.used(), 0);
        assert_eq!(single.take().unwrap_err().code(), tonic::Code::Aborted);
        assert_eq!(Single::new(1, 100_000, budget.count(100_000)).take().unwrap().0, 1);
        let (sender, answer) = queue();
        for n in 0..MESSAGES_WAITING {
            assert!(sender.send(n, budget.count(1_000)).await);
        }
        assert!(!sender.send(9, budget.count(1_000)).await);
        assert_eq!(budget.used(), 0);
        drop(answer);
        assert!(sender.is_gone());
    }
}
