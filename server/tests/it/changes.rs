//! Streams of changes: everything once and in order, through splits, restarts and reconnects, and an error
//! where something is gone.

use crate::support::{
    Change, Fixture, INSTANCE, TABLE, admin_v2, data_v2, delete_column, delete_family, delete_row, refused,
    set,
};
use data_v2::read_change_stream_request::StartFrom;
use data_v2::read_change_stream_response::{StreamRecord, data_change};
use data_v2::{
    ReadChangeStreamRequest, RowRange, StreamContinuationToken, StreamContinuationTokens, StreamPartition,
};
use prost::Message;
use prost_types::Timestamp;
use siltstone_server::{Config, Size};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tonic::Code;

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp {
        seconds: i64::try_from(now.as_secs()).unwrap(),
        nanos: i32::try_from(now.subsec_nanos()).unwrap(),
    }
}

async fn stream_changes(t: &mut Fixture, config: Option<admin_v2::ChangeStreamConfig>) {
    let table = admin_v2::Table { name: TABLE.into(), change_stream_config: config, ..Default::default() };
    let mask = prost_types::FieldMask { paths: vec!["change_stream_config".into()] };
    let request =
        admin_v2::UpdateTableRequest { table: Some(table), update_mask: Some(mask), ..Default::default() };
    t.admin.update_table(request).await.unwrap();
}

async fn streamed(change: impl FnOnce(&mut Config)) -> Fixture {
    let mut t = Fixture::with(change).await;
    t.table(&["f", "g"]).await;
    stream_changes(&mut t, Some(admin_v2::ChangeStreamConfig::default())).await;
    t
}

fn from_time(time: Timestamp) -> ReadChangeStreamRequest {
    ReadChangeStreamRequest {
        table_name: TABLE.into(),
        start_from: Some(StartFrom::StartTime(time)),
        end_time: Some(now()),
        ..Default::default()
    }
}

fn from_token(token: &str) -> ReadChangeStreamRequest {
    let tokens = vec![StreamContinuationToken { token: token.into(), ..Default::default() }];
    let start_from = Some(StartFrom::ContinuationTokens(StreamContinuationTokens { tokens }));
    ReadChangeStreamRequest { start_from, ..from_time(now()) }
}

fn mutation_text(mutation: &Change, size: usize) -> String {
    match mutation {
        Change::SetCell(set) => {
            let value = match size {
                0 => set.value.escape_ascii().to_string(),
                size => format!("({size} bytes)"),
            };
            let qualifier = set.column_qualifier.escape_ascii();
            format!("{}:{qualifier}@{}={value}", set.family_name, set.timestamp_micros)
        }
        Change::DeleteFromColumn(delete) => {
            let times = delete.time_range.map(|of| (of.start_timestamp_micros, of.end_timestamp_micros));
            format!("-{}:{}{times:?}", delete.family_name, delete.column_qualifier.escape_ascii())
        }
        Change::DeleteFromFamily(delete) => format!("-{}", delete.family_name),
        other => format!("{other:?}"),
    }
}

/// The rows of a stream to its end, and their tokens. Checks what the protocol asks for.
async fn read(
    t: &mut Fixture,
    request: ReadChangeStreamRequest,
) -> Result<Vec<(String, String)>, tonic::Status> {
    let mut stream = t.data.read_change_stream(request).await?.into_inner();
    let (mut rows, mut row): (Vec<(String, String)>, Option<String>) = (Vec::new(), None);
    let (mut size, mut closed) = (0, false);
    while let Some(message) = stream.message().await? {
        assert!(message.encoded_len() < 4 << 20 && !closed);
        match message.stream_record.unwrap() {
            StreamRecord::DataChange(change) => {
                if change.r#type == data_change::Type::User as i32 {
                    assert!(row.is_none() && change.commit_timestamp.is_some());
                    assert!(!change.source_cluster_id.is_empty());
                    row = Some(change.row_key.escape_ascii().to_string());
                }
                let text = row.as_mut().expect("a row has begun");
                for chunk in change.chunks {
                    let mutation = chunk.mutation.unwrap().mutation.unwrap();
                    if let (Some(info), Change::SetCell(set)) = (chunk.chunk_info, &mutation) {
                        assert_eq!(info.chunked_value_offset as usize, size);
                        size += set.value.len();
                        if !info.last_chunk {
                            continue;
                        }
                        assert_eq!(size, info.chunked_value_size as usize);
                    }
                    text.push(' ');
                    text.push_str(&mutation_text(&mutation, std::mem::take(&mut size)));
                }
                if change.done {
                    assert!(!change.token.is_empty() && change.estimated_low_watermark.is_some());
                    rows.push((row.take().unwrap(), change.token));
                }
            }
            StreamRecord::Heartbeat(_) => {}
            StreamRecord::CloseStream(close) => {
                assert_eq!(close.status.unwrap().code, 0);
                closed = true;
            }
        }
    }
    assert!(closed && row.is_none());
    Ok(rows)
}

async fn texts(t: &mut Fixture, request: ReadChangeStreamRequest) -> Vec<String> {
    read(t, request).await.unwrap().into_iter().map(|(text, _)| text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_mutations_come_row_by_row_and_a_token_goes_on_behind_its_row() {
    let began = now();
    let mut t = streamed(|_| ()).await;
    t.mutate("a", vec![set("f", "q", 1_000, "1"), set("g", "q", 2_000, "2")]).await.unwrap();
    t.mutate("b\0c", vec![set("f", "", 1_000, "")]).await.unwrap();
    t.mutate("a", vec![delete_column("f", "q", None), delete_column("g", "q", Some((1_000, 2_000)))])
        .await
        .unwrap();
    t.mutate("a", vec![delete_family("f")]).await.unwrap();
    t.mutate("a", vec![delete_row()]).await.unwrap();
    let entry = |row: &str| data_v2::mutate_rows_request::Entry {
        row_key: row.to_string().into(),
        mutations: vec![data_v2::Mutation { mutation: Some(set("f", "q", 1_000, row)) }],
        ..Default::default()
    };
    let entries = vec![entry("x"), entry("y"), entry("z")];
    let request = data_v2::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
    t.data.mutate_rows(request).await.unwrap();
    let all = read(&mut t, from_time(began)).await.unwrap();
    let expected = [
        "a f:q@1000=1 g:q@2000=2",
        "b\\x00c f:@1000=",
        "a -f:qNone -g:qSome((1000, 2000))",
        "a -f",
        "a -f -g",
        "x f:q@1000=x",
        "y f:q@1000=y",
        "z f:q@1000=z",
    ];
    assert_eq!(all.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), expected);
    // From any token on, also from the middle of what was written together.
    for (at, (_, token)) in all.iter().enumerate() {
        assert_eq!(texts(&mut t, from_token(token)).await, expected[at + 1..], "behind {}", expected[at]);
    }
    let range = RowRange {
        start_key: Some(data_v2::row_range::StartKey::StartKeyClosed("b".into())),
        end_key: Some(data_v2::row_range::EndKey::EndKeyOpen("y".into())),
    };
    let partition = Some(StreamPartition { row_range: Some(range) });
    let some = texts(&mut t, ReadChangeStreamRequest { partition, ..from_time(began) }).await;
    assert_eq!(some, [expected[1], expected[5]]);
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_survive_flushes_splits_restores_and_restarts() {
    let began = now();
    let mut t = streamed(|_| ()).await;
    let mut expected = Vec::new();
    for n in 0..60 {
        let row = format!("r{:03}", n * 7 % 60);
        t.mutate(&row, vec![set("f", "q", 1_000, format!("{n}"))]).await.unwrap();
        expected.push(format!("{row} f:q@1000={n}"));
        match n {
            20 => t.server.split(TABLE, b"r030").await.unwrap(),
            30 => t.server.compact(TABLE).await.unwrap(),
            40 => {
                let backup = admin_v2::Backup {
                    source_table: TABLE.into(),
                    expire_time: Some(Timestamp { seconds: now().seconds + 100, nanos: 0 }),
                    ..Default::default()
                };
                let (parent, backup_id) = (format!("{INSTANCE}/clusters/c"), "b".to_string());
                let request = admin_v2::CreateBackupRequest { parent, backup_id, backup: Some(backup) };
                t.admin.create_backup(request).await.unwrap();
                let source = format!("{INSTANCE}/clusters/c/backups/b");
                let source = Some(admin_v2::restore_table_request::Source::Backup(source));
                let request =
                    admin_v2::RestoreTableRequest { parent: INSTANCE.into(), table_id: "u".into(), source };
                t.admin.restore_table(request).await.unwrap();
            }
            50 => t = t.again().await,
            _ => {}
        }
    }
    let all = read(&mut t, from_time(began)).await.unwrap();
    assert_eq!(all.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(texts(&mut t, from_token(&all[10].1)).await, expected[11..]);
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_wal_does_not_hold_any_more_is_an_error_and_never_a_part() {
    let mut t = streamed(|config| config.change_log = Size(0)).await;
    t.mutate("a", vec![set("f", "q", 1_000, "1")]).await.unwrap();
    let token = read(&mut t, from_time(Timestamp { seconds: 1, nanos: 0 })).await.unwrap().pop().unwrap().1;
    t.mutate("b", vec![set("f", "q", 1_000, "2")]).await.unwrap();
    // Nothing is in memory, and there are later WAL files: this one is needed no more.
    for n in 0..120 {
        t.mutate(&format!("c{n}"), vec![set("f", "q", 1_000, vec![7; 300_000])]).await.unwrap();
    }
    t.server.flush().await.unwrap();
    let lost = read(&mut t, from_token(&token)).await;
    refused(lost, Code::OutOfRange, "WAL does not hold");
    let long_ago = Timestamp { seconds: 1, nanos: 0 };
    refused(read(&mut t, from_time(long_ago)).await, Code::OutOfRange, "WAL does not hold");
    // Also where all that is left is behind the end.
    let request = ReadChangeStreamRequest { end_time: Some(long_ago), ..from_time(long_ago) };
    refused(read(&mut t, request).await, Code::OutOfRange, "WAL does not hold");
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_rows_come_in_pieces_and_a_quiet_stream_says_that_it_lives() {
    let began = now();
    let mut t = streamed(|_| ()).await;
    let mut cells = vec![set("f", "big", 1_000, vec![7; 5 << 20])];
    cells.extend((0..300).map(|n| set("g", &format!("q{n}"), 1_000, vec![8; 10_000])));
    t.mutate("a", cells).await.unwrap();
    let row = &texts(&mut t, from_time(began)).await[0];
    assert!(row.starts_with(&format!("a f:big@1000=({} bytes) g:q0@", 5 << 20)), "{}", &row[..80]);
    assert_eq!(row.matches(" g:q").count(), 300);
    let request = ReadChangeStreamRequest {
        table_name: TABLE.into(),
        heartbeat_duration: Some(prost_types::Duration { seconds: 0, nanos: 100_000_000 }),
        ..Default::default()
    };
    let mut stream = t.data.read_change_stream(request).await.unwrap().into_inner();
    let message = tokio::time::timeout(Duration::from_secs(20), stream.message()).await.unwrap().unwrap();
    let Some(StreamRecord::Heartbeat(heartbeat)) = message.unwrap().stream_record else {
        panic!("no heartbeat")
    };
    let token = heartbeat.continuation_token.unwrap().token;
    t.mutate("b", vec![set("f", "q", 1_000, "1")]).await.unwrap();
    loop {
        let record = stream.message().await.unwrap().unwrap().stream_record.unwrap();
        if let StreamRecord::DataChange(change) = record {
            assert_eq!(&change.row_key[..], b"b");
            break;
        }
    }
    assert_eq!(texts(&mut t, from_token(&token)).await, ["b f:q@1000=1"]);
    // A stream under way does not keep the server from stopping.
    t.server.stop().await.unwrap();
    let end = loop {
        if let Err(e) = stream.message().await {
            break e;
        }
    };
    assert_eq!(end.code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_tables_without_and_requests_that_make_no_sense_are_refused() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let partitions = || data_v2::GenerateInitialChangeStreamPartitionsRequest {
        table_name: TABLE.into(),
        ..Default::default()
    };
    refused(read(&mut t, from_time(now())).await, Code::FailedPrecondition, "not streamed");
    let none = t.data.generate_initial_change_stream_partitions(partitions()).await;
    refused(none, Code::FailedPrecondition, "not streamed");
    stream_changes(&mut t, Some(admin_v2::ChangeStreamConfig::default())).await;
    let mut all = t.data.generate_initial_change_stream_partitions(partitions()).await.unwrap().into_inner();
    let range = all.message().await.unwrap().unwrap().partition.unwrap().row_range.unwrap();
    assert!(range.start_key.is_none() && all.message().await.unwrap().is_none());
    refused(read(&mut t, from_token("x")).await, Code::InvalidArgument, "no token");
    refused(read(&mut t, from_token("ffffffffffff")).await, Code::OutOfRange, "newest");
    let later = Timestamp { seconds: now().seconds + 100, nanos: 0 };
    refused(read(&mut t, from_time(later)).await, Code::InvalidArgument, "future");
    let request = admin_v2::GetTableRequest { name: TABLE.into(), ..Default::default() };
    let shown = t.admin.get_table(request).await.unwrap().into_inner();
    assert_eq!(shown.change_stream_config.unwrap().retention_period.unwrap().seconds, 86_400);
    stream_changes(&mut t, None).await;
    refused(read(&mut t, from_time(now())).await, Code::FailedPrecondition, "not streamed");
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_changes_have_a_limit_of_their_own_and_take_no_calls_from_others() {
    let mut t = streamed(|config| {
        config.calls_max = 2;
        config.change_streams_max = 2;
    })
    .await;
    let stays = || ReadChangeStreamRequest { table_name: TABLE.into(), ..Default::default() };
    let mut first = t.data.read_change_stream(stays()).await.unwrap().into_inner();
    // Half of them for one caller.
    refused(t.data.read_change_stream(stays()).await, Code::ResourceExhausted, "streams of changes");
    for n in 0..5 {
        t.mutate(&format!("r{n}"), vec![set("f", "q", 1_000, "v")]).await.unwrap();
        loop {
            let record = first.message().await.unwrap().unwrap().stream_record.unwrap();
            if let StreamRecord::DataChange(change) = record {
                assert_eq!(change.row_key, format!("r{n}"));
                break;
            }
        }
    }
    drop(first);
    let begun = std::time::Instant::now();
    while t.data.read_change_stream(stays()).await.is_err() {
        assert!(begun.elapsed().as_secs() < 20, "the stream that was dropped is still under way");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    t.server.stop().await.unwrap();
}
