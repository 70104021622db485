//! An executor that runs merges behind a pipe: what a compaction server does, as far as the seam goes. Merges and answers
//! are lines of JSON. The other end is another process, or (in a simulation, whose disk no process sees) a second set of open
//! tables, cache and operators in this one. It may lie, to show that nobody believes it.

use crate::cache::BlockCache;
use crate::db::Builder;
use crate::error::{Error, ErrorKind, Result};
use crate::merge::{Advance, Executor, InCache, Local, MergeRun, MergeSpec, Step, Totals};
use crate::shape::{Clip, TableInfo};
use crate::storage::OpenFiles;
use crate::sync::Mutex;
use crate::types::{Rng, TableId};
use crate::version::{Graveyard, OpenTables};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Serialize, Deserialize)]
enum Request {
    Begin { run: u64, spec: Box<MergeSpec> },
    Advance { run: u64 },
    Leftovers { run: u64 },
    End { run: u64 },
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Done,
    Working(Totals),
    Step { outputs: Vec<TableInfo>, upto: Option<Vec<u8>>, totals: Totals },
    Leftovers(Vec<TableId>),
    Failed(String),
}

/// The other end: runs merges and answers.
struct Server {
    local: Local,
    runs: BTreeMap<u64, Box<dyn MergeRun>>,
    /// What it draws its lies from.
    lies: Option<Rng>,
}

impl Server {
    fn new(builder: &Builder, dir: &Path, lies: Option<u64>) -> Self {
        let (env, registry) = (builder.env.clone(), builder.registry.clone());
        let (cache, graveyard) = (BlockCache::new(1 << 20), Arc::new(Graveyard::default()));
        let files = OpenFiles::new(env.storage.clone(), usize::MAX);
        let tables = OpenTables::new(
            builder.place(dir),
            &env.storage,
            dir.to_path_buf(),
            &cache,
            &files,
            &graveyard,
            false,
        );
        let local = Local { env, tables, cache, registry };
        Self { local, runs: BTreeMap::new(), lies: lies.map(Rng::new) }
    }

    fn answer(&mut self, request: &str) -> String {
        let reply = match serde_json::from_str(request) {
            Ok(request) => self.run(request).unwrap_or_else(|e| Reply::Failed(e.to_string())),
            Err(e) => Reply::Failed(format!("not a request: {e}")),
        };
        serde_json::to_string(&reply).expect("replies are plain data")
    }

    fn merge(&mut self, run: u64) -> Result<&mut Box<dyn MergeRun>> {
        self.runs.get_mut(&run).ok_or_else(|| Error::invalid("no such merge"))
    }

    fn run(&mut self, request: Request) -> Result<Reply> {
        Ok(match request {
            Request::Begin { run, spec } => {
                let begun = self.local.begin(&spec)?;
                self.runs.insert(run, begun);
                Reply::Done
            }
            Request::Advance { run } => {
                let merge = self.merge(run)?;
                let advance = merge.advance()?;
                let mut totals = merge.totals();
                match advance {
                    Advance::Working | Advance::NotYet(_) => Reply::Working(totals),
                    Advance::Step(Step { outputs, upto, .. }) => {
                        let mut outputs: Vec<TableInfo> =
                            outputs.iter().map(|info| (**info).clone()).collect();
                        if let Some(rng) = &mut self.lies
                            && rng.one_in(2)
                        {
                            lie(rng, &mut outputs, &mut totals);
                        }
                        Reply::Step { outputs, upto, totals }
                    }
                }
            }
            Request::Leftovers { run } => Reply::Leftovers(self.merge(run)?.leftovers()),
            Request::End { run } => {
                self.runs.remove(&run);
                Reply::Done
            }
        })
    }
}

/// Says something else than is true, such that what was kept would be lost.
fn lie(rng: &mut Rng, outputs: &mut Vec<TableInfo>, totals: &mut Totals) {
    let Some(last) = outputs.last_mut() else { return };
    match rng.range(0..6) {
        0 => _ = outputs.pop(),
        1 => last.cells += 1,
        2 => last.id.epoch += 1,
        3 => last.clip = Some(Clip { key: last.range.start.clone(), bytes_below: 0 }),
        // A table that is somebody's: it is not to go with what is refused.
        4 => last.id.job = last.id.job.saturating_sub(1),
        _ => totals.taken += 1,
    }
}

/// Runs merges for whoever writes requests to `input`, until that ends.
pub fn serve_merges(
    builder: &Builder,
    dir: &Path,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<()> {
    let mut server = Server::new(builder, dir, None);
    for line in input.lines() {
        writeln!(output, "{}", server.answer(&line?))?;
        output.flush()?;
    }
    Ok(())
}

/// How requests get there.
enum Transport {
    Beside(Server),
    Process { child: Child, to: ChildStdin, from: BufReader<ChildStdout> },
}

impl Transport {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        let failed =
            |e: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("the process that merges: {e}"));
        let text = serde_json::to_string(request).expect("requests are plain data");
        let answer = match self {
            Transport::Beside(server) => server.answer(&text),
            Transport::Process { to, from, .. } => {
                writeln!(to, "{text}").and_then(|()| to.flush()).map_err(|e| failed(&e))?;
                let mut line = String::new();
                from.read_line(&mut line).map_err(|e| failed(&e))?;
                line
            }
        };
        match serde_json::from_str(&answer).map_err(|e| failed(&e))? {
            Reply::Failed(why) => Err(failed(&why)),
            reply => Ok(reply),
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let Transport::Process { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs merges elsewhere; see the page above.
#[derive(Clone)]
pub struct Elsewhere {
    transport: Arc<Mutex<Transport>>,
    next: Arc<AtomicU64>,
    steps: Arc<AtomicU64>,
}

impl std::fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Elsewhere({} steps)", self.steps())
    }
}

impl Elsewhere {
    fn new(transport: Transport) -> Self {
        Self { transport: Arc::new(Mutex::new(transport)), next: Arc::default(), steps: Arc::default() }
    }

    /// In this process, with tables, cache and operators of its own; it lies now and then, by that seed.
    pub fn beside(builder: &Builder, dir: &Path, lies: Option<u64>) -> Self {
        Self::new(Transport::Beside(Server::new(builder, dir, lies)))
    }

    /// In a process that runs [`serve_merges`] between its standard input and output.
    pub fn process(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Self::new(Transport::Process { child, to, from: BufReader::new(from) }))
    }

    /// Steps that came from there.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Ends the other process.
    pub fn kill(&self) {
        if let Transport::Process { child, .. } = &mut *self.transport.lock() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Builder {
    /// Merges of tables run there.
    #[must_use]
    pub fn merges_run(mut self, elsewhere: Elsewhere) -> Self {
        self.executor = Some(Arc::new(elsewhere));
        self
    }
}

impl Executor for Elsewhere {
    fn begin(&self, spec: &MergeSpec) -> Result<Box<dyn MergeRun>> {
        let run = self.next.fetch_add(1, Ordering::Relaxed);
        self.transport.lock().call(&Request::Begin { run, spec: Box::new(spec.clone()) })?;
        Ok(Box::new(There { run, of: self.clone(), totals: Totals::default(), asked: 0 }))
    }
}

/// A merge that runs there.
struct There {
    run: u64,
    of: Elsewhere,
    totals: Totals,
    asked: u64,
}

impl MergeRun for There {
    fn advance(&mut self) -> Result<Advance> {
        // Now and then the answer takes its time.
        self.asked += 1;
        if self.asked.is_multiple_of(5) {
            return Ok(Advance::NotYet(1));
        }
        match self.of.transport.lock().call(&Request::Advance { run: self.run })? {
            Reply::Working(totals) => {
                self.totals = totals;
                Ok(Advance::Working)
            }
            Reply::Step { outputs, upto, totals } => {
                self.totals = totals;
                self.of.steps.fetch_add(1, Ordering::Relaxed);
                let outputs = outputs.into_iter().map(Arc::new).collect();
                Ok(Advance::Step(Step {
                    outputs,
                    upto,
                    aside: Vec::new(),
                    warm: Box::new(InCache(Vec::new())),
                }))
            }
            _ => Err(Error::new(ErrorKind::Io, "an answer to another question")),
        }
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn leftovers(&self) -> Vec<TableId> {
        match self.of.transport.lock().call(&Request::Leftovers { run: self.run }) {
            Ok(Reply::Leftovers(tables)) => tables,
            // What it wrote is removed by the next open.
            _ => Vec::new(),
        }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let _ = self.of.transport.lock().call(&Request::End { run: self.run });
    }
}
