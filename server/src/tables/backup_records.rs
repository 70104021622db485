//! The records of backups, and an index of all of them in memory.
//!
//! A record describes the table, which may be large. So the other fields of each are also held in memory
//! ([`BackupIndex`]), to list backups, count them and find those whose time is over.

use crate::proto::admin;
use crate::status::status;
use crate::tables::schema::{Schema, encryption};
use crate::time::timestamp;
use parking_lot::RwLock;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use siltstone::Family;
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// The prefix of backups' names among the records.
const BACKUP: &[u8] = b"backup/";
/// Backups of a table, by its name, and of all tables, at most.
const OF_TABLE_MAX: usize = 1_000;
const ALL_MAX: usize = 10_000;
/// The most bytes of all records, which are read at the first check after a start: beyond that, no more
/// backups are made.
const RECORDS_MAX: usize = 256 << 20;
/// Backups that go together when their time is over, at most.
const EXPIRED_MAX: usize = 1_000;

/// A day, which is how long a hot backup is hot at least.
const DAY_US: u64 = 24 * 3_600 * 1_000_000;
/// The longest retention of a backup.
const KEPT_MOST_US: u64 = 90 * DAY_US;

/// A backup as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backup<S = Schema> {
    /// The engine's backup.
    pub(crate) id: u64,
    /// Where that lies in the object store of backups; empty in a directory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) place: String,
    /// Full name of the table it is of.
    pub(crate) source_table: String,
    /// Full name of the backup it was copied from, or empty.
    #[serde(default)]
    pub(crate) source_backup: String,
    pub(crate) schema: S,
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
    /// When it may be deleted.
    pub(crate) expire_us: u64,
    pub(crate) bytes: u64,
    /// It was made as a hot one.
    #[serde(default)]
    pub(crate) hot: bool,
    /// When a hot one becomes a standard one; `None` for never.
    #[serde(default)]
    pub(crate) hot_until_us: Option<u64>,
}

/// A backup without what its table was like, which may be large.
pub(crate) type Head = Backup<IgnoredAny>;

/// The request of a new backup.
pub(crate) struct NewBackup {
    pub(crate) expire_us: u64,
    pub(crate) hot: bool,
    pub(crate) hot_until_us: Option<u64>,
}

impl NewBackup {
    pub(crate) fn from_message(asked: &admin::Backup) -> Result<Self, Status> {
        use admin::backup::BackupType;
        let hot = match BackupType::try_from(asked.backup_type) {
            Ok(BackupType::Hot) => true,
            Ok(BackupType::Standard | BackupType::Unspecified) => false,
            Err(_) => {
                let message = format!("backup_type {} is none: STANDARD or HOT", asked.backup_type);
                return Err(Status::invalid_argument(message));
            }
        };
        let now_us = crate::time::now_us();
        let hot_until_us = hot_until(asked.hot_to_standard_time, hot, now_us, now_us)?;
        Ok(Self { expire_us: expiry(asked.expire_time, now_us)?, hot, hot_until_us })
    }
}

/// When a backup that is made at that time expires: in the future, and not too late.
pub(crate) fn expiry(time: Option<prost_types::Timestamp>, made_us: u64) -> Result<u64, Status> {
    let time = time.ok_or_else(|| Status::invalid_argument("a backup needs an expire_time"))?;
    match crate::time::micros(time.seconds, time.nanos) {
        Some(us) if us > made_us.saturating_add(KEPT_MOST_US) => Err(too_late("expire_time")),
        Some(us) if us > crate::time::now_us() => Ok(us),
        _ => Err(Status::invalid_argument("expire_time is not in the future")),
    }
}

fn too_late(field: &str) -> Status {
    let days = KEPT_MOST_US / DAY_US;
    Status::invalid_argument(format!("{field} is more than {days} days behind the backup's creation"))
}

/// When a backup that was made then becomes a standard one; `kept_from_us` is what its latest time is counted
/// from.
fn hot_until(
    time: Option<prost_types::Timestamp>,
    is_hot: bool,
    made_us: u64,
    kept_from_us: u64,
) -> Result<Option<u64>, Status> {
    let Some(time) = time else { return Ok(None) };
    if !is_hot {
        return Err(Status::invalid_argument(
            "hot_to_standard_time is of hot backups; this is a standard one",
        ));
    }
    match crate::time::micros(time.seconds, time.nanos) {
        Some(us) if us > kept_from_us.saturating_add(KEPT_MOST_US) => Err(too_late("hot_to_standard_time")),
        Some(us) if us >= made_us.saturating_add(DAY_US) => Ok(Some(us)),
        _ => {
            let message = "hot_to_standard_time must be at least 24 hours behind the backup's creation";
            Err(Status::invalid_argument(message))
        }
    }
}

impl<S> Backup<S> {
    /// The backup without what its table was like.
    pub(crate) fn head(&self) -> Head {
        Backup {
            id: self.id,
            place: self.place.clone(),
            source_table: self.source_table.clone(),
            source_backup: self.source_backup.clone(),
            schema: IgnoredAny,
            start_us: self.start_us,
            end_us: self.end_us,
            expire_us: self.expire_us,
            bytes: self.bytes,
            hot: self.hot,
            hot_until_us: self.hot_until_us,
        }
    }

    /// What its latest time of expiry is counted from: a copy has the times of what it was copied from, not
    /// of its own making.
    fn kept_from_us(&self, now_us: u64) -> u64 {
        if self.source_backup.is_empty() { self.start_us } else { now_us }
    }

    fn is_hot(&self, now_us: u64) -> bool {
        self.hot && self.hot_until_us.is_none_or(|until| now_us < until)
    }

    /// Takes over the fields that an update names.
    pub(crate) fn update(
        &mut self,
        asked: &admin::Backup,
        paths: &[String],
        now_us: u64,
    ) -> Result<(), Status> {
        if !self.is_hot(now_us) {
            // It does not become hot again.
            (self.hot, self.hot_until_us) = (false, None);
        }
        let kept_from_us = self.kept_from_us(now_us);
        for path in paths {
            match path.as_str() {
                "expire_time" => self.expire_us = expiry(asked.expire_time, kept_from_us)?,
                "hot_to_standard_time" => {
                    let until = asked.hot_to_standard_time;
                    self.hot_until_us = hot_until(until, self.hot, self.start_us, kept_from_us)?;
                }
                other => {
                    return Err(Status::invalid_argument(format!(
                        "update_mask names \"{other}\"; expire_time and hot_to_standard_time can be changed"
                    )));
                }
            }
        }
        match paths.is_empty() {
            true => Err(Status::invalid_argument("update_mask is empty")),
            false => Ok(()),
        }
    }

    pub(crate) fn to_message(&self, name: &str) -> admin::Backup {
        self.message_at(name, crate::time::now_us())
    }

    fn message_at(&self, name: &str, now_us: u64) -> admin::Backup {
        use admin::backup::BackupType;
        let is_hot = self.is_hot(now_us);
        let backup_type = if is_hot { BackupType::Hot } else { BackupType::Standard };
        admin::Backup {
            name: name.to_string(),
            source_table: self.source_table.clone(),
            source_backup: self.source_backup.clone(),
            expire_time: Some(timestamp(self.expire_us)),
            start_time: Some(timestamp(self.start_us)),
            end_time: Some(timestamp(self.end_us)),
            size_bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX),
            state: admin::backup::State::Ready as i32,
            encryption_info: Some(encryption()),
            backup_type: backup_type as i32,
            hot_to_standard_time: self.hot_until_us.filter(|_| is_hot).map(timestamp),
        }
    }

    pub(crate) fn info(&self, name: &str) -> admin::BackupInfo {
        admin::BackupInfo {
            backup: name.to_string(),
            start_time: Some(timestamp(self.start_us)),
            end_time: Some(timestamp(self.end_us)),
            source_table: self.source_table.clone(),
            source_backup: self.source_backup.clone(),
        }
    }
}

/// The key of a backup's record.
pub(crate) fn record_key(name: &str) -> Vec<u8> {
    [BACKUP, name.as_bytes()].concat()
}

/// Decodes the record of the backup of that name.
pub(crate) fn record<S: DeserializeOwned>(name: &str, value: &[u8]) -> Result<Backup<S>, Status> {
    serde_json::from_slice(value).map_err(|e| Status::data_loss(format!("the record of backup {name}: {e}")))
}

/// The index entry of a backup.
struct Listed {
    head: Head,
    record_bytes: usize,
}

type All = BTreeMap<String, Listed>;

/// The backups of this server, as their records have them.
pub(crate) struct BackupIndex {
    records: Family,
    /// `None` where the records are to be read.
    all: RwLock<Option<All>>,
}

impl BackupIndex {
    /// An index of the records in that engine family; they are read when somebody asks.
    pub(crate) fn new(records: Family) -> Self {
        Self { records, all: RwLock::new(None) }
    }

    /// Reads all records, one by one.
    fn read(&self) -> Result<All, Status> {
        let read = self.records.scan_prefix(BACKUP).map(|entry| {
            let entry = entry.map_err(status)?;
            let name = String::from_utf8_lossy(&entry.key[BACKUP.len()..]).into_owned();
            let head = record(&name, &entry.value)?;
            Ok((name, Listed { head, record_bytes: entry.value.len() }))
        });
        read.collect()
    }

    /// Checks all backups.
    ///
    /// # Errors
    /// What is wrong with a record, where they are to be read.
    fn with<T>(&self, look: impl FnOnce(&All) -> T) -> Result<T, Status> {
        if let Some(all) = &*self.all.read() {
            return Ok(look(all));
        }
        let mut kept = self.all.write();
        let all = match kept.take() {
            Some(all) => all,
            None => self.read()?,
        };
        Ok(look(kept.insert(all)))
    }

    /// Takes over a record that was written.
    pub(crate) fn put(&self, name: &str, head: Head, record_bytes: usize) {
        if let Some(all) = &mut *self.all.write() {
            all.insert(name.to_string(), Listed { head, record_bytes });
        }
    }

    /// Takes over that a record was deleted.
    pub(crate) fn remove(&self, name: &str) {
        if let Some(all) = &mut *self.all.write() {
            all.remove(name);
        }
    }

    /// Makes the next check read the records anew: after a failed write they may exist or not.
    pub(crate) fn distrust(&self) {
        *self.all.write() = None;
    }

    /// The backups whose names begin so, and that are asked for, by name.
    pub(crate) fn list(
        &self,
        begin: &str,
        is_asked: impl Fn(&Head) -> bool,
    ) -> Result<Vec<(String, Head)>, Status> {
        self.with(|all| {
            let named = all.range(begin.to_string()..).take_while(|(name, _)| name.starts_with(begin));
            let asked = named.filter(|(_, listed)| is_asked(&listed.head));
            asked.map(|(name, listed)| (name.clone(), listed.head.clone())).collect()
        })
    }

    /// A backup whose name begins so, if there is one.
    pub(crate) fn any(&self, begin: &str) -> Result<Option<String>, Status> {
        self.with(|all| {
            let first = all.range(begin.to_string()..).next();
            first.map(|(name, _)| name).filter(|name| name.starts_with(begin)).cloned()
        })
    }

    /// Backups whose time is over; not all of them where there are many.
    pub(crate) fn expired(&self, now_us: u64) -> Result<Vec<(String, Head)>, Status> {
        self.with(|all| {
            let expired = all.iter().filter(|(_, listed)| listed.head.expire_us <= now_us);
            expired.take(EXPIRED_MAX).map(|(name, listed)| (name.clone(), listed.head.clone())).collect()
        })
    }

    /// The numbers of engine backups in a place that records name.
    pub(crate) fn numbers_in(&self, place: &str) -> Result<Vec<u64>, Status> {
        self.with(|all| {
            let heads = all.values().map(|listed| &listed.head);
            heads.filter(|head| head.place == place).map(|head| head.id).collect()
        })
    }

    /// The engine backups, by their places, that no record names any more when these backups are gone.
    pub(crate) fn only_of(
        &self,
        backups: &[(String, Head)],
    ) -> Result<BTreeMap<String, BTreeSet<u64>>, Status> {
        self.with(|all| {
            let (mut numbers, mut gone) = (BTreeMap::<String, BTreeSet<u64>>::new(), BTreeSet::new());
            for (name, head) in backups {
                numbers.entry(head.place.clone()).or_default().insert(head.id);
                gone.insert(name);
            }
            for (_, Listed { head, .. }) in all.iter().filter(|(name, _)| !gone.contains(name)) {
                if let Some(of_place) = numbers.get_mut(&head.place) {
                    of_place.remove(&head.id);
                }
            }
            numbers.retain(|_, of_place| !of_place.is_empty());
            numbers
        })
    }

    /// Refuses one more backup of a table where there are as many as there may be.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`.
    pub(crate) fn refuse_full(&self, table: &str) -> Result<(), Status> {
        let (of_table, count, bytes) = self.with(|all| {
            let of_table = all.values().filter(|listed| listed.head.source_table == table).count();
            (of_table, all.len(), all.values().map(|listed| listed.record_bytes).sum::<usize>())
        })?;
        let full = if of_table >= OF_TABLE_MAX {
            format!("table {table} has {of_table} backups")
        } else if count >= ALL_MAX {
            format!("the server has {count} backups")
        } else if bytes >= RECORDS_MAX {
            format!("the records of all backups have {} MiB", bytes >> 20)
        } else {
            return Ok(());
        };
        Err(Status::resource_exhausted(format!("{full}, the most: delete some, or let them expire")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::net::auth::Who;
    use crate::proto::admin::table::{AutomatedBackupConfig, AutomatedBackupPolicy};
    use crate::tables::automated_backups;
    use crate::tables::registry::Tables;
    use tonic::Code;

    const TABLE: &str = "projects/p/instances/i/tables/t";

    fn named(id: &str) -> String {
        format!("projects/p/instances/i/clusters/c/backups/{id}")
    }

    fn opened(dir: &std::path::Path) -> Tables {
        let config = Config { dir: dir.join("data"), ..Config::default() };
        let db = crate::tables::schema::builder(config.options()).open(&config.dir).unwrap();
        Tables::open(db, config.store_settings(), config.directories()).unwrap()
    }

    fn of(table: &str) -> Head {
        Head { source_table: table.into(), expire_us: u64::MAX, ..Head::default() }
    }

    #[test]
    fn there_are_so_many_backups_of_a_table_and_in_all_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        let retention_period = Some(prost_types::Duration { seconds: 3 * 86_400, nanos: 0 });
        let policy = AutomatedBackupPolicy { retention_period, ..Default::default() };
        let table = admin::Table {
            automated_backup_config: Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)),
            ..Default::default()
        };
        tables.create(TABLE, &table, &[""; 0]).unwrap();
        let expire_us = crate::time::now_us() + DAY_US;
        let new = NewBackup { expire_us, hot: false, hot_until_us: None };
        tables.create_backup(&named("one"), TABLE, &new).unwrap();
        let refused = |word: &str| {
            let copied = tables.copy_backup(&named("two"), &named("one"), expire_us, &Who::ANYONE);
            let made = tables.create_backup(&named("two"), TABLE, &new);
            for refused in [copied, made] {
                let refused = refused.unwrap_err();
                assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
                assert!(refused.message().contains(word), "{refused}, expected {word}");
            }
            automated_backups::make_due(&tables, crate::time::now_us()).unwrap();
            assert_eq!(tables.backups("", |of| of.expire_us < u64::MAX).unwrap().len(), 1, "{word}");
        };
        let index = &tables.known_backups;
        let fill = |count: usize, table: &dyn Fn(usize) -> String| {
            (0..count).for_each(|n| index.put(&named(&format!("x{n}")), of(&table(n)), 100));
        };
        fill(OF_TABLE_MAX - 1, &|_| TABLE.to_string());
        refused("1000 backups");
        fill(ALL_MAX - 1, &|n| format!("{TABLE}{}", n % 100));
        refused("10000 backups");
        index.distrust();
        index.any("").unwrap();
        index.put(&named("large"), of("other"), RECORDS_MAX);
        refused("256 MiB");
        index.distrust();
        tables.copy_backup(&named("two"), &named("one"), expire_us, &Who::ANYONE).unwrap();
        automated_backups::make_due(&tables, crate::time::now_us()).unwrap();
        assert_eq!(tables.backups("", |_| true).unwrap().len(), 3);
        tables.db.close().unwrap();
    }

    #[test]
    fn what_is_known_is_what_the_records_say() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        tables.create(TABLE, &admin::Table::default(), &[""; 0]).unwrap();
        let now = crate::time::now_us();
        let new =
            |hours: u64| NewBackup { expire_us: now + hours * DAY_US / 24, hot: false, hot_until_us: None };
        for (id, hours) in [("a", 1), ("b", 2), ("c", 3)] {
            tables.create_backup(&named(id), TABLE, &new(hours)).unwrap();
        }
        tables.copy_backup(&named("d"), &named("a"), now + DAY_US, &Who::ANYONE).unwrap();
        let all = || tables.backups("", |_| true).unwrap();
        let same = || {
            let known = all();
            tables.known_backups.distrust();
            assert_eq!(known, all());
            known.iter().map(|(name, _)| name.rsplit('/').next().unwrap()).collect::<String>()
        };
        assert_eq!(same(), "abcd");
        assert_eq!(tables.backup(&named("a"), &Who::ANYONE).unwrap().head(), all()[0].1);
        let engine = || tables.backup_places.at("", &[]).unwrap().ids().unwrap();
        assert_eq!(engine(), [1, 2, 3]);
        // Two whose time is over, of one of which there is a copy.
        tables.tend_backups(now + DAY_US / 8 - 1).unwrap();
        assert_eq!((same().as_str(), engine()), ("cd", vec![1, 3]));
        tables.delete_backup(&named("d"), &Who::ANYONE).unwrap();
        assert_eq!((same().as_str(), engine()), ("c", vec![3]));
        assert!(tables.backups("", |of| of.id == 1).unwrap().is_empty());
        assert!(tables.backups(&named("d"), |_| true).unwrap().is_empty());
        assert!(tables.known_backups.any("projects/p/instances/i/").unwrap().is_some());
        assert!(tables.known_backups.any("projects/p/instances/h/").unwrap().is_none());
        // One that cannot be read keeps nobody from making others.
        std::fs::write(dir.path().join("data-backups/00000003.backup"), b"rotten").unwrap();
        tables.create_backup(&named("e"), TABLE, &new(1)).unwrap();
        tables.db.close().unwrap();
    }

    #[test]
    fn a_backup_is_kept_for_up_to_ninety_days() {
        let now = crate::time::now_us();
        let in_days = |days: u64| Some(timestamp(now + days * DAY_US));
        let asked = |days: u64, hot_days: u64| admin::Backup {
            expire_time: in_days(days),
            backup_type: admin::backup::BackupType::Hot as i32,
            hot_to_standard_time: in_days(hot_days),
            ..Default::default()
        };
        assert!(NewBackup::from_message(&asked(90, 90)).is_ok());
        for (wrong, field) in [(asked(91, 2), "expire_time"), (asked(2, 91), "hot_to_standard_time")] {
            let refused = NewBackup::from_message(&wrong).err().unwrap();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().starts_with(field) && refused.message().contains("90"), "{refused}");
        }
        let mut backup = Head { start_us: now - 5 * DAY_US, hot: true, ..Head::default() };
        for path in ["expire_time", "hot_to_standard_time"] {
            let paths = [path.to_string()];
            backup.source_backup.clear();
            backup.update(&asked(85, 85), &paths, now).unwrap();
            let refused = backup.update(&asked(86, 86), &paths, now).unwrap_err();
            assert!(refused.message().starts_with(path), "{refused}");
            backup.source_backup = named("one");
            backup.update(&asked(86, 86), &paths, now).unwrap();
        }
        let forever = Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 });
        assert_eq!(expiry(forever, now).unwrap_err().code(), Code::InvalidArgument);
    }
}
