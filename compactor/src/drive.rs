//! A compaction running on a server, as the database sees it: receives its answers, and lets it go on.

use crate::directory::Server;
use crate::fetch::Memory;
use crate::protocol::stubs::compactor_client::CompactorClient;
use crate::protocol::{
    Begin, Begun, ClientRequest, Fetch, GoAhead, MESSAGE_BYTES_MAX, ServerMessage, Store, Waits, asking,
};
use crate::table_transfer::answer;
use crate::watch::Watch;
use siltstone::offload::{CompactionAnswer, CompactionTables, OffloadedCompaction, RemoteCache};
use siltstone::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How long a compaction may wait for others on a server before the database takes it back.
const QUEUE_WAIT: Duration = Duration::from_secs(3);

/// A compaction as it is given to a server.
pub(crate) struct Gives {
    pub(crate) merge: Begin,
    /// Bytes of its inputs.
    pub(crate) input_bytes: u64,
    /// Inputs and outputs, if no storage is shared.
    pub(crate) carried: Option<Arc<dyn CompactionTables>>,
    /// The silence after which it is taken back, and the time without progress after which it is.
    pub(crate) patience: Duration,
    pub(crate) stall: Duration,
}

/// Counts a compaction among those of a server, until it is dropped.
pub(crate) struct ServerSlot(Arc<Server>);

impl ServerSlot {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        server.given.fetch_add(1, Ordering::Relaxed);
        Self(server)
    }
}

impl Drop for ServerSlot {
    fn drop(&mut self) {
        self.0.given.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A compaction running on a server. Dropping this ends it there, and its outputs leave the server's memory.
pub(crate) struct RemoteCompaction {
    server: Arc<Server>,
    runtime: Handle,
    come: std_mpsc::Receiver<Result<CompactionAnswer, String>>,
    go_ahead: mpsc::UnboundedSender<()>,
    /// A step was passed on; asking for more means that it is installed.
    owes: bool,
    /// The last step was passed on, and not refused so far.
    is_done: bool,
    memory: Arc<Memory>,
}

impl RemoteCompaction {
    pub(crate) fn new(
        server: Arc<Server>,
        runtime: Handle,
        come: std_mpsc::Receiver<Result<CompactionAnswer, String>>,
        go_ahead: mpsc::UnboundedSender<()>,
        memory: Memory,
    ) -> Self {
        Self { server, runtime, come, go_ahead, owes: false, is_done: false, memory: Arc::new(memory) }
    }

    fn failed(&self, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("compaction server {}: {why}", self.server.address))
    }
}

impl Drop for RemoteCompaction {
    fn drop(&mut self) {
        if self.is_done {
            self.server.note_success();
        }
    }
}

impl OffloadedCompaction for RemoteCompaction {
    fn advance(&mut self) -> siltstone::Result<Option<CompactionAnswer>> {
        if std::mem::take(&mut self.owes) {
            // Where nobody listens any more, what has come says why.
            let _ = self.go_ahead.send(());
        }
        match self.come.try_recv() {
            Ok(Ok(answer)) => {
                (self.owes, self.is_done) = (answer.is_step(), answer.is_last());
                Ok(Some(answer))
            }
            Ok(Err(why)) => Err(self.failed(&why)),
            Err(std_mpsc::TryRecvError::Empty) => Ok(None),
            Err(std_mpsc::TryRecvError::Disconnected) => Err(self.failed("it went away")),
        }
    }

    fn refused(&mut self, why: &str) -> Error {
        self.is_done = false;
        let inside = self.runtime.enter();
        self.server.note_failure();
        drop(inside);
        tracing::warn!(target: "siltstone", server = %self.server.address, "a compaction server handed out {why}");
        self.failed(&format!("it handed out {why}"))
    }

    fn remote_cache(&self) -> Option<Arc<dyn RemoteCache>> {
        Some(self.memory.clone())
    }
}

/// How a compaction ended before its last step.
enum Ended {
    /// There was no room for it.
    Full(String),
    Failed(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Gives a compaction to a server and passes its answers on, until it ends or is cancelled.
pub(crate) async fn follow(
    given: ServerSlot,
    gives: Gives,
    answers: std_mpsc::Sender<Result<CompactionAnswer, String>>,
    mut allowed: mpsc::UnboundedReceiver<()>,
) {
    let server = given.0.clone();
    let end = follow_to_end(given, gives, &answers, &mut allowed).await;
    match end {
        // The reader of the answers verifies them.
        Ok(()) => {}
        Err(Ended::Full(why)) => drop(answers.send(Err(why))),
        Err(Ended::Failed(why)) => {
            server.note_failure();
            let _ = answers.send(Err(why));
        }
    }
}

async fn follow_to_end(
    given: ServerSlot,
    gives: Gives,
    answers: &std_mpsc::Sender<Result<CompactionAnswer, String>>,
    allowed: &mut mpsc::UnboundedReceiver<()>,
) -> Result<(), Ended> {
    let Gives { merge, input_bytes, carried, patience, stall } = gives;
    let silent = || format!("it has said nothing for {} s", patience.as_secs_f32());
    let (server, mut given) = (given.0.clone(), Some(given));
    let (asks, asked) = mpsc::channel(4);
    let begun = asks.send(asking(ClientRequest::Begin(merge))).await;
    begun.map_err(|e| e.to_string())?;
    let mut client = CompactorClient::new(server.channel())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let (request, call) = server.calls.request(ReceiverStream::new(asked));
    let begun = tokio::time::timeout(patience, client.merge(request)).await;
    let begun = server.calls.believed(&call, begun.map_err(|_| silent())?);
    let told = begun.map_err(|e| match e.code() {
        tonic::Code::ResourceExhausted => Ended::Full(e.message().to_string()),
        _ => Ended::Failed(e.message().to_string()),
    });
    let (mut told, asked_at, mut has_begun) = (told?.into_inner(), Instant::now(), false);
    let mut is_done = false;
    let mut watch = Watch::new(stall, input_bytes, asked_at);
    loop {
        // After the last step the server only holds its outputs.
        let left = if is_done { None } else { watch.left(Instant::now())? };
        let wait = left.map_or(patience, |left| left.min(patience));
        let message = tokio::select! {
            message = tokio::time::timeout(wait, told.message()) => message,
            step = allowed.recv() => match step {
                // It was cancelled: the end of the stream tells the server.
                None => return Ok(()),
                Some(()) => {
                    watch.go_ahead(Instant::now());
                    let _ = asks.send(asking(ClientRequest::GoAhead(GoAhead {}))).await;
                    continue;
                }
            },
        };
        let message = match message {
            // After the last step the server only holds outputs that have not been fetched.
            Ok(Ok(None)) | Ok(Err(_)) | Err(_) if is_done => return Ok(()),
            // It made no progress, or was silent.
            Err(_) if wait < patience => continue,
            message => message.map_err(|_| silent())?.map_err(|e| e.message().to_string())?,
        };
        let Some(message) = message else { return Err("its answer ended too early".to_string().into()) };
        match message.tell {
            Some(ServerMessage::Answer(bytes)) => {
                let answer = CompactionAnswer::from_bytes(&bytes).map_err(|e| e.to_string())?;
                has_begun = true;
                watch.met(answer.cells_met(), Instant::now());
                if answer.is_step() {
                    watch.step(Instant::now());
                }
                is_done = answer.is_last();
                if is_done {
                    // Its slot there is free.
                    drop(given.take());
                }
                if answers.send(Ok(answer)).is_err() {
                    return Ok(());
                }
            }
            Some(ServerMessage::Waits(Waits { before }))
                if !has_begun && asked_at.elapsed() >= QUEUE_WAIT =>
            {
                return Err(Ended::Full(format!("{before} compactions were still before it")));
            }
            Some(ServerMessage::Waits(_)) if !has_begun => watch.waits(Instant::now()),
            Some(ServerMessage::Waits(_)) => {}
            Some(ServerMessage::Begun(Begun {})) => has_begun = true,
            Some(tell @ (ServerMessage::Fetch(_) | ServerMessage::Store(_))) => {
                let Some(tables) = carried.clone() else {
                    return Err("it asks for SSTables that it was to reach itself".to_string().into());
                };
                has_begun = true;
                match &tell {
                    ServerMessage::Fetch(Fetch { bytes, .. }) => watch.fetched(*bytes, Instant::now())?,
                    ServerMessage::Store(Store { bytes, .. }) => {
                        watch.stored(bytes.len() as u64, Instant::now())
                    }
                    _ => {}
                }
                let answered = tokio::task::spawn_blocking(move || answer(&*tables, &tell)).await;
                let ask = match answered.map_err(|e| e.to_string())? {
                    Ok(bytes) => ClientRequest::Done(bytes),
                    Err(why) => ClientRequest::Refused(why),
                };
                let _ = asks.send(asking(ask)).await;
            }
            Some(ServerMessage::Failed(why)) => return Err(why.into()),
            None => return Err("a message that says nothing".to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Compactors;
    use crate::options::CompactorsOptions;
    use crate::protocol::stubs::compactor_server::{Compactor, CompactorServer};
    use crate::protocol::{
        CompactorState, FromCompactor, PROTOCOL_VERSION, ReadPiece, ReadRequest, StateRequest, ToCompactor,
        telling,
    };
    use siltstone::{Db, EventKind};
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{Request, Response, Status, Streaming, transport};

    /// Takes each compaction, says that it works, and does nothing. It has room for so many.
    struct Speaks(u64);

    #[tonic::async_trait]
    impl Compactor for Speaks {
        type MergeStream = ReceiverStream<Result<FromCompactor, Status>>;
        type ReadStream = ReceiverStream<Result<ReadPiece, Status>>;

        async fn merge(
            &self,
            request: Request<Streaming<ToCompactor>>,
        ) -> Result<Response<Self::MergeStream>, Status> {
            let (into, told) = mpsc::channel(4);
            tokio::spawn(async move {
                let _asks = request.into_inner();
                while into.send(Ok(telling(ServerMessage::Begun(Begun {})))).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
            Ok(Response::new(ReceiverStream::new(told)))
        }

        async fn read(&self, _: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
            Err(Status::not_found("nothing is in memory"))
        }

        async fn state(&self, _: Request<StateRequest>) -> Result<Response<CompactorState>, Status> {
            let (protocol_version, slots, shares_storage) = (PROTOCOL_VERSION, self.0, true);
            let state =
                CompactorState { protocol_version, slots, shares_storage, ..CompactorState::default() };
            Ok(Response::new(state))
        }
    }

    /// Offers a compaction of 1,000 cells, of which 500 survive, to a server with room for so many.
    fn events(slots: u64) -> Vec<siltstone::Event> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let at = listener.local_addr().unwrap();
        let server = transport::Server::builder().add_service(CompactorServer::new(Speaks(slots)));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let stall = Duration::from_millis(300);
        let options =
            CompactorsOptions { bytes_min: 0, by_cost: false, stall, ..CompactorsOptions::default() };
        let compactors = Arc::new(Compactors::connect_with([at.to_string()], options).unwrap());
        while compactors.servers()[0].state.is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let dir = tempfile::tempdir().unwrap();
        let db = Db::builder().offload(compactors).open(dir.path()).unwrap();
        for _ in 0..2 {
            (0..500_u32).for_each(|n| _ = db.put(n.to_be_bytes(), b"v").unwrap());
            db.flush().unwrap();
        }
        db.default_family().compact::<&[u8]>(..).unwrap();
        let found: Vec<_> = db.scan::<&[u8]>(..).map(|row| row.unwrap().key).collect();
        assert_eq!(found, (0..500_u32).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());
        db.events()
    }

    #[test]
    fn a_compaction_is_taken_back_from_a_server_that_only_says_that_it_works() {
        let events = events(4);
        let is_told = |event: &siltstone::Event| {
            event.kind == EventKind::OffloadFailure && event.reason.contains("it has got nowhere for 0.3 s")
        };
        assert!(events.iter().any(is_told), "{events:?}");
    }

    #[test]
    fn compactions_for_which_no_server_has_room_stay_here() {
        let events = events(0);
        let says = |what: &str| events.iter().any(|event| event.reason.contains(what));
        assert!(says("compaction servers have all they can run") && !says("goes to"), "{events:?}");
    }
}
