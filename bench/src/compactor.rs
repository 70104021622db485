//! Compaction servers for stores that are measured: processes of their own on the last processor, while the
//! process that measures has the first.

use crate::failure::Result;
use crate::measure::cpu_of;
use crate::slow::{Pace, Slow, Switch};
use clap::Args;
use siltstone::storage::Env;
use siltstone_compactor::{CompactorConfig, CompactorServer, Compactors, CompactorsOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Compactions of fewer bytes are not given to compaction servers.
pub(crate) const GIVEN_MIN: u64 = 64 << 10;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server's process.
#[derive(Args)]
pub(crate) struct Server {
    /// Directory of the database.
    #[arg(long)]
    dir: PathBuf,
    /// The memory that it may take.
    #[arg(long)]
    memory: u64,
    /// Milliseconds that each read of its storage takes longer.
    #[arg(long)]
    slow: u64,
    /// Bytes a second that a compaction gets from its storage; 0 for all that there are.
    #[arg(long)]
    rate: u64,
}

impl Server {
    /// Serves until its standard input ends, which it does with the process that began it.
    pub(crate) fn run(self) -> Result<()> {
        pin_to_last()?;
        let config = CompactorConfig {
            tables: vec![self.dir],
            memory: self.memory,
            merge_memory: self.memory,
            ..CompactorConfig::default()
        };
        let pace = Pace { by: Duration::from_millis(self.slow), rate: self.rate };
        let on = Switch::default();
        let env = Slow::env(Env::local(), pace, &on);
        let server = CompactorServer::start(config, siltstone::Db::builder().env(env))?;
        println!("{}", server.listens_at());
        // Each line says that its storage is slow from now on.
        std::io::stdin().lines().try_for_each(|line| line.map(|_| on.store(true, Ordering::Relaxed)))?;
        Ok(())
    }
}

/// Compaction servers that run as long as this.
pub(crate) struct Servers {
    processes: Vec<Child>,
    pub(crate) addresses: Vec<String>,
    pub(crate) compactors: Arc<Compactors>,
}

impl Servers {
    pub(crate) fn start(count: u64, dir: &Path, memory: u64, pace: Pace) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (mut processes, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("compactor").arg("--dir").arg(dir).args(["--memory", &memory.to_string()]);
            command.args(["--slow", &pace.by.as_millis().to_string(), "--rate", &pace.rate.to_string()]);
            let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut line = String::new();
            let said = process.stdout.take().ok_or("a compaction server says nothing")?;
            BufReader::new(said).read_line(&mut line)?;
            processes.push(process);
            addresses.push(line.trim().to_string());
        }
        // All that is not tiny goes: what is measured is what that does.
        let options =
            CompactorsOptions { by_cost: false, bytes_min: GIVEN_MIN, ..CompactorsOptions::default() };
        let compactors = Arc::new(Compactors::connect_with(&addresses, options)?);
        let began = Instant::now();
        while compactors.servers().iter().any(|server| server.state.is_none()) {
            if began.elapsed() > PATIENCE {
                return Err("a compaction server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { processes, addresses, compactors })
    }

    /// Compactions that they have done, as they said last: after a second they have said so.
    pub(crate) fn done(&self) -> u64 {
        std::thread::sleep(Duration::from_millis(1_500));
        self.compactors
            .servers()
            .iter()
            .filter_map(|server| server.state.as_ref())
            .map(|state| state.done)
            .sum()
    }

    /// Their storage is slow from now on.
    pub(crate) fn slow_down(&self) -> Result<()> {
        for process in &self.processes {
            writeln!(process.stdin.as_ref().ok_or("a compaction server takes no input")?, "slow")?;
        }
        Ok(())
    }

    /// CPU time of all of them.
    pub(crate) fn cpu(&self) -> Duration {
        self.processes.iter().map(|process| cpu_of(process.id())).sum()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// This process, with the threads that it begins from now on, has the first processor alone.
pub(crate) fn pin_to_first() -> Result<()> {
    pin_to(0)
}

/// Pins this process to the last processor.
pub(crate) fn pin_to_last() -> Result<()> {
    // (This process may have been begun by one that has the first alone, so what it may use says nothing.)
    pin_to(processors()?.checked_sub(1).filter(|last| *last > 0).ok_or("there is one processor only")?)
}

fn pin_to(processor: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Processors of this machine that are there.
fn processors() -> Result<usize> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let last = online.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    Ok(last.ok_or_else(|| format!("/sys/devices/system/cpu/online says {online:?}"))? + 1)
}
