//! Requests that are large, small but of many parts, late, or mutated.

use super::wire::{
    ADMIN, Connection, DATA, DATA_FRAME, END_STREAM, OPERATOR, chain, condition, create_table, frame, framed,
    interleave, mutate_row, number, part, pass_all, read_rows, set_cell, table, value_pattern,
};
use super::{Outcome, Scene};
use siltstone::Rng;
use std::time::{Duration, Instant};
use tonic::Code;

/// Bytes of a request that becomes much more when it is decoded.
const LARGE: usize = 6 << 20;
/// Bytes of such a request to a call whose requests must be smaller.
const LARGE_READ: usize = (4 << 20) - 1_000;

/// Bodies that say that more follows than ever comes: they fill what memory there is for requests.
pub(super) fn unfinished(scene: &Scene) -> Outcome {
    let block = scene.headers(&format!("{DATA}MutateRows"), "monitor");
    let (mut connections, mut sent) = (Vec::new(), 0);
    let mut sizes = vec![8 << 20];
    // What is left is filled in ever smaller pieces.
    sizes.extend([16_000; 6].into_iter().chain([4_000; 6]).chain([1_000; 6]).chain([250; 6]).chain([60; 6]));
    for _ in 0..4 {
        let mut connection = Connection::new(scene.port)?;
        for size in &sizes {
            let Ok(stream) = connection.open(&block) else { break };
            let body = [&b"\0\x0c\x80\0\0"[..], &vec![b'x'; *size]].concat();
            let wait = Duration::from_millis(if *size > 16_000 { 1_000 } else { 50 });
            sent += connection.body(stream, &body, wait);
        }
        connections.push(connection);
    }
    std::thread::sleep(scene.lasts);
    match scene.caller("root").code("ReadRows", read_rows("t", &[b"row"], None)) {
        Code::Ok => Ok(format!("{} KiB of bodies without an end, and small calls go on", sent >> 10)),
        code => {
            Err(format!("beside {} KiB of bodies without an end a small call ends with {code:?}", sent >> 10))
        }
    }
}

/// Bodies of which a byte comes now and then, on many streams.
pub(super) fn dripping(scene: &Scene) -> Outcome {
    let mut connection = Connection::new(scene.port)?;
    let block = scene.headers(&format!("{DATA}MutateRow"), "writer");
    let mut streams = Vec::new();
    for _ in 0..200 {
        streams.push(connection.open(&block)?);
    }
    let message = framed(&mutate_row("t", "dripped", &[set_cell("q", "v")]));
    let (until, mut bytes) = (scene.until(), 0);
    for at in 0..message.len() {
        if Instant::now() >= until || connection.is_closed() {
            break;
        }
        for stream in &streams {
            bytes += connection.body(*stream, &message[at..=at], Duration::ZERO);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(format!("{bytes} bytes on {} streams, {} reset", streams.len(), connection.resets()))
}

/// Large bodies of calls that their token does not allow: each is refused by what its first bytes name, not
/// when it is there.
pub(super) fn forbidden(scene: &Scene) -> Outcome {
    const STREAMS: u64 = 20;
    let mut connection = Connection::new(scene.port)?;
    let block = scene.headers(&format!("{DATA}MutateRows"), "reader");
    let claims = (LARGE as u32).to_be_bytes();
    let begins = [&b"\0"[..], &claims, &part(1, table("t")), &vec![b'x'; 4_000]].concat();
    for _ in 0..STREAMS {
        let stream = connection.open(&block)?;
        connection.body(stream, &begins, Duration::from_secs(1));
    }
    let waited = Instant::now();
    while connection.answered() < STREAMS && waited.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(20));
    }
    match connection.answered() {
        STREAMS => Ok(format!("{STREAMS} bodies refused by their first bytes")),
        answered => {
            Err(format!("of {STREAMS} bodies without a right {answered} are refused before they are there"))
        }
    }
}

/// Makes the call again and again; it must be refused with one of these codes.
fn refused(scene: &Scene, name: &str, method: &str, message: &[u8], codes: &[Code]) -> Outcome {
    let (caller, until, mut calls) = (scene.caller(name), scene.until(), 0);
    loop {
        let code = caller.code(method, message.to_vec());
        if !codes.contains(&code) {
            return Err(format!("{method} of {} KiB by {name} ends with {code:?}", message.len() >> 10));
        }
        calls += 1;
        if Instant::now() >= until {
            return Ok(format!("{calls} calls of {} KiB refused", message.len() >> 10));
        }
    }
}

/// Codes that refuse a caller without the right to the call.
const DENIED: &[Code] = &[Code::PermissionDenied, Code::ResourceExhausted, Code::OutOfRange];
/// Codes that refuse a call that is too much, by a caller with the right to it.
const TOO_MUCH: &[Code] = &[Code::InvalidArgument, Code::ResourceExhausted, Code::OutOfRange];

fn entries() -> Vec<u8> {
    [part(1, table("t")), [0x12_u8, 0].repeat(LARGE_READ / 2)].concat()
}

/// Entries of two bytes each, by one who may not write.
pub(super) fn empty_entries(scene: &Scene) -> Outcome {
    refused(scene, "monitor", "MutateRows", &entries(), DENIED)
}

/// Entries of two bytes each, by one who may write.
pub(super) fn written_entries(scene: &Scene) -> Outcome {
    refused(scene, "writer", "MutateRows", &entries(), TOO_MUCH)
}

pub(super) fn empty_ranges(scene: &Scene) -> Outcome {
    let ranges = [part(1, table("t")), part(2, [0x12_u8, 0].repeat(LARGE_READ / 2))].concat();
    refused(scene, "monitor", "ReadRows", &ranges, DENIED)?;
    refused(scene, "reader", "ReadRows", &ranges, TOO_MUCH)
}

pub(super) fn many_keys(scene: &Scene) -> Outcome {
    let key = |n: u32| [&b"\x0a\x04"[..], &n.to_be_bytes()].concat();
    let keys: Vec<u8> = (0..LARGE as u32 / 6).flat_map(key).collect();
    refused(scene, "reader", "ReadRows", &[part(1, table("t")), part(2, keys)].concat(), TOO_MUCH)
}

pub(super) fn large_filter(scene: &Scene) -> Outcome {
    let filter = part(2, [0x0a_u8, 0].repeat(LARGE_READ / 2));
    let message = read_rows("t", &[b"row"], Some(&filter));
    refused(scene, "monitor", "ReadRows", &message, DENIED)?;
    refused(scene, "reader", "ReadRows", &message, TOO_MUCH)
}

/// A garbage collection rule of so many parts.
fn rule(parts: usize) -> Vec<u8> {
    let both = part(3, [part(1, number(1, 5)), part(1, number(1, 6))].concat());
    part(4, part(1, both).repeat(parts))
}

pub(super) fn gc_rule(scene: &Scene) -> Outcome {
    let message = create_table("g", &part(4, [0x0a_u8, 0].repeat(LARGE_READ / 2)));
    refused(scene, "monitor", &format!("{ADMIN}CreateTable"), &message, DENIED)
}

/// By one who may make tables.
pub(super) fn gc_rule_owned(scene: &Scene) -> Outcome {
    let create = format!("{ADMIN}CreateTable");
    refused(scene, "root", &create, &create_table("g", &rule(20_000)), TOO_MUCH)
}

/// Calls with the most mutations of one row that a call may have.
pub(super) fn many_mutations(scene: &Scene) -> Outcome {
    let (writer, until, mut calls) = (scene.caller("writer"), scene.until(), 0);
    let cells: Vec<Vec<u8>> = (0..100_000).map(|n| set_cell(format!("{n:06}"), "")).collect();
    let message = mutate_row("t", "many", &cells);
    while calls == 0 || Instant::now() < until {
        let code = writer.code("MutateRow", message.clone());
        if !matches!(code, Code::Ok | Code::ResourceExhausted | Code::InvalidArgument | Code::Unavailable) {
            return Err(format!("100,000 mutations of a row end with {code:?}"));
        }
        calls += 1;
    }
    Ok(format!("{calls} calls of 100,000 mutations"))
}

/// Messages that say that they are compressed, which the server never asked for.
pub(super) fn compressed_flag(scene: &Scene) -> Outcome {
    let (until, mut calls) = (scene.until(), 0_u64);
    let block = scene.headers(&format!("{DATA}ReadRows"), "reader");
    let mut body = framed(&[0x1f; 1_000]);
    body[0] = 1;
    let mut connection = Connection::new(scene.port)?;
    while Instant::now() < until && !connection.is_closed() {
        let stream = connection.open(&block)?;
        if connection.send(&frame(DATA_FRAME, END_STREAM, stream, &body)).is_err() {
            break;
        }
        calls += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    match connection.answered() + connection.resets() as u64 {
        0 => Err(format!("none of {calls} calls was answered")),
        answered => Ok(format!("{calls} calls, {answered} answered or reset")),
    }
}

fn letters(random: &mut Rng, most: usize) -> Vec<u8> {
    let among = b"ab.*+?[]()|\\^$-{}0123QECdw:\0\xff\xe9";
    (0..1 + random.index(most)).map(|_| *random.pick(among)).collect()
}

fn filter(random: &mut Rng, depth: u32) -> Vec<u8> {
    let kind = random.range(0..20);
    let some = |random: &mut Rng| -> Vec<Vec<u8>> {
        (0..1 + random.range(0..3)).map(|_| filter(random, depth + 1)).collect()
    };
    match kind {
        0..3 if depth < 5 => chain(some(random)),
        3..6 if depth < 5 => interleave(some(random)),
        6..8 if depth < 5 => condition(&filter(random, depth + 1)),
        8..11 => value_pattern(letters(random, 14)),
        11 => part(6, letters(random, 14)),
        12 => part(4, letters(random, 14)),
        13 => number(11, *random.pick(&[1, 2, (1 << 31) - 1])),
        14 => number(10, *random.pick(&[0, (1 << 31) - 1])),
        15 => number(12, 1),
        16 => number(16, 1),
        17 => number(13, 1),
        18 => part(19, "a"),
        _ => pass_all(),
    }
}

fn changed(random: &mut Rng, mut message: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.range(1..4) {
        let at = random.index(message.len() + 1);
        match random.range(0..4) {
            0 if at < message.len() => message[at] = random.next_u64() as u8,
            1 => drop(message.drain(at..message.len().min(at + 1 + random.index(4)))),
            2 => {
                let len = 1 + random.index(4);
                message.splice(at..at, random.bytes(len));
            }
            _ => {
                let piece = message[at.saturating_sub(6)..at].to_vec();
                message.splice(at..at, piece);
            }
        }
    }
    message
}

/// Calls of all kinds, half of them with bytes changed: an answer or a clear refusal comes to each.
pub(super) fn mutated_calls(scene: &Scene) -> Outcome {
    let (root, until, mut random) = (scene.caller("root"), scene.until(), scene.rng());
    let mut methods = super::rights::every_call("t");
    let ends = |method: &str| {
        ["/DeleteTable", "/DeleteInstance", "/UndeleteTable"].iter().any(|m| method.ends_with(m))
    };
    methods.retain(|(method, ..)| !ends(method) && !method.contains("Stream"));
    let (mut calls, mut answered) = (0, 0);
    while Instant::now() < until {
        let (method, sound) = match random.one_in(2) {
            true => {
                let (row, filter) = (letters(&mut random, 6), filter(&mut random, 0));
                ("ReadRows".to_string(), read_rows("other", &[&row], Some(&filter)))
            }
            false => {
                let (method, message, _) = random.pick(&methods).clone();
                (method, message)
            }
        };
        let message = if random.one_in(2) { changed(&mut random, sound) } else { sound };
        let hex = || message.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match root.call_within(&method, message.clone(), Duration::from_secs(5)) {
            Ok(_) => answered += 1,
            Err(e) if is_wrong(e.code()) => return Err(format!("{method} with {}: {e}", hex())),
            Err(_) => {}
        }
        calls += 1;
    }
    let state = format!("{OPERATOR}State");
    root.must(&state, Vec::new())?;
    Ok(format!("{calls} calls, {answered} answered"))
}

/// A code that none of our answers has, whatever was asked.
fn is_wrong(code: Code) -> bool {
    matches!(code, Code::Internal | Code::Unknown | Code::DataLoss | Code::DeadlineExceeded)
}
