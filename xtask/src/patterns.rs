//! Patterns of filters beside Go's `regexp`, another RE2, where Go is there to build what asks it
//! (`tests/patterns`).

use crate::clients::{done, limited};
use crate::run::{Tally, root};
use std::fs;
use std::process::Command;

/// Patterns for every change.
pub(crate) const COUNT: u64 = 20_000;

const BUILD_SECONDS: &str = "300";

pub(crate) fn step(tally: &mut Tally, count: u64, seed: u64) {
    let peer = root().join("target/patterns/peer");
    let place = peer.parent().map(fs::create_dir_all);
    let mut build = limited(BUILD_SECONDS, "go");
    build.args(["build", "-o"]).arg(&peer).arg(".").current_dir(root().join("tests/patterns"));
    if place.is_none_or(|made| made.is_err()) || !done(&mut build) {
        println!("patterns beside Go's: left out, as there is no Go here");
        return;
    }
    if !tally.step("build of what compares patterns", &mut crate::tools::build()) {
        return;
    }
    let mut compare = Command::new(root().join("target/debug/siltstone-patterns"));
    compare.arg(peer).arg("--count").arg(count.to_string()).arg("--seed").arg(seed.to_string());
    tally.step("patterns beside Go's", &mut compare);
}
