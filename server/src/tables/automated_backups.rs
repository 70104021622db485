//! Backups that the server makes by itself: of tables with a policy, one a day, each kept as long as the
//! policy says.
//!
//! A table's first backup is due when its policy is set, the next ones a day after the one before was due.
//! When the last one was due is a record that is written in one batch with the backup's: so none is made
//! twice or left out, wherever the server ends. What came due while no server ran is made once.

use crate::names;
use crate::status::status;
use crate::tables::backup_policy::Policy;
use crate::tables::backup_records::NewBackup;
use crate::tables::instance_set;
use crate::tables::layout::Table;
use crate::tables::registry::Tables;
use crate::time::timestamp;
use sha2::{Digest, Sha256};
use siltstone::{Batch, Durability};
use std::collections::BTreeSet;
use tonic::Status;

/// The prefix of records of when a table's last backup was due; then its id.
const LAST: &[u8] = b"automated-backup/";
/// Characters of a table's id in the ids of its backups, at most.
const ID_MAX: usize = 24;

/// The name of a backup of a table, with an id as the service makes them: `auto.TABLE.HASH.DATE-TIME`.
fn backup_name(cluster: &str, table: &str, id: u64, now_us: u64) -> String {
    const SIGNS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let (instance, table_id) = table.split_once("/tables/").unwrap_or((table, ""));
    let begin: String = table_id.chars().take(ID_MAX).collect();
    let digest = Sha256::digest(format!("{table} {id}"));
    let hash: String = digest[..4].iter().map(|byte| char::from(SIGNS[usize::from(*byte) % 36])).collect();
    let at: String = timestamp(now_us).to_string().chars().filter(char::is_ascii_digit).take(14).collect();
    let (date, time) = at.split_at_checked(8).unwrap_or((at.as_str(), ""));
    format!("{instance}/clusters/{cluster}/backups/auto.{begin}.{hash}.{date}-{time}")
}

fn last_key(table: u64) -> Vec<u8> {
    [LAST, &table.to_be_bytes()].concat()
}

/// When the newest backup of a table was due that is due now, with the policy, if it has one and the backup
/// was not made.
fn due_of(tables: &Tables, table: &Table, now_us: u64) -> Result<Option<(Policy, u64)>, Status> {
    let layout = table.now();
    let Some(policy) = &layout.schema.automated_backups else { return Ok(None) };
    let last = tables.records.get(last_key(layout.schema.id)).map_err(status)?;
    let last = last.and_then(|last| last[..].try_into().ok().map(u64::from_be_bytes));
    Ok(policy.due(last, now_us).map(|due| (policy.clone(), due)))
}

fn make(tables: &Tables, name: &str, table: &Table, now_us: u64) -> Result<(), Status> {
    if due_of(tables, table, now_us)?.is_none() {
        return Ok(());
    }
    let _alone = tables.alone()?;
    // Again, now that nobody else makes one.
    let Some((policy, due)) = due_of(tables, table, now_us)? else { return Ok(()) };
    let id = table.now().schema.id;
    let cluster = instance_set::first_cluster(tables, names::instance_of(name))?;
    let backup = backup_name(&cluster, name, id, now_us);
    let expire_us = now_us.saturating_add(policy.retention_us);
    let new = NewBackup { expire_us, hot: false, hot_until_us: None };
    let mut with = Batch::new();
    with.put(&tables.records, last_key(id), due.to_be_bytes());
    tables.create_backup_alone(&backup, name, &new, with)?;
    tracing::info!(backup, "made by the table's policy");
    Ok(())
}

/// Makes the backups that are due. Failed ones are tried again at the next check.
pub(crate) fn make_due(tables: &Tables, now_us: u64) -> Result<(), Status> {
    let all = tables.all();
    for (name, table) in all.iter() {
        if let Err(error) = make(tables, name, table, now_us) {
            tracing::warn!(table = name, error = error.message(), "a backup that is due was not made");
        }
    }
    // Of tables that are no more.
    let ids: BTreeSet<u64> = all.values().map(|table| table.now().schema.id).collect();
    let mut gone = Batch::new();
    for key in tables.notes(LAST)? {
        let id = key[..].try_into().map(u64::from_be_bytes);
        if !id.is_ok_and(|id| ids.contains(&id)) {
            gone.delete(&tables.records, [LAST, &key].concat());
        }
    }
    match gone.is_empty() {
        true => Ok(()),
        false => tables.db.write_with(&gone, Durability::Sync).map(|_| ()).map_err(status),
    }
}

impl Tables {
    /// Does what is due at that time: removes what is left of changes that came to no end, deletes backups
    /// whose time is over, and makes those that tables are to have by their policies.
    pub(crate) fn tend_backups(&self, now_us: u64) -> Result<(), Status> {
        if let Some(_alone) = self.backing_up.try_lock()
            && let Err(error) = self.clean_if_left()
        {
            tracing::warn!(error = error.message(), "what is left of changes of backups stays for now");
        }
        self.drop_expired_backups(now_us)?;
        make_due(self, now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::net::auth::Who;
    use crate::proto::admin;
    use crate::proto::admin::table::{AutomatedBackupConfig, AutomatedBackupPolicy};
    use crate::tables::schema;
    use siltstone::Backups;
    use siltstone::storage::Env;
    use std::path::Path;

    const TABLE: &str = "projects/p/instances/i/tables/t";
    const DAY_US: u64 = 86_400_000_000;

    fn kept_for_three_days() -> admin::Table {
        let retention_period = Some(prost_types::Duration { seconds: 3 * 86_400, nanos: 0 });
        let policy = AutomatedBackupPolicy { retention_period, ..Default::default() };
        admin::Table {
            automated_backup_config: Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)),
            ..Default::default()
        }
    }

    #[test]
    fn names_are_as_the_services() {
        let at = 1_676_904_937_000_000;
        let name = backup_name("c", "projects/p/instances/i/tables/my-table", 7, at);
        let id = name.strip_prefix("projects/p/instances/i/clusters/c/backups/auto.my-table.").unwrap();
        assert!(id.len() == 20 && id.ends_with(".20230220-145537"), "{name}");
        let long = format!("projects/p/instances/i/tables/{}", "x".repeat(50));
        assert_eq!(names::backup(&backup_name("c", &long, 7, at)).unwrap(), backup_name("c", &long, 7, at));
        assert_ne!(backup_name("c", &long, 7, at), backup_name("c", &long, 8, at));
    }

    fn open(dir: &Path) -> Tables {
        let config = Config { dir: dir.join("data"), ..Config::default() };
        let db = schema::builder(config.options()).open(&config.dir).unwrap();
        Tables::open(db, config.store_settings(), config.directories()).unwrap()
    }

    fn close(tables: Tables) {
        tables.db.close().unwrap();
        drop(tables);
    }

    fn made(tables: &Tables) -> Vec<String> {
        let id = |name: &str| name.rsplit('/').next().unwrap().to_string();
        tables.backups("", |_| true).unwrap().iter().map(|(name, _)| id(name)).collect()
    }

    fn engine_backups(dir: &Path) -> Vec<u64> {
        let all = Backups::new(&Env::local(), dir.join("data-backups")).list().unwrap();
        all.iter().map(|made| made.id).collect()
    }

    #[test]
    fn the_server_makes_backups_on_the_schedule_and_drops_them_by_their_retention() {
        let dir = tempfile::tempdir().unwrap();
        let tables = open(dir.path());
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        let asked = admin::Table { column_families: families, ..kept_for_three_days() };
        tables.create(TABLE, &asked, &[""; 0]).unwrap();
        let now = crate::time::now_us();
        tables.tend_backups(now).unwrap();
        tables.tend_backups(now + DAY_US / 2).unwrap();
        assert_eq!(made(&tables).len(), 1, "{:?}", made(&tables));
        assert!(made(&tables)[0].starts_with("auto.t."), "{:?}", made(&tables));
        // The schema of a backup has no policy.
        let first = tables.backups("", |_| true).unwrap().remove(0).0;
        assert_eq!(tables.backup(&first, &Who::ANYONE).unwrap().schema.automated_backups, None);
        // Down for two days.
        close(tables);
        let tables = open(dir.path());
        tables.tend_backups(now + 2 * DAY_US + 1).unwrap();
        tables.tend_backups(now + 2 * DAY_US + 2).unwrap();
        assert_eq!(made(&tables).len(), 2, "what was missed is made once");
        // One that is deleted is not made again.
        let newest = tables.backups("", |_| true).unwrap().pop().unwrap().0;
        tables.delete_backup(&newest, &Who::ANYONE).unwrap();
        tables.tend_backups(now + 2 * DAY_US + 3).unwrap();
        assert_eq!(made(&tables).len(), 1);
        // Three days later the first is gone by its retention, and a new one there.
        tables.tend_backups(now + 3 * DAY_US + 1).unwrap();
        assert_eq!((made(&tables).len(), engine_backups(dir.path()).len()), (1, 1));
        tables
            .alter(TABLE, |schema| {
                schema.automated_backups = None;
                Ok(())
            })
            .unwrap();
        tables.tend_backups(now + 9 * DAY_US).unwrap();
        assert_eq!((made(&tables).len(), engine_backups(dir.path()).len()), (0, 0));
        tables.delete(TABLE).unwrap();
        tables.tend_backups(now + 10 * DAY_US).unwrap();
        assert!(tables.notes(LAST).unwrap().is_empty(), "nothing is kept of a table that is gone");
        close(tables);
    }

    #[test]
    fn wherever_the_server_is_killed_a_backup_that_is_due_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let (now, backups) = (crate::time::now_us(), dir.path().join("data-backups"));
        let tables = open(dir.path());
        tables.create(TABLE, &kept_for_three_days(), &[""; 0]).unwrap();
        let note = |tables: &Tables, last: u64| {
            tables.records.put("making-backup", last.to_be_bytes()).unwrap();
        };
        // Behind the note.
        note(&tables, 0);
        close(tables);
        let tables = open(dir.path());
        assert!(engine_backups(dir.path()).is_empty());
        // Behind the engine's backup.
        note(&tables, 0);
        tables.db.backup_families(&backups, &|_| true, &mut |_| {}).unwrap();
        close(tables);
        let tables = open(dir.path());
        assert!(engine_backups(dir.path()).is_empty(), "what no record names is removed");
        tables.tend_backups(now).unwrap();
        assert_eq!((made(&tables).len(), engine_backups(dir.path()).len()), (1, 1));
        // Behind the record, with which the note goes.
        assert!(tables.notes(b"making-backup").unwrap().is_empty());
        close(tables);
        let tables = open(dir.path());
        tables.tend_backups(now + 1).unwrap();
        assert_eq!((made(&tables).len(), engine_backups(dir.path()).len()), (1, 1));
        close(tables);
    }
}
