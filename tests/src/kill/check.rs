//! The expected state of a directory, and the comparison after a kill.

use crate::kill::copies;
use crate::kill::oracle::{Oracle, Slot};
use crate::kill::work::{
    self, Contents, FAMILIES, INGESTED, INGESTED_CELLS, OVERWRITTEN, PASSING, Paths, STREAMS, apply,
    ingested_cell, marked, ops,
};
use siltstone::{Db, Family};
use std::path::Path;

/// The batches a stream wrote: from which number on in which round.
#[derive(Clone, Default, Debug)]
struct Stream {
    rounds: Vec<(u64, u64)>,
    started: u64,
    acked: u64,
    contents: Vec<Contents>,
    /// `contents` are those after this batch.
    at: u64,
}

impl Stream {
    /// The round in which the batch was written that counts under this number.
    fn round_of(&self, n: u64) -> Option<u64> {
        self.rounds.iter().rev().find(|(began, _)| *began <= n).map(|(_, round)| *round)
    }

    /// The contents of the families after batch `n`, which is the present one or a later one.
    fn advance(&mut self, seed: u64, stream: usize, n: u64) -> Result<(), String> {
        if n < self.at {
            return Err(format!("lost: stream {stream} was seen at batch {} before, found {n}", self.at));
        }
        self.contents.resize(FAMILIES.len(), Contents::new());
        while self.at < n {
            self.at += 1;
            let round =
                self.round_of(self.at).ok_or_else(|| format!("batch {} was never written", self.at))?;
            apply(&mut self.contents, &ops(seed, stream, self.at, round));
        }
        Ok(())
    }
}

/// All that is known of one directory.
#[derive(Clone, Debug)]
pub struct Known {
    seed: u64,
    streams: Vec<Stream>,
}

impl Known {
    /// The state of an empty directory.
    pub fn new(seed: u64) -> Self {
        Self { seed, streams: vec![Stream::default(); STREAMS] }
    }

    /// Takes in what the child of a round noted, and clears what the next one notes afresh.
    pub fn note(&mut self, oracle: &Oracle, round: u64) -> Result<(), String> {
        for (i, stream) in self.streams.iter_mut().enumerate() {
            let began = oracle.get(Slot::Began(i));
            if began == 0 {
                continue;
            }
            // The child found every batch below this one.
            let found = began - 1;
            if found < stream.acked || found > stream.started {
                let (acked, started) = (stream.acked, stream.started);
                return Err(format!(
                    "stream {i}: {acked} acknowledged, {started} started, round {round} found {found}"
                ));
            }
            while stream.rounds.last().is_some_and(|(at, _)| *at >= began) {
                stream.rounds.pop();
            }
            stream.rounds.push((began, round));
            stream.acked = oracle.get(Slot::Acked(i)).max(found);
            stream.started = oracle.get(Slot::Started(i)).max(found);
            oracle.set(Slot::Began(i), 0);
            oracle.set(Slot::Acked(i), stream.acked);
            oracle.set(Slot::Started(i), stream.started);
        }
        Ok(())
    }

    /// Opens the directory and compares. How many batches it holds.
    pub fn check(&mut self, paths: &Paths, oracle: &Oracle) -> Result<u64, String> {
        let db = work::open(self.seed, &paths.db).map_err(|e| format!("open after a kill: {e}"))?;
        let families = families(&db)?;
        let mut batches = 0;
        for (i, stream) in self.streams.iter_mut().enumerate() {
            let n = marked(&families, i)?;
            if n < stream.acked {
                return Err(format!(
                    "lost: batch {} of stream {i} was acknowledged, found {n}",
                    stream.acked
                ));
            }
            if n > stream.started {
                return Err(format!(
                    "batch {n} of stream {i} was found, {} the newest started",
                    stream.started
                ));
            }
            stream.advance(self.seed, i, n)?;
            // What was found once stays.
            stream.acked = n;
            batches += n;
        }
        compare(&families, &self.streams)?;
        self.check_ingested(&db, oracle)?;
        copies::finish_move(&db, oracle, paths)?;
        check_passing(&db, oracle)?;
        check_overwritten(&db)?;
        db.close().map_err(|e| format!("close after a check: {e}"))?;
        Ok(batches)
    }

    fn check_ingested(&self, db: &Db, oracle: &Oracle) -> Result<(), String> {
        let family = db.family(INGESTED).map_err(|e| e.to_string())?;
        let newest = work::newest_ingested(&family)?;
        let (started, acked) = (oracle.get(Slot::IngestStarted), oracle.get(Slot::IngestAcked));
        if newest < acked || newest > started.max(acked) {
            return Err(format!("ingests: {acked} acknowledged, {started} started, found {newest}"));
        }
        let expected = (1..=newest).flat_map(|k| (0..INGESTED_CELLS).map(move |i| (k, i)));
        let expected: Contents = expected.map(|(k, i)| ingested_cell(self.seed, k, i)).collect();
        same(INGESTED, &contents(&family)?, &expected)
    }

    /// Compares this round's checkpoint, if there is one that is a database. Whether there was.
    pub fn check_checkpoint(&self, paths: &Paths, oracle: &Oracle) -> Result<bool, String> {
        let done = oracle.get(Slot::CheckpointDone) == 1;
        oracle.set(Slot::CheckpointDone, 0);
        if !paths.checkpoint.exists() {
            return if done { Err("an acknowledged checkpoint is not there".into()) } else { Ok(false) };
        }
        let whole = paths.checkpoint.join("CURRENT").exists();
        if whole {
            let from = |stream| oracle.get(Slot::CheckpointFrom(stream));
            self.compare_copy(&paths.checkpoint, from).map_err(|why| format!("checkpoint: {why}"))?;
        } else if done {
            return Err("an acknowledged checkpoint holds no database".into());
        }
        std::fs::remove_dir_all(&paths.checkpoint).map_err(|e| format!("remove a checkpoint: {e}"))?;
        Ok(whole)
    }

    /// Restores the newest backup, if there is one, and compares it. Whether there was.
    pub fn check_backup(&self, paths: &Paths, oracle: &Oracle) -> Result<bool, String> {
        let named = |why: String| format!("backup: {why}");
        if copies::restore_newest(oracle, paths).map_err(named)?.is_none() {
            return Ok(false);
        }
        let from = |stream| oracle.get(Slot::BackupFrom(stream));
        self.compare_copy(&paths.restored, from).map_err(named)?;
        std::fs::remove_dir_all(&paths.restored).map_err(|e| format!("remove what was restored: {e}"))?;
        Ok(true)
    }

    /// A copy holds at least what `from` says of a stream, and no half batch.
    fn compare_copy(&self, dir: &Path, from: impl Fn(usize) -> u64) -> Result<(), String> {
        let db = work::open(self.seed, dir).map_err(|e| e.to_string())?;
        let families = families(&db)?;
        let mut then = Known { seed: self.seed, streams: self.streams.clone() };
        for (i, stream) in then.streams.iter_mut().enumerate() {
            let n = marked(&families, i)?;
            let from = from(i);
            if n < from || n > stream.started {
                return Err(format!("stream {i} is at {n}, expected {from} to {}", stream.started));
            }
            (stream.at, stream.contents) = (0, Vec::new());
            stream.advance(self.seed, i, n)?;
        }
        compare(&families, &then.streams)
    }
}

fn families(db: &Db) -> Result<Vec<Family>, String> {
    FAMILIES.iter().map(|name| db.family(name).map_err(|e| e.to_string())).collect()
}

fn contents(family: &Family) -> Result<Contents, String> {
    family
        .scan::<&str>(..)
        .map(|entry| match entry {
            Ok(entry) => Ok((entry.key.to_vec(), entry.value.to_vec())),
            Err(e) => Err(format!("scan of {}: {e}", family.name())),
        })
        .collect()
}

fn compare(families: &[Family], streams: &[Stream]) -> Result<(), String> {
    for (f, family) in families.iter().enumerate() {
        let expected: Contents = streams
            .iter()
            .filter_map(|s| s.contents.get(f))
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        same(family.name(), &contents(family)?, &expected)?;
        // Also by point reads, which use other parts of an SSTable.
        for (key, value) in expected.iter().step_by(17) {
            let found = family.get(key).map_err(|e| format!("get: {e}"))?;
            if found.as_deref() != Some(&value[..]) {
                return Err(format!(
                    "family {}: get of {} finds another value than the scan",
                    family.name(),
                    key.escape_ascii()
                ));
            }
        }
    }
    Ok(())
}

fn same(name: &str, found: &Contents, expected: &Contents) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let keys = found.keys().chain(expected.keys());
    let key = keys.filter(|key| found.get(*key) != expected.get(*key)).min().expect("they differ somewhere");
    let show = |value: Option<&Vec<u8>>| match value {
        None => "nothing".to_string(),
        Some(v) => format!("{} bytes {}..", v.len(), v[..v.len().min(12)].escape_ascii()),
    };
    let (found, expected) = (show(found.get(key)), show(expected.get(key)));
    Err(format!("family {name}, key {}: found {found}, expected {expected}", key.escape_ascii()))
}

fn check_passing(db: &Db, oracle: &Oracle) -> Result<(), String> {
    let there = db.families().iter().any(|name| name == PASSING);
    let (started, acked) = (oracle.get(Slot::FamilyStarted), oracle.get(Slot::FamilyAcked));
    if there != (started % 2 == 1) && there != (acked % 2 == 1) {
        return Err(format!(
            "family {PASSING} there: {there}, after {acked} changes acknowledged, {started} started"
        ));
    }
    if there {
        contents(&db.family(PASSING).map_err(|e| e.to_string())?)?;
    }
    copies::check_cut(db, oracle)
}

fn check_overwritten(db: &Db) -> Result<(), String> {
    let Ok(family) = db.family(OVERWRITTEN) else { return Ok(()) };
    for entry in family.scan::<&str>(..) {
        let entry = entry.map_err(|e| format!("scan of {OVERWRITTEN}: {e}"))?;
        if entry.value[..] != entry.key.repeat(8) {
            return Err(format!("family {OVERWRITTEN} has another value at {}", entry.key.escape_ascii()));
        }
    }
    Ok(())
}
