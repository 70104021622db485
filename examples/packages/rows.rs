//! Rows out of the machine's Debian package index, or out of made-up packages where there is none.
//!
//! A record of `apt-cache dumpavail` is a paragraph of `Field: value` lines; a line that begins with a space
//! goes on with the value before it. Each field becomes a row with the key `package/Field`, so that a prefix
//! scan of `package/` gives the package back. Where a package is listed more than once, the first record
//! counts.
//!
//! The made-up packages are written by the code below in the very same format instead of being shipped as a
//! file: it is shorter, and goes through the same parser.

use std::collections::HashSet;
use std::io::{self, Write};
use std::process::Command;

/// Packages as rows, in the order of the index, each key once.
pub(crate) struct Index {
    /// Where they come from.
    pub(crate) source: &'static str,
    /// How many packages.
    pub(crate) packages: usize,
    /// Key `package/Field`, and value.
    pub(crate) rows: Vec<(String, String)>,
}

/// Fewer packages than these are no real index.
const PACKAGES_MIN: usize = 1_000;

/// The machine's packages, else made-up ones.
pub(crate) fn index() -> Index {
    let real =
        Command::new("apt-cache").arg("dumpavail").output().ok().filter(|output| output.status.success());
    let real = real.map(|output| parse(&String::from_utf8_lossy(&output.stdout), "apt-cache dumpavail"));
    real.filter(|index| index.packages >= PACKAGES_MIN).unwrap_or_else(made_up)
}

/// Rows from records.
pub(crate) fn parse(text: &str, source: &'static str) -> Index {
    let mut index = Index { source, packages: 0, rows: Vec::new() };
    let mut seen = HashSet::new();
    for record in text.split("\n\n") {
        let fields = fields(record);
        let Some((_, package)) = fields.iter().find(|(name, _)| *name == "Package") else { continue };
        if !seen.insert(package.clone()) {
            continue;
        }
        index.packages += 1;
        let mut names = HashSet::new();
        for (name, value) in &fields {
            if names.insert(*name) {
                index.rows.push((format!("{package}/{name}"), value.clone()));
            }
        }
    }
    index
}

fn fields(record: &str) -> Vec<(&str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in record.lines() {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line.trim_start());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name, value.trim().to_string()));
        }
    }
    fields
}

/// Two thousand packages that nobody has written.
pub(crate) fn made_up() -> Index {
    const WHAT: [&str; 10] =
        ["clay", "delta", "dune", "fan", "gravel", "loam", "reef", "sand", "shale", "silt"];
    const KIND: [&str; 10] =
        ["bin", "common", "data", "dev", "doc", "lang", "perl", "tools", "utils", "view"];
    let mut text = String::new();
    for n in 0..2_000 {
        let (what, kind, number) = (WHAT[n / 10 % 10], KIND[n % 10], n / 100);
        text += &format!(
            "Package: {what}{number}-{kind}\nVersion: {}.{}-{}\nInstalled-Size: {}\nArchitecture: all\n\
             Depends: {what}{number}-common (>= {}.0)\nDescription: layers of {what}, part {number}: {kind}\n\
             Tag: role::{kind},\n made-of::{what}\nSection: sediments\nPriority: optional\nSize: {}\n\n",
            n % 7,
            n % 13,
            n % 3 + 1,
            n * 37 % 5_000,
            n % 7,
            n * 7_919 % 100_000,
        );
    }
    parse(&text, "made-up packages")
}

/// Writes the rows as tsv, the way `siltstone load` reads them.
pub(crate) fn export(rows: &[(String, String)], out: &mut impl Write) -> io::Result<()> {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
    rows.iter().try_for_each(|(key, value)| writeln!(out, "{}\t{}", escaped(key), escaped(value)))
}
