//! The demonstration: the machine's package index as a table.

#[path = "../../../../examples/packages/rows.rs"]
#[expect(dead_code, reason = "the example of the library uses more of it")]
mod rows;

use super::say;
use siltstone_server::{Cell, Server};
use std::net::SocketAddr;
use std::time::Instant;

const PROJECT: &str = "local";
const INSTANCE: &str = "demo";
const TABLE: &str = "packages";
const FAMILIES: [&str; 3] = ["about", "depends", "files"];

fn parent() -> String {
    format!("projects/{PROJECT}/instances/{INSTANCE}")
}

/// Loads the table, if it is not there.
pub(super) fn load(server: &Server) -> Result<(), String> {
    if server.has_table(&parent(), TABLE)? {
        return Ok(());
    }
    let index = rows::index();
    let begun = Instant::now();
    let cells = index.rows.iter().flat_map(|(key, value)| cells(key, value));
    let written = server.load(&parent(), TABLE, &FAMILIES, cells)?;
    let (seconds, packages) = (begun.elapsed().as_secs_f64(), index.packages);
    say(&format!(
        "{}: {packages} rows with {written} cells loaded into table {TABLE} in {seconds:.1} s",
        index.source
    ));
    Ok(())
}

/// The cells of a field of a package: where it can be had from, what it needs (a column each), and all else
/// about it.
fn cells(key: &str, value: &str) -> Vec<Cell> {
    let (package, field) = key.rsplit_once('/').unwrap_or((key, ""));
    let cell = |family, qualifier: &str, value: &str| Cell {
        row: package.to_string(),
        family,
        qualifier: qualifier.to_string(),
        value: value.to_string(),
    };
    match field {
        "Filename" | "Size" | "MD5sum" | "SHA1" | "SHA256" => vec![cell("files", field, value)],
        "Depends" | "Pre-Depends" => value
            .split(", ")
            .map(|one| {
                let name = one.split([' ', ':', '(']).next().unwrap_or(one);
                cell("depends", name, one)
            })
            .collect(),
        _ => vec![cell("about", field, value)],
    }
}

/// Prints what to try.
pub(super) fn tell(at: SocketAddr) {
    let cbt = format!("cbt -project {PROJECT} -instance {INSTANCE}");
    say(&format!(
        "\n  export BIGTABLE_EMULATOR_HOST={at}\n\n  {cbt} ls {TABLE}\n  {cbt} lookup {TABLE} bash\n  \
         {cbt} read {TABLE} prefix=python3- count=5 columns=about:Version\n"
    ));
}
