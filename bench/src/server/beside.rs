//! The effect of compactions on readers: reads that come at a steady rate, each timed from the moment at
//! which it was due.

use super::peer::{Client, Given, Peer, TABLE};
use super::{ROWS_OF_A_CALL, entries, fill, key};
use clap::Args;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use hdrhistogram::Histogram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CONNECTIONS: u64 = 16;

/// How much is read and written.
#[derive(Args)]
pub(super) struct Beside {
    /// Rows of 1,000 B that are there.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Reads a second.
    #[arg(long, default_value_t = 5_000)]
    rate: u64,
    /// Seconds of reads alone, and beside automatic compactions.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Rows a second that are written where compactions are automatic.
    #[arg(long, default_value_t = 10_000)]
    writes: u64,
    /// Directory of the database.
    #[arg(long, default_value = "target/bench-beside")]
    pub(super) dir: PathBuf,
}

async fn read(client: &mut Client, row: bytes::Bytes) -> Result<(), String> {
    let rows = data::RowSet { row_keys: vec![row], ..Default::default() };
    let request = data::ReadRowsRequest {
        table_name: TABLE.into(),
        rows: Some(rows),
        rows_limit: 1,
        ..Default::default()
    };
    let mut answers = client.read_rows(request).await.map_err(|e| e.to_string())?.into_inner();
    let mut chunks = 0;
    while let Some(answer) = answers.message().await.map_err(|e| e.to_string())? {
        chunks += answer.chunks.len();
    }
    if chunks == 1 { Ok(()) } else { Err(format!("{chunks} cells in a row of one")) }
}

impl Beside {
    pub(super) async fn measured(&self) -> Result<(), String> {
        let value = bytes::Bytes::from(vec![7; 1_000]);
        let given = Given { memory: 512 << 20, write_memory: 64 << 20, ..Given::default() };
        let mut peer = Peer::start(&self.dir, &given)?;
        fill(&peer, self.rows, &value).await?;
        peer.ask("compact")?;
        println!(
            "{} rows of 1,000 B, {} reads/s from {CONNECTIONS} connections, timed from when they were due, ms\n{:<34}{:>9}{:>9}{:>9}{:>9}{:>9}",
            self.rows, self.rate, "", "p50", "p99", "p99.9", "most", "s"
        );
        for round in 0..3 {
            let stop = Arc::new(AtomicBool::new(false));
            let reads = self.reads(&peer, stop.clone()).await?;
            tokio::time::sleep(Duration::from_secs(self.seconds)).await;
            self.said("alone", reads, &stop).await?;

            let stop = Arc::new(AtomicBool::new(false));
            let reads = self.reads(&peer, stop.clone()).await?;
            self.write(&peer, round, &value).await?;
            self.said("beside writes, automatic compactions", reads, &stop).await?;

            let stop = Arc::new(AtomicBool::new(false));
            let reads = self.reads(&peer, stop.clone()).await?;
            let merged = tokio::task::spawn_blocking(move || {
                let took = peer.ask("compact");
                (peer, took)
            });
            let took;
            (peer, took) = merged.await.map_err(|e| e.to_string())?;
            took?;
            self.said("beside a compaction of everything", reads, &stop).await?;
        }
        Ok(())
    }

    /// Begins to read: each connection its share, at steady times.
    async fn reads(
        &self,
        peer: &Peer,
        stop: Arc<AtomicBool>,
    ) -> Result<Vec<tokio::task::JoinHandle<Result<Histogram<u64>, String>>>, String> {
        let mut tasks = Vec::new();
        let every = Duration::from_nanos(1_000_000_000 * CONNECTIONS / self.rate);
        for connection in 0..CONNECTIONS {
            let (client, stop, rows) = (peer.client().await?, stop.clone(), self.rows);
            let mut due = Instant::now() + every * u32::try_from(connection).unwrap_or(0) / 16;
            tasks.push(tokio::spawn(async move {
                let took =
                    Arc::new(std::sync::Mutex::new(Histogram::<u64>::new(3).map_err(|e| e.to_string())?));
                let mut calls = tokio::task::JoinSet::new();
                for n in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    due += every;
                    tokio::time::sleep_until(due.into()).await;
                    let (mut client, took, due) = (client.clone(), took.clone(), due);
                    calls.spawn(async move {
                        read(&mut client, key((n * CONNECTIONS + connection) * 7_919 % rows)).await?;
                        let us = due.elapsed().as_micros() as u64;
                        let mut took = took.lock().map_err(|e| e.to_string())?;
                        took.record(us.max(1)).map_err(|e| e.to_string())
                    });
                    while let Some(ended) = calls.try_join_next() {
                        ended.map_err(|e| e.to_string())??;
                    }
                }
                while let Some(ended) = calls.join_next().await {
                    ended.map_err(|e| e.to_string())??;
                }
                let took = took.lock().map_err(|e| e.to_string())?.clone();
                Ok(took)
            }));
        }
        Ok(tasks)
    }

    /// Ends the reads and prints their times.
    async fn said(
        &self,
        what: &str,
        reads: Vec<tokio::task::JoinHandle<Result<Histogram<u64>, String>>>,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        stop.store(true, Ordering::Relaxed);
        let mut all = Histogram::<u64>::new(3).map_err(|e| e.to_string())?;
        for read in reads {
            all.add(read.await.map_err(|e| e.to_string())??).map_err(|e| e.to_string())?;
        }
        let ms = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
        println!(
            "{what:<34}{:>9.2}{:>9.2}{:>9.2}{:>9.1}{:>9.1}",
            ms(0.5),
            ms(0.99),
            ms(0.999),
            all.max() as f64 / 1e3,
            all.len() as f64 / self.rate as f64
        );
        Ok(())
    }

    /// Writes rows anew at the rate that was asked for.
    async fn write(&self, peer: &Peer, round: u64, value: &bytes::Bytes) -> Result<(), String> {
        let mut client = peer.client().await?;
        let every = Duration::from_nanos(1_000_000_000 * ROWS_OF_A_CALL / self.writes.max(1));
        let (begun, mut due) = (Instant::now(), Instant::now());
        let mut from = round * self.rows / 3;
        while begun.elapsed() < Duration::from_secs(self.seconds) {
            tokio::time::sleep_until(due.into()).await;
            due += every;
            let request = entries(from % self.rows / ROWS_OF_A_CALL * ROWS_OF_A_CALL, value);
            from += ROWS_OF_A_CALL;
            let mut answers = client.mutate_rows(request).await.map_err(|e| e.to_string())?.into_inner();
            while answers.message().await.map_err(|e| e.to_string())?.is_some() {}
        }
        Ok(())
    }
}
