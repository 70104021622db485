use crate::failure::{Failure, Outcome};
use crate::progress;
use clap::Args;
use siltstone::simulate::{SimulateOptions, SimulateReport, Workload, simulate};
use siltstone::strategy::METHODS;
use siltstone::strategy::StrategyOptions;
use siltstone::{parse_size, size_text};

/// Run a compaction strategy on any data size, without I/O
///
/// Prints write, read and space amplification, the runs that may hold a key, the largest compaction, the
/// peaks of space and debt, the time of the fill, and what was scaled to stay under a minute. The strategy's
/// decisions are those of the real engine.
#[derive(Args)]
#[command(after_help = "\
Sizes: 4096, 64MiB, 64M (the same), 100TB (powers of ten).

Example: siltstone simulate --strategy leveled --data 100TB --memory 1GiB --workload zipf:0.99
         siltstone simulate --strategy 'leveled{multiplier=8}' --data 1TB --memory 256M
         siltstone simulate --strategy 'geometric{ratio=2}' --data 80GiB --memory 4GiB --overwrite 0
         siltstone simulate --methods --data 100GiB --memory 1GiB")]
pub(crate) struct Simulate {
    /// The strategy, with settings in braces
    #[arg(long, default_value = "leveled")]
    strategy: StrategyOptions,
    /// Compare all methods, one line each
    #[arg(long, conflicts_with = "strategy")]
    methods: bool,
    /// Bytes of distinct keys and values
    #[arg(long, default_value = "100GB", value_parser = parse_size)]
    data: u64,
    /// Bytes that a flush writes: of a database, half of its write memory
    #[arg(long, default_value = "256MiB", value_parser = parse_size)]
    memory: u64,
    /// Share of that memory in the active memtable, which `rangemerge` does not divide by range; 0 in its
    /// paper
    #[arg(long, default_value_t = 0.1)]
    active_memtable_share: f64,
    /// Which keys are put: uniform; zipf:THETA, or head:THETA with popular keys side by side, for what is
    /// overwritten; sorted:SHARE with this share of the fill in the order of keys
    #[arg(long, default_value = "uniform")]
    workload: Workload,
    /// Bytes of a key
    #[arg(long, default_value = "100", value_parser = parse_size)]
    key_bytes: u64,
    /// Bytes of a value
    #[arg(long, default_value = "1000", value_parser = parse_size)]
    value_bytes: u64,
    /// Bytes overwritten after the fill, as a multiple of the data
    #[arg(long, default_value_t = 1.0)]
    overwrite: f64,
    /// Seed of the random keys; a seed always gives the same report
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The most SSTables a shape may have, at most 20000
    #[arg(long, default_value_t = 20_000)]
    tables_max: u64,
    /// Bytes a second that flushes and compactions read and write together, for the time of the fill
    #[arg(long, default_value = "200MB", value_parser = parse_size)]
    device: u64,
    /// Nanoseconds that a put takes its caller, for the time of the fill
    #[arg(long, default_value_t = 2_000)]
    put_ns: u64,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Simulate {
    pub(crate) fn run(self) -> Outcome {
        let one = [self.strategy.clone()];
        let parsed = |text: &&str| text.parse().expect("a method's name");
        let methods: Vec<StrategyOptions> = METHODS.iter().map(parsed).collect();
        let bar = progress::waiting("simulating");
        let strategies: &[StrategyOptions] = if self.methods { &methods } else { &one };
        let reports: Result<Vec<_>, _> =
            strategies.iter().map(|strategy| simulate(&self.options(strategy))).collect();
        bar.finish_and_clear();
        let reports = reports.map_err(Failure::Usage)?;
        match (reports.as_slice(), self.json) {
            ([report], true) => println!("{}", serde_json::to_string_pretty(report)?),
            (reports, true) => println!("{}", serde_json::to_string_pretty(reports)?),
            ([report], false) => print!("{report}"),
            (reports, false) => print!("{}", table(reports)),
        }
        Ok(())
    }

    fn options(&self, strategy: &StrategyOptions) -> SimulateOptions {
        SimulateOptions {
            strategy: strategy.clone(),
            data_bytes: self.data,
            memory_bytes: self.memory,
            active_memtable_share: self.active_memtable_share,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            workload: self.workload,
            overwrite: self.overwrite,
            seed: self.seed,
            tables_max: self.tables_max,
            device_bytes_s: self.device,
            put_ns: self.put_ns,
        }
    }
}

/// A line for each of [`METHODS`], for people and for Markdown.
fn table(reports: &[SimulateReport]) -> String {
    let mut text = String::from(
        "| strategy | bytes written a byte inserted: fill | overwrite | runs a key may be in: mean | most | space peak over data \
         | largest compaction | time of the fill |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (name, report) in METHODS.iter().zip(reports) {
        let unknown = || "?".to_string();
        text += &format!(
            "| {} | {} | {:.1} | {:.1} | {} | {:.2} | {} | {} |\n",
            name,
            report.fill_write_amplification.map_or_else(unknown, |fill| format!("{fill:.1}")),
            report.write_amplification,
            report.runs_mean,
            report.runs_max,
            report.peak_space_bytes as f64 / report.data_bytes as f64,
            size_text(report.largest_compaction_input_bytes),
            report.insert_seconds.map_or_else(unknown, |seconds| format!("{:.2} h", seconds / 3600.0)),
        );
    }
    for (name, report) in METHODS.iter().zip(reports) {
        report.notes.iter().for_each(|note| text += &format!("{name}: {note}\n"));
    }
    text
}
