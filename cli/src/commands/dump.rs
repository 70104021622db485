//! Export. A file appears under its name only when it is whole.

use super::Place;
use super::load::is_stream;
use super::scan::{bounds, is_explicit, row};
use crate::failure::{Failure, Outcome};
use crate::format::Format;
use crate::remote::Access;
use crate::text::count;
use crate::{interrupt, open, progress};
use clap::Args;
use clap::ValueEnum;
use siltstone::{Entry, Family, SstableWriter, Timestamp};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Export all rows of a family to a file
///
/// `siltstone load` reads tsv, csv and jsonl back to exactly the same rows; its help describes them. An
/// SSTable (a file that ends in .table) is what `siltstone ingest` takes.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone dump /tmp/db rows.jsonl
         siltstone dump /tmp/db - --format tsv | sort
         siltstone dump /tmp/db rows.table
         siltstone dump --server 127.0.0.1:8086 packages cells.jsonl")]
pub(crate) struct Dump {
    #[command(flatten)]
    place: Place,
    /// The file, replaced if it exists; - for standard output
    file: PathBuf,
    /// Format of the rows [default: by the end of the file's name]
    #[arg(long)]
    format: Option<Form>,
    /// Export all cells of a table of a running server, which is named instead of the directory;
    /// https://HOST:PORT for TLS
    #[arg(long, conflicts_with_all = ["format", "family", "shared"])]
    server: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// The formats of a dump.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Form {
    /// Key, tab, value
    Tsv,
    /// Key, comma, value
    Csv,
    /// One JSON object a line
    Jsonl,
    /// An SSTable, for `siltstone ingest`
    Table,
}

impl Form {
    /// Its rows; `None` for an SSTable.
    fn rows(self) -> Option<Format> {
        match self {
            Form::Tsv => Some(Format::Tsv),
            Form::Csv => Some(Format::Csv),
            Form::Jsonl => Some(Format::Jsonl),
            Form::Table => None,
        }
    }
}

impl Dump {
    pub(crate) fn run(self) -> Outcome {
        if let Some(server) = &self.server {
            return self.of_server(server);
        }
        let is_table = self.file.extension().is_some_and(|end| end.eq_ignore_ascii_case("table"));
        let form = match self.format {
            Some(form) => form.rows(),
            None if is_table => None,
            None => Some(Format::choose(None, &self.file)?),
        };
        if form.is_none() && is_stream(&self.file) {
            return Err(Failure::Usage("a table is a file; it cannot go to standard output".into()));
        }
        let db = open::to_read(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        if is_stream(&self.file) {
            let Some(format) = form else { return Ok(()) };
            interrupt::leaves("not all rows are printed");
            dump(&family, format, BufWriter::new(std::io::stdout().lock()), Failure::from, false)?;
            return Ok(());
        }
        let rows = dump_to_file(&family, form, &self.file)?;
        println!("dumped {} to {}", count(rows, "row"), self.file.display());
        Ok(())
    }
}

impl Dump {
    fn of_server(&self, server: &str) -> Outcome {
        let remote = self.access.connect(server)?;
        let table = self.place.db.dir.to_string_lossy();
        if is_stream(&self.file) {
            interrupt::leaves("not all cells are printed");
            let out = BufWriter::new(std::io::stdout().lock());
            return super::cells::dump(&remote, &table, out).map(drop);
        }
        let cells = to_file(&self.file, |part, failed, _| {
            let out = BufWriter::with_capacity(1 << 20, create(part).map_err(failed)?);
            super::cells::dump(&remote, &table, out)
        })?;
        println!("dumped {} to {}", count(cells, "cell"), self.file.display());
        Ok(())
    }
}

fn dump_to_file(family: &Family, form: Option<Format>, file: &Path) -> Outcome<u64> {
    to_file(file, |part, failed, special| match form {
        Some(format) => {
            let out = BufWriter::with_capacity(1 << 20, create(part).map_err(failed)?);
            dump(family, format, out, failed, !special)
        }
        None if special => Err(Failure::Usage(format!("a table is a file, not what {} is", file.display()))),
        None => dump_table(family, part),
    })
}

/// Opens a device or pipe, or makes a new file that its user alone may read, as the database's are.
fn create(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    match std::fs::metadata(path) {
        Ok(_) => File::options().write(true).open(path),
        Err(_) => File::options().write(true).create_new(true).mode(0o600).open(path),
    }
}

/// Writes a file by `write`: under another name first, if it is no device or pipe. `write` gets the name, how
/// to report a failure, and whether it is one of these.
fn to_file(
    file: &Path,
    write: impl FnOnce(&Path, &dyn Fn(std::io::Error) -> Failure, bool) -> Outcome<u64>,
) -> Outcome<u64> {
    // A device or pipe is written directly; a file under another name first.
    let special = std::fs::metadata(file).is_ok_and(|metadata| !metadata.is_file());
    match special {
        // A thread that waits for a pipe cannot check for signals.
        true => interrupt::leaves("not all rows are written"),
        false => interrupt::on_signal(|| None),
    }
    let mut part = file.as_os_str().to_os_string();
    if !special {
        // A name that nothing else has.
        part.push(format!(".{}.part", std::process::id()));
    }
    let part = PathBuf::from(part);
    let failed = |e: std::io::Error| Failure::Failed(format!("write {}: {e}", file.display()));
    let rows = write(&part, &failed, special);
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
    is_part: bool,
) -> Outcome<u64> {
    let explicit = is_explicit(family);
    let mut writer = format.writer(out);
    let rows = each_row(family, is_part, |entry| writer.write(&row(entry, explicit)).map_err(&failed))?;
    writer.finish().map_err(&failed)?;
    Ok(rows)
}

fn dump_table(family: &Family, path: &Path) -> Outcome<u64> {
    let explicit = is_explicit(family);
    let mut writer = SstableWriter::create(path, &family.options())?;
    let rows = each_row(family, true, |entry| {
        let timestamp = if explicit { entry.timestamp } else { Timestamp::ZERO };
        Ok(writer.put_at(&entry.key, timestamp, &entry.value)?)
    })?;
    writer.finish()?;
    Ok(rows)
}

/// Visits all rows of the family, under a bar. A signal ends it where what was written is a part that goes
/// again; else what waits for signals ends the process, and two would speak.
fn each_row(family: &Family, is_part: bool, mut visit: impl FnMut(Entry) -> Outcome) -> Outcome<u64> {
    let cells = family.shape().tables().map(|(_, _, table)| table.cells).sum::<u64>();
    let bar = progress::rows(cells + family.memtables().iter().map(|memtable| memtable.cells).sum::<u64>());
    let mut rows = 0;
    for entry in family.scan::<&[u8]>(bounds(None, None)) {
        visit(entry?)?;
        rows += 1;
        if rows % 1_000 == 0 {
            bar.set_position(rows);
            if is_part {
                interrupt::check(|| "the dump is not complete, and is removed".into())?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}
