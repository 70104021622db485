//! Service `siltstone.v1.Operator`: what the public API has no call for, for `siltstone table` and
//! `siltstone top`.
//!
//! Answers are JSON, so that a tool of another version shows what it knows of them.

use crate::names;
use crate::net::calls::Call;
use crate::proto::admin;
use crate::proto::operator_messages::{AlterSettings, Json, TableName};
use crate::services::stubs::operator::operator_server::Operator;
use crate::shared::{Shared, administer};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// The service.
pub(crate) struct OperatorService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl Operator for OperatorService {
    async fn state(&self, request: Request<()>) -> Result<Response<Json>, Status> {
        let call = self.0.begin(Call::Admin, &request)?;
        let shared = self.0.clone();
        let work =
            move || Ok(Response::new(Json { json: crate::services::http::picture(&shared).to_string() }));
        call.run(false, work).await
    }

    async fn table(&self, request: Request<TableName>) -> Result<Response<Json>, Status> {
        let call = self.0.begin(Call::Admin, &request)?;
        let (shared, name) = (self.0.clone(), request.into_inner().name);
        let work = move || Ok(Response::new(Json { json: described(&shared, &name)? }));
        call.run(false, work).await
    }

    async fn alter_settings(&self, request: Request<AlterSettings>) -> Result<Response<Json>, Status> {
        administer(&self.0, request, move |shared, request| {
            for (name, text) in request.settings.iter().filter(|(_, text)| !text.is_empty()) {
                crate::store_options::check(name, text).map_err(Status::invalid_argument)?;
            }
            shared.tables.alter(names::table(&request.name)?, |schema| {
                if !request.family.is_empty() && !schema.families.contains_key(&request.family) {
                    return Err(Status::not_found(format!("no family \"{}\" in the table", request.family)));
                }
                let all = schema.families.iter_mut();
                for (_, family) in
                    all.filter(|(name, _)| request.family.is_empty() || **name == request.family)
                {
                    for (name, text) in &request.settings {
                        match text.is_empty() {
                            true => family.settings.remove(name),
                            false => family.settings.insert(name.clone(), text.clone()),
                        };
                    }
                }
                Ok(())
            })?;
            Ok(Json { json: described(shared, &request.name)? })
        })
        .await
    }
}

/// A table with what its families hold, their rules and options.
fn described(shared: &Shared, name: &str) -> Result<String, Status> {
    let table = shared.tables.get(names::table(name)?)?;
    let layout = table.now();
    let mut families = Vec::new();
    for family in &layout.families {
        let stores = || family.regions.iter().map(|region| region.store.statistics());
        let Some(schema) = layout.schema.families.get(&*family.name) else { continue };
        let options = shared.tables.options(name, &family.name, schema)?;
        families.push(json!({
            "name": &*family.name,
            "gc": family.gc,
            "aggregate": family.aggregate,
            "sstable_bytes": stores().map(|of| of.sstable_bytes).sum::<u64>(),
            "memory_bytes": stores().map(|of| of.memory_bytes).sum::<u64>(),
            "set": schema.settings,
            "options": options.texts().into_iter().collect::<BTreeMap<_, _>>(),
        }));
    }
    let message = layout.schema.to_message(name, admin::table::View::SchemaView);
    let described = json!({
        "name": name,
        "regions": crate::tables::regions::cuts(&layout).len() + 1,
        "deletion_protection": message.deletion_protection,
        "changes_streamed": message.change_stream_config.is_some(),
        "families": families,
    });
    Ok(described.to_string())
}
