//! Backups of tables: exact, shared, restored beside what goes on, and gone with their last copy; listed by
//! filter and order, hot, and made by the server itself.

use crate::support::{Fixture, INSTANCE, TABLE, admin_v2, data_v2, refused, set};
use admin_v2::backup::BackupType;
use admin_v2::encryption_info::EncryptionType;
use admin_v2::restore_table_request::Source;
use admin_v2::table::{AutomatedBackupConfig, AutomatedBackupPolicy};
use googleapis_tonic_google_bigtable_admin_v2::google::iam::v1 as iam;
use googleapis_tonic_google_bigtable_admin_v2::google::longrunning;
use prost_types::Timestamp;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tonic::Code;

const CLUSTER: &str = "projects/p/instances/i/clusters/c";

fn in_an_hour() -> Option<Timestamp> {
    in_hours(1)
}

fn in_hours(hours: i64) -> Option<Timestamp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Some(Timestamp { seconds: i64::try_from(now).unwrap() + 3_600 * hours, nanos: 0 })
}

fn create(id: &str) -> admin_v2::CreateBackupRequest {
    let backup =
        admin_v2::Backup { source_table: TABLE.into(), expire_time: in_an_hour(), ..Default::default() };
    admin_v2::CreateBackupRequest { parent: CLUSTER.into(), backup_id: id.into(), backup: Some(backup) }
}

fn restore(id: &str, table: &str) -> admin_v2::RestoreTableRequest {
    let source = Some(Source::Backup(format!("{CLUSTER}/backups/{id}")));
    admin_v2::RestoreTableRequest { parent: INSTANCE.into(), table_id: table.into(), source }
}

fn delete(id: &str) -> admin_v2::DeleteBackupRequest {
    admin_v2::DeleteBackupRequest { name: format!("{CLUSTER}/backups/{id}") }
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir)
        .map_or(0, |files| files.filter(|file| file.as_ref().unwrap().file_name() != "LOCK").count())
}

async fn ids(t: &mut Fixture) -> Vec<String> {
    let request = admin_v2::ListBackupsRequest { parent: CLUSTER.into(), ..Default::default() };
    let backups = t.admin.list_backups(request).await.unwrap().into_inner().backups;
    backups.iter().map(|backup| backup.name.rsplit('/').next().unwrap().to_string()).collect()
}

async fn read_table(t: &mut Fixture, table: &str) -> String {
    t.read_from(&format!("{INSTANCE}/tables/{table}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_the_table_as_it_was_and_becomes_a_table_of_its_own() {
    let mut t = Fixture::new().await;
    let gc = admin_v2::GcRule { rule: Some(admin_v2::gc_rule::Rule::MaxNumVersions(1)) };
    t.table_with(&[
        ("f", admin_v2::ColumnFamily { gc_rule: Some(gc), ..Default::default() }),
        ("g", admin_v2::ColumnFamily::default()),
    ])
    .await;
    for n in 0..100 {
        let cells = vec![set("f", "q", 1_000, format!("{n}")), set("g", "q", 1_000, "x")];
        t.mutate(&format!("r{n:03}"), cells).await.unwrap();
    }
    // Regions, tables and memory.
    t.server.split(TABLE, b"r050").await.unwrap();
    t.server.compact(TABLE).await.unwrap();
    t.mutate("r000", vec![set("f", "q", 2_000, "newer")]).await.unwrap();
    let before = t.read_all().await;
    let operation = t.admin.create_backup(create("one")).await.unwrap().into_inner();
    assert!(operation.done && operation.metadata.is_some());
    t.mutate("r000", vec![set("f", "q", 3_000, "after")]).await.unwrap();
    refused(t.admin.create_backup(create("one")).await, Code::AlreadyExists, "one");
    refused(t.admin.create_backup(create("a b")).await, Code::InvalidArgument, "backups/BACKUP");
    let now = t.read_all().await;
    refused(t.admin.restore_table(restore("one", "t")).await, Code::AlreadyExists, "tables/t");
    refused(t.admin.restore_table(restore("none", "u")).await, Code::NotFound, "none");
    t.admin.restore_table(restore("one", "u")).await.unwrap();
    assert_eq!((read_table(&mut t, "u").await, t.read_all().await), (before.clone(), now.clone()));
    // Rules, regions and rows are the new table's own.
    let regions = t.server.regions(&format!("{INSTANCE}/tables/u")).unwrap();
    assert_eq!(regions, [b"".to_vec(), b"r050".to_vec()]);
    let request = admin_v2::DeleteTableRequest { name: TABLE.into() };
    t.admin.delete_table(request).await.unwrap();
    let mut t = t.again().await;
    assert_eq!(read_table(&mut t, "u").await, before);
    t.admin.restore_table(restore("one", "t")).await.unwrap();
    assert_eq!(t.read_all().await, before);
    t.mutate("r000", vec![set("f", "q", 9_000, "newest")]).await.unwrap();
    assert!(t.read_all().await.starts_with("r000 f:q@9000=newest g:q@1000=x\n"));
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_backup_go_with_its_last_copy_and_what_was_left_half_made_at_the_next_start() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    t.mutate("r", vec![set("f", "q", 1_000, "v")]).await.unwrap();
    t.admin.create_backup(create("one")).await.unwrap();
    let dir = t.dir.path().join("data-backups");
    let made = files(&dir);
    let copy = admin_v2::CopyBackupRequest {
        parent: CLUSTER.into(),
        backup_id: "two".into(),
        source_backup: format!("{CLUSTER}/backups/one"),
        expire_time: in_an_hour(),
    };
    t.admin.copy_backup(copy).await.unwrap();
    assert_eq!((ids(&mut t).await, files(&dir)), (vec!["one".into(), "two".into()], made));
    t.admin.delete_backup(delete("one")).await.unwrap();
    refused(t.admin.delete_backup(delete("one")).await, Code::NotFound, "one");
    assert_eq!((ids(&mut t).await, files(&dir)), (vec!["two".into()], made));
    let name = format!("{CLUSTER}/backups/two");
    let asked = t.admin.get_backup(admin_v2::GetBackupRequest { name }).await.unwrap().into_inner();
    assert_eq!((asked.source_table.as_str(), asked.source_backup.ends_with("/one")), (TABLE, true));
    assert!(asked.size_bytes > 0 && asked.state == admin_v2::backup::State::Ready as i32);
    // As a crash between the files and the record, and one in the midst of restoring, leave it.
    let (data, restoring) = (t.dir.path().join("data"), t.dir.path().join("data-restoring"));
    let Fixture { server, dir: place, data: client, admin } = t;
    drop((client, admin));
    server.stop().await.unwrap();
    let db = siltstone::Db::open(&data).unwrap();
    // Somebody else's: nobody noted that it is to go.
    let other = db.backup(&dir).unwrap().id;
    db.family("tables").unwrap().put("making-backup", other.to_be_bytes()).unwrap();
    let half = db.backup(&dir).unwrap().id;
    db.close().unwrap();
    std::fs::create_dir_all(restoring.join("whole")).unwrap();
    std::fs::write(restoring.join("SILTSTONE-RESTORING"), "").unwrap();
    let ids = || -> Vec<u64> {
        let all = siltstone::Backups::new(&siltstone::storage::Env::local(), &dir).list().unwrap();
        all.iter().map(|made| made.id).collect()
    };
    assert_eq!(ids(), [1, other, half]);
    let mut t = Fixture::at(place).await;
    assert_eq!((ids(), restoring.exists()), (vec![1, other], false));
    t.admin.restore_table(restore("two", "u")).await.unwrap();
    assert_eq!(read_table(&mut t, "u").await, "r f:q@1000=v");
    t.admin.delete_backup(delete("two")).await.unwrap();
    assert_eq!(ids(), [other]);
    refused(t.admin.restore_table(restore("two", "v")).await, Code::NotFound, "two");
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_damaged_is_refused_or_its_damage_told_by_who_reads_it() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let mut random = 1u64;
    for n in 0..40 {
        let value: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.to_be_bytes()[0]
        })
        .take(20_000)
        .collect();
        t.mutate(&format!("r{n:02}"), vec![set("f", "q", 1_000, value)]).await.unwrap();
    }
    t.server.compact(TABLE).await.unwrap();
    t.admin.create_backup(create("one")).await.unwrap();
    let dir = t.dir.path().join("data-backups");
    let table = tables(&dir).max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let bytes = std::fs::read(&table).unwrap();
    // Blocks are not read before somebody asks for their rows.
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    std::fs::write(&table, flipped).unwrap();
    t.admin.restore_table(restore("one", "u")).await.unwrap();
    let of = |table: &str| data_v2::ReadRowsRequest {
        table_name: format!("{INSTANCE}/tables/{table}"),
        ..Default::default()
    };
    refused(t.read(of("u")).await, Code::DataLoss, "");
    assert!(t.read(of("t")).await.is_ok());
    // A name of its own: what is written here is the restored table's, too.
    std::fs::remove_file(&table).unwrap();
    std::fs::write(&table, &bytes[..bytes.len() - 1]).unwrap();
    let word = table.file_name().unwrap().to_string_lossy().into_owned();
    refused(t.admin.restore_table(restore("one", "v")).await, Code::DataLoss, &word);
    let list = admin_v2::ListTablesRequest { parent: INSTANCE.into(), ..Default::default() };
    assert_eq!(t.admin.list_tables(list).await.unwrap().into_inner().tables.len(), 2);
    assert!(!t.dir.path().join("data-restoring").exists());
    t.server.stop().await.unwrap();
}

fn tables(dir: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "table"))
}

/// What the file system calls the files of the tables in a directory. One may go meanwhile.
fn inodes(dir: &Path) -> BTreeSet<u64> {
    tables(dir).filter_map(|path| Some(path.metadata().ok()?.ino())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_table_shares_the_files_of_its_backup_until_it_is_dropped() {
    let at_once = |config: &mut siltstone_server::Config| config.undelete_hours = 0;
    let mut t = Fixture::with(at_once).await;
    t.table(&["f", "g"]).await;
    for n in 0..50 {
        let cells = vec![set("f", "q", 1_000, format!("{n}")), set("g", "q", 1_000, "x")];
        t.mutate(&format!("r{n:02}"), cells).await.unwrap();
    }
    t.server.compact(TABLE).await.unwrap();
    let expected = t.read_all().await;
    t.admin.create_backup(create("one")).await.unwrap();
    let (backups, data) = (t.dir.path().join("data-backups"), t.dir.path().join("data"));
    let shared = inodes(&backups);
    assert!(shared.len() >= 2 && shared.is_disjoint(&inodes(&data)));
    t.admin.restore_table(restore("one", "u")).await.unwrap();
    t.admin.restore_table(restore("one", "v")).await.unwrap();
    assert!(shared.is_subset(&inodes(&data)), "no table was copied");
    let drop_table = |table: &str| {
        let name = format!("{INSTANCE}/tables/{table}");
        admin_v2::DeleteTableRequest { name }
    };
    t.admin.delete_table(drop_table("u")).await.unwrap();
    assert_eq!((inodes(&backups), read_table(&mut t, "v").await), (shared.clone(), expected.clone()));
    t.admin.delete_backup(delete("one")).await.unwrap();
    assert_eq!((inodes(&backups).len(), read_table(&mut t, "v").await), (0, expected.clone()));
    let mut t = t.again_with(at_once).await;
    assert_eq!(read_table(&mut t, "v").await, expected);
    assert!(shared.is_subset(&inodes(&data)));
    t.admin.delete_table(drop_table("v")).await.unwrap();
    let began = std::time::Instant::now();
    while !shared.is_disjoint(&inodes(&data)) {
        assert!(began.elapsed().as_secs() < 30, "nobody has these tables any more");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(t.read_all().await, expected);
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_a_time_in_the_future_to_expire_at() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let mut past = create("one");
    past.backup.as_mut().unwrap().expire_time = Some(Timestamp { seconds: 1, nanos: 0 });
    refused(t.admin.create_backup(past).await, Code::InvalidArgument, "future");
    let mut late = create("one");
    late.backup.as_mut().unwrap().expire_time = in_hours(91 * 24);
    refused(t.admin.create_backup(late).await, Code::InvalidArgument, "expire_time is more than 90 days");
    t.admin.create_backup(create("one")).await.unwrap();
    let mut backup = admin_v2::Backup { name: format!("{CLUSTER}/backups/one"), ..Default::default() };
    let update = |backup: &admin_v2::Backup| admin_v2::UpdateBackupRequest {
        backup: Some(backup.clone()),
        update_mask: Some(prost_types::FieldMask { paths: vec!["expire_time".into()] }),
    };
    refused(t.admin.update_backup(update(&backup)).await, Code::InvalidArgument, "expire_time");
    backup.expire_time = in_hours(91 * 24);
    refused(t.admin.update_backup(update(&backup)).await, Code::InvalidArgument, "90 days");
    backup.expire_time = in_an_hour().map(|time| Timestamp { seconds: time.seconds + 60, ..time });
    let updated = t.admin.update_backup(update(&backup)).await.unwrap().into_inner();
    assert_eq!(updated.expire_time, backup.expire_time);
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn iam_knows_a_backup_whose_table_is_gone() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    t.admin.create_backup(create("one")).await.unwrap();
    t.admin.delete_table(admin_v2::DeleteTableRequest { name: TABLE.into() }).await.unwrap();
    let permissions = vec!["bigtable.backups.restore".to_string()];
    for (id, expected) in [("one", permissions.clone()), ("none", Vec::new())] {
        let (resource, permissions) = (named(id), permissions.clone());
        let request = iam::TestIamPermissionsRequest { resource, permissions };
        let has = t.admin.test_iam_permissions(request).await.unwrap().into_inner();
        assert_eq!(has.permissions, expected, "{id}");
    }
    let get = |id: &str| iam::GetIamPolicyRequest { resource: named(id), options: None };
    assert!(!t.admin.get_iam_policy(get("one")).await.unwrap().into_inner().bindings.is_empty());
    refused(t.admin.get_iam_policy(get("none")).await, Code::NotFound, "none");
    t.server.stop().await.unwrap();
}

fn named(id: &str) -> String {
    format!("{CLUSTER}/backups/{id}")
}

async fn get_backup(t: &mut Fixture, id: &str) -> admin_v2::Backup {
    t.admin.get_backup(admin_v2::GetBackupRequest { name: named(id) }).await.unwrap().into_inner()
}

/// What became of an operation.
fn response(operation: &longrunning::Operation) -> admin_v2::Backup {
    use prost::Message;
    match &operation.result {
        Some(longrunning::operation::Result::Response(any)) => {
            admin_v2::Backup::decode(&any.value[..]).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_backup_that_is_answered_says_how_it_is_encrypted() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let created = response(&t.admin.create_backup(create("one")).await.unwrap().into_inner());
    let copy = admin_v2::CopyBackupRequest {
        parent: CLUSTER.into(),
        backup_id: "two".into(),
        source_backup: named("one"),
        expire_time: in_an_hour(),
    };
    let copied = response(&t.admin.copy_backup(copy).await.unwrap().into_inner());
    let update = admin_v2::UpdateBackupRequest {
        backup: Some(admin_v2::Backup { name: named("one"), expire_time: in_hours(2), ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["expire_time".into()] }),
    };
    let updated = t.admin.update_backup(update).await.unwrap().into_inner();
    let request = admin_v2::ListBackupsRequest { parent: CLUSTER.into(), ..Default::default() };
    let mut all = t.admin.list_backups(request).await.unwrap().into_inner().backups;
    all.extend([created, copied, updated, get_backup(&mut t, "one").await]);
    assert_eq!(all.len(), 6);
    for backup in all {
        let encryption = backup.encryption_info.unwrap();
        assert_eq!(encryption.encryption_type(), EncryptionType::GoogleDefaultEncryption, "{}", backup.name);
    }
    // And so does the table, where it is asked for that.
    for (view, expected) in [
        (admin_v2::table::View::EncryptionView, 1),
        (admin_v2::table::View::Full, 1),
        (admin_v2::table::View::ReplicationView, 0),
    ] {
        let request = admin_v2::GetTableRequest { name: TABLE.into(), view: view as i32 };
        let table = t.admin.get_table(request).await.unwrap().into_inner();
        let state = table.cluster_states.values().next().unwrap();
        assert_eq!(state.encryption_info.len(), expected, "{view:?}");
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_backups_have_filters_orders_and_pages() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    for id in ["b1", "b2", "b3"] {
        t.admin.create_backup(create(id)).await.unwrap();
    }
    let request = |filter: &str, order_by: &str, page_token: &str| admin_v2::ListBackupsRequest {
        parent: "projects/p/instances/i/clusters/-".into(),
        filter: filter.into(),
        order_by: order_by.into(),
        page_size: 2,
        page_token: page_token.into(),
    };
    for (filter, order_by, expected) in [
        ("", "", "b3 b2, b1"),
        ("", "name", "b1 b2, b3"),
        // As the client for Python sends it.
        (&*format!("source_table:{TABLE}"), "name desc", "b3 b2, b1"),
        (&*format!("(source_table:{TABLE}) AND (name:\"b2\")"), "", "b2"),
        ("state:CREATING", "", ""),
        ("size_bytes > 1 AND NOT name:b3", "start_time", "b1 b2"),
    ] {
        let (mut pages, mut token) = (Vec::new(), String::new());
        loop {
            let page = t.admin.list_backups(request(filter, order_by, &token)).await.unwrap().into_inner();
            let ids = page.backups.iter().map(|backup| backup.name.rsplit('/').next().unwrap());
            pages.push(ids.collect::<Vec<_>>().join(" "));
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(pages.join(", "), expected, "{filter}, {order_by}");
    }
    for (wrong, word) in [
        (request("cluster:c", "", ""), "size_bytes"),
        (request("", "cluster", ""), "size_bytes"),
        (request("", "", "b1"), "page_token"),
    ] {
        refused(t.admin.list_backups(wrong).await, Code::InvalidArgument, word);
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_backup_stays_hot_until_its_time_which_can_be_changed_and_removed() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let hot = |id: &str, until: Option<Timestamp>| {
        let mut request = create(id);
        let backup = request.backup.as_mut().unwrap();
        (backup.backup_type, backup.hot_to_standard_time) = (BackupType::Hot as i32, until);
        request
    };
    let in_two_days = in_hours(48);
    t.admin.create_backup(hot("until", in_two_days)).await.unwrap();
    t.admin.create_backup(hot("hot", None)).await.unwrap();
    t.admin.create_backup(create("standard")).await.unwrap();
    refused(t.admin.create_backup(hot("soon", in_hours(23))).await, Code::InvalidArgument, "24 hours");
    let mut wrong = create("wrong");
    wrong.backup.as_mut().unwrap().hot_to_standard_time = in_two_days;
    refused(t.admin.create_backup(wrong.clone()).await, Code::InvalidArgument, "hot_to_standard_time");
    wrong.backup.as_mut().unwrap().backup_type = 9;
    refused(t.admin.create_backup(wrong).await, Code::InvalidArgument, "backup_type 9");
    let mut t = t.again().await;
    for (id, kind, until) in [
        ("until", BackupType::Hot, in_two_days),
        ("hot", BackupType::Hot, None),
        ("standard", BackupType::Standard, None),
    ] {
        let backup = get_backup(&mut t, id).await;
        assert_eq!((backup.backup_type(), backup.hot_to_standard_time), (kind, until), "{id}");
    }
    let update = |id: &str, until: Option<Timestamp>, paths: &[&str]| admin_v2::UpdateBackupRequest {
        backup: Some(admin_v2::Backup {
            name: named(id),
            hot_to_standard_time: until,
            expire_time: in_hours(3),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: paths.iter().map(|path| (*path).to_string()).collect(),
        }),
    };
    let of_time = &["hot_to_standard_time"][..];
    let removed = t.admin.update_backup(update("until", None, of_time)).await.unwrap().into_inner();
    assert_eq!((removed.backup_type(), removed.hot_to_standard_time), (BackupType::Hot, None));
    assert_eq!(removed.expire_time, get_backup(&mut t, "until").await.expire_time);
    let later = in_hours(120);
    let both = &["hot_to_standard_time", "expire_time"][..];
    let set = t.admin.update_backup(update("until", later, both)).await.unwrap().into_inner();
    assert_eq!((set.backup_type(), set.hot_to_standard_time), (BackupType::Hot, later));
    assert_eq!(get_backup(&mut t, "until").await, set);
    for (wrong, word) in [
        (update("until", in_hours(1), of_time), "24 hours"),
        (update("standard", later, of_time), "hot_to_standard_time"),
        (update("until", later, &[]), "update_mask"),
        (update("until", later, &["size_bytes"]), "size_bytes"),
    ] {
        refused(t.admin.update_backup(wrong).await, Code::InvalidArgument, word);
    }
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_automated_backups_is_kept_changed_removed_and_acted_on() {
    const DAY: i64 = 86_400;
    let mut t = Fixture::new().await;
    let days = |days: i64| Some(prost_types::Duration { seconds: days * DAY, nanos: 0 });
    let policy = |retention_period, frequency| {
        let policy = AutomatedBackupPolicy { retention_period, frequency, ..Default::default() };
        Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy))
    };
    let create_table = |automated_backup_config| admin_v2::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "t".into(),
        table: Some(admin_v2::Table { automated_backup_config, ..Default::default() }),
        ..Default::default()
    };
    refused(
        t.admin.create_table(create_table(policy(days(1), None))).await,
        Code::InvalidArgument,
        "automated_backup_policy.retention_period",
    );
    t.admin.create_table(create_table(policy(days(3), None))).await.unwrap();
    let mut t = t.again().await;
    let get = || admin_v2::GetTableRequest { name: TABLE.into(), ..Default::default() };
    let found = t.admin.get_table(get()).await.unwrap().into_inner();
    assert_eq!(found.automated_backup_config, policy(days(3), days(1)));
    let update = |automated_backup_config, path: &str| admin_v2::UpdateTableRequest {
        table: Some(admin_v2::Table { name: TABLE.into(), automated_backup_config, ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec![path.into()] }),
        ..Default::default()
    };
    for (asked, path, expected) in [
        (policy(None, days(1)), "automated_backup_policy.frequency", days(3)),
        (policy(days(7), None), "automated_backup_policy.retention_period", days(7)),
        (policy(days(4), days(1)), "automated_backup_policy", days(4)),
    ] {
        t.admin.update_table(update(asked, path)).await.unwrap();
        let found = t.admin.get_table(get()).await.unwrap().into_inner();
        assert_eq!(found.automated_backup_config, policy(expected, days(1)), "{path}");
    }
    let wrong = update(policy(days(4), days(2)), "automated_backup_policy.frequency");
    refused(t.admin.update_table(wrong).await, Code::InvalidArgument, "automated_backup_policy.frequency");
    // The server itself may have made the first by now.
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    t.server.tend_backups(now).await.unwrap();
    let request = admin_v2::ListBackupsRequest {
        parent: format!("{INSTANCE}/clusters/siltstone"),
        filter: "name:auto.t. AND source_table = t".into(),
        ..Default::default()
    };
    let backups = t.admin.list_backups(request.clone()).await.unwrap().into_inner().backups;
    assert_eq!(backups.len(), 1);
    t.admin.update_table(update(None, "automated_backup_policy")).await.unwrap();
    let found = t.admin.get_table(get()).await.unwrap().into_inner();
    assert_eq!(found.automated_backup_config, None);
    let later = now + 5 * u64::try_from(DAY).unwrap() * 1_000_000;
    t.server.tend_backups(later).await.unwrap();
    assert!(t.admin.list_backups(request).await.unwrap().into_inner().backups.is_empty(), "kept too long");
    t.server.stop().await.unwrap();
}
