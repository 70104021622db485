//! Connections, frames and streams that say little and cost much.

use super::wire::{
    CONTINUATION, Connection, DATA, DATA_FRAME, END_HEADERS, END_STREAM, HEADERS, HEALTH, PING, PREFACE,
    PRIORITY, RESET, SETTINGS, frame, framed, headers, hpack, read_rows, varint,
};
use super::{DEADLINE, Outcome, Scene, wire};
use crate::child::status_of;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Streams that are opened and left.
const LEFT_OPEN: u32 = 10_000;
/// What so many may take of memory, and how many of them may stay open.
const LEFT_OPEN_BYTES: u64 = 16 << 20;
const STAY_OPEN: usize = 512;
/// Streams that each say that a long message follows, what they say, and how much address space that may
/// take.
const CLAIMS: u32 = 150;
const CLAIM: &[u8] = b"\0\x10\x10\0\0";
const CLAIM_BYTES: u64 = 4 << 30;

/// Sends what `make` makes until the time is over or the connection is closed. How often it was sent, and
/// whether it was closed.
fn flood(
    scene: &Scene,
    mut connection: Connection,
    mut make: impl FnMut(&mut Connection) -> Vec<u8>,
) -> (u64, bool) {
    let (until, mut sent) = (scene.until(), 0);
    while Instant::now() < until && !connection.is_closed() {
        let bytes = make(&mut connection);
        if connection.send(&bytes).is_err() {
            return (sent, true);
        }
        sent += 1;
    }
    std::thread::sleep(DEADLINE / 10);
    (sent, connection.is_closed())
}

/// A flood of the same bytes, after which the connection may be open or not.
fn flood_of(scene: &Scene, connection: Connection, bytes: &[u8]) -> Outcome {
    let (sent, is_closed) = flood(scene, connection, |_| bytes.to_vec());
    Ok(format!("{} MiB of frames, closed: {is_closed}", (sent * bytes.len() as u64) >> 20))
}

/// A flood that nobody needs, so that the connection is to be closed.
fn must_be_closed(scene: &Scene, make: impl FnMut(&mut Connection) -> Vec<u8>) -> Outcome {
    match flood(scene, Connection::new(scene.port)?, make) {
        (sent, true) => Ok(format!("closed after {sent} batches")),
        (sent, false) => Err(format!("the connection stays open after {sent} batches")),
    }
}

pub(super) fn settings(scene: &Scene) -> Outcome {
    let window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]);
    flood_of(scene, Connection::new(scene.port)?, &window.repeat(500))
}

pub(super) fn pings(scene: &Scene) -> Outcome {
    flood_of(scene, Connection::new(scene.port)?, &frame(PING, 0, 0, b"12345678").repeat(500))
}

pub(super) fn pings_unread(scene: &Scene) -> Outcome {
    flood_of(scene, Connection::deaf(scene.port)?, &frame(PING, 0, 0, b"12345678").repeat(500))
}

pub(super) fn priorities(scene: &Scene) -> Outcome {
    let priority = frame(PRIORITY, 0, 1, b"\0\0\0\x03\x10");
    flood_of(scene, Connection::new(scene.port)?, &priority.repeat(500))
}

pub(super) fn unknown_frames(scene: &Scene) -> Outcome {
    flood_of(scene, Connection::new(scene.port)?, &frame(0x2a, 0, 0, &[b'x'; 100]).repeat(500))
}

pub(super) fn empty_data(scene: &Scene) -> Outcome {
    let mut connection = Connection::new(scene.port)?;
    let stream = connection.open(&scene.headers(&format!("{DATA}ReadRows"), "reader"))?;
    flood_of(scene, connection, &frame(DATA_FRAME, 0, stream, &[]).repeat(500))
}

/// Calls that are reset as soon as they are made.
pub(super) fn rapid_reset(scene: &Scene) -> Outcome {
    let block = scene.headers(&format!("{DATA}ReadRows"), "reader");
    let body = framed(&read_rows("t", &[b"x"], None));
    must_be_closed(scene, |connection| {
        let mut out = Vec::new();
        for _ in 0..200 {
            let stream = connection.stream();
            out.extend(frame(HEADERS, END_HEADERS, stream, &block));
            out.extend(frame(DATA_FRAME, END_STREAM, stream, &body));
            out.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
        }
        out
    })
}

/// A header block that does not end.
pub(super) fn continuations(scene: &Scene) -> Outcome {
    let block = scene.headers(&format!("{DATA}ReadRows"), "reader");
    let names: Vec<String> = (0..100).map(|n| format!("x-{n}")).collect();
    let value = "a".repeat(100);
    let fields: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
    let more = frame(CONTINUATION, 0, 1, &hpack(&fields));
    let mut has_begun = false;
    must_be_closed(scene, |_| match std::mem::replace(&mut has_begun, true) {
        false => frame(HEADERS, 0, 1, &block),
        true => more.clone(),
    })
}

/// One long value in the table of header fields, and then a thousand references to it in each block, of one
/// byte each.
pub(super) fn hpack_bomb(scene: &Scene) -> Outcome {
    let block = scene.headers(&format!("{DATA}ReadRows"), "reader");
    let value = [b'a'; 3_900];
    let literal = [&b"\x40\x03x-b\x7f"[..], &varint(value.len() as u64 - 127), &value].concat();
    let mut has_begun = false;
    let (sent, is_closed) = flood(scene, Connection::new(scene.port)?, |connection| {
        let rest = match std::mem::replace(&mut has_begun, true) {
            false => literal.clone(),
            true => vec![0xbe; 4_000],
        };
        let stream = connection.stream();
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &[&block[..], &rest].concat())
    });
    Ok(format!("{sent} blocks, closed: {is_closed}"))
}

/// Header blocks of a megabyte.
pub(super) fn large_headers(scene: &Scene) -> Outcome {
    let (until, mut sent) = (scene.until(), 0);
    let value = "a".repeat(10_000);
    while Instant::now() < until {
        let mut connection = Connection::new(scene.port)?;
        let stream = connection.stream();
        let mut out = frame(HEADERS, 0, stream, &scene.headers(&format!("{DATA}ReadRows"), "reader"));
        for n in 0..100 {
            let flags = if n == 99 { END_HEADERS } else { 0 };
            out.extend(frame(CONTINUATION, flags, stream, &hpack(&[("x-long", &value)])));
        }
        sent += u64::from(connection.send(&out).is_ok());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(format!("{sent} blocks of 1 MB"))
}

fn connect(port: u16) -> Result<TcpStream, String> {
    TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("connect: {e}"))
}

/// Bytes at random, with and without a sound beginning.
pub(super) fn nonsense(scene: &Scene) -> Outcome {
    let (until, mut random, mut sent) = (scene.until(), scene.rng(), 0);
    while Instant::now() < until {
        let mut socket = connect(scene.port)?;
        let bytes = random.bytes(4_096);
        let begun = if random.one_in(2) { PREFACE } else { Default::default() };
        sent += u64::from(socket.write_all(&[begun, &bytes].concat()).is_ok());
    }
    Ok(format!("{sent} connections"))
}

/// A sound beginning, a byte at a time, again and again.
pub(super) fn byte_by_byte(scene: &Scene) -> Outcome {
    let mut sockets = Vec::new();
    for _ in 0..100 {
        sockets.push(connect(scene.port)?);
    }
    let until = scene.until();
    for byte in PREFACE.iter().cycle().take_while(|_| Instant::now() < until) {
        sockets.retain_mut(|socket| socket.write_all(&[*byte]).is_ok());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(format!("{} of 100 connections stay", sockets.len()))
}

/// Connections that close at once.
pub(super) fn connections(scene: &Scene) -> Outcome {
    let (until, mut opened) = (scene.until(), 0_u64);
    while Instant::now() < until && opened < 10_000 {
        drop(connect(scene.port)?);
        opened += 1;
    }
    Ok(format!("{opened} connections"))
}

/// Opens streams with that header block and what follows it, and leaves them; few may stay, and they may not
/// take much memory. Of those whose request stays open (`halves`) only a reset ends them.
fn leave_open(scene: &Scene, block: &[u8], halves: bool, rest: impl Fn(u32) -> Vec<u8>) -> Outcome {
    let mut connection = Connection::new(scene.port)?;
    let (before, mut opened) = (scene.memory(), 0);
    while opened < LEFT_OPEN && !connection.is_closed() {
        let mut out = Vec::new();
        for _ in 0..200 {
            let stream = connection.stream();
            out.extend(frame(HEADERS, END_HEADERS, stream, block));
            out.extend(rest(stream));
        }
        if connection.send(&out).is_err() {
            break;
        }
        opened += 200;
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(scene.lasts.min(Duration::from_secs(2)));
    let grown = scene.memory().saturating_sub(before);
    let ends = if halves { connection.resets() } else { connection.ends() };
    let stay = if connection.is_closed() { 0 } else { (opened as usize).saturating_sub(ends) };
    let said = format!(
        "{opened} streams on a connection, {stay} stay, {} MiB more; the limit that it tells is {:?}",
        grown >> 20,
        connection.streams_max()
    );
    if grown <= LEFT_OPEN_BYTES && stay <= STAY_OPEN { Ok(said) } else { Err(said) }
}

/// Questions for the server's health, without a token and without an end.
pub(super) fn health_checks(scene: &Scene) -> Outcome {
    leave_open(scene, &headers(&format!("{HEALTH}Check"), None), true, |_| Vec::new())
}

/// Requests to watch the server's health, without a token and without an end.
pub(super) fn health_watches(scene: &Scene) -> Outcome {
    let rest = |stream| frame(DATA_FRAME, END_STREAM, stream, &framed(&[]));
    leave_open(scene, &headers(&format!("{HEALTH}Watch"), None), false, rest)
}

pub(super) fn half_open_reads(scene: &Scene) -> Outcome {
    leave_open(scene, &headers(&format!("{DATA}ReadRows"), None), true, |_| Vec::new())
}

/// Streams that each say that 257 MiB follow, as a write may have: nothing may be reserved for what has not
/// come.
pub(super) fn claimed_lengths(scene: &Scene) -> Outcome {
    let mut connection = Connection::new(scene.port)?;
    let (before, block) = (status_of(scene.process, "VmPeak:"), headers(&format!("{DATA}MutateRows"), None));
    for _ in 0..CLAIMS {
        let stream = connection.open(&block)?;
        if connection.send(&frame(DATA_FRAME, 0, stream, CLAIM)).is_err() {
            break;
        }
    }
    std::thread::sleep(DEADLINE / 4);
    let refused = connection.answered() + connection.resets() as u64;
    if refused > u64::from(CLAIMS) / 2 {
        return Err(format!("{refused} of {CLAIMS} claims are refused before anything is reserved for them"));
    }
    std::thread::sleep(scene.lasts);
    let grown = status_of(scene.process, "VmPeak:").saturating_sub(before);
    let said = format!("{CLAIMS} claims reserve {} MiB of addresses", grown >> 20);
    if grown <= CLAIM_BYTES { Ok(said) } else { Err(said) }
}

/// Connections that say nothing, as many as there may be.
pub(super) fn silent_sockets(scene: &Scene) -> Outcome {
    let mut sockets = Vec::new();
    for _ in 0..64 {
        sockets.push(connect(scene.port)?);
    }
    let health = scene.get("/healthz")?.0;
    if health != 200 {
        return Err(format!("/healthz answers {health} beside silent connections"));
    }
    std::thread::sleep(scene.lasts);
    if !scene.is_longer_than(15) {
        return Ok("64 silent connections; not long enough to see them closed".into());
    }
    scene.caller("root").must("ReadRows", read_rows("t", &[b"row"], None))?;
    Ok("64 silent connections are closed, and others get in".into())
}

/// Connections to the status page with half a request each, as many as there may be.
pub(super) fn half_requests(scene: &Scene) -> Outcome {
    let mut sockets = Vec::new();
    for _ in 0..64 {
        let mut socket = connect(scene.http)?;
        socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-a: ").map_err(|e| e.to_string())?;
        sockets.push(socket);
    }
    let until = scene.until();
    let mut answers = 0;
    loop {
        let health = wire::get(scene.http, "/healthz", "127.0.0.1", None, DEADLINE)?.0;
        if health != 200 {
            return Err(format!("/healthz answers {health} beside half requests"));
        }
        answers += 1;
        if Instant::now() >= until {
            return Ok(format!("/healthz answers {answers} times beside 64 half requests"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
