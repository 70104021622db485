//! How many compaction servers a workload needs (OFF-7; section 5 of the paper on offloaded compaction).
//!
//! A compaction of b bytes takes D = b/c + b/w seconds: read and compacted at c bytes a second, handed over
//! at w. A server with m bytes of memory has l = floor(m/b) of them at a time, so it does h = l t/D in an
//! interval of t seconds. With T compactions a region in that time it serves floor(h/T) regions, and R
//! regions take C = ceil(R / floor(h/T)) servers.

use crate::protocol::CompactorState;

/// Figures of the workload and the servers.
///
/// ```
/// use siltstone_compactor::Capacity;
///
/// // The paper's example.
/// let capacity = Capacity {
///     merge_rate: 20e6,
///     handover_rate: 8e6,
///     memory: 6e9,
///     merge_bytes: 4e9,
///     merges: 1.0,
///     interval_seconds: 3600.0,
///     regions: 10,
/// };
/// let plan = capacity.plan()?;
/// assert_eq!((plan.at_a_time, plan.regions_each, plan.servers), (1, 5, 2));
/// assert_eq!(plan.merge_seconds, 700.0);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Capacity {
    /// c: bytes a second at which a server reads and compacts.
    pub merge_rate: f64,
    /// w: bytes a second at which outputs are handed over.
    pub handover_rate: f64,
    /// m: bytes of a server's memory for compactions.
    pub memory: f64,
    /// b: bytes of a compaction.
    pub merge_bytes: f64,
    /// T: compactions of a region in an interval.
    pub merges: f64,
    /// t: seconds of an interval.
    pub interval_seconds: f64,
    /// R: regions.
    pub regions: u64,
}

/// The result computed from a [`Capacity`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CapacityPlan {
    /// D: seconds from the beginning of a compaction until it is handed over.
    pub merge_seconds: f64,
    /// l: compactions of a server at a time.
    pub at_a_time: u64,
    /// h: compactions of a server in an interval.
    pub per_interval: f64,
    /// Regions that a server serves.
    pub regions_each: u64,
    /// C: servers.
    pub servers: u64,
}

impl Capacity {
    /// How many servers it takes.
    ///
    /// # Errors A figure that is not above zero; a compaction that is larger than a server's memory; regions
    /// that compact more than a whole server can do.
    pub fn plan(&self) -> Result<CapacityPlan, String> {
        let figures = [
            ("the rate of merging", self.merge_rate),
            ("the rate of handing over", self.handover_rate),
            ("the memory", self.memory),
            ("the size of a compaction", self.merge_bytes),
            ("the number of compactions", self.merges),
            ("the interval", self.interval_seconds),
            ("the number of regions", self.regions as f64),
        ];
        if let Some((name, value)) = figures.iter().find(|(_, value)| !value.is_finite() || *value <= 0.0) {
            return Err(format!("{name} is {value}, and must be above 0"));
        }
        let merge_seconds = self.merge_seconds();
        let at_a_time = self.at_a_time()?;
        let per_interval = self.interval_seconds / merge_seconds * at_a_time as f64;
        let regions_each = (per_interval / self.merges).floor() as u64;
        if regions_each == 0 {
            return Err("one region has more compactions than a server can do: make regions smaller".into());
        }
        let servers = self.regions.div_ceil(regions_each);
        Ok(CapacityPlan { merge_seconds, at_a_time, per_interval, regions_each, servers })
    }
}

/// The waiting times for a free server of the compactions that came due in one interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Waits {
    /// Compactions.
    pub merges: u64,
    /// Seconds, on average.
    pub mean_seconds: f64,
    /// Seconds.
    pub longest_seconds: f64,
}

/// A compaction server's measurements of itself, for [`Capacity`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredRates {
    /// c: bytes a second at which it compacted.
    pub merge_rate: f64,
    /// w: bytes a second at which databases took outputs, while a compaction waited for that.
    pub handover_rate: f64,
    /// m: its memory in bytes.
    pub memory: f64,
    /// b: input bytes of a compaction, on average.
    pub merge_bytes: f64,
}

/// Infinite, as databases never kept a compaction waiting.
const AT_ONCE: f64 = 1e15;

impl MeasuredRates {
    /// The measurements since the server was started.
    ///
    /// # Errors It has compacted nothing yet.
    pub fn of(state: &CompactorState) -> Result<Self, String> {
        if state.done == 0 || state.merged_bytes == 0 || state.merging_us == 0 {
            return Err("it has merged nothing yet".into());
        }
        let bytes = state.merged_bytes as f64;
        let rate = |us: u64| if us == 0 { AT_ONCE } else { bytes / (us as f64 / 1e6) };
        Ok(Self {
            merge_rate: rate(state.merging_us),
            handover_rate: rate(state.handing_over_us),
            memory: state.memory_max as f64,
            merge_bytes: bytes / state.done as f64,
        })
    }
}

impl Capacity {
    /// Simulates so many servers over so many intervals (Figure 9 of the paper): regions are spread over
    /// servers in turn, each has a compaction due every t/T seconds from a moment on that is drawn from the
    /// seed, and a server takes compactions as they come due, l at a time. Where servers are too few,
    /// compactions of each interval wait longer than those of the one before.
    ///
    /// Takes time in the number of compactions.
    ///
    /// # Errors
    /// The errors of [`Capacity::plan`], but for too many compactions of a region; no servers.
    pub fn waits(&self, servers: u64, intervals: u32, seed: u64) -> Result<Vec<Waits>, String> {
        if servers == 0 {
            return Err("no servers".into());
        }
        let merge_seconds = self.merge_seconds();
        let at_a_time = self.at_a_time()?;
        let between = self.interval_seconds / self.merges;
        let mut due: Vec<(f64, u64)> = Vec::new();
        for region in 0..self.regions {
            let first = between * fraction(seed, region);
            let moments = (0_u32..).map(|n| first + f64::from(n) * between);
            let moments = moments.take_while(|at| *at < f64::from(intervals) * self.interval_seconds);
            due.extend(moments.map(|at| (at, region % servers)));
        }
        due.sort_by(|a, b| a.0.total_cmp(&b.0));
        // When each slot of each server is free again.
        let mut free = vec![vec![0.0_f64; at_a_time as usize]; servers as usize];
        let mut waits = vec![Waits::default(); intervals as usize];
        for (at, server) in due {
            let slots = &mut free[server as usize];
            let Some(slot) = slots.iter_mut().min_by(|a, b| a.total_cmp(b)) else { continue };
            let begins = slot.max(at);
            *slot = begins + merge_seconds;
            let waits = &mut waits[(at / self.interval_seconds) as usize];
            waits.merges += 1;
            waits.mean_seconds += begins - at;
            waits.longest_seconds = waits.longest_seconds.max(begins - at);
        }
        waits.iter_mut().for_each(|waits| waits.mean_seconds /= waits.merges.max(1) as f64);
        Ok(waits)
    }

    /// D.
    fn merge_seconds(&self) -> f64 {
        self.merge_bytes / self.merge_rate + self.merge_bytes / self.handover_rate
    }

    /// l.
    fn at_a_time(&self) -> Result<u64, String> {
        match (self.memory / self.merge_bytes).floor() as u64 {
            0 => Err(
                "a compaction is larger than the memory of a server: give it more memory, or make regions smaller"
                    .into(),
            ),
            slots => Ok(slots),
        }
    }
}

/// A number from 0 to below 1 that follows from the seed and another.
fn fraction(seed: u64, of: u64) -> f64 {
    // The finishing steps of SplitMix64.
    let mut x = seed ^ of.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_measured_is_the_time_its_compactions_took() {
        let idle = CompactorState { memory_max: 6 << 30, ..CompactorState::default() };
        assert!(MeasuredRates::of(&idle).unwrap_err().contains("nothing yet"));
        let (done, merged_bytes) = (4, 16_000_000_000);
        let state = CompactorState { done, merged_bytes, merging_us: 800_000_000, ..idle };
        let MeasuredRates { merge_rate, handover_rate, memory, merge_bytes } =
            MeasuredRates::of(&state).unwrap();
        assert_eq!((merge_rate, memory, merge_bytes), (20e6, (6_u64 << 30) as f64, 4e9));
        assert!(merge_bytes / handover_rate < 0.001);
        let state = CompactorState { handing_over_us: 2_000_000_000, ..state };
        assert_eq!(MeasuredRates::of(&state).unwrap().handover_rate, 8e6);
    }

    const EXAMPLE: Capacity = Capacity {
        merge_rate: 20e6,
        handover_rate: 8e6,
        memory: 6e9,
        merge_bytes: 4e9,
        merges: 1.0,
        interval_seconds: 3600.0,
        regions: 10,
    };

    #[test]
    fn more_memory_and_smaller_compactions_take_fewer_servers() {
        let servers = |capacity: Capacity| capacity.plan().unwrap().servers;
        assert_eq!(servers(EXAMPLE), 2);
        assert_eq!(servers(Capacity { memory: 12e9, ..EXAMPLE }), 1);
        assert_eq!(servers(Capacity { regions: 11, ..EXAMPLE }), 3);
        assert_eq!(servers(Capacity { merges: 5.0, ..EXAMPLE }), 10);
        assert_eq!(servers(Capacity { merge_bytes: 2e9, ..EXAMPLE }), 1);
    }

    #[test]
    fn too_few_servers_fall_behind_and_enough_do_not() {
        // Figure 9 of the paper: 5 and 10 region servers, each with a compaction an hour, for four hours, on
        // 1 and 2 servers.
        let longest = |regions, servers, seed| -> Vec<f64> {
            let waits = Capacity { regions, ..EXAMPLE }.waits(servers, 4, seed).unwrap();
            assert_eq!(waits.iter().map(|w| w.merges).sum::<u64>(), 4 * regions);
            waits.iter().map(|waits| waits.longest_seconds).collect()
        };
        for seed in 0..100 {
            for (regions, servers) in [(5, 1), (10, 2)] {
                let waits = longest(regions, servers, seed);
                // Five compactions of 700 s come due together at worst.
                assert!(waits.iter().all(|wait| *wait <= 4.0 * 700.0), "seed {seed}: {waits:?}");
            }
            let waits = longest(10, 1, seed);
            assert!(waits.windows(2).all(|two| two[1] > two[0] + 3000.0), "seed {seed}: {waits:?}");
        }
        assert_eq!(EXAMPLE.waits(0, 4, 1).unwrap_err(), "no servers");
        // With room for two at a time, one server does what two did.
        let wide = Capacity { memory: 8e9, ..EXAMPLE }.waits(1, 4, 7).unwrap();
        assert!(wide.iter().all(|waits| waits.longest_seconds <= 4.0 * 700.0), "{wide:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |capacity: Capacity| capacity.plan().unwrap_err();
        assert!(refused(Capacity { memory: 3e9, ..EXAMPLE }).contains("larger than the memory"));
        assert!(refused(Capacity { merges: 6.0, ..EXAMPLE }).contains("more compactions than a server"));
        assert!(refused(Capacity { handover_rate: 0.0, ..EXAMPLE }).contains("rate of handing over is 0"));
        assert!(refused(Capacity { merge_rate: f64::NAN, ..EXAMPLE }).contains("rate of merging"));
    }
}
