//! Options: TOML text, and what cannot be said in text.

use crate::bytes::utf8;
use crate::error::{Error, answer, invalid};
use crate::handle::{free, given};
use crate::operator::{Context, Filter, FilterFunction, Operator, OperatorFunction};
use siltstone::{Builder, FamilyOptions, Options as DbOptions, Result};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use toml::{Table, Value};

/// How a database is opened. Made by `siltstone_options_new`, freed with `siltstone_options_free`, to be used
/// by one thread at a time. May be used for several databases.
#[derive(Default)]
pub struct Options {
    options: DbOptions,
    families: BTreeMap<String, FamilyOptions>,
    operators: BTreeMap<String, Arc<Operator>>,
    filters: BTreeMap<String, Arc<Filter>>,
}

impl Options {
    /// Reads all of the text before it changes anything.
    pub(crate) fn parse(&mut self, text: &str) -> Result<()> {
        let mut table = table(text)?;
        let mut families = self.families.clone();
        match table.remove("families") {
            Some(Value::Table(said)) => {
                for (name, options) in said {
                    let Value::Table(options) = options else {
                        return Err(invalid(format!("families.{name} is no table of options")));
                    };
                    set_all(families.entry(name).or_default(), options)?;
                }
            }
            Some(_) => return Err(invalid("families is no table of families")),
            None => {}
        }
        let mut options = self.options.clone();
        for (name, text) in texts(table, "") {
            options.set(&name, &text)?;
        }
        (self.options, self.families) = (options, families);
        Ok(())
    }

    /// A builder with these options.
    pub(crate) fn builder(&self) -> Builder {
        let mut builder = siltstone::Db::builder().options(self.options.clone());
        for (name, options) in &self.families {
            builder = builder.family(name, options.clone());
        }
        for (name, operator) in &self.operators {
            builder = builder.merge_operator(name, operator.clone());
        }
        for (name, filter) in &self.filters {
            builder = builder.filter(name, filter.clone());
        }
        builder
    }
}

fn table(text: &str) -> Result<Table> {
    text.parse().map_err(|why: toml::de::Error| invalid(format!("options: {}", why.to_string().trim_end())))
}

/// A family's options by TOML text, over those it has.
pub(crate) fn of_family(mut options: FamilyOptions, text: &str) -> Result<FamilyOptions> {
    set_all(&mut options, table(text)?)?;
    Ok(options)
}

fn set_all(options: &mut FamilyOptions, said: Table) -> Result<()> {
    texts(said, "").iter().try_for_each(|(name, text)| options.set(name, text))
}

/// Each option with its value as text, those of inner tables by dotted names.
fn texts(table: Table, within: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, value) in table {
        let name = format!("{within}{name}");
        match value {
            Value::Table(inner) if name == "tuning" => all.extend(texts(inner, "tuning.")),
            Value::String(text) => all.push((name, text)),
            // As JSON, which the engine reads.
            other => all.push((name, serde_json::to_string(&other).unwrap_or_default())),
        }
    }
    all
}

/// Options as they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_new() -> Option<Box<Options>> {
    Some(Box::default())
}

/// Sets what the TOML text says, and nothing if it is wrong. Options have the names and meanings that
/// docs.rs/siltstone gives for `Options` and `FamilyOptions`; sizes may be numbers of bytes or texts such as
/// "64MiB", times numbers of microseconds or texts such as "30days":
///
///     write_memory = "128MiB"
///     sstable_reads = "mapped"
///     [families.events]               # made if it is not there
///     timestamps = "explicit"
///     strategy = "size_tiered{runs=4}"
///
/// A family that is named there gets all its options by it: those that are not given have their defaults. To
/// change some of a family's options and keep the others, use `siltstone_family_alter`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_parse(
    options: Option<&mut Options>,
    toml: *const c_char,
) -> Option<Box<Error>> {
    answer(|| given(options, "options")?.parse(utf8(toml, "toml")?))
}

/// Registers a merge operator under the name that families refer to (`merge_operator = "name"`). `context` is
/// handed to each call, from several threads at once. `free_context` (which may be NULL) is called with it
/// once, on any thread, when neither these options nor a database need it any more, or when this call fails.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_merge_operator(
    options: Option<&mut Options>,
    name: *const c_char,
    function: OperatorFunction,
    context: *mut c_void,
    free_context: Option<extern "C" fn(*mut c_void)>,
) -> Option<Box<Error>> {
    // Before anything can fail: whatever comes of the call, the context is freed.
    let context = Context::new(context, free_context);
    answer(|| {
        given(function, "function")?;
        let operator = Operator { function, context };
        let name = utf8(name, "name")?.to_string();
        given(options, "options")?.operators.insert(name, Arc::new(operator));
        Ok(())
    })
}

/// Registers a compaction filter under the name that families refer to (`filter = "name"`). `context` is
/// treated as for merge operators.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_filter(
    options: Option<&mut Options>,
    name: *const c_char,
    function: FilterFunction,
    context: *mut c_void,
    free_context: Option<extern "C" fn(*mut c_void)>,
) -> Option<Box<Error>> {
    let context = Context::new(context, free_context);
    answer(|| {
        given(function, "function")?;
        let filter = Filter { function, context };
        let name = utf8(name, "name")?.to_string();
        given(options, "options")?.filters.insert(name, Arc::new(filter));
        Ok(())
    })
}

/// Frees options and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_free(options: Option<&mut Option<Box<Options>>>) {
    free(options);
}
