//! Filters over the wire, where the server reads only what they need: seeks past versions and columns, in
//! both directions.

use crate::support::data_v2::row_filter::{Chain, Filter, Interleave};
use crate::support::*;
use crate::views;

fn filter(filter: Filter) -> RowFilter {
    RowFilter { filter: Some(filter) }
}

fn chain(filters: impl IntoIterator<Item = Filter>) -> Filter {
    Filter::Chain(Chain { filters: filters.into_iter().map(filter).collect() })
}

fn columns(family: &str, from: &'static str, to: &'static str) -> Filter {
    use crate::support::data_v2::column_range::{EndQualifier, StartQualifier};
    Filter::ColumnRangeFilter(data_v2::ColumnRange {
        family_name: family.into(),
        start_qualifier: Some(StartQualifier::StartQualifierClosed(from.into())),
        end_qualifier: Some(EndQualifier::EndQualifierClosed(to.into())),
    })
}

async fn filled() -> Fixture {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    for row in ["a", "b", "c"] {
        for family in ["f", "g"] {
            for qualifier in ["p", "q", "s"] {
                // More versions than are stepped over one by one.
                let versions = (1..=30).map(|at| set(family, qualifier, at * 1_000, at.to_string()));
                t.mutate(row, versions.collect()).await.unwrap();
            }
        }
    }
    t
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_needed_is_read_and_nothing_else_changes() {
    let mut t = filled().await;
    let both = async |t: &mut Fixture, f: Filter| {
        let request =
            |reversed| ReadRowsRequest { filter: Some(filter(f.clone())), reversed, ..Default::default() };
        let forward = t.read(request(false)).await.unwrap();
        let mut backward: Vec<_> = t.read(request(true)).await.unwrap().lines().map(str::to_string).collect();
        backward.reverse();
        assert_eq!(forward, backward.join("\n"), "{f:?}");
        forward
    };
    let newest = || Filter::CellsPerColumnLimitFilter(1);
    let row = |key: &str| {
        format!("{key} f:p@30000=30 f:q@30000=30 f:s@30000=30 g:p@30000=30 g:q@30000=30 g:s@30000=30")
    };
    assert_eq!(both(&mut t, newest()).await, ["a", "b", "c"].map(row).join("\n"));
    let rows = |cells: &str| ["a", "b", "c"].map(|key| format!("{key} {cells}")).join("\n");
    assert_eq!(both(&mut t, chain([columns("g", "q", "r"), newest()])).await, rows("g:q@30000=30"));
    let exact = Filter::ColumnQualifierRegexFilter("q".into());
    assert_eq!(both(&mut t, chain([exact, newest()])).await, rows("f:q@30000=30 g:q@30000=30"));
    let times = data_v2::TimestampRange { start_timestamp_micros: 4_000, end_timestamp_micros: 6_000 };
    let times = || Filter::TimestampRangeFilter(times);
    let family = || Filter::FamilyNameRegexFilter("g".into());
    let four_and_five = rows("g:p@5000=5 g:p@4000=4 g:q@5000=5 g:q@4000=4 g:s@5000=5 g:s@4000=4");
    assert_eq!(both(&mut t, chain([family(), times()])).await, four_and_five);
    assert_eq!(
        both(&mut t, chain([family(), times(), newest()])).await,
        rows("g:p@5000=5 g:q@5000=5 g:s@5000=5")
    );
    assert_eq!(both(&mut t, Filter::CellsPerRowLimitFilter(2)).await, rows("f:p@30000=30 f:p@29000=29"));
    assert_eq!(
        both(&mut t, chain([family(), Filter::CellsPerRowLimitFilter(1)])).await,
        rows("g:p@30000=30")
    );
    assert_eq!(both(&mut t, Filter::CellsPerRowOffsetFilter(179)).await, rows("g:s@1000=1"));
    assert_eq!(both(&mut t, Filter::FamilyNameRegexFilter("none".into())).await, "");
    let either =
        [chain([columns("f", "s", "s"), newest()]), chain([family(), Filter::CellsPerRowLimitFilter(1)])];
    let either = Filter::Interleave(Interleave { filters: either.map(filter).to_vec() });
    assert_eq!(both(&mut t, either).await, rows("f:s@30000=30 g:p@30000=30"));
    let row_key = chain([Filter::RowKeyRegexFilter("[bc]".into()), newest(), columns("f", "p", "p")]);
    assert_eq!(both(&mut t, row_key).await, "b f:p@30000=30\nc f:p@30000=30");
    assert_eq!(
        t.read_with(chain([newest(), Filter::StripValueTransformer(true), columns("f", "p", "p")])).await,
        rows("f:p@30000=")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_versions_seeks_past_the_rest() {
    let mut t = filled().await;
    let request = ReadRowsRequest {
        table_name: TABLE.into(),
        filter: Some(filter(chain([columns("g", "q", "q"), Filter::CellsPerColumnLimitFilter(1)]))),
        request_stats_view: data_v2::read_rows_request::RequestStatsView::RequestStatsFull as i32,
        ..Default::default()
    };
    let mut stream = t.data.read_rows(request).await.unwrap().into_inner();
    let mut seen = 0;
    while let Some(message) = stream.message().await.unwrap() {
        if let Some(data_v2::request_stats::StatsView::FullReadStatsView(view)) =
            message.request_stats.and_then(|stats| stats.stats_view)
        {
            seen = view.read_iteration_stats.unwrap().cells_seen_count;
        }
    }
    // Of 180 cells in each of three rows: one, and the few that are stepped over.
    assert!((3..=30).contains(&seen), "{seen}");
}

/// The keys of a read's rows, and with `..` before it each last row that its client is told of.
async fn told(t: &mut Fixture, request: ReadRowsRequest, features: &str) -> Vec<String> {
    let table_name = if request.authorized_view_name.is_empty() { TABLE.into() } else { String::new() };
    let mut request = tonic::Request::new(ReadRowsRequest { table_name, ..request });
    request.metadata_mut().insert("bigtable-features", features.parse().unwrap());
    let mut stream = t.data.read_rows(request).await.unwrap().into_inner();
    let mut told = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        let ends = message.chunks.iter().filter(|chunk| chunk.row_status.is_some());
        told.extend(ends.map(|chunk| chunk.row_key.escape_ascii().to_string()));
        if !message.last_scanned_row_key.is_empty() {
            assert!(message.chunks.is_empty(), "clients read one or the other first");
            told.push(format!("..{}", message.last_scanned_row_key.escape_ascii()));
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_it_is_told_the_last_row_of_a_scan_that_ends_without_one() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    for (row, family, value) in [("a", "f", "1"), ("b", "f", "2"), ("c", "g", "3"), ("d", "g", "4")] {
        t.mutate(row, vec![set(family, "q", 1_000, value)]).await.unwrap();
    }
    // `last_scanned_row_responses` alone.
    let asks = "IAE=";
    let all = |f: Filter| ReadRowsRequest { filter: Some(filter(f)), ..Default::default() };
    let keys = |keys: &[&str], f: Filter| {
        let row_keys = keys.iter().map(|key| key.to_string().into()).collect();
        ReadRowsRequest { rows: Some(RowSet { row_keys, ..Default::default() }), ..all(f) }
    };
    let block = || Filter::BlockAllFilter(true);
    let value = |pattern: &'static str| Filter::ValueRegexFilter(pattern.into());
    let reversed = |request: ReadRowsRequest| ReadRowsRequest { reversed: true, ..request };
    let cases: [(ReadRowsRequest, &[&str]); 11] = [
        (all(block()), &["..d"]),
        (reversed(all(block())), &["..a"]),
        (keys(&["b"], block()), &["..b"]),
        (keys(&["a", "c", "x"], block()), &["..c"]),
        (reversed(keys(&["0", "b", "c"], block())), &["..b"]),
        (keys(&["x"], block()), &[]),
        (all(value("none")), &["..d"]),
        (reversed(all(value("none"))), &["..a"]),
        (all(value("[12]")), &["a", "b", "..d"]),
        (all(value("4")), &["d"]),
        (ReadRowsRequest { rows_limit: 1, ..all(value("[12]")) }, &["a"]),
    ];
    for (request, expected) in cases {
        assert_eq!(told(&mut t, request.clone(), asks).await, expected, "{request:?}");
        let rows: Vec<_> = expected.iter().filter(|row| !row.starts_with("..")).collect();
        assert_eq!(told(&mut t, request.clone(), "").await.iter().collect::<Vec<_>>(), rows, "{request:?}");
    }
    // Through a view it is a row that the view has cells of.
    views::make(&mut t, "v", &["a", "b", "c"], &[("f", &["q"], &[])]).await;
    t.mutate("bb", vec![set("f", "hidden", 1_000, "5")]).await.unwrap();
    for (request, expected) in [
        (all(block()), "..b"),
        (reversed(all(block())), "..a"),
        (all(value("none")), "..b"),
        (all(Filter::FamilyNameRegexFilter("g".into())), "..b"),
    ] {
        let request = ReadRowsRequest { authorized_view_name: views::named("v"), ..request };
        assert_eq!(told(&mut t, request.clone(), asks).await, [expected], "{request:?}");
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_qualifier_and_an_empty_value_can_be_asked_for() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    let cells = vec![set("f", "", 1_000, "v"), set("f", "a", 1_000, ""), set("g", "", 2_000, "")];
    t.mutate("r", cells).await.unwrap();
    t.mutate("s", vec![set("f", "b", 1_000, "v")]).await.unwrap();
    let qualifier = || Filter::ColumnQualifierRegexFilter("".into());
    let value = || Filter::ValueRegexFilter("".into());
    assert_eq!(t.read_with(qualifier()).await, "r f:@1000=v g:@2000=");
    assert_eq!(t.read_with(value()).await, "r f:a@1000= g:@2000=");
    assert_eq!(t.read_with(chain([qualifier(), value()])).await, "r g:@2000=");
    let both = Filter::Interleave(Interleave { filters: vec![filter(qualifier()), filter(value())] });
    assert_eq!(t.read_with(both).await, "r f:@1000=v f:a@1000= g:@2000= g:@2000=");
    let request = ReadRowsRequest { filter: Some(filter(qualifier())), reversed: true, ..Default::default() };
    assert_eq!(t.read(request).await.unwrap(), "r f:@1000=v g:@2000=");

    let mut check = async |predicate: Filter| {
        let request = data_v2::CheckAndMutateRowRequest {
            table_name: TABLE.into(),
            row_key: "r".into(),
            predicate_filter: Some(filter(predicate)),
            true_mutations: vec![Mutation { mutation: Some(set("g", "seen", 1_000, "")) }],
            ..Default::default()
        };
        t.data.check_and_mutate_row(request).await.map(|answer| answer.into_inner().predicate_matched)
    };
    let in_f = || Filter::FamilyNameRegexFilter("f".into());
    assert!(!check(chain([in_f(), qualifier(), value()])).await.unwrap());
    assert!(check(chain([in_f(), columns("f", "a", "a"), value()])).await.unwrap());
    for (wrong, why) in [
        (Filter::RowKeyRegexFilter("".into()), "the pattern of row key is empty"),
        (Filter::FamilyNameRegexFilter(String::new()), "the pattern of family name is empty"),
        (Filter::ValueRegexFilter(r"(a)\1".into()), r"invalid escape sequence: \1"),
        (Filter::ColumnQualifierRegexFilter("a**".into()), "bad repetition operator: **"),
    ] {
        let refused = check(wrong).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().ends_with(why), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_match_any_bytes() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let values: [(&str, &[u8]); 5] =
        [("a", b"\xc9"), ("b", b"\xe9"), ("c", b"\x80"), ("d", b"foo{bar}"), ("e", b"1-z")];
    for (row, value) in values {
        t.mutate(row, vec![set("f", "q", 1_000, value)]).await.unwrap();
    }
    let cases: [(&[u8], &str); 7] = [
        (br"(?i)[\xc9]", "ab"),
        (br"\x{80}", "c"),
        (br"[\x{e0}-\x{ef}]", "b"),
        (b"\xc9|\x80", "ac"),
        (b"foo{bar}", "d"),
        (br"[\d-z]+", "e"),
        (br"\PL*", "c"),
    ];
    for (pattern, rows) in cases {
        let read = t.read_with(Filter::ValueRegexFilter(pattern.to_vec().into())).await;
        let keys: String = read.lines().filter_map(|line| line.chars().next()).collect();
        assert_eq!(keys, rows, "{}", pattern.escape_ascii());
    }
}
