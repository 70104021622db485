//! Compaction pacing: how long compactions rest beside readers, and how fast they may write where the limit
//! follows the debt.
//!
//! Compactions at full speed disturb readers, and compactions that are too slow delay writers. So compactions
//! are held back most without debt, and less the nearer writers come to being delayed for compactions. With
//! `x` the way to that point, between 0 (no debt) and 1 (writers begin to be delayed), by debt or by runs in
//! L0, whichever is further, their rest per second of work, and their bytes per second, are
//!
//! ```text
//! most * (1 - x)^2        floor / (1 - x)^2
//! ```
//!
//! a quarter of the longest rest and four times the floor half-way, a hundredth and a hundred times at nine
//! tenths, and no rest and no limit from 1 on. So neither jumps; under a steady load both settle where
//! compactions are as fast as that load needs them; and no writer is ever delayed for their sake, however
//! long the rests or low the floor. A fixed limit stays above all that. Flushes take from the same bucket and
//! never wait, so memory plays no part in it.

use super::Pressure;
use super::backpressure::fill;

/// The ratio of a compaction's rest to its work beside readers, which is `most` without debt.
pub(crate) fn pacing(most: u32, pressure: &Pressure) -> f64 {
    let left = 1.0 - way(pressure);
    f64::from(most) * left * left
}

/// The way to the point where writers are delayed for compactions, from 0 to 1.
fn way(pressure: &Pressure) -> f64 {
    fill(pressure.debt, 0, pressure.debt_low).max(fill(pressure.level0_runs, 0, pressure.level0_low))
}

/// Bytes a second that compactions may write, 0 for no limit; `most` is the fixed limit, where 0 is none,
/// too.
pub(crate) fn compaction_rate(floor: u64, most: u64, pressure: &Pressure) -> u64 {
    let x = way(pressure);
    if floor == 0 || x >= 1.0 {
        return most;
    }
    let rate = (floor as f64 / ((1.0 - x) * (1.0 - x))) as u64;
    if most == 0 { rate } else { rate.min(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owing(debt: u64) -> Pressure {
        Pressure { debt, debt_low: 100_000, debt_hard: 400_000, ..Pressure::default() }
    }

    #[test]
    fn the_rate_rises_from_the_floor_without_a_jump_and_ends_where_writers_would_be_slowed() {
        assert_eq!(compaction_rate(1000, 0, &owing(0)), 1000);
        assert_eq!(compaction_rate(1000, 0, &owing(50_000)), 4000);
        assert_eq!(compaction_rate(1000, 0, &owing(100_000)), 0);
        let mut last = 1000;
        for debt in 1..99_000 {
            let rate = compaction_rate(1000, 0, &owing(debt));
            assert!(rate >= last && rate - last <= last / 400 + 1, "{last} to {rate} at {debt}");
            last = rate;
        }
    }

    #[test]
    fn rests_become_shorter_with_what_is_owed_and_end_where_writers_would_be_slowed() {
        assert_eq!(pacing(7, &owing(0)), 7.0);
        assert_eq!(pacing(8, &owing(50_000)), 2.0);
        assert_eq!(pacing(7, &owing(100_000)), 0.0);
        let runs = Pressure { level0_runs: 4, level0_low: 8, level0_hard: 36, ..owing(1000) };
        assert_eq!(pacing(8, &runs), 2.0);
        assert_eq!(pacing(0, &owing(0)), 0.0);
    }

    #[test]
    fn runs_in_level_0_raise_it_as_well_and_a_fixed_limit_stays_above() {
        let runs = Pressure { level0_runs: 4, level0_low: 8, level0_hard: 36, ..owing(1000) };
        assert_eq!(compaction_rate(1000, 0, &runs), 4000);
        assert_eq!(compaction_rate(1000, 2500, &runs), 2500);
        assert_eq!(compaction_rate(1000, 2500, &owing(200_000)), 2500);
        assert_eq!(compaction_rate(0, 2500, &owing(0)), 2500);
    }
}
