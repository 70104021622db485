//! The conditions after a crash: acknowledged batches are there, the later ones are a prefix, and there is no
//! gap.
//!
//! A writer notes each batch here before it hands it to the database, and what became of it after. After
//! recovery the database must hold exactly what the model holds after *some* prefix of the batches, and that
//! prefix must include every batch whose acknowledgement promised to outlive this kind of end. As the prefix
//! has no hole, it includes what came before such a batch too.

use crate::model::{Model, Op, Row, Rules};

/// How the database ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The process was killed: every acknowledged batch is there.
    Kill,
    /// The power was lost: every batch acknowledged as synced is there.
    PowerLoss,
}

/// The database's answer to a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Answer {
    /// Nothing, or an error that leaves it open.
    Unknown,
    Buffered,
    Synced,
}

/// Which batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BatchId(usize);

/// The batches of one database in the order of its WAL.
#[derive(Clone, Debug)]
pub struct History {
    rules: Vec<Rules>,
    batches: Vec<Batch>,
}

#[derive(Clone, Debug)]
struct Batch {
    ops: Vec<Op>,
    now_us: u64,
    answer: Answer,
}

impl History {
    /// Nothing written yet to families with these rules.
    pub fn new(rules: impl IntoIterator<Item = Rules>) -> Self {
        Self { rules: rules.into_iter().collect(), batches: Vec::new() }
    }

    /// A batch is about to be written, at that wall time.
    pub fn start(&mut self, ops: Vec<Op>, now_us: u64) -> BatchId {
        self.batches.push(Batch { ops, now_us, answer: Answer::Unknown });
        BatchId(self.batches.len() - 1)
    }

    /// It was acknowledged: no kill may lose it.
    pub fn buffered(&mut self, batch: BatchId) {
        self.answered(batch, Answer::Buffered);
    }

    /// It was acknowledged as synced: no power loss may lose it.
    pub fn synced(&mut self, batch: BatchId) {
        self.answered(batch, Answer::Synced);
    }

    /// The WAL was synced to its end: every batch acknowledged so far is.
    pub fn all_synced(&mut self) {
        for batch in &mut self.batches {
            if batch.answer == Answer::Buffered {
                batch.answer = Answer::Synced;
            }
        }
    }

    /// The newest batch was refused before anything happened (an invalid batch, a full disk): it never was.
    pub fn refused(&mut self, batch: BatchId) {
        assert_eq!(batch.0 + 1, self.batches.len(), "only the newest batch can be taken back");
        self.batches.pop();
    }

    fn answered(&mut self, batch: BatchId, answer: Answer) {
        let batch = &mut self.batches[batch.0];
        batch.answer = batch.answer.max(answer);
    }

    /// How many batches there are.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The shortest prefix that keeps every promise.
    pub fn promised(&self, end: End) -> usize {
        let least = match end {
            End::Kill => Answer::Buffered,
            End::PowerLoss => Answer::Synced,
        };
        self.batches.iter().rposition(|batch| batch.answer >= least).map_or(0, |last| last + 1)
    }

    /// The writes, batch by batch.
    pub fn ops(&self, batches: usize) -> Vec<&[Op]> {
        self.batches[..batches].iter().map(|batch| &batch.ops[..]).collect()
    }

    /// The model after the first `batches` batches.
    pub fn model(&self, batches: usize) -> Model {
        let mut model = Model::new(self.rules.iter().copied());
        for batch in &self.batches[..batches] {
            model.apply(&batch.ops, batch.now_us);
        }
        model
    }

    /// Compares what the recovered database holds (each family's forward scan at `now_us`) with the model.
    /// The answer is the shortest and the longest prefix that explain it (they differ where batches changed
    /// nothing visible), or what is wrong.
    pub fn check(&self, end: End, contents: &[Vec<Row>], now_us: u64) -> Result<(usize, usize), String> {
        let promised = self.promised(end);
        let mut model = self.model(promised);
        let mut fits: Option<(usize, usize)> = None;
        for batches in promised..=self.batches.len() {
            if batches > promised {
                let newest = &self.batches[batches - 1];
                model.apply(&newest.ops, newest.now_us);
            }
            if model.contents(now_us) == contents {
                fits = Some((fits.map_or(batches, |f| f.0), batches));
            }
        }
        fits.ok_or_else(|| self.explain(promised, contents, now_us))
    }

    fn explain(&self, promised: usize, contents: &[Vec<Row>], now_us: u64) -> String {
        let total = self.batches.len();
        if let Some(short) = (0..promised).rev().find(|&n| self.model(n).contents(now_us) == contents) {
            return format!(
                "{promised} of {total} batches were promised, but only the first {short} are there"
            );
        }
        let expected = self.model(promised).contents(now_us);
        let name = |(key, timestamp, value): &Row| {
            format!("{}@{timestamp} = {}", key.escape_ascii(), value[..value.len().min(32)].escape_ascii())
        };
        for (family, (wanted, found)) in expected.iter().zip(contents).enumerate() {
            let same = wanted.iter().zip(found).take_while(|(a, b)| a == b).count();
            if same < wanted.len() || same < found.len() {
                let show = |rows: &[Row]| rows.get(same).map_or("nothing more".to_owned(), name);
                return format!(
                    "no prefix of at least {promised} of {total} batches explains what is there; against exactly \
                     {promised}, family {family} first differs at row {same}: expected {}, found {}",
                    show(wanted),
                    show(found)
                );
            }
        }
        format!("{} families were expected, found {}", expected.len(), contents.len())
    }

    /// Goes on from a recovered database that [`History::check`] found to hold `batches` batches: the others
    /// never were. With `durable` (recovery made what it found durable) what is left can no longer be lost.
    pub fn recovered(&mut self, batches: usize, durable: bool) {
        self.batches.truncate(batches);
        let least = if durable { Answer::Synced } else { Answer::Buffered };
        for batch in &mut self.batches {
            batch.answer = batch.answer.max(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five batches of two writes: 0 and 1 synced, 2 and 3 buffered, 4 unanswered.
    fn history() -> History {
        let mut history = History::new([Rules::default()]);
        for i in 0..5u8 {
            let op = |key: &[u8]| Op::Put { family: 0, key: key.to_vec(), timestamp: 0, value: vec![i] };
            let id = history.start(vec![op(&[i]), op(b"last")], 0);
            match i {
                0 | 1 => history.synced(id),
                2 | 3 => history.buffered(id),
                _ => {}
            }
        }
        history
    }

    #[test]
    fn a_power_loss_may_cost_what_was_not_synced_and_a_kill_nothing_acknowledged() {
        let history = history();
        let fits = |end| {
            (0..=5)
                .filter(|&n| history.check(end, &history.model(n).contents(0), 0) == Ok((n, n)))
                .collect::<Vec<_>>()
        };
        assert_eq!(fits(End::PowerLoss), [2, 3, 4, 5]);
        assert_eq!(fits(End::Kill), [4, 5]);
        let lost = history.check(End::Kill, &history.model(3).contents(0), 0).unwrap_err();
        assert_eq!(lost, "4 of 5 batches were promised, but only the first 3 are there");
    }

    #[test]
    fn a_hole_half_a_batch_or_an_unknown_row_is_no_prefix() {
        let history = history();
        let whole = history.model(5).contents(0);
        for row in 0..whole[0].len() {
            let mut damaged = whole.clone();
            damaged[0].remove(row);
            let found = history.check(End::PowerLoss, &damaged, 0);
            assert!(found.is_err(), "without row {row}: {found:?}");
        }
        let mut more = whole.clone();
        more[0].push((b"z".to_vec(), 0, b"new".to_vec()));
        let message = history.check(End::PowerLoss, &more, 0).unwrap_err();
        assert!(message.contains("first differs at row"), "{message}");
        assert!(history.check(End::PowerLoss, &[], 0).is_err());
    }

    #[test]
    fn batches_that_change_nothing_visible_leave_the_prefix_open() {
        let mut history = history();
        history.start(vec![Op::Delete { family: 0, key: b"none".to_vec(), timestamp: 0 }], 0);
        assert_eq!(history.check(End::Kill, &history.model(5).contents(0), 0), Ok((5, 6)));
    }

    #[test]
    fn a_recovered_history_goes_on_from_what_survived() {
        let mut history = history();
        history.recovered(3, false);
        assert_eq!((history.len(), history.promised(End::Kill), history.promised(End::PowerLoss)), (3, 3, 2));
        history.all_synced();
        assert_eq!(history.promised(End::PowerLoss), 3);
        let id = history.start(Vec::new(), 0);
        history.refused(id);
        assert_eq!(history.len(), 3);
    }
}
