//! Every decoder of the server, each as a function of bytes that must not panic, hang or take much memory whatever it is given, and
//! that uses what came of it. The package `siltstone-fuzz` calls them. Requests may take some hundred bytes of memory for each
//! that they have.

use crate::aggregate::Aggregate;
use crate::budget::Budgets;
use crate::bundles::Files;
use crate::changes::mutation_of;
use crate::chunks::Chunker;
use crate::config::Config;
use crate::filter::pattern::{Pattern, Patterns};
use crate::filter::{Cell, Filter};
use crate::proto::{admin, data};
use crate::schema::Schema;
use crate::views::ViewSchema;
use crate::work::{Caller, Work};
use crate::{auth, methods, names, read, rows};
use bytes::Bytes;
use prost::Message;
use siltstone::testing::Target;
use siltstone::{ChangeKind, KeyRange, MergeOperator, Timestamp};
use std::sync::Arc;
use tonic::Status;

/// Every decoder.
pub fn all() -> Vec<Target> {
    let target = |name, seeds, decode| Target { name, seeds, sign: |_| {}, decode };
    vec![
        target("request-read-rows", read_seeds, read_request),
        target("request-mutate-rows", mutate_seeds, mutate_request),
        target("request-check-and-mutate", check_seeds, check_request),
        target("request-read-modify-write", modify_seeds, modify_request),
        target("request-create-table", create_seeds, create_request),
        target("request-update-table", update_seeds, update_request),
        target("request-create-view", create_view_seeds, create_view_request),
        target("request-update-view", update_view_seeds, update_view_request),
        target("request-headers", header_seeds, headers),
        target("schema-bundle", bundle_seeds, bundle),
        target("request-filter", filter_seeds, filter),
        target("pattern", pattern_seeds, pattern),
        target("row-key", row_key_seeds, row_key),
        target("change", change_seeds, change),
        target("aggregate", sketch_seeds, sketch),
        target("table-schema", schema_seeds, schema),
        target("tokens", token_seeds, tokens),
        target("settings", settings_seeds, settings),
    ]
}

const TABLE: &str = "projects/p/instances/i/tables/t";

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

// ---- filters

fn of(filter: data::row_filter::Filter) -> data::RowFilter {
    data::RowFilter { filter: Some(filter) }
}

fn filters() -> Vec<data::RowFilter> {
    use data::row_filter::{Chain, Condition, Filter, Interleave};
    let pattern = |text: &'static str| of(Filter::ValueRegexFilter(Bytes::from_static(text.as_bytes())));
    let limit = |n| of(Filter::CellsPerColumnLimitFilter(n));
    let condition = Condition {
        predicate_filter: Some(Box::new(pattern("v.*1"))),
        true_filter: Some(Box::new(limit(1))),
        false_filter: Some(Box::new(of(Filter::ApplyLabelTransformer("other".into())))),
    };
    let chain = vec![of(Filter::FamilyNameRegexFilter("[fg]".into())), limit(2), pattern(".*")];
    let all = vec![of(Filter::PassAllFilter(true)), of(Filter::StripValueTransformer(true)), limit(1)];
    vec![
        of(Filter::Chain(Chain { filters: chain })),
        of(Filter::Interleave(Interleave { filters: all })),
        of(Filter::Condition(Box::new(condition))),
        of(Filter::RowSampleFilter(0.5)),
        of(Filter::ColumnQualifierRegexFilter(Bytes::from_static(br"q\C?"))),
        of(Filter::CellsPerRowOffsetFilter(1)),
        of(Filter::Sink(true)),
    ]
}

/// Some cells of a row.
fn cells() -> Vec<Cell> {
    let cell = |n: usize| Cell {
        family: Arc::from(["f", "g"][n / 8 % 2]),
        qualifier: Bytes::from(format!("q{}", n / 2 % 4)),
        timestamp: 1_000 * (2 - n as i64 % 2),
        value: Bytes::from(format!("value {n}")),
        labels: Vec::new(),
    };
    (0..16).map(cell).collect()
}

/// Compiles a filter, and sends a row through it.
fn through(filter: Option<&data::RowFilter>) {
    let mut work = Work::unbounded(Caller::default());
    let Ok(mut filter) = Filter::compile(filter, &mut work) else { return };
    let needs = ["f", "g"].map(|family| filter.need(family).is_some());
    filter.begin();
    let Ok(left) = filter.pass(b"row", cells(), &mut 0, &mut work) else { return };
    for (family, is_needed) in ["f", "g"].into_iter().zip(needs) {
        assert!(
            is_needed || left.iter().all(|cell| &*cell.family != family),
            "cells of what needs not be read"
        );
    }
    let mut chunks = Chunker::default();
    chunks.row(b"row", &left);
    for message in chunks.take() {
        assert!(data::ReadRowsResponse::decode(message).is_ok(), "an answer that does not decode");
    }
}

fn filter_seeds() -> Vec<Vec<u8>> {
    filters().iter().map(Message::encode_to_vec).collect()
}

fn filter(bytes: &[u8]) {
    if let Ok(filter) = data::RowFilter::decode(bytes) {
        through(Some(&filter));
    }
}

fn pattern_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "abc",
        "a|bc",
        "a.c",
        r"a\C*",
        r"[^\x00-\x7f]",
        r"\Qa.b\E+",
        "(?i:ab)+c?",
        r"\101[[:alpha:]]{1,3}",
        "(a(b)|c)",
    ])
}

fn compiled(pattern: &[u8]) -> Result<Pattern, Status> {
    Patterns::of(1)?.compile("test", pattern, &mut Work::unbounded(Caller::default()))
}

/// A pattern matches the whole of what it is shown, so it does the same inside a group, and what is quoted matches itself alone.
fn pattern(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(200)];
    let shown = [&b"abc"[..], b"bc", b"ab", b"a.b", b"xabc", b"abcx", b"", b"\xff", bytes];
    if let Ok(alone) = compiled(bytes) {
        let group = [&b"(?:"[..], bytes, b")"].concat();
        let is_closed = !bytes.ends_with(b"\\") && !bytes.windows(2).any(|two| two == br"\Q");
        if let Some(Ok(group)) = is_closed.then(|| compiled(&group)) {
            for shown in shown {
                assert_eq!(alone.matches(shown), group.matches(shown), "{}", shown.escape_ascii());
            }
        }
    }
    if !bytes.is_empty() && !bytes.windows(2).any(|two| two == br"\E") && !bytes.ends_with(b"\\") {
        let Ok(quoted) = compiled(&[&br"\Q"[..], bytes, br"\E"].concat()) else { return };
        for shown in shown {
            assert_eq!(quoted.matches(shown), shown == bytes, "{}", shown.escape_ascii());
        }
    }
}

// ---- requests

fn read_seeds() -> Vec<Vec<u8>> {
    use data::row_range::{EndKey, StartKey};
    let range = data::RowRange {
        start_key: Some(StartKey::StartKeyClosed("a".into())),
        end_key: Some(EndKey::EndKeyOpen("m".into())),
    };
    let rows = data::RowSet { row_keys: vec!["row".into(), "z".into()], row_ranges: vec![range] };
    let request = |filter| data::ReadRowsRequest {
        table_name: TABLE.into(),
        rows: Some(rows.clone()),
        filter: Some(filter),
        rows_limit: 3,
        ..Default::default()
    };
    filters().into_iter().map(|filter| request(filter).encode_to_vec()).collect()
}

fn read_request(bytes: &[u8]) {
    let Ok(request) = data::ReadRowsRequest::decode(bytes) else { return };
    let _ = names::table(&request.table_name);
    if let Ok(spans) = read::spans(request.rows.as_ref()) {
        let mut neighbours = spans.iter().zip(spans.iter().skip(1));
        let is_before =
            |(a, b): (&rows::Span, &rows::Span)| a.end.as_ref().is_some_and(|end| *end <= b.start);
        assert!(neighbours.all(is_before), "spans that are not in order");
    }
    through(request.filter.as_ref());
}

fn mutations() -> Vec<data::Mutation> {
    use data::mutation::{DeleteFromColumn, DeleteFromRow, Mutation, SetCell};
    let set = SetCell {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        timestamp_micros: 1_000,
        value: "value".into(),
    };
    let column = DeleteFromColumn {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        time_range: Some(data::TimestampRange { start_timestamp_micros: 1_000, end_timestamp_micros: 9_000 }),
    };
    let all = [
        Mutation::SetCell(set),
        Mutation::DeleteFromColumn(column),
        Mutation::DeleteFromRow(DeleteFromRow {}),
    ];
    all.map(|mutation| data::Mutation { mutation: Some(mutation) }).to_vec()
}

fn mutate_seeds() -> Vec<Vec<u8>> {
    let entry = |row: &'static str| data::mutate_rows_request::Entry {
        row_key: row.into(),
        mutations: mutations(),
        ..Default::default()
    };
    let entries = vec![entry("row"), entry("z")];
    vec![data::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() }.encode_to_vec()]
}

fn mutate_request(bytes: &[u8]) {
    let Ok(request) = data::MutateRowsRequest::decode(bytes) else { return };
    for entry in &request.entries {
        let _ = rows::check_row(&entry.row_key);
    }
}

fn check_seeds() -> Vec<Vec<u8>> {
    let request = |filter| data::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "row".into(),
        predicate_filter: Some(filter),
        true_mutations: mutations(),
        ..Default::default()
    };
    filters().into_iter().map(|filter| request(filter).encode_to_vec()).collect()
}

fn check_request(bytes: &[u8]) {
    if let Ok(request) = data::CheckAndMutateRowRequest::decode(bytes) {
        through(request.predicate_filter.as_ref());
    }
}

fn modify_seeds() -> Vec<Vec<u8>> {
    use data::read_modify_write_rule::Rule;
    let rule = |rule| data::ReadModifyWriteRule {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        rule: Some(rule),
    };
    let rules = vec![rule(Rule::AppendValue("more".into())), rule(Rule::IncrementAmount(7))];
    let (table_name, row_key) = (TABLE.into(), "row".into());
    vec![data::ReadModifyWriteRowRequest { table_name, row_key, rules, ..Default::default() }.encode_to_vec()]
}

fn modify_request(bytes: &[u8]) {
    if let Ok(request) = data::ReadModifyWriteRowRequest::decode(bytes) {
        let _ = rows::check_row(&request.row_key);
    }
}

fn families() -> Vec<admin::ColumnFamily> {
    use admin::gc_rule::{Intersection, Rule, Union};
    let rule = |rule| admin::GcRule { rule: Some(rule) };
    let age = rule(Rule::MaxAge(prost_types::Duration { seconds: 3_600, nanos: 0 }));
    let both = Intersection { rules: vec![rule(Rule::MaxNumVersions(3)), age.clone()] };
    let either = Union { rules: vec![rule(Rule::Intersection(both)), rule(Rule::MaxNumVersions(9))] };
    let of_rule = |rule| admin::ColumnFamily { gc_rule: Some(rule), ..Default::default() };
    let of_type = |aggregate: Aggregate| admin::ColumnFamily {
        value_type: Some(aggregate.to_message()),
        ..Default::default()
    };
    let ruled = [age, rule(Rule::Union(either))].map(of_rule);
    ruled.into_iter().chain(Aggregate::ALL.map(of_type)).collect()
}

fn create_seeds() -> Vec<Vec<u8>> {
    let request = |family| {
        let table =
            admin::Table { column_families: [("f".to_string(), family)].into(), ..Default::default() };
        let (parent, table_id) = ("projects/p/instances/i".into(), "t".into());
        admin::CreateTableRequest { parent, table_id, table: Some(table), ..Default::default() }
    };
    families().into_iter().map(|family| request(family).encode_to_vec()).collect()
}

fn create_request(bytes: &[u8]) {
    let Ok(request) = admin::CreateTableRequest::decode(bytes) else { return };
    let _ = names::table_of(&request.parent, &request.table_id);
    let Some(Ok(schema)) = request.table.as_ref().map(|table| Schema::new(1, table)) else { return };
    let _ = schema.to_message(TABLE, admin::table::View::Full).encoded_len();
    let stored = serde_json::to_vec(&schema).unwrap_or_default();
    assert_eq!(serde_json::from_slice::<Schema>(&stored).ok(), Some(schema), "a table is stored as it is");
}

fn update_seeds() -> Vec<Vec<u8>> {
    let table = admin::Table { name: TABLE.into(), deletion_protection: true, ..Default::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["deletion_protection".into()] });
    vec![admin::UpdateTableRequest { table: Some(table), update_mask, ..Default::default() }.encode_to_vec()]
}

fn update_request(bytes: &[u8]) {
    let Ok(request) = admin::UpdateTableRequest::decode(bytes) else { return };
    let mut schema = Schema::default();
    if let Some(table) = &request.table {
        let _ = (names::table(&table.name), schema.stream_changes(table.change_stream_config.as_ref()));
    }
}

/// A schema with the families `f` and `g`.
fn two_families() -> Schema {
    let families = ["f", "g"].map(|name| (name.to_string(), admin::ColumnFamily::default()));
    let table = admin::Table { column_families: families.into(), ..Default::default() };
    Schema::new(1, &table).unwrap_or_default()
}

fn view_message() -> admin::AuthorizedView {
    use admin::authorized_view::{AuthorizedView, FamilySubsets, SubsetView};
    let columns =
        FamilySubsets { qualifiers: vec!["q".into(), "".into()], qualifier_prefixes: vec!["p".into()] };
    let subset = SubsetView {
        row_prefixes: vec!["r1".into(), "r".into(), Bytes::from_static(b"\xff")],
        family_subsets: [("f".to_string(), columns)].into(),
    };
    let authorized_view = Some(AuthorizedView::SubsetView(subset));
    admin::AuthorizedView { deletion_protection: true, authorized_view, ..Default::default() }
}

fn create_view_seeds() -> Vec<Vec<u8>> {
    let (parent, authorized_view_id) = (TABLE.into(), "v".into());
    let authorized_view = Some(view_message());
    vec![admin::CreateAuthorizedViewRequest { parent, authorized_view_id, authorized_view }.encode_to_vec()]
}

/// Asks a view for what it says that it has, and stores it.
fn use_view(view: &ViewSchema) {
    use admin::authorized_view::{AuthorizedView, ResponseView};
    let stored = serde_json::to_vec(view).unwrap_or_default();
    assert_eq!(serde_json::from_slice(&stored).ok().as_ref(), Some(view), "a view is stored as it is");
    let compiled = view.compiled();
    let Some(AuthorizedView::SubsetView(told)) = view.to_message("v", ResponseView::Full).authorized_view
    else {
        return;
    };
    for prefix in &told.row_prefixes {
        assert!(compiled.check_row(&[&prefix[..], b"x"].concat()).is_ok(), "a row that begins so");
    }
    for (family, columns) in &told.family_subsets {
        for qualifier in columns.qualifiers.iter().chain(&columns.qualifier_prefixes) {
            assert!(compiled.check_column(family, qualifier).is_ok(), "a column that is named");
        }
    }
}

fn create_view_request(bytes: &[u8]) {
    let Ok(request) = admin::CreateAuthorizedViewRequest::decode(bytes) else { return };
    let _ = names::view_of(&request.parent, &request.authorized_view_id);
    let view = request.authorized_view.map(|view| ViewSchema::new(&view, &two_families()));
    if let Some(Ok(view)) = view {
        use_view(&view);
    }
}

fn update_view_seeds() -> Vec<Vec<u8>> {
    let authorized_view =
        admin::AuthorizedView { name: format!("{TABLE}/authorizedViews/v"), ..view_message() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["subset_view.row_prefixes".into()] });
    let request = admin::UpdateAuthorizedViewRequest {
        authorized_view: Some(authorized_view),
        update_mask,
        ignore_warnings: true,
    };
    vec![request.encode_to_vec()]
}

fn update_view_request(bytes: &[u8]) {
    let Ok(request) = admin::UpdateAuthorizedViewRequest::decode(bytes) else { return };
    let Some(view) = &request.authorized_view else { return };
    let mut changed = ViewSchema::default();
    let _ = names::view(&view.name);
    let mask = request.update_mask.as_ref().map_or(&[][..], |mask| &mask.paths);
    if changed.update(view, mask, &two_families()).is_ok() {
        use_view(&changed);
    }
}

fn header_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "table_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft&app_profile_id=",
        "authorized_view_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft%2FauthorizedViews%2Fv",
        "projects/p/instances/i/tables/t/authorizedViews/v",
    ])
}

/// What the headers of a call of data say that it is about.
fn headers(bytes: &[u8]) {
    let Ok(value) = http::HeaderValue::from_bytes(bytes) else { return };
    let Some(method) = methods::of("/google.bigtable.v2.Bigtable/ReadRows") else { return };
    for name in ["x-goog-request-params", "google-cloud-resource-prefix"] {
        let said = method.said(&[(http::HeaderName::from_static(name), value.clone())].into_iter().collect());
        let _ = method.allows_said(&auth::Who::ANYONE, &said);
        let _ = method.check_said(&said, &[bytes], 0, bytes.len());
    }
}

fn bundle_seeds() -> Vec<Vec<u8>> {
    let field = |name: &str, number| prost_types::FieldDescriptorProto {
        name: Some(name.to_string()),
        number: Some(number),
        label: Some(1),
        r#type: Some(9),
        ..Default::default()
    };
    let inner = prost_types::DescriptorProto { name: Some("Inner".into()), ..Default::default() };
    let kind = prost_types::DescriptorProto {
        name: Some("Message".into()),
        field: vec![field("a", 1), field("b", 2)],
        nested_type: vec![inner],
        ..Default::default()
    };
    let file = |name: &str| prost_types::FileDescriptorProto {
        name: Some(name.to_string()),
        package: Some("package".into()),
        message_type: vec![kind.clone()],
        ..Default::default()
    };
    let importing =
        prost_types::FileDescriptorProto { dependency: vec!["a.proto".into()], ..file("b.proto") };
    let sets = [vec![file("a.proto")], vec![file("a.proto"), importing]];
    sets.map(|file| prost_types::FileDescriptorSet { file }.encode_to_vec()).to_vec()
}

/// Descriptors of messages, as a schema bundle has them.
fn bundle(bytes: &[u8]) {
    let memory = Budgets::new(64 << 20).caller(None, [127, 0, 0, 1].into()).answers.of_connection();
    let _ = Files::parse(bytes, &memory);
}

// ---- what is stored

fn row_key_seeds() -> Vec<Vec<u8>> {
    vec![rows::cell_key(b"row", b"q"), rows::cell_key(b"r\0w\0\0", b""), rows::row_end(b"row")]
}

/// Any key of a store, and any row.
fn row_key(bytes: &[u8]) {
    if let Some(len) = rows::row_len(bytes) {
        let row = rows::row_of(&bytes[..len]);
        assert!(row.len() <= len);
    }
    let key = rows::cell_key(bytes, b"qualifier");
    let len = rows::row_len(&key).expect("a key that was made has a row");
    assert_eq!(
        (&*rows::row_of(&key[..len]), &key[len..]),
        (bytes, &b"qualifier"[..]),
        "a row is read as it was"
    );
    assert!(rows::row_span(bytes).has(&key) && rows::prefix_span(bytes).has(&key));
}

fn change_seeds() -> Vec<Vec<u8>> {
    let key = rows::cell_key(b"row", b"q");
    (0..4).map(|kind| [&[kind, key.len() as u8][..], &key, &[7; 16], b"value"].concat()).collect()
}

/// A change of the log: its kind, the length of its key, the key, two times, and a value or the end of a range.
fn change(bytes: &[u8]) {
    let Some((&[kind, len], rest)) = bytes.split_first_chunk::<2>() else { return };
    let Some((key, rest)) = rest.split_at_checked(usize::from(len)) else { return };
    let Some((times, value)) = rest.split_first_chunk::<16>() else { return };
    let time = |at: usize| Timestamp(u64::from_le_bytes(std::array::from_fn(|n| times[at + n])));
    let (key, value, timestamp) = (key.to_vec(), value.to_vec(), time(0));
    let change = match kind % 4 {
        0 => ChangeKind::Put { key, timestamp, value },
        1 => ChangeKind::Merge { key, timestamp, operand: value },
        2 => ChangeKind::Delete { key, timestamp },
        _ => {
            let range = KeyRange { start: key, end: Some(value) };
            ChangeKind::DeleteRange { range, from: timestamp, to: time(8) }
        }
    };
    if let Some((row, mutation)) = mutation_of("f", &change) {
        let _ = (rows::row_of(&row).len(), data::Mutation { mutation: Some(mutation) }.encoded_len());
    }
}

fn sketch_seeds() -> Vec<Vec<u8>> {
    let input = |n| data::value::Kind::IntValue(n);
    let states = (0..3).filter_map(|n| Aggregate::DistinctInt64.state_of(Some(&input(n))).ok());
    states.chain([7_i64.to_be_bytes().to_vec()]).collect()
}

/// States of aggregates, as clients bring them and as a store has them.
fn sketch(bytes: &[u8]) {
    for aggregate in Aggregate::ALL {
        let is_state = aggregate.check_state(bytes).is_ok();
        let merged = aggregate.merge(b"key", Some(bytes), &[bytes]);
        assert!(!is_state || merged.is_ok(), "a state that was taken cannot be merged");
    }
}

fn schema_seeds() -> Vec<Vec<u8>> {
    let families = families().into_iter().enumerate().map(|(n, family)| (format!("f{n}"), family)).collect();
    let table = admin::Table { column_families: families, ..Default::default() };
    let view = ViewSchema::new(&view_message(), &two_families()).unwrap_or_default();
    let views = [("v".to_string(), view)].into();
    let schema = Schema { changes_from_us: 1, views, ..Schema::new(1, &table).unwrap_or_default() };
    vec![serde_json::to_vec(&schema).unwrap_or_default()]
}

fn schema(bytes: &[u8]) {
    if let Ok(schema) = serde_json::from_slice::<Schema>(bytes) {
        let _ = schema.to_message(TABLE, admin::table::View::Full).encoded_len();
        schema.views.values().for_each(use_view);
    }
}

// ---- files

fn token_seeds() -> Vec<Vec<u8>> {
    let digest = auth::token_digest("secret");
    let token = |rights: &str, tables: &str| {
        format!("[[token]]\nname = 'x'\nsha256 = '{digest}'\nrights = [{rights}]\ntables = [{tables}]\n")
    };
    let all = token("'read', 'write', 'admin', 'monitor'", "'*'") + &token("'monitor'", "");
    vec![all.into_bytes(), token("'read'", &format!("'{TABLE}'")).into_bytes()]
}

fn tokens(bytes: &[u8]) {
    if let Err(why) = auth::parse(&String::from_utf8_lossy(bytes)) {
        assert!(!why.trim().is_empty(), "a file of tokens is refused without a reason");
    }
}

fn settings_seeds() -> Vec<Vec<u8>> {
    let mut seeds = texts(&[
        "memory = \"512MiB\"\ndurability = \"sync\"\n[tables]\nstrategy = \"leveled{table_bytes=128KiB}\"\n",
        "[[table]]\nname = \"*\"\nfamily = \"f\"\nsettings = { bloom_bits = 12, compression = \"lz4\" }\n",
    ]);
    seeds.push(Config::default().to_toml().into_bytes());
    seeds
}

/// What is taken is the same when it was written and read.
fn settings(bytes: &[u8]) {
    match Config::parse(&String::from_utf8_lossy(bytes)) {
        Err(why) => assert!(!why.trim().is_empty(), "settings are refused without a reason"),
        Ok(config) => {
            let again = Config::parse(&config.to_toml()).map(|config| config.to_toml());
            assert_eq!(again, Ok(config.to_toml()), "settings are written as they were read");
        }
    }
}
