//! The list of campaigns. The packages that have the programs read this file in their tests, too: what it
//! says of a program's checks must be what the program itself does.

/// A campaign.
pub(crate) struct Campaign {
    /// Row of the goal table.
    pub(crate) row: &'static str,
    /// A description of the campaign.
    pub(crate) what: &'static str,
    /// Binary and arguments; `--count` and `--seed` follow.
    pub(crate) run: &'static str,
    /// Cases for every change.
    pub(crate) gate: u64,
    /// Cases before a release, summed over runs.
    pub(crate) release: u64,
    /// The fewest cases whose success says something: from so many on the program asks whether it has met
    /// enough of what it is there for, and of more cases it asks more.
    pub(crate) least: u64,
}

/// All of them, in the order in which they are begun.
pub(crate) const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        row: "8",
        what: "one list of calls under configurations with every pair of option values",
        run: "siltstone-torture metamorphic --threads 1",
        // First, as one case may take as long as ten others, on one thread.
        gate: 4,
        release: 40_000,
        least: 1,
    },
    Campaign {
        row: "1",
        what: "kills of the process, at random and at every kill point",
        run: "siltstone-kill",
        gate: 500,
        release: 50_000,
        least: 406,
    },
    Campaign {
        row: "1",
        what: "kills on ext4, tmpfs, xfs, btrfs and overlay (those that can be mounted)",
        run: "siltstone-kill --disk all",
        gate: 50,
        release: 10_000,
        least: 1,
    },
    Campaign {
        row: "2",
        what: "power cuts: unsynced blocks and names survive or not",
        run: "siltstone-torture power",
        gate: 50_000,
        release: 5_000_000,
        least: 1,
    },
    Campaign {
        row: "3",
        what: "failing calls of every kind, once and for good",
        run: "siltstone-torture faults",
        gate: 6_000,
        release: 160_000,
        least: 1,
    },
    Campaign {
        row: "4",
        what: "a sync that fails, and later ones that succeed",
        run: "siltstone-torture sync",
        gate: 1_000,
        release: 50_000,
        least: 1,
    },
    Campaign {
        row: "5",
        what: "full disks that are given room again",
        run: "siltstone-torture full",
        gate: 500,
        release: 10_000,
        least: 250,
    },
    Campaign {
        row: "5",
        what: "real small file systems that fill up (0 where none can be mounted)",
        run: "siltstone-torture small-disk",
        gate: 3,
        release: 200,
        least: 1,
    },
    Campaign {
        row: "6",
        what: "damaged files: flipped, cut, swapped, stale, missing",
        run: "siltstone-torture rot --threads 1",
        // A tenth of what is done to one fixture.
        gate: 25_000,
        release: 20_000_000,
        least: 1,
    },
    Campaign {
        row: "6",
        what: "every length and every bit of all files of a small store",
        run: "siltstone-torture every-bit --threads 1",
        gate: 25_000,
        release: 8_000_000,
        least: 1,
    },
    Campaign {
        row: "7",
        what: "torn ends of WAL files, manifests and SSTables, at every offset",
        run: "siltstone-torture torn",
        gate: 20_000,
        release: 400_000,
        least: 1,
    },
    Campaign {
        row: "19",
        what: "crashes at any two of the places where memory, WAL and SSTables with values in it change hands",
        run: "siltstone-torture twice",
        gate: 30_000,
        release: 2_000_000,
        least: 8_000,
    },
    Campaign {
        row: "21",
        what: "repairs of damaged databases",
        run: "siltstone-torture rescue",
        gate: 200,
        release: 10_000,
        least: 1,
    },
    Campaign {
        row: "21",
        what: "checkpoints, backups, restores and moves of a family under load that crash in their middle",
        run: "siltstone-torture copies",
        gate: 6_000,
        release: 200_000,
        least: 1,
    },
    Campaign {
        row: "28",
        what: "other people's files where databases are made, opened, repaired, copied and destroyed: none is touched",
        run: "siltstone-torture strangers",
        gate: 2_000,
        release: 100_000,
        least: 200,
    },
    Campaign {
        row: "14",
        what: "the same seed twice",
        run: "siltstone-torture replay",
        gate: 50,
        release: 1_000,
        least: 1,
    },
    Campaign {
        row: "25",
        what: "planted bugs, each of which some campaign must notice (where what plants or finds them has changed)",
        run: "siltstone-torture planted",
        // Drawn.
        gate: 12,
        release: 40,
        least: 1,
    },
    Campaign {
        row: "9",
        what: "random calls against the reference model",
        run: "siltstone-torture model",
        gate: 1_500,
        release: 1_000_000,
        least: 1_000,
    },
    Campaign {
        row: "9",
        what: "reads between steps, and steps in the middle of reads",
        run: "siltstone-torture between",
        gate: 3_000,
        release: 300_000,
        least: 1,
    },
    Campaign {
        row: "9",
        what: "corners: short lives, a thousand families, compactions that fail, readers beside writers, nested deletes",
        run: "siltstone-torture corners",
        gate: 2_000,
        release: 50_000,
        least: 1,
    },
    Campaign {
        row: "9",
        what: "calls to the server and to Bigtable's emulator: both answer alike (0 where it cannot be had)",
        run: "siltstone-siege beside",
        gate: 25_000,
        release: 2_500_000,
        least: 2_000,
    },
    Campaign {
        row: "17",
        what: "tables in an object store that is slow, fails, loses answers and lists what was there before",
        run: "siltstone-torture objects",
        gate: 100_000,
        release: 1_000_000,
        least: 1,
    },
    Campaign {
        row: "17",
        what: "owners of a shared database that come and go over such a store: crashes, pauses, two at once, late puts",
        run: "siltstone-torture shared",
        gate: 1_000_000,
        release: 4_000_000,
        least: 1,
    },
    Campaign {
        row: "18",
        what: "compactions run elsewhere by one that lies, hangs, forgets, works on unheard, answers twice or late: eleven faults",
        run: "siltstone-torture offload",
        gate: 550,
        release: 110_000,
        least: 220,
    },
    Campaign {
        row: "17",
        what: "regions: splits and joins under writes, compactions, snapshots and ends at each of their kill points",
        run: "siltstone-torture regions",
        gate: 6_000,
        release: 1_000_000,
        least: 1,
    },
    Campaign {
        row: "21",
        what: "the server killed under clients, at random and at kill points: rows, streams, backups against histories",
        run: "siltstone-siege kills",
        gate: 20,
        release: 10_000,
        least: 20,
    },
    Campaign {
        row: "16",
        what: "compaction servers and their manager killed and paused, and the server with them: every acknowledged row is there",
        run: "siltstone-siege offload",
        gate: 40,
        release: 20_000,
        least: 40,
    },
    Campaign {
        row: "24",
        what: "a ring of rows in the server, with kills and splits: none points to nothing",
        run: "siltstone-siege ring",
        gate: 250_000,
        release: 25_000_000,
        least: 96_000,
    },
    Campaign {
        row: "11",
        what: "twelve attacks on the server beside a client that behaves",
        run: "siltstone-siege hostile",
        gate: 30_000,
        release: 50_000_000,
        least: 1,
    },
    Campaign {
        row: "27",
        what: "each attack on server, page and compaction beside a client that behaves: memory, deadlines, rights",
        run: "siltstone-siege attack",
        gate: 62,
        release: 1_240,
        least: 62,
    },
    Campaign {
        row: "12",
        what: "seconds of more writes than the server's compactions can take",
        run: "siltstone-siege overload",
        gate: 15,
        release: 28_800,
        least: 1,
    },
    Campaign {
        row: "10",
        what: "damaged messages to every method of the server, and damaged configurations",
        run: "siltstone-siege messages",
        gate: 75_000,
        release: 100_000_000,
        least: 1_000,
    },
    Campaign {
        row: "10",
        what: "damaged messages to a compaction server and a compaction manager",
        run: "siltstone-siege peers",
        gate: 4_000,
        release: 10_000_000,
        least: 1_000,
    },
    Campaign {
        row: "10",
        what: "hostile bytes for the decoders",
        run: "siltstone-fuzz all",
        gate: 5_000_000,
        release: 2_000_000_000,
        least: 1,
    },
];

// A campaign whose gate could not fail for having met nothing is no campaign.
const _: () = {
    let mut at = 0;
    while at < CAMPAIGNS.len() {
        let campaign = &CAMPAIGNS[at];
        assert!(
            campaign.least > 0 && campaign.gate >= campaign.least,
            "a gate is below the count of its check"
        );
        assert!(campaign.release >= campaign.gate, "fewer cases before a release than for every change");
        at += 1;
    }
};
