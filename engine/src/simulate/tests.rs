use super::*;

fn run(data: &str, memory: &str, workload: &str, overwrite: f64) -> SimulateReport {
    simulate(&SimulateOptions {
        data_bytes: crate::types::parse_size(data).unwrap(),
        memory_bytes: crate::types::parse_size(memory).unwrap(),
        workload: workload.parse().unwrap(),
        overwrite,
        ..SimulateOptions::default()
    })
    .unwrap()
}

#[test]
fn uniform_overwrite_of_10_tb_costs_about_half_the_multiplier_a_level() {
    let report = run("10TB", "1GiB", "uniform", 0.5);
    // Level 0 is merged at 4 GiB; below lie 10 TB, 1 TB, 100 GB and a base of 4 to 40 GB: four levels, for some of the time
    // a run that gathers above them, and level 0 holds a run and a half on average.
    assert!((5.5..6.5).contains(&report.runs_mean), "{report}");
    let per_level = (report.write_amplification - 1.0) / 4.0;
    assert!((4.5..=8.0).contains(&per_level), "{per_level} a level\n{report}");
    assert!(report.peak_debt_bytes > 4 << 30, "level 0 with what it meets in the base\n{report}");
    assert!((1.0..1.15).contains(&report.space_amplification), "{report}");
    assert!(report.tables_max <= 20_000, "{report}");
}

#[test]
fn skew_is_cheaper_than_uniform_and_a_larger_memory_too() {
    let uniform = run("100GB", "256MiB", "uniform", 1.0);
    let zipf = run("100GB", "256MiB", "zipf:0.99", 1.0);
    let larger = run("100GB", "2GiB", "uniform", 1.0);
    assert!(zipf.write_amplification < uniform.write_amplification, "{zipf}{uniform}");
    assert!(larger.write_amplification < uniform.write_amplification, "{larger}{uniform}");
    assert!(zipf.flushed_bytes < uniform.flushed_bytes);
}

#[test]
fn a_seed_gives_the_same_report_and_another_seed_nearly() {
    let options = SimulateOptions { data_bytes: 30_000_000_000, ..SimulateOptions::default() };
    let report = simulate(&options).unwrap();
    assert_eq!(report, simulate(&options).unwrap());
    let other = simulate(&SimulateOptions { seed: 2, ..options }).unwrap();
    assert_ne!(report, other);
    assert!((report.write_amplification / other.write_amplification - 1.0).abs() < 0.1, "{report}{other}");
}

#[test]
fn bytes_add_up_and_the_fill_ends_with_all_data() {
    let report = run("20GB", "256MiB", "uniform", 0.0);
    assert!(report.inserted_bytes.abs_diff(20_000_000_000) < 1_000_000, "{report}");
    assert!(report.flushed_bytes.abs_diff(20_000_000_000) < 1_000_000, "{report}");
    assert!((report.space_amplification - 1.0).abs() < 0.001, "unique keys have one copy\n{report}");
    assert_eq!(report.fill_write_amplification, Some(report.write_amplification));
}

#[test]
fn wrong_options_are_refused_in_a_sentence() {
    let refused = |options: SimulateOptions| simulate(&options).unwrap_err();
    let base = SimulateOptions::default;
    assert!(refused(SimulateOptions { memory_bytes: 1, ..base() }).contains("memory bytes"));
    assert!(refused(SimulateOptions { data_bytes: 1 << 20, ..base() }).contains("data bytes"));
    assert!(refused(SimulateOptions { tables_max: 30_000, ..base() }).contains("20000"));
    assert!(refused(SimulateOptions { overwrite: f64::NAN, ..base() }).contains("overwrite"));
}
