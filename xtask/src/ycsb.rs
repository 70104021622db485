//! YCSB A to F on the real server, over the official Java client. The client is slow: this shows that the
//! mixes work, and what the server does for them; the bench's own client measures how fast it is.

use crate::clients::{Served, copied_from, done, limited, start};
use crate::run::{Tally, cargo, root};
use std::fs;
use std::process::Command;

/// Shares of reads, updates, scans, inserts and read-modify-writes, and which records are asked for.
const WORKLOADS: [(&str, [f64; 5], &str); 6] = [
    ("a", [0.5, 0.5, 0.0, 0.0, 0.0], "zipfian"),
    ("b", [0.95, 0.05, 0.0, 0.0, 0.0], "zipfian"),
    ("c", [1.0, 0.0, 0.0, 0.0, 0.0], "zipfian"),
    ("f", [0.5, 0.0, 0.0, 0.0, 0.5], "zipfian"),
    ("d", [0.95, 0.0, 0.0, 0.05, 0.0], "latest"),
    ("e", [0.0, 0.0, 0.95, 0.05, 0.0], "zipfian"),
];
const SHARES: [&str; 5] = ["read", "update", "scan", "insert", "readmodifywrite"];

pub(crate) fn step(tally: &mut Tally, count: u64) {
    if !tally.step("build of the server", &mut cargo("build --release -p siltstone-cli")) {
        return;
    }
    let place = root().join("target/ycsb");
    let source = root().join("bench/ycsb");
    let files = ["pom.xml", "src/main/java/Bigtable.java"];
    let _ = fs::create_dir_all(place.join("src/main/java"));
    let mut build = limited("300", "mvn");
    build.args(["-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"]);
    if !copied_from(&source, &place, &files) || !done(build.current_dir(&place)) {
        println!("YCSB: left out, as its packages cannot be had here");
        return;
    }
    let Ok(classpath) = fs::read_to_string(place.join("target/classpath")) else { return };
    let data = place.join("data");
    let _ = fs::remove_dir_all(&data);
    let Some(served) = start("release", &data, &[]) else {
        tally.check("the server starts", || vec!["it did not say where it listens".into()]);
        return;
    };
    let client = |served: &Served, phase: &str| {
        let mut run = limited("1800", "java");
        run.arg("-cp").arg(format!("target/classes:{}", classpath.trim())).current_dir(&place);
        run.args(["site.ycsb.Client", phase, "-db", "Bigtable", "-threads", "8"]);
        run.args(["-p", "workload=site.ycsb.workloads.CoreWorkload", "-p", "measurementtype=hdrhistogram"]);
        run.args(["-p", "hdrhistogram.percentiles=50,99"]);
        run.args(["-p", &format!("bigtable.server={}", served.grpc)]);
        run.args(["-p", &format!("recordcount={count}"), "-p", &format!("operationcount={count}")]);
        run
    };
    report(tally, "load", count, &mut client(&served, "-load"));
    for (name, shares, records) in WORKLOADS {
        let mut run = client(&served, "-t");
        run.args(["-p", &format!("requestdistribution={records}"), "-p", "maxscanlength=100"]);
        for (share, what) in shares.iter().zip(SHARES) {
            run.args(["-p", &format!("{what}proportion={share}")]);
        }
        report(tally, name, count, &mut run);
    }
    tally.check("the server stops at SIGTERM", || crate::clients::stop(served));
}

/// Runs it, prints its throughput and latencies, and fails where an operation did, or where fewer were done
/// than asked for.
fn report(tally: &mut Tally, name: &str, count: u64, run: &mut Command) {
    let mut said = String::new();
    let (mut done, mut failed) = (0, Vec::new());
    let ended = tally.step_with_lines(&format!("YCSB {name}"), run, |line| {
        let is_wanted = ["Throughput", "Average", "50", "99"].iter().any(|word| line.contains(word));
        if line.starts_with('[') && is_wanted && !line.contains("CLEANUP") && !line.contains("GC") {
            said.push_str(&format!("{line}\n"));
        }
        match line.split_once("Return=") {
            Some((_, rest)) if rest.starts_with("OK,") => {
                done += rest.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            }
            Some(_) => failed.push(line.to_string()),
            None => {}
        }
    });
    print!("{said}");
    if ended {
        if done < count {
            failed.push(format!("{done} operations were done of {count}"));
        }
        tally.check(&format!("YCSB {name} answers all"), || failed);
    }
}
