//! The cost of a table of thousands of regions to its server.

use super::peer::{Client, Given, PARENT, Peer, TABLE};
use super::{key_text, set};
use clap::Args;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Beside one writer: writes a second.
const TRICKLE: u64 = 100;

/// How many regions, and how long each look takes.
#[derive(Args)]
pub(super) struct Regions {
    /// Regions.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Seconds of each look.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Directory of the database.
    #[arg(long, default_value = "target/bench-regions")]
    pub(super) dir: PathBuf,
}

/// CPU as a share of one core, while something goes on.
async fn share_of_a_core(
    peer: &Peer,
    seconds: u64,
    beside: impl Future<Output = Result<(), String>>,
) -> Result<f64, String> {
    let (cpu, begun) = (peer.cpu(), Instant::now());
    let end = tokio::time::sleep(Duration::from_secs(seconds));
    tokio::select! {
        () = end => {}
        ended = beside => return Err(format!("it ended early: {ended:?}")),
    }
    Ok((peer.cpu() - cpu).as_secs_f64() / begun.elapsed().as_secs_f64())
}

/// An answer of the page's port: its bytes, and how long it took.
fn get(page: &str, path: &str) -> Result<(usize, Duration), String> {
    let begun = Instant::now();
    let mut socket = std::net::TcpStream::connect(page).map_err(|e| e.to_string())?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).map_err(|e| e.to_string())?;
    match answer.starts_with(b"HTTP/1.1 200") {
        true => Ok((answer.len(), begun.elapsed())),
        false => Err(format!("{path}: {}", String::from_utf8_lossy(&answer[..answer.len().min(200)]))),
    }
}

async fn write(client: &mut Client, row: String) -> Result<(), String> {
    let request = data::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: row.into(),
        mutations: vec![set(&bytes::Bytes::from(vec![7; 100]))],
        ..Default::default()
    };
    client.mutate_row(request).await.map(drop).map_err(|e| e.to_string())
}

async fn read(client: &mut Client, row: String) -> Result<usize, String> {
    let rows = data::RowSet { row_keys: vec![row.into()], ..Default::default() };
    let request = data::ReadRowsRequest { table_name: TABLE.into(), rows: Some(rows), ..Default::default() };
    let mut answers = client.read_rows(request).await.map_err(|e| e.to_string())?.into_inner();
    let mut chunks = 0;
    while let Some(answer) = answers.message().await.map_err(|e| e.to_string())? {
        chunks += answer.chunks.len();
    }
    Ok(chunks)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Regions {
    pub(super) async fn measured(&self) -> Result<(), String> {
        let given = Given { memory: 64 << 20, write_memory: 16 << 20, ..Given::default() };
        let say = |what: &str, figure: String| println!("{what:<44}{figure:>14}");
        println!("{} regions of {PARENT}, 64 MiB of memory", self.count);
        let mut peer = Peer::start(&self.dir, &given)?;
        let alone = peer.rss_bytes();
        let idle = share_of_a_core(&peer, self.seconds, std::future::pending()).await?;
        say("no region: memory, MiB", format!("{:.1}", mib(alone)));
        say("no region: at rest, % of a core", format!("{:.2}", idle * 100.0));

        let begun = Instant::now();
        peer.create_table("bench", (1..self.count).map(key_text)).await?;
        say("make them, s", format!("{:.2}", begun.elapsed().as_secs_f64()));
        say("memory more, MiB", format!("{:.1}", mib(peer.rss_bytes().saturating_sub(alone))));

        let mut client = peer.client().await?;
        let begun = Instant::now();
        for n in 0..self.count {
            write(&mut client, format!("{}x", key_text(n))).await?;
        }
        say("write a row in each, s", format!("{:.2}", begun.elapsed().as_secs_f64()));
        say("memory more, MiB", format!("{:.1}", mib(peer.rss_bytes().saturating_sub(alone))));
        say("write them to tables, s", format!("{:.2}", peer.ask("flush")?.as_secs_f64()));
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.looked_at(&peer, alone).await?;

        let mut took = Histogram::<u64>::new(3).map_err(|e| e.to_string())?;
        for n in 0..self.count.min(2_000) {
            let begun = Instant::now();
            let row = format!("{}x", key_text(n * 7_919 % self.count));
            if read(&mut client, row).await? != 1 {
                return Err("a row that was written is not there".into());
            }
            took.record(begun.elapsed().as_micros() as u64).map_err(|e| e.to_string())?;
        }
        say(
            "read one row: p50, p99 us",
            format!("{}, {}", took.value_at_quantile(0.5), took.value_at_quantile(0.99)),
        );
        let split = peer.ask(&format!("split {}y", key_text(self.count / 2)))?;
        say("split one more, ms", format!("{:.1}", split.as_secs_f64() * 1e3));
        let begun = Instant::now();
        // Elsewhere, so that our connections hear that the server goes.
        tokio::task::spawn_blocking(|| peer.stop()).await.map_err(|e| e.to_string())??;
        say("stop, s", format!("{:.2}", begun.elapsed().as_secs_f64()));

        let peer = Peer::start(&self.dir, &given)?;
        say("open, s", format!("{:.2}", peer.started_in.as_secs_f64()));
        self.looked_at(&peer, alone).await
    }

    /// What it costs to have them.
    async fn looked_at(&self, peer: &Peer, alone: u64) -> Result<(), String> {
        let say = |what: &str, figure: String| println!("{what:<44}{figure:>14}");
        let idle = share_of_a_core(peer, self.seconds, std::future::pending()).await?;
        say("at rest, % of a core", format!("{:.2}", idle * 100.0));
        say("memory more, MiB", format!("{:.1}", mib(peer.rss_bytes().saturating_sub(alone))));
        let mut client = peer.client().await?;
        let trickle = async {
            let mut every = tokio::time::interval(Duration::from_micros(1_000_000 / TRICKLE));
            for n in 0.. {
                every.tick().await;
                write(&mut client, format!("{}z", key_text(n * 7_919 % self.count))).await?;
            }
            Ok(())
        };
        let beside = share_of_a_core(peer, self.seconds, trickle).await?;
        say("beside 100 writes/s, % of a core", format!("{:.2}", beside * 100.0));
        for path in ["/metrics", "/api/state"] {
            let (page, path_asked) = (peer.page.clone(), path);
            let (bytes, took) = tokio::task::spawn_blocking(move || get(&page, path_asked))
                .await
                .map_err(|e| e.to_string())??;
            say(
                &format!("{path}: MiB, ms"),
                format!("{:.2}, {:.0}", mib(bytes as u64), took.as_secs_f64() * 1e3),
            );
        }
        Ok(())
    }
}
