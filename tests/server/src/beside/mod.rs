//! The server beside the emulator, Bigtable's own server in memory: both are asked the same, call after call,
//! drawn from a seed (`draw`), and must answer alike. What differs for a reason stands in one table
//! (`known`); the first other difference is told with its call. The emulator comes from Go's registry when
//! this is run; where it cannot be had, it says so, and nothing is compared.

mod draw;
mod known;

use crate::Extent;
use crate::child::{Server, admin, binary, channel, data};
use admin::bigtable_table_admin_client::BigtableTableAdminClient;
use data::bigtable_client::BigtableClient;
use data::mutation::{DeleteFromRow, Mutation as Change};
use draw::Draw;
use known::KNOWN;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// The fewest calls whose success says something: among so many each kind of call was answered, and each
/// difference that is known was met.
pub(crate) const LEAST: u64 = 2_000;
const CONFIG: &str = "memory = \"64MiB\"\nwrite-memory = \"16MiB\"\ndurability = \"buffered\"\n";
const EMULATOR: &str = "cloud.google.com/go/bigtable/cmd/emulator";
/// Seconds that getting it may take.
const GET_SECONDS: &str = "600";
/// What a client says that understands reverse scans: its flag, in base64.
const REVERSE_SCANS: &str = "CAE=";
/// Times of cells from here on are the servers' own.
const NOW_LEAST: i64 = 1_000_000_000_000;
/// Two calls that write at the server's time write at different ones, in both servers alike.
const TICK: Duration = Duration::from_millis(2);
/// Characters of a call or an answer that are told.
const TOLD_MAX: usize = 4_000;

/// A call that both are asked.
#[derive(Clone, Debug)]
enum Call {
    CreateTable(Box<admin::CreateTableRequest>),
    DeleteTable(admin::DeleteTableRequest),
    GetTable(admin::GetTableRequest),
    ListTables(admin::ListTablesRequest),
    ModifyColumnFamilies(admin::ModifyColumnFamiliesRequest),
    DropRowRange(admin::DropRowRangeRequest),
    SampleRowKeys(data::SampleRowKeysRequest),
    ReadRows(data::ReadRowsRequest),
    MutateRow(data::MutateRowRequest),
    MutateRows(data::MutateRowsRequest),
    CheckAndMutateRow(data::CheckAndMutateRowRequest),
    ReadModifyWriteRow(data::ReadModifyWriteRowRequest),
}

/// How many kinds of calls there are.
const KINDS: usize = 12;

impl Call {
    fn kind(&self) -> &'static str {
        match self {
            Self::CreateTable(_) => "CreateTable",
            Self::DeleteTable(_) => "DeleteTable",
            Self::GetTable(_) => "GetTable",
            Self::ListTables(_) => "ListTables",
            Self::ModifyColumnFamilies(_) => "ModifyColumnFamilies",
            Self::DropRowRange(_) => "DropRowRange",
            Self::SampleRowKeys(_) => "SampleRowKeys",
            Self::ReadRows(_) => "ReadRows",
            Self::MutateRow(_) => "MutateRow",
            Self::MutateRows(_) => "MutateRows",
            Self::CheckAndMutateRow(_) => "CheckAndMutateRow",
            Self::ReadModifyWriteRow(_) => "ReadModifyWriteRow",
        }
    }

    /// The table and the rows that it writes.
    fn written(&self) -> Option<(&str, Vec<bytes::Bytes>)> {
        match self {
            Self::MutateRow(of) => Some((of.table_name.as_str(), vec![of.row_key.clone()])),
            Self::CheckAndMutateRow(of) => Some((of.table_name.as_str(), vec![of.row_key.clone()])),
            Self::ReadModifyWriteRow(of) => Some((of.table_name.as_str(), vec![of.row_key.clone()])),
            Self::MutateRows(of) => {
                let rows = of.entries.iter().map(|entry| entry.row_key.clone()).collect();
                Some((of.table_name.as_str(), rows))
            }
            _ => None,
        }
    }

    /// Its mutations, of all rows and branches.
    fn changes(&self) -> impl Iterator<Item = &Change> {
        let lists: Vec<&[data::Mutation]> = match self {
            Self::MutateRow(of) => vec![&of.mutations[..]],
            Self::CheckAndMutateRow(of) => vec![&of.true_mutations[..], &of.false_mutations[..]],
            Self::MutateRows(of) => of.entries.iter().map(|entry| &entry.mutations[..]).collect(),
            _ => Vec::new(),
        };
        lists.into_iter().flatten().filter_map(|mutation| mutation.mutation.as_ref())
    }

    /// Whether it writes at the server's time.
    fn is_timed(&self) -> bool {
        let is_now = |change: &Change| matches!(change, Change::SetCell(set) if set.timestamp_micros == -1);
        matches!(self, Self::ReadModifyWriteRow(_)) || self.changes().any(is_now)
    }
}

/// What is compared of an answer, as text; or its code, and the words, which are not compared.
type Answer = Result<String, (Code, String)>;

fn are_alike(ours: &Answer, theirs: &Answer) -> bool {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        (Err((ours, _)), Err((theirs, _))) => ours == theirs,
        _ => false,
    }
}

/// One of the two.
struct Peer {
    rows: BigtableClient<Channel>,
    tables: BigtableTableAdminClient<Channel>,
}

impl Peer {
    fn at(channel: Channel) -> Self {
        Self { rows: BigtableClient::new(channel.clone()), tables: BigtableTableAdminClient::new(channel) }
    }

    async fn ask(&mut self, call: Call) -> Answer {
        self.answer(call).await.map_err(|status| (status.code(), status.message().to_string()))
    }

    async fn answer(&mut self, call: Call) -> Result<String, Status> {
        let (rows, tables) = (&mut self.rows, &mut self.tables);
        Ok(match call {
            Call::CreateTable(request) => families(tables.create_table(*request).await?.into_inner()),
            Call::GetTable(request) => families(tables.get_table(request).await?.into_inner()),
            Call::ModifyColumnFamilies(request) => {
                families(tables.modify_column_families(request).await?.into_inner())
            }
            Call::DeleteTable(request) => {
                tables.delete_table(request).await?;
                String::new()
            }
            Call::DropRowRange(request) => {
                tables.drop_row_range(request).await?;
                String::new()
            }
            Call::ListTables(request) => {
                let found = tables.list_tables(request).await?.into_inner().tables;
                let mut names: Vec<String> = found.into_iter().map(|table| table.name).collect();
                names.sort();
                names.join(" ")
            }
            Call::SampleRowKeys(request) => {
                let mut stream = rows.sample_row_keys(request).await?.into_inner();
                let mut keys = Vec::new();
                while let Some(message) = stream.message().await? {
                    keys.push(message.row_key);
                }
                // Where the samples lie is up to the server.
                let last = keys.pop();
                match last.is_some_and(|last| last.is_empty()) && keys.is_sorted() {
                    true => "in order, up to the end".into(),
                    false => format!("{keys:?}"),
                }
            }
            Call::ReadRows(request) => {
                let mut request = Request::new(request);
                let features = MetadataValue::from_static(REVERSE_SCANS);
                request.metadata_mut().insert("bigtable-features", features);
                read(rows.read_rows(request).await?.into_inner()).await?
            }
            Call::MutateRow(request) => {
                rows.mutate_row(request).await?;
                String::new()
            }
            Call::MutateRows(request) => {
                let mut stream = rows.mutate_rows(request).await?.into_inner();
                let mut codes = BTreeMap::new();
                while let Some(message) = stream.message().await? {
                    let entries = message.entries.into_iter();
                    codes.extend(
                        entries.map(|entry| (entry.index, entry.status.map_or(0, |status| status.code))),
                    );
                }
                codes.values().map(i32::to_string).collect::<Vec<_>>().join(" ")
            }
            Call::CheckAndMutateRow(request) => {
                rows.check_and_mutate_row(request).await?.into_inner().predicate_matched.to_string()
            }
            Call::ReadModifyWriteRow(request) => {
                let row = rows.read_modify_write_row(request).await?.into_inner().row.unwrap_or_default();
                let mut cells = Cells::default();
                for family in row.families {
                    for column in family.columns {
                        let name = (family.name.clone(), column.qualifier.to_vec());
                        let of = column.cells.into_iter();
                        let of = of.map(|cell| (Reverse(cell.timestamp_micros), cell.value, cell.labels));
                        cells.entry(name).or_default().extend(of);
                    }
                }
                row_text(&row.key, cells)
            }
        })
    }
}

/// The families of a table with their rules.
fn families(table: admin::Table) -> String {
    let of = table.column_families.into_iter().map(|(name, family)| format!("{name} {:?}", family.gc_rule));
    of.collect::<Vec<_>>().join(", ")
}

/// Cells of a row by column, newest first.
type Cells = BTreeMap<(String, Vec<u8>), Vec<(Reverse<i64>, bytes::Bytes, Vec<String>)>>;

/// A row as text: what is equal but for its order among families, and among cells of one column and time, is
/// the same text.
fn row_text(key: &[u8], cells: Cells) -> String {
    let mut text = format!("\"{}\"", key.escape_ascii());
    for ((family, qualifier), mut cells) in cells {
        cells.sort();
        for (Reverse(at), value, labels) in cells {
            let at = if at >= NOW_LEAST { "now".to_string() } else { at.to_string() };
            text.push_str(&format!(" {family}:{}@{at}={}", qualifier.escape_ascii(), value.escape_ascii()));
            labels.iter().for_each(|label| text.push_str(&format!("#{label}")));
        }
    }
    text
}

/// The rows of an answer, in their order.
async fn read(mut stream: tonic::Streaming<data::ReadRowsResponse>) -> Result<String, Status> {
    use data::read_rows_response::cell_chunk::RowStatus;
    let (mut text, mut key, mut cells) = (String::new(), bytes::Bytes::new(), Cells::default());
    let mut column = (String::new(), Vec::new());
    while let Some(message) = stream.message().await? {
        for chunk in message.chunks {
            if chunk.value_size > 0 {
                return Err(Status::internal("a small value came in pieces"));
            }
            if !chunk.row_key.is_empty() {
                key = chunk.row_key;
            }
            column.0 = chunk.family_name.unwrap_or(column.0);
            column.1 = chunk.qualifier.unwrap_or(column.1);
            let cell = (Reverse(chunk.timestamp_micros), chunk.value, chunk.labels);
            cells.entry(column.clone()).or_default().push(cell);
            if let Some(RowStatus::CommitRow(true)) = chunk.row_status {
                text.push_str(&row_text(&key, std::mem::take(&mut cells)));
                text.push('\n');
            }
        }
    }
    match cells.is_empty() {
        true => Ok(text),
        false => Err(Status::internal("the last row is not complete")),
    }
}

/// The emulator, ended with this.
struct Emulator {
    child: Child,
    port: u16,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulator {
    /// Gets and starts it; `None` where it cannot be had.
    fn start() -> Result<Option<Self>, String> {
        let pinned = include_str!("../../../clients/go/go.mod");
        let version = pinned.split_whitespace().last().unwrap_or_default();
        let place = binary().with_file_name(format!("emulator-{version}"));
        let mut get = Command::new("timeout");
        get.args([GET_SECONDS, "go", "install", &format!("{EMULATOR}@{version}")]).env("GOBIN", &place);
        if !get.status().is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let mut emulator = Command::new(place.join("emulator"));
        emulator.args(["-address", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = emulator.spawn().map_err(|e| format!("the emulator: {e}"))?;
        let mut line = String::new();
        let out = child.stdout.take().map(BufReader::new);
        let _ = out.map(|mut out| out.read_line(&mut line));
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let emulator = Self { child, port: port.unwrap_or_default() };
        match emulator.port {
            0 => Err(format!("the emulator does not say where it listens: {line:?}")),
            _ => Ok(Some(emulator)),
        }
    }
}

fn told(text: String) -> String {
    text.chars().take(TOLD_MAX).collect()
}

/// So many calls.
pub(crate) async fn run(extent: &Extent, seed: u64) -> Result<String, String> {
    let Some(emulator) = Emulator::start()? else {
        return Ok(format!("NOT RUN, {EMULATOR} cannot be had here: there is no go, or no network"));
    };
    let server = Server::start(CONFIG).await?;
    let (mut ours, mut theirs) = (Peer::at(server.channel()), Peer::at(channel(emulator.port)));
    let mut draw = Draw::new(seed);
    let mut met = [0_u64; KNOWN.len()];
    let mut answered = BTreeMap::new();
    let mut refused = 0_u64;
    while extent.goes_on() {
        let call = draw.call();
        let (our, their) = tokio::join!(ours.ask(call.clone()), theirs.ask(call.clone()));
        if !are_alike(&our, &their) {
            let known = KNOWN.iter().position(|known| known.is.is_some_and(|is| is(&call, &our, &their)));
            let number = extent.done();
            let differs = || {
                let call = told(format!("{call:?}"));
                let (our, their) = (told(format!("{our:#?}")), told(format!("{their:#?}")));
                format!("call {number} is answered differently: {call}\nhere: {our}\nthe emulator: {their}")
            };
            let known = known.ok_or_else(differs)?;
            met[known] += 1;
        }
        extent.advance(1);
        draw.note(&call, our.is_ok());
        match our.is_ok() {
            true => *answered.entry(call.kind()).or_insert(0_u64) += 1,
            false => refused += 1,
        }
        // The emulator has done half of what it refused: such a row begins anew.
        let is_whole = |answer: &Answer| answer.as_ref().is_ok_and(|text| !is_partial(&call, text));
        if !(is_whole(&our) && is_whole(&their)) {
            for repair in repairs(&call, draw.table()) {
                for peer in [&mut ours, &mut theirs] {
                    peer.ask(repair.clone())
                        .await
                        .map_err(|(code, why)| format!("{repair:?}: {code}: {why}"))?;
                }
            }
        }
        if call.is_timed() {
            tokio::time::sleep(TICK).await;
        }
    }
    let counts =
        answered.iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ");
    let seen = KNOWN.iter().zip(met).filter(|(known, _)| known.is.is_some());
    let differences: Vec<String> =
        seen.clone().map(|(known, count)| format!("{}: {count}", known.what)).collect();
    let said = format!("alike: {counts}; {refused} refused; known differences: {}", differences.join(", "));
    let is_enough = answered.len() == KINDS && refused > 0 && seen.clone().all(|(_, count)| count > 0);
    if extent.done() >= LEAST && !is_enough { Err(format!("too little was met: {said}")) } else { Ok(said) }
}

/// Whether the text of an answer tells of rows that were not written.
fn is_partial(call: &Call, text: &str) -> bool {
    matches!(call, Call::MutateRows(_)) && text.split(' ').any(|code| code != "0")
}

/// Deletes the rows of a write to this table.
fn repairs(call: &Call, table: &str) -> Vec<Call> {
    let rows = call.written().filter(|(of, _)| *of == table).map(|(_, rows)| rows).unwrap_or_default();
    let deletion = |row_key| {
        let delete = data::Mutation { mutation: Some(Change::DeleteFromRow(DeleteFromRow {})) };
        let (table_name, mutations) = (table.to_string(), vec![delete]);
        Call::MutateRow(data::MutateRowRequest { table_name, row_key, mutations, ..Default::default() })
    };
    rows.into_iter().filter(|row| !row.is_empty()).map(deletion).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_the_same_text_whatever_the_order_of_equal_cells_and_another_where_they_differ() {
        let cell = |at: i64, value: &'static str, label: &str| {
            (Reverse(at), bytes::Bytes::from(value), vec![label.to_string()])
        };
        let row = |cells: Vec<_>| row_text(b"r\xff", BTreeMap::from([(("f".to_string(), vec![0]), cells)]));
        let one = row(vec![cell(2_000, "a", "l"), cell(1_000, "b", "l"), cell(1_000, "a", "l")]);
        assert_eq!(one, "\"r\\xff\" f:\\x00@2000=a#l f:\\x00@1000=a#l f:\\x00@1000=b#l");
        assert_eq!(one, row(vec![cell(1_000, "a", "l"), cell(1_000, "b", "l"), cell(2_000, "a", "l")]));
        assert_ne!(one, row(vec![cell(2_000, "a", "m"), cell(1_000, "b", "l"), cell(1_000, "a", "l")]));
        assert_eq!(row(vec![cell(NOW_LEAST, "a", "l")]), row(vec![cell(NOW_LEAST + 5, "a", "l")]));
    }

    #[test]
    fn all_kinds_of_calls_are_drawn_and_the_same_for_a_seed() {
        let mut draws = [Draw::new(7), Draw::new(7)];
        let mut kinds = BTreeSet::new();
        for _ in 0..LEAST {
            let [one, other] = draws.each_mut().map(|draw| {
                let call = draw.call();
                draw.note(&call, true);
                call
            });
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
            kinds.insert(one.kind());
        }
        assert_eq!(kinds.len(), KINDS);
    }
}
