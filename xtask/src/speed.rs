//! How long calls take from Rust, C and Python, and from Python of other stores: the same calls in one
//! alternating run. Nothing here fails for being slow: it prints medians, and which goals hold.

use crate::c;
use crate::clients::{environment, limited};
use crate::run::{Tally, cargo, command, root};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Seconds for all calls of one program.
const RUN_SECONDS: &str = "300";
const GET_SECONDS: &str = "600";
/// The stores that Python has beside ours.
const PEERS: [&str; 3] = ["plyvel", "rocksdict", "lmdb"];
const PACKAGES: [&str; 5] = ["plyvel==1.5.1", "rocksdict==0.3.29", "lmdb==3.0.0", "pyarrow", "maturin"];

/// The programs' results: by store and call, microseconds of each round.
type Told = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

pub(crate) fn step(tally: &mut Tally, rounds: u32) {
    let base = root().join("target/speed");
    let Some(programs) = programs(tally, &base) else { return };
    let mut told = Told::new();
    for round in 0..rounds {
        let mut order: Vec<&(String, Vec<PathBuf>)> = programs.iter().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for (name, words) in order {
            let data = base.join("data");
            let _ = fs::remove_dir_all(&data);
            let ran = fs::create_dir_all(&data).is_ok() && run(words, &data, &base, &mut told);
            let _ = fs::remove_dir_all(&data);
            if !tally.check(&format!("round {}: {name}", round + 1), || {
                if ran { vec![] } else { vec!["it failed".into()] }
            }) {
                return;
            }
        }
    }
    print(&told);
}

/// Builds what is compared: each with its words before the directory.
fn programs(tally: &mut Tally, base: &Path) -> Option<Vec<(String, Vec<PathBuf>)>> {
    let sources = root().join("bindings/speed");
    let mut build = cargo("build --release -p siltstone-c --lib --example calls");
    let prefix = base.join("prefix");
    let laid = tally.step("build of the library and the program in Rust", &mut build)
        && tally.check("the C library is laid out", || c::laid_out(&root().join("target/release"), &prefix));
    let in_c = base.join("calls-c");
    let mut compile = command("gcc", "-std=c11 -O2 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror");
    compile.arg(sources.join("calls.c")).arg("-o").arg(&in_c);
    compile.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib")).arg("-lsiltstone");
    if !(laid && tally.step("build of the program in C", &mut compile)) {
        return None;
    }
    let mut programs = vec![
        ("Rust".to_string(), vec![root().join("target/release/examples/calls")]),
        ("C".to_string(), vec![in_c]),
    ];
    let Some(python) = environment(&base.join("venv"), GET_SECONDS, &PACKAGES) else {
        println!("Python, or the stores to compare with, cannot be had here: Python is NOT MEASURED");
        return Some(programs);
    };
    let wheels = base.join("wheels");
    let _ = fs::remove_dir_all(&wheels);
    let wheel = crate::release::wheel(tally, &base.join("venv/bin/maturin"), &wheels)?;
    let mut install =
        command(&python.to_string_lossy(), "-m pip install --quiet --force-reinstall --no-deps");
    if !tally.step("install of the wheel", install.arg(wheel)) {
        return None;
    }
    let calls = sources.join("calls.py");
    for store in ["python"].iter().chain(&PEERS) {
        programs.push(((*store).to_string(), vec![python.clone(), calls.clone(), PathBuf::from(store)]));
    }
    Some(programs)
}

/// Runs one program and takes what it tells: lines of store, call and microseconds.
fn run(words: &[PathBuf], data: &Path, base: &Path, told: &mut Told) -> bool {
    let mut run = limited(RUN_SECONDS, &words[0]);
    run.args(&words[1..]).arg(data).env("LD_LIBRARY_PATH", base.join("prefix/lib"));
    let Ok(output) = run.output() else { return false };
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut parts = line.split('\t');
        let (Some(store), Some(what), Some(Ok(us))) =
            (parts.next(), parts.next(), parts.next().map(str::parse::<f64>))
        else {
            return false;
        };
        told.entry(what.to_string()).or_default().entry(store.to_string()).or_default().push(us);
    }
    output.status.success()
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Prints the medians as a table, and what they say of the goals.
fn print(told: &Told) {
    let stores: Vec<&str> = ["rust", "c", "python"].into_iter().chain(PEERS).collect();
    println!(
        "\nMicroseconds a call or row, medians:\n\n| call | {} |\n|---|{}",
        stores.join(" | "),
        "---|".repeat(stores.len())
    );
    let of = |what: &str, store: &str| Some(median(told.get(what)?.get(store)?));
    for what in told.keys() {
        let cells: Vec<String> =
            stores.iter().map(|store| of(what, store).map_or("-".into(), |us| format!("{us:.3}"))).collect();
        println!("| {what} | {} |", cells.join(" | "));
    }
    println!();
    let goal = |name: String, figure: Option<f64>, most: f64| {
        if let Some(figure) = figure {
            println!(
                "{} {name}: {figure:.3}, at most {most}",
                if figure <= most { "holds " } else { "missed" }
            );
        }
    };
    let over = |what: &str, a: &str, b: &str| Some(of(what, a)? - of(what, b)?);
    // The shortest call, and so the one that shows what C adds: longer ones differ by more from round to
    // round.
    goal("C over Rust, get of nothing, us".into(), over("get of nothing", "c", "rust"), 0.02);
    for what in ["put", "get from memory", "get from tables"] {
        goal(format!("Python over Rust, {what}, us"), over(what, "python", "rust"), 1.0);
    }
    goal("scan_arrow, us a row".into(), of("scan_arrow", "python"), 0.2);
    let share = |what: &str, peer: &str| Some(of(what, "python")? / of(what, peer)?);
    for peer in PEERS {
        for what in ["put", "batch"] {
            goal(format!("{what}, part of {peer}'s time"), share(what, peer), 1.0);
        }
    }
    for what in ["get from memory", "get from tables", "scan"] {
        goal(format!("{what}, part of rocksdict's time"), share(what, "rocksdict"), 1.0);
    }
}
