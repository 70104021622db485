//! Leveled merging that finds by itself how long level 0 may wait, from what reads pay and what is
//! overwritten.
//!
//! What a merge of level 0 costs for each byte that came falls with the number of flushes it takes at once,
//! as what lies below is written once for all of them. What waiting costs is paid by reads, which look into
//! one run more for each flush; and by the disk, which holds what was overwritten. Neither is known
//! beforehand, and both change. So level 0, from `RUNS_MIN` runs on, waits until one of these says that the
//! merge is worth it:
//!
//! * *Scans and gets.* Tables count the reads that looked into them in vain. Once these looks have taken as
//!   long as the merge will (a look counts as in `early`), it is due, also with fewer runs. Whoever rents
//!   until the rent has reached the price of buying pays at most twice what the best choice would have been.
//! * *Skew and overlap.* Sketches say what share of the cells in level 0, in what gathers below it, and in
//!   the base where that is not far more, a merge would drop. From two fifths on it is due: so space stays
//!   bounded, and keys that come again and again are merged early, when that is cheap.
//! * *Room.* At `runs_max` runs, or as many flushes' bytes, and wherever writers would be held up for merges.
//!   A family that was just loaded may be read next, so it begins with `RUNS_MIN` and may hold a run more for
//!   every few flushes that came without reads paying for a merge.
//!
//! Everything else is `leveled`, with levels sized as if level 0 were merged at `runs_max`. Only the moment
//! of a merge changes with the load, so nothing is rewritten when that changes.

use super::leveled::LeveledOptions;
use super::runs::within;
use super::{Facts, Plan, PlanState, Strategy};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Runs in level 0 that are merged only if a merge is worth it by more than their number.
const RUNS_MIN: u64 = 4;

/// Settings of `auto`.
///
/// ```
/// let options = siltstone::strategy::AutoOptions { runs_max: 24, ..Default::default() };
/// assert_eq!(siltstone::strategy::StrategyOptions::Auto(options).to_string(), "auto{runs_max=24}");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoOptions {
    /// Flushes in level 0 that make a merge due whatever reads do. Default 16.
    pub runs_max: u64,
    /// Size at which output tables are cut. Default 64 MiB.
    pub table_bytes: u64,
}

impl Default for AutoOptions {
    fn default() -> Self {
        AutoOptions { runs_max: 16, table_bytes: LeveledOptions::default().table_bytes }
    }
}

impl AutoOptions {
    pub(crate) fn check(&self) -> Result<(), String> {
        within("runs_max", self.runs_max, RUNS_MIN, 1000)?;
        within("table_bytes", self.table_bytes, 4096, 1 << 50)
    }

    fn leveled(&self) -> LeveledOptions {
        LeveledOptions {
            l0_runs_trigger: RUNS_MIN,
            table_bytes: self.table_bytes,
            defer_below: None,
            ..LeveledOptions::default()
        }
    }
}

impl Strategy for AutoOptions {
    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        self.leveled().planned(shape, facts, state, Some(self.runs_max))
    }

    fn debt(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> u64 {
        self.leveled().owed(shape, facts, state, Some(self.runs_max))
    }

    fn last_level(&self, shape: &Shape) -> usize {
        self.leveled().last_level(shape)
    }

    fn level0_runs(&self) -> usize {
        usize::try_from(self.runs_max).unwrap_or(usize::MAX)
    }

    fn table_bytes(&self) -> u64 {
        self.table_bytes
    }
}
