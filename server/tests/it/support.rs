//! A server of its own for each test, and short words for what tests say to it.

pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin_v2;
pub(crate) use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data_v2;

pub(crate) use admin_v2::bigtable_table_admin_client::BigtableTableAdminClient;
pub(crate) use data_v2::bigtable_client::BigtableClient;
pub(crate) use data_v2::mutation::Mutation as Change;
pub(crate) use data_v2::{Mutation, ReadRowsRequest, RowFilter, RowSet, mutation};

use siltstone_server::{Config, Server};
use std::net::SocketAddr;
use tonic::transport::Channel;
use tonic::{Code, Status};

pub(crate) const INSTANCE: &str = "projects/p/instances/i";
pub(crate) const TABLE: &str = "projects/p/instances/i/tables/t";

/// A server, its directory, and clients of it.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) data: BigtableClient<Channel>,
    pub(crate) admin: BigtableTableAdminClient<Channel>,
}

/// Settings with any ports.
pub(crate) fn config(dir: &std::path::Path) -> Config {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Config { dir: dir.join("data"), listen: any, http: any, ..Config::default() }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = config(dir.path());
        change(&mut settings);
        Self::open(dir, settings).await
    }

    /// A server on the directory of one that was stopped.
    pub(crate) async fn at(dir: tempfile::TempDir) -> Self {
        let settings = config(dir.path());
        Self::open(dir, settings).await
    }

    async fn open(dir: tempfile::TempDir, settings: Config) -> Self {
        let server = Server::start(settings).await.unwrap();
        let at = format!("http://{}", server.listens_at());
        let channel = Channel::from_shared(at).unwrap().connect().await.unwrap();
        let data = BigtableClient::new(channel.clone()).max_decoding_message_size(4 << 20);
        let admin = BigtableTableAdminClient::new(channel);
        Self { server, dir, data, admin }
    }

    /// Stops the server and starts another on its directory.
    pub(crate) async fn again(self) -> Self {
        let Self { server, dir, data, admin } = self;
        drop((data, admin));
        server.stop().await.unwrap();
        Self::at(dir).await
    }

    /// Stops the server and starts another on its directory, with settings changed by `change`.
    pub(crate) async fn again_with(self, change: impl FnOnce(&mut Config)) -> Self {
        let Self { server, dir, data, admin } = self;
        drop((data, admin));
        server.stop().await.unwrap();
        let mut settings = config(dir.path());
        change(&mut settings);
        Self::open(dir, settings).await
    }

    /// Makes the table `t` with these families.
    pub(crate) async fn table(&mut self, families: &[&str]) {
        let families: Vec<_> =
            families.iter().map(|name| (*name, admin_v2::ColumnFamily::default())).collect();
        self.table_with(&families).await;
    }

    pub(crate) async fn table_with(&mut self, families: &[(&str, admin_v2::ColumnFamily)]) {
        let column_families =
            families.iter().map(|(name, family)| ((*name).to_string(), family.clone())).collect();
        let table = admin_v2::Table { column_families, ..Default::default() };
        let request = admin_v2::CreateTableRequest {
            parent: INSTANCE.into(),
            table_id: "t".into(),
            table: Some(table),
            ..Default::default()
        };
        self.admin.create_table(request).await.unwrap();
    }

    pub(crate) async fn mutate(&mut self, row: &str, changes: Vec<Change>) -> Result<(), Status> {
        let mutations = changes.into_iter().map(|change| Mutation { mutation: Some(change) }).collect();
        let request = data_v2::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: row.to_string().into(),
            mutations,
            ..Default::default()
        };
        self.data.mutate_row(request).await.map(|_| ())
    }

    /// Rows as text: `row f:q@timestamp=value ...`, a row a line.
    pub(crate) async fn read(&mut self, request: ReadRowsRequest) -> Result<String, Status> {
        let rows = self.rows(request).await?;
        let text = |(key, cells): (String, Vec<String>)| format!("{key} {}", cells.join(" "));
        Ok(rows.into_iter().map(text).collect::<Vec<_>>().join("\n"))
    }

    /// Rows as pairs of key and cells, put together from chunks with all rules of the protocol checked.
    pub(crate) async fn rows(
        &mut self,
        request: ReadRowsRequest,
    ) -> Result<Vec<(String, Vec<String>)>, Status> {
        let mut request = request;
        if request.table_name.is_empty() && request.authorized_view_name.is_empty() {
            request.table_name = TABLE.into();
        }
        let mut stream = self.data.read_rows(request).await?.into_inner();
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        let (mut key, mut family, mut qualifier) = (Vec::new(), String::new(), Vec::new());
        let (mut value, mut cells, mut in_row, mut at) = (Vec::new(), Vec::new(), false, 0);
        while let Some(message) = stream.message().await? {
            let names_its_row = message.chunks.first().is_none_or(|chunk| !chunk.row_key.is_empty());
            assert!(names_its_row, "the first chunk of a message names its row");
            for chunk in message.chunks {
                assert!(in_row || !chunk.row_key.is_empty(), "the first chunk of a row names it");
                if !chunk.row_key.is_empty() {
                    assert!(!in_row || chunk.row_key == key, "the row changes without an end");
                    key = chunk.row_key.to_vec();
                }
                in_row = true;
                if let Some(name) = chunk.family_name {
                    assert!(chunk.qualifier.is_some(), "a family without a qualifier");
                    family = name;
                }
                qualifier = chunk.qualifier.unwrap_or(qualifier);
                // Of a value in pieces the first alone has the timestamp.
                if value.is_empty() {
                    at = chunk.timestamp_micros;
                }
                value.extend_from_slice(&chunk.value);
                if chunk.value_size > 0 {
                    continue;
                }
                let labels: String = chunk.labels.iter().map(|label| format!("+{label}")).collect();
                let shown = match value.len() {
                    0..100 => value.escape_ascii().to_string(),
                    len => format!("({len} bytes)"),
                };
                let qualifier = qualifier.escape_ascii();
                cells.push(format!("{family}:{qualifier}@{at}={shown}{labels}"));
                value.clear();
                if chunk.row_status.is_some() {
                    rows.push((key.escape_ascii().to_string(), std::mem::take(&mut cells)));
                    in_row = false;
                }
            }
        }
        assert!(!in_row, "a row that does not end");
        Ok(rows)
    }

    pub(crate) async fn read_all(&mut self) -> String {
        self.read(ReadRowsRequest::default()).await.unwrap()
    }

    /// All rows of another table.
    pub(crate) async fn read_from(&mut self, table: &str) -> String {
        self.read(ReadRowsRequest { table_name: table.into(), ..Default::default() }).await.unwrap()
    }

    pub(crate) async fn read_with(&mut self, filter: data_v2::row_filter::Filter) -> String {
        let filter = Some(RowFilter { filter: Some(filter) });
        self.read(ReadRowsRequest { filter, ..Default::default() }).await.unwrap()
    }
}

pub(crate) fn set(family: &str, qualifier: &str, timestamp_micros: i64, value: impl Into<Vec<u8>>) -> Change {
    Change::SetCell(mutation::SetCell {
        family_name: family.into(),
        column_qualifier: qualifier.to_string().into(),
        timestamp_micros,
        value: value.into().into(),
    })
}

pub(crate) fn delete_column(family: &str, qualifier: &str, times: Option<(i64, i64)>) -> Change {
    let time_range = times.map(|(start_timestamp_micros, end_timestamp_micros)| data_v2::TimestampRange {
        start_timestamp_micros,
        end_timestamp_micros,
    });
    Change::DeleteFromColumn(mutation::DeleteFromColumn {
        family_name: family.into(),
        column_qualifier: qualifier.to_string().into(),
        time_range,
    })
}

pub(crate) fn delete_family(family: &str) -> Change {
    Change::DeleteFromFamily(mutation::DeleteFromFamily { family_name: family.into() })
}

pub(crate) fn delete_row() -> Change {
    Change::DeleteFromRow(mutation::DeleteFromRow {})
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, word: &str) {
    let status = result.unwrap_err();
    assert!(
        status.code() == code && status.message().contains(word),
        "{status:?}, expected {code:?} with {word}"
    );
}

/// The whole answer to a GET.
pub(crate) async fn get(at: SocketAddr, path: &str) -> String {
    get_with(at, path, "").await
}

/// The whole answer to a GET with these headers, each with its end of line.
pub(crate) async fn get_with(at: SocketAddr, path: &str, headers: &str) -> String {
    get_from(at, "localhost", path, headers).await
}

/// The whole answer to a GET with these headers, from a server that is called `host`.
pub(crate) async fn get_from(at: SocketAddr, host: &str, path: &str, headers: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(at).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The counts that a scan reports: rows seen and returned, and cells seen and returned.
pub(crate) async fn seen(t: &mut Fixture, request: ReadRowsRequest) -> [i64; 4] {
    let request_stats_view = data_v2::read_rows_request::RequestStatsView::RequestStatsFull as i32;
    let request = ReadRowsRequest { request_stats_view, ..request };
    let mut stream = t.data.read_rows(request).await.unwrap().into_inner();
    let mut stats = None;
    while let Some(message) = stream.message().await.unwrap() {
        stats = message.request_stats.or(stats);
    }
    let Some(data_v2::request_stats::StatsView::FullReadStatsView(view)) = stats.unwrap().stats_view else {
        panic!("no statistics")
    };
    let seen = view.read_iteration_stats.unwrap();
    [seen.rows_seen_count, seen.rows_returned_count, seen.cells_seen_count, seen.cells_returned_count]
}
