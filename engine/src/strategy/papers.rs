//! The refusal of strategies and policies that exist for comparisons, in a build without the feature
//! `papers`.

/// The end of the error for an option that needs the feature.
pub(crate) const NEEDS_PAPERS: &str = "needs the feature `papers`, without which this was built";

/// The refusal of an option's value by its name.
#[cfg(not(feature = "papers"))]
pub(super) fn needs_papers(what: &str, name: &str) -> String {
    format!("{what} `{name}` {NEEDS_PAPERS}")
}
