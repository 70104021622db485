//! Kills under load. Writers own rows and write a number, over and over, into two families at once; they note
//! what they try and what was acknowledged. After each kill every row must have the same number in both
//! families, no less than was acknowledged and no more than was tried. Meanwhile regions are split, a stream
//! of changes is read from its last token on, and backups are made and restored.
//!
//! Every second kill comes at a kill point of the engine, in a server that ends itself there, if it comes
//! there in time.

use crate::Extent;
use crate::child::{Server, TABLE, admin, data, scan, set};
use data::read_change_stream_request::StartFrom;
use data::read_change_stream_response::StreamRecord;
use siltstone::Rng;
use siltstone::testing::KILL_POINTS;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

const WRITERS: usize = 6;
const ROWS: u64 = 150;
/// Bytes beside each number, so that regions grow.
const FILLING: usize = 3_000;
const CONFIG: &str = "memory = \"64MiB\"\nwrite-memory = \"8MiB\"\nregion-bytes = \"1MiB\"\nchange-log = \"4GiB\"\n\
    [tables]\nstrategy = \"leveled{sstable_bytes=128KiB, base_bytes=1MiB}\"\n";
/// Among so many kills one must be at a kill point; one among eight comes after a backup.
const POINTS_AMONG: u64 = 20;
/// Kill points that are drawn for one kill as long as none was met.
const DRAWN_AT_FIRST: u32 = 4;
/// The fewest kills whose success says something.
pub(crate) const LEAST: u64 = POINTS_AMONG;
/// How long a server that is to end at a kill point may take to come there.
const POINT_WAIT: Duration = Duration::from_millis(400);
const BACKUP: &str = "projects/p/instances/i/clusters/c/backups/b";
const RESTORED: &str = "projects/p/instances/i/tables/restored";

/// The state of the rows, as far as it is known.
#[derive(Default)]
pub(crate) struct Oracle {
    /// By row: what was acknowledged, and what was tried.
    rows: Mutex<HashMap<String, (u64, u64)>>,
    acknowledged: AtomicU64,
}

impl Oracle {
    pub(crate) fn rows(&self) -> HashMap<String, (u64, u64)> {
        self.rows.lock().expect("no writer panics").clone()
    }

    /// Writes that were acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// Writers that go on until they are stopped.
pub(crate) fn writers(
    port: u16,
    seed: u64,
    oracle: &Arc<Oracle>,
    stop: &Arc<AtomicBool>,
) -> Vec<JoinHandle<()>> {
    let start = |writer| tokio::spawn(write(port, writer, seed, oracle.clone(), stop.clone()));
    (0..WRITERS).map(start).collect()
}

/// Every row against what was known before, and is now.
pub(crate) async fn check_all(
    server: &Server,
    before: &HashMap<String, (u64, u64)>,
    oracle: &Oracle,
) -> Result<(), String> {
    check(server, TABLE, before, || oracle.rows()).await
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_string().into_bytes();
    value.push(b' ');
    value.resize(value.len() + FILLING, b'.');
    value
}

fn number(value: &[u8]) -> Result<u64, String> {
    let text = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("a value is \"{}\"", value.escape_ascii()))
}

async fn write(port: u16, writer: usize, seed: u64, oracle: Arc<Oracle>, stop: Arc<AtomicBool>) {
    let mut client = data::bigtable_client::BigtableClient::new(crate::child::channel(port));
    let mut random = Rng::new(seed ^ (writer as u64 + 1));
    while !stop.load(Ordering::Relaxed) {
        let row = format!("{:03}-{writer}", random.next_u64() % ROWS);
        let next = {
            let mut rows = oracle.rows.lock().expect("no writer panics");
            let known = rows.entry(row.clone()).or_default();
            known.1 += 1;
            known.1
        };
        let mutations = vec![set("f", "n", 1_000, value(next)), set("g", "n", 1_000, value(next))];
        let request = data::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: row.clone().into(),
            mutations,
            ..Default::default()
        };
        match client.mutate_row(request).await {
            Ok(_) => {
                oracle.rows.lock().expect("no writer panics").entry(row).or_default().0 = next;
                oracle.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Every row of a table against what was known before and after it was read.
async fn check(
    server: &Server,
    table: &str,
    before: &HashMap<String, (u64, u64)>,
    after: impl Fn() -> HashMap<String, (u64, u64)>,
) -> Result<(), String> {
    let mut found: HashMap<String, [Option<u64>; 2]> = HashMap::new();
    let request = data::ReadRowsRequest { table_name: table.into(), ..Default::default() };
    scan(&mut server.data(), request, |row, family, _, value| {
        let row = String::from_utf8_lossy(row).into_owned();
        found.entry(row).or_default()[usize::from(family == "g")] = Some(number(value)?);
        Ok(())
    })
    .await?;
    let after = after();
    for (row, [f, g]) in &found {
        if f != g {
            return Err(format!("row {row} of {table} is half: {f:?} and {g:?}"));
        }
        let tried = after.get(row).map_or(0, |known| known.1);
        if f.is_none_or(|number| number > tried) {
            return Err(format!("row {row} of {table} has {f:?}, and {tried} were tried"));
        }
    }
    for (row, (acknowledged, _)) in before {
        let has = found.get(row).and_then(|[f, _]| *f).unwrap_or(0);
        if has < *acknowledged {
            return Err(format!("row {row} of {table} has {has}, and {acknowledged} was acknowledged"));
        }
    }
    Ok(())
}

/// Reads changes up to now from the last token on, and notes the numbers of each row.
async fn follow(
    server: &Server,
    token: &mut String,
    followed: &mut HashMap<String, u64>,
) -> Result<u64, String> {
    let tokens = vec![data::StreamContinuationToken { token: token.clone(), ..Default::default() }];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?;
    let time = |seconds: u64, nanos: u32| prost_types::Timestamp {
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: i32::try_from(nanos).unwrap_or_default(),
    };
    let start_from = match token.is_empty() {
        true => StartFrom::StartTime(time(1, 0)),
        false => StartFrom::ContinuationTokens(data::StreamContinuationTokens { tokens }),
    };
    let request = data::ReadChangeStreamRequest {
        table_name: TABLE.into(),
        start_from: Some(start_from),
        end_time: Some(time(now.as_secs(), now.subsec_nanos())),
        ..Default::default()
    };
    let failed = |e: tonic::Status| format!("a stream of changes: {e}");
    let mut stream = server.data().read_change_stream(request).await.map_err(failed)?.into_inner();
    let mut changes = 0;
    // Around the end of a stream some may come again in the next one, but in their order.
    let mut here: HashMap<String, u64> = HashMap::new();
    while let Some(message) = stream.message().await.map_err(failed)? {
        let Some(StreamRecord::DataChange(change)) = message.stream_record else { continue };
        let row = String::from_utf8_lossy(&change.row_key).into_owned();
        let numbers =
            change.chunks.iter().filter_map(|chunk| match chunk.mutation.as_ref()?.mutation.as_ref()? {
                data::mutation::Mutation::SetCell(set) => Some(number(&set.value)),
                _ => None,
            });
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
        let [f, g] = numbers[..] else { return Err(format!("a change of row {row} has {numbers:?}")) };
        let last = here.insert(row.clone(), f).unwrap_or(0);
        if f != g || f <= last {
            return Err(format!("row {row} changes from {last} to {f} and {g}"));
        }
        let followed = followed.entry(row).or_default();
        *followed = f.max(*followed);
        *token = change.token;
        changes += 1;
    }
    Ok(changes)
}

/// Backs the table up under load, restores it beside, checks what was restored, and deletes both.
async fn back_up(server: &Server, oracle: &Oracle) -> Result<(), String> {
    let mut client = server.admin();
    let before = oracle.rows();
    let expires = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) + 3_600;
    let expire_time =
        prost_types::Timestamp { seconds: i64::try_from(expires).unwrap_or(i64::MAX), nanos: 0 };
    let (parent, id) = BACKUP.split_once("/backups/").unwrap_or_default();
    let backup =
        admin::Backup { source_table: TABLE.into(), expire_time: Some(expire_time), ..Default::default() };
    let (parent, backup_id) = (parent.to_string(), id.to_string());
    let request = admin::CreateBackupRequest { parent, backup_id, backup: Some(backup) };
    client.create_backup(request).await.map_err(|e| format!("a backup: {e}"))?;
    let after = oracle.rows();
    let source = Some(admin::restore_table_request::Source::Backup(BACKUP.into()));
    let (parent, table_id) = (crate::child::INSTANCE.to_string(), "restored".to_string());
    let request = admin::RestoreTableRequest { parent, table_id, source };
    client.restore_table(request).await.map_err(|e| format!("a restore: {e}"))?;
    check(server, RESTORED, &before, || after.clone()).await?;
    forget_backup(server).await
}

async fn forget_backup(server: &Server) -> Result<(), String> {
    let gone = |result: Result<_, tonic::Status>| match result {
        Err(e) if e.code() != tonic::Code::NotFound => Err(format!("delete what was restored: {e}")),
        _ => Ok(()),
    };
    let mut client = server.admin();
    gone(client.delete_table(admin::DeleteTableRequest { name: RESTORED.into() }).await)?;
    gone(client.delete_backup(admin::DeleteBackupRequest { name: BACKUP.into() }).await)
}

/// A kill point and which visit of it ends the server.
fn draw_point(random: &mut Rng) -> String {
    let point = KILL_POINTS[usize::try_from(random.next_u64()).unwrap_or(0) % KILL_POINTS.len()];
    // Often the first visits are those of the start.
    format!(
        "{point}:{}",
        1 + random.next_u64() % [2, 12, 60][usize::try_from(random.next_u64() % 3).unwrap_or(0)]
    )
}

/// Lets the server run until it comes to a kill point, while writers write and backups are made. Whether it
/// came there in time.
async fn run_to_a_point(server: &mut Server, oracle: &Oracle, random: &mut Rng) -> Result<bool, String> {
    server.kill();
    let point = draw_point(random);
    if let Err(e) = server.start_until(Some(&point)).await {
        // It may be one that every start passes.
        return if server.ended_at_a_point() { Ok(true) } else { Err(format!("{point}: {e}")) };
    }
    let began = Instant::now();
    while server.lives() && began.elapsed() < POINT_WAIT {
        if random.next_u64().is_multiple_of(4) {
            // What it makes of its end is not of interest here.
            let _ = back_up(server, oracle).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    match server.lives() || server.ended_at_a_point() {
        true => Ok(!server.lives()),
        false => Err(format!("with {point} the server ended otherwise: {}", server.log())),
    }
}

/// So many kills.
pub(crate) async fn run(extent: &Extent, seed: u64) -> Result<String, String> {
    let mut server = Server::start(CONFIG).await?;
    server.create(&["f", "g"]).await?;
    let mut random = Rng::new(seed);
    let (oracle, stop) = (Arc::new(Oracle::default()), Arc::new(AtomicBool::new(false)));
    let writers = writers(server.port(), seed, &oracle, &stop);
    let (mut token, mut followed, mut changes, mut backups) = (String::new(), HashMap::new(), 0, 0);
    let mut at_points = 0;
    while extent.goes_on() {
        let kill = extent.done();
        // Now and then it lives long enough to look at its regions.
        let lives = if kill % 6 == 1 { 1_200 } else { 0 } + random.next_u64() % 400;
        tokio::time::sleep(Duration::from_millis(lives)).await;
        if kill % 8 == 5 {
            back_up(&server, &oracle).await?;
            backups += 1;
        }
        // One in four comes into the middle of a backup or a restore.
        let in_backup = kill % 4 == 2;
        let after = Duration::from_millis(random.next_u64() % 100);
        if in_backup {
            tokio::select! {
                // What it makes of being killed is not of interest here.
                _ = back_up(&server, &oracle) => {}
                () = tokio::time::sleep(after) => {}
            }
        }
        if kill % 2 == 1 {
            // Which points a short life passes is a matter of chance: until one was met, more are drawn.
            let draws = if at_points == 0 { DRAWN_AT_FIRST } else { 1 };
            for _ in 0..draws {
                let is_met = run_to_a_point(&mut server, &oracle, &mut random).await?;
                at_points += u64::from(is_met);
                if is_met {
                    break;
                }
            }
        }
        let before = oracle.rows();
        server.kill();
        server.start_again().await?;
        forget_backup(&server).await?;
        check_all(&server, &before, &oracle).await.map_err(|e| format!("after kill {kill}: {e}"))?;
        changes += follow(&server, &mut token, &mut followed).await?;
        for (row, (acknowledged, _)) in &before {
            let last = followed.get(row).copied().unwrap_or(0);
            if last < *acknowledged {
                let message = format!("row {row} at {last}, {acknowledged} was acknowledged");
                return Err(format!("after kill {kill} the stream has {message}"));
            }
        }
        extent.advance(1);
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.map_err(|e| e.to_string())?;
    }
    let known = oracle.rows();
    check_all(&server, &known, &oracle).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    changes += follow(&server, &mut token, &mut followed).await?;
    for (row, (acknowledged, tried)) in &known {
        let last = followed.get(row).copied().unwrap_or(0);
        if last < *acknowledged || last > *tried {
            return Err(format!("the stream ends row {row} at {last}, {acknowledged} was acknowledged"));
        }
    }
    let mut regions = 0;
    let request = data::SampleRowKeysRequest { table_name: TABLE.into(), ..Default::default() };
    let mut samples = server.data().sample_row_keys(request).await.map_err(|e| e.to_string())?.into_inner();
    while samples.message().await.map_err(|e| e.to_string())?.is_some() {
        regions += 1;
    }
    if at_points < extent.done() / POINTS_AMONG {
        return Err(format!(
            "{at_points} of {} kills were at a kill point: was the server built with the feature testing?",
            extent.done()
        ));
    }
    let acknowledged = oracle.acknowledged();
    let is_busy = acknowledged >= extent.done() && changes >= extent.done() && backups >= extent.done() / 10;
    if extent.done() >= LEAST && !is_busy {
        return Err(format!(
            "{acknowledged} acknowledged writes, {changes} changes, {backups} backups: nothing was met"
        ));
    }
    Ok(format!(
        "{} kills, {at_points} of them at kill points, {acknowledged} acknowledged writes, {changes} changes streamed, {backups} backups restored, \
         {regions} samples of regions",
        extent.done()
    ))
}
