//! Where a compaction costs less: in the database's process or on a server. A pure function, so that a
//! decision can be reported with its numbers.
//!
//! Costs are in bytes of work, a byte read or written counting one:
//!
//! ```text
//! here   = (input + predicted) x (1 + FELT x load here)
//! there  = handed over         x (1 + FELT x load here)  +  (input + predicted) x load there
//! handed over = overhead + cached / input x predicted  (+ (input + predicted) / 2 where no storage is shared)
//! ```
//!
//! Predicted: the output bytes by the inputs' sketches. Cached: the input bytes in the block cache; their
//! successors come over the connection. Loads are shares of all processors, from 0 to 1. Work here slows
//! readers and writers, the more the busier the machine is; work there slows none of them, but waits for
//! other work there.

/// The additional weight of work on a busy machine over an idle one.
const FELT: f64 = 4.0;

/// The cost here to read and send, or to receive and write a byte, as a part of the cost to compact it.
const CARRIED: f64 = 0.5;

/// The figures of a compaction and of both ends.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Facts {
    /// The fixed cost here of a compaction on a server: its description, its answers, the check of its
    /// outputs.
    pub(crate) overhead_bytes: u64,
    pub(crate) input_bytes: u64,
    pub(crate) predicted_bytes: u64,
    pub(crate) cached_bytes: u64,
    /// Shares of all processors.
    pub(crate) load_here: f64,
    pub(crate) load_there: f64,
    /// Whether blocks are handed over at all.
    pub(crate) hands_over: bool,
    /// Inputs and outputs go over the connection.
    pub(crate) is_carried: bool,
}

/// The two costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Costs {
    pub(crate) here: u64,
    pub(crate) there: u64,
}

impl Facts {
    pub(crate) fn costs(&self) -> Costs {
        let (input, predicted) = (self.input_bytes as f64, self.predicted_bytes as f64);
        let work = input + predicted;
        let cached = if self.hands_over { self.cached_bytes as f64 / input.max(1.0) } else { 0.0 };
        let carried = if self.is_carried { work * CARRIED } else { 0.0 };
        let handed_over = self.overhead_bytes as f64 + cached.min(1.0) * predicted + carried;
        let felt = 1.0 + FELT * self.load_here.clamp(0.0, 1.0);
        let there = handed_over * felt + work * self.load_there.clamp(0.0, 1.0);
        Costs { here: (work * felt) as u64, there: there as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn facts() -> Facts {
        Facts {
            overhead_bytes: MIB,
            input_bytes: 100 * MIB,
            predicted_bytes: 80 * MIB,
            hands_over: true,
            ..Facts::default()
        }
    }

    fn goes(facts: Facts) -> bool {
        let costs = facts.costs();
        costs.there < costs.here
    }

    #[test]
    fn a_compaction_goes_where_it_costs_less() {
        assert!(goes(facts()));
        assert_eq!(facts().costs(), Costs { here: 180 * MIB, there: MIB });
        // All of it cached: blocks come over, which costs less than to compact them.
        assert!(goes(Facts { cached_bytes: 100 * MIB, ..facts() }));
        // An idle machine does not offload to a busy server, a busy one does.
        let there_busy = Facts { load_there: 1.0, ..facts() };
        assert!(!goes(there_busy));
        assert!(goes(Facts { load_here: 0.5, ..there_busy }));
        // Not if all of it would have to come over.
        let hot = Facts { load_here: 0.2, cached_bytes: 100 * MIB, ..there_busy };
        assert!(
            !goes(hot) && goes(Facts { load_there: 0.2, ..hot }) && goes(Facts { hands_over: false, ..hot })
        );
        // Where all goes over the connection it takes a busy machine or an idle server.
        let carried = Facts { is_carried: true, load_there: 0.6, ..facts() };
        assert!(
            !goes(carried)
                && goes(Facts { load_here: 0.3, ..carried })
                && goes(Facts { load_there: 0.1, ..carried })
        );
        // Small ones are not worth a word.
        assert!(!goes(Facts { input_bytes: MIB / 2, predicted_bytes: MIB / 4, ..facts() }));
    }

    #[test]
    fn more_cached_more_load_there_and_less_load_here_never_make_it_go() {
        let steps = [0.0, 0.1, 0.3, 0.6, 1.0];
        let at = |cached: f64, there: f64, here: f64| {
            goes(Facts {
                cached_bytes: (100.0 * MIB as f64 * cached) as u64,
                load_there: there,
                load_here: here,
                ..facts()
            })
        };
        for (n, a) in steps.iter().enumerate() {
            for b in &steps[n..] {
                for c in steps {
                    for d in steps {
                        assert!(!at(*b, c, d) || at(*a, c, d), "cached {a} and {b}");
                        assert!(!at(c, *b, d) || at(c, *a, d), "load there {a} and {b}");
                        assert!(!at(c, d, *a) || at(c, d, *b), "load here {a} and {b}");
                    }
                }
            }
        }
    }
}
