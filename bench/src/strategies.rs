//! The cost of every strategy, simulated, at three ratios of data to memory: the numbers behind the drawing
//! in docs/strategies.md, which leaves out `nomerge`: it writes every byte once, and its runs are as many as
//! its flushes.

use crate::failure::Result;
use crate::report::{Cost, Panel, costs};
use siltstone::simulate::{SimulateOptions, simulate};
use siltstone::strategy::METHODS;
use std::path::Path;

const MEMORY: u64 = 1 << 30;
const RATIOS: [u64; 3] = [10, 100, 1000];
/// The limit on SSTables with which the tables in docs/strategies.md were made.
const TABLES_MAX: u64 = 5000;

pub(crate) fn run(svg: Option<&Path>) -> Result<()> {
    let mut panels = Vec::new();
    for ratio in RATIOS {
        let title = format!("D/M {ratio}");
        println!("{title:24} {:>10} {:>10} {:>10}", "written", "runs", "space");
        let mut points = Vec::new();
        for method in METHODS {
            let options = SimulateOptions {
                strategy: method.parse()?,
                data_bytes: ratio * MEMORY,
                memory_bytes: MEMORY,
                tables_max: TABLES_MAX,
                // Rangemerge as in its paper.
                active_memtable_share: 0.0,
                ..SimulateOptions::default()
            };
            let report = simulate(&options)?;
            let cost = Cost {
                name: method.to_string(),
                written: report.write_amplification,
                runs: report.runs_mean,
                space: report.peak_space_bytes as f64 / report.data_bytes as f64,
            };
            println!("{method:24} {:>10.2} {:>10.2} {:>10.2}", cost.written, cost.runs, cost.space);
            points.push(cost);
        }
        points.retain(|cost| cost.name != "nomerge");
        panels.push(Panel { title, points });
    }
    if let Some(file) = svg {
        std::fs::write(file, costs(&panels))?;
    }
    Ok(())
}
