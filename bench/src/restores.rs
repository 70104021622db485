//! The cost of restoring a backup into a database that goes on: with its SSTables copied, as to another disk,
//! and shared.
//!
//! One database is written and compacted into one level of small SSTables and backed up. Then the backup
//! becomes a database beside, whose family gets into a second one: copied, by a restore that reads and
//! compares every byte, a detach and an attach; shared, by hard links alone. In the end every row is read,
//! which is not counted.

use crate::failure::Result;
use crate::measure::Usage;
use crate::scratch::Scratch;
use crate::workload::bytes::Values;
use serde::Serialize;
use siltstone::storage::Env;
use siltstone::{Backups, Compression, Db, Family, FamilyOptions, Options};
use std::path::{Path, PathBuf};
use std::time::Instant;

const FAMILY: &str = "rows";
const VALUE_BYTES: usize = 1000;

/// See the page above.
#[derive(clap::Args)]
pub(crate) struct Restores {
    /// Keys, with values of 1,000 B.
    #[arg(long, default_value_t = 500_000)]
    keys: u64,
    /// Bytes of an SSTable.
    #[arg(long, default_value = "256KiB")]
    sstable_bytes: String,
    /// How often both are measured, one after the other.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Directory for the databases, which is made anew and removed.
    #[arg(long, default_value = "bench-restores")]
    dir: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// The cost of one restore.
#[derive(Debug, Serialize)]
struct RestoreCost {
    how: &'static str,
    tables: u64,
    /// Until the backup is a database beside.
    restored_seconds: f64,
    /// And until its family is one of the second database.
    seconds: f64,
    written_mb: f64,
    /// From the device: nothing of what the system still has in memory.
    read_mb: f64,
    cpu_seconds: f64,
}

impl Restores {
    pub(crate) fn run(self) -> Result<()> {
        let _scratch = Scratch::new(&self.dir);
        std::fs::create_dir_all(&self.dir)?;
        let strategy = format!("leveled{{sstable_bytes={}}}", self.sstable_bytes).parse()?;
        let options = FamilyOptions { strategy, compression: Compression::None, ..FamilyOptions::default() };
        let source = open(&self.dir.join("source"))?;
        let family = source.create_family(FAMILY, options)?;
        let (values, mut value) = (Values::new(1, VALUE_BYTES), Vec::new());
        for number in 0..self.keys {
            value.clear();
            values.write(number, 0, 0, VALUE_BYTES, &mut value);
            family.put(number.to_be_bytes(), &value)?;
        }
        source.flush()?;
        family.compact::<&[u8]>(..)?;
        source.wait_idle()?;
        let backup = source.backup(self.dir.join("backups"))?;
        source.close()?;
        if !self.json {
            println!("{} keys of {VALUE_BYTES} B in {} tables", self.keys, backup.tables);
            println!(
                "{:<10}{:>12}{:>8}{:>12}{:>10}{:>8}",
                "tables", "restored s", "all s", "written MB", "read MB", "cpu s"
            );
        }
        for _ in 0..self.runs {
            for shares in [false, true] {
                let told = self.measured(shares)?;
                match self.json {
                    true => println!("{}", serde_json::to_string(&told)?),
                    false => println!(
                        "{:<10}{:>12.3}{:>8.3}{:>12.1}{:>10.1}{:>8.2}",
                        told.how,
                        told.restored_seconds,
                        told.seconds,
                        told.written_mb,
                        told.read_mb,
                        told.cpu_seconds
                    ),
                }
            }
        }
        Ok(())
    }

    fn measured(&self, shares: bool) -> Result<RestoreCost> {
        let (whole, moving) = (self.dir.join("whole"), self.dir.join("moving"));
        let home = self.dir.join("home");
        let db = open(&home)?;
        let backups = Backups::new(&Env::local(), self.dir.join("backups"));
        let (before, began) = (Usage::now(), Instant::now());
        let made = match shares {
            true => backups.restore_shared(None, &whole, &mut |_| {})?,
            false => backups.restore(None, &whole, &mut |_| {})?,
        };
        let restored_seconds = began.elapsed().as_secs_f64();
        let from = open(&whole)?;
        let family = match shares {
            true => db.copy_families(&from, &[(FAMILY, FAMILY)])?.remove(0),
            false => {
                from.detach(FAMILY, &moving)?;
                db.attach(FAMILY, &moving)?
            }
        };
        let (seconds, used) = (began.elapsed().as_secs_f64(), Usage::now().since(&before));
        self.check(&family)?;
        drop(family);
        from.close()?;
        db.close()?;
        for dir in [whole, moving, home].iter().filter(|dir| dir.exists()) {
            std::fs::remove_dir_all(dir)?;
        }
        Ok(RestoreCost {
            how: if shares { "shared" } else { "copied" },
            tables: made.tables,
            restored_seconds,
            seconds,
            written_mb: used.device_write_bytes as f64 / 1e6,
            read_mb: used.device_read_bytes as f64 / 1e6,
            cpu_seconds: used.cpu.as_secs_f64(),
        })
    }

    fn check(&self, family: &Family) -> Result<()> {
        let (values, mut value, mut rows) = (Values::new(1, VALUE_BYTES), Vec::new(), 0);
        for entry in family.scan::<&[u8]>(..) {
            let entry = entry?;
            value.clear();
            values.write(rows, 0, 0, VALUE_BYTES, &mut value);
            if entry.key != rows.to_be_bytes() || entry.value.to_vec() != value {
                return Err(format!("row {rows} is not as it was written").into());
            }
            rows += 1;
        }
        match rows == self.keys {
            true => Ok(()),
            false => Err(format!("{rows} rows of {}", self.keys).into()),
        }
    }
}

fn open(dir: &Path) -> Result<Db> {
    let options = Options { memory_budget: 64 << 20, write_memory: 16 << 20, ..Options::default() };
    Ok(Db::builder().options(options).open(dir)?)
}
