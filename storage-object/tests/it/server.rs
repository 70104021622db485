//! An S3 server over a directory (`s3s-fs`), and in front of it what counts requests, delays, refuses and
//! cuts them.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use siltstone_storage_object::{DiskCache, ObjectStores, Settings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Served,
    /// Answered with that status, and not done.
    Refused(u16),
    /// The connection is closed before the request is done.
    Reset,
    /// It is done; the connection is closed before the answer.
    Unanswered,
    /// The answer ends in the middle of its body.
    Cut,
    /// The answer comes slowly, a few bytes at a time.
    Slow,
}

type Decide = Box<dyn FnMut(&str) -> Fate + Send>;

/// Says what becomes of each request, by its first line.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) decide: Option<Decide>,
    /// First lines of all requests.
    pub(crate) seen: Vec<String>,
}

/// A running server.
pub(crate) struct S3 {
    pub(crate) rules: Arc<Mutex<Rules>>,
    front: SocketAddr,
    _runtime: Runtime,
    root: TempDir,
}

impl S3 {
    /// With one bucket, named `bucket`.
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bucket")).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(root.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("key", "secret"));
        let service = builder.build();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let rules = Arc::new(Mutex::new(Rules::default()));
        let (back, front) = runtime.block_on(async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            (TcpListener::bind(any).await.unwrap(), TcpListener::bind(any).await.unwrap())
        });
        let (behind, address) = (back.local_addr().unwrap(), front.local_addr().unwrap());
        runtime.spawn(async move {
            while let Ok((stream, _)) = back.accept().await {
                let service = service.clone();
                stream.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        let of_requests = rules.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = front.accept().await {
                tokio::spawn(pass(stream, behind, of_requests.clone()));
            }
        });
        Self { rules, front: address, _runtime: runtime, root }
    }

    pub(crate) fn settings(&self) -> Settings {
        let of = |name: &str, value: &str| (name.to_string(), value.to_string());
        let variables = BTreeMap::from([
            of("AWS_ENDPOINT_URL", &format!("http://{}", self.front)),
            of("AWS_ACCESS_KEY_ID", "key"),
            of("AWS_SECRET_ACCESS_KEY", "secret"),
            of("AWS_REGION", "us-east-1"),
        ]);
        Settings { variables, patience: Duration::from_secs(10), ..Settings::default() }
    }

    pub(crate) fn stores(&self) -> ObjectStores {
        ObjectStores::new(&self.settings()).unwrap()
    }

    pub(crate) fn stores_with_disk(&self, dir: &Path) -> ObjectStores {
        let disk = Some(DiskCache { dir: dir.to_path_buf(), bytes: 64 << 20 });
        ObjectStores::new(&Settings { disk, ..self.settings() }).unwrap()
    }

    /// Requests made since this was asked last.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.rules.lock().seen)
    }

    pub(crate) fn decide(&self, decide: impl FnMut(&str) -> Fate + Send + 'static) {
        self.rules.lock().decide = Some(Box::new(decide));
    }

    pub(crate) fn serve_all(&self) {
        self.rules.lock().decide = None;
    }

    /// The directory with what the bucket holds.
    pub(crate) fn bucket(&self) -> std::path::PathBuf {
        self.root.path().join("bucket")
    }
}

/// Reads the head of a message, and says how long its body is.
async fn head(stream: &mut TcpStream) -> Option<(Vec<u8>, usize)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Some((head, length.unwrap_or(0)))
}

/// Passes requests on, one connection behind for each.
async fn pass(mut client: TcpStream, behind: SocketAddr, rules: Arc<Mutex<Rules>>) -> Option<()> {
    client.set_nodelay(true).ok()?;
    loop {
        let (request, length) = head(&mut client).await?;
        let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_string();
        let fate = {
            let mut rules = rules.lock();
            rules.seen.push(line.clone());
            rules.decide.as_mut().map_or(Fate::Served, |decide| decide(&line))
        };
        let mut body = vec![0; length];
        client.read_exact(&mut body).await.ok()?;
        match fate {
            Fate::Reset => return None,
            Fate::Refused(status) => {
                let code = if status == 503 || status == 429 { "SlowDown" } else { "InternalError" };
                let text = format!("<Error><Code>{code}</Code></Error>");
                let answer =
                    format!("HTTP/1.1 {status} Refused\r\ncontent-length: {}\r\n\r\n{text}", text.len());
                client.write_all(answer.as_bytes()).await.ok()?;
                continue;
            }
            _ => {}
        }
        let mut server = TcpStream::connect(behind).await.ok()?;
        server.set_nodelay(true).ok()?;
        server.write_all(&request).await.ok()?;
        server.write_all(&body).await.ok()?;
        let (answer, length) = head(&mut server).await?;
        let length = if line.starts_with("HEAD") { 0 } else { length };
        let mut body = vec![0; length];
        server.read_exact(&mut body).await.ok()?;
        if String::from_utf8_lossy(&answer).to_ascii_lowercase().contains("transfer-encoding: chunked") {
            while !body.ends_with(b"0\r\n\r\n") {
                body.push(server.read_u8().await.ok()?);
            }
        }
        let length = body.len();
        match fate {
            Fate::Unanswered => return None,
            Fate::Cut if length > 0 => {
                client.write_all(&answer).await.ok()?;
                client.write_all(&body[..length / 2]).await.ok()?;
                return None;
            }
            Fate::Slow => {
                client.write_all(&answer).await.ok()?;
                for piece in body.chunks(body.len() / 8 + 1) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    client.write_all(piece).await.ok()?;
                }
            }
            _ => {
                client.write_all(&answer).await.ok()?;
                client.write_all(&body).await.ok()?;
            }
        }
    }
}
