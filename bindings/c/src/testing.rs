//! Every decoder of the C interface, each as a function of bytes that must not panic, hang or take much
//! memory whatever it is given. The package `siltstone-fuzz` calls them.

use crate::options::{Options, of_family};
use siltstone::FamilyOptions;
use siltstone::testing::Target;

/// Every decoder.
pub fn all() -> Vec<Target> {
    let target = |name, seeds, decode| Target { name, seeds, sign: |_| {}, decode };
    vec![target("c-options", option_seeds, options), target("c-family-options", family_seeds, family)]
}

fn option_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "write_memory = \"128MiB\"\ntuning.compaction_step_bytes = \"16MiB\"\n[families.events]\ntimestamps = \"explicit\"\n",
        "workers = 2\n[families.events]\nstrategy = \"size_tiered{runs=4}\"\n[tuning]\nwal_file_bytes = 65536\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// What is wrong changes nothing; what was taken can be given to a database.
fn options(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut options = Options::default();
    if options.parse(&text).is_ok() {
        assert!(options.parse(&text).is_ok(), "what was taken once is refused");
        drop(options.builder());
    }
}

fn family_seeds() -> Vec<Vec<u8>> {
    let texts =
        ["strategy = \"leveled\"\nbloom_bits = 10\n", "compression = \"zstd:3\"\nttl_us = \"30days\"\n"];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

fn family(bytes: &[u8]) {
    if let Ok(options) = of_family(FamilyOptions::default(), &String::from_utf8_lossy(bytes)) {
        let _ = options.validate();
    }
}
