//! Merges run behind a pipe: what a compaction server does, as far as the seam goes ([`crate::offload`]). Merges and answers
//! are lines of JSON. The other end is another process, or (in a simulation, whose disk no process sees) a second set of open
//! tables, cache and operators in this one. It may lie, to show that nobody believes it.

use crate::db::Builder;
use crate::error::{Error, ErrorKind, Result};
use crate::offload::{
    Decision, KeepOutputs, MergeAnswer, MergeRunner, MergeSpec, Offer, Offload, OffloadedMerge, RemoteCache,
    RemoteRead, RunningMerge,
};
use crate::shape::Clip;
use crate::sync::Mutex;
use crate::types::{Rng, TableId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Of what it wrote.
const KEPT_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
enum Request {
    Begin {
        run: u64,
        spec: Box<MergeSpec>,
        keep: KeepOutputs,
    },
    /// The first step that was not is published.
    Published {
        run: u64,
    },
    Read {
        database: u64,
        table: TableId,
        parts: Vec<Range<u64>>,
    },
    Advance {
        run: u64,
    },
    End {
        run: u64,
    },
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Done,
    Answer(Box<MergeAnswer>),
    Parts(Option<Vec<u8>>),
    Failed(String),
}

/// The other end: runs merges and answers.
struct Server {
    runner: MergeRunner,
    runs: BTreeMap<u64, RunningMerge>,
    /// What it draws its lies from.
    lies: Option<Rng>,
}

impl Server {
    fn new(builder: &Builder, lies: Option<u64>) -> Self {
        Self {
            runner: builder.merge_runner(1 << 20, KEPT_BYTES),
            runs: BTreeMap::new(),
            lies: lies.map(Rng::new),
        }
    }

    fn answer(&mut self, request: &str) -> String {
        let reply = match serde_json::from_str(request) {
            Ok(request) => self.run(request).unwrap_or_else(|e| Reply::Failed(e.to_string())),
            Err(e) => Reply::Failed(format!("not a request: {e}")),
        };
        serde_json::to_string(&reply).expect("replies are plain data")
    }

    fn run(&mut self, request: Request) -> Result<Reply> {
        Ok(match request {
            Request::Begin { run, spec, keep } => {
                let begun = self.runner.begin(&spec, keep)?;
                self.runs.insert(run, begun);
                Reply::Done
            }
            Request::Advance { run } => {
                let merge = self.runs.get_mut(&run).ok_or_else(|| Error::invalid("no such merge"))?;
                let mut answer = merge.advance()?;
                if let Some(rng) = self.lies.as_mut().filter(|_| answer.is_step())
                    && rng.one_in(2)
                {
                    lie(rng, &mut answer);
                }
                Reply::Answer(Box::new(answer))
            }
            Request::Published { run } => {
                let merge = self.runs.get_mut(&run).ok_or_else(|| Error::invalid("no such merge"))?;
                merge.published();
                Reply::Done
            }
            Request::Read { database, table, parts } => {
                Reply::Parts(self.runner.kept().read(database, table, &parts, KEPT_BYTES))
            }
            Request::End { run } => {
                self.runs.remove(&run);
                Reply::Done
            }
        })
    }
}

/// Says something else than is true, such that what was kept would be lost.
fn lie(rng: &mut Rng, answer: &mut MergeAnswer) {
    let Some(outputs) = answer.step.as_mut().map(|step| &mut step.outputs) else { return };
    let Some(last) = outputs.last_mut() else { return };
    match rng.range(0..6) {
        0 => _ = outputs.pop(),
        1 => last.cells += 1,
        2 => last.id.epoch += 1,
        3 => last.clip = Some(Clip { key: last.range.start.clone(), bytes_below: 0 }),
        // A table that is somebody's: it is not to go with what is refused.
        4 => last.id.job = last.id.job.saturating_sub(1),
        _ => answer.totals.taken += 1,
    }
}

/// Runs merges for whoever writes requests to `input`, until that ends.
pub fn serve_merges(builder: &Builder, input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut server = Server::new(builder, None);
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

/// Has merges run behind a pipe; see the page above.
#[derive(Clone)]
pub struct Elsewhere {
    transport: Arc<Mutex<Transport>>,
    next: Arc<AtomicU64>,
    steps: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
    remote_bytes: Arc<AtomicU64>,
    /// Each so many reads of its memory give a wrong bit.
    damage: Option<u64>,
}

impl std::fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Elsewhere({} steps)", self.steps())
    }
}

impl Elsewhere {
    fn new(transport: Transport) -> Self {
        Self {
            transport: Arc::new(Mutex::new(transport)),
            next: Arc::default(),
            steps: Arc::default(),
            reads: Arc::default(),
            remote_bytes: Arc::default(),
            damage: None,
        }
    }

    /// In this process, with tables, cache and operators of its own; it lies now and then, by that seed.
    pub fn beside(builder: &Builder, lies: Option<u64>) -> Self {
        Self::new(Transport::Beside(Server::new(builder, lies)))
    }

    /// In a process that runs [`serve_merges`] between its standard input and output.
    pub fn process(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Self::new(Transport::Process { child, to, from: BufReader::new(from) }))
    }

    /// The same, where every `nth` read of its memory gives a wrong bit.
    #[must_use]
    pub fn damaging(mut self, nth: u64) -> Self {
        self.damage = Some(nth);
        self
    }

    /// Bytes of tables that were read from its memory.
    pub fn remote_bytes(&self) -> u64 {
        self.remote_bytes.load(Ordering::Relaxed)
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

impl Offload for Elsewhere {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let run = self.next.fetch_add(1, Ordering::Relaxed);
        let (spec, keep) = (Box::new(offer.spec.clone()), offer.keep);
        let begun = self.transport.lock().call(&Request::Begin { run, spec, keep });
        match begun {
            Ok(_) => {
                let database = offer.spec.database();
                let there = There { run, database, of: self.clone(), asked: 0, owes: false };
                Decision { run: Some(Box::new(there)), ..Decision::here() }
            }
            Err(e) => Decision { reason: format!("a merge is run here: {e}"), ..Decision::here() },
        }
    }
}

/// A merge that runs there.
struct There {
    run: u64,
    database: u64,
    of: Elsewhere,
    asked: u64,
    /// A step was handed out; who asks for more has published it.
    owes: bool,
}

impl OffloadedMerge for There {
    fn advance(&mut self) -> Result<Option<MergeAnswer>> {
        // Now and then the answer takes its time.
        self.asked += 1;
        if self.asked.is_multiple_of(5) {
            return Ok(None);
        }
        if std::mem::take(&mut self.owes) {
            self.of.transport.lock().call(&Request::Published { run: self.run })?;
        }
        match self.of.transport.lock().call(&Request::Advance { run: self.run })? {
            Reply::Answer(answer) => {
                self.owes = answer.is_step();
                self.of.steps.fetch_add(u64::from(answer.is_step()), Ordering::Relaxed);
                Ok(Some(*answer))
            }
            _ => Err(Error::new(ErrorKind::Io, "an answer to another question")),
        }
    }

    fn remote_cache(&self) -> Option<Arc<dyn RemoteCache>> {
        Some(Arc::new(Memory { database: self.database, of: self.of.clone() }))
    }
}

/// What the other end keeps of what it wrote.
#[derive(Debug)]
struct Memory {
    database: u64,
    of: Elsewhere,
}

impl RemoteCache for Memory {
    fn read(&self, table: TableId, parts: Vec<Range<u64>>) -> Box<dyn RemoteRead> {
        let request = Request::Read { database: self.database, table, parts };
        Box::new(Coming { request, of: self.of.clone(), looks: 0 })
    }
}

struct Coming {
    request: Request,
    of: Elsewhere,
    looks: u64,
}

impl RemoteRead for Coming {
    fn advance(&mut self, wait: Duration) -> Result<Option<Vec<u8>>> {
        self.looks += 1;
        // Who does not wait gets it later.
        if wait.is_zero() && self.looks < 3 {
            return Ok(None);
        }
        match self.of.transport.lock().call(&self.request)? {
            Reply::Parts(Some(mut bytes)) => {
                if let Some(damage) = &self.of.damage
                    && self.of.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(*damage)
                    && let Some(byte) = bytes.last_mut()
                {
                    *byte ^= 0x10;
                }
                self.of.remote_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Ok(Some(bytes))
            }
            _ => Err(Error::new(ErrorKind::Io, "it is not kept there")),
        }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let _ = self.of.transport.lock().call(&Request::End { run: self.run });
    }
}
