use super::*;
use crate::net::work::Caller;
use proptest::prelude::*;

fn work() -> Work {
    Work::unbounded(Caller::default())
}

fn compiled(filter: Message) -> Result<Filter, Status> {
    Filter::compile(Some(&message(filter)), &mut work())
}

/// What comes through of a row whose cells come at once.
fn of_row(filter: &mut Filter, row: &[u8], cells: Vec<Cell>) -> Vec<Cell> {
    filter.begin();
    filter.pass(row, cells, &mut 0, &mut work()).unwrap()
}

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
    let mut filter = compiled(filter).unwrap();
    let show = |cells: Vec<Cell>| {
        let value =
            |cell: &Cell| [std::str::from_utf8(&cell.value).unwrap(), &cell.labels.join("+")].concat();
        cells.iter().map(value).collect::<Vec<_>>().join(" ")
    };
    let all = show(of_row(&mut filter, b"row", cells()));
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
    assert_eq!(show(of_row(&mut filter, b"row", needed)), all, "with what is needed");
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
        Message::StripValueTransformer(true),
    ]);
    assert_eq!(through(sunk), " ax3l");
    assert_eq!(through(chain([first(), Message::Sink(true), label("m")])), "ax3");
    assert_eq!(
        through(interleave([chain([first(), label("l")]), chain([first(), label("m")])])),
        "ax3l ax3m"
    );
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
    let label = |label: &str| Message::ApplyLabelTransformer(label.into());
    let wrong = [
        chain([]),
        interleave([]),
        Message::RowSampleFilter(0.0),
        Message::RowSampleFilter(1.0),
        Message::PassAllFilter(false),
        Message::RowKeyRegexFilter(Bytes::new()),
        family(""),
        chain([Message::PassAllFilter(true), family("")]),
        Message::ValueRegexFilter("(".into()),
        Message::RowKeyRegexFilter(r"(a)\1".into()),
        Message::ColumnQualifierRegexFilter(r"\x{100}".into()),
        family("a**"),
        times_of(5_000, 1_000),
        columns("a", "z", "a"),
        Message::CellsPerRowLimitFilter(0),
        Message::CellsPerRowOffsetFilter(-1),
        Message::ApplyLabelTransformer("Big".into()),
        condition(Message::Sink(true), None, None),
        Message::ValueRegexFilter(vec![b'a'; FILTER_MAX].into()),
        chain([label("a"), label("b")]),
        chain([label("a"), interleave([label("b"), Message::PassAllFilter(true)])]),
        chain([label("a"), chain([Message::PassAllFilter(true), label("a")])]),
        chain([condition(family("a"), Some(label("a")), None), label("b")]),
        interleave((0..300).map(|n| Message::ValueRegexFilter(format!(".{{1000}}.{{1000}}x{n}").into()))),
    ];
    for filter in wrong {
        let refused = compiled(filter.clone()).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{filter:?}");
    }
    let twice = || interleave([Message::PassAllFilter(true), Message::PassAllFilter(true)]);
    let refused = compiled(chain((0..40).map(|_| twice()))).unwrap_err();
    assert!(refused.message().contains("limit is 1000"), "{refused:?}");
}

#[test]
fn empty_patterns_are_of_empty_qualifiers_and_values_wherever_they_stand() {
    let row = || {
        let cell = |qualifier: &'static str, value: &'static str| Cell {
            family: "a".into(),
            qualifier: Bytes::from_static(qualifier.as_bytes()),
            timestamp: 1_000,
            value: Bytes::from_static(value.as_bytes()),
            labels: Vec::new(),
        };
        vec![cell("", "v"), cell("x", ""), cell("y", "\0")]
    };
    let through = |filter: Message| {
        let mut filter = compiled(filter).unwrap();
        let need = filter.need("a").unwrap();
        let needed = row().into_iter().filter(|cell| need.columns.contains(&cell.qualifier)).collect();
        let left = of_row(&mut filter, b"row", needed);
        left.iter().map(|cell| format!("{:?}", cell.qualifier)).collect::<String>()
    };
    let qualifier = || Message::ColumnQualifierRegexFilter(Bytes::new());
    let value = || Message::ValueRegexFilter(Bytes::new());
    assert_eq!(through(qualifier()), r#"b"""#);
    assert_eq!(through(value()), r#"b"x""#);
    assert_eq!(through(chain([family("a"), qualifier(), Message::CellsPerColumnLimitFilter(1)])), r#"b"""#);
    assert_eq!(through(chain([qualifier(), value()])), "");
    assert_eq!(through(interleave([qualifier(), value()])), r#"b""b"x""#);
    assert_eq!(through(condition(value(), Some(qualifier()), None)), r#"b"""#);
    assert_eq!(through(condition(chain([qualifier(), value()]), None, Some(value()))), r#"b"x""#);
}

#[test]
fn a_sample_has_about_its_share_of_rows() {
    let taken = |filter: Message| {
        let mut filter = compiled(filter).unwrap();
        let mut takes = |n: &usize| !of_row(&mut filter, format!("row{n}").as_bytes(), cells()).is_empty();
        (0..4_000).filter(|n| takes(n)).count()
    };
    let quarter = taken(Message::RowSampleFilter(0.25));
    assert!((850..1_150).contains(&quarter), "{quarter}");
    let half = || Message::RowSampleFilter(0.5);
    let both = taken(chain([half(), half()]));
    assert!((850..1_150).contains(&both), "{both} of both halves");
}

#[test]
fn a_filter_that_says_nothing_lets_all_through() {
    let mut filter = Filter::compile(Some(&RowFilter { filter: None }), &mut work()).unwrap();
    assert_eq!(of_row(&mut filter, b"row", cells()).len(), 12);
}

#[test]
fn light_filters_have_neither_patterns_nor_parts_that_multiply() {
    let is_light = |filter: Message| Filter::is_light(Some(&message(filter)));
    assert!(Filter::is_light(None));
    let exact = || Message::ColumnQualifierRegexFilter("name".into());
    assert!(is_light(chain([family("a"), exact(), Message::CellsPerColumnLimitFilter(1)])));
    assert!(!is_light(Message::ValueRegexFilter("a.*".into())));
    assert!(!is_light(chain([exact(), family("a|b")])));
    assert!(!is_light(interleave([exact()])));
    assert!(!is_light(condition(exact(), None, None)));
    assert!(!is_light(chain((0..LIGHT_PARTS).map(|_| Message::StripValueTransformer(true)))));
}

#[test]
fn cells_that_a_filter_makes_are_counted_and_end_the_call() {
    let mut filter = compiled(interleave((0..1_000).map(|_| Message::PassAllFilter(true)))).unwrap();
    assert_eq!(filter.cells_at_once(), 4);
    filter.begin();
    let (mut made, mut came) = (MADE_MAX - 30_000, 0);
    let refused = loop {
        match filter.pass(b"row", cells(), &mut made, &mut work()) {
            Ok(cells) => came += cells.len(),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.message().contains("10000000") && refused.details().is_empty(), "{refused}");
    assert!((10_000..=30_000).contains(&came), "{came}");
}

/// What a filter lets through of a row by its definition, all of whose cells are there: with `sunk`, to which
/// sinks add.
fn by_definition(filter: &Filter, cells: Vec<Cell>, sunk: &mut Vec<Cell>) -> Vec<Cell> {
    let mut out: Vec<Cell> = Vec::new();
    match filter {
        Filter::Chain(all) => {
            return all.iter().fold(cells, |cells, one| by_definition(one, cells, sunk));
        }
        Filter::Interleave(all) => {
            all.iter().for_each(|one| out.extend(by_definition(one, cells.clone(), sunk)));
            in_order_of_columns(&mut out);
        }
        Filter::Condition(of) => {
            let holds = !by_definition(&of.predicate, cells.clone(), sunk).is_empty();
            return by_definition(if holds { &of.then } else { &of.otherwise }, cells, sunk);
        }
        Filter::Sink => sunk.extend(cells),
        Filter::RowOffset(count) => out.extend(cells.into_iter().skip(count.most)),
        Filter::RowLimit(count) => out.extend(cells.into_iter().take(count.most)),
        Filter::ColumnLimit(count, _) => {
            for cell in cells {
                let is_of_column = |c: &&Cell| c.family == cell.family && c.qualifier == cell.qualifier;
                if out.iter().filter(is_of_column).count() < count.most {
                    out.push(cell);
                }
            }
        }
        // These look at one cell after the other.
        other => out = of_row(&mut other.clone(), b"row", cells),
    }
    out
}

/// What a filter lets through in pieces of these sizes, again and again; conditions are decided before.
fn in_pieces(filter: &mut Filter, cells: &[Cell], sizes: &[usize]) -> Vec<Cell> {
    let go_through = |filter: &mut Filter| {
        let (mut out, mut left, mut sizes) = (Vec::new(), cells, sizes.iter().cycle());
        while !left.is_empty() {
            let size = sizes.next().map_or(1, |size| *size).min(left.len());
            let (piece, rest) = left.split_at(size);
            out.extend(filter.pass(b"row", piece.to_vec(), &mut 0, &mut work()).unwrap());
            left = rest;
        }
        out
    };
    filter.begin_to_decide();
    let mut times = 0;
    loop {
        go_through(filter);
        if filter.is_decided() {
            break;
        }
        filter.begin_again();
        times += 1;
        assert!(times <= filter.parts(), "each time at least one condition is decided");
    }
    filter.begin_again();
    go_through(filter)
}

#[test]
fn a_condition_within_a_predicate_is_decided_before_it() {
    let first = || Message::CellsPerRowLimitFilter(1);
    let inner = condition(Message::ValueRegexFilter("bz1".into()), Some(Message::PassAllFilter(true)), None);
    // The first of all is ax3; while the inner condition is open it would be that of the family b.
    let predicate = chain([interleave([inner, family("b")]), first(), family("b")]);
    let mut filter = compiled(condition(predicate, Some(family("a")), Some(family("b")))).unwrap();
    let through = in_pieces(&mut filter, &cells(), &[1]);
    assert_eq!(through, of_row(&mut filter, b"row", cells()));
    assert!(through.iter().all(|cell| &*cell.family == "b"), "{through:?}");
}

fn any_filter() -> impl Strategy<Value = Message> {
    let leaf = prop_oneof![
        Just(Message::PassAllFilter(true)),
        Just(Message::BlockAllFilter(true)),
        Just(Message::Sink(true)),
        Just(Message::StripValueTransformer(true)),
        Just(Message::ApplyLabelTransformer("l".into())),
        prop::sample::select(vec!["a", "b", "[ab]", "c"]).prop_map(family),
        prop::sample::select(vec!["x", "y|z", "[xz]"])
            .prop_map(|pattern| Message::ColumnQualifierRegexFilter(pattern.into())),
        prop::sample::select(vec!["ax3", ".*[12]", "b.*", "none"])
            .prop_map(|pattern| Message::ValueRegexFilter(pattern.into())),
        (0i64..4, 1i64..4).prop_map(|(from, len)| times_of(from * 1_000, (from + len) * 1_000)),
        (0..14).prop_map(Message::CellsPerRowOffsetFilter),
        (1..14).prop_map(Message::CellsPerRowLimitFilter),
        (1..5).prop_map(Message::CellsPerColumnLimitFilter),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            some().prop_map(chain),
            some().prop_map(interleave),
            (inner.clone(), prop::option::of(inner.clone()), prop::option::of(inner.clone()))
                .prop_map(|(predicate, then, otherwise)| condition(predicate, then, otherwise)),
        ]
    })
}

proptest! {
    #[test]
    fn a_row_in_pieces_comes_through_as_one_at_once(
        filter in any_filter(),
        taken in prop::collection::vec(any::<bool>(), 12),
        sizes in prop::collection::vec(1usize..8, 1..5),
    ) {
        // Some are refused: two labels in a chain, sinks in conditions.
        let Ok(mut filter) = compiled(filter) else { return Ok(()) };
        let row: Vec<Cell> = cells().into_iter().zip(taken).filter_map(|(cell, is)| is.then_some(cell)).collect();
        let mut sunk = Vec::new();
        let mut expected = by_definition(&filter, row.clone(), &mut sunk);
        expected.append(&mut sunk);
        in_order_of_columns(&mut expected);
        prop_assert_eq!(&in_pieces(&mut filter, &row, &sizes), &expected);
        prop_assert_eq!(&of_row(&mut filter, b"row", row), &expected, "at once");
    }
}
