//! The part of its table that an authorized view has, compiled: ranges of keys of rows, and of qualifiers for
//! each family.

use crate::cells::row_key::{self, Span};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tonic::Status;

/// Columns of a family: ranges of qualifiers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns(Vec<Span>);

impl Columns {
    /// The qualifiers that are named, and those that begin with a prefix.
    pub(crate) fn of(qualifiers: &[Vec<u8>], prefixes: &[Vec<u8>]) -> Self {
        let exact = |one: &Vec<u8>| Span { start: one.clone(), end: Some([&one[..], b"\0"].concat()) };
        let prefix = |one: &Vec<u8>| Span { start: one.clone(), end: row_key::behind_prefix(one) };
        let all = qualifiers.iter().map(exact).chain(prefixes.iter().map(prefix));
        Self(row_key::merged(all.collect()))
    }

    /// The first that it has, from this one on. O(log ranges).
    pub(crate) fn first_from<'a>(&'a self, qualifier: &'a [u8]) -> Option<&'a [u8]> {
        let at = self.0.partition_point(|span| span.end.as_deref().is_some_and(|end| end <= qualifier));
        self.0.get(at).map(|span| qualifier.max(&span.start[..]))
    }

    pub(crate) fn has(&self, qualifier: &[u8]) -> bool {
        self.first_from(qualifier) == Some(qualifier)
    }

    pub(crate) fn is_all(&self) -> bool {
        self.0.first().is_some_and(|span| span.start.is_empty() && span.end.is_none())
    }
}

/// Whether each of some ranges lies within one of others, in which nothing is twice.
fn cover(others: &[Span], some: &[Span]) -> bool {
    let is_within = |span: &Span, other: &Span| {
        let ends = |other: &Vec<u8>| span.end.as_ref().is_some_and(|end| end <= other);
        other.start <= span.start && other.end.as_ref().is_none_or(ends)
    };
    some.iter().all(|span| others.iter().any(|other| is_within(span, other)))
}

/// The part of its table that a view has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subset {
    /// Keys of rows, in order.
    rows: Vec<Span>,
    families: BTreeMap<String, Arc<Columns>>,
}

impl Subset {
    /// The rows that begin with these prefixes, and of these such columns.
    pub(crate) fn new(row_prefixes: &[Vec<u8>], families: impl Iterator<Item = (String, Columns)>) -> Self {
        let rows = row_prefixes.iter().map(|prefix| row_key::prefix_span(prefix)).collect();
        let families = families.filter(|(_, columns)| !columns.0.is_empty());
        let families = families.map(|(name, columns)| (name, Arc::new(columns))).collect();
        Self { rows: row_key::merged(rows), families }
    }

    /// The keys of its rows, in order.
    pub(crate) fn rows(&self) -> &[Span] {
        &self.rows
    }

    /// Its columns of a family, if it has some.
    pub(crate) fn columns(&self, family: &str) -> Option<&Arc<Columns>> {
        self.families.get(family)
    }

    /// Whether it has all columns of a family.
    pub(crate) fn has_family(&self, family: &str) -> bool {
        self.columns(family).is_some_and(|columns| columns.is_all())
    }

    /// Whether it has all that another one has.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let has = |(name, columns): (&String, &Arc<Columns>)| {
            self.families.get(name).is_some_and(|own| cover(&own.0, &columns.0))
        };
        cover(&self.rows, &other.rows) && other.families.iter().all(has)
    }

    /// # Errors
    /// `PERMISSION_DENIED` for a row that it has not.
    pub(crate) fn check_row(&self, row: &[u8]) -> Result<(), Status> {
        let key = row_key::row_start(row);
        let at = self.rows.partition_point(|span| span.end.as_ref().is_some_and(|end| *end <= key));
        match self.rows.get(at).is_some_and(|span| span.start <= key) {
            true => Ok(()),
            false => Err(outside(&format!("the row \"{}\"", row.escape_ascii()))),
        }
    }

    /// # Errors
    /// `PERMISSION_DENIED` for a column that it has not.
    pub(crate) fn check_column(&self, family: &str, qualifier: &[u8]) -> Result<(), Status> {
        match self.columns(family).is_some_and(|columns| columns.has(qualifier)) {
            true => Ok(()),
            false => Err(outside(&format!("the column \"{family}:{}\"", qualifier.escape_ascii()))),
        }
    }

    /// # Errors
    /// `PERMISSION_DENIED` for a family of which it has not all columns.
    pub(crate) fn check_family(&self, family: &str) -> Result<(), Status> {
        match self.has_family(family) {
            true => Ok(()),
            false => Err(outside(&format!("the family \"{family}\", or a part of it,"))),
        }
    }

    /// The parts of some ordered spans of keys that it has.
    pub(crate) fn within(&self, spans: impl IntoIterator<Item = Span>) -> VecDeque<Span> {
        let mut within = VecDeque::new();
        for span in spans {
            let first =
                self.rows.partition_point(|own| own.end.as_ref().is_some_and(|end| *end <= span.start));
            let begins = |own: &&Span| span.end.as_ref().is_none_or(|end| own.start < *end);
            let own = self.rows[first..].iter().take_while(begins);
            within.extend(own.map(|own| span.intersect(&own.start, own.end.as_deref())));
        }
        within
    }
}

/// What lies outside a view: as the service says it.
pub(crate) fn outside(what: &str) -> Status {
    Status::permission_denied(format!("{what} is outside the Authorized View"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'b', 0xff]), 0..4)
    }

    proptest! {
        #[test]
        fn columns_are_those_that_a_plain_look_finds(
            exact in prop::collection::vec(text(), 0..4),
            prefixes in prop::collection::vec(text(), 0..4),
            mut asked in prop::collection::vec(text(), 1..20),
        ) {
            let columns = Columns::of(&exact, &prefixes);
            let begins = |q: &Vec<u8>| prefixes.iter().any(|prefix| q.starts_with(prefix));
            let is_in = |q: &Vec<u8>| exact.contains(q) || begins(q);
            asked.sort();
            for (at, one) in asked.iter().enumerate() {
                prop_assert_eq!(columns.has(one), is_in(one), "{:?}", one);
                // Nothing that it has lies between a qualifier and the first from there on.
                let next = columns.first_from(one);
                if let Some(found) = asked[at..].iter().find(|other| is_in(other)) {
                    prop_assert!(next.is_some_and(|next| next <= &found[..]));
                }
            }
        }
    }
}
