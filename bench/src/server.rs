//! The server beside an empty service of the same messages: calls a second, latencies, and the server's CPU time for each.
//!
//! Both run as processes of their own on the second core; the client, 16 connections with 16 calls in flight each, has the
//! first. They take turns, so that what else the machine does meets both.

use crate::measure::cpu_of;
use clap::Args;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use hdrhistogram::Histogram;
use serde::Serialize;
use siltstone_server::{Config, Server as BigtableServer, Size, WriteDurability};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::transport::Channel;

const CONNECTIONS: usize = 16;
const IN_FLIGHT: usize = 16;
const PARENT: &str = "projects/bench/instances/bench";
const TABLE: &str = "projects/bench/instances/bench/tables/bench";
const ROWS_OF_A_CALL: u64 = 100;
const ROWS_OF_A_SCAN: u64 = 2_000;

/// What is measured.
#[derive(Args)]
pub(crate) struct Server {
    /// Rows of 100 B that are there.
    #[arg(long, default_value_t = 200_000)]
    rows: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Turns.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Directory of the database.
    #[arg(long, default_value = "target/bench-server")]
    dir: PathBuf,
}

/// A process that the bench starts for itself.
#[derive(Args)]
pub(crate) struct Served {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Read,
    Write,
    WriteMany,
    Scan,
}

const WORKLOADS: [(Workload, &str, u64); 4] = [
    (Workload::Read, "read a row", 1),
    (Workload::Write, "write a row (buffered)", 1),
    (Workload::WriteMany, "write 100 rows a call (buffered)", ROWS_OF_A_CALL),
    (Workload::Scan, "scan 2,000 rows a call", ROWS_OF_A_SCAN),
];

/// One measurement.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    rows_a_second: f64,
    p50_us: u64,
    p99_us: u64,
    cpu_us_a_row: f64,
}

impl Served {
    /// Serves until it is killed.
    pub(crate) fn run(self) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        runtime.block_on(async {
            if self.empty {
                let listener = tokio::net::TcpListener::bind(any).await.map_err(|e| e.to_string())?;
                println!("{}", listener.local_addr().map_err(|e| e.to_string())?);
                return siltstone_server::empty::serve(listener).await;
            }
            let config = Config {
                dir: self.dir,
                listen: any,
                http: any,
                durability: WriteDurability::Buffered,
                memory: Size(1 << 30),
                ..Config::default()
            };
            let server = BigtableServer::start(config).await?;
            println!("{}", server.listens_at());
            std::future::pending::<()>().await;
            drop(server);
            Ok(())
        })
    }
}

/// A child on the second core.
struct Peer {
    child: Child,
    at: String,
}

impl Peer {
    fn start(dir: &Path, empty: bool) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]).arg(program).arg("served").arg("--dir").arg(dir);
        if empty {
            command.arg("--empty");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("taskset: {e}"))?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
        match line.trim() {
            "" => Err("the server did not start".into()),
            at => Ok(Self { child, at: format!("http://{at}") }),
        }
    }

    fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Client = data::bigtable_client::BigtableClient<Channel>;

fn key(n: u64) -> bytes::Bytes {
    // Spread over the table.
    format!("row{:010}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10_000_000_000).into()
}

fn set(value: &bytes::Bytes) -> data::Mutation {
    let set = data::mutation::SetCell {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        timestamp_micros: 1_000,
        value: value.clone(),
    };
    data::Mutation { mutation: Some(data::mutation::Mutation::SetCell(set)) }
}

fn entries(from: u64, value: &bytes::Bytes) -> data::MutateRowsRequest {
    let entry = |n| data::mutate_rows_request::Entry {
        row_key: key(n),
        mutations: vec![set(value)],
        ..Default::default()
    };
    let entries = (from..from + ROWS_OF_A_CALL).map(entry).collect();
    data::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() }
}

async fn call(
    client: &mut Client,
    workload: Workload,
    n: u64,
    rows: u64,
    value: &bytes::Bytes,
) -> Result<(), tonic::Status> {
    match workload {
        Workload::Read | Workload::Scan => {
            let one = workload == Workload::Read;
            let set = match one {
                true => data::RowSet { row_keys: vec![key(n % rows)], ..Default::default() },
                false => {
                    let start = data::row_range::StartKey::StartKeyClosed(key(n % (rows / 2)));
                    let range = data::RowRange { start_key: Some(start), end_key: None };
                    data::RowSet { row_ranges: vec![range], ..Default::default() }
                }
            };
            let request = data::ReadRowsRequest {
                table_name: TABLE.into(),
                rows: Some(set),
                rows_limit: if one { 1 } else { ROWS_OF_A_SCAN as i64 },
                ..Default::default()
            };
            let mut stream = client.read_rows(request).await?.into_inner();
            while stream.message().await?.is_some() {}
        }
        Workload::Write => {
            let request = data::MutateRowRequest {
                table_name: TABLE.into(),
                row_key: key(n % rows),
                mutations: vec![set(value)],
                ..Default::default()
            };
            client.mutate_row(request).await?;
        }
        Workload::WriteMany => {
            let request = entries(n * ROWS_OF_A_CALL % rows, value);
            let mut stream = client.mutate_rows(request).await?.into_inner();
            while stream.message().await?.is_some() {}
        }
    }
    Ok(())
}

async fn clients(at: &str) -> Result<Vec<Client>, String> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let endpoint = Channel::from_shared(at.to_string()).map_err(|e| e.to_string())?;
        let endpoint = endpoint.initial_stream_window_size(1 << 20).initial_connection_window_size(4 << 20);
        clients.push(Client::new(endpoint.connect().await.map_err(|e| e.to_string())?));
    }
    Ok(clients)
}

async fn measure(
    peer: &Peer,
    workload: Workload,
    rows_a_call: u64,
    plan: &Server,
) -> Result<Measured, String> {
    let clients = clients(&peer.at).await?;
    let value = bytes::Bytes::from(vec![7; 100]);
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let (until, cpu, rows) = (begun + Duration::from_secs(plan.seconds), peer.cpu(), plan.rows);
    let mut tasks = Vec::new();
    for client in &clients {
        for _ in 0..IN_FLIGHT {
            let (mut client, next, value) = (client.clone(), next.clone(), value.clone());
            tasks.push(tokio::spawn(async move {
                let mut took = Histogram::<u64>::new(3).map_err(|e| e.to_string())?;
                while Instant::now() < until {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let begun = Instant::now();
                    call(&mut client, workload, n, rows, &value).await.map_err(|e| e.to_string())?;
                    let us = begun.elapsed().as_micros() as u64;
                    took.record(us.max(1)).map_err(|e| e.to_string())?;
                }
                Ok::<_, String>(took)
            }));
        }
    }
    let mut all = Histogram::<u64>::new(3).map_err(|e| e.to_string())?;
    for task in tasks {
        all.add(task.await.map_err(|e| e.to_string())??).map_err(|e| e.to_string())?;
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), peer.cpu() - cpu);
    let done = (all.len() * rows_a_call) as f64;
    Ok(Measured {
        rows_a_second: done / seconds,
        p50_us: all.value_at_quantile(0.5),
        p99_us: all.value_at_quantile(0.99),
        cpu_us_a_row: cpu.as_secs_f64() * 1e6 / done,
    })
}

async fn fill(peer: &Peer, rows: u64) -> Result<(), String> {
    let endpoint = Channel::from_shared(peer.at.clone()).map_err(|e| e.to_string())?;
    let channel = endpoint.connect().await.map_err(|e| e.to_string())?;
    let mut admin = admin::bigtable_table_admin_client::BigtableTableAdminClient::new(channel.clone());
    let families = [("f".to_string(), admin::ColumnFamily::default())];
    let table = admin::Table { column_families: families.into(), ..Default::default() };
    let request = admin::CreateTableRequest {
        parent: PARENT.into(),
        table_id: "bench".into(),
        table: Some(table),
        ..Default::default()
    };
    admin.create_table(request).await.map_err(|e| e.to_string())?;
    let (mut client, value) = (Client::new(channel), bytes::Bytes::from(vec![7; 100]));
    for from in (0..rows).step_by(ROWS_OF_A_CALL as usize) {
        let answers = client.mutate_rows(entries(from, &value)).await.map_err(|e| e.to_string())?;
        let mut answers = answers.into_inner();
        while answers.message().await.map_err(|e| e.to_string())?.is_some() {}
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Server {
    pub(crate) fn run(self) -> Result<(), String> {
        let mut first = rustix::thread::CpuSet::new();
        first.set(0);
        rustix::thread::sched_setaffinity(None, &first).map_err(|e| e.to_string())?;
        let _ = std::fs::remove_dir_all(&self.dir);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|e| e.to_string())?.block_on(self.measured())
    }

    async fn measured(&self) -> Result<(), String> {
        let (empty, ours) = (Peer::start(&self.dir, true)?, Peer::start(&self.dir, false)?);
        fill(&ours, self.rows).await?;
        let mut lines = Vec::new();
        for (workload, name, rows_a_call) in WORKLOADS {
            let (mut of_empty, mut of_ours) = (Vec::new(), Vec::new());
            for _ in 0..self.runs {
                of_empty.push(measure(&empty, workload, rows_a_call, self).await?);
                of_ours.push(measure(&ours, workload, rows_a_call, self).await?);
            }
            let of = |all: &[Measured], value: fn(&Measured) -> f64| median(all.iter().map(value));
            let rate = |all: &[Measured]| of(all, |m| m.rows_a_second);
            let cpu = |all: &[Measured]| of(all, |m| m.cpu_us_a_row);
            if self.json {
                println!("{}", serde_json::json!({ "workload": name, "server": of_ours, "empty": of_empty }));
                continue;
            }
            lines.push(vec![
                name.to_string(),
                format!("{:.0}", rate(&of_ours)),
                format!("{:.0}", rate(&of_empty)),
                format!("{:.2}", rate(&of_ours) / rate(&of_empty)),
                format!("{:.1}", of(&of_ours, |m| m.p50_us as f64 / 1e3)),
                format!("{:.1}", of(&of_ours, |m| m.p99_us as f64 / 1e3)),
                format!("{:.2}", cpu(&of_ours)),
                format!("{:.2}", cpu(&of_empty)),
            ]);
        }
        if !self.json {
            let head = ["", "rows/s", "empty", "ratio", "p50 ms", "p99 ms", "CPU us/row", "empty"]
                .map(str::to_string);
            for line in std::iter::once(&head.to_vec()).chain(&lines) {
                let (name, figures) = line.split_first().ok_or("a line without a name")?;
                let figures: String = figures.iter().map(|figure| format!("{figure:>11}")).collect();
                println!("{name:<34}{figures}");
            }
        }
        Ok(())
    }
}
