//! A call of ReadRows, message by message.
//!
//! Between two messages no snapshot is held if the client is slow: the rows are opened anew, at a new
//! snapshot, behind the last row that was given out. Each row is as it was at one moment; different rows of a
//! scan may be of different moments, as Bigtable has it. So between two messages of one row its snapshot is
//! held.

use crate::cells::filter::{Filter, Need};
use crate::cells::row_key::{self, Span};
use crate::net::work::Work;
use crate::proto::data::row_range::{EndKey, StartKey};
use crate::proto::data::{
    FullReadStatsView, ReadIterationStats, ReadRowsRequest, ReadRowsResponse, RequestLatencyStats,
    RequestStats, RowRange, RowSet, read_rows_request::RequestStatsView, request_stats::StatsView,
};
use crate::rows::chunks::{Chunker, PIECE_BYTES};
use crate::rows::pieces::{Next, Pieces};
use crate::rows::row_cursor::{Cells, Collected, RowCursor, Step, View, behind_row};
use crate::tables::registry::Tables;
use crate::tables::views::Target;
use bytes::Bytes;
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Status;

/// The number of consecutive rows without output after which a client that wants it gets a message about the
/// progress.
const SILENT_ROWS: u64 = 10_000;
/// After how long a turn sends the messages that it has, though it might read more.
const SEND_AFTER: Duration = Duration::from_millis(2);

/// Features that a client understands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Client {
    /// Messages about rows without output.
    pub(crate) tells_scanned: bool,
    /// It does not understand rows in several messages.
    pub(crate) whole_rows: bool,
}

/// A scan under way.
pub(crate) struct RowScan {
    tables: Arc<Tables>,
    target: Target,
    /// The needed parts of the families that are read.
    needs: Vec<(Arc<str>, Need)>,
    /// The row that goes through the filter, if there is one.
    filtered: Option<Pieces>,
    /// The remaining ranges, in the order of reading.
    spans: VecDeque<Span>,
    reversed: bool,
    /// Rows that may still be given out.
    limit: u64,
    open: Option<RowCursor>,
    chunker: Chunker,
    /// Cells of the row that is being filtered that are in messages.
    given: usize,
    /// Keys of which nothing is read, as the filter lets nothing through, and its client wants to know the
    /// last row.
    unread: VecDeque<Span>,
    /// The row's part of the keys of the row that was looked at last, where no walk is open.
    last: Vec<u8>,
    /// Cells of a row that has been read, while what is left of it waits for messages.
    is_read: Option<usize>,
    tells_scanned: bool,
    wants_stats: bool,
    stats: ReadIterationStats,
    began: Instant,
    silent: u64,
    ended: bool,
}

impl RowScan {
    /// Checks the request and begins.
    pub(crate) fn new(
        tables: Arc<Tables>,
        request: &ReadRowsRequest,
        client: Client,
        work: &mut Work,
    ) -> Result<Self, Status> {
        let target = tables.target(&request.table_name, &request.authorized_view_name)?;
        let filter = Filter::compile(request.filter.as_ref(), work)?;
        let mut spans = target.within(spans(request.rows.as_ref())?);
        if request.reversed {
            spans = spans.into_iter().rev().collect();
        }
        let limit = match u64::try_from(request.rows_limit) {
            Ok(0) => u64::MAX,
            Ok(limit) => limit,
            Err(_) => return Err(Status::invalid_argument(format!("rows_limit is {}", request.rows_limit))),
        };
        let needs = target.needs(&filter);
        let mut unread = VecDeque::new();
        if needs.is_empty() {
            unread = std::mem::take(&mut spans);
        }
        if !client.tells_scanned {
            unread.clear();
        }
        let is_all = needs.iter().all(|(_, need)| need.is_all);
        Ok(Self {
            tables,
            target,
            needs,
            filtered: (!is_all).then(|| Pieces::new(filter)),
            spans,
            reversed: request.reversed,
            limit,
            open: None,
            chunker: if client.whole_rows { Chunker::whole_rows() } else { Chunker::default() },
            given: 0,
            unread,
            last: Vec::new(),
            is_read: None,
            tells_scanned: client.tells_scanned,
            wants_stats: request.request_stats_view() == RequestStatsView::RequestStatsFull,
            stats: ReadIterationStats::default(),
            began: Instant::now(),
            silent: 0,
            ended: false,
        })
    }

    /// The next messages. There are none at the end, where the work is over before, and where memory is
    /// wanted first.
    pub(crate) fn turn(&mut self, work: &mut Work) -> Result<Vec<Bytes>, Status> {
        let (began, mut full) = (Instant::now(), 0);
        while !self.ended && !self.chunker.is_full() && self.chunker.wants()? == 0 {
            if self.tells_scanned && self.silent >= SILENT_ROWS {
                let mut messages = self.chunker.take();
                messages.push(self.scanned_to());
                return Ok(messages);
            }
            // The clock is looked at once a message.
            if self.chunker.full_messages() > full {
                full = self.chunker.full_messages();
                if began.elapsed() >= SEND_AFTER {
                    break;
                }
            }
            if !self.step(work)? {
                break;
            }
        }
        let mut messages = match self.ended {
            true => self.chunker.take(),
            false => self.chunker.take_full(),
        };
        if self.ended && self.tells_scanned && self.silent > 0 {
            messages.push(self.scanned_to());
        }
        if self.ended && std::mem::take(&mut self.wants_stats) {
            let message = ReadRowsResponse { request_stats: Some(self.stats()), ..Default::default() };
            messages.push(message.encode_to_vec().into());
        }
        Ok(messages)
    }

    /// Whether there is nothing more.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Bytes of memory for which it waits, to put a row together that its client needs whole.
    ///
    /// # Errors
    /// The row is too large for that.
    pub(crate) fn wants(&self) -> Result<usize, Status> {
        self.chunker.wants()
    }

    /// There are so many bytes of memory more for it.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.chunker.allow(bytes);
    }

    /// Whether its client takes no row in several messages.
    pub(crate) fn needs_whole_rows(&self) -> bool {
        self.chunker.needs_whole_rows()
    }

    /// Cuts the row, as there is no memory for more of it at once.
    pub(crate) fn cut(&mut self) {
        self.chunker.cut();
    }

    /// Bytes that it holds of a row, beside the messages that it gave out.
    pub(crate) fn held(&self) -> usize {
        self.chunker.held()
    }

    /// Lets go of blocks and the snapshot, as the client takes its time; not within a row.
    pub(crate) fn rest(&mut self) {
        if self.is_in_row() {
            return;
        }
        let (Some(rows), Some(span)) = (self.open.take(), self.spans.front_mut()) else { return };
        if rows.part.is_empty() {
            return;
        }
        // The remaining ranges begin after the row that was read last.
        match self.reversed {
            false => span.start = behind_row(&rows.part),
            true => span.end = Some(rows.part.clone()),
        }
        self.last = rows.part;
    }

    fn is_in_row(&self) -> bool {
        self.chunker.has_rest()
            || self.is_read.is_some()
            || self.filtered.as_ref().is_some_and(Pieces::is_in_row)
            || self.open.as_ref().is_some_and(RowCursor::is_in_row)
    }

    /// Reads on in a row, to its end if there is room for it, or comes to the end of all. False where the
    /// work is over before.
    fn step(&mut self, work: &mut Work) -> Result<bool, Status> {
        if self.chunker.has_rest() {
            if work.is_over() {
                return Ok(false);
            }
            work.count_cell(PIECE_BYTES)?;
            self.chunker.go_on();
            return Ok(true);
        }
        if let Some(given) = self.is_read.take() {
            self.chunker.end();
            self.count_row(given);
            return Ok(true);
        }
        let Some(span) = self.spans.front().filter(|_| self.limit > 0) else {
            self.ended = self.look_for_last(work)?;
            return Ok(self.ended);
        };
        if self.open.is_none() {
            if work.is_over() {
                return Ok(false);
            }
            let view = View::now(&self.tables, &self.target.table, self.reversed);
            self.open = Some(RowCursor::new(view, &self.needs, span));
        }
        let Some(rows) = &mut self.open else { return Ok(true) };
        let before = rows.cells_seen;
        let read = match &mut self.filtered {
            None => rows.next(&mut self.chunker, work),
            Some(pieces) => {
                let given = (&mut self.chunker, &mut self.given);
                filtered(pieces, rows, &self.needs, given, work)
            }
        };
        self.stats.cells_seen_count += i64::try_from(rows.cells_seen - before).unwrap_or(0);
        match read? {
            Step::Paused => return Ok(!work.is_over()),
            Step::End => {
                self.spans.pop_front();
                self.close();
            }
            Step::Row => {
                let given = match self.filtered {
                    None => rows.cells(),
                    Some(_) => std::mem::take(&mut self.given),
                };
                match self.chunker.has_rest() {
                    true => self.is_read = Some(given),
                    false => {
                        self.chunker.end();
                        self.count_row(given);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Counts a row of which so many cells came through.
    fn count_row(&mut self, given: usize) {
        self.stats.rows_seen_count += 1;
        if given == 0 {
            self.silent += 1;
            return;
        }
        self.silent = 0;
        self.limit -= 1;
        self.stats.rows_returned_count += 1;
        self.stats.cells_returned_count += i64::try_from(given).unwrap_or(0);
    }

    /// Ends the walk that is open.
    fn close(&mut self) {
        if let Some(rows) = self.open.take()
            && !rows.part.is_empty()
        {
            self.last = rows.part;
        }
    }

    /// Finds the last row of what is not read, from its end on. False where the work is over before.
    fn look_for_last(&mut self, work: &mut Work) -> Result<bool, Status> {
        self.close();
        while let Some(span) = self.unread.back() {
            if work.is_over() {
                return Ok(false);
            }
            // One cell is enough, of those that a view has.
            let mut needs = self.target.needs(&Filter::PassAll);
            needs.iter_mut().for_each(|(_, need)| need.first = Some(1));
            let view = View::now(&self.tables, &self.target.table, !self.reversed);
            let mut rows = RowCursor::new(view, &needs, span);
            let step = rows.next(&mut Collected::default(), work)?;
            if rows.cells() > 0 {
                (self.last, self.silent) = (rows.part, 1);
                self.unread.clear();
            } else if step == Step::End {
                self.unread.pop_back();
            }
        }
        Ok(true)
    }

    /// The message that names the last row that was looked at.
    fn scanned_to(&mut self) -> Bytes {
        self.silent = 0;
        let open = self.open.as_ref().map(|rows| &rows.part).filter(|part| !part.is_empty());
        let row = row_key::row_of(open.unwrap_or(&self.last));
        let last_scanned_row_key = Bytes::copy_from_slice(&row);
        ReadRowsResponse { last_scanned_row_key, ..Default::default() }.encode_to_vec().into()
    }

    fn stats(&self) -> RequestStats {
        let took = self.began.elapsed();
        let latency = prost_types::Duration {
            seconds: i64::try_from(took.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(took.subsec_nanos()).unwrap_or(0),
        };
        let view = FullReadStatsView {
            read_iteration_stats: Some(self.stats),
            request_latency_stats: Some(RequestLatencyStats { frontend_server_latency: Some(latency) }),
        };
        RequestStats { stats_view: Some(StatsView::FullReadStatsView(view)) }
    }
}

/// Reads on in a row, to its end if there is room for it.
fn filtered(
    pieces: &mut Pieces,
    rows: &mut RowCursor,
    needs: &[(Arc<str>, Need)],
    (chunker, given): (&mut Chunker, &mut usize),
    work: &mut Work,
) -> Result<Step, Status> {
    loop {
        let cell = match pieces.next(rows, needs, work)? {
            Next::Cell(cell) => cell,
            Next::Row => return Ok(Step::Row),
            Next::Paused => return Ok(Step::Paused),
            Next::End => return Ok(Step::End),
        };
        if *given == 0 {
            chunker.begin(pieces.row());
        }
        *given += 1;
        work.count_cell(cell.value.len())?;
        if chunker.add_cell(&cell) {
            return Ok(Step::Paused);
        }
    }
}

/// The ranges of a set of rows, in order, without overlaps; all rows if it names none.
pub(crate) fn spans(rows: Option<&RowSet>) -> Result<VecDeque<Span>, Status> {
    let all = Span { start: Vec::new(), end: None };
    let Some(rows) = rows.filter(|rows| !rows.row_keys.is_empty() || !rows.row_ranges.is_empty()) else {
        return Ok(VecDeque::from([all]));
    };
    let mut spans = Vec::new();
    for key in &rows.row_keys {
        row_key::check_row(key)?;
        spans.push(row_key::row_span(key));
    }
    for range in &rows.row_ranges {
        spans.push(span_of(range)?);
    }
    Ok(row_key::merged(spans).into())
}

/// The keys of a range of rows.
pub(crate) fn span_of(range: &RowRange) -> Result<Span, Status> {
    let (from, start) = match &range.start_key {
        Some(StartKey::StartKeyClosed(key)) if !key.is_empty() => (Some(key), row_key::row_start(key)),
        Some(StartKey::StartKeyOpen(key)) if !key.is_empty() => (Some(key), row_key::row_end(key)),
        _ => (None, Vec::new()),
    };
    let (to, end) = match &range.end_key {
        Some(EndKey::EndKeyOpen(key)) if !key.is_empty() => (Some(key), Some(row_key::row_start(key))),
        Some(EndKey::EndKeyClosed(key)) if !key.is_empty() => (Some(key), Some(row_key::row_end(key))),
        _ => (None, None),
    };
    if let (Some(from), Some(to)) = (from, to)
        && from > to
    {
        let message = format!("row range from \"{}\" to \"{}\"", from.escape_ascii(), to.escape_ascii());
        return Err(Status::invalid_argument(format!("{message} is inverted")));
    }
    Ok(Span { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: Option<StartKey>, end: Option<EndKey>) -> RowRange {
        RowRange { start_key: start, end_key: end }
    }

    #[test]
    fn sets_of_rows_are_read_in_order_and_nothing_twice() {
        let set = RowSet {
            row_keys: ["z", "a", "c", "c"].map(Bytes::from).to_vec(),
            row_ranges: vec![
                range(Some(StartKey::StartKeyOpen("b".into())), Some(EndKey::EndKeyClosed("d".into()))),
                range(Some(StartKey::StartKeyClosed("d".into())), Some(EndKey::EndKeyOpen("f".into()))),
            ],
        };
        let spans: Vec<_> = spans(Some(&set)).unwrap().into();
        let expected = [
            row_key::row_span(b"a"),
            Span { start: row_key::row_end(b"b"), end: Some(row_key::row_start(b"f")) },
            row_key::row_span(b"z"),
        ];
        assert_eq!(spans, expected);
    }

    #[test]
    fn a_set_without_rows_is_all_rows_and_a_wrong_one_is_refused() {
        assert_eq!(spans(None).unwrap()[0].end, None);
        assert_eq!(spans(Some(&RowSet::default())).unwrap().len(), 1);
        let unbounded = range(Some(StartKey::StartKeyClosed(Bytes::new())), None);
        assert_eq!(
            spans(Some(&RowSet { row_ranges: vec![unbounded], ..Default::default() })).unwrap()[0].end,
            None
        );
        let inverted =
            range(Some(StartKey::StartKeyClosed("b".into())), Some(EndKey::EndKeyOpen("a".into())));
        assert!(spans(Some(&RowSet { row_ranges: vec![inverted], ..Default::default() })).is_err());
        assert!(spans(Some(&RowSet { row_keys: vec![Bytes::new()], ..Default::default() })).is_err());
        let empty = range(Some(StartKey::StartKeyOpen("b".into())), Some(EndKey::EndKeyOpen("b".into())));
        assert!(spans(Some(&RowSet { row_ranges: vec![empty], ..Default::default() })).unwrap().is_empty());
    }
}
