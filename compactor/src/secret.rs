//! A secret that databases, compaction servers and their manager share, and how both ends of a call show that
//! they have it without telling it.
//!
//! ```text
//! caller    siltstone-ask:     N, HMAC(secret, "ask" S N port)       N: random, of this call
//! server    siltstone-answer:  S, HMAC(secret, "answer" S N port)    S: random, of this server since it was started
//! ```
//!
//! A caller that does not know S yet is turned away with a server's answer, from which it learns it. So
//! nothing that was heard is of use for another call, another server or another day. Where connections are
//! encrypted the certificate says which server it is, and the port counts as 0; elsewhere, which is on one
//! machine, a server's place is its port, so that nobody can pass on the answers of one server as another's.

use crate::address::parts;
use crate::files::file_content;
use parking_lot::{Mutex, MutexGuard};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Code, Request, Response, Status};

const ASK: &str = "siltstone-ask";
const ANSWER: &str = "siltstone-answer";
/// The fewest bytes of a secret.
const BYTES_MIN: usize = 16;
/// The interval at which the file is read again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Number = [u8; 32];

/// A secret in a file, which is read again when its content changes; content that is no secret leaves the
/// last one in force. See the page above.
pub(crate) struct Secret {
    file: PathBuf,
    now: Mutex<Known>,
    /// Whether the file cannot be used as it is, which was reported.
    is_stale: AtomicBool,
}

struct Known {
    content: Vec<u8>,
    key: hmac::Key,
    looked: Instant,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({})", self.file.display())
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let content = file_content(file)?;
    match content.trim_ascii().len() {
        0..BYTES_MIN => Err(format!("{}: a secret of fewer than {BYTES_MIN} bytes", file.display())),
        _ => Ok(content.trim_ascii().to_vec()),
    }
}

fn key(content: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, content)
}

impl Secret {
    /// The secret in that file.
    pub(crate) fn read(file: &Path) -> Result<Arc<Self>, String> {
        let content = read(file)?;
        if is_open_to_others(file) {
            tracing::warn!(target: "siltstone", "{} can be read by others than its owner", file.display());
        }
        let known = Known { key: key(&content), content, looked: Instant::now() };
        let is_stale = AtomicBool::new(false);
        Ok(Arc::new(Self { file: file.to_path_buf(), now: Mutex::new(known), is_stale }))
    }

    /// Reads the file again when it is due.
    pub(crate) fn look_if_due(&self) {
        drop(self.now());
    }

    /// Whether the file cannot be used as it is. Does not read it.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    fn key(&self) -> hmac::Key {
        self.now().key.clone()
    }

    fn now(&self) -> MutexGuard<'_, Known> {
        let mut now = self.now.lock();
        if now.looked.elapsed() >= LOOK_EVERY {
            now.looked = Instant::now();
            self.look(&mut now);
        }
        now
    }

    fn look(&self, now: &mut Known) {
        match read(&self.file) {
            Ok(content) => {
                self.is_stale.store(false, Ordering::Relaxed);
                if content != now.content {
                    (now.key, now.content) = (key(&content), content);
                    tracing::info!(target: "siltstone", "{} was read again", self.file.display());
                }
            }
            Err(why) if !self.is_stale.swap(true, Ordering::Relaxed) => {
                tracing::warn!(target: "siltstone", "the secret of before stays in force: {why}");
            }
            Err(_) => {}
        }
    }
}

#[cfg(unix)]
fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}

/// A number that nobody can guess.
fn random() -> Number {
    let mut number = Number::default();
    SystemRandom::new().fill(&mut number).expect("the system has random numbers");
    number
}

/// The text that a proof is computed over.
fn proven(what: &str, server: &Number, call: &Number, port: u16) -> Vec<u8> {
    [what.as_bytes(), server, call, &port.to_be_bytes()].concat()
}

/// A number and its proof as they are sent.
fn sent(number: &Number, proof: &[u8]) -> Option<MetadataValue<Ascii>> {
    let mut text = String::with_capacity(2 * (number.len() + proof.len()));
    number.iter().chain(proof).for_each(|byte| _ = write!(text, "{byte:02x}"));
    text.parse().ok()
}

/// The number and the proof that came under that name.
fn received(metadata: &MetadataMap, name: &str) -> Option<(Number, Number)> {
    let text = metadata.get(name)?.to_str().ok()?;
    let is_hex = text.len() == 4 * size_of::<Number>() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pairs = text.as_bytes().chunks(2).filter(|_| is_hex);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Vec<u8> = pairs.map(byte).collect::<Option<_>>()?;
    let (number, proof) = bytes.split_first_chunk::<32>()?;
    Some((*number, proof.try_into().ok()?))
}

/// The calls of one side to one server. Without a secret they carry no proof.
#[derive(Clone)]
pub(crate) struct Calls(Option<Arc<Caller>>);

struct Caller {
    secret: Arc<Secret>,
    port: u16,
    /// The server's number, as it was proven last.
    server: Mutex<Number>,
}

/// The number of a call that was made.
pub(crate) struct Asked(Number);

impl Calls {
    pub(crate) fn new(secret: Option<&Arc<Secret>>, address: &str, is_encrypted: bool) -> Self {
        let port = parts(address).map_or(0, |(_, port)| port);
        let caller = |secret: &Arc<Secret>| Caller {
            secret: secret.clone(),
            port: if is_encrypted { 0 } else { port },
            server: Mutex::default(),
        };
        Self(secret.map(|secret| Arc::new(caller(secret))))
    }

    /// The request for a call.
    pub(crate) fn request<T>(&self, message: T) -> (Request<T>, Asked) {
        let mut request = Request::new(message);
        let Some(caller) = &self.0 else { return (request, Asked(Number::default())) };
        let call = random();
        let proof = hmac::sign(&caller.secret.key(), &proven(ASK, &caller.server.lock(), &call, caller.port));
        if let Some(value) = sent(&call, proof.as_ref()) {
            request.metadata_mut().insert(ASK, value);
        }
        (request, Asked(call))
    }

    /// The answer, if it comes from a server that has the secret.
    pub(crate) fn believed<T>(
        &self,
        asked: &Asked,
        answer: Result<Response<T>, Status>,
    ) -> Result<Response<T>, Status> {
        let Some(caller) = &self.0 else { return answer };
        let metadata = answer.as_ref().map_or_else(|status| status.metadata(), |answer| answer.metadata());
        let shown = received(metadata, ANSWER).filter(|(server, proof)| {
            let said = proven(ANSWER, server, &asked.0, caller.port);
            hmac::verify(&caller.secret.key(), &said, proof).is_ok()
        });
        if let Some((server, _)) = shown {
            *caller.server.lock() = server;
        }
        match answer {
            Ok(_) if shown.is_none() => {
                Err(Status::unauthenticated("it has not shown that it has the secret"))
            }
            answer => answer,
        }
    }

    /// Makes a call with a message that may be sent twice: at the first call to a server, its number is not
    /// known.
    pub(crate) async fn unary<T: Clone, R, F>(
        &self,
        message: T,
        mut call: impl FnMut(Request<T>) -> F,
    ) -> Result<R, Status>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let (request, asked) = self.request(message.clone());
        let answer = self.believed(&asked, call(request).await);
        let turned_away = answer.as_ref().is_err_and(|status| status.code() == Code::Unauthenticated);
        if self.0.is_none() || !turned_away {
            return answer.map(Response::into_inner);
        }
        let (request, asked) = self.request(message);
        self.believed(&asked, call(request).await).map(Response::into_inner)
    }
}

/// A guard that lets in callers which have the secret; all, where there is none.
#[derive(Clone)]
pub(crate) struct Guard(Option<Arc<Guarding>>);

struct Guarding {
    secret: Arc<Secret>,
    port: u16,
    server: Number,
}

/// The proof in a server's answer to a call that was let in.
#[derive(Clone)]
pub(crate) struct Proof(Option<MetadataValue<Ascii>>);

impl Guard {
    /// The guard of a server that begins to listen on that port.
    pub(crate) fn new(secret: Option<&Arc<Secret>>, port: u16, is_encrypted: bool) -> Self {
        let port = if is_encrypted { 0 } else { port };
        let guarding = |secret: &Arc<Secret>| Guarding { secret: secret.clone(), port, server: random() };
        Self(secret.map(|secret| Arc::new(guarding(secret))))
    }
}

impl Guarding {
    /// The proof to the caller that the server has the secret, too; the same proof goes with the error where
    /// the caller has not shown it.
    fn check(&self, metadata: &MetadataMap) -> Result<Proof, Status> {
        let turned_away =
            || Status::unauthenticated("this compaction service is for those who have its secret");
        let (call, proof) = received(metadata, ASK).ok_or_else(turned_away)?;
        let key = self.secret.key();
        let answer = hmac::sign(&key, &proven(ANSWER, &self.server, &call, self.port));
        let answer = sent(&self.server, answer.as_ref());
        if hmac::verify(&key, &proven(ASK, &self.server, &call, self.port), &proof).is_ok() {
            return Ok(Proof(answer));
        }
        let mut status = turned_away();
        if let Some(answer) = answer {
            status.metadata_mut().insert(ANSWER, answer);
        }
        Err(status)
    }
}

impl Interceptor for Guard {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(guarding) = &self.0 {
            let proof = guarding.check(request.metadata())?;
            request.extensions_mut().insert(proof);
        }
        if let Some(peer) = request.extensions().get::<crate::listen::Peer>() {
            peer.let_in();
        }
        Ok(request)
    }
}

impl Proof {
    /// The proof for a call that was let in.
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or(Self(None))
    }

    /// An answer with the proof.
    pub(crate) fn with<T>(self, answer: T) -> Response<T> {
        let mut response = Response::new(answer);
        if let Some(proof) = self.0 {
            response.metadata_mut().insert(ANSWER, proof);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(dir: &Path, name: &str, text: &str) -> Arc<Secret> {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        Secret::read(&file).unwrap()
    }

    /// What comes of a call.
    fn call(calls: &Calls, guard: &mut Guard) -> Result<(), Status> {
        let (request, asked) = calls.request(());
        let answer = guard.call(request).map(|request| Proof::of(&request).with(()));
        calls.believed(&asked, answer).map(|_| ())
    }

    #[test]
    fn both_sides_show_that_they_have_the_secret_and_what_was_heard_is_of_no_use() {
        let dir = tempfile::tempdir().unwrap();
        let ours = secret(dir.path(), "ours", "of our compaction servers\n");
        let theirs = secret(dir.path(), "theirs", "of somebody else's servers");
        let calls = |secret, at| Calls::new(secret, at, false);
        let mut guard = Guard::new(Some(&ours), 7400, false);
        let good = calls(Some(&ours), "127.0.0.1:7400");
        assert!(call(&good, &mut guard).is_err(), "it does not know the server");
        call(&good, &mut guard).unwrap();
        call(&good, &mut guard).unwrap();
        // Who has none, another, or asks elsewhere is turned away, and so is a server that has none, another,
        // or is another.
        let elsewhere = calls(Some(&ours), "127.0.0.1:7401");
        for stranger in [calls(None, "127.0.0.1:7400"), calls(Some(&theirs), "127.0.0.1:7400"), elsewhere] {
            assert!((0..3).all(|_| call(&stranger, &mut guard).is_err()));
        }
        for (secret, port) in [(None, 7400), (Some(&theirs), 7400), (Some(&ours), 7401)] {
            let mut other = Guard::new(secret, port, false);
            assert!((0..3).all(|_| call(&good, &mut other).is_err()), "{secret:?} at {port}");
        }
        // A request that was heard is none for the server once it is started again, and an answer none to
        // another call.
        let (request, _) = good.request(());
        let heard = request.metadata().clone();
        assert!(guard.0.as_ref().unwrap().check(&heard).is_ok());
        let mut again = Guard::new(Some(&ours), 7400, false);
        assert!(again.0.as_ref().unwrap().check(&heard).is_err());
        let (_, other_call) = good.request(());
        let answer = guard.call(request).map(|request| Proof::of(&request).with(()));
        assert!(good.believed(&other_call, answer).is_err());
        call(&good, &mut again).unwrap_err();
        call(&good, &mut again).unwrap();
    }

    #[test]
    fn another_secret_in_the_file_is_in_force_and_one_that_is_none_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let secret = secret(dir.path(), "secret", "the first of two secrets");
        let content = |secret: &Secret| {
            let mut now = secret.now.lock();
            secret.look(&mut now);
            String::from_utf8(now.content.clone()).unwrap()
        };
        std::fs::write(&secret.file, "short").unwrap();
        assert_eq!((content(&secret).as_str(), secret.is_stale()), ("the first of two secrets", true));
        std::fs::remove_file(&secret.file).unwrap();
        assert_eq!((content(&secret).as_str(), secret.is_stale()), ("the first of two secrets", true));
        std::fs::create_dir(&secret.file).unwrap();
        assert_eq!((content(&secret).as_str(), secret.is_stale()), ("the first of two secrets", true));
        std::fs::remove_dir(&secret.file).unwrap();
        std::fs::write(&secret.file, "the other of two secrets\n").unwrap();
        assert_eq!((content(&secret).as_str(), secret.is_stale()), ("the other of two secrets", false));
        let refused = read(dir.path()).unwrap_err();
        assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
    }

    #[test]
    fn numbers_are_read_as_they_were_sent_and_nothing_else_is() {
        let (number, proof) = (random(), random());
        let mut metadata = MetadataMap::new();
        metadata.insert(ASK, sent(&number, &proof).unwrap());
        assert_eq!(received(&metadata, ASK), Some((number, proof)));
        assert_eq!(received(&metadata, ANSWER), None);
        for wrong in ["", "00", "zz", &"0".repeat(127), &"0".repeat(130), &"+0".repeat(64)] {
            metadata.insert(ASK, wrong.parse().unwrap());
            assert!(received(&metadata, ASK).is_none(), "{wrong}");
        }
    }
}
