//! The program as people and scripts use it: tiny runs of every workload, on whatever stores this build has.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone-bench"));
    command.args(args);
    let measures = matches!(args[0], "run" | "compare" | "paper");
    if measures {
        command.arg("--dir").arg(dir.path());
    }
    let output = command.output().unwrap();
    if measures {
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "directories are removed");
    }
    output
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const TINY: [&str; 5] = ["--keys", "3000", "--ops", "2000", "--json"];

/// The records of a tiny run that went well.
fn tiny(args: &[&str]) -> Vec<Value> {
    let output = bench(&[args, &TINY].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    lines(&output)
}

#[test]
fn every_workload_runs_and_its_record_adds_up() {
    let all = "fillseq,fillrandom,overwrite,readrandom,readmissing,seekrandom,readseq,readwhilewriting,deleteseq,\
               ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f,ycsb-a:batched,ycsb-d:uniform,ycsb-f:latest,\
               ycsb-e:batched,ws1,ws2:r50,ws3,ws3:x20:r50,mixgraph,stability,accordion-zipf,accordion-uniform:d100";
    let records = tiny(&["run", "--workload", all]);
    assert_eq!(records.len(), 29, "one each, two of stability");
    for record in &records {
        let name = record["workload"].as_str().unwrap();
        let in_order = ["fillseq", "readseq", "deleteseq", "ycsb-load"].contains(&name);
        assert_eq!(record["ops"], if in_order { 3000 } else { 2000 }, "{name}");
        let by_class = record["latency"].as_object().unwrap().values();
        let counted: u64 = by_class.map(|latency| latency["count"].as_u64().unwrap()).sum();
        assert_eq!(record["ops"], counted, "{name}");
        let wrote = record["user_bytes"].as_u64().unwrap() > 0;
        assert_eq!(wrote, record["write_amp"].is_number(), "{name}");
        for told in ["flushed_bytes", "wal_bytes", "flushes"] {
            assert_eq!(wrote, record[told].as_u64().unwrap() > 0, "{name}: {told}");
        }
        assert!(record["compaction_written_bytes"].is_u64() && record["compactions"].is_u64(), "{name}");
        assert_eq!(record["settled"], true);
        assert!(record["cpu_us_op"].as_f64().unwrap() > 0.0, "{name}");
        assert!(record["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    }
    let of = |name: &str| records.iter().find(|record| record["workload"] == name).unwrap();
    assert_eq!(of("fillseq")["user_bytes"], 3000 * 116);
    assert_eq!(of("accordion-zipf")["user_bytes"], 2000 * 4 * (25 + 25), "a row is four cells");
    assert_eq!(of("deleteseq")["space_amp"], Value::Null);
    assert_eq!(of("readseq")["latency"]["scan"]["count"], 3000);
    assert!(of("stability")["settings"]["rate"].is_string());
}

#[test]
fn tpcc_leaves_consistent_tables_embedded_and_on_a_server_and_merges_one_of_them() {
    for more in [
        &["--server", "--merge", "order-line"][..],
        &["--elsewhere", "--merge", "stock"],
        &["--server", "--elsewhere", "--merge", "stock"],
        &[],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("tpcc");
        let small = ["tpcc", "--json", "--scale", "0.01", "--seconds", "3", "--dir", at.to_str().unwrap()];
        let output = bench(&[&small[..], more].concat());
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        let report = &lines(&output)[0];
        assert_eq!(report["single_rows"], more.contains(&"--server"));
        assert!(report["tpmc"].as_f64().unwrap() > 100.0, "{report}");
        assert_eq!(report["merge_seconds"].is_number(), !more.is_empty());
        assert_eq!(report["merges_elsewhere"].as_u64().is_some_and(|n| n > 0), more.contains(&"--elsewhere"));
        let kinds: std::collections::BTreeSet<_> =
            report["transactions"].as_array().unwrap().iter().map(|t| t["transaction"].to_string()).collect();
        assert_eq!(kinds.len(), 5, "{report}");
        assert!(!at.exists(), "the directory is removed");
    }
}

#[test]
fn compactions_of_more_stores_than_servers_can_take_are_run_by_the_stores() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("capacity");
    let small = ["--json", "--keys", "6000", "--interval", "2", "--intervals", "2", "--rate", "20M"];
    let output = bench(&[&["capacity", "--dir", at.to_str().unwrap()][..], &small].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cases = lines(&output);
    for (case, due) in cases.iter().zip([10, 10, 20, 20]) {
        // Where a compaction came by itself there is nothing left for the one that is due.
        let merges = case["elsewhere"].as_u64().unwrap() + case["here"].as_u64().unwrap();
        assert!((due / 2..=2 * due).contains(&merges), "{case}");
    }
    assert_eq!(cases[0]["elsewhere"], 0, "there is no server");
    assert!(cases[1]["elsewhere"].as_u64().unwrap() > 0, "{cases:?}");
    // A compaction of 6 MB takes 0.3 s there, and ten are due in 2 s.
    assert!(cases[2]["here"].as_u64().unwrap() > 0, "{cases:?}");
}

#[test]
fn synced_puts_are_of_the_synced_class_with_one_and_with_eight_writers() {
    let records = tiny(&["run", "--workload", "syncput"]);
    let seen: Vec<_> = records.iter().map(|r| (r["workload"].clone(), r["threads"].clone())).collect();
    assert_eq!(seen, [("syncput:1".into(), 1.into()), ("syncput:8".into(), 8.into())]);
    assert!(records.iter().all(|record| record["durability"] == "sync"));
}

#[test]
fn readers_get_beside_the_writers_and_end_with_them() {
    let record = &tiny(&["run", "--workload", "accordion-mix"])[0];
    assert_eq!((&record["threads"], &record["latency"]["write"]["count"]), (&12.into(), &2000.into()));
    let reads = record["latency"]["read"]["count"].as_u64().unwrap();
    assert!((1..=4000).contains(&reads), "{reads}");
    assert_eq!(record["user_bytes"], 2000 * 4 * (25 + 25), "of the writers alone");
}

#[test]
fn a_store_of_little_memory_is_loaded_in_small_batches() {
    assert_eq!(tiny(&["run", "--workload", "ycsb-e", "--memory", "256K"])[0]["ops"], 2000);
}

#[test]
fn a_store_is_opened_after_closing_and_after_a_kill() {
    let records =
        bench(&["run", "--workload", "open", "--keys", "3000", "--ops", "2", "--memory", "8M", "--json"]);
    assert!(records.status.success(), "{}", String::from_utf8_lossy(&records.stderr));
    let records = lines(&records);
    let names: Vec<_> = records.iter().map(|record| record["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["open:closed", "open:killed"]);
    for record in &records {
        assert_eq!((&record["latency"]["open"]["count"], &record["ops"]), (&2.into(), &2.into()));
        assert!(record["p50_us"].as_f64().unwrap() > 0.0 && record["space_amp"].is_number());
    }
}

#[test]
fn a_shared_database_is_measured_beside_a_local_one_and_opened_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("shared");
    let small = ["--latency-ms", "0", "--seconds", "1", "--writers", "4", "--rounds", "1", "--live-mib", "2"];
    let output = bench(&[&["shared", "--json", "--dir", at.to_str().unwrap()][..], &small].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = lines(&output);
    let of =
        |what: &str| records.iter().find(|r| r["what"].as_str().is_some_and(|s| s.contains(what))).unwrap();
    for what in ["`sync`", "`buffered`", "puts, shared"] {
        assert!(of(what)["ops_s"].as_f64().unwrap() > 0.0, "{what}");
    }
    let shared = of("puts, shared");
    assert!(shared["put_us"].as_f64().unwrap() > 0.0 && shared["p50_puts"].is_number(), "{shared}");
    assert!(shared["puts_op"].as_f64().unwrap() <= 1.5, "{shared}");
    assert!(shared["bytes_op"].as_f64().unwrap() > 116.0, "{shared}");
    assert!(of("open after")["mb"].as_f64().unwrap() > 2.0, "all of the stream is read");
    let bars: Vec<_> = records.iter().filter(|record| record["kind"] == "figure").collect();
    assert_eq!(bars.len(), 1, "that of 0 ms: {bars:?}");
    assert!(!at.exists(), "the directory is removed");
}

#[test]
fn a_paper_prints_its_figures_beside_ours() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let tables = dir.path().join("tables.md");
    let written = ["--html", page.to_str().unwrap(), "--markdown", tables.to_str().unwrap()];
    let output = bench(&[&["paper", "triad", "--scale", "0.01", "--json"][..], &written].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = lines(&output);
    let kind = |kind: &str| records.iter().filter(|r| r["kind"] == kind).collect::<Vec<_>>();
    let figures = kind("figure");
    assert!(!figures.is_empty() && !kind("run").is_empty());
    for figure in &figures {
        let id = figure["id"].as_str().unwrap();
        assert!(
            ["TRIAD figure", "TRIAD 4.1", "TRIAD 5:"].iter().any(|head| id.starts_with(head)),
            "{figure}"
        );
        assert!(
            figure["paper"].is_number() == id.contains("figure") && figure["ours"].is_number(),
            "{figure}"
        );
        assert!(figure["goal"].is_string() && figure["holds"].is_boolean(), "{figure}");
    }
    let tables = std::fs::read_to_string(tables).unwrap();
    assert_eq!(tables.lines().count(), 2 + figures.len(), "{tables}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Figures of papers") && page.contains("<svg class=\"bars\""));
}

#[test]
fn rangemerges_paper_has_the_simulation_between_its_figures_and_ours() {
    let output = bench(&["paper", "rangemerge", "--scale", "0.002", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = lines(&output);
    let runs: Vec<_> = records.iter().filter(|r| r["kind"] == "run" && r["store"] == "siltstone").collect();
    let (paced, sizes_of_memory, others, sorted) = (3, 5 + 5 + 6, 4 + 3 + 1, 2);
    assert_eq!(runs.len(), paced + sizes_of_memory + others + sorted);
    for run in runs {
        let keys = run["settings"]["keys"].as_str().unwrap().parse::<u64>().unwrap();
        assert_eq!(run["latency"]["write"]["count"], keys, "every key is put once");
        assert_eq!(run["user_bytes"], keys * 1100);
        assert!(run["runs_max"].is_u64() && run["largest_merge_bytes"].is_u64(), "{run}");
        let paced = run["workload"] == "rangemerge";
        assert_eq!(run["latency"]["scan"]["count"].as_u64().is_some_and(|scans| scans > 5), paced);
        assert!(!paced || run["ops_s"].as_f64().unwrap() < 2_600.0);
    }
    let figures: Vec<_> = records.iter().filter(|r| r["kind"] == "figure").collect();
    assert!(figures.iter().any(|f| f["paper"].is_null()) && figures.iter().any(|f| f["paper"].is_number()));
    let latencies = figures.iter().filter(|f| f["id"].as_str().unwrap().contains("figure 5"));
    assert!(latencies.clone().count() >= 6 && latencies.clone().all(|f| f["simulated"].is_null()));
    let of = |id: &str| figures.iter().find(|f| f["id"].as_str().unwrap().contains(id)).unwrap();
    assert_eq!(of("files of a key, D/M 20, rangemerge")["simulated"], 1.0);
    assert!(of("insert time, D/M 100, with deltas over geometric")["ours"].is_number());
}

#[test]
fn compare_prints_the_ratios_of_the_first_store_to_each_other_one() {
    let stores = "siltstone,siltstone:nofilter,siltstone:uncompressed";
    let records =
        tiny(&["compare", "--workload", "fillrandom,readrandom", "--stores", stores, "--runs", "2"]);
    let kind = |kind: &str| records.iter().filter(|r| r["kind"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(kind("run").len(), 2 * 3 * 2);
    let ratios = kind("ratio");
    let ops: Vec<_> = ratios.iter().filter(|r| r["metric"] == "ops_s").collect();
    assert_eq!(ops.len(), 2 * 2);
    assert!(ops.iter().all(|r| r["a"] == "siltstone:default" && r["runs"] == 2));
    assert!(ops.iter().all(|r| r["min"].as_f64() <= r["median"].as_f64()));
    assert!(kind("refusal").is_empty());
}

#[test]
fn a_compaction_under_readers_is_held_to_the_bars_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let (file, plot) = (dir.path().join("records"), dir.path().join("plot.svg"));
    let stores = "siltstone,siltstone:cold";
    let args = ["compare", "--workload", "unseen", "--seconds", "0.6", "--memory", "4M", "--stores", stores];
    let records = tiny(&args);
    let figures = records.iter().filter(|r| r["kind"] == "figure").count();
    assert_eq!(figures, 2 * 3);
    let run = &records[0];
    let stages =
        |stage: &str| run["windows"].as_array().unwrap().iter().filter(|w| w["stage"] == stage).count();
    assert_eq!((stages("before"), stages("after")), (12, 12));
    assert!(stages("during") > 0 && run["before_p99_us"].as_f64().unwrap() > 0.0);
    assert!(run["windows"][3]["hit_ratio"].as_f64().unwrap() > 0.0);

    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let report = bench(&["report", file.to_str().unwrap(), "--svg", plot.to_str().unwrap()]);
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    assert!(String::from_utf8_lossy(&report.stdout).contains("worst / before"));
    assert!(std::fs::read_to_string(plot).unwrap().contains(">siltstone:cold</text>"));
}

#[test]
fn the_same_seed_writes_the_same_bytes_and_another_does_not() {
    let digest =
        |seed: &str| tiny(&["run", "--workload", "mixgraph", "--seed", seed])[0]["user_bytes"].clone();
    assert_eq!(digest("1"), digest("1"));
    assert_ne!(digest("1"), digest("2"));
}

#[test]
fn wrong_names_are_wrong_usage_and_say_what_is_wrong() {
    for args in [
        ["--workload", "fillup"],
        ["--workload", "ws1:x3"],
        ["--keys", "1"],
        ["--stores", "siltstone:basic+s0"],
    ] {
        let rest = if args[0] == "--workload" { [].as_slice() } else { &["--workload", "fillseq"] };
        let output = bench(&[&["run"], args.as_slice(), rest].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = bench(&["compare", "--workload", "fillseq", "--stores", "siltstone,basalt"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("basalt"));
}

#[test]
fn a_store_that_fails_ends_in_failure_and_the_others_are_still_measured() {
    // Half a second is too short for two million puts.
    let output =
        bench(&["run", "--workload", "stability,fillseq", "--keys", "3000", "--limit", "0", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("siltstone on stability, run 1: not done after 0 s"), "{text}");
}

#[test]
fn help_names_every_workload_and_the_list_every_store() {
    let help = String::from_utf8(bench(&["--help"]).stdout).unwrap();
    assert!(["fillseq", "ycsb-f", "ws3", "mixgraph", "stability"].iter().all(|name| help.contains(name)));
    let stores = String::from_utf8(bench(&["peers"]).stdout).unwrap();
    assert!(stores.contains("siltstone"));
}

#[test]
fn what_compactions_let_others_feel_is_told_apart_and_due_by_the_slowest_store() {
    let records =
        tiny(&["run", "--workload", "felt:p50", "--stores", "siltstone,siltstone:rest0", "--seconds", "2"]);
    let of = |workload: &str| -> Vec<&Value> {
        records.iter().filter(|record| record["workload"] == workload).collect()
    };
    let most = of("felt:max");
    let puts = |record: &Value| {
        record["latency"]["write"]["count"].as_u64().unwrap() as f64 / record["seconds"].as_f64().unwrap()
    };
    let least = puts(most[0]).min(puts(most[1]));
    for record in of("felt:p50") {
        let due: f64 = record["settings"]["puts_s"].as_str().unwrap().parse().unwrap();
        assert!((due - least / 2.0).abs() <= 1.0, "{due} of {least}");
        let told = &record["beside_merges"];
        let seconds = |kind: &str| told[kind].as_u64().unwrap();
        assert!((1..=4).contains(&(seconds("with_seconds") + seconds("without_seconds"))), "{told}");
        assert!(told["timelines"]["read"][0]["ops"].as_u64().unwrap() > 0, "{told}");
        assert!(record["latency"]["scan"]["count"].as_u64().unwrap() > 0, "{record}");
    }
    assert_eq!((most.len(), of("felt:p50").len()), (2, 2));
}
