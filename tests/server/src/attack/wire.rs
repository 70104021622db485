//! Messages and frames written by hand, as those of attackers are: sound clients could not send most of them.

use bytes::{Buf, BufMut};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

// ---- messages

pub(super) const DATA: &str = "/google.bigtable.v2.Bigtable/";
pub(super) const ADMIN: &str = "/google.bigtable.admin.v2.BigtableTableAdmin/";
pub(super) const HEALTH: &str = "/grpc.health.v1.Health/";
pub(super) const OPERATOR: &str = "/siltstone.v1.Operator/";

pub(super) fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number > 127 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// A field of a number.
pub(super) fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field of bytes, of text, or of a message.
pub(super) fn part(field: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [&varint(field << 3 | 2)[..], &varint(value.len() as u64), value].concat()
}

/// The fields of bytes in a message: number and value. What does not read ends them.
pub(super) fn parts(message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = message;
    while let Ok(key) = prost::encoding::decode_varint(&mut rest) {
        let bytes = match key & 7 {
            0 if prost::encoding::decode_varint(&mut rest).is_ok() => continue,
            1 => 8,
            2 => match prost::encoding::decode_varint(&mut rest) {
                Ok(bytes) => bytes as usize,
                Err(_) => break,
            },
            5 => 4,
            _ => break,
        };
        let Some((value, behind)) = rest.split_at_checked(bytes) else { break };
        if key & 7 == 2 {
            found.push((key >> 3, value.to_vec()));
        }
        rest = behind;
    }
    found
}

/// The full name of a table.
pub(super) fn table(name: &str) -> String {
    format!("{}/tables/{name}", crate::child::INSTANCE)
}

/// The full name of a backup.
pub(super) fn backup(name: &str) -> String {
    format!("{}/backups/{name}", cluster())
}

pub(super) fn cluster() -> String {
    format!("{}/clusters/siltstone", crate::child::INSTANCE)
}

/// `SetCell`, as a mutation.
pub(super) fn set_cell(qualifier: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    part(1, [part(1, "f"), part(2, qualifier), number(3, 1_000), part(4, value)].concat())
}

pub(super) fn mutate_row(table_id: &str, row: impl AsRef<[u8]>, mutations: &[Vec<u8>]) -> Vec<u8> {
    let mutations: Vec<u8> = mutations.iter().flat_map(|mutation| part(3, mutation)).collect();
    [part(1, table(table_id)), part(2, row), mutations].concat()
}

/// `ReadRows` of these rows, of all where there are none.
pub(super) fn read_rows(table_id: &str, rows: &[&[u8]], filter: Option<&[u8]>) -> Vec<u8> {
    let mut out = part(1, table(table_id));
    if !rows.is_empty() {
        let rows: Vec<u8> = rows.iter().flat_map(|row| part(1, row)).collect();
        out.extend(part(2, rows));
    }
    out.extend(filter.map(|filter| part(3, filter)).unwrap_or_default());
    out
}

pub(super) fn value_pattern(pattern: impl AsRef<[u8]>) -> Vec<u8> {
    part(9, pattern)
}

pub(super) fn chain(filters: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    part(1, filters.into_iter().flat_map(|filter| part(1, filter)).collect::<Vec<u8>>())
}

pub(super) fn interleave(filters: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    part(2, filters.into_iter().flat_map(|filter| part(1, filter)).collect::<Vec<u8>>())
}

/// A condition that is true of every row, with that filter.
pub(super) fn condition(filter: &[u8]) -> Vec<u8> {
    part(3, [part(1, pass_all()), part(2, filter), part(3, filter)].concat())
}

pub(super) fn pass_all() -> Vec<u8> {
    number(17, 1)
}

/// `CreateTable` with one family, whose GC rule is that.
pub(super) fn create_table(table_id: &str, rule: &[u8]) -> Vec<u8> {
    let family = if rule.is_empty() { Vec::new() } else { part(1, rule) };
    let entry = |name: &str, family: &[u8]| part(3, [part(1, name), part(2, family)].concat());
    let described = [entry("f", &family), entry("g", &[])].concat();
    [part(1, crate::child::INSTANCE), part(2, table_id), part(3, described)].concat()
}

/// Seconds since 1970, so many from now.
pub(super) fn in_seconds(seconds: u64) -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs()) + seconds
}

pub(super) fn create_backup(parent: &str, id: &str, source: &str) -> Vec<u8> {
    let described = [part(2, source), part(3, number(1, in_seconds(86_400)))].concat();
    [part(1, parent), part(2, id), part(3, described)].concat()
}

pub(super) fn copy_backup(id: &str, source: &str) -> Vec<u8> {
    let expires = number(1, in_seconds(86_400));
    [part(1, cluster()), part(2, id), part(3, backup(source)), part(4, expires)].concat()
}

/// A message behind its prefix.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend((message.len() as u32).to_be_bytes());
    out.extend(message);
    out
}

/// Messages as bytes, both ways.
#[derive(Clone, Copy, Default)]
pub(super) struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

// ---- HTTP/2

pub(super) const DATA_FRAME: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
const GO_AWAY: u8 = 7;
pub(super) const WINDOW: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a stream, and of a connection, that may be sent before the receiver gives more room.
const FIRST_WINDOW: i64 = 65_535;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + payload.len());
    out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Header fields as literals that are never indexed, so that a block can be sent again and again.
pub(super) fn hpack(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let mut out = match text.len() {
            short @ 0..127 => vec![short as u8],
            long => [vec![127], varint(long as u64 - 127)].concat(),
        };
        out.extend(text.as_bytes());
        out
    };
    fields.iter().flat_map(|(name, value)| [vec![0x10], text(name), text(value)].concat()).collect()
}

/// The header block of a call, with that token if there is one.
pub(super) fn headers(method: &str, token: Option<&str>) -> Vec<u8> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "127.0.0.1"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    fields.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    hpack(&fields)
}

/// What the other end has said.
#[derive(Default)]
struct Said {
    room: i64,
    rooms: HashMap<u32, i64>,
    first_window: i64,
    /// Streams that it has reset.
    resets: HashMap<u32, u32>,
    /// Streams that it has ended.
    ended: HashSet<u32>,
    is_closed: bool,
    streams_max: Option<u32>,
    answered: u64,
}

struct Heard {
    said: Mutex<Said>,
    changed: Condvar,
}

impl Heard {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().expect("who listens does not panic")
    }
}

/// A connection of HTTP/2 on which anything can be sent. Closed with this.
pub(super) struct Connection {
    socket: TcpStream,
    heard: Arc<Heard>,
    next: u32,
}

impl Connection {
    /// One that takes what is sent.
    pub(super) fn new(port: u16) -> Result<Self, String> {
        Self::with(port, true, true)
    }

    /// One whose streams have no room for a byte of an answer.
    pub(super) fn without_room(port: u16) -> Result<Self, String> {
        Self::with(port, false, true)
    }

    /// One that does not even read.
    pub(super) fn deaf(port: u16) -> Result<Self, String> {
        Self::with(port, true, false)
    }

    fn with(port: u16, takes: bool, reads: bool) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("a connection: {e}");
        let socket = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_write_timeout(Some(Duration::from_secs(3))).map_err(failed)?;
        let said = Said { room: FIRST_WINDOW, first_window: FIRST_WINDOW, ..Said::default() };
        let heard = Arc::new(Heard { said: Mutex::new(said), changed: Condvar::new() });
        let mut connection = Self { socket, heard, next: 1 };
        let window = if takes { Vec::new() } else { [&4_u16.to_be_bytes()[..], &[0; 4]].concat() };
        connection.send(&[PREFACE, &frame(SETTINGS, 0, 0, &window)].concat())?;
        if takes {
            let all = (i32::MAX as u32 - FIRST_WINDOW as u32).to_be_bytes();
            connection.send(&frame(WINDOW, 0, 0, &all))?;
        }
        if reads {
            let (socket, heard) = (connection.socket.try_clone().map_err(failed)?, connection.heard.clone());
            std::thread::spawn(move || {
                let _ = listen(socket, &heard);
                heard.said().is_closed = true;
                heard.changed.notify_all();
            });
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(connection)
    }

    /// Sends these bytes; an error where the connection is closed, or takes nothing for seconds.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.socket.write_all(bytes).map_err(|e| format!("send: {e}"))
    }

    /// The number of the next stream.
    pub(super) fn stream(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Begins a stream with that header block.
    pub(super) fn open(&mut self, block: &[u8]) -> Result<u32, String> {
        let stream = self.stream();
        self.send(&frame(HEADERS, END_HEADERS, stream, block)).map(|()| stream)
    }

    /// Begins a stream and sends a whole request on it.
    pub(super) fn call(&mut self, block: &[u8], message: &[u8]) -> Result<u32, String> {
        let stream = self.stream();
        let begin = frame(HEADERS, END_HEADERS, stream, block);
        self.send(&[begin, frame(DATA_FRAME, END_STREAM, stream, &framed(message))].concat())?;
        Ok(stream)
    }

    /// Sends as much of a body as the other end gives room for; it waits for more so long. How much was sent.
    pub(super) fn body(&mut self, stream: u32, bytes: &[u8], wait: Duration) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            let size = {
                let mut said = self.heard.said();
                let began = Instant::now();
                loop {
                    let of_stream = said.rooms.get(&stream).copied().unwrap_or(said.first_window);
                    let room = said.room.min(of_stream).min(16_384).min((bytes.len() - sent) as i64);
                    if said.is_closed || said.resets.contains_key(&stream) {
                        break 0;
                    }
                    if room > 0 {
                        said.room -= room;
                        said.rooms.insert(stream, of_stream - room);
                        break room as usize;
                    }
                    if began.elapsed() >= wait {
                        break 0;
                    }
                    said = self
                        .heard
                        .changed
                        .wait_timeout(said, Duration::from_millis(50))
                        .expect("who listens does not panic")
                        .0;
                }
            };
            let piece = &bytes[sent..sent + size];
            if size == 0 || self.send(&frame(DATA_FRAME, 0, stream, piece)).is_err() {
                break;
            }
            sent += size;
        }
        sent
    }

    /// Whether the other end has closed it, or said that it will.
    pub(super) fn is_closed(&self) -> bool {
        self.heard.said().is_closed
    }

    /// How many streams the other end has reset.
    pub(super) fn resets(&self) -> usize {
        self.heard.said().resets.len()
    }

    /// How many streams the other end has ended, or reset.
    pub(super) fn ends(&self) -> usize {
        let said = self.heard.said();
        said.resets.len() + said.ended.iter().filter(|stream| !said.resets.contains_key(stream)).count()
    }

    /// How many answers have begun.
    pub(super) fn answered(&self) -> u64 {
        self.heard.said().answered
    }

    /// How many streams the other end says it takes at a time.
    pub(super) fn streams_max(&self) -> Option<u32> {
        self.heard.said().streams_max
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Reads frames until the connection ends, and acknowledges what is to be.
fn listen(mut socket: TcpStream, heard: &Heard) -> std::io::Result<()> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & i32::MAX as u32;
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload)?;
        let word = |at: usize| {
            payload.get(at..at + 4).map_or(0, |word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        };
        {
            let mut said = heard.said();
            if [HEADERS, DATA_FRAME].contains(&kind) && flags & END_STREAM != 0 {
                said.ended.insert(stream);
            }
            match kind {
                HEADERS => said.answered += 1,
                SETTINGS if flags & 1 == 0 => {
                    for at in (0..payload.len() / 6 * 6).step_by(6) {
                        let value = word(at + 2);
                        match payload[at + 1] {
                            3 => said.streams_max = Some(value),
                            4 => {
                                let more = i64::from(value) - said.first_window;
                                said.rooms.values_mut().for_each(|room| *room += more);
                                said.first_window = i64::from(value);
                            }
                            _ => {}
                        }
                    }
                }
                WINDOW if stream == 0 => said.room += i64::from(word(0)),
                WINDOW => {
                    let first = said.first_window;
                    *said.rooms.entry(stream).or_insert(first) += i64::from(word(0));
                }
                RESET => _ = said.resets.insert(stream, word(0)),
                GO_AWAY => said.is_closed = true,
                _ => {}
            }
            heard.changed.notify_all();
        }
        match kind {
            SETTINGS if flags & 1 == 0 => socket.write_all(&frame(SETTINGS, 1, 0, &[]))?,
            PING if flags & 1 == 0 => socket.write_all(&frame(PING, 1, 0, &payload))?,
            _ => {}
        }
    }
}

// ---- HTTP/1

/// What the page's port answers: the status, and all of it as text. An error where nothing comes in time.
pub(super) fn get(
    port: u16,
    path: &str,
    host: &str,
    token: Option<&str>,
    wait: Duration,
) -> Result<(u16, String), String> {
    let failed = |e: std::io::Error| format!("GET {path}: {e}");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    socket.set_read_timeout(Some(wait)).map_err(failed)?;
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}Connection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).map_err(failed)?;
    let (mut answer, began, mut piece) = (Vec::new(), Instant::now(), [0; 4_096]);
    loop {
        match socket.read(&mut piece).map_err(failed)? {
            0 => break,
            _ if began.elapsed() > wait => return Err(format!("GET {path}: no end of the answer in time")),
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.map(|status| (status, text)).ok_or_else(|| format!("GET {path}: no answer"))
}
