//! The invariants of every shape.

use super::Shape;
use std::collections::HashSet;

impl Shape {
    /// Reports the first violation: an empty run or one out of order in its level, SSTables of a run that
    /// overlap or are not sorted, an SSTable with an empty live range or listed twice, wrong totals.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = HashSet::new();
        if self.levels.last().is_some_and(|level| level.runs.is_empty()) {
            return Err("the deepest level is empty".to_string());
        }
        for (level, l) in self.levels.iter().enumerate() {
            if let Some(pair) = l.runs.windows(2).find(|pair| pair[0].id <= pair[1].id) {
                return Err(format!("L{level}: run #{} stands before run #{}", pair[0].id, pair[1].id));
            }
            for run in &l.runs {
                let place = format!("L{level} #{}", run.id);
                if run.tables().is_empty() {
                    return Err(format!("{place} is empty"));
                }
                for table in run.tables() {
                    if table.live_range().is_empty() {
                        return Err(format!("{place}: table {} answers for no key", table.id));
                    }
                    if !seen.insert(table.id) {
                        return Err(format!("{place}: table {} is there twice", table.id));
                    }
                }
                for pair in run.tables().windows(2) {
                    if pair[0].range.ends_after(pair[1].live_start()) {
                        return Err(format!("{place}: tables {} and {} overlap", pair[0].id, pair[1].id));
                    }
                }
                let bytes: u64 = run.tables().iter().map(|t| t.live_bytes()).sum();
                let tombstones: u64 = run.tables().iter().map(|t| t.all_tombstones()).sum();
                if (bytes, tombstones) != (run.live_bytes(), run.tombstones()) {
                    return Err(format!("{place}: totals are wrong"));
                }
            }
        }
        Ok(())
    }
}
