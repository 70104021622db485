//! What people and CI run: `cargo xtask help` lists it.
//!
//! `ci` and `test` are lists of steps (`steps`), `list` is the one table of the long tests with their counts, `campaigns` runs them,
//! `guards` says which checks need not run again, `rules` are checks of the sources that no compiler makes, `run` runs
//! commands, times them and counts what came of them.

mod c;
mod campaigns;
mod clients;
mod guards;
mod instructions;
mod list;
mod objects;
mod patterns;
mod python;
mod release;
mod rules;
mod run;
mod speed;
mod steps;
mod suites;
mod ycsb;

use run::Tally;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [--fast]      all tests; without --fast the models and the campaigns with their gate counts too
cargo xtask soak [--hours H]   the campaigns up to their release counts, or as far as they come in H hours, with all
                               planted bugs; then the sanitizer, and the models with more schedules (20 minutes more)
cargo xtask ci                 formatting, lints, documentation, licences, house rules, then test, and the sanitizer
cargo xtask rules              the house rules alone
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
    let mut tally = Tally::default();
    match args[..] {
        ["test"] => steps::test(&mut tally, seed, true),
        ["test", "--fast"] => steps::test(&mut tally, seed, false),
        ["soak"] => steps::soak(&mut tally, seed, None),
        ["soak", "--hours", hours] => match hours.parse() {
            Ok(hours) => steps::soak(&mut tally, seed, Some(hours)),
            Err(_) => return usage(&format!("--hours {hours} is not a number")),
        },
        ["ci"] => steps::ci(&mut tally, seed),
        ["rules"] => rules::step(&mut tally),
        ["loom"] => _ = steps::interleavings(&mut tally),
        ["shuttle"] => _ = steps::schedules(&mut tally, seed, 1),
        ["sanitize"] => guards::run_now(&mut tally, guards::Guard::Sanitizer, steps::sanitize),
        ["instructions"] => _ = instructions::step(&mut tally, None),
        ["instructions", "--update", reason] => _ = instructions::step(&mut tally, Some(reason)),
        ["peers"] => steps::peers(&mut tally),
        ["semver", revision] => steps::semver(&mut tally, revision),
        ["clients"] => clients::step(&mut tally),
        ["patterns"] => patterns::step(&mut tally, patterns::COUNT, seed),
        ["patterns", count] => match count.parse() {
            Ok(count) => patterns::step(&mut tally, count, seed),
            Err(_) => return usage(&format!("{count} is no number of patterns")),
        },
        ["suites", ref which @ ..] => {
            if !suites::step(&mut tally, which) {
                return usage(&format!("no such suite in: {}", which.join(" ")));
            }
        }
        ["python"] => python::step(&mut tally),
        ["speed"] => speed::step(&mut tally, 3),
        ["speed", rounds] => match rounds.parse() {
            Ok(rounds) => speed::step(&mut tally, rounds),
            Err(_) => return usage(&format!("{rounds} is no number of rounds")),
        },
        ["release"] => release::step(&mut tally),
        ["c"] => c::step(&mut tally, seed),
        ["c", "--header"] => c::write_headers(&mut tally),
        ["c", "--install", prefix] => c::install_into(&mut tally, prefix),
        ["objects"] => objects::step(&mut tally, 200_000),
        ["objects", count] => match count.parse() {
            Ok(count) => objects::step(&mut tally, count),
            Err(_) => return usage(&format!("{count} is no number of keys")),
        },
        ["ycsb"] => ycsb::step(&mut tally, 100_000),
        ["ycsb", count] => match count.parse() {
            Ok(count) => ycsb::step(&mut tally, count),
            Err(_) => return usage(&format!("{count} is no number of records")),
        },
        ["list"] => {
            print!("{}", campaigns::list());
            return ExitCode::SUCCESS;
        }
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => return usage(&format!("no such task: {}", args.join(" "))),
    }
    tally.close()
}

fn usage(why: &str) -> ExitCode {
    eprintln!("{why}\n\n{HELP}");
    ExitCode::FAILURE
}
