//! Authorized views: parts of a table that have a name, and rights, of their own.
//!
//! A view has the rows that begin with some prefixes, and of these the columns that are named or begin with some prefixes. It is
//! kept in its table's record ([`ViewSchema`]), so it is there as durably as the table, and gone with it. With each change of that
//! record it is compiled ([`Subset`]): into ranges of keys of rows, and of qualifiers for each family.
//!
//! Who calls through a view ([`Target`]) reads what these ranges have and nothing else, before a filter is asked, and what it
//! would write beyond them is refused. What is outside leaves no trace in an answer: it is in no count and among no sampled keys.

use crate::cells::filter::{Filter, Need};
use crate::cells::row_key::{self, Span};
use crate::names;
use crate::proto::admin::authorized_view::{AuthorizedView as Kind, FamilySubsets, ResponseView, SubsetView};
use crate::proto::admin::{
    self, CreateAuthorizedViewRequest, DeleteAuthorizedViewRequest, ListAuthorizedViewsResponse,
    UpdateAuthorizedViewRequest,
};
use crate::tables::registry::{Table, Tables};
use crate::tables::schema::Schema;
use crate::tables::stored_message::stored_bytes;
use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use tonic::Status;

/// Prefixes and qualifiers of a view, at most.
const PARTS_MAX: usize = 100;
/// Bytes of all views of a table, at most, and what each takes beside its parts.
const VIEWS_BYTES_MAX: usize = 1 << 20;
const VIEW_BYTES: usize = 64;
/// What of a view can be updated.
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

fn invalid(what: impl Into<String>) -> Status {
    Status::invalid_argument(what)
}

fn no_view(name: &str) -> Status {
    Status::not_found(format!("no authorized view {name}"))
}

/// Short texts of what is given, checked.
fn parts(what: &str, of: &[Bytes], max: usize) -> Result<Vec<Vec<u8>>, Status> {
    let check = |part: &Bytes| match part.len() {
        len if len > max => Err(invalid(format!("{what} of {len} bytes, the limit is {max}"))),
        _ => Ok(part.to_vec()),
    };
    of.iter().map(check).collect()
}

/// # Errors
/// `ABORTED` where who asks names a state that is not the present one.
pub(crate) fn check_etag(asked: &str, now: &str) -> Result<(), Status> {
    match asked.is_empty() || asked == now {
        true => Ok(()),
        false => Err(Status::aborted(format!("the etag is \"{now}\", not \"{asked}\""))),
    }
}

impl ViewSchema {
    /// Takes over what a message says of rows, of columns, or of both.
    fn set(
        &mut self,
        subset: &SubsetView,
        (has_rows, has_families): (bool, bool),
        schema: &Schema,
    ) -> Result<(), Status> {
        if has_rows {
            self.row_prefixes = parts("row_prefixes: a prefix", &subset.row_prefixes, row_key::ROW_KEY_MAX)?;
        }
        if has_families {
            let unknown = subset.family_subsets.keys().find(|name| !schema.families.contains_key(*name));
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

    /// Of a view to be made.
    pub(crate) fn new(asked: &admin::AuthorizedView, schema: &Schema) -> Result<Self, Status> {
        if !asked.etag.is_empty() {
            return Err(invalid("authorized_view.etag: a view that is made has none before"));
        }
        let mut made = Self { deletion_protection: asked.deletion_protection, ..Self::default() };
        made.set(subset_of(asked)?, (true, true), schema)?;
        Ok(made)
    }

    /// Takes over the fields that a mask names; without one those that are set, and all with `*`.
    pub(crate) fn update(
        &mut self,
        asked: &admin::AuthorizedView,
        mask: &[String],
        schema: &Schema,
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
            which => self.set(subset_of(asked)?, which, schema),
        }
    }

    /// Bytes of the message of its rows and columns.
    fn subset_len(&self) -> usize {
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

    /// As a message, of which so much is told.
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
        let rows = self.row_prefixes.iter().map(|prefix| row_key::prefix_span(prefix)).collect();
        let columns = |(name, of): (&String, &ColumnsSchema)| {
            let columns = Columns::of(&of.qualifiers, &of.prefixes);
            (!columns.0.is_empty()).then(|| (name.clone(), Arc::new(columns)))
        };
        Subset { rows: row_key::merged(rows), families: self.families.iter().filter_map(columns).collect() }
    }
}

fn subset_of(view: &admin::AuthorizedView) -> Result<&SubsetView, Status> {
    match &view.authorized_view {
        Some(Kind::SubsetView(subset)) => Ok(subset),
        None => Err(invalid("authorized_view.subset_view is missing")),
    }
}

/// Columns of a family: ranges of qualifiers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns(Vec<Span>);

impl Columns {
    fn of(qualifiers: &[Vec<u8>], prefixes: &[Vec<u8>]) -> Self {
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

/// What a view has of its table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subset {
    /// Keys of rows, in order.
    rows: Vec<Span>,
    families: BTreeMap<String, Arc<Columns>>,
}

impl Subset {
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
    fn covers(&self, other: &Self) -> bool {
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

    /// What of some spans of keys, which are in order, it has.
    fn within(&self, spans: impl IntoIterator<Item = Span>) -> VecDeque<Span> {
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

/// What a call reads or writes: a table, or what a view has of it.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) table: Arc<Table>,
    pub(crate) view: Option<Arc<Subset>>,
}

impl Target {
    /// What must be read of each family for a filter.
    pub(crate) fn needs(&self, filter: &Filter) -> Vec<(Arc<str>, Need)> {
        self.table.now().needs(filter, self.view.as_deref())
    }

    /// What there is to read of some spans of keys, which are in order.
    pub(crate) fn within(&self, spans: VecDeque<Span>) -> VecDeque<Span> {
        match &self.view {
            None => spans,
            Some(view) => view.within(spans),
        }
    }
}

/// How much of a view is told, where a call says it.
pub(crate) fn response_view(asked: i32, otherwise: ResponseView) -> Result<ResponseView, Status> {
    match ResponseView::try_from(asked) {
        Ok(ResponseView::Unspecified) => Ok(otherwise),
        Ok(view) => Ok(view),
        Err(_) => Err(invalid(format!("view: there is none of number {asked}"))),
    }
}

fn check_bytes(schema: &Schema) -> Result<(), Status> {
    let of = |(id, view): (&String, &ViewSchema)| id.len() + view.subset_len() + VIEW_BYTES;
    let bytes: usize = schema.views.iter().map(of).sum();
    match bytes {
        ..=VIEWS_BYTES_MAX => Ok(()),
        _ => Err(Status::resource_exhausted(format!(
            "the table's authorized views take {bytes} bytes, the limit is {VIEWS_BYTES_MAX}"
        ))),
    }
}

impl Tables {
    /// What a call names: a table, or an authorized view of one.
    pub(crate) fn target(&self, table: &str, view: &str) -> Result<Target, Status> {
        match (table.is_empty(), view.is_empty()) {
            (_, true) => Ok(Target { table: self.get(names::table(table)?)?, view: None }),
            (false, false) => {
                Err(invalid("table_name and authorized_view_name are both set: a call is of one of them"))
            }
            (true, false) => {
                let (table, id) = names::view(view)?;
                let table = self.get(table).map_err(|_| no_view(view))?;
                let subset = table.now().views.get(id).cloned().ok_or_else(|| no_view(view))?;
                Ok(Target { table, view: Some(subset) })
            }
        }
    }

    /// Makes a view.
    pub(crate) fn create_view(
        &self,
        request: &CreateAuthorizedViewRequest,
    ) -> Result<admin::AuthorizedView, Status> {
        let id = &request.authorized_view_id;
        let name = names::view_of(&request.parent, id)?;
        let asked = request.authorized_view.as_ref().ok_or_else(|| invalid("no authorized_view"))?;
        if !asked.name.is_empty() && asked.name != name {
            return Err(invalid(format!("authorized_view.name is \"{}\", not {name}", asked.name)));
        }
        let mut made = ViewSchema::default();
        self.alter(&request.parent, |schema| {
            if schema.views.contains_key(id) {
                return Err(Status::already_exists(format!("authorized view {name} exists")));
            }
            made = ViewSchema::new(asked, schema)?;
            schema.views.insert(id.clone(), made.clone());
            check_bytes(schema)
        })?;
        Ok(made.to_message(&name, ResponseView::Full))
    }

    /// Changes a view. What makes it smaller needs `ignore_warnings`.
    pub(crate) fn update_view(
        &self,
        request: &UpdateAuthorizedViewRequest,
    ) -> Result<admin::AuthorizedView, Status> {
        let asked = request.authorized_view.as_ref().ok_or_else(|| invalid("no authorized_view"))?;
        let mask = request.update_mask.as_ref().map_or(&[][..], |mask| &mask.paths);
        let name = &asked.name;
        let (table, id) = names::view(name)?;
        let mut changed = ViewSchema::default();
        self.alter(table, |schema| {
            let before = schema.views.get(id).ok_or_else(|| no_view(name))?;
            check_etag(&asked.etag, &before.to_message(name, ResponseView::Basic).etag)?;
            changed = before.clone();
            changed.update(asked, mask, schema)?;
            if !request.ignore_warnings && !changed.compiled().covers(&before.compiled()) {
                let message = format!("{name} would have less than before, which ignore_warnings allows");
                return Err(Status::failed_precondition(message));
            }
            schema.views.insert(id.to_string(), changed.clone());
            check_bytes(schema)
        })?;
        Ok(changed.to_message(name, ResponseView::Full))
    }

    /// Deletes a view.
    pub(crate) fn delete_view(&self, request: &DeleteAuthorizedViewRequest) -> Result<(), Status> {
        let name = &request.name;
        let (table, id) = names::view(name)?;
        let deleted = self.alter(table, |schema| {
            let view = schema.views.get(id).ok_or_else(|| no_view(name))?;
            check_etag(&request.etag, &view.to_message(name, ResponseView::Basic).etag)?;
            if view.deletion_protection {
                let message = format!("authorized view {name} is protected from deletion");
                return Err(Status::failed_precondition(message));
            }
            schema.views.remove(id);
            Ok(())
        });
        deleted.map(drop)
    }

    /// The view of that name, of which so much is told.
    pub(crate) fn view(&self, name: &str, view: ResponseView) -> Result<admin::AuthorizedView, Status> {
        let (table, id) = names::view(name)?;
        let table = self.get(table).map_err(|_| no_view(name))?;
        let layout = table.now();
        let found = layout.schema.views.get(id).ok_or_else(|| no_view(name))?;
        Ok(found.to_message(name, view))
    }

    /// A page of the views of a table that somebody sees: so many, behind that one.
    pub(crate) fn views(
        &self,
        table: &str,
        (most, behind): (usize, &str),
        view: ResponseView,
        sees: impl Fn(&str) -> bool,
    ) -> Result<ListAuthorizedViewsResponse, Status> {
        let found = match self.get(names::table(table)?) {
            // Who sees nothing of the table does not learn whether it is there.
            Err(_) if !sees(table) => return Ok(ListAuthorizedViewsResponse::default()),
            found => found?,
        };
        let layout = found.now();
        let from = if behind.is_empty() { Bound::Unbounded } else { Bound::Excluded(behind) };
        let all = layout.schema.views.range::<str, _>((from, Bound::Unbounded));
        let named = all.map(|(id, of)| (id, names::view_named(table, id), of));
        let seen = named.filter(|(_, name, _)| sees(name));
        let (page, next_page_token) = names::page(seen, most, |(id, ..)| id);
        let authorized_views = page.iter().map(|(_, name, of)| of.to_message(name, view)).collect();
        Ok(ListAuthorizedViewsResponse { authorized_views, next_page_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn schema() -> Schema {
        let family = || ("f".to_string(), admin::ColumnFamily::default());
        let mut table = admin::Table { column_families: [family()].into(), ..Default::default() };
        table.column_families.insert("g".into(), admin::ColumnFamily::default());
        Schema::new(1, &table).unwrap()
    }

    fn view(subset: SubsetView) -> ViewSchema {
        ViewSchema::new(&message(subset), &schema()).unwrap()
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
            let refused = ViewSchema::new(&asked, &schema()).unwrap_err();
            assert!(refused.message().contains(word), "{refused}, expected {word}");
        }
        let long = SubsetView {
            row_prefixes: vec![vec![b'x'; row_key::ROW_KEY_MAX + 1].into()],
            ..Default::default()
        };
        assert!(ViewSchema::new(&message(long), &schema()).is_err());
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
            of.update(&asked, &mask, &schema()).map(|()| of)
        };
        let all = updated(&["*"]).unwrap();
        assert_eq!(
            (updated(&[]).unwrap(), updated(&["subset_view", "deletion_protection"]).unwrap()),
            (all.clone(), all)
        );
        let rows = updated(&["subset_view.row_prefixes"]).unwrap();
        assert!(rows.row_prefixes == [b"b"] && rows.families == of.families && !rows.deletion_protection);
        let families = updated(&["subset_view.family_subsets"]).unwrap();
        assert!(families.row_prefixes == [b"a"] && families.families.contains_key("g"));
        assert!(updated(&["deletion_protection"]).unwrap().families == of.families);
        assert!(updated(&["etag"]).unwrap_err().message().contains("\"etag\""));
        // Nothing is set, so nothing changes.
        let mut same = of.clone();
        same.update(&admin::AuthorizedView::default(), &[], &schema()).unwrap();
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
    fn a_view_is_compiled_when_it_changes_and_not_with_others() {
        let dir = tempfile::tempdir().unwrap();
        let config = crate::config::Config { dir: dir.path().join("data"), ..Default::default() };
        let db = crate::tables::schema::builder(config.options()).open(&config.dir).unwrap();
        let tables = Tables::open(db, config.store_settings(), config.directories()).unwrap();
        let name = "projects/p/instances/i/tables/t";
        let table = tables.create(name, &admin::Table::default(), &[""; 0]).unwrap();
        let make = |id: &str, prefix: &'static str| {
            let request = CreateAuthorizedViewRequest {
                parent: name.into(),
                authorized_view_id: id.into(),
                authorized_view: Some(message(subset(&[prefix], &[]))),
            };
            tables.create_view(&request).unwrap();
        };
        make("a", "x");
        let first = table.now().views["a"].clone();
        make("b", "y");
        assert!(Arc::ptr_eq(&first, &table.now().views["a"]));
        let asked =
            admin::AuthorizedView { name: names::view_named(name, "a"), ..message(subset(&["z"], &[])) };
        let request = UpdateAuthorizedViewRequest {
            authorized_view: Some(asked),
            update_mask: None,
            ignore_warnings: true,
        };
        tables.update_view(&request).unwrap();
        let changed = table.now().views["a"].clone();
        assert!(changed.check_row(b"z").is_ok() && changed.check_row(b"x").is_err());
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
