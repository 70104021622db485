//! Calls one by one: what they do, and what they refuse.

use crate::support::admin_v2::gc_rule::Rule;
use crate::support::data_v2::read_modify_write_rule::Rule as ModifyRule;
use crate::support::data_v2::{
    CheckAndMutateRowRequest, MutateRowsRequest, ReadModifyWriteRowRequest, ReadModifyWriteRule,
};
use crate::support::*;
use tonic::Code;

fn rule(rule: Rule) -> Option<admin_v2::GcRule> {
    Some(admin_v2::GcRule { rule: Some(rule) })
}

fn days(days: i64) -> Rule {
    Rule::MaxAge(prost_types::Duration { seconds: days * 86_400, nanos: 0 })
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap() * 1_000
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_read_newest_first_and_survives_a_restart() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    t.mutate("b", vec![set("g", "q", 2_000, "2"), set("f", "q", 1_000, "1"), set("f", "q", 3_000, "3")])
        .await
        .unwrap();
    t.mutate("a", vec![set("f", "", 0, "")]).await.unwrap();
    let expected = "a f:@0=\nb f:q@3000=3 f:q@1000=1 g:q@2000=2";
    assert_eq!(t.read_all().await, expected);
    let mut t = t.again().await;
    assert_eq!(t.read_all().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_take_columns_times_families_and_rows() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    let all = || {
        let of = |f: &str, q: &str| [1_000, 2_000, 3_000].map(|at| set(f, q, at, "v"));
        [of("f", "a"), of("f", "b"), of("g", "a")].concat()
    };
    for row in ["1", "2", "3", "4", "5"] {
        t.mutate(row, all()).await.unwrap();
    }
    t.mutate("1", vec![delete_column("f", "a", None)]).await.unwrap();
    t.mutate(
        "2",
        vec![delete_column("f", "a", Some((2_000, 3_000))), delete_column("f", "b", Some((2_000, 0)))],
    )
    .await
    .unwrap();
    t.mutate("3", vec![delete_family("f"), set("f", "new", 1_000, "n")]).await.unwrap();
    t.mutate("4", vec![delete_row()]).await.unwrap();
    t.mutate("5", vec![delete_row(), set("f", "a", 1_000, "again")]).await.unwrap();
    let expected = "1 f:b@3000=v f:b@2000=v f:b@1000=v g:a@3000=v g:a@2000=v g:a@1000=v\n\
                    2 f:a@3000=v f:a@1000=v f:b@1000=v g:a@3000=v g:a@2000=v g:a@1000=v\n\
                    3 f:new@1000=n g:a@3000=v g:a@2000=v g:a@1000=v\n\
                    5 f:a@1000=again";
    assert_eq!(t.read_all().await, expected);
}

/// Gives a family of the table other rules.
async fn update_family(t: &mut Fixture, id: &str, family: admin_v2::ColumnFamily) {
    use crate::support::admin_v2::modify_column_families_request::{Modification, modification::Mod};
    let update = Modification { id: id.into(), r#mod: Some(Mod::Update(family)), ..Default::default() };
    let modifications = vec![update];
    let request =
        admin_v2::ModifyColumnFamiliesRequest { name: TABLE.into(), modifications, ..Default::default() };
    t.admin.modify_column_families(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_hide_cells_from_reads_at_once() {
    let mut t = Fixture::new().await;
    let family = |gc_rule| admin_v2::ColumnFamily { gc_rule, ..Default::default() };
    let rules = |rules: [Rule; 2]| rules.map(|rule| admin_v2::GcRule { rule: Some(rule) }).to_vec();
    let both = Rule::Intersection(admin_v2::gc_rule::Intersection {
        rules: rules([Rule::MaxNumVersions(1), days(1)]),
    });
    let either = Rule::Union(admin_v2::gc_rule::Union { rules: rules([Rule::MaxNumVersions(2), days(1)]) });
    t.table_with(&[
        ("age", family(rule(days(1)))),
        ("both", family(rule(both))),
        ("either", family(rule(either))),
        ("two", family(rule(Rule::MaxNumVersions(2)))),
    ])
    .await;
    let (now, old) = (now_ms(), now_ms() - 2 * 86_400_000_000);
    for family in ["age", "both", "either", "two"] {
        let cells = [(now, "1"), (now - 1_000, "2"), (now - 2_000, "3"), (old, "4"), (old - 1_000, "5")];
        let cells = cells.map(|(at, value)| set(family, "q", at, value));
        t.mutate("r", cells.to_vec()).await.unwrap();
        t.mutate("old", vec![set(family, "q", old, "o"), set(family, "q", old - 1_000, "p")]).await.unwrap();
    }
    let values = |text: String| {
        text.split(['@', '=']).skip(2).step_by(2).map(|v| v[..1].to_string()).collect::<String>()
    };
    let read = async |t: &mut Fixture, family: &str, reversed: bool| {
        let filter = data_v2::row_filter::Filter::FamilyNameRegexFilter(family.into());
        let filter = Some(RowFilter { filter: Some(filter) });
        values(t.read(ReadRowsRequest { filter, reversed, ..Default::default() }).await.unwrap())
    };
    for (family, expected, reversed) in
        [("age", "123", "123"), ("both", "o123", "123o"), ("either", "12", "12"), ("two", "op12", "12op")]
    {
        assert_eq!(read(&mut t, family, false).await, expected, "{family}");
        assert_eq!(read(&mut t, family, true).await, reversed, "{family} reversed");
    }
    // A rule that is changed hides more at once.
    update_family(&mut t, "two", family(rule(Rule::MaxNumVersions(1)))).await;
    assert_eq!(read(&mut t, "two", false).await, "o1");

    // What is hidden goes for good: no other rule brings it back.
    t.server.compact(TABLE).await.unwrap();
    for (family, expected) in [("age", "123"), ("both", "o123"), ("either", "12"), ("two", "o1")] {
        assert_eq!(read(&mut t, family, false).await, expected, "{family} after a compaction");
        update_family(&mut t, family, admin_v2::ColumnFamily::default()).await;
        assert_eq!(read(&mut t, family, false).await, expected, "{family} without a rule");
    }
}

/// More columns than a chunk of the walk has, over several regions.
#[tokio::test(flavor = "multi_thread")]
async fn cells_that_an_intersection_hides_are_deleted_in_all_regions_and_no_others() {
    let mut t = Fixture::new().await;
    let rules = [Rule::MaxNumVersions(1), days(1)].map(|rule| admin_v2::GcRule { rule: Some(rule) });
    let both = Rule::Intersection(admin_v2::gc_rule::Intersection { rules: rules.to_vec() });
    t.table_with(&[("f", admin_v2::ColumnFamily { gc_rule: rule(both), ..Default::default() })]).await;
    let (now, old) = (now_ms(), now_ms() - 2 * 86_400_000_000);
    let rows = 120;
    for row in 0..rows {
        let columns = (0..100).flat_map(|n| {
            let of = |at, value: &'static str| set("f", &format!("q{n:02}"), at, value);
            [of(now, "new"), of(old, "gone"), of(old - 1_000, "gone")].into_iter().skip(n % 2)
        });
        t.mutate(&format!("r{row:03}"), columns.collect()).await.unwrap();
    }
    for at in ["r030", "r077"] {
        t.server.split(TABLE, at.as_bytes()).await.unwrap();
    }
    let before = t.read_all().await;
    t.server.compact(TABLE).await.unwrap();
    assert!(t.read_all().await == before);
    update_family(&mut t, "f", admin_v2::ColumnFamily::default()).await;
    assert!(t.read_all().await == before, "what was hidden is gone, and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_call_are_told_apart() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let entry = |row: &str, change: Change| data_v2::mutate_rows_request::Entry {
        row_key: row.to_string().into(),
        mutations: vec![Mutation { mutation: Some(change) }],
        ..Default::default()
    };
    let entries = vec![
        entry("a", set("f", "q", 1_000, "1")),
        entry("b", set("none", "q", 1_000, "1")),
        entry("", set("f", "q", 1_000, "1")),
        entry("c", set("f", "q", 1, "1")),
        entry("d", set("f", "q", 1_000, "1")),
    ];
    let request = MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
    let mut answers = t.data.mutate_rows(request).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let codes: Vec<_> = answer.entries.iter().map(|e| (e.index, e.status.as_ref().unwrap().code)).collect();
    let [invalid, missing] = [Code::InvalidArgument as i32, Code::NotFound as i32];
    assert_eq!(codes, [(0, 0), (1, missing), (2, invalid), (3, invalid), (4, 0)]);
    assert_eq!(t.read_all().await, "a f:q@1000=1\nd f:q@1000=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_checked_and_written_as_one() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let check = |matched: &str, not: &str| CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        predicate_filter: Some(RowFilter {
            filter: Some(data_v2::row_filter::Filter::ValueRegexFilter("yes".into())),
        }),
        true_mutations: vec![Mutation { mutation: Some(set("f", "q", 1_000, matched)) }],
        false_mutations: vec![Mutation { mutation: Some(set("f", "q", 1_000, not)) }],
        ..Default::default()
    };
    assert!(!t.data.check_and_mutate_row(check("?", "yes")).await.unwrap().into_inner().predicate_matched);
    assert!(t.data.check_and_mutate_row(check("done", "?")).await.unwrap().into_inner().predicate_matched);
    assert_eq!(t.read_all().await, "r f:q@1000=done");
    let wrong =
        CheckAndMutateRowRequest { true_mutations: Vec::new(), false_mutations: Vec::new(), ..check("", "") };
    refused(t.data.check_and_mutate_row(wrong).await, Code::InvalidArgument, "mutations");
    // The branch that is not taken is not judged, the other is.
    let elsewhere = || vec![Mutation { mutation: Some(set("none", "q", 1_000, "v")) }];
    let not_taken = CheckAndMutateRowRequest { true_mutations: elsewhere(), ..check("", "yes") };
    assert!(!t.data.check_and_mutate_row(not_taken.clone()).await.unwrap().into_inner().predicate_matched);
    assert_eq!(t.read_all().await, "r f:q@1000=yes");
    refused(t.data.check_and_mutate_row(not_taken).await, Code::NotFound, "none");
    assert_eq!(t.read_all().await, "r f:q@1000=yes");
}

fn modify(row: &str, rules: Vec<(&str, &str, ModifyRule)>) -> ReadModifyWriteRowRequest {
    let rules = rules.into_iter().map(|(family, qualifier, rule)| ReadModifyWriteRule {
        family_name: family.into(),
        column_qualifier: qualifier.to_string().into(),
        rule: Some(rule),
    });
    ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: row.to_string().into(),
        rules: rules.collect(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_and_appends_of_many_at_once_all_count() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    let (writers, each) = (8, 25);
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let mut data = t.data.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    let rules = vec![
                        ("f", "n", ModifyRule::IncrementAmount(writer)),
                        ("g", "s", ModifyRule::AppendValue("x".into())),
                    ];
                    data.read_modify_write_row(modify("r", rules)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let rules =
        vec![("f", "n", ModifyRule::IncrementAmount(0)), ("g", "s", ModifyRule::AppendValue("".into()))];
    let row = t.data.read_modify_write_row(modify("r", rules)).await.unwrap().into_inner().row.unwrap();
    let value = |family: usize| row.families[family].columns[0].cells[0].value.clone();
    assert_eq!(i64::from_be_bytes(value(0)[..].try_into().unwrap()), each * writers * (writers - 1) / 2);
    assert_eq!(value(1).len() as i64, writers * each);
    // One column twice in a call: the second rule sees what the first has made.
    let twice = vec![("f", "m", ModifyRule::IncrementAmount(2)), ("f", "m", ModifyRule::IncrementAmount(3))];
    let row = t.data.read_modify_write_row(modify("s", twice)).await.unwrap().into_inner().row.unwrap();
    assert_eq!(row.families[0].columns[0].cells[0].value[7], 5);
    t.mutate("text", vec![set("f", "n", 1_000, "abc")]).await.unwrap();
    let wrong = modify("text", vec![("f", "n", ModifyRule::IncrementAmount(1))]);
    refused(t.data.read_modify_write_row(wrong).await, Code::FailedPrecondition, "3 bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_add_up_and_their_type_is_fixed() {
    let mut t = Fixture::new().await;
    let int64 = || {
        let kind = admin_v2::r#type::Kind::Int64Type(admin_v2::r#type::Int64::default());
        Some(Box::new(admin_v2::Type { kind: Some(kind) }))
    };
    let family = |aggregator| {
        let aggregate = admin_v2::r#type::Aggregate {
            input_type: int64(),
            aggregator: Some(aggregator),
            ..Default::default()
        };
        let kind = admin_v2::r#type::Kind::AggregateType(Box::new(aggregate));
        admin_v2::ColumnFamily { value_type: Some(admin_v2::Type { kind: Some(kind) }), ..Default::default() }
    };
    use crate::support::admin_v2::r#type::aggregate::{
        Aggregator, HyperLogLogPlusPlusUniqueCount, Max, Min, Sum,
    };
    t.table_with(&[
        ("max", family(Aggregator::Max(Max {}))),
        ("min", family(Aggregator::Min(Min {}))),
        ("plain", admin_v2::ColumnFamily::default()),
        ("distinct", family(Aggregator::HllppUniqueCount(HyperLogLogPlusPlusUniqueCount {}))),
        ("sum", family(Aggregator::Sum(Sum {}))),
    ])
    .await;
    let value = |kind| Some(data_v2::Value { kind: Some(kind), ..Default::default() });
    let add = |family: &str, n: i64| {
        Change::AddToCell(mutation::AddToCell {
            family_name: family.into(),
            column_qualifier: value(data_v2::value::Kind::RawValue("q".into())),
            timestamp: value(data_v2::value::Kind::RawTimestampMicros(1_000)),
            input: value(data_v2::value::Kind::IntValue(n)),
        })
    };
    for n in [5, -3, 4] {
        t.mutate("r", ["max", "min", "sum"].map(|family| add(family, n)).to_vec()).await.unwrap();
    }
    let number = |n: i64| n.to_be_bytes().escape_ascii().to_string();
    let expected = format!("r max:q@1000={} min:q@1000={} sum:q@1000={}", number(5), number(-3), number(6));
    assert_eq!(t.read_all().await, expected);
    refused(t.mutate("r", vec![add("plain", 1)]).await, Code::InvalidArgument, "no aggregate");
    refused(t.mutate("r", vec![set("sum", "q", 1_000, "x")]).await, Code::InvalidArgument, "aggregate");
    // Distinct values, in memory and in tables.
    let merge = |state: Vec<u8>| {
        Change::MergeToCell(mutation::MergeToCell {
            family_name: "distinct".into(),
            column_qualifier: value(data_v2::value::Kind::RawValue("q".into())),
            timestamp: value(data_v2::value::Kind::RawTimestampMicros(1_000)),
            input: value(data_v2::value::Kind::RawValue(state.into())),
        })
    };
    for n in 0..300 {
        t.mutate("d", vec![add("distinct", n % 100)]).await.unwrap();
        if n == 150 {
            t.server.flush().await.unwrap();
        }
    }
    let mut more = zetasketch::HyperLogLogPlusPlus::for_longs(15).unwrap();
    (90..110).for_each(|n| more.add_long(n).unwrap());
    t.mutate("d", vec![merge(more.serialize())]).await.unwrap();
    refused(t.mutate("d", vec![merge(b"no sketch".to_vec())]).await, Code::InvalidArgument, "sketch");
    let count = async |t: &mut Fixture| {
        let key = RowSet { row_keys: vec!["d".into()], ..Default::default() };
        let request = ReadRowsRequest { table_name: TABLE.into(), rows: Some(key), ..Default::default() };
        let mut answers = t.data.read_rows(request).await.unwrap().into_inner();
        let state = answers.message().await.unwrap().unwrap().chunks[0].value.clone();
        zetasketch::HyperLogLogPlusPlus::from_bytes(&state).unwrap().cardinality()
    };
    assert_eq!(count(&mut t).await, 110);
    t.server.compact(TABLE).await.unwrap();
    assert_eq!(count(&mut t).await, 110);
    let mut t = t.again().await;
    assert!(t.read_all().await.ends_with(&expected));
    assert_eq!(count(&mut t).await, 110);
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_take_sets_limits_and_both_directions() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    for n in 0..50 {
        let cells = vec![set("f", "b", 2_000, "2"), set("f", "b", 1_000, "1"), set("g", "a", 1_000, "g")];
        t.mutate(&format!("r{n:02}"), cells).await.unwrap();
    }
    let keys = |text: String| text.lines().map(|line| line[..3].to_string()).collect::<Vec<_>>();
    let read = ReadRowsRequest { rows_limit: 3, ..Default::default() };
    assert_eq!(keys(t.read(read.clone()).await.unwrap()), ["r00", "r01", "r02"]);
    let back = ReadRowsRequest { reversed: true, ..read };
    let last = t.read(back).await.unwrap();
    assert_eq!(last.lines().next().unwrap(), "r49 f:b@2000=2 f:b@1000=1 g:a@1000=g");
    assert_eq!(keys(last), ["r49", "r48", "r47"]);
    let rows =
        RowSet { row_keys: ["r40", "r10", "none"].map(|key| key.into()).to_vec(), ..Default::default() };
    let some = ReadRowsRequest { rows: Some(rows.clone()), ..Default::default() };
    assert_eq!(keys(t.read(some).await.unwrap()), ["r10", "r40"]);
    let some = ReadRowsRequest { rows: Some(rows), reversed: true, ..Default::default() };
    assert_eq!(keys(t.read(some).await.unwrap()), ["r40", "r10"]);
    refused(
        t.read(ReadRowsRequest { rows_limit: -1, ..Default::default() }).await,
        Code::InvalidArgument,
        "rows_limit",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_cells_and_rows_come_in_messages_that_clients_take() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    t.mutate("a", vec![set("f", "big", 1_000, vec![7; 20 << 20]), set("f", "small", 1_000, "s")])
        .await
        .unwrap();
    for n in 0..40 {
        t.mutate("b", vec![set("f", &format!("q{n:02}"), 1_000, vec![1; 200 << 10])]).await.unwrap();
    }
    t.mutate("c", vec![set("f", "q", 1_000, "c")]).await.unwrap();
    let rows = t.rows(ReadRowsRequest::default()).await.unwrap();
    assert_eq!(
        rows.iter().map(|(key, cells)| (&key[..], cells.len())).collect::<Vec<_>>(),
        [("a", 2), ("b", 40), ("c", 1)]
    );
    assert_eq!(rows[0].1, ["f:big@1000=(20971520 bytes)", "f:small@1000=s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_asks_is_told_what_a_scan_saw() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    for row in ["a", "b", "c"] {
        t.mutate(row, vec![set("f", "q", 1_000, row), set("f", "r", 1_000, row)]).await.unwrap();
    }
    let filter = Some(RowFilter { filter: Some(data_v2::row_filter::Filter::ValueRegexFilter("b".into())) });
    let request = ReadRowsRequest { table_name: TABLE.into(), filter, ..Default::default() };
    assert_eq!(seen(&mut t, request).await, [3, 1, 6, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_listed_changed_and_deleted() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let named = || admin_v2::GetTableRequest { name: TABLE.into(), ..Default::default() };
    let create =
        admin_v2::CreateTableRequest { parent: INSTANCE.into(), table_id: "t".into(), ..Default::default() };
    refused(t.admin.create_table(create).await, Code::AlreadyExists, "exists");
    for (parent, table_id) in [(INSTANCE, "a/b"), (INSTANCE, ""), ("projects/p", "x")] {
        let create = admin_v2::CreateTableRequest {
            parent: parent.into(),
            table_id: table_id.into(),
            ..Default::default()
        };
        refused(t.admin.create_table(create).await, Code::InvalidArgument, "");
    }
    for id in ["u", "v", "w"] {
        let create = admin_v2::CreateTableRequest {
            parent: INSTANCE.into(),
            table_id: id.into(),
            ..Default::default()
        };
        t.admin.create_table(create).await.unwrap();
    }
    let (mut listed, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = admin_v2::ListTablesRequest {
            parent: INSTANCE.into(),
            page_size: 3,
            page_token,
            ..Default::default()
        };
        let page = t.admin.list_tables(request).await.unwrap().into_inner();
        listed
            .extend(page.tables.into_iter().map(|table| table.name.rsplit('/').next().unwrap().to_string()));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, ["t", "u", "v", "w"]);
    let update = |on| admin_v2::UpdateTableRequest {
        table: Some(admin_v2::Table { name: TABLE.into(), deletion_protection: on, ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["deletion_protection".into()] }),
        ..Default::default()
    };
    assert!(t.admin.update_table(update(true)).await.unwrap().into_inner().done);
    let delete = || admin_v2::DeleteTableRequest { name: TABLE.into() };
    refused(t.admin.delete_table(delete()).await, Code::FailedPrecondition, "protected");
    t.admin.update_table(update(false)).await.unwrap();
    t.mutate("r", vec![set("f", "q", 1_000, "v")]).await.unwrap();
    t.admin.delete_table(delete()).await.unwrap();
    refused(t.admin.get_table(named()).await, Code::NotFound, "no table");
    refused(t.mutate("r", vec![set("f", "q", 1_000, "v")]).await, Code::NotFound, "no table");
    // One of that name again has nothing of it.
    t.table(&["f"]).await;
    assert_eq!(t.read_all().await, "");
    let mut t = t.again().await;
    assert_eq!(t.admin.get_table(named()).await.unwrap().into_inner().column_families.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn families_come_and_go_with_their_cells() {
    use crate::support::admin_v2::modify_column_families_request::{Modification, modification::Mod};
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    t.mutate("r", vec![set("f", "q", 1_000, "f"), set("g", "q", 1_000, "g")]).await.unwrap();
    let change = |changes: Vec<(&str, Mod)>| admin_v2::ModifyColumnFamiliesRequest {
        name: TABLE.into(),
        modifications: changes
            .into_iter()
            .map(|(id, of)| Modification { id: id.into(), r#mod: Some(of), ..Default::default() })
            .collect(),
        ..Default::default()
    };
    let new = || Mod::Create(admin_v2::ColumnFamily::default());
    refused(
        t.admin.modify_column_families(change(vec![("h", new()), ("g", new())])).await,
        Code::AlreadyExists,
        "g",
    );
    refused(t.mutate("r", vec![set("h", "q", 1_000, "h")]).await, Code::NotFound, "h");
    t.admin.modify_column_families(change(vec![("h", new()), ("g", Mod::Drop(true))])).await.unwrap();
    t.mutate("r", vec![set("h", "q", 1_000, "h")]).await.unwrap();
    assert_eq!(t.read_all().await, "r f:q@1000=f h:q@1000=h");
    t.admin.modify_column_families(change(vec![("g", new())])).await.unwrap();
    assert_eq!(t.read_all().await, "r f:q@1000=f h:q@1000=h");
    let mut t = t.again().await;
    assert_eq!(t.read_all().await, "r f:q@1000=f h:q@1000=h");
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_rows_are_dropped() {
    use crate::support::admin_v2::drop_row_range_request::Target;
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    for row in ["a", "ab", "ac", "b"] {
        t.mutate(row, vec![set("f", "q", 1_000, "v")]).await.unwrap();
    }
    let drop = |target| admin_v2::DropRowRangeRequest { name: TABLE.into(), target: Some(target) };
    t.admin.drop_row_range(drop(Target::RowKeyPrefix("ab".into()))).await.unwrap();
    assert_eq!(t.read_all().await.lines().count(), 3);
    refused(
        t.admin.drop_row_range(drop(Target::RowKeyPrefix("".into()))).await,
        Code::InvalidArgument,
        "neither",
    );
    refused(
        t.admin.drop_row_range(drop(Target::DeleteAllDataFromTable(false))).await,
        Code::InvalidArgument,
        "neither",
    );
    t.admin.drop_row_range(drop(Target::DeleteAllDataFromTable(true))).await.unwrap();
    assert_eq!(t.read_all().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_calls_are_turned_away_with_a_time_to_try_again() {
    let mut t = Fixture::with(|config| config.calls_max = 1).await;
    t.table(&["f"]).await;
    // A scan that nobody reads on is a call under way.
    for n in 0..64 {
        t.mutate(&format!("r{n}"), vec![set("f", "q", 1_000, vec![1; 256 << 10])]).await.unwrap();
    }
    let request = ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    let slow = t.data.read_rows(request).await.unwrap().into_inner();
    let status = t.mutate("r", vec![set("f", "q", 1_000, "v")]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let details = String::from_utf8_lossy(status.details()).into_owned();
    assert!(details.contains("google.rpc.RetryInfo"), "{details}");
    drop(slow);
    for _ in 0..100 {
        if t.mutate("r", vec![set("f", "q", 1_000, "v")]).await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the call that was dropped is still under way");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_or_makes_no_sense_is_refused() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let invalid = Code::InvalidArgument;
    refused(t.mutate("", vec![set("f", "q", 1_000, "v")]).await, invalid, "Row keys must be non-empty");
    refused(t.mutate(&"k".repeat(4_097), vec![set("f", "q", 1_000, "v")]).await, invalid, "4096");
    refused(t.mutate("r", vec![set("f", &"q".repeat(16_385), 1_000, "v")]).await, invalid, "16384");
    refused(t.mutate("r", vec![set("f", "q", 1_001, "v")]).await, invalid, "1001");
    refused(t.mutate("r", vec![set("f", "q", -2, "v")]).await, invalid, "-2");
    refused(t.mutate("r", Vec::new()).await, invalid, "No mutations provided");
    refused(t.mutate("r", vec![delete_column("f", "q", Some((5_000, 1_000)))]).await, invalid, "inverted");
    refused(t.mutate("r", vec![delete_column("f", "q", Some((2_000, 2_000)))]).await, invalid, "is empty");
    refused(t.mutate("r", vec![delete_column("f", "q", Some((1_001, 3_000)))]).await, invalid, "1001");
    refused(t.mutate("r", vec![delete_column("f", "q", Some((1_000, 3_001)))]).await, invalid, "3001");
    refused(t.mutate("r", vec![set("none", "q", 1_000, "v")]).await, Code::NotFound, "none");
    let request = ReadRowsRequest { table_name: "t".into(), ..Default::default() };
    refused(t.data.read_rows(request).await, invalid, "projects/PROJECT");
    assert_eq!(t.read_all().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_health_and_metrics_are_there() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    t.mutate("r", vec![set("f", "q", 1_000, "v")]).await.unwrap();
    let at = t.server.page_at();
    let get = async |path: &str| get(at, path).await;
    assert!(get("/healthz").await.contains("200 OK") && get("/readyz").await.contains("ready"));
    let metrics = get("/metrics").await;
    for name in [
        "siltstone_call_seconds_count{call=\"MutateRow\"} 1",
        "siltstone_wal_bytes",
        "siltstone_calls_under_way 0",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    assert!(get("/").await.contains("<!doctype html>") && get("/none").await.contains("404"));
    let state = get("/api/state").await;
    assert!(state.contains("\"name\":\"projects/p/instances/i/tables/t\""), "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_nobody_waits_for_ends_and_its_call_with_it() {
    let mut t = Fixture::with(|config| config.calls_max = 1).await;
    t.table(&["f"]).await;
    for n in 0..300u32 {
        let entry = |n: u32| data_v2::mutate_rows_request::Entry {
            row_key: format!("r{n:08}").into(),
            mutations: vec![Mutation { mutation: Some(set("f", "q", 1_000, "v")) }],
            ..Default::default()
        };
        let entries = (n * 1_000..(n + 1) * 1_000).map(entry).collect();
        let request = MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
        let mut answers = t.data.mutate_rows(request).await.unwrap().into_inner();
        while answers.message().await.unwrap().is_some() {}
    }
    let filter = Some(RowFilter {
        filter: Some(data_v2::row_filter::Filter::ColumnQualifierRegexFilter("nosuch".into())),
    });
    let mut request =
        tonic::Request::new(ReadRowsRequest { table_name: TABLE.into(), filter, ..Default::default() });
    request.set_timeout(std::time::Duration::from_millis(1));
    assert!(t.data.read_rows(request).await.is_err());
    let begun = std::time::Instant::now();
    while t.mutate("r", vec![set("f", "q", 1_000, "v")]).await.is_err() {
        assert!(begun.elapsed().as_secs() < 20, "the scan goes on");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_are_too_large_are_refused_wherever_they_are_given() {
    use crate::support::admin_v2::modify_column_families_request::{Modification, modification::Mod};
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let rules = vec![admin_v2::GcRule { rule: Some(Rule::MaxNumVersions(5)) }; 200];
    let large = Rule::Union(admin_v2::gc_rule::Union { rules });
    let family = admin_v2::ColumnFamily { gc_rule: rule(large), ..Default::default() };
    let table =
        admin_v2::Table { column_families: [("f".to_string(), family.clone())].into(), ..Default::default() };
    let create = admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "large".into(),
        table: Some(table),
        ..Default::default()
    };
    refused(t.admin.create_table(create).await, Code::InvalidArgument, "500");
    for (id, change) in [("f", Mod::Update(family.clone())), ("g", Mod::Create(family))] {
        let request = admin_v2::ModifyColumnFamiliesRequest {
            name: TABLE.into(),
            modifications: vec![Modification { id: id.into(), r#mod: Some(change), ..Default::default() }],
            ..Default::default()
        };
        refused(t.admin.modify_column_families(request).await, Code::InvalidArgument, "500");
    }
    t.server.stop().await.unwrap();
}
