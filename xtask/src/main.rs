//! The tasks that people and CI run: `cargo xtask help` lists them.
//!
//! `run` runs commands, times them and counts what came of them; `progress` says how far a run is; `tools`
//! are what many steps need. `check` is for while one works, `steps` has the parts of `test` and `ci`, `list`
//! is the one table of the long tests with their counts, `campaigns` runs them, `guards` says which checks
//! need not run again, and `rules` are checks of the sources that no compiler makes.
//!
//! The others are a command each: `c`, `python` and `release` for what is built for users, `clients`,
//! `suites` and `patterns` for the server beside programs of others, `objects` for object stores, and
//! `instructions`, `speed` and `ycsb` measure.

mod c;
mod campaigns;
mod check;
mod clients;
mod guards;
mod instructions;
mod list;
mod objects;
mod patterns;
mod progress;
mod python;
mod release;
mod rules;
mod run;
mod speed;
mod steps;
mod suites;
mod tools;
mod ycsb;

use run::Tally;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask check              formatting, house rules, and lints and unit tests of the packages that differ from the main branch:
                               for while you work
cargo xtask test [--fast]      all tests; without --fast the models and the campaigns with their gate counts too
cargo xtask soak [--hours H]   the campaigns up to their release counts, or as far as they come in H hours, with all
                               planted bugs; then the sanitizer, and the models with more schedules (20 minutes more)
cargo xtask ci                 formatting, lints, documentation, licences, house rules, then test, and the sanitizer
cargo xtask rules              the house rules alone; --shrink writes their lists of exceptions (xtask/exceptions) anew
cargo xtask loom               models of what threads share: all interleavings up to a bound
cargo xtask shuttle            the same and whole databases: random schedules
cargo xtask sanitize           the unit tests of the modules with unsafe code under the address sanitizer
cargo xtask instructions       how many instructions an operation takes, beside those in xtask/instructions.txt;
                               --update REASON records those that differ by more than 5 %
cargo xtask peers              builds the bench with the stores it compares with; installs libclang when missing
cargo xtask semver REV         what of the library's interface a user of that revision would have to change
cargo xtask clients            official clients and a browser against the real server
cargo xtask patterns [N]       patterns of filters beside Go's regexp: N of them (20000), with 8 values each
cargo xtask suites [NAME...]   the clients' own test suites against the real server: go, python, java, or one of Go's
                               (integration, unit, prod); --all runs those too that are excluded
cargo xtask python             the Python package's tests, examples and types
cargo xtask c                  the C library's tests and examples in C, C++ and Go, and LevelDB's own test of its interface;
                               --install PREFIX builds it for users; --header makes its headers anew
cargo xtask speed [ROUNDS]     how long calls take from Rust, C and Python, and from Python of other stores (3 rounds)
cargo xtask release            builds what a release consists of, tries each as a user would, and says what to upload
cargo xtask objects [N]        tables in SeaweedFS and HDFS, which it installs: N keys of 1,000 B (200000), all checked
cargo xtask ycsb [N]           YCSB A to F on the server, N records and as many operations each (100000)
cargo xtask list               the campaigns and their counts

test, soak, ci, c, patterns and shuttle draw a fresh seed and print it; --seed S runs with that seed again.
Example: cargo xtask test --seed 29527900160000";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let seed = match args.iter().position(|arg| *arg == "--seed") {
        None => campaigns::fresh_seed(),
        Some(at) => match args.get(at + 1).map(|seed| seed.parse()) {
            Some(Ok(seed)) => {
                args.drain(at..at + 2);
                seed
            }
            _ => return usage("--seed needs a number"),
        },
    };
    match args[..] {
        ["list"] => print!("{}", campaigns::list()),
        ["help" | "--help" | "-h"] => println!("{HELP}"),
        _ => {
            let mut tally = Tally::default();
            return match run(&args, &mut tally, seed) {
                Ok(()) => tally.close(),
                Err(why) => usage(&why),
            };
        }
    }
    ExitCode::SUCCESS
}

/// Runs the task; an error where there is no such task.
fn run(args: &[&str], tally: &mut Tally, seed: u64) -> Result<(), String> {
    match *args {
        ["check"] => check::step(tally),
        ["test"] => steps::test(tally, seed, true),
        ["test", "--fast"] => steps::test(tally, seed, false),
        ["soak"] => steps::soak(tally, seed, None),
        ["soak", "--hours", hours] => steps::soak(tally, seed, Some(number(hours)?)),
        ["ci"] => steps::ci(tally, seed),
        ["rules"] => rules::alone(tally),
        ["rules", "--shrink"] => rules::shrink(tally),
        ["loom"] => _ = steps::interleavings(tally),
        ["shuttle"] => _ = steps::schedules(tally, seed, 1),
        ["sanitize"] => guards::run_now(tally, guards::Guard::Sanitizer, steps::sanitize),
        ["instructions"] => _ = instructions::step(tally, None),
        ["instructions", "--update", reason] => _ = instructions::step(tally, Some(reason)),
        ["peers"] => steps::peers(tally),
        ["semver", revision] => steps::semver(tally, revision),
        ["clients"] => clients::step(tally),
        ["patterns"] => patterns::step(tally, patterns::COUNT, seed),
        ["patterns", count] => patterns::step(tally, number(count)?, seed),
        ["suites", ref which @ ..] => {
            if !suites::step(tally, which) {
                return Err(format!("no such suite in: {}", which.join(" ")));
            }
        }
        ["python"] => python::step(tally),
        ["speed"] => speed::step(tally, 3),
        ["speed", rounds] => speed::step(tally, number(rounds)?),
        ["release"] => release::step(tally),
        ["c"] => c::step(tally, seed),
        ["c", "--header"] => c::write_headers(tally),
        ["c", "--install", prefix] => c::install_into(tally, prefix),
        ["objects"] => objects::step(tally, 200_000),
        ["objects", count] => objects::step(tally, number(count)?),
        ["ycsb"] => ycsb::step(tally, 100_000),
        ["ycsb", count] => ycsb::step(tally, number(count)?),
        _ => return Err(format!("no such task: {}", args.join(" "))),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number for that"))
}

fn usage(why: &str) -> ExitCode {
    eprintln!("{why}\n\n{HELP}");
    ExitCode::FAILURE
}
