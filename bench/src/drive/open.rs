//! Opening: a store is loaded and closed, then opened again and again, each time until a first get is
//! answered.
//!
//! Twice over. First after an orderly end, when a store has only its files to find. Then after a kill in the
//! middle of writing, when it has its WAL to read too: a process of its own opens the store, puts as many
//! bytes as its write memory holds, says so and waits to be killed, as no call of a library ends as hard as a
//! kill does.

use super::latency::{Class, Recorded, Recorder};
use super::{Bench, Identity, Phase};
use crate::failure::Result;
use crate::measure::{self, Processors, Usage};
use crate::record::RunRecord;
use crate::store::Wanted;
use crate::workload::bytes::Values;
use crate::workload::random::Rng;
use crate::workload::{Op, Picks, Stream, Workload};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the process that is to be killed says when it has written.
pub(crate) const WRITTEN: &str = "written";

/// Both records. `writer` is the command that starts a process which ends in [`write_and_wait`].
pub(crate) fn run(
    identity: &Identity,
    wanted: &Wanted<'_>,
    workload: &Workload,
    writer: impl Fn() -> Result<Command>,
) -> Result<Vec<RunRecord>> {
    let values = Values::new(identity.seed, workload.longest_value());
    let live_bytes = {
        let store = identity.named.open(wanted)?;
        let mut bench = Bench::new(store.as_ref(), wanted.dir, identity);
        bench.load(workload, &values)?;
        bench.live.map_or(0, |live| live.bytes(workload))
    };
    let mut closed = opened(identity, wanted, workload, live_bytes, || Ok(()))?;
    let mut killed = opened(identity, wanted, workload, live_bytes, || write_and_kill(writer()?))?;
    closed.workload = format!("{}:closed", workload.name);
    killed.workload = format!("{}:killed", workload.name);
    Ok(vec![closed, killed])
}

/// Opens as often as the workload has operations, each time after `before`.
fn opened(
    identity: &Identity,
    wanted: &Wanted<'_>,
    workload: &Workload,
    live_bytes: u64,
    before: impl Fn() -> Result<()>,
) -> Result<RunRecord> {
    let picks = Picks::new(workload, identity.seed);
    let (mut recorder, mut key) = (Recorder::new(), Vec::new());
    let (mut seconds, mut used, mut settings) = (0.0, Usage::default(), Vec::new());
    measure::forget_peak();
    let processors = Processors::now();
    recorder.begin(Instant::now());
    for op in Stream::new(workload, &picks, identity.seed, 0) {
        let Op::Get(number) = op else { continue };
        before()?;
        if workload.cold {
            measure::forget_files(wanted.dir)?;
        }
        workload.read_key(number, &mut key);
        let mut right = false;
        let (usage, began) = (Usage::now(), Instant::now());
        let store = identity.named.open(wanted)?;
        store.session()?.get(&key, &mut |value| right = Values::belongs(number, value))?;
        let (now, took) = (Instant::now(), began.elapsed());
        used = used.and(&Usage::now().since(&usage));
        if !right {
            return Err(format!("key number {number} was not found after opening").into());
        }
        recorder.record(Class::Open, took, now, 1);
        seconds += took.as_secs_f64();
        settings = store.settings();
    }
    let disk_bytes = measure::directory_bytes(wanted.dir);
    let phase = Phase {
        seconds,
        settle_seconds: 0.0,
        used,
        stolen: Processors::now().stolen_since(&processors),
        written: None,
        user_bytes: 0,
        live_bytes,
        disk_bytes,
        peak_disk_bytes: disk_bytes,
        peak_rss_bytes: measure::peak_rss_bytes(),
        runs_max: None,
        largest_merge_bytes: None,
        settled: true,
    };
    let mut recorded = Recorded::of(vec![recorder], |_, _| true);
    // Its seconds are mostly those between the openings.
    recorded.timeline.clear();
    Ok(identity.record(workload, workload.settings().into_iter().chain(settings), recorded, phase))
}

/// Starts a process that writes, and kills it once it has.
pub(crate) fn write_and_kill(mut writer: Command) -> Result<()> {
    let mut child = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    let heard = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut said));
    child.kill()?;
    child.wait()?;
    heard.transpose()?;
    if said.trim() == WRITTEN {
        Ok(())
    } else {
        Err("the process that was to be killed ended by itself".into())
    }
}

/// The process that is killed: puts as many bytes as write memory holds or as the workload says, over keys
/// that are there. Should whoever is to kill it vanish, it ends.
pub(crate) fn write_and_wait(identity: &Identity, wanted: &Wanted<'_>, workload: &Workload) -> Result<()> {
    let values = Values::new(identity.seed, workload.longest_value());
    let mut rng = Rng::new(identity.seed, "writes before a kill", 0);
    let store = identity.named.open(wanted)?;
    let mut session = store.session()?;
    let (mut row, mut bytes) = (vec![(Vec::new(), Vec::new()); workload.columns], 0);
    while bytes < workload.before_kill() {
        let number = rng.below(workload.keys);
        workload.row(number, rng.next() as u32, &values, &mut row);
        bytes += workload.row_key_bytes() + workload.row_value_bytes(number);
        session.put_many(&row)?;
    }
    println!("{WRITTEN}");
    std::io::stdin().read_line(&mut String::new())?;
    Err("nobody killed this process".into())
}
