//! Rows that point to each other: each batch of rows points to rows of the batch before, and is written only
//! when that was acknowledged. Whatever is killed, split and merged meanwhile, no row may point to one that
//! is not there.

use crate::Extent;
use crate::child::{Server, TABLE, data, scan, set};
use siltstone::Rng;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Rows of a batch: of one call.
const BATCH: u64 = 1_000;
/// Batches between two kills, about.
const KILL_EVERY: u64 = 12;
/// Rows among which one kill at least must have come: a fourth of what is drawn.
const KILLED_AMONG: u64 = 4 * KILL_EVERY * BATCH;
/// The fewest rows whose success says something.
pub(crate) const LEAST: u64 = 2 * KILLED_AMONG;
const CONFIG: &str = "memory = \"64MiB\"\nwrite-memory = \"8MiB\"\nregion-bytes = \"4MiB\"\n\
    [tables]\nstrategy = \"leveled{sstable_bytes=256KiB, base_bytes=1MiB}\"\n";
/// How long a batch may take with all its tries.
const BATCH_WAIT: Duration = Duration::from_secs(60);

/// Writes a batch; tries again what was not acknowledged.
async fn write(server: &Server, rows: &[([u8; 16], Option<[u8; 16]>)]) -> Result<(), String> {
    let began = Instant::now();
    let mut left: Vec<_> = rows.to_vec();
    while !left.is_empty() {
        if began.elapsed() > BATCH_WAIT {
            return Err(format!("{} rows of a batch were not taken for a minute", left.len()));
        }
        let entries = left.iter().map(|(row, before)| data::mutate_rows_request::Entry {
            row_key: row.to_vec().into(),
            mutations: vec![set("f", "prev", 1_000, before.map_or(Vec::new(), |row| row.to_vec()))],
            ..Default::default()
        });
        let request = data::MutateRowsRequest {
            table_name: TABLE.into(),
            entries: entries.collect(),
            ..Default::default()
        };
        let Ok(stream) = server.data().mutate_rows(request).await else { continue };
        let mut stream = stream.into_inner();
        let mut taken = vec![false; left.len()];
        while let Ok(Some(message)) = stream.message().await {
            for entry in message.entries {
                let is_ok = entry.status.is_some_and(|status| status.code == 0);
                taken[usize::try_from(entry.index).unwrap_or(0)] = is_ok;
            }
        }
        let mut at = taken.into_iter();
        left.retain(|_| !at.next().unwrap_or(false));
    }
    Ok(())
}

async fn verify(server: &Server, written: u64) -> Result<(), String> {
    let mut nodes: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut last = Vec::new();
    let request = data::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    scan(&mut server.data(), request, |row, _, _, value| {
        if row <= &last[..] {
            return Err(format!("row \"{}\" comes twice or out of order", row.escape_ascii()));
        }
        last = row.to_vec();
        nodes.insert(row.to_vec(), value.to_vec());
        Ok(())
    })
    .await?;
    let dangling = nodes.values().filter(|before| !before.is_empty() && !nodes.contains_key(*before)).count();
    match (dangling, nodes.len() as u64) {
        (0, found) if found == written => Ok(()),
        (dangling, found) => {
            Err(format!("{dangling} rows point to nothing; {found} rows of {written} are there"))
        }
    }
}

/// So many rows.
pub(crate) async fn run(extent: &Extent, seed: u64) -> Result<String, String> {
    let mut server = Server::start(CONFIG).await?;
    server.create(&["f"]).await?;
    let mut random = Rng::new(seed);
    let mut before: Vec<[u8; 16]> = Vec::new();
    let (mut written, mut kills) = (0, 0);
    while extent.goes_on() {
        let mut row = || {
            let mut row = [0; 16];
            row[..8].copy_from_slice(&random.next_u64().to_be_bytes());
            row[8..].copy_from_slice(&random.next_u64().to_be_bytes());
            row
        };
        let rows: Vec<_> = (0..BATCH).map(|n| (row(), before.get(n as usize).copied())).collect();
        let dies = random.next_u64().is_multiple_of(KILL_EVERY);
        let when = Duration::from_micros(random.next_u64() % 20_000);
        if dies {
            kills += 1;
            let done = tokio::time::timeout(when, write(&server, &rows)).await;
            server.kill();
            server.start_again().await?;
            if !matches!(done, Ok(Ok(()))) {
                write(&server, &rows).await?;
            }
            if kills % 5 == 0 {
                verify(&server, written + BATCH).await?;
            }
        } else {
            write(&server, &rows).await?;
        }
        written += BATCH;
        extent.advance(BATCH);
        before = rows.into_iter().map(|(row, _)| row).collect();
    }
    verify(&server, written).await?;
    if extent.done() >= LEAST && kills < extent.done() / KILLED_AMONG {
        return Err(format!("{kills} kills while {written} rows were written are too few"));
    }
    Ok(format!("{written} rows, {kills} kills, none points to nothing"))
}
