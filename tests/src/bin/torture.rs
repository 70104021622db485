//! Runs campaigns over the simulated world: `siltstone-torture power --count 50000 --seed 7 --threads 2`.

use siltstone::testing::{Bug, serve_compactions};
use siltstone_tests::ROWS;
use siltstone_tests::campaign::{Row, run};
use siltstone_tests::planted;
use siltstone_tests::subject::Concat;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str =
    "usage: siltstone-torture ROW|all|planted|merges [--count N] [--seed S] [--threads N] [--seconds S]
  Runs a row's cases until N units are reached (default: the row's usual count), or every row (`all`). With --seconds it begins
  no further case of a row after that time. The last line says how many units there were.
  `planted` plants bugs (all, or --count N of them drawn by the seed; it takes no --seconds) and demands that some row
  fails with each.
  `merges` runs merges for the test that started it, in the present directory.
  A failure is printed with the command that replays it, and the exit status is 1.
  Example: siltstone-torture power --count 50000 --seed 7 --threads 2";

struct Arguments {
    row: String,
    count: Option<u64>,
    seed: u64,
    threads: usize,
    time: Option<Duration>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let row = args.next().ok_or("no row given")?;
    let mut parsed = Arguments { row, count: None, seed: 1, threads: 2, time: None };
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number: u64 = value.parse().map_err(|_| format!("{name} {value}: expected a number"))?;
        match name.as_str() {
            "--count" => parsed.count = Some(number),
            "--seed" => parsed.seed = number,
            "--threads" => parsed.threads = number as usize,
            "--seconds" => parsed.time = Some(Duration::from_secs(number)),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => return usage(&why),
    };
    if arguments.row == "merges" {
        return serve();
    }
    if arguments.row == "planted" {
        return plant(&arguments);
    }
    let rows: Vec<&Row> =
        ROWS.iter().filter(|row| arguments.row == "all" || row.name == arguments.row).collect();
    if rows.is_empty() {
        return usage(&format!("no row is named {}", arguments.row));
    }
    let (mut count, mut passed) = (0, true);
    for row in rows {
        let (units, ok) = run_row(row, &arguments);
        count += units;
        passed &= ok;
    }
    end(count, passed)
}

/// Runs compactions for the parent process, over standard input and output, in the present directory.
fn serve() -> ExitCode {
    let builder = siltstone::Builder::new().merge_operator("concat", std::sync::Arc::new(Concat));
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match serve_compactions(&builder, input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("siltstone-torture merges: {e}");
            ExitCode::FAILURE
        }
    }
}

fn end(count: u64, passed: bool) -> ExitCode {
    println!("count {count}");
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each planted bug must make some campaign fail.
fn plant(arguments: &Arguments) -> ExitCode {
    let executable = match std::env::current_exe() {
        Ok(path) => path,
        Err(e) => return usage(&format!("this program's own path is unknown: {e}")),
    };
    let mut missed = 0;
    let bugs = planted::bugs(arguments.count.map(|n| n as usize), arguments.seed);
    let count = bugs.len() as u64;
    for bug in bugs {
        match planted::caught_by(&executable, bug, arguments.seed) {
            Some(row) => println!("planted {}: caught by {row}", bug.name()),
            None => {
                missed += 1;
                println!("planted {}: MISSED, seed {}", bug.name(), arguments.seed);
            }
        }
    }
    end(count, missed == 0)
}

fn usage(why: &str) -> ExitCode {
    let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    eprintln!("{why}\n{USAGE}\n  Rows: {}", names.join(", "));
    ExitCode::from(2)
}

/// How many units there were, and whether all is well.
fn run_row(row: &Row, arguments: &Arguments) -> (u64, bool) {
    if let Some(Err(why)) = row.needs.map(|needs| needs()) {
        println!("{}: 0 {}, this machine does not allow it: {why}", row.name, row.unit);
        return (0, true);
    }
    let count = arguments.count.unwrap_or(row.usual);
    let outcome = run(row, arguments.seed, count, arguments.threads, arguments.time);
    let (name, unit, seed) = (row.name, row.unit, arguments.seed);
    let (count, cases, seconds) = (outcome.count, outcome.cases, outcome.seconds);
    let together = row.together.map_or(Ok(String::new()), |together| (together.check)(count));
    // Where a bug is planted, a wrong answer is looked for.
    let planted = Bug::ALL.iter().any(|bug| bug.is_planted());
    let enough = count >= row.least() && !planted;
    let rare = together.as_ref().err().filter(|_| outcome.failure.is_none() && enough);
    let state = if outcome.failure.is_some() || rare.is_some() { "FAILED" } else { "ok" };
    println!("{name}: {state}, {count} {unit} in {cases} cases, seed {seed}, {seconds:.1} s");
    if let Ok(told) | Err(told) = &together
        && !told.is_empty()
    {
        println!("  {told}");
    }
    if let Some(failure) = &outcome.failure {
        println!("  seed {}: {}", failure.seed, failure.message);
        println!("  replay: siltstone-torture {name} --seed {} --count 1 --threads 1", failure.seed);
    }
    (count, outcome.failure.is_none() && rare.is_none())
}
