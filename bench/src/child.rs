//! The process that measures: one store, one group of workloads, one directory. It prints a record a line as
//! soon as it has it, and ends without closing the store: what it measured is over, and its directory is
//! thrown away.

use crate::drive::{Bench, Identity, open, unseen};
use crate::failure::Result;
use crate::record::RunRecord;
use crate::store::{self, Wanted};
use crate::workload::{Kind, Scale, Workload, named};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// The parent's options for it.
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
    /// Writes to the store that is there and waits to be killed.
    #[arg(long)]
    pub(crate) killed: bool,
    /// The build that runs it, where that is another one than this.
    #[arg(skip)]
    pub(crate) program: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) scale: Scale,
}

impl Child {
    /// The process itself.
    pub(crate) fn command(&self) -> Result<Command> {
        let program = self.program.clone().map_or_else(std::env::current_exe, Ok)?;
        let mut command = Command::new(program);
        command.arg("child").arg("--dir").arg(&self.dir).args(["--store", &self.store]);
        command.args(["--workload", &self.workload.join(","), "--run", &self.run.to_string()]);
        command.args(["--seed", &self.seed.to_string()]).args(self.scale.args());
        if self.killed {
            command.arg("--killed");
        }
        if self.workload.iter().any(|name| around_a_merge(name, &self.scale)) {
            // The system's allocator gives each thread a heap of its own. Blocks that readers brought into a
            // cache and compactions replace are then free in the one and missing in the other, so memory
            // grows by the cache without being used.
            command.env("MALLOC_ARENA_MAX", "1");
        }
        Ok(command)
    }
}

fn around_a_merge(name: &str, scale: &Scale) -> bool {
    named(name, scale).is_ok_and(|workloads| workloads.iter().any(|workload| workload.merged.is_some()))
}

pub(crate) fn run(child: &Child) -> Result<()> {
    let mut workloads: Vec<Workload> = Vec::new();
    for name in &child.workload {
        workloads.extend(named(name, &child.scale)?);
    }
    workloads.sort_by_key(|workload| workload.turn);
    let Some(first) = workloads.first() else { return Ok(()) };
    let named = store::named(&child.store)?;
    let wanted = Wanted {
        dir: &child.dir,
        memory: first.memory,
        durability: first.durability,
        direct_reads: first.direct_reads,
    };
    let identity = Identity { named, run: child.run, seed: child.seed };
    if child.killed {
        return open::write_and_wait(&identity, &wanted, first);
    }
    if first.kind == Kind::Open {
        let writer = || Child { killed: true, ..child.clone() }.command();
        return print(&open::run(&identity, &wanted, first, writer)?);
    }
    if first.merged.is_some() {
        return print(&[unseen::run(&identity, &wanted, first)?]);
    }
    let store = identity.named.open(&wanted)?;
    let mut bench = Bench::new(store.as_ref(), &child.dir, &identity);
    for workload in &workloads {
        print(&bench.run(workload)?)?;
    }
    drop(bench);
    std::process::exit(0)
}

fn print(records: &[RunRecord]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for record in records {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}
