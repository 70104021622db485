//! Clients that mean no good, one kind after the other, beside one that behaves: it must be served as before,
//! the server's memory must stay within its bounds, and what is refused must be refused cleanly.

use crate::Extent;
use crate::child::{Server, TABLE, channel, data, set};
use data::bigtable_client::BigtableClient;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use siltstone::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request};

const CONFIG: &str = "memory = \"64MiB\"\nwrite-memory = \"16MiB\"\ndurability = \"buffered\"\ncall-memory = \"64MiB\"\n\
    connections-max = 500\ncalls-max = 200\n";
/// The budgets together, and what a process has besides.
const MEMORY_MAX: u64 = (64 + 64 + 160) << 20;
/// The longest that the client which behaves may wait for an answer.
const LONGEST: Duration = Duration::from_secs(2);
/// How long an attack without end lasts.
const LASTS: Duration = Duration::from_secs(2);

/// The client that behaves: its calls, the longest of them, and what went wrong.
struct Good {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<(u64, Duration), String>>,
}

impl Good {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn({
            let stop = stop.clone();
            async move {
                let mut client = BigtableClient::new(channel(port));
                let (mut calls, mut longest) = (0, Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let rows = Some(data::RowSet { row_keys: vec!["good".into()], ..Default::default() });
                    let request =
                        data::ReadRowsRequest { table_name: TABLE.into(), rows, ..Default::default() };
                    match client.read_rows(request).await {
                        Ok(stream) => {
                            let mut stream = stream.into_inner();
                            let first =
                                stream.message().await.map_err(|e| format!("the good client: {e}"))?;
                            if first.is_none_or(|message| message.chunks.len() != 1) {
                                return Err("the good client finds its row no more".into());
                            }
                        }
                        // Too many calls at a time: it comes again, as it is told.
                        Err(e) if e.code() == Code::ResourceExhausted && !e.details().is_empty() => {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                            continue;
                        }
                        Err(e) => return Err(format!("the good client: {e}")),
                    }
                    longest = longest.max(began.elapsed());
                    calls += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Ok((calls, longest))
            }
        });
        Self { stop, task }
    }
}

async fn connect(port: u16) -> Option<TcpStream> {
    TcpStream::connect(("127.0.0.1", port)).await.ok()
}

/// Opens connections and does this with each, all at once.
async fn each<F: Future<Output = ()> + Send + 'static>(
    count: usize,
    port: u16,
    with: impl Fn(TcpStream, usize) -> F,
) -> u64 {
    let mut tasks = Vec::new();
    for n in 0..count {
        if let Some(stream) = connect(port).await {
            tasks.push(tokio::spawn(with(stream, n)));
        }
    }
    let opened = tasks.len() as u64;
    for task in tasks {
        let _ = task.await;
    }
    opened
}

/// Bytes of a connection that begins as it should.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

fn get(rows: &str) -> data::ReadRowsRequest {
    let rows = Some(data::RowSet { row_keys: vec![rows.to_string().into()], ..Default::default() });
    data::ReadRowsRequest { table_name: TABLE.into(), rows, ..Default::default() }
}

fn put(bytes: usize) -> data::MutateRowRequest {
    data::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "bad".into(),
        mutations: vec![set("f", "q", 1_000, vec![7; bytes])],
        ..Default::default()
    }
}

/// The attacks by name. Each returns how many requests, connections or messages it made.
async fn attack(name: &str, port: u16, count: u64, seed: u64) -> Result<u64, String> {
    let calls = Arc::new(AtomicU64::new(0));
    Ok(match name {
        "byte by byte" => {
            each(100, port, |mut stream, n| async move {
                let until = Instant::now() + LASTS;
                for byte in PREFACE.iter().cycle().skip(n % 3) {
                    if Instant::now() > until || stream.write_all(&[*byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
            .await
        }
        "half open" => {
            each(300, port, |mut stream, _| async move {
                let _ = stream.write_all(PREFACE).await;
                let _ = stream.shutdown().await;
                tokio::time::sleep(LASTS).await;
            })
            .await
        }
        "connect and go" => {
            let mut opened = 0;
            for _ in 0..10_000 {
                opened += u64::from(connect(port).await.is_some());
            }
            opened
        }
        "more connections than may be" => {
            each(1_000, port, |mut stream, _| async move {
                let mut byte = [0; 1];
                let _ = tokio::time::timeout(LASTS, stream.read(&mut byte)).await;
            })
            .await
        }
        "nonsense" => {
            each(200, port, move |mut stream, n| async move {
                let mut random = Rng::new(seed ^ n as u64);
                let bytes: Vec<u8> = (0..4_096).map(|_| random.next_u64().to_le_bytes()[0]).collect();
                let _ = stream.write_all(&bytes).await;
                let _ = stream.write_all(&[PREFACE, &bytes].concat()).await;
            })
            .await
        }
        "requests that are too large" => {
            for _ in 0..20 {
                let refused = BigtableClient::new(channel(port)).mutate_row(put(40 << 20)).await;
                match refused.err().map(|e| e.code()) {
                    Some(Code::ResourceExhausted | Code::OutOfRange | Code::Unavailable) => {}
                    other => return Err(format!("a request over the budget ends with {other:?}")),
                }
            }
            20
        }
        "values and keys over their limits" => {
            let mut client = BigtableClient::new(channel(port));
            for _ in 0..200 {
                let mut request = put(1);
                request.row_key = vec![b'k'; 5_000].into();
                let refused = client.mutate_row(request).await.err().map(|e| e.code());
                if refused != Some(Code::InvalidArgument) {
                    return Err(format!("a key over the limit ends with {refused:?}"));
                }
            }
            200
        }
        "a flood of calls" => {
            let mut tasks = Vec::new();
            for _ in 0..8 {
                let shared = channel(port);
                for _ in 0..50 {
                    let (mut client, calls) = (BigtableClient::new(shared.clone()), calls.clone());
                    tasks.push(tokio::spawn(async move {
                        for _ in 0..count / 400 {
                            if let Err(e) = client.read_rows(get("none")).await
                                && (e.code() != Code::ResourceExhausted || e.details().is_empty())
                            {
                                return Err(format!("a call of a flood ends with {e}"));
                            }
                            calls.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(())
                    }));
                }
            }
            for task in tasks {
                task.await.map_err(|e| e.to_string())??;
            }
            calls.load(Ordering::Relaxed)
        }
        "wrong calls" => {
            let mut client = BigtableClient::new(channel(port));
            for n in 0..count / 4 {
                let table_name = format!("projects/p/instances/i/tables/none{}", n % 7);
                let request = data::ReadRowsRequest { table_name, ..get("x") };
                match client.read_rows(request).await.err().map(|e| e.code()) {
                    Some(Code::NotFound | Code::ResourceExhausted | Code::Unavailable) => {}
                    other => return Err(format!("a table that is not there ends with {other:?}")),
                }
            }
            count / 4
        }
        "readers that do not read" => {
            let mut idle = Vec::new();
            for _ in 0..100 {
                let mut client = BigtableClient::new(channel(port));
                let request = data::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
                if let Ok(stream) = client.read_rows(request).await {
                    idle.push((stream, client));
                }
            }
            tokio::time::sleep(LASTS).await;
            idle.len() as u64
        }
        "calls that are given up" => {
            let mut client = BigtableClient::new(channel(port));
            for n in 0..2_000 {
                let mut request =
                    Request::new(data::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() });
                request.set_timeout(Duration::from_micros(n % 500));
                let _ = client.read_rows(request).await;
            }
            2_000
        }
        other => return Err(format!("no attack {other}")),
    })
}

const ATTACKS: [&str; 11] = [
    "byte by byte",
    "half open",
    "connect and go",
    "more connections than may be",
    "nonsense",
    "requests that are too large",
    "values and keys over their limits",
    "a flood of calls",
    "wrong calls",
    "readers that do not read",
    "calls that are given up",
];

/// Bad requests of one round of the attacks that go by number.
const ROUND: u64 = 100_000;

/// All attacks, with so many bad requests, in rounds.
pub(crate) async fn run(extent: &Extent, seed: u64) -> Result<String, String> {
    let mut server = Server::start(CONFIG).await?;
    server.create(&["f"]).await?;
    let mut client = server.data();
    let mut rows = vec![("good".to_string(), 10)];
    rows.extend((0..60).map(|n| (format!("large{n}"), 1 << 20)));
    for (row, bytes) in rows {
        let request = data::MutateRowRequest { row_key: row.into(), ..put(bytes) };
        client.mutate_row(request).await.map_err(|e| e.to_string())?;
    }
    let mut round = 0;
    while extent.goes_on() {
        for name in ATTACKS {
            let made = beside_good(&mut server, name, extent.count.min(ROUND), seed + round).await?;
            extent.advance(made);
        }
        round += 1;
    }
    if server.log().contains("panicked") {
        return Err(server.log());
    }
    let refused = strangers().await?;
    let bad = extent.done();
    Ok(format!("{} attacks, {bad} bad requests, {refused} strangers turned away", ATTACKS.len() + 1))
}

/// One attack beside the client that behaves; how many requests it made.
async fn beside_good(server: &mut Server, name: &str, count: u64, seed: u64) -> Result<u64, String> {
    let good = Good::start(server.port());
    let made = attack(name, server.port(), count, seed).await?;
    good.stop.store(true, Ordering::Relaxed);
    let (calls, longest) = good.task.await.map_err(|e| e.to_string())??;
    let (now, most) = server.memory();
    println!(
        "{name}: {made} made; the good client had {calls} answers, the longest after {} ms; memory {} MiB, at most {} MiB",
        longest.as_millis(),
        now >> 20,
        most >> 20
    );
    if calls == 0 || longest > LONGEST || most > MEMORY_MAX || !server.lives() {
        return Err(format!("{name}: see the line above; the log says {}", server.log()));
    }
    Ok(made)
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Result<Self, String> {
        let mut params = CertificateParams::new(Vec::new()).map_err(|e| e.to_string())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(|e| e.to_string())?;
        CertifiedIssuer::self_signed(params, key).map(Self).map_err(|e| e.to_string())
    }

    /// A certificate and its key; one that is over has been so since 1999.
    fn sign(&self, purpose: ExtendedKeyUsagePurpose, is_over: bool) -> Result<(String, String), String> {
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).map_err(|e| e.to_string())?;
        params.extended_key_usages = vec![purpose];
        if is_over {
            params.not_before = rcgen::date_time_ymd(1998, 1, 1);
            params.not_after = rcgen::date_time_ymd(1999, 1, 1);
        }
        let key = KeyPair::generate().map_err(|e| e.to_string())?;
        let signed = params.signed_by(&key, &self.0).map_err(|e| e.to_string())?;
        Ok((signed.pem(), key.serialize_pem()))
    }
}

/// The twelfth attack: no TLS, no certificate, one of somebody else, one that is over, no token, a wrong one,
/// one without the right.
async fn strangers() -> Result<u64, String> {
    let (ours, theirs) = (Authority::new()?, Authority::new()?);
    let files = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).map(|()| path.display().to_string()).map_err(|e| e.to_string())
    };
    let (certificate, key) = ours.sign(ExtendedKeyUsagePurpose::ServerAuth, false)?;
    let digest = siltstone_server::token_digest("good");
    let token =
        format!("[[token]]\nname = 'x'\nsha256 = '{digest}'\nrights = ['read']\ntables = ['{TABLE}']\n");
    let config = format!(
        "tokens = \"{}\"\n[tls]\ncertificate = \"{}\"\nkey = \"{}\"\nclient-ca = \"{}\"\n",
        file("tokens.toml", &token)?,
        file("cert.pem", &certificate)?,
        file("key.pem", &key)?,
        file("ca.pem", &ours.0.pem())?
    );
    let server = Server::start(&config).await?;
    let port = server.port();
    let client = |identity: Option<(String, String)>| -> Result<Endpoint, String> {
        let ca = Certificate::from_pem(ours.0.pem());
        let mut tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
        if let Some((certificate, key)) = identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let endpoint =
            Endpoint::from_shared(format!("https://localhost:{port}")).map_err(|e| e.to_string())?;
        endpoint.tls_config(tls).map_err(|e| e.to_string())
    };
    let call = |channel: Channel, token: Option<&str>, request: data::MutateRowRequest| {
        let mut request = Request::new(request);
        if let Some(token) = token.and_then(|token| format!("Bearer {token}").parse().ok()) {
            request.metadata_mut().insert("authorization", token);
        }
        async move { BigtableClient::new(channel).mutate_row(request).await.err().map(|e| e.code()) }
    };
    let mut refused = 0;
    let purpose = || ExtendedKeyUsagePurpose::ClientAuth;
    let identities = [None, Some(theirs.sign(purpose(), false)?), Some(ours.sign(purpose(), true)?)];
    for identity in identities {
        let answered = match client(identity)?.connect().await {
            Err(_) => None,
            Ok(channel) => Some(call(channel, Some("good"), put(1)).await),
        };
        if answered.is_some_and(|code| matches!(code, None | Some(Code::PermissionDenied))) {
            return Err("a client without a certificate of ours was let in".into());
        }
        refused += 1;
    }
    // The server cannot even say no to who speaks no TLS.
    let code = call(channel(port), Some("good"), put(1)).await;
    if matches!(code, None | Some(Code::PermissionDenied)) {
        return Err(format!("a client without TLS was let in, and answered {code:?}"));
    }
    let known = client(Some(ours.sign(purpose(), false)?))?.connect().await.map_err(|e| e.to_string())?;
    for (token, expected) in [
        (None, Code::Unauthenticated),
        (Some("wrong"), Code::Unauthenticated),
        (Some("good"), Code::PermissionDenied),
    ] {
        let code = call(known.clone(), token, put(1)).await;
        if code != Some(expected) {
            return Err(format!("token {token:?} ends with {code:?}, not {expected:?}"));
        }
        refused += 1;
    }
    Ok(refused + 1)
}
