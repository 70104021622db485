//! Who may do what: tokens, TLS, memory of calls, deadlines. And clients that mean no good: who floods,
//! lingers, or takes nothing.

use crate::support::{
    BigtableClient, BigtableTableAdminClient, Change, Fixture, INSTANCE, Mutation, ReadRowsRequest, TABLE,
    admin_v2, config, data_v2, mutation,
};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use siltstone_server::{Server, Size, TlsConfig, token_digest};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Request, Status};

pub(crate) fn entry(token: &str, rights: &str, tables: &str) -> String {
    let digest = token_digest(token);
    format!("[[token]]\nname = '{token}'\nsha256 = '{digest}'\nrights = [{rights}]\ntables = [{tables}]\n")
}

/// Sends a token with each call.
#[derive(Clone)]
pub(crate) struct With(pub(crate) &'static str);

impl Interceptor for With {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let header = format!("Bearer {}", self.0).parse::<MetadataValue<_>>().unwrap();
        request.metadata_mut().insert("authorization", header);
        Ok(request)
    }
}

fn set(row: &str) -> data_v2::MutateRowRequest {
    let cell = mutation::SetCell {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        timestamp_micros: 1_000,
        value: "v".into(),
    };
    data_v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: row.to_string().into(),
        mutations: vec![Mutation { mutation: Some(Change::SetCell(cell)) }],
        ..Default::default()
    }
}

fn create(id: &str) -> admin_v2::CreateTableRequest {
    let families = [("f".to_string(), admin_v2::ColumnFamily::default())];
    let table = admin_v2::Table { column_families: families.into(), ..Default::default() };
    admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: id.into(),
        table: Some(table),
        ..Default::default()
    }
}

fn read() -> ReadRowsRequest {
    ReadRowsRequest { table_name: TABLE.into(), ..Default::default() }
}

#[tokio::test]
async fn with_tokens_each_call_needs_one_with_the_right_to_its_table() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let text = [
        entry("root", "'read', 'write', 'admin'", "'projects/p/*'"),
        entry("reader", "'read'", &format!("'{TABLE}'")),
        entry("other", "'read', 'write', 'admin'", "'projects/q/*'"),
    ];
    std::fs::write(&file, text.concat()).unwrap();
    let fixture = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let channel = Channel::from_shared(format!("http://{}", fixture.server.listens_at())).unwrap();
    let channel = channel.connect().await.unwrap();
    let data = |token| BigtableClient::with_interceptor(channel.clone(), With(token));
    let admin = |token| BigtableTableAdminClient::with_interceptor(channel.clone(), With(token));
    assert_eq!(admin("reader").create_table(create("t")).await.unwrap_err().code(), Code::PermissionDenied);
    admin("root").create_table(create("t")).await.unwrap();
    data("root").mutate_row(set("a")).await.unwrap();
    assert_eq!(data("reader").mutate_row(set("b")).await.unwrap_err().code(), Code::PermissionDenied);
    assert!(data("reader").read_rows(read()).await.is_ok());
    assert_eq!(data("other").read_rows(read()).await.unwrap_err().code(), Code::PermissionDenied);
    let list = || admin_v2::ListTablesRequest { parent: INSTANCE.into(), ..Default::default() };
    assert_eq!(admin("reader").list_tables(list()).await.unwrap().into_inner().tables.len(), 1);
    assert_eq!(admin("other").list_tables(list()).await.unwrap().into_inner().tables.len(), 0);
    // The file changes: a token more, one less.
    let changed =
        [entry("late", "'write'", &format!("'{TABLE}'")), entry("root", "'admin'", "'projects/p/*'")];
    std::fs::write(&file, changed.concat()).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while let Err(e) = data("late").mutate_row(set("c")).await {
        assert!(e.code() == Code::Unauthenticated && std::time::Instant::now() < deadline, "{e}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(data("reader").read_rows(read()).await.unwrap_err().code(), Code::Unauthenticated);
    fixture.server.stop().await.unwrap();
}

/// Waits until an answer over HTTP has that text, or has it no more.
pub(crate) async fn told(fixture: &Fixture, path: &str, text: &str, is_told: bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let answer =
            crate::support::get_with(fixture.server.page_at(), path, "authorization: Bearer eye\r\n").await;
        if answer.contains(text) == is_told {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{text} {is_told}: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_removed_token_stays_refused_whatever_becomes_of_the_file_which_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let reader = entry("reader", "'read'", &format!("'{TABLE}'"));
    let rest = entry("root", "'read', 'write', 'admin'", "'projects/p/*'") + &entry("eye", "'monitor'", "");
    std::fs::write(&file, reader + &rest).unwrap();
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    let fixture = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let channel = Channel::from_shared(format!("http://{}", fixture.server.listens_at())).unwrap();
    let channel = channel.connect().await.unwrap();
    let data = |token| BigtableClient::with_interceptor(channel.clone(), With(token));
    let admin = BigtableTableAdminClient::with_interceptor(channel.clone(), With("root"));
    admin.clone().create_table(create("t")).await.unwrap();
    data("reader").read_rows(read()).await.unwrap();
    told(&fixture, "/metrics", "siltstone_files_stale 0", true).await;
    // As `cp -p` does it.
    std::fs::write(&file, &rest).unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while data("reader").read_rows(read()).await.is_ok() {
        assert!(std::time::Instant::now() < deadline, "the token is taken still");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for broken in [Some("[[token]\nbroken"), None] {
        match broken {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        told(&fixture, "/metrics", "siltstone_files_stale 1", true).await;
        told(&fixture, "/readyz", "tokens: not usable", true).await;
        assert_eq!(data("reader").read_rows(read()).await.unwrap_err().code(), Code::Unauthenticated);
        data("root").read_rows(read()).await.unwrap();
    }
    std::fs::write(&file, &rest).unwrap();
    told(&fixture, "/readyz", "not usable", false).await;
    assert_eq!(data("reader").read_rows(read()).await.unwrap_err().code(), Code::Unauthenticated);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn files_of_secrets_that_others_can_read_are_told() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    std::fs::write(&file, entry("eye", "'monitor'", "")).unwrap();
    let change = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    change(0o644);
    let fixture = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let answer = crate::support::get(fixture.server.page_at(), "/readyz").await;
    assert!(answer.contains("200 OK") && answer.contains("tokens: the file has mode 644"), "{answer}");
    change(0o600);
    told(&fixture, "/readyz", "mode", false).await;
    change(0o640);
    told(&fixture, "/readyz", "mode 640", true).await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_backups_are_told_to_nobody_and_taken_by_nobody_without_a_right() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let text = [
        entry("root", "'read', 'write', 'admin'", "'projects/p/*'"),
        entry("owner", "'admin'", &format!("'{TABLE}'")),
        entry("reader", "'read'", &format!("'{TABLE}'")),
        entry("eye", "'monitor'", ""),
    ];
    std::fs::write(&file, text.concat()).unwrap();
    let fixture = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let channel = Channel::from_shared(format!("http://{}", fixture.server.listens_at())).unwrap();
    let channel = channel.connect().await.unwrap();
    let admin = |token| BigtableTableAdminClient::with_interceptor(channel.clone(), With(token));
    let ours = format!("{INSTANCE}/clusters/c");
    let theirs = "projects/victim/instances/v/clusters/c";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let expire_time = Some(prost_types::Timestamp { seconds: i64::try_from(now).unwrap() + 3_600, nanos: 0 });
    let make = |cluster: &str, id: &str, table: &str| admin_v2::CreateBackupRequest {
        parent: cluster.into(),
        backup_id: id.into(),
        backup: Some(admin_v2::Backup {
            source_table: format!("{INSTANCE}/tables/{table}"),
            expire_time,
            ..Default::default()
        }),
    };
    let copy = |cluster: &str, id: &str, source: &str| admin_v2::CopyBackupRequest {
        parent: cluster.into(),
        backup_id: id.into(),
        source_backup: format!("{ours}/backups/{source}"),
        expire_time,
    };
    for id in ["t", "u"] {
        admin("root").create_table(create(id)).await.unwrap();
    }
    admin("root").create_backup(make(&ours, "hidden", "u")).await.unwrap();
    admin("owner").create_backup(make(&ours, "own", "t")).await.unwrap();
    for token in ["reader", "eye"] {
        for (id, source) in [("hidden", "none"), ("free", "none"), ("free", "hidden"), ("own", "own")] {
            let refused = admin(token).copy_backup(copy(&ours, id, source)).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{token}: {id} of {source}: {refused}");
        }
    }
    // Who administers one table of an instance shares its names, and sees no backups of other tables.
    let (of_hidden, of_none) = (copy(&ours, "free", "hidden"), copy(&ours, "free", "none"));
    for request in [of_hidden, of_none] {
        assert_eq!(admin("owner").copy_backup(request).await.unwrap_err().code(), Code::NotFound);
    }
    let elsewhere = admin("owner").create_backup(make(theirs, "daily", "t")).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::PermissionDenied, "{elsewhere}");
    let elsewhere = admin("owner").copy_backup(copy(theirs, "daily", "own")).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::PermissionDenied, "{elsewhere}");
    admin("owner").copy_backup(copy(&ours, "second", "own")).await.unwrap();
    fixture.server.stop().await.unwrap();
}

/// Every method that the server has, by its name on the wire, and nothing else: each must be refused.
#[tokio::test]
async fn without_a_token_no_method_of_any_service_answers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    std::fs::write(&file, entry("x", "'read'", "'*'")).unwrap();
    let fixture = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let channel = Channel::from_shared(format!("http://{}", fixture.server.listens_at())).unwrap();
    let channel = channel.connect().await.unwrap();
    let methods = siltstone_server::METHODS;
    assert!(methods.len() > 20, "{methods:?}");
    for path in methods {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let path = path.parse().unwrap();
        let refused = client.unary(Request::new(()), path, codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{path:?}: {refused}", path = refused.message());
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_decode_is_its_clients_fault_at_every_method() {
    let fixture = Fixture::new().await;
    let channel = Channel::from_shared(format!("http://{}", fixture.server.listens_at())).unwrap();
    let channel = channel.connect().await.unwrap();
    // The request of State has no fields, so that the number is one that is not served.
    for path in siltstone_server::METHODS.iter().filter(|path| !path.ends_with("/State")) {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        // A number, where every request begins with a text or a message.
        let codec = tonic_prost::ProstCodec::<u64, ()>::default();
        let refused = client.unary(Request::new(5), path.parse().unwrap(), codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{path}: {refused}");
    }
    fixture.server.stop().await.unwrap();
}

/// An authority, and what it signs.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// (certificate, key)
    fn sign(&self, purpose: impl Into<Option<ExtendedKeyUsagePurpose>>) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        params.extended_key_usages = purpose.into().into_iter().collect();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn write_server(&self, dir: &Path) {
        let (certificate, key) = self.sign(ExtendedKeyUsagePurpose::ServerAuth);
        std::fs::write(dir.join("key.pem"), key).unwrap();
        std::fs::write(dir.join("cert.pem"), certificate).unwrap();
    }
}

async fn over_tls(
    server: &Server,
    authority: &str,
    identity: Option<&(String, String)>,
) -> Result<(), String> {
    let mut tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)).domain_name("localhost");
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let at = format!("https://localhost:{}", server.listens_at().port());
    let channel = Channel::from_shared(at).unwrap().tls_config(tls).unwrap();
    let channel = channel.connect().await.map_err(|e| e.to_string())?;
    let ping = data_v2::PingAndWarmRequest { name: INSTANCE.into(), ..Default::default() };
    BigtableClient::new(channel).ping_and_warm(ping).await.map(|_| ()).map_err(|e| e.to_string())
}

#[tokio::test]
async fn tls_keeps_out_who_cannot_show_a_certificate_and_takes_new_ones_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new(), Authority::new());
    first.write_server(dir.path());
    std::fs::write(dir.path().join("ca.pem"), first.pem()).unwrap();
    let mut settings = config(dir.path());
    settings.tls = Some(TlsConfig {
        certificate: dir.path().join("cert.pem"),
        key: dir.path().join("key.pem"),
        client_ca: Some(dir.path().join("ca.pem")),
    });
    let server = Server::start(settings).await.unwrap();
    let (ours, theirs) =
        (first.sign(ExtendedKeyUsagePurpose::ClientAuth), second.sign(ExtendedKeyUsagePurpose::ClientAuth));
    over_tls(&server, &first.pem(), Some(&ours)).await.unwrap();
    assert!(over_tls(&server, &first.pem(), None).await.is_err());
    assert!(over_tls(&server, &first.pem(), Some(&theirs)).await.is_err());
    assert!(over_tls(&server, &second.pem(), Some(&ours)).await.is_err());
    for not_for_clients in [Some(ExtendedKeyUsagePurpose::ServerAuth), None] {
        let identity = first.sign(not_for_clients);
        assert!(over_tls(&server, &first.pem(), Some(&identity)).await.is_err());
    }
    // Who speaks no TLS at all, or nothing, keeps nobody waiting.
    let _silent = TcpStream::connect(server.listens_at()).await.unwrap();
    let plain = Channel::from_shared(format!("http://{}", server.listens_at())).unwrap().connect().await;
    assert!(plain.is_err() || BigtableClient::new(plain.unwrap()).read_rows(read()).await.is_err());
    over_tls(&server, &first.pem(), Some(&ours)).await.unwrap();
    second.write_server(dir.path());
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while let Err(e) = over_tls(&server, &second.pem(), Some(&ours)).await {
        assert!(std::time::Instant::now() < deadline, "{e}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn files_that_are_no_certificates_are_named_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    Authority::new().write_server(dir.path());
    std::fs::write(dir.path().join("cert.pem"), "nonsense").unwrap();
    let mut settings = config(dir.path());
    settings.tls = Some(TlsConfig {
        certificate: dir.path().join("cert.pem"),
        key: dir.path().join("key.pem"),
        client_ca: None,
    });
    let refused = Server::start(settings.clone()).await.err().unwrap();
    assert!(refused.contains("cert.pem"), "{refused}");
    settings.tls = None;
    settings.tokens = Some(dir.path().join("none.toml"));
    let refused = Server::start(settings).await.err().unwrap();
    assert!(refused.contains("none.toml"), "{refused}");
}

#[tokio::test]
async fn a_request_that_is_over_the_memory_for_calls_is_refused_and_others_go_on() {
    let mut fixture = Fixture::with(|config| config.call_memory = Size(16 << 20)).await;
    fixture.table(&["f"]).await;
    let large = |bytes: usize| {
        let cell = mutation::SetCell {
            family_name: "f".into(),
            column_qualifier: "q".into(),
            timestamp_micros: 1_000,
            value: vec![7; bytes].into(),
        };
        vec![Change::SetCell(cell)]
    };
    for _ in 0..5 {
        let refused = fixture.mutate("a", large(5 << 20)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("call-memory"), "it never fits: {refused}");
        fixture.mutate("b", large(1 << 20)).await.unwrap();
    }
    let rows = fixture.rows(ReadRowsRequest::default()).await.unwrap();
    assert_eq!(rows.len(), 1);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn clients_that_read_nothing_hold_no_more_than_the_memory_for_calls() {
    let mut fixture = Fixture::with(|config| config.call_memory = Size(16 << 20)).await;
    fixture.table(&["f"]).await;
    for row in 0..40 {
        let cell = mutation::SetCell {
            family_name: "f".into(),
            column_qualifier: "q".into(),
            timestamp_micros: 1_000,
            value: vec![7; 500_000].into(),
        };
        fixture.mutate(&format!("row{row:03}"), vec![Change::SetCell(cell)]).await.unwrap();
    }
    // Each of these takes its stream, and nothing from it.
    let mut idle = Vec::new();
    for _ in 0..20 {
        let at = format!("http://{}", fixture.server.listens_at());
        let channel =
            Channel::from_shared(at).unwrap().initial_stream_window_size(65_535).connect().await.unwrap();
        let mut client = BigtableClient::new(channel);
        idle.push((client.read_rows(read()).await.unwrap(), client));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let metrics = crate::support::get(fixture.server.page_at(), "/metrics").await;
    let used = metrics.lines().find_map(|line| line.strip_prefix("siltstone_call_memory_bytes ")).unwrap();
    assert!((1.0..=9e6).contains(&used.parse::<f64>().unwrap()), "{used}");
    drop(idle);
    assert_eq!(fixture.rows(ReadRowsRequest::default()).await.unwrap().len(), 40);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_done() {
    let mut fixture = Fixture::new().await;
    fixture.table(&["f"]).await;
    let mut request = Request::new(set("late"));
    request.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
    let refused = fixture.data.mutate_row(request).await.unwrap_err();
    assert!(matches!(refused.code(), Code::DeadlineExceeded | Code::Cancelled), "{refused}");
    assert_eq!(fixture.rows(ReadRowsRequest::default()).await.unwrap().len(), 0);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn the_page_and_metrics_are_for_who_may_monitor() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let monitor = format!("[[token]]\nname = 'm'\nsha256 = '{}'\nrights = ['monitor']\n", token_digest("m"));
    std::fs::write(&file, monitor + &entry("r", "'read'", "'*'")).unwrap();
    let fixture = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let at = fixture.server.page_at();
    for (path, token, expected) in [
        ("/healthz", "", "200"),
        ("/readyz", "", "200"),
        ("/", "", "401"),
        ("/metrics", "", "401"),
        ("/api/state", "authorization: Bearer r\r\n", "403"),
        ("/metrics", "authorization: Bearer m\r\n", "200"),
        // "x:m"
        ("/", "authorization: Basic eDpt\r\n", "200"),
    ] {
        let answer = crate::support::get_with(at, path, token).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{path} {token}: {answer}");
    }
    fixture.server.stop().await.unwrap();
}

const READ_ROWS: &str = "/google.bigtable.v2.Bigtable/ReadRows";
pub(crate) const MUTATE_ROWS: &str = "/google.bigtable.v2.Bigtable/MutateRows";
const PING: &str = "/google.bigtable.v2.Bigtable/PingAndWarm";

/// A connection without what a client of gRPC adds to it, and what becomes of it.
pub(crate) async fn raw(server: &Server, window: u32) -> (SendRequest<Bytes>, JoinHandle<()>) {
    let socket = TcpStream::connect(server.listens_at()).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window);
    let (client, connection) = builder.handshake(socket).await.unwrap();
    (client, tokio::spawn(async move { drop(connection.await) }))
}

/// Begins a call.
async fn call(
    client: &SendRequest<Bytes>,
    path: &str,
    token: Option<&str>,
) -> (ResponseFuture, SendStream<Bytes>) {
    call_with(client, path, token, None).await
}

/// Makes a call with one more header, if there is one.
pub(crate) async fn call_with(
    client: &SendRequest<Bytes>,
    path: &str,
    token: Option<&str>,
    header: Option<(&str, &str)>,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut request = http::Request::post(format!("http://x{path}")).header("te", "trailers");
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut client = client.clone().ready().await.unwrap();
    client.send_request(request.body(()).unwrap(), false).unwrap()
}

/// A message that says it has so many bytes.
pub(crate) fn framed(claims: usize, message: &[u8]) -> Bytes {
    let claims = u32::try_from(claims).unwrap().to_be_bytes();
    [&[0u8][..], &claims, message].concat().into()
}

fn whole(message: &impl Message) -> Bytes {
    let bytes = message.encode_to_vec();
    framed(bytes.len(), &bytes)
}

/// How a call ended that was refused.
pub(crate) async fn refused_with(response: ResponseFuture) -> String {
    let response = tokio::time::timeout(Duration::from_secs(20), response).await.unwrap().unwrap();
    response.headers()["grpc-status"].to_str().unwrap().to_string()
}

/// Whether a call on that connection is answered.
async fn is_answered(client: &SendRequest<Bytes>) -> bool {
    let (response, mut body) = call(client, PING, None).await;
    let ping = data_v2::PingAndWarmRequest { name: INSTANCE.into(), ..Default::default() };
    body.send_data(whole(&ping), true).unwrap();
    let Ok(response) = response.await else { return false };
    let mut body = response.into_body();
    body.data().await.is_some_and(|data| data.is_ok())
}

async fn gauge(server: &Server, name: &str) -> f64 {
    let metrics = crate::support::get(server.page_at(), "/metrics").await;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

/// Waits until no memory for calls is in use.
async fn until_all_is_given_back(server: &Server) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while gauge(server, "siltstone_call_memory_bytes").await > 0.0 {
        assert!(std::time::Instant::now() < deadline, "memory for calls stays in use");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn large_rows(fixture: &mut Fixture, rows: usize) {
    fixture.table(&["f"]).await;
    for row in 0..rows {
        let cell = mutation::SetCell {
            family_name: "f".into(),
            column_qualifier: "q".into(),
            timestamp_micros: 1_000,
            value: vec![7; 500_000].into(),
        };
        fixture.mutate(&format!("row{row:03}"), vec![Change::SetCell(cell)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cancelled_calls_again_and_again_end_no_other_of_their_connection() {
    let mut fixture = Fixture::new().await;
    fixture.table(&["f"]).await;
    let (client, _connection) = raw(&fixture.server, 65_535).await;
    assert!(is_answered(&client).await);
    assert_eq!(client.current_max_send_streams(), 256);
    for _ in 0..5 {
        for _ in 0..1_000 {
            let (response, mut body) = call(&client, READ_ROWS, None).await;
            body.send_reset(Reason::CANCEL);
            drop(response);
        }
        assert!(is_answered(&client).await);
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn the_health_is_told_to_few_watchers_of_a_connection_and_takes_small_questions() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    let fixture = Fixture::new().await;
    let channel = Channel::from_shared(format!("http://{}", fixture.server.listens_at())).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    let question = |bytes: usize| HealthCheckRequest { service: "x".repeat(bytes) };
    let mut watches = Vec::new();
    for _ in 0..16 {
        watches.push(health.watch(question(0)).await.unwrap());
    }
    let refused = health.watch(question(0)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(health.check(question(0)).await.is_ok());
    assert_eq!(health.check(question(2_000)).await.unwrap_err().code(), Code::InvalidArgument);
    drop((watches, health));
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn who_has_no_right_to_a_table_is_told_so_before_the_rest_of_a_request_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let monitor = format!("[[token]]\nname = 'm'\nsha256 = '{}'\nrights = ['monitor']\n", token_digest("m"));
    std::fs::write(&file, monitor + &entry("w", "'write'", &format!("'{TABLE}'"))).unwrap();
    let fixture = Fixture::with(|config| {
        config.tokens = Some(file.clone());
        config.request_seconds = 1;
    })
    .await;
    let (client, _connection) = raw(&fixture.server, 65_535).await;
    let named = data_v2::MutateRowsRequest { table_name: TABLE.into(), ..Default::default() };
    let begin = async |token: Option<&str>, claims: usize, message: &[u8]| {
        let (response, mut body) = call(&client, MUTATE_ROWS, token).await;
        // It may be refused already.
        let _ = body.send_data(framed(claims, message), false);
        refused_with(response).await
    };
    // None of these ends. With the right it is waited for the rest, as long as it may take.
    assert_eq!(begin(None, 200 << 20, &named.encode_to_vec()).await, "16");
    assert_eq!(begin(Some("m"), 200 << 20, &named.encode_to_vec()).await, "7");
    assert_eq!(begin(Some("w"), 200 << 20, &named.encode_to_vec()).await, "8");
    assert_eq!(begin(Some("w"), 300 << 20, &[]).await, "3");
    // A name that does not come first, and one that comes twice.
    assert_eq!(begin(Some("w"), 200 << 20, &b"x".repeat(70_000)).await, "3");
    let twice = [named.encode_to_vec(), named.encode_to_vec()].concat();
    assert_eq!(begin(Some("w"), twice.len(), &twice).await, "3");
    drop(client);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_request_counts_as_what_it_becomes_and_not_as_what_it_weighs() {
    let mut fixture = Fixture::with(|config| config.call_memory = Size(16 << 20)).await;
    fixture.table(&["f"]).await;
    let mut empty = async |count: usize| {
        let entries = vec![data_v2::mutate_rows_request::Entry::default(); count];
        let request = data_v2::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
        fixture.data.mutate_rows(request).await.err().unwrap()
    };
    let over = empty(100_001).await;
    assert_eq!(over.code(), Code::InvalidArgument, "{over}");
    // 160 kB on the wire.
    let much = empty(80_000).await;
    assert!(much.code() == Code::ResourceExhausted && much.message().contains("call-memory"), "{much}");
    let keys = vec![Bytes::new(); 300_000];
    let rows = Some(data_v2::RowSet { row_keys: keys, ..Default::default() });
    let refused = fixture.data.read_rows(ReadRowsRequest { rows, ..read() }).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("500000"), "{refused}");
    until_all_is_given_back(&fixture.server).await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_do_not_end_are_given_up_and_small_ones_go_on_beside_them() {
    let mut fixture = Fixture::with(|config| {
        config.call_memory = Size(16 << 20);
        config.request_seconds = 1;
    })
    .await;
    fixture.table(&["f"]).await;
    let mut held = Vec::new();
    for bytes in [900_000, 900_000, 900_000, 900_000, 50_000, 50_000, 5_000, 5_000, 500] {
        for _ in 0..3 {
            let (client, connection) = raw(&fixture.server, 65_535).await;
            let (response, mut body) = call(&client, MUTATE_ROWS, None).await;
            body.send_data(framed(bytes + 10_000, &vec![b'x'; bytes]), false).unwrap();
            held.push((response, body, client, connection));
        }
    }
    for n in 0..20 {
        fixture.mutate(&format!("r{n}"), vec![crate::support::set("f", "q", 1_000, "v")]).await.unwrap();
    }
    for (response, ..) in held {
        assert_eq!(refused_with(response).await, "8");
    }
    until_all_is_given_back(&fixture.server).await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_which_nothing_is_taken_is_reset_and_what_it_held_is_free() {
    let mut fixture = Fixture::with(|config| {
        config.call_memory = Size(16 << 20);
        config.answer_seconds = 1;
    })
    .await;
    large_rows(&mut fixture, 8).await;
    // One that takes nothing, and one that takes a little.
    for window in [0, 20_000] {
        let (client, _connection) = raw(&fixture.server, window).await;
        let (response, mut body) = call(&client, READ_ROWS, None).await;
        body.send_data(whole(&read()), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let reset = loop {
            match body.data().await {
                Some(Ok(_)) => {}
                other => break other.unwrap().unwrap_err(),
            }
        };
        assert_eq!(reset.reason(), Some(Reason::INTERNAL_ERROR));
        until_all_is_given_back(&fixture.server).await;
        // The connection is as good as before.
        let (response, mut body) = call(&client, "/none", None).await;
        let _ = body.send_data(Bytes::new(), true);
        assert_eq!(refused_with(response).await, "12");
    }
    assert_eq!(fixture.rows(ReadRowsRequest::default()).await.unwrap().len(), 8);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn others_scan_beside_scans_that_take_nothing() {
    let mut fixture = Fixture::with(|config| config.call_memory = Size(16 << 20)).await;
    large_rows(&mut fixture, 12).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let (client, _connection) = raw(&fixture.server, 0).await;
        for _ in 0..5 {
            let (response, mut body) = call(&client, READ_ROWS, None).await;
            body.send_data(whole(&read()), true).unwrap();
            held.push((response, body, client.clone()));
        }
    }
    let rows = tokio::time::timeout(Duration::from_secs(30), fixture.rows(ReadRowsRequest::default())).await;
    assert_eq!(rows.expect("a scan waits for those that take nothing").unwrap().len(), 12);
    drop(held);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn silent_connections_make_room_for_others_and_are_closed() {
    let fixture = Fixture::with(|config| {
        config.connections_max = 8;
        config.header_seconds = 1;
        config.idle_seconds = 1;
    })
    .await;
    let mut silent = Vec::new();
    for (at, begins) in [
        (fixture.server.listens_at(), &b"PRI * HTTP/2"[..]),
        (fixture.server.page_at(), b"GET / HTTP/1.1\r\nx: "),
    ] {
        for _ in 0..8 {
            let mut socket = TcpStream::connect(at).await.unwrap();
            socket.write_all(begins).await.unwrap();
            silent.push(socket);
        }
    }
    // Of this address there are too many already.
    assert!(crate::support::get(fixture.server.page_at(), "/healthz").await.contains("200 OK"));
    let (client, connection) = raw(&fixture.server, 65_535).await;
    assert!(is_answered(&client).await);
    for mut socket in silent {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "a connection that says nothing stays");
    }
    // One that asked something, and asks no more, is closed too.
    tokio::time::timeout(Duration::from_secs(20), connection).await.unwrap().unwrap();
    fixture.server.stop().await.unwrap();
}
