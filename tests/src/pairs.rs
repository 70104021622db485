//! Few rows that hold every pair of values.
//!
//! Most faults of configuration need two options with certain values, seldom three. A row gives each column
//! (an option) one of its values; all pairs of values of any two columns fit in some tens of rows, where all
//! combinations would be billions. Rows are made greedily: a pair that no row has yet, then for one column
//! after the other, in random order, the value that makes the most new pairs with those chosen so far. Of a
//! few such rows the best is taken. What was reached is counted apart from how the rows were made: [`Pairs`]
//! is told of each row that ran.

use siltstone::storage::sim::Rng;

/// Rows drawn for each that is taken.
const TRIES: usize = 8;

/// The pairs that were met.
pub struct Pairs {
    /// Number of values of each column.
    columns: Vec<usize>,
    met: Vec<bool>,
    /// The index of a column's first value among all values.
    first: Vec<usize>,
    values: usize,
}

impl Pairs {
    /// None met yet, of columns with so many values.
    pub fn new(columns: &[usize]) -> Self {
        let first = columns.iter().scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n))).collect();
        let values: usize = columns.iter().sum();
        Self { columns: columns.to_vec(), met: vec![false; values * values], first, values }
    }

    /// The index of the pair; `a` before `b`.
    fn at(&self, a: (usize, usize), b: (usize, usize)) -> usize {
        (self.first[a.0] + a.1) * self.values + self.first[b.0] + b.1
    }

    fn has(&self, a: (usize, usize), b: (usize, usize)) -> bool {
        self.met[if a.0 < b.0 { self.at(a, b) } else { self.at(b, a) }]
    }

    /// Meets the pairs of a row.
    pub fn meet(&mut self, row: &[usize]) {
        assert_eq!(row.len(), self.columns.len());
        for b in 0..row.len() {
            for a in 0..b {
                let at = self.at((a, row[a]), (b, row[b]));
                self.met[at] = true;
            }
        }
    }

    /// Pairs met.
    pub fn count(&self) -> usize {
        self.met.iter().filter(|met| **met).count()
    }

    /// Pairs there are.
    pub fn all(&self) -> usize {
        let squares: usize = self.columns.iter().map(|n| n * n).sum();
        (self.values * self.values - squares) / 2
    }

    /// The pairs not met, each as two (column, value).
    pub fn missing(&self) -> Vec<[(usize, usize); 2]> {
        let mut missing = Vec::new();
        for b in 0..self.columns.len() {
            for a in 0..b {
                let pairs = (0..self.columns[a]).flat_map(|x| (0..self.columns[b]).map(move |y| (x, y)));
                let pairs = pairs.map(|(x, y)| [(a, x), (b, y)]);
                missing.extend(pairs.filter(|[a, b]| !self.has(*a, *b)));
            }
        }
        missing
    }

    /// A row with the pair and as many more new ones as choosing column by column gives.
    fn row_with(&self, pair: [(usize, usize); 2], rng: &mut Rng) -> (usize, Vec<usize>) {
        let mut chosen = pair.to_vec();
        let mut gained = 1;
        let mut others: Vec<usize> =
            (0..self.columns.len()).filter(|c| pair.iter().all(|p| p.0 != *c)).collect();
        rng.shuffle(&mut others);
        for column in others {
            let gain = |value| chosen.iter().filter(|other| !self.has((column, value), **other)).count();
            let mut values: Vec<usize> = (0..self.columns[column]).collect();
            rng.shuffle(&mut values);
            let (best, gains) =
                values.into_iter().map(|v| (v, gain(v))).max_by_key(|(_, g)| *g).expect("a value");
            chosen.push((column, best));
            gained += gains;
        }
        chosen.sort_unstable();
        (gained, chosen.into_iter().map(|(_, value)| value).collect())
    }
}

/// Rows with every pair of values of columns with so many values each; at least `least` rows, the ones beyond
/// need be drawn at random.
pub fn covering(columns: &[usize], least: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let mut pairs = Pairs::new(columns);
    let mut rows = Vec::new();
    loop {
        let missing = pairs.missing();
        if missing.is_empty() {
            break;
        }
        let tries = (0..TRIES).map(|_| pairs.row_with(*rng.pick(&missing), rng));
        let (_, best) = tries.max_by_key(|(gained, _)| *gained).expect("there are tries");
        pairs.meet(&best);
        rows.push(best);
    }
    while rows.len() < least {
        rows.push(columns.iter().map(|n| rng.index(*n)).collect());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_hold_all_pairs_are_few() {
        let columns = [2, 3, 4, 3, 2, 5, 3, 3, 4, 2, 3, 3];
        for seed in 0..20 {
            let rows = covering(&columns, 0, &mut Rng::new(seed));
            let mut pairs = Pairs::new(&columns);
            rows.iter().for_each(|row| pairs.meet(row));
            assert_eq!((pairs.count(), pairs.missing().len()), (pairs.all(), 0), "seed {seed}");
            assert!((20..36).contains(&rows.len()), "seed {seed}: {} rows, 20 are needed", rows.len());
        }
    }

    #[test]
    fn a_pair_that_no_row_has_is_named() {
        let mut pairs = Pairs::new(&[2, 2, 1]);
        for row in [[0, 0, 0], [0, 1, 0], [1, 1, 0]] {
            pairs.meet(&row);
        }
        assert_eq!((pairs.count(), pairs.all()), (7, 8));
        assert_eq!(pairs.missing(), [[(0, 1), (1, 0)]]);
    }
}
