//! Column families: which there are, with which options, and moving them.

use crate::escape::{Bytes, printable};
use crate::failure::{Failure, Outcome};
use crate::open::Database;
use crate::text::count;
use crate::{interrupt, open};
use clap::{Args, Subcommand};
use serde_json::json;
use siltstone::{Db, FamilyOptions, size_text};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// List, create, alter, drop, split, join, detach and attach column families
#[derive(Args)]
#[command(after_help = "\
Example: siltstone family list /tmp/db
         siltstone family create /tmp/db history --set timestamps=explicit --set versions=3
         siltstone family alter /tmp/db history --set ttl_us=30days")]
pub(crate) struct Family {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    List(List),
    Show(Show),
    Create(Create),
    Alter(Alter),
    Drop(Drop),
    Split(Split),
    Join(Join),
    Detach(Detach),
    Attach(Attach),
}

impl Family {
    pub(crate) fn run(self) -> Outcome {
        match self.action {
            Action::List(action) => action.run(),
            Action::Show(action) => action.run(),
            Action::Create(action) => action.run(),
            Action::Alter(action) => action.run(),
            Action::Drop(action) => action.run(),
            Action::Split(action) => action.run(),
            Action::Join(action) => action.run(),
            Action::Detach(action) => action.run(),
            Action::Attach(action) => action.run(),
        }
    }
}

/// Changes something, closes the database, and fails with what failed first.
fn changing(db: Db, at_signal: &'static str, change: impl FnOnce(&Db) -> Outcome) -> Outcome {
    interrupt::leaves(at_signal);
    let changed = change(&db);
    let closed = db.close();
    changed?;
    Ok(closed?)
}

/// List the families with what they hold
#[derive(Args)]
#[command(after_help = "Example: siltstone family list /tmp/db")]
struct List {
    #[command(flatten)]
    db: Database,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self) -> Outcome {
        let db = open::to_read(&self.db)?;
        let mut listed = Vec::new();
        let mut out = BufWriter::new(std::io::stdout().lock());
        for name in db.families() {
            let family = db.family(&name)?;
            let shape = family.shape();
            let memtables = family.memtables();
            let (tables, bytes) = (shape.tables().count() as u64, shape.live_bytes());
            let cells = shape.tables().map(|(_, _, table)| table.cells).sum::<u64>();
            let memory_cells = memtables.iter().map(|memtable| memtable.cells).sum::<u64>();
            let range = family.range();
            let (start, end) = (printable(&range.start), range.end.as_deref().map(printable));
            if !self.json {
                let (cells, tables) = (count(cells + memory_cells, "cell"), count(tables, "SSTable"));
                let keys = match (start.is_empty(), &end) {
                    (true, None) => String::new(),
                    (false, None) => format!(", keys from {start}"),
                    (true, Some(end)) => format!(", keys below {end}"),
                    (false, Some(end)) => format!(", keys from {start} to below {end}"),
                };
                writeln!(out, "{name}: {cells}, {tables} of {}{keys}", size_text(bytes))?;
                continue;
            }
            listed.push(json!({
                "name": name, "sstables": tables, "sstable_bytes": bytes, "cells": cells, "memory_cells": memory_cells,
                "start": start, "end": end,
            }));
        }
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&listed)?)?;
        }
        Ok(out.flush()?)
    }
}

/// Show a family's options
///
/// A line for each, written as --set takes it. The documentation of the library's `FamilyOptions` says what
/// they mean.
#[derive(Args)]
#[command(after_help = "Example: siltstone family show /tmp/db history")]
struct Show {
    #[command(flatten)]
    db: Database,
    /// Name of the family
    name: String,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    fn run(self) -> Outcome {
        let db = open::to_read(&self.db)?;
        let options = db.family(&self.name)?.options();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&options)?);
            return Ok(());
        }
        for (name, text) in options.texts() {
            println!("{name}={text}");
        }
        Ok(())
    }
}

/// Options as arguments.
#[derive(Args)]
struct Set {
    /// An option: a number, a text, a size such as 64MiB, a time such as 30days; `family show` prints all
    #[arg(long = "set", value_name = "OPTION=VALUE")]
    set: Vec<String>,
}

impl Set {
    /// The options with the values of `--set`, validated.
    fn apply(&self, options: FamilyOptions) -> Outcome<FamilyOptions> {
        let mut options = options;
        for text in &self.set {
            let (name, value) = text.split_once('=').ok_or_else(|| {
                Failure::Usage(format!("`{text}` sets nothing; expected --set OPTION=VALUE"))
            })?;
            options.set(name.trim(), value.trim()).map_err(|e| Failure::Usage(e.to_string()))?;
        }
        options.validate().map_err(|e| Failure::Usage(e.to_string()))?;
        Ok(options)
    }
}

/// Create a family
///
/// The database is made if the directory is missing or empty.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone family create /tmp/db history --set timestamps=explicit --set versions=3
         siltstone family create /tmp/db logs --set compression=zstd:3 --set 'strategy=geometric{ratio=2}'")]
struct Create {
    #[command(flatten)]
    db: Database,
    /// Name of the family
    name: String,
    #[command(flatten)]
    set: Set,
}

impl Create {
    fn run(self) -> Outcome {
        let options = self.set.apply(FamilyOptions::default())?;
        if self.name.is_empty() {
            return Err(Failure::Usage("a family has a name".into()));
        }
        let db = open::to_write_or_create(&self.db)?;
        changing(db, "the family is there whole or not at all", |db| {
            Ok(db.create_family(&self.name, options).map(drop)?)
        })
    }
}

/// Change a family's options
///
/// Data is not rewritten: new SSTables have the new layout, and compactions follow the new strategy.
/// Timestamps cannot change.
#[derive(Args)]
#[command(
    after_help = "Example: siltstone family alter /tmp/db history --set versions=5 --set ttl_us=30days"
)]
struct Alter {
    #[command(flatten)]
    db: Database,
    /// Name of the family
    name: String,
    #[command(flatten)]
    set: Set,
}

impl Alter {
    fn run(self) -> Outcome {
        if self.set.set.is_empty() {
            return Err(Failure::Usage("nothing to alter; give --set OPTION=VALUE".into()));
        }
        changing(open::to_write(&self.db)?, "the options are changed all or none", |db| {
            let family = db.family(&self.name)?;
            if let Some(missing) = family.missing_options() {
                eprintln!("siltstone: {missing}; it gets the defaults in their place");
            }
            Ok(family.alter(self.set.apply(family.options())?)?)
        })
    }
}

/// Remove a family with all its data
#[derive(Args)]
#[command(after_help = "Example: siltstone family drop /tmp/db history")]
struct Drop {
    #[command(flatten)]
    db: Database,
    /// Name of the family
    name: String,
}

impl Drop {
    fn run(self) -> Outcome {
        let what = "the family is there whole or not at all";
        changing(open::to_write(&self.db)?, what, |db| Ok(db.drop_family(&self.name)?))
    }
}

/// Divide a family at a key
///
/// The family keeps the keys below it; a new one with the same options has those from there on. Nothing is
/// rewritten: SSTables over the key belong to both until compactions have divided them.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone family split /tmp/db events 2025 events/2025
         siltstone family join /tmp/db events events/2025")]
struct Split {
    #[command(flatten)]
    db: Database,
    /// Name of the family
    name: String,
    /// First key of the new family
    at: Bytes,
    /// Name of the new family; no other may have it
    new: String,
}

impl Split {
    fn run(self) -> Outcome {
        changing(open::to_write(&self.db)?, "the family is divided or whole", |db| {
            Ok(db.family(&self.name)?.split(&self.at.0, &self.new).map(drop)?)
        })
    }
}

/// Put two families together that have neighbouring keys
///
/// The first has the keys of both then, and its own options; the second is no more. Nothing is rewritten.
#[derive(Args)]
#[command(after_help = "Example: siltstone family join /tmp/db events events/2025")]
struct Join {
    #[command(flatten)]
    db: Database,
    /// Name of the family that stays
    name: String,
    /// Name of its neighbour
    neighbour: String,
}

impl Join {
    fn run(self) -> Outcome {
        changing(open::to_write(&self.db)?, "the families are one or two", |db| {
            Ok(db.family(&self.name)?.join(&db.family(&self.neighbour)?)?)
        })
    }
}

/// Take a family out of the database and leave it in a directory of its own
///
/// `siltstone family attach` puts it into another database. The directory is a database, too, but once it was
/// written to it cannot be attached any more.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone family detach /tmp/a history /tmp/moving
         siltstone family attach /tmp/b history /tmp/moving && rm -r /tmp/moving")]
struct Detach {
    #[command(flatten)]
    db: Database,
    /// Name of the family
    name: String,
    /// New directory for the family
    dir: PathBuf,
}

impl Detach {
    fn run(self) -> Outcome {
        let what = "the family is whole in its database, in the new directory, or in both";
        changing(open::to_write(&self.db)?, what, |db| Ok(db.detach(&self.name, &self.dir)?))
    }
}

/// Add a family that was detached from another database
///
/// Its SSTables are linked, or copied from another file system; the directory stays and may be removed then.
#[derive(Args)]
#[command(after_help = "Example: siltstone family attach /tmp/b history /tmp/moving && rm -r /tmp/moving")]
struct Attach {
    #[command(flatten)]
    db: Database,
    /// Name that the family gets; no other may have it
    name: String,
    /// Directory in which `family detach` left it
    dir: PathBuf,
}

impl Attach {
    fn run(self) -> Outcome {
        let what = "the family is there whole or not at all";
        changing(open::to_write(&self.db)?, what, |db| Ok(db.attach(&self.name, &self.dir).map(drop)?))
    }
}
