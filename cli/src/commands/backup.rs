//! Backups of a database, and databases out of backups.

use crate::failure::{Failure, Outcome};
use crate::open::Database;
use crate::text::{count, grouped};
use crate::{interrupt, open, progress};
use clap::Args;
use humantime::format_rfc3339_seconds;
use serde_json::json;
use siltstone::storage::Env;
use siltstone::{BackupInfo, Backups, size_text};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Add a backup of a database to a directory of backups
///
/// Only SSTables that no earlier backup there has are copied. A backup is there wholly or not at all,
/// whatever interrupts it.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone backup /tmp/db /mnt/backups
         siltstone backup /tmp/db /mnt/backups --keep 7
         siltstone backup /tmp/db /mnt/backups --list")]
pub(crate) struct Backup {
    #[command(flatten)]
    db: Database,
    /// Directory of its backups; created if missing
    dir: PathBuf,
    /// Afterwards, keep only the newest N backups
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// List the backups and do nothing else; the database is not opened
    #[arg(long, conflicts_with = "keep")]
    list: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) fn run(self) -> Outcome {
        let backups = Backups::new(&Env::local(), &self.dir);
        if self.list {
            return self.print_list(&backups.list()?);
        }
        let db = open::to_write(&self.db)?;
        interrupt::leaves("the backup is there whole or not at all; --list tells");
        let made = progress::over_files(|progress| db.backup_with(&self.dir, progress));
        if let Ok(made) = &made {
            interrupt::leaves(format!("backup {} is whole", made.id));
        }
        let closed = db.close();
        let made = made?;
        closed?;
        let removed = self.keep.map(|keep| backups.keep_last(keep as usize)).transpose()?;
        let removed = removed.unwrap_or_default();
        if self.json {
            println!("{}", json!({ "backup": made, "removed": removed }));
            return Ok(());
        }
        println!("{}; {} of it copied", line(&made), size_text(made.copied_bytes));
        if !removed.is_empty() {
            println!("{} removed", count(removed.len() as u64, "older backup"));
        }
        Ok(())
    }

    fn print_list(&self, list: &[BackupInfo]) -> Outcome {
        if self.json {
            println!("{}", serde_json::to_string_pretty(list)?);
        } else {
            let mut out = std::io::stdout().lock();
            for backup in list {
                writeln!(out, "{}", line(backup))?;
            }
        }
        Ok(())
    }
}

fn line(backup: &BackupInfo) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_micros(backup.created_us);
    let (id, time, writes) = (backup.id, format_rfc3339_seconds(time), grouped(backup.seq.0));
    let (tables, bytes) = (count(backup.tables, "table"), size_text(backup.bytes));
    format!("backup {id} of {time} holds the writes up to {writes}: {tables}, {bytes}")
}

/// Make a database of a backup
///
/// Every byte is checked on the way. A damaged backup is an error that names the file, and leaves nothing
/// behind.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone restore /mnt/backups /tmp/db
         siltstone restore /mnt/backups /tmp/db --id 12")]
pub(crate) struct Restore {
    /// Directory of backups
    dir: PathBuf,
    /// Directory of the database; must be new or empty
    db: PathBuf,
    /// Number of the backup [default: the newest]
    #[arg(long, value_name = "N")]
    id: Option<u64>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Restore {
    pub(crate) fn run(self) -> Outcome {
        if !self.dir.is_dir() {
            return Err(Failure::Failed(format!("{} holds no backups", self.dir.display())));
        }
        let backups = Backups::new(&Env::local(), &self.dir);
        let db = self.db.display();
        interrupt::leaves(format!("the restore may be unfinished; {db} opens only if it is whole"));
        let restored = progress::over_files(|progress| backups.restore(self.id, &self.db, progress))?;
        if self.json {
            println!("{}", json!(restored));
        } else {
            println!("{}; all of it restored", line(&restored));
        }
        Ok(())
    }
}
