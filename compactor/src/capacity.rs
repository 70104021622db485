//! How many compaction servers a workload needs (OFF-7; section 5 of the paper on offloaded compaction).
//!
//! A merge of b bytes takes D = b/c + b/w seconds: read and merged at c bytes a second, handed over at w. A server with m bytes of
//! memory has l = floor(m/b) of them at a time, so it does h = l t/D in an interval of t seconds. With T merges a region in that
//! time it serves floor(h/T) regions, and R regions take C = ceil(R / floor(h/T)) servers.

/// What is known of the workload and the servers.
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
    /// c: bytes a second at which a server reads and merges.
    pub merge_rate: f64,
    /// w: bytes a second at which what was merged is handed over.
    pub handover_rate: f64,
    /// m: bytes of a server's memory for what it merges.
    pub memory: f64,
    /// b: bytes of a merge.
    pub merge_bytes: f64,
    /// T: merges of a region in an interval.
    pub merges: f64,
    /// t: seconds of an interval.
    pub interval_seconds: f64,
    /// R: regions.
    pub regions: u64,
}

/// What follows from a [`Capacity`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CapacityPlan {
    /// D: seconds from the beginning of a merge until it is handed over.
    pub merge_seconds: f64,
    /// l: merges of a server at a time.
    pub at_a_time: u64,
    /// h: merges of a server in an interval.
    pub per_interval: f64,
    /// Regions that a server serves.
    pub regions_each: u64,
    /// C: servers.
    pub servers: u64,
}

impl Capacity {
    /// How many servers it takes.
    ///
    /// # Errors
    /// A figure that is not above zero; a merge that is larger than a server's memory; regions that merge more than a whole server
    /// can do.
    pub fn plan(&self) -> Result<CapacityPlan, String> {
        let figures = [
            ("the rate of merging", self.merge_rate),
            ("the rate of handing over", self.handover_rate),
            ("the memory", self.memory),
            ("the size of a merge", self.merge_bytes),
            ("the number of merges", self.merges),
            ("the interval", self.interval_seconds),
            ("the number of regions", self.regions as f64),
        ];
        if let Some((name, value)) = figures.iter().find(|(_, value)| !value.is_finite() || *value <= 0.0) {
            return Err(format!("{name} is {value}, and must be above 0"));
        }
        let merge_seconds = self.merge_bytes / self.merge_rate + self.merge_bytes / self.handover_rate;
        let at_a_time = (self.memory / self.merge_bytes).floor() as u64;
        if at_a_time == 0 {
            return Err(
                "a merge is larger than the memory of a server: give it more memory, or make regions smaller"
                    .into(),
            );
        }
        let per_interval = self.interval_seconds / merge_seconds * at_a_time as f64;
        let regions_each = (per_interval / self.merges).floor() as u64;
        if regions_each == 0 {
            return Err("one region has more merges than a server can do: make regions smaller".into());
        }
        let servers = self.regions.div_ceil(regions_each);
        Ok(CapacityPlan { merge_seconds, at_a_time, per_interval, regions_each, servers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn more_memory_and_smaller_merges_take_fewer_servers() {
        let servers = |capacity: Capacity| capacity.plan().unwrap().servers;
        assert_eq!(servers(EXAMPLE), 2);
        assert_eq!(servers(Capacity { memory: 12e9, ..EXAMPLE }), 1);
        assert_eq!(servers(Capacity { regions: 11, ..EXAMPLE }), 3);
        assert_eq!(servers(Capacity { merges: 5.0, ..EXAMPLE }), 10);
        assert_eq!(servers(Capacity { merge_bytes: 2e9, ..EXAMPLE }), 1);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |capacity: Capacity| capacity.plan().unwrap_err();
        assert!(refused(Capacity { memory: 3e9, ..EXAMPLE }).contains("larger than the memory"));
        assert!(refused(Capacity { merges: 6.0, ..EXAMPLE }).contains("more merges than a server"));
        assert!(refused(Capacity { handover_rate: 0.0, ..EXAMPLE }).contains("rate of handing over is 0"));
        assert!(refused(Capacity { merge_rate: f64::NAN, ..EXAMPLE }).contains("rate of merging"));
    }
}
