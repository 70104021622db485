//! Power loss, process kills and repeated recovery, compared with a manifest and a model.

use super::disk::Call;
use super::*;
use crate::types::Rng;

/// The state that a manifest would have, and the writes that must come back.
struct Life {
    disk: Disk,
    rng: Rng,
    first: LogFileId,
    known_synced: LogPosition,
    ends: Vec<WalEnd>,
    /// Batches in the files still needed, with their ends.
    written: Vec<(u64, LogPosition)>,
    next: u64,
    deaths: u32,
}

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            disk: Disk::default(),
            rng: Rng::new(seed),
            first: LogFileId(1),
            known_synced: LogPosition::default(),
            ends: Vec::new(),
            written: Vec::new(),
            next: 0,
            deaths: 0,
        }
    }

    /// Writes for a while from `start`. Returns the position up to which everything was acknowledged as
    /// durable.
    fn run(&mut self, start: WalStart) -> LogPosition {
        let env = self.disk.env();
        let file_bytes = 512 * (1 + self.rng.range(0..4));
        let (wal, mut appender) = Wal::open(&env, dir(), options(file_bytes), start).unwrap();
        for _ in 0..self.rng.range(0..60) {
            match self.rng.range(0..20) {
                0 => drop(wal.sync()),
                1 => drop(wal.prepare()),
                2 => {
                    // As a flush would: sync, record in the manifest, cut at the front.
                    if let Ok(synced) = wal.sync() {
                        self.known_synced = synced;
                        let files = wal.files();
                        let keep = self.rng.range(0..files.len() as u64 + 1) as usize;
                        let before = files.get(keep).map_or(self.first, |f| f.file);
                        self.first = before.max(self.first);
                        self.written.retain(|(_, end)| end.file >= self.first);
                        let _ = wal.release(self.first);
                    }
                }
                3 => {
                    let calls =
                        [Call::Map, Call::Rename, Call::Remove, Call::Sync, Call::SyncDir, Call::MapWrite];
                    let call = calls[self.rng.range(0..6) as usize];
                    let nth = self.rng.range(0..3) as u32;
                    self.disk.fail(call, nth);
                }
                _ => {
                    let bytes = if self.rng.range(0..30) == 0 { 3000 } else { self.rng.range(0..300) };
                    if let Ok(appended) = put(&mut appender, self.next, bytes) {
                        self.written.push((self.next, appended.end));
                        self.next += 1;
                    }
                }
            }
        }
        wal.synced()
    }

    /// Power loss or process kill, then recovery; checks the result and returns where to go on.
    fn die_and_recover(&mut self, acknowledged: LogPosition) -> WalStart {
        let killed_only = self.rng.range(0..3) == 0;
        if !killed_only {
            let odds = self.rng.range(0..5);
            let mut rng = self.rng.clone();
            self.disk.crash(&mut || rng.range(0..4) < odds);
            self.rng = rng;
        }
        self.disk.fail(Call::Map, u32::MAX);
        let (batches, recovered) =
            read_back(&self.disk, self.first.0, self.known_synced, &self.ends).unwrap();
        let wrote: Vec<u64> = self.written.iter().map(|(n, _)| *n).collect();
        assert!(wrote.starts_with(&batches), "{batches:?} is no prefix of {wrote:?}");
        let must = self.written.iter().filter(|(_, end)| killed_only || *end <= acknowledged).count();
        assert!(batches.len() >= must, "{} of {must} acknowledged batches came back", batches.len());
        recovered.make_durable(&self.disk.env(), dir(), DATABASE).unwrap();
        self.ends.push(WalEnd { at: recovered.end, next: recovered.next_file });
        for stale in &recovered.stale {
            self.disk.env().storage.remove(&path(stale.0)).unwrap();
        }
        self.written.truncate(batches.len());
        self.deaths += 1;
        WalStart::behind(DATABASE, &recovered)
    }
}

#[test]
fn after_any_chain_of_crashes_synced_batches_and_a_prefix_of_the_rest_come_back() {
    let seed = std::env::var("SILTSTONE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in seed..seed + 1500 {
        let mut life = Life::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut start = WalStart::fresh(DATABASE);
            for _ in 0..6 {
                let acknowledged = life.run(start);
                start = life.die_and_recover(acknowledged);
                if life.rng.range(0..3) == 0 {
                    // Dies again before writing anything.
                    let end = start.after;
                    start = life.die_and_recover(end);
                }
            }
        }));
        if let Err(panic) = run {
            println!("replay with SILTSTONE_SEED={seed} (after {} crashes)", life.deaths);
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_second_crash_after_a_torn_tail_keeps_what_was_written_in_between() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 2048);
    put_all(&mut appender, 0..3, 100);
    wal.sync().unwrap();
    // Three more, of which the first is torn and the others happen to survive whole.
    let torn = put(&mut appender, 3, 100).unwrap();
    put_all(&mut appender, 4..6, 100);
    change(&disk, 1, |bytes| bytes[torn.start.offset as usize + 40] ^= 4);

    let (batches, first) = read_back(&disk, 1, wal.synced(), &[]).unwrap();
    assert_eq!((batches, first.end), (vec![0, 1, 2], torn.start));
    first.make_durable(&disk.env(), dir(), DATABASE).unwrap();
    let ends = [WalEnd { at: first.end, next: first.next_file }];
    let start = WalStart::behind(DATABASE, &first);
    let (wal, mut appender) = Wal::open(&disk.env(), dir(), options(2048), start).unwrap();
    put(&mut appender, 3, 77).unwrap();
    wal.sync().unwrap();
    put(&mut appender, 4, 77).unwrap();
    disk.crash(&mut || false);

    let (batches, second) = read_back(&disk, 1, wal.synced(), &ends).unwrap();
    assert_eq!(batches, [0, 1, 2, 3]);
    assert_eq!(second.max_seq, Some(SeqNo(3)));
    // The header of the file written in between has the end too; without it, only the record does.
    assert_eq!(read_back(&disk, 1, wal.synced(), &[]).unwrap().0, [0, 1, 2, 3]);
    disk.env().storage.remove(&path(first.next_file.0)).unwrap();
    assert_eq!(read_back(&disk, 1, LogPosition::default(), &ends).unwrap().1.end, first.end);
    assert!(read_back(&disk, 1, wal.synced(), &ends).is_err());
}

#[test]
fn what_a_failed_sync_left_in_memory_only_is_durable_after_recovery() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    put_all(&mut appender, 0..4, 100);
    disk.fail(Call::Sync, 0);
    wal.sync().unwrap_err();
    // The process is killed; its successor still sees bytes that are not on the disk but count as clean.
    let (batches, recovered) = read_back(&disk, 1, LogPosition::default(), &[]).unwrap();
    assert_eq!(batches, [0, 1, 2, 3]);
    // Even when its own sync fails and it has to start over.
    disk.fail(Call::Sync, 0);
    recovered.make_durable(&disk.env(), dir(), DATABASE).unwrap_err();
    let (_, recovered) = read_back(&disk, 1, LogPosition::default(), &[]).unwrap();
    recovered.make_durable(&disk.env(), dir(), DATABASE).unwrap();
    disk.crash(&mut || false);
    let ends = [WalEnd { at: recovered.end, next: recovered.next_file }];
    assert_eq!(read_back(&disk, 1, LogPosition::default(), &ends).unwrap().0, [0, 1, 2, 3]);
}

#[test]
fn only_what_is_not_known_durable_is_written_again() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 4096);
    put_all(&mut appender, 0..4, 100);
    let synced = wal.sync().unwrap();
    put(&mut appender, 4, 100).unwrap();
    let (_, recovered) = read_back(&disk, 1, LogPosition::default(), &[]).unwrap();
    assert_eq!((recovered.durable_to, recovered.end), (synced, wal.end()));
    let (_, recovered) = read_back(&disk, 1, wal.sync().unwrap(), &[]).unwrap();
    let syncs = disk.syncs();
    recovered.make_durable(&disk.env(), dir(), DATABASE).unwrap();
    assert_eq!(disk.syncs(), syncs);
}

#[test]
fn a_new_database_without_a_wal_file_has_an_empty_history() {
    let disk = Disk::default();
    let (batches, recovered) = read_back(&disk, 1, LogPosition::default(), &[]).unwrap();
    assert!(batches.is_empty() && recovered.files.is_empty());
    let ends = [WalEnd { at: recovered.end, next: recovered.next_file }];
    let start = WalStart::behind(DATABASE, &recovered);
    let (wal, mut appender) = Wal::open(&disk.env(), dir(), options(1024), start).unwrap();
    put(&mut appender, 0, 9).unwrap();
    assert_eq!(read_back(&disk, 1, wal.sync().unwrap(), &ends).unwrap().0, [0]);
}

/// Cleaning relies on these numbers to know which cells a file has.
#[test]
fn a_file_behind_one_of_copies_alone_begins_with_the_number_that_was_next() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 4096);
    let mut encoder = FrameEncoder::new();
    encoder.begin(SeqNo(601), 1);
    encoder.part(StoreId(1), Generation(7));
    encoder.copied_cell(&CellRef::plain(b"kept", 500, b"hot"));
    appender.append(&mut encoder).unwrap();
    appender.begin_next(SeqNo(601)).unwrap();
    wal.sync().unwrap();
    let (first_file, known_synced) = (LogFileId(1), LogPosition::default());
    let options = RecoverOptions { database_id: DATABASE, first_file, known_synced, ends: &[] };
    let recovered = recover(&disk.env(), dir(), &options, &mut |_| Ok(()), &mut |_, _| {}).unwrap();
    let numbers: Vec<SeqNo> = recovered.files.iter().map(|file| file.first_seq).collect();
    assert_eq!(numbers, [SeqNo(601), SeqNo(601)]);
}
