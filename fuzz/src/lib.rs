//! Hostile bytes for every decoder: valid inputs, changed in ways that decoders trip over, with checksums made to
//! fit again so that the bytes behind them are really decoded.
//!
//! A decoder may answer wrongly on forged bytes. It must not panic, hang, or take more memory than [`MEMORY_MAX`].
//! Input `n` of a decoder is a function of the seed and `n`, so a failure is run again by its number; its bytes are
//! saved below `corpus/` too, where a test replays them for ever.

pub mod mutate;
pub mod run;

/// Bytes that decoding one input may hold at a time.
pub const MEMORY_MAX: usize = 64 << 20;
