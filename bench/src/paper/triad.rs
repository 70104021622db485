//! TRIAD (USENIX ATC 2017, section 5): its parts, each alone and all together, against the same store without
//! them.
//!
//! Our store, unpaced, writes so much that fifteen flushes gather before L0 is compacted, whatever its
//! trigger is. So ws3 is also run at a rate at which compactions keep up, with L0 of four flushes and
//! SSTables of 2 MB, as the paper's store had them: there each part has something to act on.
//!
//! The paper's write amplification is (flushed + compacted) over flushed bytes. Its read amplification, disk
//! accesses a get, is not made here: what a get reads comes from the page cache.

use super::Goal::{AtLeast, AtMost};
use super::{Cell, Contents, Figure, flushed_merged_bytes, ops_s, strings};
use crate::compare::{Figure as Metric, number};
use crate::record::RunRecord;

/// The store under TRIAD compacts L0 at four flushes.
const BASE: &str = "none+l4";
/// Its SSTables had 2 MB.
const ITS_OWN: &str = "none+l4+tables2";
/// Its workload, at a rate at which compactions keep up.
const PACED: &str = "ws3:at20k";
/// Compactions hold the WAL of their inputs in the cache, and may write more than they do by default where
/// values stay there.
const LOG_ACTS: &str = "+cache512+w1000";
const OURS: &str = "default";
/// A full log has memory flushed, however small it is (TRI-2).
const FLUSHED_WHEN_FULL: &str = "default+flushth0";
const WORKLOADS: &[&str] = &["ws1", "ws1:r50", "ws2", "ws2:r50", "ws3", "ws3:r50"];

/// One of the three techniques.
pub(super) struct Part {
    name: &'static str,
    /// Parts of a configuration's name that switch it on; the first is the one it has together with the
    /// others.
    settings: &'static [&'static str],
    /// Write amplification of it alone on ws3, over that without (figure 11).
    write_amp: f64,
    /// On this workload, its throughput alone over that of all together (figure 10).
    of_all: (&'static str, f64),
}

pub(super) const PARTS: &[Part] = &[
    Part { name: "MEM", settings: &["hot2", "hot1", "top1"], write_amp: 1.0, of_all: ("ws1", 0.97) },
    Part { name: "DISK", settings: &["defer"], write_amp: 0.4, of_all: ("ws3", 0.85) },
    Part { name: "LOG", settings: &["logtables"], write_amp: 0.6, of_all: ("ws3", 0.97) },
];

pub(super) fn contents(parts: &[Part]) -> Contents {
    let alone = |setting: &str| format!("{BASE}+{setting}");
    let settings = parts.iter().flat_map(|part| part.settings);
    let mut configs: Vec<String> = settings.map(|setting| alone(setting)).collect();
    configs.splice(0..0, strings(&[OURS, BASE]));
    let mut figures = Vec::new();
    let mut figure = |id: String, workload, metric, above: &str, below: &str, paper, goal| {
        let (id, above, below) = (format!("TRIAD {id}"), above.to_string(), strings(&[below]));
        figures.push(Figure { id, workload, metric, above, below, paper, simulated: None, goal });
    };
    // The paper has no figure of it.
    let flushed: Metric = |run| number(run.flushed_bytes);
    let id =
        "4.1: flushed bytes, ws1, a full log with small memory flushes nothing, over flushing".to_string();
    figure(id, "ws1", flushed, OURS, FLUSHED_WHEN_FULL, f64::NAN, AtMost(0.95));
    for part in parts {
        for setting in part.settings {
            let id =
                format!("figure 11: write amplification, ws3, {} alone ({setting}) over none", part.name);
            figure(id, "ws3", write_amp, &alone(setting), BASE, part.write_amp, AtMost(part.write_amp));
        }
    }
    if let [first, others @ ..] = parts
        && !others.is_empty()
    {
        let all =
            others.iter().fold(alone(first.settings[0]), |all, part| format!("{all}+{}", part.settings[0]));
        for part in parts {
            let (workload, paper) = part.of_all;
            let id = format!("figure 10: throughput, {workload}, {} alone over all together", part.name);
            figure(id, workload, ops_s, &alone(part.settings[0]), &all, paper, AtMost(1.05));
        }
        for (what, config) in [("all together", all.as_str()), ("our default", OURS)] {
            for (workload, paper) in [
                ("ws1", 1.5),
                ("ws1:r50", 1.5),
                ("ws2", 1.51),
                ("ws2:r50", 1.25),
                ("ws3", 2.2),
                ("ws3:r50", 2.2),
            ] {
                let id = format!("figure 9B: throughput, {workload}, {what} over none");
                figure(id, workload, ops_s, config, BASE, paper, AtLeast(1.0));
            }
            for (workload, paper) in [("ws1", 1.0), ("ws2", 0.25), ("ws3", 0.25)] {
                let id = format!("figure 9C: write amplification, {workload}, {what} over none");
                figure(id, workload, write_amp, config, BASE, paper, AtMost(paper));
            }
            let id = format!("figure 9D: flushed and merged bytes, ws1, {what} over none");
            figure(id, "ws1", flushed_merged_bytes, config, BASE, 0.1, AtMost(0.125));
        }
        configs.push(all);
    }
    let own = parts.iter().map(|part| {
        let log = if part.name == "LOG" { LOG_ACTS } else { "" };
        let config = format!("{ITS_OWN}+{}{log}", part.settings[0]);
        (format!("{} alone", part.name), config, part.write_amp)
    });
    let own: Vec<_> = own.chain([("our default".to_string(), OURS.to_string(), f64::NAN)]).collect();
    for (name, config, paper) in &own {
        let id = |from, what| {
            format!("{from}: {what}, ws3 at 20,000/s, {name} over level 0 of four, tables of 2 MB")
        };
        // Of our default, and of what reaches the device, the paper has no figure.
        let from = if paper.is_nan() { "5" } else { "figure 11" };
        let (written, goal): (Metric, _) = (flushed_merged_bytes, AtMost(paper.min(1.0)));
        figure(id(from, "flushed and merged bytes"), PACED, written, config, ITS_OWN, *paper, goal);
        let device: Metric = |run| run.device_write_bytes as f64;
        figure(id("5", "device bytes"), PACED, device, config, ITS_OWN, f64::NAN, AtMost(1.0));
    }
    let cells = WORKLOADS.iter().map(|workload| {
        let more = (*workload == "ws1").then(|| FLUSHED_WHEN_FULL.to_string());
        Cell { workload, memory: 1.0, configs: configs.iter().cloned().chain(more).collect() }
    });
    let configs = std::iter::once(ITS_OWN.to_string()).chain(own.into_iter().map(|(_, config, _)| config));
    let paced = Cell { workload: PACED, memory: 1.0, configs: configs.collect() };
    Contents { cells: cells.chain([paced]).collect(), figures }
}

/// Write amplification as the paper counts it: bytes flushed and compacted over bytes flushed.
fn write_amp(run: &RunRecord) -> f64 {
    flushed_merged_bytes(run) / number(run.flushed_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_parts_are_also_run_together() {
        let part = |name, settings| Part { name, settings, write_amp: 0.5, of_all: ("ws1", 0.9) };
        let Contents { cells, figures } = contents(&[part("A", &["a2", "a1"]), part("B", &["b"])]);
        assert_eq!(
            cells[1].configs,
            ["default", BASE, "none+l4+a2", "none+l4+a1", "none+l4+b", "none+l4+a2+b"]
        );
        assert_eq!(cells.len(), 7);
        assert_eq!(cells[6].configs, [ITS_OWN, "none+l4+tables2+a2", "none+l4+tables2+b", OURS]);
        assert_eq!(cells[0].configs.last().unwrap(), FLUSHED_WHEN_FULL);
        let of = |id: &str| figures.iter().find(|figure| figure.id.contains(id)).unwrap();
        assert_eq!(of("B alone over all together").below, ["none+l4+a2+b"]);
        assert_eq!(of("figure 9D: flushed and merged bytes, ws1, our default over none").above, "default");
        assert!(contents(&[part("A", &["a1"])]).figures.iter().all(|figure| !figure.id.contains("together")));
    }
}
