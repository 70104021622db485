//! Which backups the server makes of a table by itself: the policy, as it is stored, and as it is set and
//! changed.

use crate::proto::admin;
use crate::proto::admin::table::{AutomatedBackupConfig, AutomatedBackupPolicy};
use crate::time::{duration, micros, now_us};
use serde::{Deserialize, Serialize};
use tonic::Status;

/// The path of the policy in an update of a table, and what stands before the paths of its fields.
const PATH: &str = "automated_backup_policy";
const RETENTION: &str = "automated_backup_policy.retention_period";
const FREQUENCY: &str = "automated_backup_policy.frequency";

const DAY_US: u64 = 24 * 3_600 * 1_000_000;
/// How often there is one.
const EVERY_US: u64 = DAY_US;
/// The least and the most days of retention.
const DAYS_MIN: u64 = 3;
const DAYS_MAX: u64 = 90;

/// Which backups are made of a table, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    pub(super) retention_us: u64,
    /// Since when it has one.
    since_us: u64,
}

impl Policy {
    fn from_message(asked: &AutomatedBackupPolicy, since_us: u64) -> Result<Self, Status> {
        if !asked.locations.is_empty() {
            return Err(Status::unimplemented(format!("{PATH}.locations: there is one location")));
        }
        let us = |time: &prost_types::Duration| micros(time.seconds, time.nanos);
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
    pub(super) fn due(&self, last_us: Option<u64>, now_us: u64) -> Option<u64> {
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
    asked_of(table).map(|asked| Policy::from_message(asked, now_us())).transpose()
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
    let since_us = before.map_or_else(now_us, |before| before.since_us);
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
