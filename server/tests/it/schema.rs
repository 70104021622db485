//! What is stored of tables, how it is changed, and what is refused by its name instead of being dropped.

use crate::support::*;
use admin_v2::modify_column_families_request::{Modification, modification::Mod};
use admin_v2::r#type::{self, Kind};
use data_v2::value;
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Microseconds as a granularity.
const MICROS: i32 = 2;

async fn create(t: &mut Fixture, table: admin_v2::Table, splits: &[&str]) -> Result<admin_v2::Table, Status> {
    let split = |key: &&str| admin_v2::create_table_request::Split { key: (*key).to_string().into() };
    let request = admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "t".into(),
        table: Some(table),
        initial_splits: splits.iter().map(split).collect(),
    };
    t.admin.create_table(request).await.map(tonic::Response::into_inner)
}

fn with_families(names: &[&str]) -> admin_v2::Table {
    let family = |name: &&str| ((*name).to_string(), admin_v2::ColumnFamily::default());
    admin_v2::Table { column_families: names.iter().map(family).collect(), ..Default::default() }
}

async fn described(t: &mut Fixture) -> admin_v2::Table {
    let request = admin_v2::GetTableRequest { name: TABLE.into(), ..Default::default() };
    t.admin.get_table(request).await.unwrap().into_inner()
}

async fn modify(t: &mut Fixture, id: &str, change: Mod, mask: &[&str]) -> Result<admin_v2::Table, Status> {
    let paths: Vec<String> = mask.iter().map(|path| (*path).to_string()).collect();
    let update_mask = (!paths.is_empty()).then_some(prost_types::FieldMask { paths });
    let modifications = vec![Modification { id: id.into(), r#mod: Some(change), update_mask }];
    let request =
        admin_v2::ModifyColumnFamiliesRequest { name: TABLE.into(), modifications, ..Default::default() };
    t.admin.modify_column_families(request).await.map(tonic::Response::into_inner)
}

fn new_family() -> Mod {
    Mod::Create(admin_v2::ColumnFamily::default())
}

async fn update(
    t: &mut Fixture,
    table: admin_v2::Table,
    path: &str,
    ignore_warnings: bool,
) -> Result<(), Status> {
    let table = Some(admin_v2::Table { name: TABLE.into(), ..table });
    let update_mask = Some(prost_types::FieldMask { paths: vec![path.into()] });
    let request = admin_v2::UpdateTableRequest { table, update_mask, ignore_warnings };
    t.admin.update_table(request).await.map(|_| ())
}

async fn samples(t: &mut Fixture) -> Vec<String> {
    let request = data_v2::SampleRowKeysRequest { table_name: TABLE.into(), ..Default::default() };
    let mut samples = t.data.sample_row_keys(request).await.unwrap().into_inner();
    let mut keys = Vec::new();
    while let Some(sample) = samples.message().await.unwrap() {
        keys.push(sample.row_key.escape_ascii().to_string());
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn initial_splits_are_there_with_and_without_families() {
    let mut t = Fixture::new().await;
    create(&mut t, admin_v2::Table::default(), &["m", "t"]).await.unwrap();
    let split = ["m", "t", ""];
    assert_eq!(samples(&mut t).await, split);
    let mut t = t.again().await;
    assert_eq!(samples(&mut t).await, split, "after a restart");
    modify(&mut t, "f", new_family(), &[]).await.unwrap();
    assert_eq!(samples(&mut t).await, split);
    assert_eq!(t.server.regions(TABLE).unwrap(), [b"".to_vec(), b"m".to_vec(), b"t".to_vec()]);
    t.mutate("n", vec![set("f", "q", 1_000, "v")]).await.unwrap();
    modify(&mut t, "f", Mod::Drop(true), &[]).await.unwrap();
    assert_eq!(samples(&mut t).await, split, "without the last family");
    modify(&mut t, "g", new_family(), &[]).await.unwrap();
    assert_eq!(
        (samples(&mut t).await, t.server.regions(TABLE).unwrap().len()),
        (split.map(String::from).to_vec(), 3)
    );
    assert_eq!(t.read_all().await, "");
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn splits_have_a_limit_whether_there_is_a_family_or_not() {
    let mut t = Fixture::new().await;
    let keys: Vec<String> = (0..10_000).map(|n| format!("{n:05}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    refused(create(&mut t, admin_v2::Table::default(), &keys).await, Code::InvalidArgument, "10000");
    create(&mut t, admin_v2::Table::default(), &keys[..5_000]).await.unwrap();
    let one = |id: &str| Modification { id: id.into(), r#mod: Some(new_family()), update_mask: None };
    let modifications = vec![one("f"), one("g")];
    let request =
        admin_v2::ModifyColumnFamiliesRequest { name: TABLE.into(), modifications, ..Default::default() };
    refused(t.admin.modify_column_families(request).await, Code::InvalidArgument, "10000");
    t.server.stop().await.unwrap();
}

fn text_type() -> admin_v2::Type {
    let encoding =
        r#type::string::encoding::Encoding::Utf8Bytes(r#type::string::encoding::Utf8Bytes::default());
    let encoding = Some(r#type::string::Encoding { encoding: Some(encoding) });
    admin_v2::Type { kind: Some(Kind::StringType(r#type::String { encoding })) }
}

fn typed(of: admin_v2::Type) -> admin_v2::ColumnFamily {
    admin_v2::ColumnFamily { value_type: Some(of), ..Default::default() }
}

fn aggregate(aggregator: r#type::aggregate::Aggregator) -> admin_v2::ColumnFamily {
    let int64 = admin_v2::Type { kind: Some(Kind::Int64Type(r#type::Int64::default())) };
    let of = r#type::Aggregate {
        input_type: Some(Box::new(int64)),
        aggregator: Some(aggregator),
        ..Default::default()
    };
    typed(admin_v2::Type { kind: Some(Kind::AggregateType(Box::new(of))) })
}

#[tokio::test(flavor = "multi_thread")]
async fn types_of_values_are_kept_and_change_no_cell() {
    use r#type::aggregate::{Aggregator, Max, Sum};
    let mut t = Fixture::new().await;
    let rule = admin_v2::GcRule { rule: Some(admin_v2::gc_rule::Rule::MaxNumVersions(2)) };
    let ruled = admin_v2::ColumnFamily { gc_rule: Some(rule), value_type: None };
    let families =
        [("text", typed(text_type())), ("plain", ruled), ("sum", aggregate(Aggregator::Sum(Sum {})))];
    t.table_with(&families).await;
    t.mutate("r", vec![set("plain", "q", 1_000, b"\xff".to_vec())]).await.unwrap();
    let told = described(&mut t).await.column_families;
    assert_eq!(told["text"].value_type, Some(text_type()));
    assert_eq!(told["plain"].value_type, None, "as it was made");
    modify(&mut t, "plain", Mod::Update(typed(text_type())), &["value_type"]).await.unwrap();
    modify(&mut t, "late", Mod::Create(typed(text_type())), &[]).await.unwrap();
    let mut t = t.again().await;
    let told = described(&mut t).await.column_families;
    for family in ["text", "plain", "late"] {
        assert_eq!(told[family].value_type, Some(text_type()), "{family}");
    }
    assert!(told["plain"].gc_rule.is_some());
    assert_eq!(t.read_all().await, "r plain:q@1000=\\xff");
    let immutable = "Immutable fields 'value_type.aggregate_type' cannot be updated";
    let max = || aggregate(Aggregator::Max(Max {}));
    for (family, to) in [("sum", typed(text_type())), ("sum", max()), ("text", max())] {
        let refusal = modify(&mut t, family, Mod::Update(to), &["value_type"]).await;
        refused(refusal, Code::InvalidArgument, immutable);
    }
    // Without a mask it is the rule that is updated, whatever the type says.
    modify(&mut t, "sum", Mod::Update(max()), &[]).await.unwrap();
    let told = described(&mut t).await.column_families;
    let Some(Kind::AggregateType(of)) = told["sum"].value_type.clone().unwrap().kind else {
        panic!("no aggregate")
    };
    assert_eq!(of.aggregator, Some(Aggregator::Sum(Sum {})));
    t.server.stop().await.unwrap();
}

fn keyed(names: &[&str]) -> admin_v2::Table {
    use r#type::r#struct::{Encoding, Field, encoding};
    let field = |name: &&str| Field { field_name: (*name).to_string(), r#type: Some(text_type()) };
    let delimited = encoding::DelimitedBytes { delimiter: "#".into() };
    let encoding = Some(Encoding { encoding: Some(encoding::Encoding::DelimitedBytes(delimited)) });
    let schema = r#type::Struct { fields: names.iter().map(field).collect(), encoding };
    admin_v2::Table { row_key_schema: Some(schema), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_row_keys_is_kept_given_once_and_taken_away() {
    let mut t = Fixture::new().await;
    let invalid = Code::InvalidArgument;
    let clash = admin_v2::Table { row_key_schema: keyed(&["f"]).row_key_schema, ..with_families(&["f"]) };
    refused(create(&mut t, clash, &[]).await, invalid, "column family");
    create(&mut t, with_families(&["f"]), &[]).await.unwrap();
    let path = "row_key_schema";
    refused(update(&mut t, keyed(&["f"]), path, false).await, invalid, "column family");
    update(&mut t, keyed(&["user", "day"]), path, false).await.unwrap();
    let mut t = t.again().await;
    assert_eq!(described(&mut t).await.row_key_schema, keyed(&["user", "day"]).row_key_schema);
    refused(update(&mut t, keyed(&["user"]), path, true).await, invalid, "only removed");
    refused(modify(&mut t, "day", new_family(), &[]).await, invalid, "column family");
    refused(update(&mut t, admin_v2::Table::default(), path, false).await, invalid, "ignore_warnings");
    update(&mut t, admin_v2::Table::default(), path, true).await.unwrap();
    assert_eq!(described(&mut t).await.row_key_schema, None);
    refused(update(&mut t, admin_v2::Table::default(), "nonsense", false).await, invalid, "nonsense");
    t.server.stop().await.unwrap();
}

fn micros() -> admin_v2::Table {
    admin_v2::Table { granularity: MICROS, ..with_families(&["f", "g"]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_microseconds_keeps_each_of_them() {
    let mut t = Fixture::new().await;
    let unknown = admin_v2::Table { granularity: 99, ..Default::default() };
    refused(create(&mut t, unknown, &[]).await, Code::InvalidArgument, "99");
    assert_eq!(create(&mut t, micros(), &[]).await.unwrap().granularity, MICROS);
    let cells = [1, 2, 3, 1_001, i64::MAX].map(|at| set("f", "q", at, "v")).to_vec();
    t.mutate("r", cells).await.unwrap();
    let all = format!("r f:q@{}=v f:q@1001=v f:q@3=v f:q@2=v f:q@1=v", i64::MAX);
    assert_eq!(t.read_all().await, all);
    t.server.flush().await.unwrap();
    let mut t = t.again().await;
    assert_eq!(t.read_all().await, all, "out of tables");
    assert_eq!(described(&mut t).await.granularity, MICROS);
    let times = |start_timestamp_micros, end_timestamp_micros| {
        let range = data_v2::TimestampRange { start_timestamp_micros, end_timestamp_micros };
        data_v2::row_filter::Filter::TimestampRangeFilter(range)
    };
    assert_eq!(t.read_with(times(2, 1_001)).await, "r f:q@3=v f:q@2=v");
    assert_eq!(t.read_with(times(i64::MAX, 0)).await, format!("r f:q@{}=v", i64::MAX));
    t.mutate("r", vec![delete_column("f", "q", Some((2, 3))), delete_column("f", "q", Some((i64::MAX, 0)))])
        .await
        .unwrap();
    assert_eq!(t.read_all().await, "r f:q@1001=v f:q@3=v f:q@1=v");
    // The server's times are as fine, and rules count them apart, as they do what was deleted.
    let rule = admin_v2::GcRule { rule: Some(admin_v2::gc_rule::Rule::MaxNumVersions(3)) };
    let ruled = admin_v2::ColumnFamily { gc_rule: Some(rule), ..Default::default() };
    modify(&mut t, "f", Mod::Update(ruled), &[]).await.unwrap();
    assert_eq!(t.read_all().await, "r f:q@1001=v f:q@3=v");
    let mut uneven = false;
    for n in 0..20 {
        t.mutate(&format!("s{n}"), vec![set("g", "q", -1, "v")]).await.unwrap();
    }
    for line in t.read_all().await.lines().filter(|line| line.starts_with('s')) {
        let at: i64 = line.split(['@', '=']).nth(1).unwrap().parse().unwrap();
        uneven |= at % 1_000 != 0;
    }
    assert!(uneven, "of twenty times of the server none is between two milliseconds");
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ages_of_microseconds_are_ages() {
    let mut t = Fixture::new().await;
    let age = prost_types::Duration { seconds: 3_600, nanos: 0 };
    let rule = admin_v2::GcRule { rule: Some(admin_v2::gc_rule::Rule::MaxAge(age)) };
    let mut table = micros();
    table
        .column_families
        .insert("f".into(), admin_v2::ColumnFamily { gc_rule: Some(rule), ..Default::default() });
    create(&mut t, table, &[]).await.unwrap();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(since.as_micros()).unwrap() / 1_000 * 1_000 + 1;
    let cells = [now, now - 3_601_000_000, i64::MAX].map(|at| set("f", "q", at, "v")).to_vec();
    t.mutate("r", cells).await.unwrap();
    let kept = format!("r f:q@{}=v f:q@{now}=v", i64::MAX);
    assert_eq!(t.read_all().await, kept);
    t.server.compact(TABLE).await.unwrap();
    assert_eq!(t.read_all().await, kept, "after a compaction");
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_milliseconds_takes_its_last_one() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let last = i64::MAX / 1_000 * 1_000;
    t.mutate("r", vec![set("f", "q", last, "v")]).await.unwrap();
    refused(
        t.mutate("r", vec![set("f", "q", last + 1, "v")]).await,
        Code::InvalidArgument,
        "granularity mismatch",
    );
    assert_eq!(t.read_all().await, format!("r f:q@{last}=v"));
    t.server.stop().await.unwrap();
}

/// A mutation with a field that the crate's message does not have.
#[derive(Clone, PartialEq, Message)]
struct OriginMutation {
    #[prost(oneof = "Change", tags = "1, 2, 3, 4, 5, 6")]
    mutation: Option<Change>,
    #[prost(int32, tag = "7")]
    timestamp_origin: i32,
    /// A field that nobody has.
    #[prost(string, tag = "50")]
    newer: String,
}

#[derive(Clone, PartialEq, Message)]
struct OneRow {
    #[prost(string, tag = "1")]
    table_name: String,
    #[prost(bytes = "vec", tag = "2")]
    row_key: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    mutations: Vec<OriginMutation>,
}

#[derive(Clone, PartialEq, Message)]
struct CheckedRow {
    #[prost(string, tag = "1")]
    table_name: String,
    #[prost(bytes = "vec", tag = "2")]
    row_key: Vec<u8>,
    #[prost(message, repeated, tag = "5")]
    false_mutations: Vec<OriginMutation>,
}

#[derive(Clone, PartialEq, Message)]
struct Row {
    #[prost(bytes = "vec", tag = "1")]
    row_key: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    mutations: Vec<OriginMutation>,
}

#[derive(Clone, PartialEq, Message)]
struct Rows {
    #[prost(string, tag = "1")]
    table_name: String,
    #[prost(message, repeated, tag = "2")]
    entries: Vec<Row>,
}

/// Makes a call with a message of ours.
async fn call<M, R>(t: &Fixture, method: &str, message: M) -> Result<R, Status>
where
    M: Message + 'static,
    R: Message + Default + 'static,
{
    let channel = Channel::from_shared(format!("http://{}", t.server.listens_at())).unwrap();
    let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap());
    client.ready().await.unwrap();
    let path = format!("/google.bigtable.v2.Bigtable/{method}").parse().unwrap();
    let codec = tonic_prost::ProstCodec::<M, R>::default();
    client.unary(Request::new(message), path, codec).await.map(tonic::Response::into_inner)
}

fn origin(mutation: Change, timestamp_origin: i32) -> OriginMutation {
    OriginMutation { mutation: Some(mutation), timestamp_origin, newer: String::new() }
}

fn one_row(row: &str, mutation: OriginMutation) -> OneRow {
    OneRow { table_name: TABLE.into(), row_key: row.into(), mutations: vec![mutation] }
}

async fn mutate(t: &Fixture, row: &str, mutation: OriginMutation) -> Result<(), Status> {
    call::<_, data_v2::MutateRowResponse>(t, "MutateRow", one_row(row, mutation)).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_a_client_made_are_cut_to_what_the_table_keeps() {
    use r#type::aggregate::{Aggregator, Sum};
    let (by_user, by_client) = (1, 2);
    let mut t = Fixture::new().await;
    t.table_with(&[("f", admin_v2::ColumnFamily::default()), ("sum", aggregate(Aggregator::Sum(Sum {})))])
        .await;
    let cell = || set("f", "q", 1_234_567, "v");
    mutate(&t, "a", origin(cell(), by_client)).await.unwrap();
    let entry = |row: &str, mutation| Row { row_key: row.into(), mutations: vec![mutation] };
    let entries = vec![entry("b", origin(cell(), by_client)), entry("x", origin(cell(), by_user))];
    let rows = Rows { table_name: TABLE.into(), entries };
    let answer: data_v2::MutateRowsResponse = call(&t, "MutateRows", rows).await.unwrap();
    let codes: Vec<_> = answer.entries.iter().map(|entry| entry.status.clone().unwrap().code).collect();
    assert_eq!(codes, [0, Code::InvalidArgument as i32]);
    let false_mutations = vec![origin(cell(), by_client)];
    let checked = CheckedRow { table_name: TABLE.into(), row_key: "c".into(), false_mutations };
    call::<_, data_v2::CheckAndMutateRowResponse>(&t, "CheckAndMutateRow", checked).await.unwrap();
    let raw = |kind| Some(data_v2::Value { kind: Some(kind), ..Default::default() });
    let (qualifier, at) =
        (raw(value::Kind::RawValue("q".into())), raw(value::Kind::RawTimestampMicros(1_999)));
    let (family_name, column_qualifier, timestamp) = (String::from("sum"), qualifier, at);
    let add = mutation::AddToCell {
        family_name: family_name.clone(),
        column_qualifier: column_qualifier.clone(),
        timestamp: timestamp.clone(),
        input: raw(value::Kind::IntValue(5)),
    };
    let state = raw(value::Kind::RawValue(7_i64.to_be_bytes().to_vec().into()));
    let merge = mutation::MergeToCell { family_name, column_qualifier, timestamp, input: state };
    for change in [Change::AddToCell(add), Change::MergeToCell(merge)] {
        refused(mutate(&t, "d", origin(change.clone(), by_user)).await, Code::InvalidArgument, "1999");
        mutate(&t, "d", origin(change, by_client)).await.unwrap();
    }
    let expected = ["a", "b", "c"].map(|row| format!("{row} f:q@1234000=v")).join("\n");
    assert_eq!(t.read_all().await, expected + "\nd sum:q@1000=\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x0c");
    for origins in [0, by_user] {
        refused(mutate(&t, "x", origin(cell(), origins)).await, Code::InvalidArgument, "1234567");
    }
    refused(mutate(&t, "x", origin(cell(), 9)).await, Code::InvalidArgument, "timestamp_origin 9");
    refused(mutate(&t, "x", origin(set("f", "q", -2, "v"), by_client)).await, Code::InvalidArgument, "-2");
    mutate(&t, "now", origin(set("f", "q", -1, "v"), by_client)).await.unwrap();
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_served_is_named_and_nothing_is_done() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let newer = OriginMutation { newer: "x".into(), ..origin(set("f", "q", 1_000, "v"), 0) };
    let named = "field 50 of google.bigtable.v2.Mutation";
    refused(mutate(&t, "r", newer.clone()).await, Code::Unimplemented, named);
    let rows =
        Rows { table_name: TABLE.into(), entries: vec![Row { row_key: "r".into(), mutations: vec![newer] }] };
    let refusal = call::<_, data_v2::MutateRowsResponse>(&t, "MutateRows", rows).await;
    refused(refusal, Code::Unimplemented, named);
    let once = data_v2::Idempotency { token: "12345678".into(), start_time: None };
    let request = data_v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        mutations: vec![Mutation { mutation: Some(set("f", "q", 1_000, "v")) }],
        idempotency: Some(once),
        ..Default::default()
    };
    refused(t.data.mutate_row(request).await, Code::Unimplemented, "idempotency");
    assert_eq!(t.read_all().await, "");
    // An application's profile says which cluster answers: there is one.
    let request = ReadRowsRequest { app_profile_id: "any".into(), ..Default::default() };
    assert_eq!(t.read(request).await.unwrap(), "");
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_would_write_nothing_say_so_before_the_table_is_looked_for() {
    let mut t = Fixture::new().await;
    let invalid = Code::InvalidArgument;
    let row = data_v2::MutateRowRequest { row_key: "r".into(), ..Default::default() };
    refused(t.data.mutate_row(row).await, invalid, "No mutations provided");
    let mutations = vec![Mutation { mutation: Some(set("f", "q", 1_000, "v")) }];
    let row = data_v2::MutateRowRequest { mutations, ..Default::default() };
    refused(t.data.mutate_row(row).await, invalid, "Row keys must be non-empty");
    let entries = vec![data_v2::mutate_rows_request::Entry::default(); 2];
    let rows = data_v2::MutateRowsRequest { entries, ..Default::default() };
    refused(t.data.mutate_rows(rows).await.map(|_| ()), invalid, "No mutations provided");
    t.server.stop().await.unwrap();
}
