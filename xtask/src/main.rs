//! What people and CI run: `cargo xtask help` lists it.
//!
//! `ci` and `test` are lists of steps (`steps`), `campaigns` is the one table of the long tests with their counts,
//! `rules` are checks of the sources that no compiler makes, `run` runs commands and counts what came of them.

mod campaigns;
mod rules;
mod run;
mod steps;

use run::Tally;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [--fast]      all tests; without --fast the campaigns with their gate counts too
cargo xtask soak [--hours H]   the campaigns with their release counts, again and again for H hours (default: once)
cargo xtask ci                 formatting, lints, documentation, licences, house rules, then test
cargo xtask rules              the house rules alone
cargo xtask loom               models of what threads share: all interleavings up to a bound
cargo xtask shuttle            the same and whole databases: random schedules from a fixed seed
cargo xtask sanitize           the unit tests of the modules with unsafe code under the address sanitizer
cargo xtask peers              builds the bench with the stores it compares with; installs libclang when missing
cargo xtask list               the campaigns and their counts";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut tally = Tally::default();
    match args[..] {
        ["test"] => steps::test(&mut tally, true),
        ["test", "--fast"] => steps::test(&mut tally, false),
        ["soak"] => campaigns::soak(&mut tally, 0.0),
        ["soak", "--hours", hours] => match hours.parse() {
            Ok(hours) => campaigns::soak(&mut tally, hours),
            Err(_) => return usage(&format!("--hours {hours} is not a number")),
        },
        ["ci"] => steps::ci(&mut tally),
        ["rules"] => rules::step(&mut tally),
        ["loom"] => steps::interleavings(&mut tally),
        ["shuttle"] => steps::schedules(&mut tally),
        ["sanitize"] => steps::sanitize(&mut tally),
        ["peers"] => steps::peers(&mut tally),
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
