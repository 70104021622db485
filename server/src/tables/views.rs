//! Authorized views: parts of a table that have a name, and rights, of their own.
//!
//! A view has the rows that begin with some prefixes, and of these the columns that are named or begin with
//! some prefixes. It is stored in its table's record ([`ViewSchema`]), so it is as durable as the table, and
//! gone with it. With each change of that record it is compiled ([`Subset`]): into ranges of keys of rows,
//! and of qualifiers for each family.
//!
//! A call through a view ([`Target`]) reads these ranges and nothing else, before a filter applies, and
//! writes beyond them are refused. What is outside leaves no trace in an answer: it is in no count and among
//! no sampled keys.

use crate::cells::filter::{Filter, Need};
use crate::cells::row_key::Span;
use crate::cells::subset::Subset;
use crate::names;
use crate::proto::admin;
use crate::proto::admin::authorized_view::ResponseView;
use crate::proto::admin::{
    CreateAuthorizedViewRequest, DeleteAuthorizedViewRequest, ListAuthorizedViewsResponse,
    UpdateAuthorizedViewRequest,
};
use crate::tables::layout::Table;
use crate::tables::registry::Tables;
use crate::tables::schema::Schema;
use crate::tables::view_schema::{ViewSchema, invalid};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use tonic::Status;

/// Bytes of all views of a table, at most, and what each takes beside its parts.
const VIEWS_BYTES_MAX: usize = 1 << 20;
const VIEW_BYTES: usize = 64;

fn no_view(name: &str) -> Status {
    Status::not_found(format!("no authorized view {name}"))
}

/// # Errors
/// `ABORTED` where who asks names a state that is not the present one.
pub(crate) fn check_etag(asked: &str, now: &str) -> Result<(), Status> {
    match asked.is_empty() || asked == now {
        true => Ok(()),
        false => Err(Status::aborted(format!("the etag is \"{now}\", not \"{asked}\""))),
    }
}

/// The target of a call: a table, or the part that a view has of it.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) table: Arc<Table>,
    pub(crate) view: Option<Arc<Subset>>,
}

impl Target {
    /// The part of each family that must be read for a filter.
    pub(crate) fn needs(&self, filter: &Filter) -> Vec<(Arc<str>, Need)> {
        self.table.now().needs(filter, self.view.as_deref())
    }

    /// The readable parts of some ordered spans of keys.
    pub(crate) fn within(&self, spans: VecDeque<Span>) -> VecDeque<Span> {
        match &self.view {
            None => spans,
            Some(view) => view.within(spans),
        }
    }
}

/// The fields of a view in an answer, as the call asks.
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
    /// The name in a call: of a table, or of an authorized view of one.
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
            made = ViewSchema::new(asked, &schema.families)?;
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
            changed.update(asked, mask, &schema.families)?;
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

    /// The view of that name, with these of its fields.
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
            // A caller that sees nothing of the table does not learn whether it exists.
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
    use crate::config::Config;
    use crate::proto::admin::authorized_view::{AuthorizedView as Kind, SubsetView};
    use crate::tables::schema::builder;

    fn of_rows(prefix: &'static str) -> admin::AuthorizedView {
        let subset = SubsetView { row_prefixes: vec![prefix.into()], ..Default::default() };
        admin::AuthorizedView { authorized_view: Some(Kind::SubsetView(subset)), ..Default::default() }
    }

    #[test]
    fn a_view_is_compiled_when_it_changes_and_not_with_others() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { dir: dir.path().join("data"), ..Default::default() };
        let db = builder(config.options()).open(&config.dir).unwrap();
        let tables = Tables::open(db, config.store_settings(), config.directories()).unwrap();
        let name = "projects/p/instances/i/tables/t";
        let table = tables.create(name, &admin::Table::default(), &[""; 0]).unwrap();
        let make = |id: &str, prefix: &'static str| {
            let request = CreateAuthorizedViewRequest {
                parent: name.into(),
                authorized_view_id: id.into(),
                authorized_view: Some(of_rows(prefix)),
            };
            tables.create_view(&request).unwrap();
        };
        make("a", "x");
        let first = table.now().views["a"].clone();
        make("b", "y");
        assert!(Arc::ptr_eq(&first, &table.now().views["a"]));
        let asked = admin::AuthorizedView { name: names::view_named(name, "a"), ..of_rows("z") };
        let request = UpdateAuthorizedViewRequest {
            authorized_view: Some(asked),
            update_mask: None,
            ignore_warnings: true,
        };
        tables.update_view(&request).unwrap();
        let changed = table.now().views["a"].clone();
        assert!(changed.check_row(b"z").is_ok() && changed.check_row(b"x").is_err());
    }
}
