//! Every decoder of the server, each as a function of bytes that must not panic, hang or take much memory
//! whatever it is given, and that uses what came of it. The package `siltstone-fuzz` calls them. Requests may
//! take some hundred bytes of memory for each that they have.

use crate::cells::aggregate::Aggregate;
use crate::cells::filter::pattern::{LONG_BYTES, Pattern, Patterns, TOO_LARGE};
use crate::cells::filter::{Cell, Filter};
use crate::cells::row_key;
use crate::config::Config;
use crate::names;
use crate::net::auth;
use crate::net::budget::Budgets;
use crate::net::methods;
use crate::net::wire;
use crate::net::work::{Caller, Work};
use crate::proto::descriptors::Files;
use crate::proto::{admin, data};
use crate::rows::changes::mutation_of;
use crate::rows::chunks::Chunker;
use crate::rows::read_rows;
use crate::tables::backup_filter::forge as backup_filter;
use crate::tables::backup_places::Published;
use crate::tables::backup_records::Backup;
use crate::tables::instance_set::Instance;
use crate::tables::profiles::Profile;
use crate::tables::schema::Schema;
use crate::tables::view_schema::ViewSchema;
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
        target("request-fields", field_seeds, fields),
        target("request-read-rows", read_seeds, read_request),
        target("request-mutate-rows", mutate_seeds, mutate_request),
        target("request-check-and-mutate", check_seeds, check_request),
        target("request-read-modify-write", modify_seeds, modify_request),
        target("request-create-table", create_seeds, create_request),
        target("request-update-table", update_seeds, update_request),
        target("request-list-backups", backup_filter::seeds, backup_filter::list),
        target("request-instance", instance_seeds, instance_request),
        target("request-app-profile", profile_seeds, profile_request),
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
        target("backup-object", backup_object_seeds, backup_object),
        target("instance", stored_instance_seeds, stored_instance),
        target("tokens", token_seeds, tokens),
        target("settings", settings_seeds, settings),
    ]
}

const TABLE: &str = "projects/p/instances/i/tables/t";

// ---- requests as they came

/// A method of those that are served, by a byte, and a request of it.
fn field_seeds() -> Vec<Vec<u8>> {
    let of = |method: &str, requests: Vec<Vec<u8>>| {
        let at = crate::proto::METHODS.iter().position(|path| path.ends_with(method));
        let at = at.and_then(|at| u8::try_from(at).ok());
        requests.into_iter().filter_map(move |request| Some([&[at?][..], &request].concat()))
    };
    let all = of("/MutateRows", mutate_seeds()).chain(of("/CheckAndMutateRow", check_seeds()));
    all.chain(of("/CreateTable", create_seeds())).chain(of("/UpdateTable", update_seeds())).collect()
}

/// What is found of a request does not depend on the pieces in which it comes.
fn fields(bytes: &[u8]) {
    let Some((&at, request)) = bytes.split_first() else { return };
    let path = crate::proto::METHODS[usize::from(at) % crate::proto::METHODS.len()];
    let Some(method) = methods::of(path) else { return };
    let weighed = |pieces: &[&[u8]]| {
        let weighed = wire::weigh(pieces, 0, method.shape, method.request);
        weighed.map_err(|refused| (refused.code(), refused.message().to_string()))
    };
    let pieces: Vec<&[u8]> = request.chunks(7).collect();
    assert_eq!(weighed(&[request]), weighed(&pieces), "in pieces");
}

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
        r"(?i)[^\x{e0}-\xef\P{Lu}[:^word:]-]?",
        r"(?P<n>^\Aa\b|(?m-s)$\B\z)x{2,}?",
    ])
}

fn compiled(pattern: &[u8]) -> Result<Pattern, Status> {
    Patterns::of(1)?.compile("test", pattern, &mut Work::unbounded(Caller::default()))
}

/// Whether a pattern matches each of these values, to compare it with other programs.
///
/// # Errors
/// It is refused: why. `None` where only its size is.
pub fn matches_of_pattern(pattern: &[u8], values: &[Vec<u8>]) -> Result<Vec<bool>, Option<String>> {
    let pattern = compiled(pattern).map_err(|refused| {
        let why = refused.message();
        (!why.ends_with(TOO_LARGE)).then(|| why.to_string())
    })?;
    Ok(values.iter().map(|value| pattern.matches(value)).collect())
}

/// A pattern matches the whole of what it is shown, so it does the same inside a group, and what is quoted
/// matches itself alone. Of a long value the engine that goes step by step says the same as the other.
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
        // As many bytes for each of them would leave no time for other patterns.
        if bytes.len() % 16 == 1 {
            let long: Vec<u8> = bytes.iter().copied().cycle().take(LONG_BYTES + 100).collect();
            let counted = alone.matches_counted(&long, &mut Work::unbounded(Caller::default()));
            assert_eq!(counted.ok(), Some(alone.matches(&long)), "a long value is matched in another way");
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
    if let Ok(spans) = read_rows::spans(request.rows.as_ref()) {
        let mut neighbours = spans.iter().zip(spans.iter().skip(1));
        let is_before =
            |(a, b): (&row_key::Span, &row_key::Span)| a.end.as_ref().is_some_and(|end| *end <= b.start);
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
    all.map(|mutation| data::Mutation { mutation: Some(mutation), timestamp_origin: 2 }).to_vec()
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
        let _ = row_key::check_row(&entry.row_key);
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
        let _ = row_key::check_row(&request.row_key);
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
    use admin::r#type::{Kind, Struct, r#struct};
    let singleton = r#struct::encoding::Encoding::Singleton(r#struct::encoding::Singleton {});
    let encoding = Some(r#struct::Encoding { encoding: Some(singleton) });
    let raw = admin::r#type::bytes::encoding::Encoding::Raw(Default::default());
    let raw = Some(admin::r#type::bytes::Encoding { encoding: Some(raw) });
    let r#type = Some(admin::Type { kind: Some(Kind::BytesType(admin::r#type::Bytes { encoding: raw })) });
    let key = Struct { fields: vec![r#struct::Field { field_name: "user".into(), r#type }], encoding };
    let request = |family| {
        let table = admin::Table {
            column_families: [("f".to_string(), family)].into(),
            granularity: 2,
            row_key_schema: Some(key.clone()),
            ..Default::default()
        };
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
    let Some(table) = &request.table else { return };
    let paths = request.update_mask.as_ref().map_or(&[][..], |mask| &mask.paths);
    let mut schema = Schema::default();
    let _ = (names::table(&table.name), schema.update(table, paths, request.ignore_warnings));
    let stored = serde_json::to_vec(&schema).unwrap_or_default();
    assert_eq!(serde_json::from_slice::<Schema>(&stored).ok(), Some(schema), "a table is stored as it is");
}

const INSTANCE: &str = "projects/p/instances/inst";

fn instance_seeds() -> Vec<Vec<u8>> {
    let autoscaling = admin::cluster::ClusterAutoscalingConfig {
        autoscaling_limits: Some(admin::AutoscalingLimits { min_serve_nodes: 1, max_serve_nodes: 4 }),
        autoscaling_targets: Some(admin::AutoscalingTargets {
            cpu_utilization_percent: 60,
            storage_utilization_gib_per_node: 2_560,
        }),
    };
    let config = admin::cluster::ClusterConfig { cluster_autoscaling_config: Some(autoscaling) };
    let location = "projects/p/locations/zone".to_string();
    let plain = admin::Cluster { location, serve_nodes: 2, ..Default::default() };
    let scaled =
        admin::Cluster { config: Some(admin::cluster::Config::ClusterConfig(config)), ..plain.clone() };
    let labels = [("key".to_string(), "value".to_string())].into();
    let request = admin::CreateInstanceRequest {
        parent: "projects/p".into(),
        instance_id: "inst".into(),
        instance: Some(admin::Instance { display_name: "name".into(), labels, ..Default::default() }),
        clusters: [("one".to_string(), plain), ("two".to_string(), scaled)].into(),
    };
    vec![request.encode_to_vec()]
}

/// Accepted messages are stored and returned unchanged.
fn instance_request(bytes: &[u8]) {
    let Ok(request) = admin::CreateInstanceRequest::decode(bytes) else { return };
    let asked = request.instance.unwrap_or_default();
    let Ok(made) = Instance::from_message(&request.parent, &asked, &request.clusters) else { return };
    let told = made.to_message(INSTANCE);
    assert_eq!((told.display_name, told.labels), (asked.display_name, asked.labels));
    let stored = serde_json::to_vec(&made).unwrap_or_default();
    assert_eq!(
        serde_json::from_slice::<Instance>(&stored).ok(),
        Some(made),
        "an instance is stored as it is"
    );
}

fn profile_seeds() -> Vec<Vec<u8>> {
    use admin::app_profile::{RoutingPolicy, SingleClusterRouting};
    let routing = SingleClusterRouting { cluster_id: "siltstone".into(), allow_transactional_writes: true };
    let profile = admin::AppProfile {
        name: format!("{INSTANCE}/appProfiles/x"),
        description: "text".into(),
        routing_policy: Some(RoutingPolicy::SingleClusterRouting(routing)),
        ..Default::default()
    };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["single_cluster_routing".into()] });
    let request = |mask| admin::UpdateAppProfileRequest {
        app_profile: Some(profile.clone()),
        update_mask: mask,
        ignore_warnings: true,
    };
    [update_mask, None].map(|mask| request(mask).encode_to_vec()).to_vec()
}

/// A profile that is taken fits its instance, and what is told of it is taken again.
fn profile_request(bytes: &[u8]) {
    let Ok(request) = admin::UpdateAppProfileRequest::decode(bytes) else { return };
    let asked = request.app_profile.unwrap_or_default();
    let _ = names::within_instance(&asked.name, "appProfiles");
    let mut instance = Instance::implied(INSTANCE);
    let Ok(mut profile) = instance.profile("default").cloned() else { return };
    if profile.update(&asked, request.update_mask.as_ref()).is_ok()
        && instance.put_profile("x", profile, request.ignore_warnings).is_ok()
    {
        let told = instance.profile_message(INSTANCE, "x").map(|told| Profile::from_message(&told));
        assert!(told.is_ok_and(|told| told.is_ok()), "a profile is told as it cannot be made");
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
    let view = request.authorized_view.map(|view| ViewSchema::new(&view, &two_families().families));
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
    if changed.update(view, mask, &two_families().families).is_ok() {
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
    if let Ok((files, _lease)) = Files::parse(bytes, &memory) {
        let _ = files.check_reads(&files);
    }
}

// ---- what is stored

fn stored_instance_seeds() -> Vec<Vec<u8>> {
    vec![serde_json::to_vec(&Instance::implied(INSTANCE)).unwrap_or_default()]
}

fn stored_instance(bytes: &[u8]) {
    let Ok(instance) = serde_json::from_slice::<Instance>(bytes) else { return };
    let _ = instance.to_message(INSTANCE).encoded_len();
    for id in instance.clusters.keys() {
        let _ = instance.cluster_message(INSTANCE, id).map(|told| told.encoded_len());
    }
    for id in instance.profiles.keys() {
        let _ = instance.profile_message(INSTANCE, id).map(|told| told.encoded_len());
    }
}

fn row_key_seeds() -> Vec<Vec<u8>> {
    vec![row_key::cell_key(b"row", b"q"), row_key::cell_key(b"r\0w\0\0", b""), row_key::row_end(b"row")]
}

/// Any key of a store, and any row.
fn row_key(bytes: &[u8]) {
    if let Some(len) = row_key::row_len(bytes) {
        let row = row_key::row_of(&bytes[..len]);
        assert!(row.len() <= len);
    }
    let key = row_key::cell_key(bytes, b"qualifier");
    let len = row_key::row_len(&key).expect("a key that was made has a row");
    assert_eq!(
        (&*row_key::row_of(&key[..len]), &key[len..]),
        (bytes, &b"qualifier"[..]),
        "a row is read as it was"
    );
    assert!(row_key::row_span(bytes).has(&key) && row_key::prefix_span(bytes).has(&key));
}

fn change_seeds() -> Vec<Vec<u8>> {
    let key = row_key::cell_key(b"row", b"q");
    (0..4).map(|kind| [&[kind, key.len() as u8][..], &key, &[7; 16], b"value"].concat()).collect()
}

/// A change of the WAL: its kind, the length of its key, the key, two times, and a value or the end of a
/// range.
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
        let _ = (row_key::row_of(&row).len(), data::ToldMutation { mutation: Some(mutation) }.encoded_len());
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
    let view = ViewSchema::new(&view_message(), &two_families().families).unwrap_or_default();
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

fn backup_object_seeds() -> Vec<Vec<u8>> {
    let backups = backup_filter::backups().into_iter().take(1);
    let published = backups.map(|(_, of)| {
        let (place, source_table, start_us) = ("00ff-07".into(), of.source_table, of.start_us);
        Published {
            server: "00ff".into(),
            backup: Backup { place, source_table, start_us, ..Backup::default() },
        }
    });
    published.filter_map(|published| serde_json::to_vec(&published).ok()).collect()
}

/// What another server says of a backup.
fn backup_object(bytes: &[u8]) {
    if let Ok(Published { backup, .. }) = Published::parse(bytes) {
        let _ = (backup.to_message("backup").encoded_len(), backup.info("backup").encoded_len());
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
        "memory = \"512MiB\"\ndurability = \"sync\"\n[tables]\nstrategy = \"leveled{sstable_bytes=128KiB}\"\n",
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
