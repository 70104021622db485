//! `siltstone-kill`: kills processes that work on a database, and checks what they leave.
//!
//! `siltstone-kill [--count N] [--seed S] [--jobs J] [--seconds S] [--disk KIND|all]`; as a child it is
//! started by itself. With `--disk` the databases lie on a new file system of that kind, or on one of each
//! kind after another; what cannot be mounted is said and left out. With `--seconds` it begins no further
//! kill after that time. The last line says how many kills there were.

use siltstone_tests::disks::{Disk, KINDS, Kind};
use siltstone_tests::kill::campaign::Campaign;
use siltstone_tests::kill::child::{self, Orders};
use siltstone_tests::twice::PLACES;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Room for the databases of a few jobs.
const DISK_BYTES: u64 = 2 << 30;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let run = match arguments.split_first() {
        Some((first, rest)) if first == "child" => run_child(rest),
        _ => run_campaign(&arguments),
    };
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("siltstone-kill: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run_child(arguments: &[String]) -> Result<(), String> {
    let [dir, seed, round, life] = arguments else { return Err("child DIR SEED ROUND LIFE_MS".into()) };
    let number = |text: &String| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
    let orders =
        Orders { seed: number(seed)?, round: number(round)?, life: Duration::from_millis(number(life)?) };
    child::run(Path::new(dir), orders)
}

fn run_campaign(arguments: &[String]) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    let mut campaign =
        Campaign { count: 100, seed: 1, jobs: 2, time: None, base: std::env::temp_dir(), program };
    let mut disks: Vec<Kind> = Vec::new();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        if name == "--disk" {
            disks = if value == "all" { KINDS.to_vec() } else { vec![Kind::named(value)?] };
            continue;
        }
        let number: u64 = value.parse().map_err(|_| format!("{name} {value}: not a number"))?;
        match name.as_str() {
            "--count" => campaign.count = number,
            "--seed" => campaign.seed = number,
            "--jobs" => campaign.jobs = number.clamp(1, 256) as usize,
            "--seconds" => campaign.time = Some(Duration::from_secs(number)),
            _ => {
                return Err(format!(
                    "unknown option {name}; there are --count, --seed, --jobs, --seconds, --disk"
                ));
            }
        }
    }
    let mut kills = 0;
    if disks.is_empty() {
        kills += run_one(&campaign)?;
    }
    let each = disks.len().max(1) as u32;
    campaign.count = campaign.count.div_ceil(u64::from(each));
    campaign.time = campaign.time.map(|time| time / each);
    for kind in disks {
        let disk = match Disk::mount(kind, DISK_BYTES) {
            Ok(disk) => disk,
            Err(why) => {
                println!("{} cannot be mounted here ({why})", kind.name());
                continue;
            }
        };
        println!("on {}:", kind.name());
        campaign.base = disk.root();
        match run_one(&campaign) {
            Ok(more) => kills += more,
            Err(why) => {
                // What is found there is to be looked at.
                std::mem::forget(disk);
                return Err(format!("on {}: {why}", kind.name()));
            }
        }
    }
    println!("count {kills}");
    Ok(())
}

/// How many kills there were.
fn run_one(campaign: &Campaign) -> Result<u64, String> {
    let began = Instant::now();
    let counts = campaign.run().map_err(|failure| format!("seed {}: {failure}", campaign.seed))?;
    let (kills, at_points) = (counts.kills(), counts.points.values().sum::<u64>());
    println!(
        "{kills} kills in {:.1} s, seed {}: {} at random moments, {at_points} at {} kill points; {} ended in good order",
        began.elapsed().as_secs_f64(),
        campaign.seed,
        counts.random,
        counts.points.len(),
        counts.ended,
    );
    println!(
        "{} databases of {} batches compared, {} checkpoints, {} backups: nothing acknowledged lost, no hole, no half batch",
        counts.checks, counts.batches, counts.checkpoints, counts.backups
    );
    let all_pairs = PLACES.len() * PLACES.len();
    println!("{} of {all_pairs} pairs of places of memory and WAL, one after the other", counts.pairs.len());
    for (point, kills) in &counts.points {
        println!("{kills:6} {point}");
    }
    counts.lacks(campaign.count.min(kills))?;
    Ok(kills)
}
