//! Compaction servers that fail while a server gives them its compactions (OFF-6): killed, paused, started
//! again at the same address, one or both, and the server itself killed meanwhile. One is known to the
//! server, the other by a manager, a process of its own that is killed as well. Writers note what was
//! acknowledged, as under kills; every row must be there after each fault, and in the end nothing may be
//! damaged.

use crate::Extent;
use crate::child::{Server, binary, free_port, memory_of};
use crate::kills::{Oracle, check_all, writers};
use siltstone::Rng;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HELPERS: usize = 2;
/// The most memory of a compaction server: its bound, and a tenth.
pub(crate) const MEMORY_MAX: u64 = (128 << 20) / 10 * 11;
/// How long a paused compaction server says nothing: shorter and longer than the server's patience, which is
/// a second.
const PAUSES_MS: [u64; 3] = [100, 700, 2_500];
/// The fewest faults whose success says something: among so many one must have made a compaction fail, and
/// each compaction server must have done one.
pub(crate) const LEAST: u64 = 40;

/// A compaction server, ended with this.
pub(crate) struct Helper {
    child: Option<Child>,
    port: u16,
    place: PathBuf,
    /// The manager that it tells of itself.
    manager: Option<u16>,
}

impl Helper {
    pub(crate) fn start(place: &Path, port: u16, manager: Option<u16>) -> Result<Self, String> {
        let mut helper = Self { child: None, port, place: place.to_path_buf(), manager };
        helper.start_again()?;
        Ok(helper)
    }

    fn start_again(&mut self) -> Result<(), String> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())
            .map_err(|e| e.to_string())?;
        let child = Command::new(binary())
            .arg("compactor")
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .arg("--tables")
            .arg(&self.place)
            .args(["--memory", "128MiB", "--merge-memory", "32MiB"])
            .args(self.manager.map(|port| format!("--manager=127.0.0.1:{port}")))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.map_err(|e| e.to_string())?);
        Ok(())
    }

    fn log_file(&self) -> PathBuf {
        self.place.join(format!("compactor-{}.log", self.port))
    }

    /// What it said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Its process, as long as it is there.
    pub(crate) fn process(&mut self) -> Option<u32> {
        let child = self.child.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| child.id())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it, or lets it go on.
    fn pause(&self, on: bool) -> Result<(), String> {
        let signal = if on { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        let Some(child) = &self.child else { return Ok(()) };
        let pid =
            i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).ok_or("no process")?;
        rustix::process::kill_process(pid, signal).map_err(|e| e.to_string())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// So many faults.
pub(crate) async fn run(extent: &Extent, seed: u64) -> Result<String, String> {
    let ports: [u16; HELPERS] = std::array::from_fn(|_| free_port());
    let manager_port = free_port();
    let manager_config = format!(
        "memory = \"64MiB\"\nwrite-memory = \"16MiB\"\n[manager]\nlisten = \"127.0.0.1:{manager_port}\"\n"
    );
    let mut manager = Server::start(&manager_config).await?;
    let config = format!(
        "memory = \"64MiB\"\nwrite-memory = \"2MiB\"\nregion-bytes = \"4MiB\"\n\
         [offload]\nservers = [\"127.0.0.1:{}\"]\nmanager = \"127.0.0.1:{manager_port}\"\nbytes-min = \"64KiB\"\npatience-seconds = 1\n\
         [tables]\nstrategy = \"leveled{{sstable_bytes=128KiB, base_bytes=1MiB}}\"\n",
        ports[0]
    );
    let mut server = Server::start(&config).await?;
    let place = server.dir.path().to_path_buf();
    let mut helpers = Vec::new();
    for (port, manager) in ports.into_iter().zip([None, Some(manager_port)]) {
        helpers.push(Helper::start(&place, port, manager)?);
    }
    server.create(&["f", "g"]).await?;
    let (oracle, stop) = (Arc::new(Oracle::default()), Arc::new(AtomicBool::new(false)));
    let writers = writers(server.port(), seed, &oracle, &stop);
    let (mut random, mut most) = (Rng::new(seed), 0);
    while extent.goes_on() {
        tokio::time::sleep(Duration::from_millis(random.range(20..400))).await;
        for helper in &mut helpers {
            let process = helper.process().ok_or_else(|| format!("it ended by itself: {}", helper.log()))?;
            let took = memory_of(process).1;
            most = most.max(took);
            if took > MEMORY_MAX {
                return Err(format!("a compaction server took {} MiB of memory", took >> 20));
            }
        }
        let one = random.index(HELPERS);
        let before = oracle.rows();
        match random.range(0..10) {
            0 | 1 => {
                helpers[one].kill();
                tokio::time::sleep(Duration::from_millis(random.range(0..1_500))).await;
                helpers[one].start_again()?;
            }
            2 => {
                helpers.iter_mut().for_each(Helper::kill);
                tokio::time::sleep(Duration::from_millis(random.range(0..1_500))).await;
                helpers.iter_mut().try_for_each(Helper::start_again)?;
            }
            3 | 4 => {
                helpers[one].pause(true)?;
                tokio::time::sleep(Duration::from_millis(PAUSES_MS[random.index(PAUSES_MS.len())])).await;
                helpers[one].pause(false)?;
            }
            5 => {
                helpers[one].kill();
                helpers[one].start_again()?;
            }
            6 => {
                server.kill();
                server.start_again().await?;
            }
            7 => {
                manager.kill();
                tokio::time::sleep(Duration::from_millis(random.range(0..1_500))).await;
                manager.start_again().await?;
            }
            // The server goes on with those that it knows.
            8 => {
                manager.kill();
                helpers.iter_mut().for_each(Helper::kill);
                helpers.iter_mut().try_for_each(Helper::start_again)?;
                tokio::time::sleep(Duration::from_millis(random.range(0..1_500))).await;
                manager.start_again().await?;
            }
            _ => {
                server.kill();
                helpers[one].kill();
                helpers[one].start_again()?;
                server.start_again().await?;
            }
        }
        check_all(&server, &before, &oracle)
            .await
            .map_err(|e| format!("after fault {}: {e}", extent.done()))?;
        extent.advance(1);
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.map_err(|e| e.to_string())?;
    }
    check_all(&server, &oracle.rows(), &oracle).await?;
    // It compacts the remaining data, checks for leftover files, and is opened once more, which removes files
    // that nobody names.
    server.kill();
    server.start_again().await?;
    check_all(&server, &oracle.rows(), &oracle).await?;
    server.kill();
    whole(&place.join("data"))?;
    let logs: Vec<String> = helpers.iter().map(Helper::log).chain([manager.log(), server.log()]).collect();
    if let Some(log) = logs.iter().find(|log| log.contains("panicked")) {
        return Err(format!("a panic: {log}"));
    }
    let done: Vec<usize> =
        logs[..HELPERS].iter().map(|log| log.matches("a compaction is done").count()).collect();
    let failed = server.log().matches("a compaction failed elsewhere").count();
    let fewest = extent.done() / LEAST;
    if (failed as u64) < fewest || done.iter().any(|done| (*done as u64) < fewest) {
        return Err(format!("{done:?} compactions were done, {failed} failed: the faults met too little"));
    }
    let acknowledged = oracle.acknowledged();
    Ok(format!(
        "{} faults, {done:?} compactions done elsewhere, {failed} failed there, memory there at most {} MiB, \
         {acknowledged} acknowledged writes",
        extent.done(),
        most >> 20
    ))
}

/// Nothing of the database is damaged.
fn whole(dir: &Path) -> Result<(), String> {
    let checked = Command::new(binary()).arg("check").arg(dir).output().map_err(|e| e.to_string())?;
    match checked.status.success() {
        true => Ok(()),
        false => Err(format!("the database is damaged: {}", String::from_utf8_lossy(&checked.stdout))),
    }
}
