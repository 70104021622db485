use super::*;
use crate::record::Durability;

fn run(run: u32, ops_s: f64) -> RunRecord {
    RunRecord {
        kind: "run".into(),
        workload: "fillrandom".into(),
        store: "siltstone".into(),
        config: "default".into(),
        version: "0".into(),
        settings: Default::default(),
        run,
        seed: 1,
        threads: 1,
        ops: 1000,
        seconds: 1.0,
        ops_s,
        cpu_us_op: 2.0,
        user_bytes: 0,
        device_write_bytes: 4096,
        device_read_bytes: 0,
        flushed_bytes: None,
        compaction_written_bytes: None,
        wal_bytes: None,
        flushes: None,
        compactions: None,
        write_amp: None,
        space_amp: None,
        p50_us: 1.0,
        p99_us: 10.0,
        p999_us: 20.0,
        max_us: 30.0,
        peak_rss_bytes: 0,
        peak_disk_bytes: 0,
        durability: Durability::Buffered,
        compression: "lz4".into(),
        settled: true,
        settle_seconds: 0.0,
        latency: Default::default(),
        calm: Default::default(),
        calm_seconds: 0,
        timeline: Vec::new(),
        windows: Vec::new(),
        extra_memory_bytes: None,
        before_p99_us: None,
        runs_max: None,
        largest_merge_bytes: None,
        stolen: None,
        scan_timeline: Vec::new(),
        beside_merges: None,
        control: None,
    }
}

fn how() -> How {
    How {
        runs: 1,
        seed: 1,
        dir: None,
        limit: 1,
        json: false,
        stolen: None,
        limits: false,
        html: None,
        markdown: None,
    }
}

fn relate_all(a: &[RunRecord], b: &[RunRecord]) -> Result<Vec<RatioRecord>, Option<RefusalRecord>> {
    relate(&a.iter().collect::<Vec<_>>(), &b.iter().collect::<Vec<_>>())
}

#[test]
fn ratios_are_made_round_by_round_and_their_median_taken() {
    // In any order; round 4 has no partner.
    let ours = [run(2, 300.0), run(1, 100.0), run(3, 500.0), run(4, 1.0)];
    let theirs = [run(1, 100.0), run(2, 100.0), run(3, 50.0)];
    let ratios = relate_all(&ours, &theirs).unwrap();
    let ops = &ratios[0];
    assert_eq!((ops.metric.as_str(), ops.runs), ("ops_s", 3));
    assert_eq!((ops.median, ops.min, ops.max), (3.0, 1.0, 10.0));
    let metrics: Vec<&str> = ratios.iter().map(|ratio| ratio.metric.as_str()).collect();
    assert_eq!(metrics, ["ops_s", "cpu_us_op", "p99_us"], "nothing was written, so no ratio of bytes");
    assert_eq!(relate_all(&ours, &[]), Err(None));
    let wrote = |bytes| RunRecord { user_bytes: 1, device_write_bytes: bytes, ..run(1, 1.0) };
    let bytes = relate_all(&[wrote(30)], &[wrote(10)]).unwrap();
    assert!(bytes.iter().any(|ratio| ratio.metric == "device_write_bytes" && ratio.median == 3.0));
}

#[test]
fn table_bytes_are_related_where_both_stores_tell_them() {
    let told = |flushed, merged| RunRecord {
        flushed_bytes: Some(flushed),
        compaction_written_bytes: Some(merged),
        flushes: Some(3),
        ..run(1, 1.0)
    };
    let of =
        |ratios: &[RatioRecord], metric: &str| ratios.iter().find(|r| r.metric == metric).map(|r| r.median);
    let both = relate_all(&[told(10, 20)], &[told(40, 80)]).unwrap();
    assert_eq!(of(&both, "flushed_merged_bytes"), Some(0.25));
    assert_eq!((of(&both, "flushed_bytes"), of(&both, "flushes")), (Some(0.25), Some(1.0)));
    let one = relate_all(&[told(10, 20)], &[run(1, 1.0)]).unwrap();
    assert_eq!((of(&one, "flushed_merged_bytes"), of(&one, "flushes")), (None, None));
}

#[test]
fn reads_beside_writes_have_a_ratio_of_their_own() {
    let with = |classes: &[&str], p99_us| {
        let latency = |class: &&str| (class.to_string(), Latency { p99_us, ..Latency::default() });
        RunRecord { latency: classes.iter().map(latency).collect(), ..run(1, 1.0) }
    };
    let related = |classes: &[&str]| {
        let ratios = relate_all(&[with(classes, 30.0)], &[with(classes, 20.0)]).unwrap();
        ratios.iter().find(|r| r.metric == "read_p99_us").map(|r| r.median)
    };
    assert_eq!((related(&["read", "write"]), related(&["read"])), (Some(1.5), None));
}

#[test]
fn an_even_number_of_values_has_its_median_between_two() {
    assert_eq!(median(&[1.0]), 1.0);
    assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
}

#[test]
fn no_ratio_is_made_between_classes_of_durability_or_with_what_is_unsettled() {
    let wrote = |round| RunRecord { user_bytes: 1, ..run(round, 100.0) };
    let ours = [wrote(1), wrote(2)];
    let mut theirs = ours.clone();
    theirs[1].durability = Durability::Volatile;
    let refusal = relate_all(&ours, &theirs).unwrap_err().unwrap();
    assert_eq!(refusal.why, "durability differs: buffered against volatile");
    // Reads lose nothing.
    let reads = |runs: &[RunRecord; 2]| runs.clone().map(|run| RunRecord { user_bytes: 0, ..run });
    assert!(relate_all(&reads(&ours), &reads(&theirs)).is_ok());
    let mut theirs = ours.clone();
    theirs[0].settled = false;
    assert!(relate_all(&ours, &theirs).unwrap_err().unwrap().why.contains("settled"));
}

#[test]
fn workloads_that_share_a_store_share_a_process() {
    let plan = Plan {
        workload: ["ycsb-a", "fillseq", "ycsb-c:uniform", "readrandom", "readseq", "syncput"]
            .map(String::from)
            .to_vec(),
        stores: vec!["siltstone".into()],
        matrix: false,
        before: None,
        how: how(),
        scale: Scale::default(),
    };
    let groups = plan.check().unwrap().groups;
    let groups: Vec<String> = groups.iter().map(|group| group.workloads.join(" ")).collect();
    assert_eq!(groups, ["ycsb-a ycsb-c:uniform", "fillseq", "readrandom readseq", "syncput:1", "syncput:8"]);
}

#[test]
fn each_store_takes_turns_with_itself_in_the_build_before() {
    let plan = Plan {
        workload: vec!["fillrandom".into()],
        stores: vec!["siltstone".into(), "siltstone:auto".into()],
        matrix: false,
        before: Some("before/siltstone-bench".into()),
        how: how(),
        scale: Scale::default(),
    };
    let checked = plan.check().unwrap();
    let turns = checked.turns();
    assert_eq!(
        turns.iter().map(|(_, build)| build.is_some()).collect::<Vec<_>>(),
        [false, true, false, true]
    );
    let before = |ops_s| RunRecord { config: "default@before".into(), ..run(1, ops_s) };
    let (ratios, refusals) = checked.ratios(&[run(1, 300.0), before(100.0)]);
    let names = (ratios[0].a.as_str(), ratios[0].b.as_str());
    assert_eq!(names, ("siltstone:default", "siltstone:default@before"));
    assert!((ratios[0].median - 3.0).abs() < 1e-9 && refusals.is_empty());
}

#[test]
fn a_run_is_done_again_while_others_take_too_much_and_the_calmest_counts() {
    let how = |stolen| How { stolen, ..how() };
    let tell = |stolen: &[f64], most| {
        let mut shares = stolen.iter();
        let told = how(most).calmest(|told| {
            let share = *shares.next().ok_or("it was done once more than there are runs")?;
            if share.is_nan() {
                return Err("it failed".into());
            }
            told.push(RunRecord { stolen: Some(share), ..run(1, 1.0) });
            Ok(())
        });
        (told.0.first().and_then(|record| record.stolen), told.1.is_ok(), shares.len())
    };
    assert_eq!(tell(&[0.5, 0.0], None), (Some(0.5), true, 1), "nobody asked");
    assert_eq!(tell(&[0.5, 0.04, 0.0], Some(5.0)), (Some(0.04), true, 1));
    assert_eq!(tell(&[0.5, 0.3, 0.2, 0.4, 0.6, 0.0], Some(5.0)), (Some(0.2), true, 1), "five times at most");
    assert_eq!(tell(&[0.5, f64::NAN, 0.0], Some(5.0)), (Some(0.5), false, 1), "a failure is told");
}
