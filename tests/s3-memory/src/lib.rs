//! An S3 server in memory, for tests and benches. Every request is judged and carried out in one step, so of
//! many conditional puts of one key exactly one wins (a server over files may let two win).
//!
//! `objects` is what a server holds, under one lock. `api` has the operations of S3 on it. `front` serves
//! them over HTTP on 127.0.0.1, late and with faults if that is asked for. `state` is what the threads share.
//!
//! It has neither versions nor metadata, copies nothing, and ignores checksums other than the signature's.

mod api;
mod front;
mod objects;
mod state;

pub use objects::Objects;
pub use state::{Counts, Faults};

use front::Front;
use state::Shared;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The only access key that a server accepts.
pub const ACCESS_KEY: &str = "siltstone";
/// The secret of that access key.
pub const SECRET_KEY: &str = "siltstone-secret";
/// The region that clients may name; a server accepts any.
pub const REGION: &str = "us-east-1";

/// Threads that carry out requests.
const THREADS: usize = 2;

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The port on 127.0.0.1; 0 for any that is free.
    pub port: u16,
    /// A bucket that is there from the start.
    pub bucket: String,
    /// Every request takes so long: half of it before it is carried out, half of it after.
    pub latency: Duration,
    /// Every request takes longer by its bytes at this rate, and by those of its answer.
    pub bytes_a_second: Option<u64>,
    /// Faults of some requests.
    pub faults: Option<Faults>,
    /// Objects that are there from the start, such as those of a server that was stopped.
    pub objects: Option<Objects>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 0,
            bucket: "bucket".into(),
            latency: Duration::ZERO,
            bytes_a_second: None,
            faults: None,
            objects: None,
        }
    }
}

/// A running server. It stops when this is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    bucket: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on threads of its own.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no bucket can have, and what binding the port meets.
    pub fn start(settings: Settings) -> io::Result<Self> {
        if !s3s::path::check_bucket_name(&settings.bucket) {
            let says = format!("\"{}\" is no name of a bucket", settings.bucket);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, says));
        }
        let port = settings.port;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .map_err(|e| io::Error::new(e.kind(), format!("port {port} of 127.0.0.1: {e}")))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let runtime = threads.worker_threads(THREADS).thread_name("s3-memory").enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let bucket = settings.bucket.clone();
        let shared = Arc::new(Shared::new(settings));
        let front = Arc::new(Front::new(shared.clone()));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("s3-memory".into())
            .spawn(move || front::serve(runtime, listener, front, stopped))?;
        Ok(Self { shared, address, bucket, stop: Some(stop), thread: Some(thread) })
    }

    /// The server's address, as clients take it: `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port, with which a server can be started in the place of this one.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The bucket that was there from the start.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The environment variables with which clients find this server and are let in.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let variables = [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into()),
            ("AWS_REGION", REGION.into()),
        ];
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The requests so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Changes how long requests take, from the next one on.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.set_latency(latency);
    }

    /// Changes the faults, from the next request on.
    pub fn set_faults(&self, faults: Option<Faults>) {
        self.shared.set_faults(faults);
    }

    /// Stops the server. What was under way is carried out whole or not at all, and without an answer.
    pub fn stop(mut self) -> Objects {
        self.end();
        std::mem::take(&mut *self.shared.objects.lock())
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
