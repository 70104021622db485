//! Hostile bytes for every decoder: valid inputs, changed in ways that decoders trip over, with checksums
//! made to fit again so that the bytes behind them are really decoded.
//!
//! A decoder may answer wrongly on forged bytes. It must not panic, hang, or take more memory than
//! [`memory_max`]. Input `n` of a decoder is a function of the seed and `n`, so a failure is run again by its
//! number; its bytes are saved below `corpus/` too, where a test replays them for ever.
//!
//! Each package lists its decoders in a module `testing`; those of the command line, which is no library, are
//! in `rows`, over its own modules `format`, `escape` and `failure`. `run` runs a decoder over inputs, which
//! `mutate` makes.

pub mod mutate;
mod rows;
pub mod run;

// The command line's own: they name each other by these paths.
#[allow(dead_code, reason = "the command line uses the rest")]
#[path = "../../cli/src/escape.rs"]
mod escape;
#[allow(dead_code, reason = "the command line uses the rest")]
#[path = "../../cli/src/failure.rs"]
mod failure;
#[allow(dead_code, reason = "the command line uses the rest")]
#[path = "../../cli/src/format/mod.rs"]
mod format;

use siltstone::testing::Target;

/// Bytes that decoding one input may hold at a time.
pub const MEMORY_MAX: usize = 64 << 20;
/// What a request, and a filter on its way to cells, may hold for each byte that it has, and what any may
/// hold besides.
const FOR_EACH_BYTE: usize = 512;
const BESIDES: usize = 1 << 20;

/// Every decoder of every package.
pub fn all() -> Vec<Target> {
    [
        siltstone::testing::all(),
        siltstone_server::testing::all(),
        siltstone_compactor::testing::all(),
        siltstone_c::testing::all(),
        rows::all(),
    ]
    .concat()
}

/// Bytes that a decoder may hold at a time for an input of so many.
pub fn memory_max(target: &Target, bytes: usize) -> usize {
    if target.name.starts_with("request-") { BESIDES + FOR_EACH_BYTE * bytes } else { MEMORY_MAX }
}
