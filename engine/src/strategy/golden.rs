//! Runs the stories in `testdata/`: a shape as text, a few facts, a command, and the expected answer.
//! `UPDATE_GOLDEN=1` writes the answers anew; review the diff.
//!
//! A story is `== title`, then lines that begin with a word: `strategy TEXT`, `flush SIZE`, `pressed`,
//! `redundant SHARE` (of the keys of any SSTables), `clock SECONDS`, `draw SHARE` (of all that may be drawn),
//! `flushing RUN` (a flush still writes it), `compactions N`, `L..` (a run of the shape), `start` (plans, and
//! starts the best compaction), `step KEY` (the running compaction has reached the key), `looks TABLE N`
//! (seek misses), `unread N` (flushes without readers), `written TABLE FROM TO MADE` (seconds),
//! `ttl SECONDS`, `snapshot N` (the oldest), `flushed RANGE SIZE` (a new run in L0), and at the end one of
//! the commands `plan`, `debt`, `finish` (runs all planned compactions, prints the shape), `major RANGE`,
//! `flushes N SIZE` (flushes of all keys, with compactions after each until none is planned: prints what each
//! compaction writes, and the sizes of the runs at the end). The answer follows `--`.

//!
//! For strategies that divide memory by range: `memory RANGE SIZE AGE` (once per range), and the commands
//! `victim` (which range is flushed, and how) and `flushed-range` (flushes it, prints the shape).

use super::*;
use crate::shape::{Run, parse_key, parse_range, range_text};
use crate::types::{Timestamp, parse_size, size_text};

#[derive(Default)]
struct Story {
    shape: Shape,
    strategy: StrategyOptions,
    flush: u64,
    redundant: f64,
    pressed: bool,
    clock: u64,
    draw: u64,
    flushing: Option<u64>,
    compactions: usize,
    looks: Vec<(u32, u64)>,
    settled: u64,
    ttl_us: u64,
    running: Vec<RunningCompaction>,
    state: PlanState,
    memory: Vec<RangeMemory>,
}

impl Story {
    /// The victim's compaction, and the reason.
    fn victim(&self) -> (String, Option<CompactionPlan>) {
        let by_range = self.strategy.strategy().by_range().expect("a strategy by range");
        let Some((at, why)) = by_range.victim(&self.shape, &self.memory) else {
            return ("none".into(), None);
        };
        let memory = &self.memory[at];
        let early = by_range.is_early(&self.shape, &memory.range);
        (why, by_range.flush(&self.shape, memory, early, &|_| 1.0 - self.redundant))
    }

    fn plan(&self) -> Plan {
        let unique = |_: &[TableId]| 1.0 - self.redundant;
        let looks = |of: TableId| self.looks.iter().find(|(part, _)| *part == of.part).map_or(0, |(_, n)| *n);
        self.strategy.strategy().plan(&self.shape, &self.facts(&unique, &looks), &self.state)
    }

    /// `TABLE FROM TO MADE`: the times of its cells, and its creation. Its sequence number is its number.
    fn write_times(&mut self, text: &str) {
        let words: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [part, from, to, made] = words[..] else { panic!("a table and three times in {text}") };
        for level in &mut self.shape.levels {
            for run in &mut level.runs {
                let mut tables = run.tables().to_vec();
                for table in tables.iter_mut().filter(|table| u64::from(table.id.part) == part) {
                    let table = Arc::make_mut(table);
                    table.times = (Timestamp(from * 1_000_000), Timestamp(to * 1_000_000));
                    table.created = made * 1_000_000;
                    table.seqs = (SeqNo(part), SeqNo(part));
                }
                *run = Run::new(run.id, tables);
            }
        }
    }

    /// The pattern of compactions over many flushes.
    fn flushes(&mut self, text: &str) -> String {
        let (count, size) = text.split_once(' ').expect("a number and a size");
        let (count, size): (u64, u64) = (count.parse().expect("a number"), parse_size(size).expect("a size"));
        let mut told = String::new();
        let mut next = 1000;
        for n in 1..=count {
            next += 1;
            let table = TableInfo::over(next, KeyRange::all(), size);
            self.shape.add_flush(Run::new(n, vec![Arc::new(table)])).expect("a flush");
            loop {
                let plan = self.plan();
                self.state = plan.state;
                let Some(compaction) = plan.compactions.first() else { break };
                let step = properties::concatenate(&self.shape, compaction, &mut next);
                apply(&mut self.shape, compaction, &step).expect("a compaction");
                if compaction.kind == CompactionKind::Merge {
                    told +=
                        &format!("{n}: {} runs, {}\n", compaction.inputs.len(), size_text(compaction.bytes));
                }
            }
        }
        for (level, run) in self.shape.runs() {
            told += &format!("L{level} {}\n", size_text(run.live_bytes()));
        }
        told
    }

    fn facts<'a>(&'a self, unique: Unique<'a>, looks: &'a dyn Fn(TableId) -> u64) -> Facts<'a> {
        Facts {
            clock: self.clock,
            draw: self.draw,
            running: &self.running,
            flushing: self.flushing,
            flush_bytes: self.flush,
            pressed: self.pressed,
            compactions_max: self.compactions,
            unique,
            looks,
            settled_to: SeqNo(self.settled),
            ttl_us: self.ttl_us,
            ..Facts::default()
        }
    }

    fn print(&self, compaction: &CompactionPlan) -> String {
        self.print_valid(compaction, validate(&self.shape, compaction, &self.running))
    }

    fn print_valid(&self, compaction: &CompactionPlan, valid: Result<(), String>) -> String {
        let input = |i: &InputRun| {
            let tables: Vec<String> = i.tables.iter().map(|t| t.part.to_string()).collect();
            format!("L{} #{} {}", i.level, i.run, tables.join(" "))
        };
        let inputs = compaction.inputs.iter().map(input).collect::<Vec<_>>().join(" + ");
        let Target { level, run } = compaction.output;
        let (range, score) = (range_text(&compaction.range), compaction.score);
        let valid = valid.map_or_else(|why| format!("  INVALID: {why}\n"), |()| String::new());
        let head = format!("{:?} {inputs} -> L{level} #{run} {range} score {score:.2}", compaction.kind);
        format!("{head}\n  {}\n{valid}", compaction.reason)
    }
}

// Over 70 lines: one match over the words of a story.
fn tell(input: &str) -> String {
    let shape: Vec<&str> = input.lines().filter(|l| l.starts_with('L')).collect();
    let mut story = Story {
        shape: shape.join("\n").parse().expect("a shape"),
        // The stories assume four.
        strategy: "leveled{l0_runs_trigger=4}".parse().expect("a strategy"),
        flush: 64 << 20,
        compactions: 8,
        settled: u64::MAX,
        ..Story::default()
    };
    let mut answer = String::new();
    for line in input.lines().filter(|l| !l.starts_with('L') && !l.starts_with("==") && !l.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" => {}
            "strategy" => story.strategy = rest.parse().expect("a strategy"),
            "flush" => story.flush = parse_size(rest).expect("a size"),
            "memory" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let [range, size, age] = words[..] else { panic!("range, size and age in {line}") };
                let bytes = parse_size(size).expect("a size");
                let (range, age) = (parse_range(range).expect("a range"), age.parse().expect("a number"));
                story.memory.push(RangeMemory { range, bytes, written: bytes, age });
            }
            "victim" => {
                let (why, plan) = story.victim();
                answer += &format!("{why}\n");
                match plan {
                    None => answer += "goes to L0\n",
                    Some(plan) => {
                        let valid = validate_flush(&story.shape, &plan, &story.running);
                        answer += &story.print_valid(&plan, valid);
                        answer += &format!("  SSTables end at {}\n", size_text(plan.sstable_bytes));
                    }
                }
            }
            "flushed-range" => {
                let plan = story.victim().1.expect("a compaction with tables");
                let table = TableInfo::over(1000, plan.range.clone(), plan.bytes);
                let step = Step { outputs: vec![Arc::new(table)], ..Step::default() };
                apply(&mut story.shape, &plan, &step).expect("a flush");
                answer += &story.shape.to_string();
            }
            "pressed" => story.pressed = true,
            "clock" => story.clock = rest.parse().expect("seconds"),
            "draw" => story.draw = (rest.parse::<f64>().expect("a share") * u64::MAX as f64) as u64,
            "flushing" => story.flushing = Some(rest.parse().expect("a run")),
            "redundant" => story.redundant = rest.parse().expect("a share"),
            "compactions" => story.compactions = rest.parse().expect("a number"),
            "unread" => {
                story.state.unread = rest.parse().expect("a number");
                story.state.newest_run = u64::MAX;
            }
            "looks" => {
                let (table, looks) = rest.split_once(' ').expect("a table and a number");
                story.looks.push((table.parse().expect("a table"), looks.parse().expect("a number")));
            }
            "snapshot" => story.settled = rest.parse().expect("a sequence number"),
            "ttl" => story.ttl_us = rest.parse::<u64>().expect("seconds") * 1_000_000,
            "written" => story.write_times(rest),
            "start" => {
                let plan = story.plan();
                story.state = plan.state;
                let compaction = plan.compactions.into_iter().next().expect("a compaction to start");
                answer += &format!("started {}", story.print(&compaction));
                story.running.push(RunningCompaction { plan: compaction, clip: None });
            }
            "flushed" => {
                let (range, size) = rest.split_once(' ').expect("range and size");
                let id = story.shape.tables().map(|(_, _, t)| t.id.part).max().unwrap_or(0) + 1;
                let (range, size) = (parse_range(range).expect("a range"), parse_size(size).expect("a size"));
                let table = TableInfo::over(id, range, size);
                let newest = story.shape.runs().map(|(_, run)| run.id).max().unwrap_or(0);
                story.shape.add_flush(Run::new(newest + 1, vec![Arc::new(table)])).expect("a flush");
            }
            "flushes" => answer += &story.flushes(rest),
            "step" => {
                let key = parse_key(rest).expect("a key");
                let compaction = story.running.last_mut().expect("a running compaction");
                let step = Step { upto: Some(key.clone()), ..Step::default() };
                apply(&mut story.shape, &compaction.plan, &step).expect("a step");
                compaction.clip = Some(key);
            }
            "plan" => {
                let plan = story.plan();
                plan.compactions.iter().for_each(|compaction| answer += &story.print(compaction));
                plan.deferred.iter().for_each(|d| answer += &format!("deferred: {d}\n"));
                if plan.compactions.is_empty() && plan.deferred.is_empty() {
                    answer += "nothing\n";
                }
            }
            "debt" => {
                let facts = story.facts(&|_| 1.0, &|_| 0);
                let debt = story.strategy.strategy().debt(&story.shape, &facts, &story.state);
                answer += &format!("{}\n", size_text(debt));
            }
            "finish" => {
                let mut next = 1000;
                for compaction in story.plan().compactions {
                    let step = properties::concatenate(&story.shape, &compaction, &mut next);
                    apply(&mut story.shape, &compaction, &step).expect("a compaction");
                }
                answer += &story.shape.to_string();
            }
            "major" => {
                let mut left = parse_range(rest).expect("a range");
                let mut told = String::new();
                let strategy = story.strategy.strategy();
                let bounds = strategy.by_range().map_or(Vec::new(), |by_range| by_range.bounds(&story.shape));
                let expired =
                    (story.clock * 1_000_000).checked_sub(story.ttl_us).filter(|_| story.ttl_us > 0);
                let expired = expired.map(Timestamp);
                let request = ManualRequest { upto: SeqNo(story.settled), expired, ..ManualRequest::ALL };
                loop {
                    let (part, plan) = major_part(&story.shape, &left, &bounds, request, strategy);
                    told += &plan.map_or(String::new(), |compaction| story.print(&compaction));
                    match part.end {
                        Some(end) if left.ends_after(&end) => left.start = end,
                        _ => break,
                    }
                }
                answer += if told.is_empty() { "nothing\n" } else { &told };
            }
            _ => panic!("unknown word in a story: {line}"),
        }
        story.shape.check().expect("a sound shape");
    }
    answer
}

#[test]
#[expect(clippy::disallowed_methods, reason = "golden files are read and written by the test itself")]
fn every_story_ends_as_told() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/strategy/testdata");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let mut stories = 0;
    let mut wrong = String::new();
    for file in files {
        let text = String::from_utf8(std::fs::read(&file).unwrap()).unwrap();
        let (intro, rest) = text.split_once("\n== ").expect("a story");
        let mut told = intro.to_string();
        for story in rest.split("\n== ") {
            let (input, expected) = story.split_once("\n--\n").expect("an answer after `--`");
            let answer = tell(input.split_once('\n').unwrap_or((input, "")).1);
            told += &format!("\n== {input}\n--\n{answer}");
            stories += 1;
            if answer.trim_end() != expected.trim_end() {
                wrong +=
                    &format!("{}: {input}\n-- expected\n{expected}\n-- found\n{answer}\n", file.display());
            }
        }
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, told).unwrap();
            wrong.clear();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(stories >= 10, "only {stories} stories were found");
}
