//! Runs compactions behind a pipe, as a compaction server would ([`crate::offload`]). Requests and answers
//! are lines of JSON. The other end is another process, or (in a simulation, whose disk no other process
//! sees) a second set of open SSTables, cache and operators in this one. It may lie, hang, lose state and
//! more ([`CompactionFault`]), to show that a database does not depend on it.

use crate::db::Builder;
use crate::error::{Error, ErrorKind, Result};
use crate::offload::{
    CompactionAnswer, CompactionRunner, CompactionSpec, Decision, Offer, Offload, OffloadedCompaction,
    RemoteCache, RemoteRead, RetainOutputs, RunningCompaction,
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

/// The most bytes of its outputs that the other end keeps in memory.
const KEPT_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
enum Request {
    Begin {
        run: u64,
        spec: Box<CompactionSpec>,
        keep: RetainOutputs,
    },
    /// The first step that is not marked as published yet now is.
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
    /// There is no answer yet.
    Nothing,
    Answer(Box<CompactionAnswer>),
    Parts(Option<Vec<u8>>),
    Failed(String),
}

/// A fault between a database and the process that runs its compactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CompactionFault {
    /// An answer is wrong in a way that would lose data.
    Lie,
    /// A bit of an answer flips on its way.
    Garbled,
    /// The other end restarts at once and loses all state.
    Restart,
    /// All messages in both directions are lost from now on: the other end finishes the compaction, while the
    /// database waits for it and gives it up.
    OneWay,
    /// The other end hangs without a failure until it is given up; then it goes on.
    Hang,
    /// An answer comes late.
    Slow,
    /// An answer comes twice.
    Twice,
    /// An earlier answer comes once more, perhaps to another compaction.
    Stale,
    /// SSTables that the other end wrote are gone before the database looks at them.
    Vanish,
    /// The other end fails in the middle of a piece of work, as on a full disk, and leaves partial outputs.
    Full,
    /// A bit flips in the bytes that the other end keeps in memory.
    Damage,
    /// An answer leaves out a step's SSTables, with matching counts. If cells may be dropped this may be
    /// right, so it is only for databases in which none may be.
    Loss,
}

impl CompactionFault {
    /// All faults that a database must detect or survive, whatever its data: all but `Loss`.
    pub const ALL: [Self; 11] = [
        Self::Lie,
        Self::Garbled,
        Self::Restart,
        Self::OneWay,
        Self::Hang,
        Self::Slow,
        Self::Twice,
        Self::Stale,
        Self::Vanish,
        Self::Full,
        Self::Damage,
    ];
}

/// On average, one in so many answers and reads meets a fault.
const FAULTY: u64 = 6;
/// The most polls before a slow answer comes. After `PATIENCE` polls without one a compaction is given up.
const SLOW_MAX: u64 = 60;
const PATIENCE: u64 = 100;

/// Faults drawn from a seed.
struct Faults {
    rng: Rng,
    kinds: Vec<CompactionFault>,
    /// The number of faults met so far.
    met: u64,
    /// The newest answer with a step.
    last: Option<CompactionAnswer>,
    /// Compactions whose messages are lost.
    unheard: Vec<RunningCompaction>,
    /// For each run, the number of further polls without an answer, and whether none will ever come.
    silent: BTreeMap<u64, (u64, bool)>,
    /// Answers to be sent again, by run.
    again: BTreeMap<u64, CompactionAnswer>,
}

impl Faults {
    fn new(kinds: &[CompactionFault], seed: u64) -> Self {
        let (silent, again) = Default::default();
        Self {
            rng: Rng::new(seed),
            kinds: kinds.to_vec(),
            met: 0,
            last: None,
            unheard: Vec::new(),
            silent,
            again,
        }
    }

    /// Draws the fault that the present request meets, if any.
    fn draw(&mut self) -> Option<CompactionFault> {
        let kind = self.kinds[self.rng.range(0..self.kinds.len() as u64) as usize];
        self.rng.one_in(FAULTY).then_some(kind)
    }

    /// Advances the compactions whose messages are lost.
    fn work_on(&mut self) {
        self.unheard.retain_mut(|compaction| compaction.advance().is_ok_and(|answer| !answer.is_last()));
    }

    /// Whether there is no answer yet, and whether none will ever come.
    fn is_silent(&mut self, run: u64) -> Option<bool> {
        let (left, is_hung) = self.silent.get_mut(&run)?;
        *left -= 1;
        let is_over = *left == 0;
        let is_given_up = is_over && *is_hung;
        if is_over {
            self.silent.remove(&run);
        }
        Some(is_given_up)
    }
}

/// The other end, which runs compactions and answers.
struct Server {
    builder: Builder,
    runner: CompactionRunner,
    runs: BTreeMap<u64, (Box<CompactionSpec>, RunningCompaction)>,
    faults: Option<Faults>,
}

impl Server {
    fn new(builder: &Builder, faults: Option<Faults>) -> Self {
        let runner = builder.compaction_runner(1 << 20, KEPT_BYTES);
        Self { builder: builder.clone(), runner, runs: BTreeMap::new(), faults }
    }

    fn answer(&mut self, request: &str) -> String {
        let reply = match serde_json::from_str(request) {
            Ok(request) => self.run(request).unwrap_or_else(|e| Reply::Failed(e.to_string())),
            Err(e) => Reply::Failed(format!("not a request: {e}")),
        };
        serde_json::to_string(&reply).expect("replies are plain data")
    }

    fn run(&mut self, request: Request) -> Result<Reply> {
        let none = || Error::invalid("no such compaction");
        Ok(match request {
            Request::Begin { run, spec, keep } => {
                let begun = self.runner.begin(&spec, keep)?;
                self.runs.insert(run, (spec, begun));
                Reply::Done
            }
            Request::Advance { run } => match self.faults.take() {
                None => Reply::Answer(Box::new(self.runs.get_mut(&run).ok_or_else(none)?.1.advance()?)),
                Some(mut faults) => {
                    let reply = self.advance(run, &mut faults);
                    self.faults = Some(faults);
                    reply?
                }
            },
            Request::Published { run } => {
                self.runs.get_mut(&run).ok_or_else(none)?.1.published();
                Reply::Done
            }
            Request::Read { database, table, parts } => {
                let mut bytes = self.runner.kept().read(database, table, &parts, KEPT_BYTES);
                if let Some(faults) = &mut self.faults
                    && let Some(bytes) = bytes.as_mut().filter(|bytes| !bytes.is_empty())
                    && faults.draw() == Some(CompactionFault::Damage)
                {
                    flip(&mut faults.rng, bytes);
                    faults.met += 1;
                }
                Reply::Parts(bytes)
            }
            Request::End { run } => {
                self.runs.remove(&run);
                Reply::Done
            }
        })
    }

    fn advance(&mut self, run: u64, faults: &mut Faults) -> Result<Reply> {
        let none = || Error::invalid("no such compaction");
        faults.work_on();
        match faults.is_silent(run) {
            None => {}
            Some(false) => return Ok(Reply::Nothing),
            Some(true) => {
                faults.unheard.extend(self.runs.remove(&run).map(|(_, compaction)| compaction));
                return Err(none());
            }
        }
        if let Some(answer) = faults.again.remove(&run) {
            return Ok(Reply::Answer(Box::new(answer)));
        }
        let fault = faults.draw();
        if self.breaks_off(run, fault, faults)? {
            faults.met += 1;
            return if faults.silent.contains_key(&run) { Ok(Reply::Nothing) } else { Err(none()) };
        }
        let (spec, compaction) = self.runs.get_mut(&run).ok_or_else(none)?;
        let mut answer = compaction.advance()?;
        let is_met = match fault {
            Some(CompactionFault::Lie) if answer.is_step() => {
                lie(&mut faults.rng, &mut answer);
                true
            }
            Some(CompactionFault::Loss) if !answer.outputs().is_empty() => {
                lose(&mut answer);
                true
            }
            Some(CompactionFault::Garbled) => {
                let mut bytes = answer.to_bytes();
                flip(&mut faults.rng, &mut bytes);
                faults.met += 1;
                answer = CompactionAnswer::from_bytes(&bytes)?;
                false
            }
            // Only steps: progress may be reported any number of times.
            Some(CompactionFault::Twice) if answer.is_step() && !answer.is_last() => {
                faults.again.insert(run, answer.clone()).is_none()
            }
            Some(CompactionFault::Stale) => faults.last.take().map(|last| answer = last).is_some(),
            Some(CompactionFault::Vanish) => match answer.outputs().last() {
                Some(output) => self.runner.lose(spec, output.id).is_ok(),
                None => false,
            },
            _ => false,
        };
        faults.met += u64::from(is_met);
        if answer.is_step() {
            faults.last = Some(answer.clone());
        }
        Ok(Reply::Answer(Box::new(answer)))
    }

    /// Whether the compaction meets that fault before it advances, so that there is no answer now.
    fn breaks_off(&mut self, run: u64, fault: Option<CompactionFault>, faults: &mut Faults) -> Result<bool> {
        Ok(match fault {
            Some(CompactionFault::Restart) => {
                self.runs.clear();
                self.runner = self.builder.compaction_runner(1 << 20, KEPT_BYTES);
                true
            }
            Some(CompactionFault::OneWay) => {
                faults.unheard.extend(self.runs.remove(&run).map(|(_, compaction)| compaction));
                faults.silent.insert(run, (PATIENCE, true)).is_none()
            }
            Some(CompactionFault::Full) => match self.runs.remove(&run) {
                Some((_, mut compaction)) => {
                    compaction.advance()?;
                    true
                }
                None => false,
            },
            Some(CompactionFault::Hang) => faults.silent.insert(run, (PATIENCE, true)).is_none(),
            Some(CompactionFault::Slow) => {
                let looks = faults.rng.range(1..SLOW_MAX);
                faults.silent.insert(run, (looks, false)).is_none()
            }
            _ => false,
        })
    }
}

/// Flips one bit.
fn flip(rng: &mut Rng, bytes: &mut [u8]) {
    let (at, bit) = (rng.range(0..bytes.len() as u64) as usize, rng.range(0..8));
    bytes[at] ^= 1 << bit;
}

/// Makes an answer wrong in a way that would lose data.
fn lie(rng: &mut Rng, answer: &mut CompactionAnswer) {
    let Some(outputs) = answer.step.as_mut().map(|step| &mut step.outputs) else { return };
    let Some(last) = outputs.last_mut() else { return };
    match rng.range(0..11) {
        0 => _ = outputs.pop(),
        1 => last.cells += 1,
        2 => last.id.epoch += 1,
        3 => last.clip = Some(Clip { key: last.range.start.clone(), bytes_below: 0 }),
        // An existing SSTable, which must not be removed with the refused outputs.
        4 => last.id.job = last.id.job.saturating_sub(1),
        // Fewer keys than the SSTable has, so that some would not be found; a later one; another file.
        5 => last.range.start.push(0),
        6 => last.range.end = Some([&last.range.start[..], &[0]].concat()),
        7 => last.seqs.0.0 += 1,
        8 => last.identity ^= 1,
        9 => last.bytes -= 1,
        _ => answer.totals.taken += 1,
    }
}

/// Makes an answer's step lose its SSTables.
fn lose(answer: &mut CompactionAnswer) {
    let Some(step) = &mut answer.step else { return };
    let lost: u64 = step.outputs.drain(..).map(|table| table.cells).sum();
    answer.totals.kept -= lost;
}

/// Runs compactions for the process that writes requests to `input`, until that ends.
pub fn serve_compactions(
    builder: &Builder,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<()> {
    let mut server = Server::new(builder, None);
    for line in input.lines() {
        writeln!(output, "{}", server.answer(&line?))?;
        output.flush()?;
    }
    Ok(())
}

/// The connection to the other end.
enum Transport {
    Beside(Box<Server>),
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

/// An [`Offload`] that runs compactions behind a pipe; see the page above.
#[derive(Clone)]
pub struct Elsewhere {
    transport: Arc<Mutex<Transport>>,
    next: Arc<AtomicU64>,
    steps: Arc<AtomicU64>,
    remote_bytes: Arc<AtomicU64>,
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
            remote_bytes: Arc::default(),
        }
    }

    /// The other end in this process, with SSTables, cache and operators of its own.
    pub fn beside(builder: &Builder) -> Self {
        Self::new(Transport::Beside(Box::new(Server::new(builder, None))))
    }

    /// The other end in this process, with faults of these kinds, at least one, drawn from that seed.
    pub fn faulty(builder: &Builder, kinds: &[CompactionFault], seed: u64) -> Self {
        Self::new(Transport::Beside(Box::new(Server::new(builder, Some(Faults::new(kinds, seed))))))
    }

    /// The number of faults met so far.
    pub fn faults(&self) -> u64 {
        match &*self.transport.lock() {
            Transport::Beside(server) => server.faults.as_ref().map_or(0, |faults| faults.met),
            Transport::Process { .. } => 0,
        }
    }

    /// The other end in a process that runs [`serve_compactions`] between its standard input and output.
    pub fn process(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Self::new(Transport::Process { child, to, from: BufReader::new(from) }))
    }

    /// SSTable bytes that were read from the other end's memory.
    pub fn remote_bytes(&self) -> u64 {
        self.remote_bytes.load(Ordering::Relaxed)
    }

    /// The number of steps that came from the other end.
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
                let there = PipedCompaction { run, database, of: self.clone(), asked: 0, owes: false };
                Decision { run: Some(Box::new(there)), ..Decision::here() }
            }
            Err(e) => Decision { reason: format!("a compaction is run here: {e}"), ..Decision::here() },
        }
    }
}

/// A compaction that runs at the other end.
struct PipedCompaction {
    run: u64,
    database: u64,
    of: Elsewhere,
    asked: u64,
    /// Whether a step was returned: a caller that asks for more has published it.
    owes: bool,
}

impl OffloadedCompaction for PipedCompaction {
    fn advance(&mut self) -> Result<Option<CompactionAnswer>> {
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
            Reply::Nothing => Ok(None),
            _ => Err(Error::new(ErrorKind::Io, "an answer to another question")),
        }
    }

    fn remote_cache(&self) -> Option<Arc<dyn RemoteCache>> {
        Some(Arc::new(Memory { database: self.database, of: self.of.clone() }))
    }
}

/// The SSTables that the other end wrote and keeps in memory.
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
        // A caller that does not wait gets it later.
        if wait.is_zero() && self.looks < 3 {
            return Ok(None);
        }
        match self.of.transport.lock().call(&self.request)? {
            Reply::Parts(Some(bytes)) => {
                self.of.remote_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Ok(Some(bytes))
            }
            _ => Err(Error::new(ErrorKind::Io, "it is not kept there")),
        }
    }
}

impl Drop for PipedCompaction {
    fn drop(&mut self) {
        let _ = self.of.transport.lock().call(&Request::End { run: self.run });
    }
}
