//! The refusal of strategies and policies that are there to be compared with, in a build without the feature
//! `papers`.

/// What is said of an option that only builds with the feature have.
pub(crate) const NEEDS_PAPERS: &str = "needs the feature `papers`, without which this was built";

/// The refusal of an option's value by its name.
#[cfg(not(feature = "papers"))]
pub(super) fn needs_papers(what: &str, name: &str) -> String {
    format!("{what} `{name}` {NEEDS_PAPERS}")
}
