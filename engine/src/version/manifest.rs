//! The manifest: the durable list of edits, and `CURRENT`, the name of the manifest in force.
//!
//! An edit is one record, synced before anything relies on it. A record cut short by a crash was never relied
//! on, so an unreadable tail is the end; that the tail was really never relied on is checked against the
//! notes that the WAL carries (see `wal`), which say how long the manifest was known to be. Every open starts
//! a fresh manifest holding the whole state, so nothing is ever appended behind a torn tail, and so does a
//! commit after a failed write. A failed *sync* poisons: whether the edit will be seen is unknown until the
//! next open.
//!
//! In a shared database the edits go into its stream instead, and the whole state into checkpoints beside it;
//! there are no files.
//!
//! Layouts: docs/format.md. This file does not know what the edits mean.

use super::code;
use super::edit::{Change, Edit, State};
use super::sums::Sums;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{
    Env, SMALL_FILE_BYTES, Storage, WriteFile, begins_with, create_over_own, is_own, read_file, remove_own,
};
use crate::stream::{Outbox, Start};
use crate::types::codec::{put_u32, put_u64};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MANIFEST_MAGIC: &[u8; 8] = b"SILTMNF1";
const CURRENT_MAGIC: &[u8; 8] = b"SILTCUR1";
/// Magic, database id, number, crc.
const HEADER_BYTES: usize = 28;
/// Length, crc.
const RECORD_HEADER_BYTES: usize = 8;
/// A record longer than this was never written.
const RECORD_BYTES_MAX: usize = 1 << 30;
/// A manifest longer than this was never written: it is begun anew long before.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 2 << 30;
pub(crate) const CURRENT: &str = "CURRENT";
/// The file that is removed when the disk is full, so that compactions and removals can still be recorded.
pub(crate) const RESERVE: &str = "RESERVE";
const RESERVE_BYTES: u64 = 256 << 10;
const RESERVE_MAGIC: &[u8; 8] = b"SILTRSV1";
/// The next `CURRENT`, until it takes its name.
pub(crate) const CURRENT_NEW: &str = "CURRENT.new";

/// The number of a manifest, and how much of it is durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) length: u64,
}

/// A manifest as found on disk.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) state: State,
    /// The manifest, and the length of its readable part.
    pub(crate) mark: Mark,
}

/// The manifest being written.
pub(crate) struct Manifest {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) state: State,
    pub(super) mark: Mark,
    pub(super) file: Option<Box<dyn WriteFile>>,
    /// Length of the record that held the whole state.
    pub(super) base: u64,
    pub(super) poisoned: bool,
    /// The way into the stream of a shared database.
    pub(super) shared: Option<Sharing>,
}

/// How a shared database keeps its manifest.
pub(super) struct Sharing {
    pub(super) outbox: Arc<Outbox>,
    /// From where readers start, if something can be collected.
    pub(super) collect: Option<Start>,
}

pub(crate) fn file_name(number: u64) -> String {
    format!("manifest-{number:08}")
}

pub(crate) fn parse_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("manifest-")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// Whether a file with the name of a manifest was made here: for that database, or for any.
pub(crate) fn is_own_manifest(
    storage: &dyn Storage,
    path: &Path,
    database: Option<u64>,
) -> std::io::Result<bool> {
    is_own(storage, path, |head| is_of(head, MANIFEST_MAGIC, database))
}

/// Removes a next `CURRENT` that a crash has left.
pub(crate) fn remove_unfinished(env: &Env, dir: &Path) {
    remove_own(&*env.storage, &dir.join(CURRENT_NEW), |head| begins_with(head, CURRENT_MAGIC));
}

/// Whether the file at `path` is a next `CURRENT` that a crash has left, or could be taken for one.
pub(crate) fn is_unfinished(storage: &dyn Storage, path: &Path) -> std::io::Result<bool> {
    is_own(storage, path, |head| begins_with(head, CURRENT_MAGIC))
}

fn is_of(head: &[u8], magic: &[u8; 8], database: Option<u64>) -> bool {
    let id = database.map(u64::to_le_bytes);
    begins_with(head, magic) && id.is_none_or(|id| head.get(8..16).is_none_or(|found| found == id))
}

fn crc(bytes: &[u8], database: u64, number: u64, offset: u64) -> u32 {
    work!(bytes.len());
    let mut crc = crc32c::crc32c(&database.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &offset.to_le_bytes());
    crc32c::crc32c_append(crc, bytes)
}

fn header(magic: &[u8; 8], database: u64, number: u64) -> Vec<u8> {
    let mut out = magic.to_vec();
    put_u64(&mut out, database);
    put_u64(&mut out, number);
    let sum = crc(&out, database, number, 0);
    put_u32(&mut out, sum);
    out
}

/// The (database, number) of a file's header.
fn check_header(bytes: &[u8], magic: &[u8; 8], path: &Path) -> Result<(u64, u64)> {
    let wrong = |what: String| Error::corruption(path, 0, what);
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(wrong(format!("file is {} bytes, expected at least {HEADER_BYTES}", bytes.len())));
    };
    if head[..7] != magic[..7] {
        return Err(wrong(format!(
            "magic is \"{}\", expected \"{}\"",
            head[..8].escape_ascii(),
            magic.escape_ascii()
        )));
    }
    if head[7] != magic[7] {
        let message = format!(
            "{} has format version {}, this release reads {}",
            path.display(),
            head[7] as char,
            magic[7] as char
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let number_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    let (database, number) = (number_at(8), number_at(16));
    let found = u32::from_le_bytes(std::array::from_fn(|i| head[24 + i]));
    let expected = crc(&head[..24], database, number, 0);
    if found != expected {
        return Err(wrong(format!("header checksum is {found:08x}, expected {expected:08x}")));
    }
    Ok((database, number))
}

/// The (database, number) of the manifest in force; `None` when the directory holds no database.
pub(crate) fn current(env: &Env, dir: &Path) -> Result<Option<(u64, u64)>> {
    read_current(env, &dir.join(CURRENT))
}

/// Reads a file in the format of `CURRENT`; `None` when it does not exist.
pub(crate) fn read_current(env: &Env, path: &Path) -> Result<Option<(u64, u64)>> {
    if !env.storage.exists(path).map_err(|e| Error::io("look for", path, e))? {
        return Ok(None);
    }
    let bytes = read_file(env, path, SMALL_FILE_BYTES)?;
    let found = check_header(&bytes, CURRENT_MAGIC, path)?;
    if bytes.len() != HEADER_BYTES {
        return Err(Error::corruption(path, HEADER_BYTES as u64, "bytes behind the end, expected none"));
    }
    Ok(Some(found))
}

/// A manifest file that holds the whole state and nothing else.
pub(crate) fn encode_whole(state: &State, number: u64) -> Vec<u8> {
    let payload = code::encode(&state.to_edit());
    let mut bytes = header(MANIFEST_MAGIC, state.database, number);
    put_u32(&mut bytes, payload.len() as u32);
    put_u32(&mut bytes, crc(&payload, state.database, number, HEADER_BYTES as u64));
    bytes.extend_from_slice(&payload);
    bytes
}

/// The edit of a record's payload; the error says why it is none.
pub(crate) fn decoded(payload: &[u8]) -> std::result::Result<Edit, String> {
    code::decode(payload).map_err(|e| format!("manifest record: {}", e.0))
}

/// Applies an edit to the state; the error says why it cannot follow what came before.
pub(crate) fn apply_edit(state: &mut State, edit: &[Change]) -> std::result::Result<(), String> {
    let mut applied = edit.iter().map(|change| state.apply(change));
    applied.try_for_each(|one| one).map_err(|why| format!("manifest record does not apply: {why}"))
}

/// Applies an encoded edit to the state; the error says why it cannot follow what came before.
pub(crate) fn apply_encoded(state: &mut State, payload: &[u8]) -> std::result::Result<(), String> {
    apply_edit(state, &decoded(payload)?)
}

/// Reads the manifest in force; `None` when the directory holds no database. A marked one is an error.
pub(crate) fn load(env: &Env, dir: &Path) -> Result<Option<Loaded>> {
    let loaded = load_marked(env, dir)?;
    match loaded.as_ref().and_then(|loaded| loaded.state.shared.as_ref()) {
        Some(mark) => Err(mark.refusal(dir)),
        None => Ok(loaded),
    }
}

/// Reads the manifest in force like [`load`], also a marked one.
pub(crate) fn load_marked(env: &Env, dir: &Path) -> Result<Option<Loaded>> {
    let Some((database, number)) = current(env, dir)? else { return Ok(None) };
    let path = dir.join(file_name(number));
    if !env.storage.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        return Err(Error::corruption(&path, 0, "manifest is missing, expected it by CURRENT"));
    }
    let bytes = read_file(env, &path, MANIFEST_BYTES_MAX)?;
    parse(&bytes, &path, database, number).map(Some)
}

/// Decodes the manifest of that database and number.
pub(crate) fn parse(bytes: &[u8], path: &Path, database: u64, number: u64) -> Result<Loaded> {
    let (found_database, found_number) = check_header(bytes, MANIFEST_MAGIC, path)?;
    if (found_database, found_number) != (database, number) {
        let message = format!(
            "manifest says it is number {found_number} of database {found_database:016x}, expected {number} of {database:016x}"
        );
        return Err(Error::corruption(path, 8, message));
    }
    let mut state = State::default();
    let mut at = HEADER_BYTES;
    while let Some(payload) = record(bytes, at, database, number) {
        apply_encoded(&mut state, payload).map_err(|what| match code::has_unknown(payload) {
            true => {
                let message = format!("{} has a change that this release does not know", path.display());
                Error::new(ErrorKind::Unsupported, message)
            }
            false => Error::corruption(path, at as u64, what),
        })?;
        at += RECORD_HEADER_BYTES + payload.len();
    }
    if at == HEADER_BYTES {
        return Err(Error::corruption(
            path,
            at as u64,
            "first manifest record is unreadable, expected the whole state",
        ));
    }
    if state.database != database {
        return Err(Error::corruption(path, at as u64, "manifest is of another database"));
    }
    // Behind the tail nothing may be readable: a whole record there means that one before it rotted.
    let tail = Tail { tail: &bytes[at..], sums: Sums::new(&bytes[at..]), at, database, number };
    if let Some((later, _)) = tail.next_record(at + 1) {
        let message =
            format!("manifest record is unreadable, expected a valid one before the one at byte {later}");
        return Err(Error::corruption(path, at as u64, message));
    }
    Ok(Loaded { state, mark: Mark { number, length: at as u64 } })
}

/// The files that [`Manifest::start`] makes. The last of them is the one that makes the directory a database.
pub(crate) fn files_of_start(number: u64) -> [String; 4] {
    [file_name(number), RESERVE.into(), CURRENT_NEW.into(), CURRENT.into()]
}

/// Removes the reserve in the directory, to make room on a full disk; whether there was one.
pub(crate) fn free_reserve(env: &Env, dir: &Path) -> bool {
    let path = dir.join(RESERVE);
    is_own_reserve(&*env.storage, &path).is_ok_and(|own| own) && env.storage.remove(&path).is_ok()
}

/// Whether the reserve at that path was made by a database.
pub(crate) fn is_own_reserve(storage: &dyn Storage, path: &Path) -> std::io::Result<bool> {
    is_own(storage, path, |head| begins_with(head, RESERVE_MAGIC))
}

/// The readable part of a damaged manifest.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    pub(crate) state: State,
    pub(crate) mark: Mark,
    /// Unreadable bytes in front of a readable record: the changes in them are not in the state.
    pub(crate) lost: Vec<std::ops::Range<u64>>,
}

/// Reads what can be read of that manifest, whether in force or not; `None` when not one record can. A
/// record's checksum depends on database, number and offset, so the header is only asked when `database` is
/// not known.
pub(crate) fn salvage(env: &Env, dir: &Path, number: u64, database: Option<u64>) -> Option<Salvaged> {
    let path = dir.join(file_name(number));
    let bytes = read_file(env, &path, MANIFEST_BYTES_MAX).ok()?;
    let by_header = check_header(&bytes, MANIFEST_MAGIC, &path).ok().filter(|(_, n)| *n == number);
    let database = by_header.map(|(database, _)| database).or(database)?;
    let mut found = Salvaged { mark: Mark { number, length: HEADER_BYTES as u64 }, ..Salvaged::default() };
    let mut at = HEADER_BYTES;
    let tail = Tail { tail: &bytes, sums: Sums::new(&bytes), at: 0, database, number };
    while let Some((next, payload)) = tail.next_record(at) {
        if next > at {
            found.lost.push(at as u64..next as u64);
        }
        for change in code::decode(payload).unwrap_or_default() {
            found.state.apply_what_fits(&change);
        }
        at = next + RECORD_HEADER_BYTES + payload.len();
        found.mark.length = at as u64;
    }
    found.state.database = database;
    (found.mark.length > HEADER_BYTES as u64).then_some(found)
}

/// The numbers of all manifests in the directory, in force or not, highest first.
pub(crate) fn numbers(env: &Env, dir: &Path) -> Result<Vec<u64>> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_file_name(name)).collect();
    numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
    Ok(numbers)
}

/// A manifest from some offset on, in which records are looked for.
struct Tail<'a> {
    tail: &'a [u8],
    sums: Sums<'a>,
    /// Its offset in the manifest.
    at: usize,
    database: u64,
    number: u64,
}

impl<'a> Tail<'a> {
    /// The first whole record at or behind that offset of the manifest, and its payload. Takes time in
    /// proportion to the bytes looked at, whatever they are.
    fn next_record(&self, from: usize) -> Option<(usize, &'a [u8])> {
        (from - self.at..self.tail.len()).find_map(|within| {
            let (head, rest) = self.tail[within..].split_at_checked(RECORD_HEADER_BYTES)?;
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
            let (len, sum) = (word(0) as usize, word(4));
            if len == 0 || len > RECORD_BYTES_MAX || len > rest.len() {
                return None;
            }
            let begin = within + RECORD_HEADER_BYTES;
            let seed = crc(&[], self.database, self.number, (self.at + within) as u64);
            let is_whole = self.sums.append(seed, begin, begin + len) == sum;
            is_whole.then(|| (self.at + within, &self.tail[begin..begin + len]))
        })
    }
}

/// The payload of the record at that offset, if it is whole.
fn record(bytes: &[u8], at: usize, database: u64, number: u64) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let (len, rest) = rest.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let len = u32::from_le_bytes(*len) as usize;
    if len == 0 || len > RECORD_BYTES_MAX {
        return None;
    }
    let payload = rest.get(..len)?;
    (crc(payload, database, number, at as u64) == u32::from_le_bytes(*sum)).then_some(payload)
}

impl Manifest {
    /// Writes a fresh manifest with the whole state and makes it the one in force.
    pub(crate) fn start(env: &Env, dir: &Path, number: u64, state: State) -> Result<Manifest> {
        let mark = Mark { number: number - 1, length: 0 };
        let (env, dir) = (env.clone(), dir.to_path_buf());
        let mut manifest =
            Manifest { env, dir, state, mark, file: None, base: 0, poisoned: false, shared: None };
        match manifest.rotate() {
            Err(e) if e.kind() == ErrorKind::DiskFull && manifest.free_reserve() => manifest.rotate()?,
            rotated => rotated?,
        }
        Ok(manifest)
    }

    /// The manifest of a database that is only read: every commit is refused.
    pub(crate) fn read_only(env: &Env, dir: &Path, mark: Mark, state: State) -> Manifest {
        let (env, dir) = (env.clone(), dir.to_path_buf());
        Manifest { env, dir, state, mark, file: None, base: 0, poisoned: true, shared: None }
    }

    /// Whether no commit can succeed any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Makes the edit durable, then part of the state. After an error the state is as before; whether the
    /// edit will be found after a crash is unknown, so what it hands over must be kept.
    pub(crate) fn commit(&mut self, edit: &Edit) -> Result<Mark> {
        if self.poisoned {
            return Err(Error::new(
                ErrorKind::Poisoned,
                "a sync of the manifest failed before; reopen the database",
            ));
        }
        // In place, so that an edit costs what it changes and not what there is.
        let before = self.state.before(edit);
        let applied = edit.iter().try_for_each(|change| self.state.apply(change));
        let applied = applied.map_err(|why| Error::invalid(format!("edit does not apply: {why}")));
        let committed = applied.and_then(|()| self.make_durable(edit));
        if committed.is_err() {
            self.state.take_back(before);
        }
        committed.map(|()| self.mark)
    }

    /// Makes an edit durable that is part of the state already.
    fn make_durable(&mut self, edit: &Edit) -> Result<()> {
        if self.shared.is_some() {
            return self.share(edit);
        }
        let grown = self.mark.length > (4 * self.base).max(256 << 10);
        if self.file.is_some() && !grown {
            match self.append(edit) {
                Err(e) if e.kind() == ErrorKind::DiskFull && self.free_reserve() => {}
                appended => return appended,
            }
        }
        match self.rotate() {
            Err(e) if e.kind() == ErrorKind::DiskFull && self.free_reserve() => self.rotate(),
            rotated => rotated,
        }
    }

    /// Removes the reserve to make room on a full disk; whether there was one.
    pub(crate) fn free_reserve(&self) -> bool {
        !self.poisoned && self.shared.is_none() && free_reserve(&self.env, &self.dir)
    }

    /// Puts the reserve back where there is room; without it the database works just as well until the disk
    /// is full.
    pub(crate) fn make_reserve(&self) {
        let (path, storage) = (self.dir.join(RESERVE), &self.env.storage);
        if self.poisoned
            || self.shared.is_some()
            || storage.exists(&path).unwrap_or(true)
            || storage.create(&path).is_err()
        {
            return;
        }
        let reserved = storage.map(&path, RESERVE_BYTES, false);
        let named = reserved.and_then(|file| file.write(0, &header(RESERVE_MAGIC, self.state.database, 0)));
        if named.is_err() {
            let _ = storage.remove(&path);
        }
    }

    fn append(&mut self, edit: &[Change]) -> Result<()> {
        let path = self.dir.join(file_name(self.mark.number));
        let payload = code::encode(edit);
        let mut bytes = Vec::with_capacity(payload.len() + RECORD_HEADER_BYTES);
        put_u32(&mut bytes, payload.len() as u32);
        put_u32(&mut bytes, crc(&payload, self.state.database, self.mark.number, self.mark.length));
        bytes.extend_from_slice(&payload);
        let file = self.file.as_mut().expect("commit rotates when there is no file");
        if let Err(e) = file.write(&bytes) {
            // The tail is unknown now: the next commit starts a fresh file.
            self.file = None;
            return Err(Error::io("append to the manifest", path, e));
        }
        kill_point!("manifest-appended-not-synced");
        if let Err(e) = file.sync() {
            self.poisoned = true;
            return Err(Error::io("sync the manifest", path, e));
        }
        kill_point!("manifest-appended");
        self.mark.length += bytes.len() as u64;
        Ok(())
    }

    /// Starts the next file with the whole state.
    fn rotate(&mut self) -> Result<()> {
        let old = self.mark;
        let number = old.number + 1;
        let path = self.dir.join(file_name(number));
        let written = self.write_fresh(&path, number);
        let (file, length) = match written {
            Ok(done) => done,
            Err(e) => {
                // `CURRENT` may or may not name the new file; the old one must not be appended to any more.
                self.file = None;
                self.mark.number = number;
                return Err(e);
            }
        };
        self.file = Some(file);
        self.mark = Mark { number, length };
        self.base = length;
        kill_point!("manifest-rotated");
        self.remove_older(number);
        self.make_reserve();
        Ok(())
    }

    fn write_fresh(&mut self, path: &Path, number: u64) -> Result<(Box<dyn WriteFile>, u64)> {
        let storage = &self.env.storage;
        let bytes = encode_whole(&self.state, number);
        let failed = |e| Error::io("write a manifest", path, e);
        // Number 1 may exist, from a creation that a crash ended; all others are new.
        let begins = |head: &[u8]| is_of(head, MANIFEST_MAGIC, None);
        let mut file = create_over_own(&**storage, path, begins).map_err(failed)?;
        file.write(&bytes).map_err(failed)?;
        file.sync().map_err(failed)?;
        kill_point!("manifest-fresh-written");
        storage.sync_dir(&self.dir).map_err(|e| Error::io("sync the directory", &self.dir, e))?;

        let temporary = self.dir.join(CURRENT_NEW);
        let current = self.dir.join(CURRENT);
        let failed = |e| Error::io("write", &temporary, e);
        let begins = |head: &[u8]| begins_with(head, CURRENT_MAGIC);
        let mut pointer = create_over_own(&**storage, &temporary, begins).map_err(failed)?;
        pointer.write(&header(CURRENT_MAGIC, self.state.database, number)).map_err(failed)?;
        pointer.sync().map_err(failed)?;
        kill_point!("manifest-pointer-written");
        storage.rename(&temporary, &current).map_err(|e| Error::io("rename to", &current, e))?;
        kill_point!("manifest-pointer-renamed");
        if let Err(e) = storage.sync_dir(&self.dir) {
            // Which manifest a crash would leave in force is unknown from here on.
            self.poisoned = true;
            return Err(Error::io("sync the directory", &self.dir, e));
        }
        Ok((file, bytes.len() as u64))
    }

    /// Removes older manifests, which are of no use any more. A failure to do so harms nothing and is tried
    /// again at the next rotation.
    fn remove_older(&self, number: u64) {
        let Ok(names) = self.env.storage.list(&self.dir) else { return };
        for name in names {
            let path = self.dir.join(&name);
            if parse_file_name(&name).is_some_and(|n| n < number)
                && is_own_manifest(&*self.env.storage, &path, Some(self.state.database)).is_ok_and(|own| own)
            {
                let _ = self.env.storage.remove(&path);
            }
        }
    }
}

/// Decoders on forged bytes, for fuzzing; see `testing::decoders`.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod forge {
    use super::*;
    use crate::hooks::Target;
    use crate::types::{LogFileId, SeqNo, StoreId};

    const DATABASE: u64 = 7;
    const NUMBER: u64 = 3;

    pub(crate) const TARGETS: &[Target] = &[
        Target { name: "current", seeds: current_seeds, sign: sign_header, decode: current },
        Target { name: "manifest-edit", seeds: edit_seeds, sign: |_| {}, decode: edit },
        Target { name: "manifest-file", seeds: file_seeds, sign: sign_file, decode: file },
    ];

    fn current_seeds() -> Vec<Vec<u8>> {
        vec![header(CURRENT_MAGIC, DATABASE, NUMBER)]
    }

    #[allow(clippy::ptr_arg, reason = "signers share one function type")]
    fn sign_header(bytes: &mut Vec<u8>) {
        if let Some(head) = bytes.first_chunk_mut::<HEADER_BYTES>() {
            let number_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
            let sum = crc(&head[..24], number_at(8), number_at(16), 0);
            head[24..].copy_from_slice(&sum.to_le_bytes());
        }
    }

    fn current(bytes: &[u8]) {
        let _ = check_header(bytes, CURRENT_MAGIC, Path::new("forged"));
    }

    fn edits() -> Vec<Edit> {
        let range = crate::types::KeyRange { start: b"a".to_vec(), end: Some(b"m".to_vec()) };
        let (store, options) = (StoreId(1), "{}".to_string());
        let shape: crate::shape::Shape =
            "L0 #7: 12:[a,m) 64M, 13:[m,..) 64M tomb 20000\nL5 #3: 4:[a,c) 32M clip b 10M, 5:[c,f) 64M"
                .parse()
                .unwrap_or_default();
        let added = shape.tables().map(|(level, run, table)| (level, run.id, table.clone())).collect();
        let change =
            crate::shape::ShapeChange { range: crate::types::KeyRange::all(), added, ..Default::default() };
        vec![
            vec![Change::Database { id: DATABASE }, Change::Epoch(2)],
            vec![
                Change::NewStore { id: store, name: "default".into(), options },
                Change::LastSeq(SeqNo(900)),
            ],
            vec![Change::Shape { store, change }],
            vec![Change::Flushed { store, range, generation: crate::types::Generation(4) }],
            vec![Change::WalFirst(LogFileId(2)), Change::DropStore { id: store }],
        ]
    }

    fn edit_seeds() -> Vec<Vec<u8>> {
        let edits = edits();
        edits.iter().map(|edit| code::encode(edit)).chain([code::encode(&edits.concat())]).collect()
    }

    fn edit(bytes: &[u8]) {
        let Ok(edit) = code::decode(bytes) else { return };
        let mut state = State::default();
        for change in edits().concat().iter().take(4).chain(&edit) {
            if state.apply(change).is_err() {
                break;
            }
        }
        let _ = code::encode(&state.to_edit());
    }

    fn file_seeds() -> Vec<Vec<u8>> {
        let mut bytes = header(MANIFEST_MAGIC, DATABASE, NUMBER);
        for edit in edits() {
            let payload = code::encode(&edit);
            let at = bytes.len() as u64;
            put_u32(&mut bytes, payload.len() as u32);
            put_u32(&mut bytes, crc(&payload, DATABASE, NUMBER, at));
            bytes.extend_from_slice(&payload);
        }
        // A tail that is no record, and reads as a length of a third of it wherever one begins to read.
        let tail = [u32::MAX.to_le_bytes().to_vec(), 2_048_u32.to_le_bytes().repeat(1_500)].concat();
        vec![bytes.clone(), [bytes, tail].concat()]
    }

    fn sign_file(bytes: &mut Vec<u8>) {
        sign_header(bytes);
        let mut at = HEADER_BYTES;
        while let Some(len) = bytes.get(at..).and_then(|b| b.first_chunk()) {
            let from = at + RECORD_HEADER_BYTES;
            let to = from.saturating_add(u32::from_le_bytes(*len) as usize);
            let Some(payload) = bytes.get(from..to) else { return };
            let sum = crc(payload, DATABASE, NUMBER, at as u64);
            bytes[at + 4..from].copy_from_slice(&sum.to_le_bytes());
            at = to;
        }
    }

    /// Looks at no byte more than some times.
    fn file(bytes: &[u8]) {
        let (loaded, work) = crate::hooks::work_of(|| parse(bytes, Path::new("forged"), DATABASE, NUMBER));
        assert!(work <= 64 * (bytes.len() as u64 + 1_024), "{work} bytes looked at of {}", bytes.len());
        if let Ok(loaded) = loaded {
            let _ = loaded.state.to_edit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LogFileId, SeqNo, StoreId};

    fn fresh(dir: &Path) -> (Env, Manifest) {
        let env = Env::local();
        let state = State { database: 7, epoch: 1, ..State::default() };
        let manifest = Manifest::start(&env, dir, 1, state).unwrap();
        (env, manifest)
    }

    fn edit(n: u64) -> Edit {
        vec![Change::LastSeq(SeqNo(n)), Change::WalFirst(LogFileId(n))]
    }

    #[test]
    fn edits_are_there_after_reading_back_also_across_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let (env, mut manifest) = fresh(dir.path());
        manifest.commit(&edit(1)).unwrap();
        manifest.rotate().unwrap();
        manifest.commit(&edit(2)).unwrap();
        let loaded = load(&env, dir.path()).unwrap().unwrap();
        assert_eq!((loaded.state.last_seq, loaded.mark), (SeqNo(2), manifest.mark()));
        assert_eq!(loaded.state, *manifest.state());
        let old = dir.path().join(file_name(1));
        assert!(!env.storage.exists(&old).unwrap(), "the older manifest is gone");
    }

    #[test]
    fn an_edit_that_does_not_apply_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (env, mut manifest) = fresh(dir.path());
        let before = manifest.mark();
        let wrong = vec![Change::StoreOptions { id: StoreId(5), options: String::new() }];
        assert_eq!(manifest.commit(&wrong).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(load(&env, dir.path()).unwrap().unwrap().mark, before);
    }

    #[test]
    fn a_change_that_this_release_does_not_know_is_a_newer_releases() {
        let dir = tempfile::tempdir().unwrap();
        let (env, _) = fresh(dir.path());
        let path = dir.path().join(file_name(1));
        let mut bytes = read_file(&env, &path, 1 << 20).unwrap();
        // What a release that does not know the mark of a shared database meets.
        let (at, mut payload) = (bytes.len() as u64, code::encode(&edit(5)));
        payload.extend([24, 1]);
        put_u32(&mut bytes, payload.len() as u32);
        put_u32(&mut bytes, crc(&payload, 7, 1, at));
        bytes.extend_from_slice(&payload);
        let error = parse(&bytes, &path, 7, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("manifest-00000001"), "{error}");
    }

    #[test]
    fn every_cut_leaves_a_prefix_and_every_flip_a_prefix_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (env, mut manifest) = fresh(dir.path());
        let marks: Vec<Mark> = (1..=3).map(|n| manifest.commit(&edit(n)).unwrap()).collect();
        let path = dir.path().join(file_name(1));
        let whole = read_file(&env, &path, 1 << 20).unwrap();
        let write = |bytes: &[u8]| {
            env.storage.remove(&path).unwrap();
            env.storage.create(&path).unwrap().write(bytes).unwrap();
        };
        for cut in 0..whole.len() {
            write(&whole[..cut]);
            if let Ok(loaded) = load(&env, dir.path()) {
                let loaded = loaded.unwrap();
                let n = marks.iter().filter(|m| m.length <= cut as u64).count() as u64;
                assert_eq!(loaded.state.last_seq, SeqNo(n), "cut at {cut}");
            }
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            write(&bytes);
            match load(&env, dir.path()) {
                // Only the last record may be taken for a torn tail; the WAL's notes tell the two apart.
                Ok(loaded) => assert_eq!(loaded.unwrap().mark, marks[1], "flip at {at}"),
                Err(e) => assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{e}"),
            }
        }
    }
}
