//! SlateDB on the same store, with tasks for threads and with its own defaults: a write is over when it is
//! durable.

use super::store::Store;
use super::{
    Done, Figures, LOADED, LOADED_TOGETHER, Measure, NANOSECONDS, Pairs, Shared, puts_until, reads_of,
};
use crate::failure::{Error, Result};
use crate::measure::{Usage, times};
use hdrhistogram::Histogram;
use slatedb::config::{FlushOptions, FlushType, Settings};
// It has S3, and TLS without a C compiler, by the features that `siltstone-storage-object` asks for.
use slatedb::object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use slatedb::{Db, WriteBatch};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The interval of flushes of the WAL where it is not the default, 100 ms.
const OFTEN: Duration = Duration::from_millis(1);

pub(super) const MEASURES: [Measure; 3] = [
    ("gets after an open, SlateDB", gets),
    ("puts, SlateDB", |plan, latency_ms| puts(plan, latency_ms, false)),
    ("puts, SlateDB, `flush_interval` 1 ms", |plan, latency_ms| puts(plan, latency_ms, true)),
];

fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

async fn open(store: &Store, often: bool) -> Result<Db> {
    let mut builder = AmazonS3Builder::new().with_bucket_name("bucket").with_allow_http(true);
    for (name, value) in &store.variables {
        builder = builder.with_config(AmazonS3ConfigKey::from_str(&name.to_lowercase())?, value);
    }
    let mut settings = Settings::default();
    if often {
        settings.flush_interval = Some(OFTEN);
    }
    Ok(Db::builder("slatedb", Arc::new(builder.build()?)).with_settings(settings).build().await?)
}

/// Puts of as many tasks as there are writers; each waits until its put is durable.
fn puts(plan: &Shared, latency_ms: u64, often: bool) -> Result<Figures> {
    let mut store = Store::start(latency_ms)?;
    let (put_us, runtime) = (store.put_us()?, runtime()?);
    let db = runtime.block_on(open(&store, often))?;
    let before = store.requests()?;
    let until = Instant::now() + Duration::from_secs(plan.seconds);
    let done = runtime.block_on(by_tasks(plan, &db, |writer| puts_until(writer, until), true))?;
    let used = store.requests()?.since(&before);
    runtime.block_on(db.close())?;
    Ok(done.figures(Some(used), Some(put_us)))
}

/// Gets right after an open of a database that was flushed.
fn gets(plan: &Shared, latency_ms: u64) -> Result<Figures> {
    let (mut store, runtime) = (Store::start(0)?, runtime()?);
    runtime.block_on(load(plan, &store))?;
    store.set_latency(latency_ms)?;
    let db = runtime.block_on(open(&store, false))?;
    let before = store.requests()?;
    let readers = plan.writers;
    let done = runtime.block_on(by_tasks(plan, &db, |reader| reads_of(reader, readers), false))?;
    let used = store.requests()?.since(&before);
    runtime.block_on(db.close())?;
    Ok(done.figures(Some(used), None))
}

async fn load(plan: &Shared, store: &Store) -> Result<()> {
    let db = open(store, false).await?;
    let (pairs, mut key, mut value) = (Pairs::new(plan.value_bytes), Vec::new(), Vec::new());
    for first in (0..LOADED).step_by(LOADED_TOGETHER as usize) {
        let mut batch = WriteBatch::new();
        for number in first..first + LOADED_TOGETHER {
            pairs.write(number, &mut key, &mut value);
            batch.put(&key, &value);
        }
        db.write(batch).await?;
    }
    db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await?;
    Ok(db.close().await?)
}

async fn by_tasks<I: Iterator<Item = u64> + Send + 'static>(
    plan: &Shared,
    db: &Db,
    numbers: impl Fn(u64) -> I,
    are_puts: bool,
) -> Result<Done> {
    let pairs = Arc::new(Pairs::new(plan.value_bytes));
    let (used, began) = (Usage::now(), Instant::now());
    let task = |task| tokio::spawn(operations(db.clone(), pairs.clone(), numbers(task), are_puts));
    let tasks: Vec<_> = (0..plan.writers).map(task).collect();
    let mut all = times(NANOSECONDS);
    for task in tasks {
        all.add(task.await??).map_err(|e| e.to_string())?;
    }
    Ok(Done::new(all, began, &used))
}

/// The operations of one task.
async fn operations(
    db: Db,
    pairs: Arc<Pairs>,
    numbers: impl Iterator<Item = u64> + Send,
    are_puts: bool,
) -> Result<Histogram<u64>> {
    let (mut took, mut key, mut value) = (times(NANOSECONDS), Vec::new(), Vec::new());
    for number in numbers {
        pairs.write(number, &mut key, &mut value);
        let began = Instant::now();
        if are_puts {
            db.put(&key, &value).await?.await_durable().await?;
        } else if db.get(&key).await?.as_deref() != Some(&value[..]) {
            return Err(Error::from("a value is not as it was written"));
        }
        took.saturating_record(began.elapsed().as_nanos() as u64);
    }
    Ok(took)
}
