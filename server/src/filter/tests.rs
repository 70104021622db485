use super::*;

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (family, qualifier) in [("a", "x"), ("a", "y"), ("b", "x"), ("b", "z")] {
        for timestamp in [3_000, 2_000, 1_000] {
            cells.push(Cell {
                family: family.into(),
                qualifier: Bytes::from_static(qualifier.as_bytes()),
                timestamp,
                value: Bytes::from(format!("{family}{qualifier}{}", timestamp / 1_000)),
                labels: Vec::new(),
            });
        }
    }
    cells
}

fn message(filter: Message) -> RowFilter {
    RowFilter { filter: Some(filter) }
}

fn chain(filters: impl IntoIterator<Item = Message>) -> Message {
    Message::Chain(data::row_filter::Chain { filters: filters.into_iter().map(message).collect() })
}

fn interleave(filters: impl IntoIterator<Item = Message>) -> Message {
    Message::Interleave(data::row_filter::Interleave { filters: filters.into_iter().map(message).collect() })
}

fn condition(predicate: Message, then: Option<Message>, otherwise: Option<Message>) -> Message {
    let of = |filter| Box::new(message(filter));
    Message::Condition(Box::new(data::row_filter::Condition {
        predicate_filter: Some(of(predicate)),
        true_filter: then.map(of),
        false_filter: otherwise.map(of),
    }))
}

fn columns(family: &str, from: &'static str, to: &'static str) -> Message {
    Message::ColumnRangeFilter(data::ColumnRange {
        family_name: family.into(),
        start_qualifier: Some(data::column_range::StartQualifier::StartQualifierClosed(from.into())),
        end_qualifier: Some(data::column_range::EndQualifier::EndQualifierOpen(to.into())),
    })
}

fn times_of(from: i64, to: i64) -> Message {
    Message::TimestampRangeFilter(data::TimestampRange {
        start_timestamp_micros: from,
        end_timestamp_micros: to,
    })
}

fn family(pattern: &str) -> Message {
    Message::FamilyNameRegexFilter(pattern.into())
}

/// The values that come through; and what a reader that reads only what is needed would get is the same.
#[track_caller]
fn through(filter: Message) -> String {
    let filter = Filter::compile(Some(&message(filter))).unwrap();
    let show = |cells: Vec<Cell>| {
        let value =
            |cell: &Cell| [std::str::from_utf8(&cell.value).unwrap(), &cell.labels.join("+")].concat();
        cells.iter().map(value).collect::<Vec<_>>().join(" ")
    };
    let all = show(filter.apply(b"row", cells()));
    let mut needed: Vec<Cell> = Vec::new();
    let (mut first, mut is_all) = (None, true);
    for name in ["a", "b"] {
        let Some(need) = filter.need(name) else { continue };
        first = need.first.or(first);
        is_all &= need.is_all;
        let mut counted = std::collections::BTreeMap::<_, usize>::new();
        needed.extend(cells().into_iter().filter(|cell| {
            let inside = *cell.family == *name
                && need.columns.contains(&cell.qualifier)
                && cell.timestamp >= need.times.0
                && need.times.1.is_none_or(|to| cell.timestamp < to);
            let count = counted.entry(cell.qualifier.clone()).or_default();
            *count += usize::from(inside);
            inside && need.newest.is_none_or(|newest| *count <= newest)
        }));
    }
    needed.truncate(first.unwrap_or(usize::MAX));
    if is_all {
        assert_eq!(show(needed.clone()), all, "the filter does nothing to what is needed");
    }
    assert_eq!(show(filter.apply(b"row", needed)), all, "with what is needed");
    all
}

#[test]
fn single_filters() {
    assert_eq!(through(family("b")), "bx3 bx2 bx1 bz3 bz2 bz1");
    assert_eq!(through(family("[ab]")).len(), 47);
    assert_eq!(through(Message::ColumnQualifierRegexFilter("x".into())), "ax3 ax2 ax1 bx3 bx2 bx1");
    assert_eq!(through(Message::ColumnQualifierRegexFilter("[yz]".into())), "ay3 ay2 ay1 bz3 bz2 bz1");
    assert_eq!(through(columns("a", "x", "y")), "ax3 ax2 ax1");
    assert_eq!(through(times_of(2_000, 3_000)), "ax2 ay2 bx2 bz2");
    assert_eq!(through(times_of(3_000, 0)), "ax3 ay3 bx3 bz3");
    assert_eq!(through(Message::ValueRegexFilter(".*1".into())), "ax1 ay1 bx1 bz1");
    assert_eq!(through(Message::CellsPerRowLimitFilter(2)), "ax3 ax2");
    assert_eq!(through(Message::CellsPerRowOffsetFilter(10)), "bz2 bz1");
    assert_eq!(through(Message::CellsPerRowOffsetFilter(99)), "");
    assert_eq!(through(Message::CellsPerColumnLimitFilter(1)), "ax3 ay3 bx3 bz3");
    assert_eq!(through(Message::BlockAllFilter(true)), "");
    assert_eq!(through(Message::RowKeyRegexFilter("r.w".into())).len(), 47);
    assert_eq!(through(Message::RowKeyRegexFilter("ro".into())), "");
    let values = data::ValueRange {
        start_value: Some(data::value_range::StartValue::StartValueOpen("ay3".into())),
        end_value: Some(data::value_range::EndValue::EndValueClosed("bx2".into())),
    };
    assert_eq!(through(Message::ValueRangeFilter(values)), "bx2 bx1");
}

#[test]
fn chains_apply_one_after_the_other() {
    let newest = || Message::CellsPerColumnLimitFilter(1);
    assert_eq!(through(chain([newest(), times_of(0, 3_000)])), "");
    assert_eq!(through(chain([times_of(0, 3_000), newest()])), "ax2 ay2 bx2 bz2");
    assert_eq!(through(chain([newest(), family("a"), Message::CellsPerRowLimitFilter(1)])), "ax3");
    assert_eq!(
        through(chain([Message::CellsPerRowLimitFilter(4), family("a"), columns("a", "y", "z")])),
        "ay3"
    );
    assert_eq!(through(chain([Message::ValueRegexFilter(".*[12]".into()), newest()])), "ax2 ay2 bx2 bz2");
    assert_eq!(through(chain([columns("a", "a", "y"), columns("a", "x", "z"), newest()])), "ax3");
    assert_eq!(
        through(chain([
            Message::ColumnQualifierRegexFilter("[y]".into()),
            Message::CellsPerRowLimitFilter(1)
        ])),
        "ay3"
    );
}

#[test]
fn interleaves_sinks_and_labels() {
    let label = |label: &str| Message::ApplyLabelTransformer(label.into());
    let first = || Message::CellsPerRowLimitFilter(1);
    assert_eq!(
        through(interleave([chain([family("b"), first()]), chain([family("a"), first()])])),
        "ax3 bx3"
    );
    assert_eq!(through(interleave([first(), chain([first(), label("l")])])), "ax3 ax3l");
    let sunk = chain([
        first(),
        interleave([chain([label("l"), Message::Sink(true)]), Message::PassAllFilter(true)]),
        label("m"),
    ]);
    assert_eq!(through(sunk), "ax3m ax3l");
    assert_eq!(through(chain([first(), Message::Sink(true), label("m")])), "ax3");
}

#[test]
fn conditions_choose_by_what_the_predicate_lets_through() {
    let (a, b) = (|| family("a"), || chain([family("b"), Message::CellsPerRowLimitFilter(1)]));
    assert_eq!(through(condition(Message::ValueRegexFilter("bz1".into()), Some(b()), Some(a()))), "bx3");
    assert_eq!(through(condition(Message::ValueRegexFilter("none".into()), Some(a()), Some(b()))), "bx3");
    assert_eq!(through(condition(Message::ValueRegexFilter("none".into()), Some(a()), None)), "");
}

#[test]
fn what_is_wrong_with_a_filter_is_said() {
    let wrong = [
        chain([]),
        interleave([]),
        Message::RowSampleFilter(0.0),
        Message::RowSampleFilter(1.0),
        Message::PassAllFilter(false),
        Message::RowKeyRegexFilter(Bytes::new()),
        Message::ValueRegexFilter("(".into()),
        times_of(5_000, 1_000),
        columns("a", "z", "a"),
        Message::CellsPerRowLimitFilter(0),
        Message::CellsPerRowOffsetFilter(-1),
        Message::ApplyLabelTransformer("Big".into()),
        condition(Message::Sink(true), None, None),
        Message::ValueRegexFilter(vec![b'a'; FILTER_MAX].into()),
    ];
    for filter in wrong {
        let refused = Filter::compile(Some(&message(filter.clone()))).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{filter:?}");
    }
    let twice = || interleave([Message::PassAllFilter(true), Message::PassAllFilter(true)]);
    let refused = Filter::compile(Some(&message(chain((0..40).map(|_| twice()))))).unwrap_err();
    assert!(refused.message().contains("limit is 1000"), "{refused:?}");
}

#[test]
fn a_sample_has_about_its_share_of_rows() {
    let filter = Filter::compile(Some(&message(Message::RowSampleFilter(0.25)))).unwrap();
    let taken =
        (0..4_000).filter(|n| !filter.apply(format!("row{n}").as_bytes(), cells()).is_empty()).count();
    assert!((850..1_150).contains(&taken), "{taken}");
    let half = || Message::RowSampleFilter(0.5);
    let filter = Filter::compile(Some(&message(chain([half(), half()])))).unwrap();
    let taken =
        (0..4_000).filter(|n| !filter.apply(format!("row{n}").as_bytes(), cells()).is_empty()).count();
    assert!((850..1_150).contains(&taken), "{taken} of both halves");
}

#[test]
fn a_filter_that_says_nothing_lets_all_through() {
    let filter = Filter::compile(Some(&RowFilter { filter: None })).unwrap();
    assert_eq!(filter.apply(b"row", cells()).len(), 12);
}
