//! The process that measures: one store, one group of workloads, one directory. It prints a record a line as soon as
//! it has it, and ends without closing the store: what it measured is over, and its directory is thrown away.

use crate::drive::{Bench, Identity};
use crate::store::{self, Result, Wanted};
use crate::workload::{Scale, Workload, named};
use std::io::Write;
use std::path::PathBuf;

/// What the parent tells it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Child {
    /// Workloads of one group.
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) workload: Vec<String>,
    #[arg(long)]
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) run: u32,
    #[arg(long)]
    pub(crate) seed: u64,
    /// An empty directory.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) scale: Scale,
}

pub(crate) fn run(child: &Child) -> Result<()> {
    let mut workloads: Vec<Workload> = Vec::new();
    for name in &child.workload {
        workloads.extend(named(name, &child.scale)?);
    }
    workloads.sort_by_key(|workload| workload.turn);
    let Some(first) = workloads.first() else { return Ok(()) };
    let named = store::named(&child.store)?;
    let wanted = Wanted { dir: &child.dir, memory: first.memory, durability: first.durability };
    let store = named.open(&wanted)?;
    let identity = Identity { named, run: child.run, seed: child.seed };
    let mut bench = Bench::new(store.as_ref(), &child.dir, &identity);
    for workload in &workloads {
        for record in bench.run(workload)? {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &record)?;
            out.write_all(b"\n")?;
            out.flush()?;
        }
    }
    drop(bench);
    std::process::exit(0)
}
