//! Regions that are split and joined while clients read and write.

use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn scans_see_each_row_once_and_writers_see_no_error_while_regions_change() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    let rows = 600;
    for n in 0..rows {
        let cells = vec![set("f", "q", 1_000, vec![b'f'; 300]), set("g", "q", 1_000, "g")];
        t.mutate(&format!("r{n:04}"), cells).await.unwrap();
    }
    let ended = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..2 {
        let (ended, mut data) = (ended.clone(), t.data.clone());
        writers.push(tokio::spawn(async move {
            let mut count = 0u64;
            while !ended.load(Ordering::Relaxed) {
                let changes = vec![
                    set("f", &format!("w{writer}"), 1_000, count.to_string()),
                    set("g", &format!("w{writer}"), 1_000, count.to_string()),
                ];
                let mutations =
                    changes.into_iter().map(|change| Mutation { mutation: Some(change) }).collect();
                let row_key = format!("r{:04}", count * 7 % rows);
                let request = data_v2::MutateRowRequest {
                    table_name: TABLE.into(),
                    row_key: row_key.into(),
                    mutations,
                    ..Default::default()
                };
                data.mutate_row(request).await.unwrap();
                count += 1;
            }
            count
        }));
    }
    for round in 0..12u64 {
        for n in 1..6 {
            t.server.split(TABLE, format!("r{:04}", (n * 97 + round * 13) % rows).as_bytes()).await.unwrap();
        }
        let request = ReadRowsRequest { reversed: round % 2 == 1, ..Default::default() };
        let seen = t.rows(request).await.unwrap();
        let mut keys: Vec<_> = seen.iter().map(|(key, _)| key.clone()).collect();
        if round % 2 == 1 {
            keys.reverse();
        }
        assert_eq!(keys, (0..rows).map(|n| format!("r{n:04}")).collect::<Vec<_>>());
        // A row is as it was at one moment: both families have what one write gave them.
        for (key, cells) in &seen {
            let of = |family: &str| {
                let mut of: Vec<_> =
                    cells.iter().filter_map(|cell| cell.strip_prefix(family)?.strip_prefix(":w")).collect();
                of.sort_unstable();
                of.join(" ")
            };
            assert_eq!(of("f"), of("g"), "row {key}");
        }
        let starts = t.server.regions(TABLE).unwrap();
        assert!(starts.len() > 1);
        for at in &starts[1..] {
            if round % 3 == 2 {
                t.server.join(TABLE, at).await.unwrap();
            }
        }
    }
    ended.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn regions_are_split_by_size_and_joined_when_small_and_samples_tell() {
    let mut t = Fixture::with(|config| {
        config.region_bytes = siltstone_server::Size(2 << 20);
        // By size alone: a second of many writes would keep regions from being joined for minutes.
        config.region_rate = 0;
        config.write_memory = siltstone_server::Size(1 << 20);
        config.tables.insert("compression".into(), "none".into());
        let strategy = "leveled{sstable_bytes=256KiB, base_bytes=1MiB}";
        config.tables.insert("strategy".into(), strategy.into());
    })
    .await;
    t.table(&["f"]).await;
    let value = |n: usize| vec![(n % 251) as u8; 1_000];
    for n in 0..8_000 {
        let entry = set("f", "q", 1_000, value(n));
        t.mutate(&format!("r{n:05}"), vec![entry]).await.unwrap();
    }
    let regions = async |t: &Fixture, wanted: fn(usize) -> bool| {
        for _ in 0..300 {
            if wanted(t.server.regions(TABLE).unwrap().len()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("{} regions", t.server.regions(TABLE).unwrap().len());
    };
    regions(&t, |n| n >= 3).await;
    let samples = samples(&mut t).await;
    let (last, others) = samples.split_last().unwrap();
    assert!(last.0.is_empty() && !others.is_empty() && others.is_sorted(), "{samples:?}");
    assert_eq!(t.rows(ReadRowsRequest::default()).await.unwrap().len(), 8_000);
    let target = admin_v2::drop_row_range_request::Target::DeleteAllDataFromTable(true);
    let request = admin_v2::DropRowRangeRequest { name: TABLE.into(), target: Some(target) };
    t.admin.drop_row_range(request).await.unwrap();
    // What is split while its table is compacted is compacted by the next one.
    for _ in 0..30 {
        t.server.compact(TABLE).await.unwrap();
        if t.server.regions(TABLE).unwrap().len() == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    regions(&t, |n| n == 1).await;
    assert_eq!(t.read_all().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_keeps_the_regions_it_was_made_with() {
    let mut t = Fixture::new().await;
    let split = |key: &str| admin_v2::create_table_request::Split { key: key.to_string().into() };
    let family = ("f".to_string(), admin_v2::ColumnFamily::default());
    let request = admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "t".into(),
        table: Some(admin_v2::Table { column_families: [family].into(), ..Default::default() }),
        initial_splits: ["m", "t", "m"].map(split).to_vec(),
    };
    t.admin.create_table(request).await.unwrap();
    for row in ["a", "m", "z"] {
        t.mutate(row, vec![set("f", "q", 1_000, row)]).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(t.server.regions(TABLE).unwrap(), [b"".to_vec(), b"m".to_vec(), b"t".to_vec()]);
    let mut t = t.again().await;
    assert_eq!(t.server.regions(TABLE).unwrap().len(), 3);
    assert_eq!(t.read_all().await, "a f:q@1000=a\nm f:q@1000=m\nz f:q@1000=z");
}

/// Sampled keys, and the bytes before each.
async fn samples(t: &mut Fixture) -> Vec<(String, i64)> {
    let request = data_v2::SampleRowKeysRequest { table_name: TABLE.into(), ..Default::default() };
    let mut samples = t.data.sample_row_keys(request).await.unwrap().into_inner();
    let mut found = Vec::new();
    while let Some(sample) = samples.message().await.unwrap() {
        found.push((sample.row_key.escape_ascii().to_string(), sample.offset_bytes));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_table_is_sampled_to_the_byte_of_its_values() {
    let mut t = Fixture::new().await;
    let split = |key: &str| admin_v2::create_table_request::Split { key: key.to_string().into() };
    let families = ["f", "g"].map(|name| (name.to_string(), admin_v2::ColumnFamily::default()));
    let request = admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "t".into(),
        table: Some(admin_v2::Table { column_families: families.into(), ..Default::default() }),
        initial_splits: vec![split("r0500"), split("z")],
    };
    t.admin.create_table(request).await.unwrap();
    let sample = |row: &str, bytes: i64| (row.to_string(), bytes);
    assert_eq!(samples(&mut t).await, [sample("r0500", 0), sample("z", 0), sample("", 0)]);
    for n in 0..1_000 {
        let changes =
            vec![set("f", "q", 1_000, "value"), set("g", "q", 2_000, "2"), set("g", "q", 1_000, "1")];
        t.mutate(&format!("r{n:04}"), changes).await.unwrap();
    }
    let exact = [sample("r0500", 3_500), sample("r0999", 6_993), sample("z", 7_000), sample("", 7_000)];
    assert_eq!(samples(&mut t).await, exact);
    let mut t = t.again().await;
    assert_eq!(samples(&mut t).await, exact);
    // For one that takes longer, the bytes are those of files.
    for n in 0..4_000 {
        t.mutate(&format!("s{n:04}"), vec![set("f", "q", 1_000, "value")]).await.unwrap();
    }
    let keys: Vec<_> = samples(&mut t).await.into_iter().map(|(row, _)| row).collect();
    assert_eq!(keys, ["r0500", "z", ""]);
    t.server.stop().await.unwrap();
}
