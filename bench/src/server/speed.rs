//! Calls a second, latencies, and the server's CPU time for each, beside an empty service of the same
//! messages.
//!
//! Both run on the second core; the client, 16 connections with 16 calls in flight each, has the first. They
//! take turns, so that what else the machine does meets both.

use super::peer::{Client, Given, Peer, TABLE};
use super::{ROWS_OF_A_CALL, Server, entries, fill, key, median, set};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 16;
const IN_FLIGHT: usize = 16;
const ROWS_OF_A_SCAN: u64 = 2_000;

/// The calls of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Workload {
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

async fn clients(peer: &Peer) -> Result<Vec<Client>, String> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(peer.client().await?);
    }
    Ok(clients)
}

async fn measure(
    peer: &Peer,
    workload: Workload,
    rows_a_call: u64,
    plan: &Server,
) -> Result<Measured, String> {
    let clients = clients(peer).await?;
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

/// Measures and prints.
pub(super) async fn measured(plan: &Server) -> Result<(), String> {
    let empty = Peer::start(&plan.dir, &Given { empty: true, ..Given::default() })?;
    let ours = Peer::start(&plan.dir, &Given::default())?;
    let value = bytes::Bytes::from(vec![7; 100]);
    fill(&ours, plan.rows, &value).await?;
    let emulator = plan.emulator.as_deref().map(Peer::emulator).transpose()?;
    if let Some(emulator) = &emulator {
        fill(emulator, plan.rows, &value).await?;
    }
    let mut lines = Vec::new();
    let chosen = |workload| plan.only.is_none_or(|only| only == workload);
    for (workload, name, rows_a_call) in WORKLOADS.into_iter().filter(|(workload, ..)| chosen(*workload)) {
        let (mut of_empty, mut of_ours, mut of_emulator) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.runs {
            of_empty.push(measure(&empty, workload, rows_a_call, plan).await?);
            of_ours.push(measure(&ours, workload, rows_a_call, plan).await?);
            if let Some(emulator) = &emulator {
                of_emulator.push(measure(emulator, workload, rows_a_call, plan).await?);
            }
        }
        let of = |all: &[Measured], value: fn(&Measured) -> f64| median(all.iter().map(value));
        let rate = |all: &[Measured]| of(all, |m| m.rows_a_second);
        let cpu = |all: &[Measured]| of(all, |m| m.cpu_us_a_row);
        if plan.json {
            println!(
                "{}",
                serde_json::json!({
                    "workload": name, "server": of_ours, "empty": of_empty, "emulator": of_emulator,
                })
            );
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
        if emulator.is_some()
            && let Some(line) = lines.last_mut()
        {
            line.push(format!("{:.2}", cpu(&of_emulator)));
            line.push(format!("{:.2}", cpu(&of_ours) / cpu(&of_emulator)));
        }
    }
    if !plan.json {
        let head =
            ["", "rows/s", "empty", "ratio", "p50 ms", "p99 ms", "CPU us/row", "empty", "emulator", "ratio"];
        let columns = if emulator.is_some() { head.len() } else { head.len() - 2 };
        let head: Vec<String> = head[..columns].iter().map(|name| (*name).to_string()).collect();
        for line in std::iter::once(&head).chain(&lines) {
            let (name, figures) = line.split_first().ok_or("a line without a name")?;
            let figures: String = figures.iter().map(|figure| format!("{figure:>11}")).collect();
            println!("{name:<34}{figures}");
        }
    }
    Ok(())
}
