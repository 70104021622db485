//! Kill points and planted bugs: places in the engine where a test may end the process, and bugs that it may
//! switch on to prove that it would notice them. Without the feature `testing` both macros expand to nothing.
//!
//! `kill_point!("wal-before-sync")` names a place. The name must be listed in [`KILL_POINTS`] (checked when
//! compiled) and every listed name must be used (checked by a unit test). `SILTSTONE_KILL=name:nth` aborts
//! the process at that visit of that place, `SILTSTONE_KILL=random:seed:cases` at a visit drawn once in so
//! many cases; [`with_kill_hook`] lets a simulation in one thread do something else there, such as cutting
//! the power.
//!
//! `work!(bytes)` counts the bytes that a decoder reads, so that a test may bound its work rather than its
//! time: [`work_of`].
//!
//! `planted!(Bug::SkipWalSync)` is false unless a test or `SILTSTONE_BUG=skip-wal-sync` planted that bug.
//! Planted bugs are switches of the whole process: plant them only where no other test runs beside.

/// Marks a place where a test may end the process.
macro_rules! kill_point {
    ($name:literal) => {{
        #[cfg(any(test, feature = "testing"))]
        $crate::hooks::visit(const { $crate::hooks::index_of($name) });
    }};
}

/// Counts bytes that are read, each time they are.
macro_rules! work {
    ($bytes:expr) => {{
        #[cfg(any(test, feature = "testing"))]
        $crate::hooks::work($bytes);
    }};
}

/// Whether a test planted that bug: `planted!(Bug::SkipWalSync)`.
#[cfg(any(test, feature = "testing"))]
macro_rules! planted {
    (Bug::$bug:ident) => {
        $crate::hooks::Bug::$bug.is_planted()
    };
}

/// Whether a test planted that bug: never, in this build.
#[cfg(not(any(test, feature = "testing")))]
macro_rules! planted {
    (Bug::$bug:ident) => {
        false
    };
}

#[cfg(feature = "testing")]
pub(crate) use switches::lacks_papers;
#[cfg(any(test, feature = "testing"))]
pub use switches::{
    Bug, KILL_POINTS, Planted, index_of, lack_papers, visit, visits, with_kill_hook, work, work_of,
};

#[cfg(any(test, feature = "testing"))]
/// One decoder.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Valid inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Fixes the checksums of the bytes, so that the decoder gets past them.
    pub sign: fn(&mut Vec<u8>),
    /// Decodes, and uses the result.
    pub decode: fn(&[u8]),
}

#[cfg(any(test, feature = "testing"))]
mod switches {
    use crate::types::Rng;
    use std::cell::{Cell, RefCell};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Every kill point of the engine.
    pub const KILL_POINTS: &[&str] = &[
        "adopt-current-removed",
        "adopt-decided",
        "adopt-local-part",
        "adopt-marked",
        "adopt-reserved",
        "adopt-state-shared",
        "adopt-table-uploaded",
        "adopt-tables-removed",
        "adopt-undone",
        "adopt-wal-shared",
        "attach-committed",
        "attach-linked",
        "backup-descriptor-written",
        "backup-descriptors-removed",
        "backup-files-synced",
        "backup-made",
        "backup-moment",
        "backup-sstable-copied",
        "backup-wal-copied",
        "checkpoint-manifest-written",
        "checkpoint-sstables-linked",
        "checkpoint-wal-copied",
        "clean-committed",
        "clean-copied",
        "clean-looked",
        "clean-marked",
        "clean-synced",
        "close-before-unlock",
        "close-manifest-committed",
        "close-wal-synced",
        "compaction-after-install",
        "compaction-before-install",
        "copy-families-held",
        "detach-described",
        "detach-linked",
        "detach-refusing",
        "family-create-committed",
        "family-drop-committed",
        "family-drop-marked",
        "flush-after-install",
        "flush-before-install",
        "flush-hot-keys-logged",
        "flush-places-found",
        "flush-wal-file-begun",
        "ingest-before-commit",
        "ingest-committed",
        "ingest-linked",
        "install-after-commit",
        "install-after-note",
        "install-after-swap",
        "install-before-commit",
        "join-after-swap",
        "join-before-commit",
        "join-before-swap",
        "join-committed",
        "join-renamed",
        "lay-out-copied",
        "manifest-appended",
        "manifest-appended-not-synced",
        "manifest-fresh-written",
        "manifest-pointer-renamed",
        "manifest-pointer-written",
        "manifest-rotated",
        "memtable-frozen",
        "open-after-manifest",
        "open-before-manifest",
        "open-noted",
        "open-orphans-removed",
        "open-wal-read",
        "read-half-way",
        "restore-files-copied",
        "restore-manifest-written",
        "split-before-commit",
        "split-committed",
        "split-noted",
        "sstable-cells-written",
        "sstable-written-not-synced",
        "sweep-before-remove",
        "wal-before-release",
        "wal-copied-not-ended",
        "wal-file-begun",
        "wal-file-taken",
        "wal-part-synced",
        "wal-prepared-not-named",
        "wal-reserve-before-map",
        "write-applied-not-acknowledged",
        "write-logged-not-applied",
        #[cfg(test)]
        "unit-test",
    ];

    static VISITS: [AtomicU64; KILL_POINTS.len()] = [const { AtomicU64::new(0) }; KILL_POINTS.len()];
    static ALL_VISITS: AtomicU64 = AtomicU64::new(0);

    type Hook = Box<dyn FnMut(&'static str)>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
        static WORK: Cell<u64> = const { Cell::new(0) };
        static LACKS_PAPERS: Cell<bool> = const { Cell::new(false) };
    }

    /// Makes this thread open databases as a build without the feature `papers` does, or ends that.
    pub fn lack_papers(lacks: bool) {
        LACKS_PAPERS.set(lacks);
    }

    #[cfg(feature = "testing")]
    pub(crate) fn lacks_papers() -> bool {
        LACKS_PAPERS.get()
    }

    /// Counts for this thread: the body of `work!`.
    pub fn work(bytes: usize) {
        WORK.set(WORK.get().saturating_add(bytes as u64));
    }

    /// The result of `body`, and the bytes read for it on this thread.
    pub fn work_of<T>(body: impl FnOnce() -> T) -> (T, u64) {
        WORK.set(0);
        let answer = body();
        (answer, WORK.get())
    }

    /// A kill point's index in [`KILL_POINTS`]; does not compile for a name that is not listed.
    pub const fn index_of(name: &str) -> usize {
        let mut i = 0;
        while i < KILL_POINTS.len() {
            if same(KILL_POINTS[i].as_bytes(), name.as_bytes()) {
                return i;
            }
            i += 1;
        }
        panic!("a kill point that is not listed in KILL_POINTS")
    }

    const fn same(a: &[u8], b: &[u8]) -> bool {
        if a.len() != b.len() {
            return false;
        }
        let mut i = 0;
        while i < a.len() {
            if a[i] != b[i] {
                return false;
            }
            i += 1;
        }
        true
    }

    /// Counts a visit, and ends the process if it is the selected one: the body of
    /// [`kill_point!`](crate::testing).
    pub fn visit(point: usize) {
        let nth = VISITS[point].fetch_add(1, Ordering::Relaxed) + 1;
        let overall = ALL_VISITS.fetch_add(1, Ordering::Relaxed) + 1;
        static ORDER: OnceLock<Option<Order>> = OnceLock::new();
        let order = ORDER.get_or_init(|| {
            let text = std::env::var("SILTSTONE_KILL").ok()?;
            Some(Order::parse(&text).unwrap_or_else(|| panic!("SILTSTONE_KILL={text}: expected name:nth")))
        });
        if order.as_ref().is_some_and(|order| order.is_at(KILL_POINTS[point], nth, overall)) {
            std::process::abort();
        }
        HOOK.with(|hook| {
            // Taken out while it runs, so that the engine it calls may pass kill points itself.
            let taken = hook.borrow_mut().take();
            if let Some(mut call) = taken {
                call(KILL_POINTS[point]);
                hook.borrow_mut().get_or_insert(call);
            }
        });
    }

    /// The number of visits of each kill point in this process.
    pub fn visits() -> Vec<(&'static str, u64)> {
        KILL_POINTS.iter().copied().zip(VISITS.iter().map(|n| n.load(Ordering::Relaxed))).collect()
    }

    /// Runs `body` with `hook` called at each kill point that this thread passes.
    pub fn with_kill_hook<T>(hook: impl FnMut(&'static str) + 'static, body: impl FnOnce() -> T) -> T {
        struct Restore(Option<Hook>);
        impl Drop for Restore {
            fn drop(&mut self) {
                HOOK.with(|hook| *hook.borrow_mut() = self.0.take());
            }
        }
        let _restore = Restore(HOOK.with(|slot| slot.borrow_mut().replace(Box::new(hook))));
        body()
    }

    /// The visit at which to end the process.
    #[derive(PartialEq, Eq, Debug)]
    enum Order {
        At { name: String, nth: u64 },
        Random { seed: u64, cases: u64 },
    }

    impl Order {
        fn parse(text: &str) -> Option<Self> {
            let (name, rest) = text.split_once(':')?;
            if name == "random" {
                let (seed, cases) = rest.split_once(':')?;
                return Some(Order::Random { seed: seed.parse().ok()?, cases: cases.parse().ok()? });
            }
            let listed = KILL_POINTS.contains(&name);
            listed.then_some(Order::At { name: name.to_owned(), nth: rest.parse().ok()? })
        }

        fn is_at(&self, point: &str, nth: u64, overall: u64) -> bool {
            match self {
                Order::At { name, nth: wanted } => name == point && nth == *wanted,
                Order::Random { seed, cases } => Rng::new(seed.wrapping_add(overall << 20)).one_in(*cases),
            }
        }
    }

    macro_rules! bugs {
        ($($(#[$doc:meta])* $bug:ident = $name:literal,)*) => {
            /// A bug that tests must notice.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            pub enum Bug {
                $($(#[$doc])* $bug,)*
            }

            impl Bug {
                /// Every bug.
                pub const ALL: &[Bug] = &[$(Bug::$bug,)*];

                /// Its name in `SILTSTONE_BUG`.
                pub fn name(self) -> &'static str {
                    match self {
                        $(Bug::$bug => $name,)*
                    }
                }
            }
        };
    }

    bugs! {
        /// A `Sync` write is acknowledged without the WAL being synced.
        SkipWalSync = "skip-wal-sync",
        /// Recovery stops some records before the WAL's valid end.
        DropWalTail = "drop-wal-tail",
        /// Names are never made durable.
        SkipDirectorySync = "skip-directory-sync",
        /// A `Sync` write is acknowledged before the sync is done.
        AcknowledgeBeforeSync = "acknowledge-before-sync",
        /// A failed sync of the WAL does not poison it.
        IgnoreFailedSync = "ignore-failed-sync",
        /// Replay does not skip cells at or below the generation in SSTables.
        ReplayFlushedGenerations = "replay-flushed-generations",
        /// The manifest edit of a flush comes before the WAL is synced to its end.
        CommitBeforeWalSync = "commit-before-wal-sync",
        /// The manifest edit of a flush comes before the hot cells that it left in memory are synced.
        KeepUnsynced = "keep-unsynced",
        /// A flush leaves hot cells in memory under a newer range tombstone that it writes to an SSTable.
        KeepUnderTombstone = "keep-under-tombstone",
        /// A cleaned WAL file is removed before the cells logged again are synced.
        CleanUnsynced = "clean-unsynced",
        /// Blocks are used without verifying their checksum.
        SkipBlockChecksum = "skip-block-checksum",
        /// WAL records are used without verifying their checksum.
        SkipWalChecksum = "skip-wal-checksum",
        /// A compaction drops tombstones of keys with older data below.
        DropTombstoneEarly = "drop-tombstone-early",
        /// A compaction keeps only the newest reader's versions.
        IgnoreSnapshotInCompaction = "ignore-snapshot-in-compaction",
        /// A clip hides one key too many or too few.
        ClipOffByOne = "clip-off-by-one",
        /// A compaction's output is installed without its last block.
        LoseLastBlock = "lose-last-block",
        /// Range tombstones are lost where an output SSTable is cut.
        LoseRangeTombstoneAtCut = "lose-range-tombstone-at-cut",
        /// Recovery does not record the WAL's valid end.
        ForgetWalEnd = "forget-wal-end",
        /// A WAL file is recycled though its cells are still needed.
        RecycleNeededWalFile = "recycle-needed-wal-file",
        /// WAL files with values of SSTables are recycled.
        RecycleReferencedWalFile = "recycle-referenced-wal-file",
        /// At an open, WAL files that only SSTables need are removed.
        ForgetReferencedWalFiles = "forget-referenced-wal-files",
        /// The filter denies existing keys.
        FilterFalseNegative = "filter-false-negative",
        /// A reader takes its read point before the version.
        ReadPointBeforeVersion = "read-point-before-version",
        /// A read of a range of time ignores later versions, which push out those it finds.
        ForgetLaterVersions = "forget-later-versions",
        /// Whether a key was written since is judged by its remaining cells, whatever compactions dropped.
        ForgetWhatCompactionsDropped = "forget-what-compactions-dropped",
        /// Space that WAL files have reserved after their history is not freed.
        KeepWalTails = "keep-wal-tails",
        /// Small WAL files are not cleaned, however many there are.
        KeepWalFiles = "keep-wal-files",
        /// A read-only open takes a writer's concurrent changes for damage.
        ReadOnlyOnce = "read-only-once",
        /// Each turn of a worker plans for all families.
        PlanForAllFamilies = "plan-for-all-families",
        /// Compactions that fail again and again are not reported.
        HideFailingCompactions = "hide-failing-compactions",
        /// An SSTable that belongs to another store, too, is removed.
        DeleteShared = "delete-shared",
        /// Space below a clip is freed though another store needs it.
        PunchShared = "punch-shared",
        /// A part of an SSTable ends one key too late.
        PartOffByOne = "part-off-by-one",
        /// The outputs of a compaction in another process are installed without verification.
        UnverifiedResult = "unverified-result",
        /// The counts of a compaction in another process are not compared with its inputs.
        BelieveCounts = "believe-counts",
        /// Writes between a condition's reads and its write are ignored.
        JudgeOutsideAlone = "judge-outside-alone",
        /// A foreign file in a database's directory is removed, as it has an ending of ours.
        RemoveForeign = "remove-foreign",
        /// A call's right is checked after its body has been decoded.
        RightsAfterBody = "rights-after-body",
        /// Requests are counted by their size as received, not as decoded.
        UncountedDecode = "uncounted-decode",
        /// Reads of any length run on the threads that serve connections.
        WorkInPlace = "work-in-place",
        /// An object that was put once and is there is taken for another's.
        TakeOwnPutForTheirs = "take-own-put-for-theirs",
        /// A recoverer seals the stream after the last object that it finds, above a place that is empty.
        SealAboveHole = "seal-above-hole",
        /// The object that claims an incarnation is collected with the others.
        CollectClaims = "collect-claims",
        /// Objects of the incarnation that is being written are collected, too.
        CollectUnsealed = "collect-unsealed",
        /// An object that another put first is taken for one's own.
        TakeTheirsForOwn = "take-theirs-for-own",
        /// A reader of the stream starts at the checkpoint, whatever memory needed then.
        ReplayFromCheckpoint = "replay-from-checkpoint",
        /// Reads are answered after the lease on a shared database has ended.
        ReadAfterLease = "read-after-lease",
        /// A standby takes a database over as soon as it has seen that a lease is kept.
        TakeWithoutWaiting = "take-without-waiting",
    }

    static PLANTED: AtomicU64 = AtomicU64::new(0);

    impl Bug {
        fn bit(self) -> u64 {
            1 << self as u64
        }

        /// Whether it is planted now.
        pub fn is_planted(self) -> bool {
            static FROM_ENVIRONMENT: OnceLock<u64> = OnceLock::new();
            let always = FROM_ENVIRONMENT.get_or_init(|| {
                let names = std::env::var("SILTSTONE_BUG").unwrap_or_default();
                let names = names.split(',').filter(|name| !name.is_empty());
                names.map(|name| Bug::from_name(name).expect("SILTSTONE_BUG names a bug").bit()).sum()
            });
            (PLANTED.load(Ordering::Relaxed) | always) & self.bit() != 0
        }

        /// Plants it until the guard is dropped.
        #[must_use]
        pub fn plant(self) -> Planted {
            PLANTED.fetch_or(self.bit(), Ordering::SeqCst);
            Planted(self)
        }

        /// The bug of that name.
        pub fn from_name(name: &str) -> Option<Bug> {
            Bug::ALL.iter().copied().find(|bug| bug.name() == name)
        }
    }

    /// A guard that removes the bug when dropped.
    #[derive(Debug)]
    pub struct Planted(Bug);

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.fetch_and(!self.0.bit(), Ordering::SeqCst);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::path::Path;
        use std::rc::Rc;

        /// The names of all uses of `kill_point!` in the engine's sources, except this file.
        #[allow(clippy::disallowed_methods, reason = "reads the engine's own sources")]
        fn used(dir: &Path, names: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    used(&path, names);
                } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("src/hooks.rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let uses = text.split("kill_point!(\"").skip(1);
                    names.extend(uses.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
                }
            }
        }

        #[test]
        fn every_listed_kill_point_is_used() {
            let mut names = vec!["unit-test".to_owned()];
            used(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
            let stale: Vec<_> =
                KILL_POINTS.iter().filter(|listed| !names.iter().any(|n| n == *listed)).collect();
            assert!(stale.is_empty(), "listed but not used: {stale:?}");
        }

        #[test]
        fn a_kill_point_counts_its_visits_and_calls_this_threads_hook() {
            let seen = Rc::new(RefCell::new(Vec::new()));
            let of = |visits: Vec<(_, u64)>| visits.iter().find(|v| v.0 == "unit-test").unwrap().1;
            let before = of(visits());
            let writer = seen.clone();
            with_kill_hook(
                move |name| {
                    writer.borrow_mut().push(name);
                    kill_point!("unit-test");
                },
                || kill_point!("unit-test"),
            );
            kill_point!("unit-test");
            assert_eq!(*seen.borrow(), ["unit-test"]);
            assert_eq!(of(visits()), before + 3);
        }

        #[test]
        fn an_order_ends_the_process_at_the_visit_it_names_only() {
            let order = Order::parse("unit-test:3").unwrap();
            let at: Vec<u64> = (1..10).filter(|&nth| order.is_at("unit-test", nth, nth)).collect();
            assert_eq!((at, order.is_at("other", 3, 3)), (vec![3], false));
            assert_eq!(Order::parse("unit-test"), None);
            assert_eq!(Order::parse("not-listed:1"), None);
        }

        #[test]
        fn a_random_order_hits_about_as_often_as_asked_and_again_with_the_same_seed() {
            let hits = |text: &str| {
                let order = Order::parse(text).unwrap();
                (1..10_000).filter(|&n| order.is_at("unit-test", n, n)).collect::<Vec<u64>>()
            };
            assert!((50..200).contains(&hits("random:1:100").len()));
            assert_eq!(hits("random:1:100"), hits("random:1:100"));
            assert_ne!(hits("random:1:100"), hits("random:2:100"));
        }

        #[test]
        fn work_is_counted_for_this_thread_from_the_beginning_of_its_body() {
            work!(3);
            let ((), counted) = work_of(|| [4, 5].into_iter().for_each(|bytes| work!(bytes)));
            assert_eq!(counted, 9);
        }

        #[test]
        fn a_bug_is_planted_until_its_guard_is_dropped() {
            // The last in the list, so that hardly another unit test of the engine runs through it.
            assert!(!planted!(Bug::ReadPointBeforeVersion));
            let guard = Bug::from_name("read-point-before-version").unwrap().plant();
            assert!(planted!(Bug::ReadPointBeforeVersion) && !planted!(Bug::SkipWalSync));
            drop(guard);
            assert!(!planted!(Bug::ReadPointBeforeVersion));
        }
    }
}
