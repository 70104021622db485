//! Rows with many cells, or large ones: read and filtered in pieces, not where all connections are served,
//! within the memory for calls.

use crate::support::data_v2::row_filter::{Chain, Condition, Filter, Interleave};
use crate::support::*;
use siltstone_server::{Size, WriteDurability};
use tonic::Code;

/// Cells of the wide row in family `f`.
const CELLS: usize = 5_000;

fn wide(cells: usize) -> Vec<Change> {
    (0..cells).map(|n| set("f", &format!("q{n:05}"), 1_000, format!("v{n:05}"))).collect()
}

fn filter(filter: Filter) -> RowFilter {
    RowFilter { filter: Some(filter) }
}

fn chain(filters: impl IntoIterator<Item = Filter>) -> Filter {
    Filter::Chain(Chain { filters: filters.into_iter().map(filter).collect() })
}

fn value(pattern: &'static str) -> Filter {
    Filter::ValueRegexFilter(pattern.into())
}

/// A read of one named row.
fn named(key: &str, of: Option<Filter>) -> ReadRowsRequest {
    let rows = Some(RowSet { row_keys: vec![key.to_string().into()], ..Default::default() });
    ReadRowsRequest { table_name: TABLE.into(), rows, filter: of.map(filter), ..Default::default() }
}

async fn metric(t: &Fixture, name: &str) -> f64 {
    let metrics = get(t.server.page_at(), "/metrics").await;
    let found = metrics.lines().find_map(|line| line.strip_prefix(name));
    found.map_or(0.0, |value| value.trim().parse().unwrap())
}

async fn moved(t: &Fixture, call: &str) -> f64 {
    metric(t, &format!("siltstone_calls_moved_total{{call=\"{call}\"}}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_take_much_are_not_worked_on_where_all_connections_are_served() {
    let mut t = Fixture::with(|config| config.durability = WriteDurability::Buffered).await;
    t.table(&["f"]).await;
    t.mutate("small", vec![set("f", "q", 1_000, "v")]).await.unwrap();
    assert_eq!(moved(&t, "MutateRow").await, 0.0);
    t.mutate("wide", wide(20_000)).await.unwrap();
    t.mutate("large", vec![set("f", "q", 1_000, vec![7; 100 << 10])]).await.unwrap();
    assert_eq!(moved(&t, "MutateRow").await, 2.0);
    let exact = || Filter::ColumnQualifierRegexFilter("q15000".into());
    for light in [named("small", None), named("none", None), named("wide", Some(exact()))] {
        t.rows(light).await.unwrap();
    }
    assert_eq!(moved(&t, "ReadRows").await, 0.0);
    assert_eq!(t.rows(named("wide", None)).await.unwrap()[0].1.len(), 20_000);
    assert_eq!(moved(&t, "ReadRows").await, 1.0);
    assert_eq!(t.rows(named("small", Some(value("v.*")))).await.unwrap().len(), 1);
    assert_eq!(moved(&t, "ReadRows").await, 2.0);
    // The same by entries of one call.
    let entries = |count: usize| {
        let entry = |n: usize| data_v2::mutate_rows_request::Entry {
            row_key: format!("r{n:04}").into(),
            mutations: vec![Mutation { mutation: Some(set("f", "q", 1_000, "v")) }],
            ..Default::default()
        };
        let entries = (0..count).map(entry).collect();
        data_v2::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() }
    };
    for (count, expected) in [(100, 0.0), (3_000, 1.0)] {
        let mut answers = t.data.mutate_rows(entries(count)).await.unwrap().into_inner();
        let mut told = 0;
        while let Some(message) = answers.message().await.unwrap() {
            assert!(message.entries.iter().zip(told..).all(|(entry, at)| entry.index == at));
            told += message.entries.len() as i64;
        }
        assert_eq!(told, count as i64);
        assert_eq!(moved(&t, "MutateRows").await, expected);
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wide_row_comes_through_filters_as_a_narrow_one_does_in_both_directions() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    t.mutate("a", vec![set("f", "q00000", 1_000, "before")]).await.unwrap();
    t.mutate("wide", wide(CELLS)).await.unwrap();
    t.mutate("wide", vec![set("g", "q", 2_000, "g2"), set("g", "q", 1_000, "g1")]).await.unwrap();
    t.mutate("z", vec![set("g", "q", 1_000, "behind")]).await.unwrap();
    let mut all: Vec<String> = (0..CELLS).map(|n| format!("f:q{n:05}@1000=v{n:05}")).collect();
    all.extend(["g:q@2000=g2".to_string(), "g:q@1000=g1".to_string()]);
    let sevens: Vec<String> = all.iter().filter(|cell| cell.ends_with('7')).cloned().collect();
    let only = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<_>>();
    let condition = |predicate: Filter, then: Filter, otherwise: Filter| {
        let of = |one: Filter| Some(Box::new(filter(one)));
        let (predicate_filter, true_filter, false_filter) = (of(predicate), of(then), of(otherwise));
        Filter::Condition(Box::new(Condition { predicate_filter, true_filter, false_filter }))
    };
    let label = || Filter::ApplyLabelTransformer("l".into());
    let twice = chain([label(), Filter::CellsPerRowOffsetFilter(4_999)]);
    let twice = Interleave { filters: vec![filter(twice), filter(value("g."))] };
    let in_g = || Filter::FamilyNameRegexFilter("g".into());
    let cases = [
        (Filter::PassAllFilter(true), all.clone()),
        (value(".*7"), sevens.clone()),
        (chain([value(".*7"), Filter::CellsPerRowLimitFilter(300)]), sevens[..300].to_vec()),
        (Filter::CellsPerRowOffsetFilter(4_998), all[4_998..].to_vec()),
        (chain([value(".*"), Filter::CellsPerColumnLimitFilter(1)]), all[..=CELLS].to_vec()),
        (
            Filter::Interleave(twice),
            only(&["f:q04999@1000=v04999+l", "g:q@2000=g2+l", "g:q@2000=g2", "g:q@1000=g1+l", "g:q@1000=g1"]),
        ),
        (condition(value("g1"), value("v00001"), value("v00002")), only(&["f:q00001@1000=v00001"])),
        (condition(value("none"), value("v00001"), value("v00002")), only(&["f:q00002@1000=v00002"])),
        // One that depends on another.
        (
            chain([
                condition(value("v04999"), value("v0000."), in_g()),
                condition(value("v0000[1-9]"), value(".*3"), value(".*4")),
            ]),
            only(&["f:q00003@1000=v00003"]),
        ),
    ];
    for (of, expected) in cases {
        for reversed in [false, true] {
            let read = t.rows(ReadRowsRequest { reversed, ..named("wide", Some(of.clone())) }).await.unwrap();
            assert_eq!(read, [("wide".to_string(), expected.clone())], "{of:?}, reversed: {reversed}");
        }
    }
    let mut forward = t.rows(ReadRowsRequest::default()).await.unwrap();
    forward.reverse();
    let backward = t.rows(ReadRowsRequest { reversed: true, ..Default::default() }).await.unwrap();
    assert_eq!(forward, backward);
    assert_eq!(backward.iter().map(|row| row.1.len()).collect::<Vec<_>>(), [1, CELLS + 2, 1]);
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_multiplies_a_wide_row_gives_all_that_it_makes() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    t.mutate("wide", wide(3_000)).await.unwrap();
    let twenty = Interleave { filters: (0..20).map(|_| filter(Filter::PassAllFilter(true))).collect() };
    let rows = t.rows(named("wide", Some(Filter::Interleave(twenty)))).await.unwrap();
    assert_eq!(rows[0].1.len(), 60_000);
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wide_row_is_checked_and_modified_as_a_narrow_one_is() {
    use crate::support::data_v2::read_modify_write_rule::Rule;
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    t.mutate("wide", wide(CELLS)).await.unwrap();
    let check = |predicate: Filter| data_v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "wide".into(),
        predicate_filter: Some(filter(predicate)),
        true_mutations: vec![Mutation { mutation: Some(set("g", "q", 1_000, "hit")) }],
        false_mutations: vec![Mutation { mutation: Some(set("g", "q", 1_000, "miss")) }],
        ..Default::default()
    };
    let in_g = || Some(Filter::FamilyNameRegexFilter("g".into()));
    for (predicate, hit) in [("v04999", true), ("none", false), ("v00000", true)] {
        let answer = t.data.check_and_mutate_row(check(value(predicate))).await.unwrap().into_inner();
        assert_eq!(answer.predicate_matched, hit);
        let said = t.rows(named("wide", in_g())).await.unwrap().remove(0).1;
        assert_eq!(said, [format!("g:q@1000={}", if hit { "hit" } else { "miss" })]);
    }
    let rule = |qualifier: &'static str| data_v2::ReadModifyWriteRule {
        family_name: "f".into(),
        column_qualifier: qualifier.into(),
        rule: Some(Rule::AppendValue("!".into())),
    };
    let request = data_v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: "wide".into(),
        rules: vec![rule("q04999"), rule("q00007"), rule("q04999"), rule("new")],
        ..Default::default()
    };
    let row = t.data.read_modify_write_row(request).await.unwrap().into_inner().row.unwrap();
    let said: Vec<_> = row.families[0].columns.iter().map(|column| column.cells[0].value.clone()).collect();
    assert_eq!(said, ["!", "v00007!", "v04999!!"]);
    t.server.stop().await.unwrap();
}

/// A read as a client in Go makes it; how many chunks each message has.
async fn as_go(t: &Fixture, request: ReadRowsRequest) -> Result<Vec<usize>, tonic::Status> {
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("x-goog-api-client", "gl-go/1.26.0 gccl/1.58.0".parse().unwrap());
    let mut data = t.data.clone().max_decoding_message_size(64 << 20);
    let mut stream = data.read_rows(request).await?.into_inner();
    let mut chunks = Vec::new();
    while let Some(message) = stream.message().await? {
        chunks.push(message.chunks.len());
    }
    Ok(chunks)
}

/// The messages of a read: the bytes of each, its rows, and whether it has pieces of values.
async fn messages(t: &mut Fixture, request: ReadRowsRequest) -> Vec<(usize, usize, bool)> {
    let mut stream = t.data.read_rows(request).await.unwrap().into_inner();
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        let rows = message.chunks.iter().filter(|chunk| chunk.row_status.is_some()).count();
        let has_pieces = message.chunks.iter().any(|chunk| chunk.value_size > 0);
        messages.push((prost::Message::encoded_len(&message), rows, has_pieces));
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_up_to_four_mebibytes_is_one_message_wherever_it_is_in_a_scan() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let values = |cells: usize, bytes: usize| {
        (0..cells).map(|n| set("f", &format!("q{n:05}"), 1_000, vec![7; bytes])).collect::<Vec<_>>()
    };
    let rows = [
        ("b-four", values(4, 900 << 10)),
        ("c-many", values(30_000, 100)),
        ("d-two", values(2, 1990 << 10)),
        ("e-over", values(3, 1500 << 10)),
        ("f-value", values(1, 5 << 20)),
    ];
    for (row, changes) in &rows {
        t.mutate(row, changes.clone()).await.unwrap();
    }
    for row in ["a", "b-g", "c-g", "d-g", "e-g", "z"] {
        t.mutate(row, vec![set("f", "q", 1_000, "v")]).await.unwrap();
    }
    for (row, _) in &rows[..3] {
        let found = messages(&mut t, named(row, None)).await;
        assert!(found.len() == 1 && found[0].0 <= 4 << 20, "{row}: {found:?}");
    }
    let found = messages(&mut t, named("e-over", None)).await;
    assert!(found.len() > 1 && !found.iter().any(|message| message.2), "{found:?}");
    assert!(messages(&mut t, named("f-value", None)).await.iter().any(|message| message.2));
    let label = chain([value("(?s).*"), Filter::ApplyLabelTransformer("l".into())]);
    let keys: Vec<_> =
        ["a", "b-four", "b-g", "c-g", "c-many", "d-g", "d-two", "e-g", "e-over", "f-value", "z"].into();
    for of in [None, Some(label)] {
        for reversed in [false, true] {
            let request = ReadRowsRequest {
                table_name: TABLE.into(),
                filter: of.clone().map(filter),
                reversed,
                ..Default::default()
            };
            let mut read: Vec<_> = t.rows(request.clone()).await.unwrap();
            if reversed {
                read.reverse();
            }
            assert_eq!(read.iter().map(|row| &row.0[..]).collect::<Vec<_>>(), keys);
            let cells: Vec<_> = read.iter().map(|row| row.1.len()).collect();
            assert_eq!(cells, [1, 4, 1, 1, 30_000, 1, 2, 1, 3, 1, 1]);
            // Two of the rows are cut: the others are where their message is.
            let found = messages(&mut t, request).await;
            let unfinished = found.iter().filter(|message| message.1 == 0).count();
            assert!((2..=10).contains(&unfinished), "{found:?}");
            assert_eq!(found.iter().map(|message| message.1).sum::<usize>(), keys.len());
        }
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_begins_with_small_messages() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    for n in 0..3_000 {
        t.mutate(&format!("r{n:04}"), vec![set("f", "q", 1_000, vec![7; 1 << 10])]).await.unwrap();
    }
    let all = ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    let found: Vec<_> = messages(&mut t, all).await.into_iter().map(|message| message.0).collect();
    assert!(found[..8].iter().all(|bytes| *bytes <= 64 << 10), "{found:?}");
    assert!(found.iter().any(|bytes| *bytes > 256 << 10) && found.iter().all(|bytes| *bytes <= 512 << 10));
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_for_which_there_is_little_memory_is_cut() {
    // With the first setting a connection may have 4 MiB: the row with what is asked for ahead takes more.
    for (call_memory, expected) in [(16 << 20, 2), (256 << 20, 1)] {
        let mut t = Fixture::with(|config| config.call_memory = Size(call_memory)).await;
        t.table(&["f"]).await;
        let sizes = [500_000, 3_300 << 10, 250_000];
        for (name, bytes) in ["a", "b", "c"].into_iter().zip(sizes) {
            t.mutate("row", vec![set("f", name, 1_000, vec![7; bytes])]).await.unwrap();
        }
        let found = messages(&mut t, named("row", None)).await;
        assert!(found.len() == expected && !found.iter().any(|message| message.2), "{found:?}");
        assert_eq!(t.rows(named("row", None)).await.unwrap()[0].1.len(), 3);
        t.server.stop().await.unwrap();
    }
}

async fn with_large_rows(call_memory: u64) -> Fixture {
    let mut t = Fixture::with(|config| config.call_memory = Size(call_memory)).await;
    t.table(&["f"]).await;
    for n in 0..20 {
        t.mutate("large", vec![set("f", &format!("q{n:02}"), 1_000, vec![7; 500_000])]).await.unwrap();
    }
    t.mutate("small", vec![set("f", "q", 1_000, "v")]).await.unwrap();
    t
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_row_in_several_messages_gets_it_whole_or_a_refusal() {
    let t = with_large_rows(256 << 20).await;
    assert_eq!(as_go(&t, named("large", None)).await.unwrap(), [20]);
    let all = ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    assert_eq!(as_go(&t, all.clone()).await.unwrap(), [20, 1]);
    assert_eq!(as_go(&t, ReadRowsRequest { reversed: true, ..all }).await.unwrap(), [1, 20]);
    let strip = Some(Filter::StripValueTransformer(true));
    assert_eq!(as_go(&t, named("large", strip)).await.unwrap(), [20]);
    t.server.stop().await.unwrap();
    // Its connection may have 4 MiB.
    let t = with_large_rows(16 << 20).await;
    refused(as_go(&t, named("large", None)).await, Code::FailedPrecondition, "several messages");
    assert_eq!(as_go(&t, named("small", None)).await.unwrap(), [1]);
    t.server.stop().await.unwrap();
}

/// A connection whose answers may take so many bytes before somebody reads them.
async fn slow(t: &Fixture, window: u32) -> BigtableClient<tonic::transport::Channel> {
    let at = tonic::transport::Channel::from_shared(format!("http://{}", t.server.listens_at())).unwrap();
    BigtableClient::new(at.initial_stream_window_size(window).connect().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn short_reads_of_which_nothing_is_taken_stay_within_the_memory_for_calls() {
    let mut t = with_large_rows(16 << 20).await;
    t.mutate("one", vec![set("f", "q", 1_000, vec![7; 500_000])]).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut client = slow(&t, 0).await;
        for _ in 0..50 {
            held.push((client.read_rows(named("one", None)).await.unwrap(), client.clone()));
        }
    }
    let used = metric(&t, "siltstone_call_memory_bytes ").await;
    // Half of it is for answers.
    assert!((1e6..=8.5e6).contains(&used), "{used}");
    assert_eq!(t.rows(named("small", None)).await.unwrap().len(), 1, "what is small has room");
    drop(held);
    assert_eq!(t.rows(named("one", None)).await.unwrap().len(), 1);
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_large_row_hold_a_part_of_it() {
    let t = with_large_rows(64 << 20).await;
    let mut held = Vec::new();
    for reversed in [false, true, false, true] {
        let mut client = slow(&t, 65_535).await;
        let request = ReadRowsRequest { reversed, ..named("large", None) };
        held.push((client.read_rows(request).await.unwrap(), client));
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let used = metric(&t, "siltstone_call_memory_bytes ").await;
    // Messages that wait, one that the transport has, and what is read next.
    assert!((1.0..=4.0 * 6e6).contains(&used), "{used} of four times 10 MB");
    for (answer, _client) in held {
        let (mut answer, mut bytes) = (answer.into_inner(), 0);
        while let Some(message) = answer.message().await.unwrap() {
            bytes += message.chunks.iter().map(|chunk| chunk.value.len()).sum::<usize>();
        }
        assert_eq!(bytes, 20 * 500_000);
    }
    t.server.stop().await.unwrap();
}
