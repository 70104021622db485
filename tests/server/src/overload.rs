//! More writes than compactions can take: many clients write as fast as they are answered, while compactions
//! are throttled far below that. Writers are delayed, never stopped for long; memory stays within its budget.

use crate::Extent;
use crate::child::{Server, TABLE, data, set};
use siltstone::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 8;
const CALLS_OF_ONE: u64 = 16;
const BUDGET: u64 = 128 << 20;
/// The memory of a process besides: code, threads, connections and their buffers.
const BESIDES: u64 = 96 << 20;
const CONFIG: &str = "memory = \"128MiB\"\nwrite-memory = \"32MiB\"\nrate-limit = \"8MiB\"\ndurability = \"buffered\"\n\
    call-memory = \"64MiB\"\n";
/// The longest that a write may wait.
const LONGEST: Duration = Duration::from_secs(1);

/// For so many seconds.
pub(crate) async fn run(extent: &Extent, seed: u64) -> Result<String, String> {
    let server = Server::start(CONFIG).await?;
    server.create(&["f"]).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let (writes, refused, longest) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let channel = server.channel();
        for call in 0..CALLS_OF_ONE {
            let mut client_of = data::bigtable_client::BigtableClient::new(channel.clone());
            let (stop, writes, refused, longest) =
                (stop.clone(), writes.clone(), refused.clone(), longest.clone());
            let mut random = Rng::new(seed ^ (client << 32 | call));
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let row = format!("{:016x}", random.next_u64());
                    let value = (0..125).flat_map(|_| random.next_u64().to_le_bytes()).collect();
                    let request = data::MutateRowRequest {
                        table_name: TABLE.into(),
                        row_key: row.into(),
                        mutations: vec![set("f", "q", 1_000, value)],
                        ..Default::default()
                    };
                    let began = Instant::now();
                    match client_of.mutate_row(request).await {
                        Ok(_) => writes.fetch_add(1, Ordering::Relaxed),
                        Err(e) if !e.details().is_empty() => {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(e) => return Err(format!("a write is refused without a time to try again: {e}")),
                    };
                    let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    longest.fetch_max(took, Ordering::Relaxed);
                }
                Ok(())
            }));
        }
    }
    let began = Instant::now();
    let mut most = 0;
    while extent.goes_on() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        extent.advance(began.elapsed().as_secs() - extent.done());
        most = most.max(server.memory().0);
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.map_err(|e| e.to_string())??;
    }
    let count = extent.done();
    let longest = Duration::from_micros(longest.load(Ordering::Relaxed));
    let writes = writes.load(Ordering::Relaxed);
    let said = format!(
        "{} writes a second for {count} s, {} refused with a time to try again, longest {} ms, memory {} MiB",
        writes / count.max(1),
        refused.load(Ordering::Relaxed),
        longest.as_millis(),
        most >> 20
    );
    match longest <= LONGEST && most <= BUDGET * 11 / 10 + BESIDES && writes > 0 {
        true => Ok(said),
        false => {
            let log = server.log();
            let last: Vec<&str> = log.lines().rev().take(20).collect();
            Err(format!("{said}; the log ends with\n{}", last.join("\n")))
        }
    }
}
