//! Authorized views: what is read and written through one is what it has, whatever lies beside that; they are
//! kept with their table and have rights of their own.

use crate::security::{MUTATE_ROWS, With, call_with, entry, framed, raw, refused_with};
use crate::support::data_v2::row_filter::{Chain, Condition, Filter, Interleave};
use crate::support::*;
use admin_v2::authorized_view::{AuthorizedView as Kind, FamilySubsets, ResponseView, SubsetView};
use prost::Message;
use siltstone::Rng;
use std::collections::BTreeMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

const CASES: u64 = 12;

/// A family, the qualifiers that a view has of it, and their prefixes.
type Columns<'a> = (&'a str, &'a [&'static str], &'a [&'static str]);

pub(crate) fn named(id: &str) -> String {
    format!("{TABLE}/authorizedViews/{id}")
}

pub(crate) fn subset(rows: &[&'static str], families: &[Columns<'_>]) -> SubsetView {
    let bytes = |all: &[&'static str]| -> Vec<bytes::Bytes> { all.iter().map(|one| (*one).into()).collect() };
    let columns = |(name, exact, prefixes): &Columns<'_>| {
        let of = FamilySubsets { qualifiers: bytes(exact), qualifier_prefixes: bytes(prefixes) };
        ((*name).to_string(), of)
    };
    SubsetView { row_prefixes: bytes(rows), family_subsets: families.iter().map(columns).collect() }
}

pub(crate) fn message(subset: SubsetView) -> admin_v2::AuthorizedView {
    admin_v2::AuthorizedView { authorized_view: Some(Kind::SubsetView(subset)), ..Default::default() }
}

pub(crate) fn create(id: &str, view: admin_v2::AuthorizedView) -> admin_v2::CreateAuthorizedViewRequest {
    admin_v2::CreateAuthorizedViewRequest {
        parent: TABLE.into(),
        authorized_view_id: id.into(),
        authorized_view: Some(view),
    }
}

pub(crate) async fn make(t: &mut Fixture, id: &str, rows: &[&'static str], families: &[Columns<'_>]) {
    t.admin.create_authorized_view(create(id, message(subset(rows, families)))).await.unwrap();
}

fn get(id: &str, view: ResponseView) -> admin_v2::GetAuthorizedViewRequest {
    admin_v2::GetAuthorizedViewRequest { name: named(id), view: view as i32 }
}

fn delete(id: &str) -> admin_v2::DeleteAuthorizedViewRequest {
    admin_v2::DeleteAuthorizedViewRequest { name: named(id), ..Default::default() }
}

/// An update of these fields.
pub(crate) fn update(
    view: admin_v2::AuthorizedView,
    paths: &[&str],
) -> admin_v2::UpdateAuthorizedViewRequest {
    let paths = paths.iter().map(ToString::to_string).collect();
    admin_v2::UpdateAuthorizedViewRequest {
        authorized_view: Some(view),
        update_mask: Some(prost_types::FieldMask { paths }),
        ignore_warnings: false,
    }
}

async fn ids(t: &mut Fixture) -> Vec<String> {
    let request = admin_v2::ListAuthorizedViewsRequest { parent: TABLE.into(), ..Default::default() };
    let all = t.admin.list_authorized_views(request).await.unwrap().into_inner().authorized_views;
    all.iter().map(|view| view.name.rsplit('/').next().unwrap().to_string()).collect()
}

pub(crate) fn read(id: &str) -> ReadRowsRequest {
    ReadRowsRequest { authorized_view_name: named(id), ..Default::default() }
}

fn mutations(changes: Vec<Change>) -> Vec<Mutation> {
    changes.into_iter().map(|change| Mutation { mutation: Some(change) }).collect()
}

fn mutate(id: &str, row: &str, changes: Vec<Change>) -> data_v2::MutateRowRequest {
    data_v2::MutateRowRequest {
        authorized_view_name: named(id),
        row_key: row.to_string().into(),
        mutations: mutations(changes),
        ..Default::default()
    }
}

fn append(id: &str, row: &str, qualifier: &'static str) -> data_v2::ReadModifyWriteRowRequest {
    let rule = data_v2::ReadModifyWriteRule {
        family_name: "f".into(),
        column_qualifier: qualifier.into(),
        rule: Some(data_v2::read_modify_write_rule::Rule::AppendValue("+".into())),
    };
    data_v2::ReadModifyWriteRowRequest {
        authorized_view_name: named(id),
        row_key: row.to_string().into(),
        rules: vec![rule],
        ..Default::default()
    }
}

fn check(id: &str, row: &str, of: Option<Filter>, then: Vec<Change>) -> data_v2::CheckAndMutateRowRequest {
    data_v2::CheckAndMutateRowRequest {
        authorized_view_name: named(id),
        row_key: row.to_string().into(),
        predicate_filter: of.map(|filter| RowFilter { filter: Some(filter) }),
        true_mutations: mutations(then),
        ..Default::default()
    }
}

async fn entries(t: &mut Fixture, id: &str, all: Vec<(&str, Change)>) -> Vec<(i32, String)> {
    let entry = |(row, change): (&str, Change)| data_v2::mutate_rows_request::Entry {
        row_key: row.to_string().into(),
        mutations: mutations(vec![change]),
        ..Default::default()
    };
    let request = data_v2::MutateRowsRequest {
        authorized_view_name: named(id),
        entries: all.into_iter().map(entry).collect(),
        ..Default::default()
    };
    let mut stream = t.data.mutate_rows(request).await.unwrap().into_inner();
    let mut told = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        told.extend(message.entries.into_iter().map(|entry| entry.status.unwrap_or_default()));
    }
    told.into_iter().map(|status| (status.code, status.message)).collect()
}

const OUTSIDE: &str = "outside the Authorized View";

#[tokio::test(flavor = "multi_thread")]
async fn through_a_view_its_rows_and_columns_are_read_and_written_and_nothing_else() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    make(&mut t, "v", &["r1"], &[("f", &["p", "q"], &["x-"]), ("g", &[], &[""])]).await;
    for row in ["r1", "r12", "r2"] {
        let cells =
            vec![set("f", "p", 1_000, "p"), set("f", "z", 1_000, "hidden"), set("g", "q", 1_000, "g")];
        t.mutate(row, cells).await.unwrap();
    }
    assert_eq!(t.read(read("v")).await.unwrap(), "r1 f:p@1000=p g:q@1000=g\nr12 f:p@1000=p g:q@1000=g");
    let rows = Some(RowSet { row_keys: vec!["r2".into(), "r12".into()], ..Default::default() });
    let some = t.read(ReadRowsRequest { rows, rows_limit: 1, ..read("v") }).await.unwrap();
    assert_eq!(some, "r12 f:p@1000=p g:q@1000=g");
    // A filter does not see what is hidden: it finds no such value, and counts no such cell.
    let value = Filter::ValueRegexFilter("hidden".into());
    let of =
        |filter: Filter| ReadRowsRequest { filter: Some(RowFilter { filter: Some(filter) }), ..read("v") };
    assert_eq!(t.read(of(value.clone())).await.unwrap(), "");
    let second = t.read(of(Filter::CellsPerRowOffsetFilter(1))).await.unwrap();
    assert_eq!(second, "r1 g:q@1000=g\nr12 g:q@1000=g");
    // Writes.
    t.data
        .mutate_row(mutate("v", "r1", vec![set("f", "x-1", 1_000, "x"), set("f", "q", 1_000, "q")]))
        .await
        .unwrap();
    let inside = || set("f", "q", 2_000, "no");
    for (row, change) in [
        ("r2", inside()),
        ("r1", set("f", "z", 2_000, "no")),
        ("r1", set("f", "x", 2_000, "no")),
        // The error does not show whether the table has such a family.
        ("r1", set("none", "q", 2_000, "no")),
        ("r1", delete_column("f", "z", None)),
        ("r1", delete_family("f")),
        ("r1", delete_family("none")),
        ("r1", delete_row()),
    ] {
        let changes = vec![inside(), change.clone()];
        refused(t.data.mutate_row(mutate("v", row, changes)).await, Code::PermissionDenied, OUTSIDE);
        refused(
            t.data.check_and_mutate_row(check("v", row, None, vec![change.clone()])).await,
            Code::PermissionDenied,
            OUTSIDE,
        );
        let told = entries(&mut t, "v", vec![("r1", set("f", "p", 1_000, "p")), (row, change)]).await;
        assert!(told[0].0 == 0 && told[1].0 == Code::PermissionDenied as i32, "{told:?}");
        assert!(told[1].1.contains(OUTSIDE), "{told:?}");
    }
    // The branch that is not taken is judged, too: nothing is learned by which one is.
    let mut both = check("v", "r1", Some(value), vec![set("f", "z", 1_000, "no")]);
    both.false_mutations = mutations(vec![inside()]);
    refused(t.data.check_and_mutate_row(both).await, Code::PermissionDenied, OUTSIDE);
    for (row, qualifier) in [("r2", "q"), ("r1", "z")] {
        refused(
            t.data.read_modify_write_row(append("v", row, qualifier)).await,
            Code::PermissionDenied,
            OUTSIDE,
        );
    }
    let added = t.data.read_modify_write_row(append("v", "r1", "q")).await.unwrap().into_inner().row.unwrap();
    assert_eq!(added.families[0].columns[0].cells[0].value, "q+");
    // What is hidden is no match.
    let found = async |t: &mut Fixture, filter: Filter| {
        let request = check("v", "r1", Some(filter), vec![delete_column("f", "p", None)]);
        t.data.check_and_mutate_row(request).await.unwrap().into_inner().predicate_matched
    };
    assert!(!found(&mut t, Filter::ValueRegexFilter("hidden".into())).await);
    assert!(!found(&mut t, Filter::ColumnQualifierRegexFilter("z".into())).await);
    assert!(found(&mut t, Filter::ValueRegexFilter("p".into())).await);
    t.data
        .mutate_row(mutate("v", "r1", vec![delete_family("g"), delete_column("f", "q", None)]))
        .await
        .unwrap();
    assert_eq!(t.read(read("v")).await.unwrap(), "r1 f:x-1@1000=x\nr12 f:p@1000=p g:q@1000=g");
    assert!(t.read_all().await.starts_with("r1 f:x-1@1000=x f:z@1000=hidden\nr12 "));
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_of_a_table_or_of_a_view() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    make(&mut t, "v", &[""], &[("f", &[], &[""])]).await;
    let both = ReadRowsRequest { table_name: TABLE.into(), ..read("v") };
    refused(t.data.read_rows(both).await, Code::InvalidArgument, "both set");
    let both = data_v2::MutateRowRequest { table_name: TABLE.into(), ..mutate("v", "r", vec![delete_row()]) };
    refused(t.data.mutate_row(both).await, Code::InvalidArgument, "both set");
    refused(t.data.read_rows(read("none")).await, Code::NotFound, "authorizedViews/none");
    refused(t.data.read_rows(read("a/b")).await, Code::InvalidArgument, "authorized view");
    let as_table = ReadRowsRequest { table_name: named("v"), ..Default::default() };
    refused(t.data.read_rows(as_table).await, Code::InvalidArgument, "name of an authorized view");
    let changes = data_v2::ReadChangeStreamRequest { table_name: named("v"), ..Default::default() };
    refused(t.data.read_change_stream(changes).await, Code::InvalidArgument, "name of an authorized view");
    let partitions = data_v2::GenerateInitialChangeStreamPartitionsRequest {
        table_name: named("v"),
        ..Default::default()
    };
    let refusal = t.data.generate_initial_change_stream_partitions(partitions).await;
    refused(refusal, Code::InvalidArgument, "name of an authorized view");
    let materialized = || format!("{INSTANCE}/materializedViews/m");
    let request = ReadRowsRequest { materialized_view_name: materialized(), ..Default::default() };
    refused(t.data.read_rows(request).await, Code::Unimplemented, "materialized_view_name");
    let request =
        data_v2::SampleRowKeysRequest { materialized_view_name: materialized(), ..Default::default() };
    refused(t.data.sample_row_keys(request).await, Code::Unimplemented, "materialized_view_name");
    // What the headers name must be what the request names.
    for (header, other) in [
        ("x-goog-request-params", format!("authorized_view_name={}", named("w"))),
        ("google-cloud-resource-prefix", named("w")),
    ] {
        let with = |name: String| {
            let mut request = Request::new(read("v"));
            request.metadata_mut().insert(header, name.parse().unwrap());
            request
        };
        refused(t.data.read_rows(with(other.clone())).await, Code::InvalidArgument, "headers");
        assert!(t.data.read_rows(with(other.replace("/w", "/v"))).await.is_ok());
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_made_changed_and_deleted_and_kept_with_their_table() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    let given = subset(&["r1"], &[("f", &["a", "b"], &[])]);
    let protected = admin_v2::AuthorizedView { deletion_protection: true, ..message(given.clone()) };
    let made = t.admin.create_authorized_view(create("v", protected.clone())).await.unwrap().into_inner();
    assert!(made.done && made.metadata.is_some());
    refused(t.admin.create_authorized_view(create("v", protected.clone())).await, Code::AlreadyExists, "/v");
    refused(
        t.admin.create_authorized_view(create("a b", protected.clone())).await,
        Code::InvalidArgument,
        "_id",
    );
    let none = admin_v2::CreateAuthorizedViewRequest {
        parent: format!("{INSTANCE}/tables/none"),
        ..create("v", protected.clone())
    };
    refused(t.admin.create_authorized_view(none).await, Code::NotFound, "tables/none");
    let unknown = message(subset(&["r1"], &[("h", &["a"], &[])]));
    refused(t.admin.create_authorized_view(create("w", unknown)).await, Code::InvalidArgument, "\"h\"");
    make(&mut t, "w", &[], &[]).await;
    make(&mut t, "u", &["x"], &[]).await;
    // The answer has the fields that were asked for.
    let full = t.admin.get_authorized_view(get("v", ResponseView::Unspecified)).await.unwrap().into_inner();
    assert_eq!(
        (full.name.clone(), full.authorized_view.clone()),
        (named("v"), Some(Kind::SubsetView(given)))
    );
    assert!(full.deletion_protection && !full.etag.is_empty());
    let basic = t.admin.get_authorized_view(get("v", ResponseView::Basic)).await.unwrap().into_inner();
    assert_eq!(basic, admin_v2::AuthorizedView { authorized_view: None, ..full.clone() });
    let name = t.admin.get_authorized_view(get("v", ResponseView::NameOnly)).await.unwrap().into_inner();
    assert_eq!(name, admin_v2::AuthorizedView { name: named("v"), ..Default::default() });
    let odd = admin_v2::GetAuthorizedViewRequest { view: 9, ..get("v", ResponseView::Full) };
    refused(t.admin.get_authorized_view(odd).await, Code::InvalidArgument, "view");
    // Page by page.
    let mut request = admin_v2::ListAuthorizedViewsRequest {
        parent: TABLE.into(),
        page_size: 2,
        view: ResponseView::Full as i32,
        ..Default::default()
    };
    let page = t.admin.list_authorized_views(request.clone()).await.unwrap().into_inner();
    assert_eq!(
        page.authorized_views.iter().map(|v| &v.name[..]).collect::<Vec<_>>(),
        [named("u"), named("v")]
    );
    assert_eq!(page.authorized_views[1], full);
    request.page_token = page.next_page_token;
    let page = t.admin.list_authorized_views(request.clone()).await.unwrap().into_inner();
    assert!(page.authorized_views.len() == 1 && page.next_page_token.is_empty());
    request.page_size = -1;
    refused(t.admin.list_authorized_views(request).await, Code::InvalidArgument, "page_size");
    // Protected, so is its table.
    refused(t.admin.delete_authorized_view(delete("v")).await, Code::FailedPrecondition, "protected");
    let drop_table = || admin_v2::DeleteTableRequest { name: TABLE.into() };
    refused(t.admin.delete_table(drop_table()).await, Code::FailedPrecondition, "authorized view \"v\"");
    // An update with another etag, an unknown field, and one that takes something away.
    let asked = |etag: &str, subset| admin_v2::AuthorizedView {
        name: named("v"),
        etag: etag.into(),
        ..message(subset)
    };
    let wider = || subset(&["r"], &[("f", &[], &[""])]);
    let stale = update(asked("stale", wider()), &["subset_view"]);
    refused(t.admin.update_authorized_view(stale).await, Code::Aborted, "etag");
    let unknown = update(asked("", wider()), &["name"]);
    refused(t.admin.update_authorized_view(unknown).await, Code::InvalidArgument, "\"name\"");
    let mut narrower = update(asked("", subset(&["r1"], &[("f", &["a"], &[])])), &["subset_view"]);
    refused(
        t.admin.update_authorized_view(narrower.clone()).await,
        Code::FailedPrecondition,
        "ignore_warnings",
    );
    narrower.ignore_warnings = true;
    assert!(t.admin.update_authorized_view(narrower).await.unwrap().into_inner().done);
    let now = t.admin.get_authorized_view(get("v", ResponseView::Full)).await.unwrap().into_inner();
    assert!(now.etag != full.etag && now.deletion_protection);
    t.admin.update_authorized_view(update(asked(&now.etag, wider()), &["subset_view"])).await.unwrap();
    let mut t = t.again().await;
    let kept = t.admin.get_authorized_view(get("v", ResponseView::Full)).await.unwrap().into_inner();
    assert_eq!(kept.authorized_view, Some(Kind::SubsetView(wider())));
    assert_eq!(ids(&mut t).await, ["u", "v", "w"]);
    let unprotected = admin_v2::AuthorizedView { name: named("v"), ..Default::default() };
    t.admin.update_authorized_view(update(unprotected, &["deletion_protection"])).await.unwrap();
    let stale = admin_v2::DeleteAuthorizedViewRequest { etag: kept.etag, ..delete("v") };
    refused(t.admin.delete_authorized_view(stale).await, Code::Aborted, "etag");
    t.admin.delete_authorized_view(delete("v")).await.unwrap();
    refused(t.admin.delete_authorized_view(delete("v")).await, Code::NotFound, "/v");
    refused(t.data.read_rows(read("v")).await, Code::NotFound, "/v");
    // Gone with the table; one of that name has none.
    t.admin.delete_table(drop_table()).await.unwrap();
    refused(t.admin.get_authorized_view(get("u", ResponseView::Full)).await, Code::NotFound, "/u");
    t.table(&["f"]).await;
    assert!(ids(&mut t).await.is_empty());
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_restored_has_no_views() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let protected = admin_v2::AuthorizedView {
        deletion_protection: true,
        ..message(subset(&["r"], &[("f", &[], &[""])]))
    };
    t.admin.create_authorized_view(create("v", protected)).await.unwrap();
    let cluster = format!("{INSTANCE}/clusters/c");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let backup = admin_v2::Backup {
        source_table: TABLE.into(),
        expire_time: Some(prost_types::Timestamp { seconds: now as i64 + 3_600, nanos: 0 }),
        ..Default::default()
    };
    let request = admin_v2::CreateBackupRequest {
        parent: cluster.clone(),
        backup_id: "b".into(),
        backup: Some(backup),
    };
    t.admin.create_backup(request).await.unwrap();
    let source = admin_v2::restore_table_request::Source::Backup(format!("{cluster}/backups/b"));
    let request = admin_v2::RestoreTableRequest {
        parent: INSTANCE.into(),
        table_id: "restored".into(),
        source: Some(source),
    };
    t.admin.restore_table(request).await.unwrap();
    let restored = format!("{INSTANCE}/tables/restored");
    let list = admin_v2::ListAuthorizedViewsRequest { parent: restored.clone(), ..Default::default() };
    let views = t.admin.list_authorized_views(list).await.unwrap().into_inner().authorized_views;
    assert!(views.is_empty(), "{views:?}");
    t.admin.delete_table(admin_v2::DeleteTableRequest { name: restored }).await.unwrap();
    assert_eq!(ids(&mut t).await, ["v"]);
    t.server.stop().await.unwrap();
}

async fn samples(t: &mut Fixture, id: &str) -> Vec<String> {
    let request = data_v2::SampleRowKeysRequest { authorized_view_name: named(id), ..Default::default() };
    let mut stream = t.data.sample_row_keys(request).await.unwrap().into_inner();
    let (mut keys, mut last) = (Vec::new(), 0);
    while let Some(sample) = stream.message().await.unwrap() {
        assert!(sample.offset_bytes >= last, "{} bytes behind {last}", sample.offset_bytes);
        last = sample.offset_bytes;
        keys.push(sample.row_key.escape_ascii().to_string());
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn sampled_keys_are_of_the_view_and_of_no_row_that_it_has_not() {
    let mut t = Fixture::new().await;
    let families = [("f".to_string(), admin_v2::ColumnFamily::default())].into();
    let split = |key: &'static str| admin_v2::create_table_request::Split { key: key.into() };
    let request = admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "t".into(),
        table: Some(admin_v2::Table { column_families: families, ..Default::default() }),
        initial_splits: ["r0", "r11", "r12", "r2"].map(split).to_vec(),
    };
    t.admin.create_table(request).await.unwrap();
    make(&mut t, "v", &["r1"], &[]).await;
    make(&mut t, "all", &[""], &[("f", &[], &[""])]).await;
    make(&mut t, "two", &["r12", "r0"], &[("f", &["q"], &[])]).await;
    make(&mut t, "none", &[], &[]).await;
    // A region that begins with a row tells of that row.
    t.mutate("r115", vec![set("f", "secret", 1_000, "v")]).await.unwrap();
    t.server.split(TABLE, b"r115").await.unwrap();
    assert_eq!(samples(&mut t, "v").await, ["r11", "r12", "r2"]);
    assert_eq!(samples(&mut t, "all").await, ["r0", "r11", "r12", "r2", ""]);
    assert_eq!(samples(&mut t, "two").await, ["r0", "r1", "r12", "r13"]);
    assert!(samples(&mut t, "none").await.is_empty());
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn named_columns_of_a_wide_row_are_read_where_the_call_came_in() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let wide = (0..20_000).map(|n| set("f", &format!("q{n:05}"), 1_000, "v")).collect();
    t.mutate("wide", wide).await.unwrap();
    make(&mut t, "v", &["w"], &[("f", &["q00000", "q10000", "q19999"], &["q1234"])]).await;
    let rows = Some(RowSet { row_keys: vec!["wide".into()], ..Default::default() });
    let found = t.rows(ReadRowsRequest { rows, ..read("v") }).await.unwrap();
    assert_eq!(found[0].1.len(), 13);
    let metrics = crate::support::get(t.server.page_at(), "/metrics").await;
    let moved = "siltstone_calls_moved_total{call=\"ReadRows\"}";
    let moved = metrics.lines().find_map(|line| line.strip_prefix(moved)).map_or("0", str::trim);
    assert_eq!(moved, "0");
    t.server.stop().await.unwrap();
}

// ---- a view beside a table that has nothing else

/// Rows, families, qualifiers.
const ROWS: [&str; 7] = ["a", "ab", "abc", "b", "ba", "c\0", "c\0\u{1}"];
const QUALIFIERS: [&str; 7] = ["", "p", "pq", "q", "q\0", "qa", "z"];
const PREFIXES: [&str; 6] = ["", "a", "ab", "b", "c\0", "d"];

fn some(rng: &mut Rng, of: &[&'static str], most: u64) -> Vec<&'static str> {
    (0..rng.range(0..most)).map(|_| *rng.pick(of)).collect()
}

fn any_filter(rng: &mut Rng, depth: u32) -> Filter {
    let of = |filter: Filter| RowFilter { filter: Some(filter) };
    let kinds = if depth == 0 { 10 } else { 14 };
    match rng.range(0..kinds) {
        0 => Filter::PassAllFilter(true),
        1 => Filter::FamilyNameRegexFilter((*rng.pick(&["f", "g", "[fg]"])).into()),
        2 => Filter::ColumnQualifierRegexFilter((*rng.pick(&["p", "q", "[pq].*"])).into()),
        3 => Filter::ValueRegexFilter((*rng.pick(&["v1", "v[12]", "v.*"])).into()),
        4 => Filter::CellsPerRowLimitFilter(rng.range(1..5) as i32),
        5 => Filter::CellsPerRowOffsetFilter(rng.range(0..5) as i32),
        6 => Filter::CellsPerColumnLimitFilter(rng.range(1..4) as i32),
        7 => Filter::RowKeyRegexFilter((*rng.pick(&["a", "a.*", "[bc]\\C*"])).into()),
        8 => Filter::ColumnRangeFilter(data_v2::ColumnRange {
            family_name: "f".into(),
            start_qualifier: Some(data_v2::column_range::StartQualifier::StartQualifierOpen("".into())),
            end_qualifier: Some(data_v2::column_range::EndQualifier::EndQualifierClosed("q".into())),
        }),
        9 => Filter::TimestampRangeFilter(data_v2::TimestampRange {
            start_timestamp_micros: 2_000,
            end_timestamp_micros: 4_000,
        }),
        10 | 11 => {
            let filters = (0..rng.range(1..4)).map(|_| of(any_filter(rng, depth - 1))).collect();
            Filter::Chain(Chain { filters })
        }
        12 => {
            let filters = (0..rng.range(1..4)).map(|_| of(any_filter(rng, depth - 1))).collect();
            Filter::Interleave(Interleave { filters })
        }
        _ => {
            let mut part = || Some(Box::new(of(any_filter(rng, depth - 1))));
            let (predicate_filter, true_filter, false_filter) = (part(), part(), part());
            Filter::Condition(Box::new(Condition { predicate_filter, true_filter, false_filter }))
        }
    }
}

async fn case(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    let families = ["f", "g"].map(|name| (name.to_string(), admin_v2::ColumnFamily::default())).into();
    let alone = format!("{INSTANCE}/tables/alone");
    let request = admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "alone".into(),
        table: Some(admin_v2::Table { column_families: families, ..Default::default() }),
        ..Default::default()
    };
    t.admin.create_table(request).await.unwrap();
    let prefixes = some(&mut rng, &PREFIXES, 4);
    let mut columns = BTreeMap::new();
    for family in ["f", "g"] {
        if !rng.one_in(4) {
            columns
                .insert(family, (some(&mut rng, &QUALIFIERS, 4), some(&mut rng, &["", "p", "q", "q\0"], 3)));
        }
    }
    let given: Vec<Columns<'_>> = columns.iter().map(|(name, (e, p))| (*name, &e[..], &p[..])).collect();
    make(&mut t, "v", &prefixes, &given).await;
    let is_in = |row: &str, family: &str, qualifier: &str| {
        let has = |(exact, begin): &(Vec<&str>, Vec<&str>)| {
            exact.contains(&qualifier) || begin.iter().any(|one| qualifier.starts_with(one))
        };
        prefixes.iter().any(|prefix| row.starts_with(prefix)) && columns.get(family).is_some_and(has)
    };
    for n in 0..150 {
        let (row, qualifier) = (*rng.pick(&ROWS), *rng.pick(&QUALIFIERS));
        let family = *rng.pick(&["f", "g"]);
        let change = set(family, qualifier, rng.range(1..5) as i64 * 1_000, format!("v{}", rng.range(0..4)));
        t.mutate(row, vec![change.clone()]).await.unwrap();
        let through = t.data.mutate_row(mutate("v", row, vec![change.clone()])).await;
        assert_eq!(
            through.is_ok(),
            is_in(row, family, qualifier),
            "seed {seed}: {row:?} {family}:{qualifier:?}"
        );
        if through.is_ok() {
            let request = data_v2::MutateRowRequest {
                table_name: alone.clone(),
                authorized_view_name: String::new(),
                ..mutate("v", row, vec![change])
            };
            t.data.mutate_row(request).await.unwrap();
        }
        if n % 50 == 49 {
            t.server.split(TABLE, row.as_bytes()).await.unwrap();
        }
    }
    for call in 0..40 {
        let keys: Vec<bytes::Bytes> = some(&mut rng, &ROWS, 4).into_iter().map(Into::into).collect();
        let from = (*rng.pick(&ROWS)).into();
        let range = data_v2::RowRange {
            start_key: Some(data_v2::row_range::StartKey::StartKeyClosed(from)),
            end_key: None,
        };
        let row_ranges = if rng.one_in(2) { vec![range] } else { Vec::new() };
        let filter = (!rng.one_in(4)).then(|| RowFilter { filter: Some(any_filter(&mut rng, 3)) });
        let view = ReadRowsRequest {
            rows: Some(RowSet { row_keys: keys, row_ranges }),
            filter,
            rows_limit: rng.range(0..4) as i64,
            reversed: rng.one_in(3),
            ..read("v")
        };
        let table = ReadRowsRequest {
            table_name: alone.clone(),
            authorized_view_name: String::new(),
            ..view.clone()
        };
        let context = format!("seed {seed}, call {call}: {view:?}");
        let (through, expected) = (t.read(view.clone()).await, t.read(table.clone()).await);
        match (through, expected) {
            (Ok(through), Ok(expected)) => assert_eq!(through, expected, "{context}"),
            // A sink within a condition, and the like.
            (through, expected) => {
                let code = |answer: &Result<String, Status>| answer.as_ref().err().map(Status::code);
                assert_eq!(code(&through), code(&expected), "{context}");
                continue;
            }
        }
        assert_eq!(seen(&mut t, view).await, seen(&mut t, table).await, "{context}");
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_through_a_view_is_reading_a_table_that_has_nothing_else() {
    let fresh = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let first = fresh.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seeds from {first}; again: SEED={first} cargo test -p siltstone-server reading_through_a_view");
    for seed in first..first + CASES {
        case(seed).await;
    }
}

// ---- rights

/// How each call of data through a view ends for a token: with which code, in the order of the methods.
async fn codes(
    data: &mut BigtableClient<tonic::service::interceptor::InterceptedService<Channel, With>>,
    id: &str,
) -> Vec<Code> {
    let code = |status: Status| status.code();
    let sample = data_v2::SampleRowKeysRequest { authorized_view_name: named(id), ..Default::default() };
    let one = || vec![set("f", "q", 1_000, "v")];
    let entry = data_v2::mutate_rows_request::Entry {
        row_key: "r".into(),
        mutations: mutations(one()),
        ..Default::default()
    };
    let bulk = data_v2::MutateRowsRequest {
        authorized_view_name: named(id),
        entries: vec![entry],
        ..Default::default()
    };
    [
        data.read_rows(read(id)).await.map(drop),
        data.sample_row_keys(sample).await.map(drop),
        data.mutate_row(mutate(id, "r", one())).await.map(drop),
        data.mutate_rows(bulk).await.map(drop),
        data.check_and_mutate_row(check(id, "r", None, one())).await.map(drop),
        data.read_modify_write_row(append(id, "r", "q")).await.map(drop),
    ]
    .map(|answer| answer.err().map_or(Code::Ok, code))
    .to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_rights_to_a_view_has_them_there_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let of = |name: &str| format!("'{}'", named(name));
    let text = [
        entry("root", "'read', 'write', 'admin'", "'projects/p/*'"),
        entry("reader", "'read'", &of("v")),
        entry("writer", "'write'", &of("v")),
        entry("both", "'read', 'write'", &of("v*")),
        entry("owner", "'read', 'write', 'admin'", &of("v")),
        entry("table", "'read', 'write'", &format!("'{TABLE}'")),
    ];
    std::fs::write(&file, text.concat()).unwrap();
    let fixture = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let channel = Channel::from_shared(format!("http://{}", fixture.server.listens_at())).unwrap();
    let channel = channel.connect().await.unwrap();
    let data = |token| BigtableClient::with_interceptor(channel.clone(), With(token));
    let admin = |token| BigtableTableAdminClient::with_interceptor(channel.clone(), With(token));
    let families = [("f".to_string(), admin_v2::ColumnFamily::default())].into();
    let table = admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "t".into(),
        table: Some(admin_v2::Table { column_families: families, ..Default::default() }),
        ..Default::default()
    };
    admin("root").create_table(table).await.unwrap();
    let view = || message(subset(&[""], &[("f", &[], &[""])]));
    for id in ["v", "w"] {
        admin("root").create_authorized_view(create(id, view())).await.unwrap();
    }
    let (yes, no) = (Code::Ok, Code::PermissionDenied);
    for (token, id, expected) in [
        ("root", "v", [yes; 6]),
        ("table", "v", [yes; 6]),
        ("both", "v", [yes; 6]),
        ("owner", "v", [yes; 6]),
        ("reader", "v", [yes, yes, no, no, no, no]),
        ("writer", "v", [no, no, yes, yes, no, no]),
        ("both", "w", [no; 6]),
        ("owner", "w", [no; 6]),
        ("both", "none", [no; 6]),
        ("root", "none", [Code::NotFound; 6]),
    ] {
        assert_eq!(codes(&mut data(token), id).await, expected, "{token} through {id}");
    }
    // A right to a view is none to the table, nor to what belongs to it.
    let whole = || ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    for token in ["reader", "writer", "both", "owner"] {
        assert_eq!(data(token).read_rows(whole()).await.unwrap_err().code(), no, "{token}");
        // Also where the view is named beside it.
        let both = ReadRowsRequest { table_name: TABLE.into(), ..read("v") };
        assert_eq!(data(token).read_rows(both).await.unwrap_err().code(), no, "{token}");
        let table = admin_v2::GetTableRequest { name: TABLE.into(), ..Default::default() };
        assert_eq!(admin(token).get_table(table).await.unwrap_err().code(), no, "{token}");
        let list = admin_v2::ListTablesRequest { parent: INSTANCE.into(), ..Default::default() };
        assert!(admin(token).list_tables(list).await.unwrap().into_inner().tables.is_empty(), "{token}");
        let changes = data_v2::ReadChangeStreamRequest { table_name: TABLE.into(), ..Default::default() };
        assert_eq!(data(token).read_change_stream(changes).await.unwrap_err().code(), no, "{token}");
        // What a view has is said by who administers the table: it could be made larger.
        let larger = update(admin_v2::AuthorizedView { name: named("v"), ..view() }, &["subset_view"]);
        assert_eq!(admin(token).update_authorized_view(larger).await.unwrap_err().code(), no, "{token}");
        assert_eq!(admin(token).delete_authorized_view(delete("v")).await.unwrap_err().code(), no, "{token}");
        let another = create("v2", view());
        assert_eq!(admin(token).create_authorized_view(another).await.unwrap_err().code(), no, "{token}");
        // It sees that view, and no other.
        let own = admin(token).get_authorized_view(get("v", ResponseView::Full)).await.unwrap().into_inner();
        assert_eq!(own.name, named("v"));
        let other = admin(token).get_authorized_view(get("w", ResponseView::Full)).await;
        assert_eq!(other.unwrap_err().code(), no, "{token}");
        let list =
            |table: &str| admin_v2::ListAuthorizedViewsRequest { parent: table.into(), ..Default::default() };
        let seen =
            admin(token).list_authorized_views(list(TABLE)).await.unwrap().into_inner().authorized_views;
        assert!(seen.len() == 1 && seen[0].name == named("v"), "{token}");
        let none = format!("{INSTANCE}/tables/none");
        assert!(
            admin(token)
                .list_authorized_views(list(&none))
                .await
                .unwrap()
                .into_inner()
                .authorized_views
                .is_empty()
        );
        let bundles = admin_v2::ListSchemaBundlesRequest { parent: TABLE.into(), ..Default::default() };
        assert_eq!(admin(token).list_schema_bundles(bundles).await.unwrap_err().code(), no, "{token}");
        let bundle = admin_v2::GetSchemaBundleRequest { name: format!("{TABLE}/schemaBundles/b") };
        assert_eq!(admin(token).get_schema_bundle(bundle).await.unwrap_err().code(), no, "{token}");
    }
    let reader = admin_v2::GetSchemaBundleRequest { name: format!("{TABLE}/schemaBundles/b") };
    assert_eq!(admin("table").get_schema_bundle(reader).await.unwrap_err().code(), Code::NotFound);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_request_through_a_view_is_let_in_by_its_headers_and_judged_by_what_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let text =
        entry("v", "'write'", &format!("'{}'", named("v*"))) + &entry("w", "'write'", &format!("'{TABLE}'"));
    std::fs::write(&file, text).unwrap();
    let fixture = Fixture::with(|config| {
        config.tokens = Some(file.clone());
        config.request_seconds = 1;
    })
    .await;
    let (client, _connection) = raw(&fixture.server, 65_535).await;
    let request = |id: &str| {
        let (row_key, mutations) = (vec![b'r'; 70_000].into(), mutations(vec![delete_row()]));
        let entry = data_v2::mutate_rows_request::Entry { row_key, mutations, ..Default::default() };
        data_v2::MutateRowsRequest {
            authorized_view_name: named(id),
            entries: vec![entry],
            ..Default::default()
        }
        .encode_to_vec()
    };
    let begin = async |token: &str, header: (&str, String), claims: Option<usize>, message: &[u8]| {
        let header = Some((header.0, &header.1[..]));
        let (response, mut body) = call_with(&client, MUTATE_ROWS, Some(token), header).await;
        let _ = body.send_data(framed(claims.unwrap_or(message.len()), message), claims.is_none());
        refused_with(response).await
    };
    let params = |name: &str, value: &str| ("x-goog-request-params", format!("{name}={value}"));
    let by_view = |id: &str| params("authorized_view_name", &named(id));
    let by_prefix = |id: &str| ("google-cloud-resource-prefix", named(id));
    // Its name stands behind the entries, of which not all come.
    let part = &request("v")[..70_000];
    let much = Some(200 << 20);
    assert_eq!(begin("v", ("x-none", String::new()), much, part).await, "3");
    // Who may is waited for, as long as it may take.
    for header in [by_view("v"), by_prefix("v"), params("table_name", TABLE)] {
        assert_eq!(begin("v", header, much, part).await, "8");
    }
    assert_eq!(begin("w", by_view("v"), much, part).await, "8");
    // A caller without the right is refused before anything has come.
    for header in [by_view("x"), by_prefix("x")] {
        assert_eq!(begin("v", header, much, &[]).await, "7");
    }
    // The whole is judged by the view that it names.
    assert_eq!(begin("v", params("table_name", TABLE), None, &request("x")).await, "7");
    assert_eq!(begin("v", by_view("v"), None, &request("x")).await, "7");
    assert_eq!(begin("v", by_view("v"), None, &request("v2")).await, "3");
    // There is no such table, as a caller with the right learns.
    assert_eq!(begin("v", by_view("v2"), None, &request("v2")).await, "5");
    drop(client);
    fixture.server.stop().await.unwrap();
}
