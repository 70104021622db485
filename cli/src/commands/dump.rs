//! Export. A file appears under its name only when it is whole.

use super::Place;
use super::load::is_stream;
use super::scan::{bounds, is_explicit, row};
use crate::failure::{Failure, Outcome};
use crate::format::Format;
use crate::text::count;
use crate::{open, progress};
use clap::Args;
use siltstone::Family;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Export all rows of a family to a file
///
/// `siltstone load` reads every format back to exactly the same rows; its help describes them.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone dump /tmp/db rows.jsonl
         siltstone dump /tmp/db - --format tsv | sort")]
pub(crate) struct Dump {
    #[command(flatten)]
    place: Place,
    /// The file, replaced if it exists; - for standard output
    file: PathBuf,
    /// How rows are written; by default what the file's name ends in
    #[arg(long)]
    format: Option<Format>,
}

impl Dump {
    pub(crate) fn run(self) -> Outcome {
        let format = Format::choose(self.format, &self.file)?;
        let db = open::to_read(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        if is_stream(&self.file) {
            dump(&family, format, BufWriter::new(std::io::stdout().lock()), Failure::from)?;
            return Ok(());
        }
        let rows = dump_to_file(&family, format, &self.file)?;
        println!("dumped {} to {}", count(rows, "row"), self.file.display());
        Ok(())
    }
}

fn dump_to_file(family: &Family, format: Format, file: &Path) -> Outcome<u64> {
    // A device or pipe is written directly; a file under another name first.
    let special = std::fs::metadata(file).is_ok_and(|metadata| !metadata.is_file());
    let mut part = file.as_os_str().to_os_string();
    part.push(if special { "" } else { ".part" });
    let part = PathBuf::from(part);
    let failed = |e: std::io::Error| Failure::Failed(format!("write {}: {e}", file.display()));
    let out = BufWriter::with_capacity(1 << 20, File::create(&part).map_err(failed)?);
    let rows = dump(family, format, out, failed);
    if special {
        return rows;
    }
    match rows.and_then(|rows| std::fs::rename(&part, file).map(|()| rows).map_err(failed)) {
        Ok(rows) => Ok(rows),
        Err(e) => {
            let _ = std::fs::remove_file(&part);
            Err(e)
        }
    }
}

fn dump(
    family: &Family,
    format: Format,
    out: impl Write,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Outcome<u64> {
    let cells = family.shape().tables().map(|(_, _, table)| table.cells).sum::<u64>();
    let bar = progress::rows(cells + family.segments().iter().map(|segment| segment.cells).sum::<u64>());
    let explicit = is_explicit(family);
    let mut writer = format.writer(out);
    let mut rows = 0;
    for entry in family.scan::<&[u8]>(bounds(None, None)) {
        writer.write(&row(entry?, explicit)).map_err(&failed)?;
        rows += 1;
        if rows % 1_000 == 0 {
            bar.set_position(rows);
        }
    }
    writer.finish().map_err(&failed)?;
    bar.finish_and_clear();
    Ok(rows)
}
