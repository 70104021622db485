//! An authorized view: its form in its table's record, and its message.

use crate::cells::row_key;
use crate::cells::subset::{Columns, Subset};
use crate::names;
use crate::proto::admin;
use crate::proto::admin::authorized_view::{AuthorizedView as Kind, FamilySubsets, ResponseView, SubsetView};
use crate::tables::stored_message::stored_bytes;
use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tonic::Status;

/// Prefixes and qualifiers of a view, at most.
const PARTS_MAX: usize = 100;
/// The fields of a view that can be updated.
const PATHS: [&str; 4] =
    ["deletion_protection", "subset_view", "subset_view.row_prefixes", "subset_view.family_subsets"];

/// A view as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewSchema {
    #[serde(default)]
    pub(crate) deletion_protection: bool,
    #[serde(with = "stored_bytes")]
    row_prefixes: Vec<Vec<u8>>,
    families: BTreeMap<String, ColumnsSchema>,
}

/// The columns of a family in a view, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnsSchema {
    #[serde(with = "stored_bytes")]
    qualifiers: Vec<Vec<u8>>,
    #[serde(with = "stored_bytes")]
    prefixes: Vec<Vec<u8>>,
}

pub(super) fn invalid(what: impl Into<String>) -> Status {
    Status::invalid_argument(what)
}

/// Short texts of what is given, checked.
fn parts(what: &str, of: &[Bytes], max: usize) -> Result<Vec<Vec<u8>>, Status> {
    let check = |part: &Bytes| match part.len() {
        len if len > max => Err(invalid(format!("{what} of {len} bytes, the limit is {max}"))),
        _ => Ok(part.to_vec()),
    };
    of.iter().map(check).collect()
}

impl ViewSchema {
    /// Takes over what a message says of rows, of columns, or of both.
    fn set<F>(
        &mut self,
        subset: &SubsetView,
        (has_rows, has_families): (bool, bool),
        known: &BTreeMap<String, F>,
    ) -> Result<(), Status> {
        if has_rows {
            self.row_prefixes = parts("row_prefixes: a prefix", &subset.row_prefixes, row_key::ROW_KEY_MAX)?;
        }
        if has_families {
            let unknown = subset.family_subsets.keys().find(|name| !known.contains_key(*name));
            if let Some(name) = unknown {
                let message = format!("family_subsets names the family \"{name}\", which the table has not");
                return Err(invalid(message));
            }
            let columns = |(name, of): (&String, &FamilySubsets)| -> Result<_, Status> {
                let max = row_key::QUALIFIER_MAX;
                let qualifiers = parts("qualifiers: one", &of.qualifiers, max)?;
                let prefixes = parts("qualifier_prefixes: one", &of.qualifier_prefixes, max)?;
                Ok((name.clone(), ColumnsSchema { qualifiers, prefixes }))
            };
            self.families = subset.family_subsets.iter().map(columns).collect::<Result<_, _>>()?;
        }
        let of_family = |columns: &ColumnsSchema| columns.qualifiers.len() + columns.prefixes.len();
        let count = self.row_prefixes.len() + self.families.values().map(of_family).sum::<usize>();
        match count {
            ..=PARTS_MAX => Ok(()),
            _ => Err(invalid(format!(
                "the view has {count} prefixes and qualifiers, the limit is {PARTS_MAX}"
            ))),
        }
    }

    /// The view that is to be made, of a table with these families.
    pub(crate) fn new<F>(
        asked: &admin::AuthorizedView,
        families: &BTreeMap<String, F>,
    ) -> Result<Self, Status> {
        if !asked.etag.is_empty() {
            return Err(invalid("authorized_view.etag: a view that is made has none before"));
        }
        let mut made = Self { deletion_protection: asked.deletion_protection, ..Self::default() };
        made.set(subset_of(asked)?, (true, true), families)?;
        Ok(made)
    }

    /// Takes over the fields that a mask names; without one those that are set, and all with `*`.
    pub(crate) fn update<F>(
        &mut self,
        asked: &admin::AuthorizedView,
        mask: &[String],
        families: &BTreeMap<String, F>,
    ) -> Result<(), Status> {
        if let Some(other) = mask.iter().find(|path| *path != "*" && !PATHS.contains(&path.as_str())) {
            return Err(invalid(format!("update_mask names \"{other}\", which cannot be updated of a view")));
        }
        let named = |path: &str| mask.iter().any(|named| named == path || named == "*");
        let (is_free, has_subset) = (mask.is_empty(), asked.authorized_view.is_some());
        if named(PATHS[0]) || (is_free && asked.deletion_protection) {
            self.deletion_protection = asked.deletion_protection;
        }
        let all = named(PATHS[1]) || (is_free && has_subset);
        let which = (all || named(PATHS[2]), all || named(PATHS[3]));
        match which {
            (false, false) => Ok(()),
            which => self.set(subset_of(asked)?, which, families),
        }
    }

    /// Bytes of the message of its rows and columns.
    pub(super) fn subset_len(&self) -> usize {
        let field = |bytes: usize| 1 + prost::encoding::encoded_len_varint(bytes as u64) + bytes;
        let all = |of: &[Vec<u8>]| -> usize { of.iter().map(|one| field(one.len())).sum() };
        let columns = |(name, of): (&String, &ColumnsSchema)| {
            let columns = all(&of.qualifiers) + all(&of.prefixes);
            field(field(name.len()) + if columns == 0 { 0 } else { field(columns) })
        };
        all(&self.row_prefixes) + self.families.iter().map(columns).sum::<usize>()
    }

    fn subset(&self) -> SubsetView {
        let bytes = |all: &[Vec<u8>]| -> Vec<Bytes> { all.iter().map(|one| one.clone().into()).collect() };
        let columns = |(name, of): (&String, &ColumnsSchema)| {
            let of =
                FamilySubsets { qualifiers: bytes(&of.qualifiers), qualifier_prefixes: bytes(&of.prefixes) };
            (name.clone(), of)
        };
        SubsetView {
            row_prefixes: bytes(&self.row_prefixes),
            family_subsets: self.families.iter().map(columns).collect(),
        }
    }

    /// The view as a message, with these of its fields.
    pub(crate) fn to_message(&self, name: &str, view: ResponseView) -> admin::AuthorizedView {
        let named = admin::AuthorizedView { name: name.to_string(), ..Default::default() };
        if view == ResponseView::NameOnly {
            return named;
        }
        let subset = Some(Kind::SubsetView(self.subset()));
        let deletion_protection = self.deletion_protection;
        let state = admin::AuthorizedView { deletion_protection, authorized_view: subset, ..named };
        let etag = names::fingerprint(&state.encode_to_vec());
        match view {
            ResponseView::Basic => admin::AuthorizedView { etag, authorized_view: None, ..state },
            _ => admin::AuthorizedView { etag, ..state },
        }
    }

    /// Compiled.
    pub(crate) fn compiled(&self) -> Subset {
        let columns = |of: &ColumnsSchema| Columns::of(&of.qualifiers, &of.prefixes);
        let families = self.families.iter().map(|(name, of)| (name.clone(), columns(of)));
        Subset::new(&self.row_prefixes, families)
    }
}

fn subset_of(view: &admin::AuthorizedView) -> Result<&SubsetView, Status> {
    match &view.authorized_view {
        Some(Kind::SubsetView(subset)) => Ok(subset),
        None => Err(invalid("authorized_view.subset_view is missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::row_key::Span;
    use proptest::prelude::*;

    fn subset(rows: &[&'static str], families: &[(&str, &[&'static str], &[&'static str])]) -> SubsetView {
        let bytes =
            |all: &[&'static str]| -> Vec<Bytes> { all.iter().map(|one| Bytes::from(*one)).collect() };
        let columns = |(name, exact, prefixes): &(&str, &[&'static str], &[&'static str])| {
            let of = FamilySubsets { qualifiers: bytes(exact), qualifier_prefixes: bytes(prefixes) };
            ((*name).to_string(), of)
        };
        SubsetView { row_prefixes: bytes(rows), family_subsets: families.iter().map(columns).collect() }
    }

    fn message(subset: SubsetView) -> admin::AuthorizedView {
        admin::AuthorizedView { authorized_view: Some(Kind::SubsetView(subset)), ..Default::default() }
    }

    fn families() -> BTreeMap<String, ()> {
        [("f".to_string(), ()), ("g".to_string(), ())].into()
    }

    fn view(subset: SubsetView) -> ViewSchema {
        ViewSchema::new(&message(subset), &families()).unwrap()
    }

    #[test]
    fn a_view_has_what_begins_with_its_prefixes_or_is_named_and_nothing_else() {
        let of =
            view(subset(&["a", "ab", "c\u{7f}"], &[("f", &["q", ""], &["p"]), ("g", &[], &[])])).compiled();
        for (row, is_in) in
            [("a", true), ("abc", true), ("b", false), ("", false), ("c\u{7f}x", true), ("c", false)]
        {
            assert_eq!(of.check_row(row.as_bytes()).is_ok(), is_in, "{row}");
        }
        for (qualifier, is_in) in
            [("q", true), ("", true), ("p", true), ("pq", true), ("qq", false), ("a", false)]
        {
            assert_eq!(of.check_column("f", qualifier.as_bytes()).is_ok(), is_in, "{qualifier}");
            assert!(of.check_column("g", qualifier.as_bytes()).is_err());
        }
        assert!(
            !of.has_family("f") && view(subset(&[""], &[("f", &["x"], &[""])])).compiled().has_family("f")
        );
        let none = view(subset(&[], &[])).compiled();
        assert!(none.check_row(b"a").is_err() && none.within([row_key::prefix_span(b"")]).is_empty());
        let refused = none.check_row(b"a").unwrap_err();
        assert!(refused.message().contains("outside the Authorized View"), "{refused}");
    }

    #[test]
    fn a_view_is_told_as_it_was_given_and_so_much_of_it_as_is_asked_for() {
        let given = subset(&["b", "a", "b"], &[("f", &["z", "a"], &[""])]);
        let of = view(given.clone());
        let full = of.to_message("name", ResponseView::Full);
        assert_eq!(full.authorized_view, Some(Kind::SubsetView(given)));
        let basic = of.to_message("name", ResponseView::Basic);
        assert!(basic.etag == full.etag && !basic.etag.is_empty() && basic.authorized_view.is_none());
        assert_eq!(of.to_message("name", ResponseView::NameOnly).etag, "");
        let other = ViewSchema { deletion_protection: true, ..of };
        assert_ne!(other.to_message("name", ResponseView::Basic).etag, full.etag);
    }

    #[test]
    fn what_is_wrong_with_a_view_is_said() {
        let many: Vec<&str> = vec!["x"; PARTS_MAX + 1];
        for (asked, word) in [
            (admin::AuthorizedView::default(), "subset_view"),
            (message(subset(&["a"], &[("none", &["q"], &[])])), "\"none\""),
            (message(subset(&many, &[])), "limit is 100"),
            (admin::AuthorizedView { etag: "x".into(), ..message(subset(&[""], &[])) }, "etag"),
        ] {
            let refused = ViewSchema::new(&asked, &families()).unwrap_err();
            assert!(refused.message().contains(word), "{refused}, expected {word}");
        }
        let long = SubsetView {
            row_prefixes: vec![vec![b'x'; row_key::ROW_KEY_MAX + 1].into()],
            ..Default::default()
        };
        assert!(ViewSchema::new(&message(long), &families()).is_err());
    }

    #[test]
    fn an_update_takes_over_what_its_mask_names() {
        let of = view(subset(&["a"], &[("f", &["q"], &[])]));
        let asked = admin::AuthorizedView {
            deletion_protection: true,
            ..message(subset(&["b"], &[("g", &["r"], &[])]))
        };
        let updated = |paths: &[&str]| {
            let mut of = of.clone();
            let mask: Vec<String> = paths.iter().map(ToString::to_string).collect();
            of.update(&asked, &mask, &families()).map(|()| of)
        };
        let all = updated(&["*"]).unwrap();
        assert_eq!(
            (updated(&[]).unwrap(), updated(&["subset_view", "deletion_protection"]).unwrap()),
            (all.clone(), all)
        );
        let rows = updated(&["subset_view.row_prefixes"]).unwrap();
        assert!(rows.row_prefixes == [b"b"] && rows.families == of.families && !rows.deletion_protection);
        let columns = updated(&["subset_view.family_subsets"]).unwrap();
        assert!(columns.row_prefixes == [b"a"] && columns.families.contains_key("g"));
        assert!(updated(&["deletion_protection"]).unwrap().families == of.families);
        assert!(updated(&["etag"]).unwrap_err().message().contains("\"etag\""));
        // Nothing is set, so nothing changes.
        let mut same = of.clone();
        same.update(&admin::AuthorizedView::default(), &[], &families()).unwrap();
        assert_eq!(same, of);
    }

    #[test]
    fn the_bytes_of_a_view_are_those_of_its_message() {
        let long = "x".repeat(200);
        let long: &'static str = long.leak();
        for of in [
            view(subset(&[], &[])),
            view(subset(&["", "a", long], &[("f", &["q", long], &["", "p"]), ("g", &[], &[])])),
            view(subset(&["a"], &[("f", &[long; 50], &[]), ("g", &[], &[""])])),
        ] {
            assert_eq!(of.subset_len(), of.subset().encoded_len());
        }
    }

    #[test]
    fn a_view_is_stored_as_texts_and_read_of_numbers() {
        let of = view(subset(&["ab", ""], &[("f", &["q"], &["p"])]));
        let stored = serde_json::to_string(&of).unwrap();
        assert!(stored.contains(r#""row_prefixes":["YWI=",""]"#), "{stored}");
        assert_eq!(serde_json::from_str::<ViewSchema>(&stored).unwrap(), of);
        let numbers =
            r#"{"row_prefixes":[[97,98],[]],"families":{"f":{"qualifiers":[[113]],"prefixes":[[112]]}}}"#;
        assert_eq!(serde_json::from_str::<ViewSchema>(numbers).unwrap(), of);
    }

    #[test]
    fn a_view_that_grows_covers_the_one_before() {
        let of = |rows: &[&'static str], exact: &[&'static str], prefixes: &[&'static str]| {
            view(subset(rows, &[("f", exact, prefixes)])).compiled()
        };
        let small = of(&["ab", "c"], &["q"], &["p1"]);
        for large in [of(&["a", "c"], &["q"], &["p"]), of(&[""], &[], &[""]), small.clone()] {
            assert!(large.covers(&small));
        }
        for other in [of(&["ab"], &[], &[""]), of(&[""], &["q"], &["p12"]), Subset::default()] {
            assert!(!other.covers(&small));
        }
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'b', 0xff]), 0..4)
    }

    proptest! {
        #[test]
        fn rows_are_those_that_a_plain_look_finds(
            prefixes in prop::collection::vec(text(), 0..4),
            rows in prop::collection::vec(text(), 1..20),
            asked in prop::collection::vec(text(), 1..8),
        ) {
            let row_prefixes = prefixes.iter().map(|prefix| prefix.clone().into()).collect();
            let of = SubsetView { row_prefixes, ..Default::default() };
            let of = view(of).compiled();
            let spans = row_key::merged(asked.iter().map(|prefix| row_key::prefix_span(prefix)).collect());
            let within = of.within(spans.clone());
            let is_before = |(a, b): (&Span, &Span)| a.end.as_ref().is_some_and(|end| *end <= b.start);
            prop_assert!(within.iter().zip(within.iter().skip(1)).all(is_before));
            for row in rows.iter().filter(|row| !row.is_empty()) {
                let is_in = prefixes.iter().any(|prefix| row.starts_with(prefix));
                prop_assert_eq!(of.check_row(row).is_ok(), is_in, "{:?}", row);
                let key = row_key::cell_key(row, b"q");
                let is_asked = spans.iter().any(|span| span.has(&key));
                prop_assert_eq!(within.iter().any(|span| span.has(&key)), is_in && is_asked, "{:?}", row);
            }
        }
    }
}
