//! Backups that the server makes by itself: of tables with a policy, one a day, each kept as long as the policy says.
//!
//! A table's first backup is due when its policy is set, the next ones a day after the one before was due. When the last one was due
//! is a record that is written in one batch with the backup's: so none is made twice or left out, wherever the server ends. What
//! came due while no server ran is made once.

use crate::names;
use crate::proto::admin;
use crate::proto::admin::table::{AutomatedBackupConfig, AutomatedBackupPolicy};
use crate::status::status;
use crate::tables::backup_records::NewBackup;
use crate::tables::instance_set;
use crate::tables::registry::{Table, Tables};
use crate::time::{duration, timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use siltstone::{Batch, Durability};
use std::collections::BTreeSet;
use tonic::Status;

/// What the records begin with of when a table's last backup was due; then its id.
const LAST: &[u8] = b"automated-backup/";
/// The path of the policy in an update of a table, and what stands before the paths of its fields.
const PATH: &str = "automated_backup_policy";
const RETENTION: &str = "automated_backup_policy.retention_period";
const FREQUENCY: &str = "automated_backup_policy.frequency";

const DAY_US: u64 = 24 * 3_600 * 1_000_000;
/// How often there is one.
const EVERY_US: u64 = DAY_US;
/// How many days one may be kept.
const DAYS_MIN: u64 = 3;
const DAYS_MAX: u64 = 90;
/// Characters of a table's id in the ids of its backups, at most.
const ID_MAX: usize = 24;

/// Which backups are made of a table, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    retention_us: u64,
    /// Since when it has one.
    since_us: u64,
}

impl Policy {
    fn from_message(asked: &AutomatedBackupPolicy, since_us: u64) -> Result<Self, Status> {
        if !asked.locations.is_empty() {
            return Err(Status::unimplemented(format!("{PATH}.locations: there is one location")));
        }
        let us = |time: &prost_types::Duration| crate::time::micros(time.seconds, time.nanos);
        if asked.frequency.as_ref().is_some_and(|every| us(every) != Some(EVERY_US)) {
            return Err(Status::invalid_argument(format!("{FREQUENCY} must be 24 hours")));
        }
        let kept = DAYS_MIN * DAY_US..=DAYS_MAX * DAY_US;
        match asked.retention_period.as_ref().and_then(us).filter(|retention| kept.contains(retention)) {
            Some(retention_us) => Ok(Self { retention_us, since_us }),
            None => {
                let message = format!("{RETENTION} must be from {DAYS_MIN} to {DAYS_MAX} days");
                Err(Status::invalid_argument(message))
            }
        }
    }

    fn message(&self) -> AutomatedBackupPolicy {
        AutomatedBackupPolicy {
            retention_period: Some(duration(self.retention_us)),
            frequency: Some(duration(EVERY_US)),
            locations: Vec::new(),
        }
    }

    pub(crate) fn to_message(&self) -> AutomatedBackupConfig {
        AutomatedBackupConfig::AutomatedBackupPolicy(self.message())
    }

    /// When the newest backup was due that is due now, if it was not made.
    fn due(&self, last_us: Option<u64>, now_us: u64) -> Option<u64> {
        // A clock that was years ahead and is right now must not stop backups for years.
        let last = last_us.filter(|last| *last <= now_us.saturating_add(EVERY_US));
        let first = last.map_or(self.since_us.min(now_us), |last| last.saturating_add(EVERY_US));
        let late = now_us.checked_sub(first)?;
        Some(first + late / EVERY_US * EVERY_US)
    }
}

fn asked_of(table: &admin::Table) -> Option<&AutomatedBackupPolicy> {
    table.automated_backup_config.as_ref().map(|AutomatedBackupConfig::AutomatedBackupPolicy(policy)| policy)
}

/// The policy of a table that is to be created.
pub(crate) fn of_new(table: &admin::Table) -> Result<Option<Policy>, Status> {
    asked_of(table).map(|asked| Policy::from_message(asked, crate::time::now_us())).transpose()
}

/// Whether a path in an update of a table is of its policy.
pub(crate) fn is_path(path: &str) -> bool {
    [PATH, RETENTION, FREQUENCY].contains(&path)
}

/// The policy after an update that names these paths: all of it, some fields, or none where it is removed.
pub(crate) fn updated(
    before: Option<&Policy>,
    table: &admin::Table,
    paths: &[String],
) -> Result<Option<Policy>, Status> {
    let names = |name: &str| paths.iter().any(|path| path == name);
    let asked = asked_of(table);
    let since_us = before.map_or_else(crate::time::now_us, |before| before.since_us);
    let mut policy = match (names(PATH), asked) {
        (true, None) => return Ok(None),
        (true, Some(asked)) => asked.clone(),
        (false, _) => before.map(Policy::message).unwrap_or_default(),
    };
    let asked = asked.cloned().unwrap_or_default();
    if names(RETENTION) {
        policy.retention_period = asked.retention_period;
    }
    if names(FREQUENCY) {
        policy.frequency = asked.frequency;
    }
    Policy::from_message(&policy, since_us).map(Some)
}

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

/// When the newest backup of a table was due that is due now, with the policy, if it has one and the backup was not made.
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

/// Makes the backups that are due. What fails is tried again at the next look.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::net::auth::Who;
    use crate::tables::schema;
    use siltstone::Backups;
    use siltstone::storage::Env;
    use std::path::Path;

    const TABLE: &str = "projects/p/instances/i/tables/t";

    fn days(days: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds: days * 86_400, nanos: 0 })
    }

    fn table(
        retention: Option<prost_types::Duration>,
        frequency: Option<prost_types::Duration>,
    ) -> admin::Table {
        let policy = AutomatedBackupPolicy { retention_period: retention, frequency, locations: Vec::new() };
        admin::Table {
            automated_backup_config: Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)),
            ..Default::default()
        }
    }

    #[test]
    fn a_policy_is_set_changed_by_field_and_removed_and_wrong_ones_are_refused_by_name() {
        let set = of_new(&table(days(3), None)).unwrap().unwrap();
        assert_eq!((set.message().retention_period, set.message().frequency), (days(3), days(1)));
        let update = |table: &admin::Table, path: &str| updated(Some(&set), table, &[path.to_string()]);
        assert_eq!(update(&table(None, days(1)), FREQUENCY).unwrap().unwrap(), set);
        let longer = update(&table(days(90), days(7)), RETENTION).unwrap().unwrap();
        assert_eq!((longer.message().retention_period, longer.since_us), (days(90), set.since_us));
        assert_eq!(update(&admin::Table::default(), PATH).unwrap(), None);
        let mut elsewhere = table(days(3), None);
        if let Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)) =
            &mut elsewhere.automated_backup_config
        {
            policy.locations.push("projects/p/locations/l".into());
        }
        for (wrong, field) in [
            (of_new(&table(None, days(1))), "retention_period"),
            (of_new(&table(days(2), None)), "retention_period"),
            (of_new(&table(days(91), None)), "retention_period"),
            (of_new(&table(days(-3), None)), "retention_period"),
            (of_new(&table(days(3), days(2))), "frequency"),
            (of_new(&elsewhere), "locations"),
            (updated(None, &table(None, days(1)), &[FREQUENCY.to_string()]), "retention_period"),
            (update(&admin::Table::default(), RETENTION), "retention_period"),
        ] {
            let wrong = wrong.unwrap_err();
            assert!(wrong.message().contains(field), "{wrong:?}");
        }
        assert!(is_path(PATH) && is_path(RETENTION) && is_path(FREQUENCY) && !is_path("name"));
    }

    #[test]
    fn a_backup_is_due_at_once_and_then_every_day_and_once_for_all_days_that_were_missed() {
        let policy = Policy { retention_us: 3 * DAY_US, since_us: 1_000 };
        assert_eq!(policy.due(None, 1_000), Some(1_000));
        assert_eq!(policy.due(None, 5_000 + 2 * DAY_US), Some(1_000 + 2 * DAY_US));
        assert_eq!(policy.due(Some(1_000), DAY_US), None);
        assert_eq!(policy.due(Some(1_000), DAY_US + 1_000), Some(DAY_US + 1_000));
        assert_eq!(policy.due(Some(1_000), DAY_US + 5_000), Some(DAY_US + 1_000));
        assert_eq!(policy.due(Some(1_000), 10 * DAY_US), Some(9 * DAY_US + 1_000));
        // The clock was set back: by little, nothing is made twice; by much, backups go on.
        assert_eq!(policy.due(Some(DAY_US), DAY_US - 1_000), None);
        assert_eq!(policy.due(Some(900 * DAY_US), 5 * DAY_US), Some(4 * DAY_US + 1_000));
        assert_eq!(policy.due(Some(u64::MAX), 1_000), Some(1_000));
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
        let asked = admin::Table { column_families: families, ..table(days(3), None) };
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
        tables.create(TABLE, &table(days(3), None), &[""; 0]).unwrap();
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
