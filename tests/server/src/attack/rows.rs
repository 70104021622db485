//! Reads and writes of few bytes that cost much: filters, wide rows, answers that nobody takes.

use super::wire::{
    ADMIN, Connection, DATA, RESET, chain, condition, frame, get, interleave, mutate_row, number, part,
    pass_all, read_rows, set_cell, table, value_pattern,
};
use super::{DEADLINE, Outcome, Scene, median};
use crate::child::INSTANCE;
use std::time::{Duration, Instant};
use tonic::Code;

/// Callers of a read that is long, at the same time.
const AT_ONCE: usize = 4;
/// How long half of the questions for the health may take beside them.
const HEALTHY_WITHIN: Duration = Duration::from_millis(100);
/// Scans that are cancelled, on so many connections, and large writes behind them; how much more memory may
/// be left of them, and after how long.
const CANCELLED: usize = 1_000;
const CONNECTIONS: usize = 8;
const LARGE_WRITES: usize = 16;
const LEFT_BYTES: u64 = 200 << 20;
const LEFT_AFTER: Duration = Duration::from_secs(20);
/// Families of a table whose description is large, how long it may take to make them, operations on it, and
/// how much more memory these may take.
const FAMILIES: usize = 1_000;
const MADE_WITHIN: Duration = Duration::from_secs(60);
const OPERATIONS: u64 = 300;
const OPERATIONS_BYTES: u64 = 96 << 20;

/// How a call that is too much may end: with what there is, or refused. It may not fail otherwise.
fn may_end(code: Code) -> bool {
    let refused = [Code::InvalidArgument, Code::ResourceExhausted, Code::OutOfRange, Code::Unavailable];
    code == Code::Ok || code == Code::DeadlineExceeded || refused.contains(&code)
}

/// Several callers make that call again and again; meanwhile the server says that it is well.
fn beside_health(scene: &Scene, name: &str, method: &str, message: &[u8]) -> Outcome {
    let until = scene.until();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let caller = scene.caller(name);
                scope.spawn(move || {
                    let mut codes = Vec::new();
                    while codes.is_empty() || Instant::now() < until {
                        let ended = caller.call_within(method, message.to_vec(), Duration::from_secs(10));
                        codes.push(ended.err().map_or(Code::Ok, |status| status.code()));
                    }
                    codes
                })
            })
            .collect();
        let mut healthy = Vec::new();
        while callers.iter().any(|caller| !caller.is_finished()) {
            let asked = Instant::now();
            let status = get(scene.http, "/healthz", "127.0.0.1", None, DEADLINE)?.0;
            if status != 200 {
                return Err(format!("/healthz answers {status}"));
            }
            healthy.push(asked.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut codes = Vec::new();
        for caller in callers {
            codes.extend(caller.join().map_err(|_| "a caller panics")?);
        }
        if let Some(code) = codes.iter().find(|code| !may_end(**code)) {
            return Err(format!("{method} ends with {code:?}"));
        }
        let (calls, times, usual) = (codes.len(), healthy.len(), median(&mut healthy));
        let said =
            format!("{calls} calls, {times} times healthy beside them, within {} ms", usual.as_millis());
        if usual <= HEALTHY_WITHIN { Ok(said) } else { Err(said) }
    })
}

fn read_row(scene: &Scene, filter: &[u8]) -> Outcome {
    beside_health(scene, "reader", "ReadRows", &read_rows("t", &[b"row"], Some(filter)))
}

fn many_patterns() -> Vec<u8> {
    interleave((0..300).map(|n| value_pattern(format!(".{{1000}}.{{1000}}x{n}"))))
}

/// Patterns that are each allowed, and together take long to be compiled.
pub(super) fn patterns(scene: &Scene) -> Outcome {
    read_row(scene, &many_patterns())
}

/// Patterns that are each allowed, and together take long to be compiled, as the condition of a write.
pub(super) fn predicates(scene: &Scene) -> Outcome {
    let message =
        [part(1, table("t")), part(2, "row"), part(6, many_patterns()), part(4, set_cell("q", "v"))];
    beside_health(scene, "root", "CheckAndMutateRow", &message.concat())
}

/// A row of a hundred thousand cells, through a pattern.
pub(super) fn wide_row(scene: &Scene) -> Outcome {
    scene.write_wide("row", 100_000)?;
    read_row(scene, &value_pattern("x.*y.*"))
}

/// Each cell a thousand times.
pub(super) fn interleaves(scene: &Scene) -> Outcome {
    scene.write_wide("row", 2_000)?;
    read_row(scene, &interleave((0..1_000).map(|_| pass_all())))
}

/// Thousands of labels on each cell.
pub(super) fn labels(scene: &Scene) -> Outcome {
    scene.write_wide("row", 1_000)?;
    read_row(scene, &chain((0..3_300).map(|_| part(19, "a"))))
}

/// Conditions inside each other, each of which has all cells once more.
pub(super) fn conditions(scene: &Scene) -> Outcome {
    scene.write_wide("row", 2_000)?;
    let mut filter = pass_all();
    // Each is twice as long as the one inside it.
    for _ in 0..9 {
        filter = condition(&interleave([filter, pass_all()]));
    }
    read_row(scene, &filter)
}

/// Filters inside each other, deeper than anything that is decoded.
pub(super) fn deep_filters(scene: &Scene) -> Outcome {
    let mut filter = pass_all();
    for _ in 0..2_000 {
        filter = chain([filter]);
    }
    let code = scene.caller("reader").code("ReadRows", read_rows("t", &[b"row"], Some(&filter)));
    match code {
        Code::Ok => Err("a filter 2,000 deep is taken".into()),
        _ => read_row(scene, &filter),
    }
}

/// Calls on a connection without room for answers, until the time is over, and then for as long as it takes
/// to be noticed.
fn not_taken(scene: &Scene, connections: usize, streams: usize, method: &str, message: &[u8]) -> Outcome {
    let block = scene.headers(&format!("{DATA}{method}"), "reader");
    let (mut held, mut opened, until) = (Vec::new(), 0, scene.until());
    for _ in 0..connections {
        let mut connection = Connection::without_room(scene.port)?;
        for _ in 0..streams {
            if connection.is_closed() || connection.call(&block, message).is_err() {
                break;
            }
            opened += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        held.push(connection);
    }
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    // Others scan beside them, and once they are given up what they held is free.
    let scan = [read_rows("t", &[], None), number(4, 3)].concat();
    scene
        .caller("reader")
        .must("ReadRows", scan)
        .map_err(|e| format!("beside {opened} answers not taken: {e}"))?;
    let resets: usize = held.iter().map(Connection::resets).sum();
    if scene.is_longer_than(65) && resets == 0 {
        return Err(format!("none of {opened} calls whose answers are not taken was given up"));
    }
    Ok(format!("{opened} answers not taken, {resets} given up, others scan beside them"))
}

/// Reads of a row of half a megabyte each.
pub(super) fn short_reads_not_taken(scene: &Scene) -> Outcome {
    not_taken(scene, 1, 500, "ReadRows", &read_rows("t", &[b"large1"], None))
}

pub(super) fn scans_not_taken(scene: &Scene) -> Outcome {
    not_taken(scene, 3, 40, "ReadRows", &read_rows("t", &[], None))
}

/// Answers of other methods.
pub(super) fn answers_not_taken(scene: &Scene) -> Outcome {
    not_taken(scene, 1, 200, "SampleRowKeys", &part(1, table("t")))
}

/// Scans whose answers fill the memory for calls and are cancelled, and large writes behind them: what they
/// had goes back.
pub(super) fn memory_after(scene: &Scene) -> Outcome {
    let block = scene.headers(&format!("{DATA}ReadRows"), "reader");
    let (scan, before, mut held) = (read_rows("t", &[], None), scene.memory(), Vec::new());
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::without_room(scene.port)?;
        let mut streams = Vec::new();
        for _ in 0..CANCELLED / CONNECTIONS {
            streams.push(connection.call(&block, &scan)?);
            std::thread::sleep(Duration::from_millis(2));
        }
        held.push((connection, streams));
    }
    std::thread::sleep(DEADLINE / 2);
    let most = scene.memory().saturating_sub(before);
    for (connection, streams) in &mut held {
        // What of them is reset already may have closed the connection.
        let _ =
            streams.iter().try_for_each(|stream| connection.send(&frame(RESET, 0, *stream, &[0, 0, 0, 8])));
    }
    drop(held);
    let (writer, mut random) = (scene.caller("writer"), scene.rng());
    for n in 0..LARGE_WRITES {
        let entry = |m: usize| {
            let cell = set_cell("q", random.bytes(64 << 10));
            part(2, [part(1, format!("large-write{n}-{m}")), part(2, cell)].concat())
        };
        let entries: Vec<u8> = (0..64).flat_map(entry).collect();
        writer.must("MutateRows", [part(1, table("t")), entries].concat())?;
    }
    let grown = || scene.memory().saturating_sub(before);
    let began = Instant::now();
    while grown() > LEFT_BYTES && began.elapsed() < LEFT_AFTER {
        std::thread::sleep(Duration::from_millis(200));
    }
    let left = grown();
    let said = format!("{} MiB more with {CANCELLED} scans, {} MiB more later", most >> 20, left >> 20);
    // Had they taken less, nothing would have to go back.
    if left <= LEFT_BYTES && most > LEFT_BYTES { Ok(said) } else { Err(said) }
}

/// Streams of changes on one connection, more than there may be calls.
pub(super) fn change_streams(scene: &Scene) -> Outcome {
    let config = [part(1, table("t")), part(8, part(1, number(1, 86_400)))].concat();
    let update = [part(1, config), part(2, part(1, "change_stream_config"))].concat();
    scene.caller("root").must(&format!("{ADMIN}UpdateTable"), update)?;
    let mut connection = Connection::new(scene.port)?;
    let block = scene.headers(&format!("{DATA}ReadChangeStream"), "reader");
    for _ in 0..80 {
        connection.call(&block, &part(1, table("t")))?;
    }
    std::thread::sleep(scene.lasts);
    let code = scene.caller("writer").code("MutateRow", mutate_row("t", "beside", &[set_cell("q", "v")]));
    match code {
        Code::Ok => {
            Ok(format!("a write gets in beside 80 streams of changes, {} refused", connection.resets()))
        }
        code => Err(format!("beside 80 streams of changes a write ends with {code:?}")),
    }
}

/// `CreateTable` of as many families as a table may have, of which each has a rule that is about as long as
/// one may be.
fn large_table(table_id: &str) -> Vec<u8> {
    let age = [number(1, 1 << 35), number(2, 999_999_000)].concat();
    let rule = part(4, part(1, part(2, age)).repeat(28));
    let family = |n: usize| part(3, [part(1, format!("family{n:03}")), part(2, part(1, &rule))].concat());
    let described: Vec<u8> = (0..FAMILIES).flat_map(family).collect();
    [part(1, INSTANCE), part(2, table_id), part(3, described)].concat()
}

/// Operations on a table whose description is as large as it may be: what is kept of them is bounded.
pub(super) fn operations(scene: &Scene) -> Outcome {
    let root = scene.caller("root");
    root.call_within(&format!("{ADMIN}CreateTable"), large_table("large"), MADE_WITHIN)
        .map_err(|e| format!("a table of {FAMILIES} families: {e}"))?;
    let update = [part(1, part(1, table("large"))), part(2, part(1, "deletion_protection"))].concat();
    let (before, until, mut calls, mut bytes) = (scene.memory(), scene.until(), 0, 0);
    while calls < OPERATIONS || Instant::now() < until {
        let answer = root.must(&format!("{ADMIN}UpdateTable"), update.clone())?;
        bytes += answer.iter().map(Vec::len).sum::<usize>() as u64;
        calls += 1;
    }
    let grown = scene.memory().saturating_sub(before);
    let said = format!("{calls} operations of {} MiB, {} MiB more", bytes >> 20, grown >> 20);
    // Were all of them kept whole, they would be more than that.
    if grown <= OPERATIONS_BYTES && bytes > OPERATIONS_BYTES { Ok(said) } else { Err(said) }
}
