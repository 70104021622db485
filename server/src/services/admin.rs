//! Service `google.bigtable.admin.v2.BigtableTableAdmin`: tables are made, changed and deleted.

use crate::cells::row_key;
use crate::names;
use crate::net::answer::Single;
use crate::net::auth::{Right, Who};
use crate::net::calls::{self, Call};
use crate::proto::admin::authorized_view::ResponseView;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::proto::admin::{
    self, CheckConsistencyRequest, CheckConsistencyResponse, CopyBackupRequest, CreateAuthorizedViewRequest,
    CreateBackupRequest, CreateSchemaBundleRequest, CreateTableRequest, DeleteAuthorizedViewRequest,
    DeleteBackupRequest, DeleteSchemaBundleRequest, DeleteTableRequest, DropRowRangeRequest,
    GenerateConsistencyTokenRequest, GenerateConsistencyTokenResponse, GetAuthorizedViewRequest,
    GetBackupRequest, GetSchemaBundleRequest, GetTableRequest, ListAuthorizedViewsRequest,
    ListAuthorizedViewsResponse, ListBackupsRequest, ListBackupsResponse, ListSchemaBundlesRequest,
    ListSchemaBundlesResponse, ListTablesRequest, ListTablesResponse, ModifyColumnFamiliesRequest,
    RestoreTableRequest, UndeleteTableMetadata, UndeleteTableRequest, UpdateAuthorizedViewRequest,
    UpdateBackupRequest, UpdateSchemaBundleRequest, UpdateTableRequest, drop_row_range_request,
    restore_table_request,
};
use crate::proto::iam::{
    GetIamPolicyRequest, Policy, SetIamPolicyRequest, TestIamPermissionsRequest, TestIamPermissionsResponse,
};
use crate::proto::longrunning::Operation;
use crate::services::iam;
use crate::services::stubs::table_admin::bigtable_table_admin_server::BigtableTableAdmin;
use crate::shared::{Shared, administer, administer_long};
use crate::status::status;
use crate::tables::backup_filter::Query;
use crate::tables::backup_records::{NewBackup, expiry};
use crate::tables::layout::{Region, Table};
use crate::tables::views;
use crate::time;
use siltstone::Batch;
use std::ops::Bound;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Things of one page of a list, at most.
const PAGE: usize = 1_000;

/// The service.
pub(crate) struct TableAdmin(pub(crate) Arc<Shared>);

/// Whether a backup may be given a name in a cluster of that name: all who administer tables of an instance
/// share its names, and nobody else learns which are taken.
fn names_backups(who: &Who, cluster: &str) -> Result<(), Status> {
    let instance = cluster.split_once("/clusters/").map_or(cluster, |(instance, _)| instance);
    who.may_within(Right::Admin, instance)
}

#[tonic::async_trait]
impl BigtableTableAdmin for TableAdmin {
    async fn create_table(
        &self,
        request: Request<CreateTableRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        administer(&self.0, request, move |shared, request| {
            let name = names::table_of(&request.parent, &request.table_id)?;
            let splits: Vec<_> = request.initial_splits.into_iter().map(|split| split.key).collect();
            let table = shared.tables.create(&name, &request.table.unwrap_or_default(), &splits)?;
            Ok(table.now().schema.to_message(&name, admin::table::View::SchemaView))
        })
        .await
    }

    async fn list_tables(
        &self,
        request: Request<ListTablesRequest>,
    ) -> Result<Response<Single<ListTablesResponse>>, Status> {
        let who = self.0.who(request.metadata())?;
        let memory = calls::peer_of(&request)?.answers;
        let call = self.0.begin(Call::Admin, &request)?;
        let request = request.into_inner();
        let prefix = format!("{}/tables/", names::instance(&request.parent)?);
        let page = names::page_size(request.page_size, PAGE)?;
        let view = match request.view() {
            admin::table::View::Unspecified => admin::table::View::NameOnly,
            view => view,
        };
        let shared = self.0.clone();
        let work = move || {
            let all = shared.tables.all();
            let from = match request.page_token.is_empty() {
                true => Bound::Included(prefix.clone()),
                false => Bound::Excluded(request.page_token.clone()),
            };
            let found = all
                .range((from, Bound::Unbounded))
                .take_while(|(name, _)| name.starts_with(&prefix))
                .filter(|(name, _)| who.sees(name));
            let (found, next_page_token) = names::page(found, page, |(name, _)| name);
            let of = |(name, table): (&String, &Arc<Table>)| table.now().schema.to_message(name, view);
            let tables = found.into_iter().map(of).collect();
            let response = ListTablesResponse { tables, next_page_token };
            Single::counted(response, &memory).map(Response::new)
        };
        call.run(false, work).await
    }

    async fn get_table(
        &self,
        request: Request<GetTableRequest>,
    ) -> Result<Response<Single<admin::Table>>, Status> {
        administer_long(&self.0, request, move |shared, request| {
            let table = shared.tables.get(names::table(&request.name)?)?;
            Ok(table.now().schema.to_message(&request.name, request.view()))
        })
        .await
    }

    async fn update_table(
        &self,
        request: Request<UpdateTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        let call = self.0.begin(Call::Admin, &request)?;
        let request = request.into_inner();
        let Some(table) = request.table else { return Err(Status::invalid_argument("no table")) };
        let paths = request.update_mask.unwrap_or_default().paths;
        if paths.is_empty() {
            return Err(Status::invalid_argument("update_mask is empty"));
        }
        let (shared, ignore_warnings) = (self.0.clone(), request.ignore_warnings);
        let work = move || {
            let name = names::table(&table.name)?;
            let changed =
                shared.tables.alter(name, |schema| schema.update(&table, &paths, ignore_warnings))?;
            let message = changed.now().schema.to_message(name, admin::table::View::SchemaView);
            let none = None::<(&str, admin::UpdateTableMetadata)>;
            Ok(Response::new(shared.finished.add(name, name, none, ("Table", &message))))
        };
        call.run(false, work).await
    }

    async fn delete_table(&self, request: Request<DeleteTableRequest>) -> Result<Response<()>, Status> {
        administer(&self.0, request, move |shared, request| {
            shared.tables.delete(names::table(&request.name)?)
        })
        .await
    }

    async fn undelete_table(
        &self,
        request: Request<UndeleteTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let name = request.name;
            let start_time = time::now();
            let table = shared.tables.undelete(names::table(&name)?)?;
            let message = table.now().schema.to_message(&name, admin::table::View::SchemaView);
            let end_time = time::now();
            let metadata = UndeleteTableMetadata { name: name.clone(), start_time, end_time };
            let metadata = Some(("UndeleteTableMetadata", metadata));
            Ok(shared.finished.add(&name, &name, metadata, ("Table", &message)))
        })
        .await
    }

    async fn modify_column_families(
        &self,
        request: Request<ModifyColumnFamiliesRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        administer(&self.0, request, move |shared, request| {
            let name = names::table(&request.name)?;
            let changed = shared.tables.alter(name, |schema| {
                for one in &request.modifications {
                    let missing = || Status::not_found(format!("no family \"{}\" in the table", one.id));
                    match &one.r#mod {
                        Some(Mod::Create(family)) => schema.add(&one.id, family)?,
                        Some(Mod::Update(family)) => {
                            let mask = one.update_mask.as_ref().map_or(&[][..], |mask| &mask.paths);
                            schema.families.get_mut(&one.id).ok_or_else(missing)?.update(family, mask)?;
                        }
                        Some(Mod::Drop(true)) if schema.deletion_protection => {
                            return Err(Status::failed_precondition("the table is protected from deletion"));
                        }
                        Some(Mod::Drop(true)) => drop(schema.families.remove(&one.id).ok_or_else(missing)?),
                        _ => return Err(Status::invalid_argument("a modification that says nothing")),
                    }
                }
                schema.check()
            })?;
            Ok(changed.now().schema.to_message(name, admin::table::View::SchemaView))
        })
        .await
    }

    async fn drop_row_range(&self, request: Request<DropRowRangeRequest>) -> Result<Response<()>, Status> {
        administer(&self.0, request, move |shared, request| {
            let table = shared.tables.get(names::table(&request.name)?)?;
            let span = match request.target {
                Some(drop_row_range_request::Target::RowKeyPrefix(prefix)) if !prefix.is_empty() => {
                    row_key::prefix_span(&prefix)
                }
                Some(drop_row_range_request::Target::DeleteAllDataFromTable(true)) => {
                    row_key::prefix_span(b"")
                }
                _ => {
                    return Err(Status::invalid_argument(
                        "neither a row_key_prefix nor delete_all_data_from_table",
                    ));
                }
            };
            let _hold = table.hold();
            let layout = table.now();
            if layout.schema.deletion_protection {
                return Err(Status::failed_precondition("the table is protected from deletion"));
            }
            let mut batch = Batch::new();
            for family in &layout.families {
                for Region { store, .. } in family.within(&span.start, span.end.as_deref()) {
                    let to = span.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
                    batch.delete_range(store, (Bound::Included(span.start.clone()), to));
                }
            }
            if !batch.is_empty() {
                shared.tables.db.write_with(&batch, shared.durability).map_err(status)?;
            }
            Ok(())
        })
        .await
    }

    async fn generate_consistency_token(
        &self,
        request: Request<GenerateConsistencyTokenRequest>,
    ) -> Result<Response<GenerateConsistencyTokenResponse>, Status> {
        self.0.tables.get(names::table(&request.get_ref().name)?)?;
        // One server: what was written is seen by all that read later.
        Ok(Response::new(GenerateConsistencyTokenResponse { consistency_token: "consistent".into() }))
    }

    async fn check_consistency(
        &self,
        request: Request<CheckConsistencyRequest>,
    ) -> Result<Response<CheckConsistencyResponse>, Status> {
        let request = request.get_ref();
        self.0.tables.get(names::table(&request.name)?)?;
        match request.consistency_token.as_str() {
            "consistent" => Ok(Response::new(CheckConsistencyResponse { consistent: true })),
            other => {
                Err(Status::invalid_argument(format!("\"{other}\" is no consistency token of this server")))
            }
        }
    }

    async fn create_backup(
        &self,
        request: Request<CreateBackupRequest>,
    ) -> Result<Response<Operation>, Status> {
        names_backups(&self.0.who(request.metadata())?, &request.get_ref().parent)?;
        administer(&self.0, request, move |shared, request| {
            let name = format!("{}/backups/{}", request.parent, request.backup_id);
            names::backup(&name)?;
            let asked = request.backup.unwrap_or_default();
            let source_table = names::table(&asked.source_table)?;
            let new = NewBackup::from_message(&asked)?;
            let made = shared.tables.create_backup(&name, source_table, &new)?;
            let metadata = admin::CreateBackupMetadata {
                name: name.clone(),
                source_table: made.source_table.clone(),
                start_time: Some(time::timestamp(made.start_us)),
                end_time: Some(time::timestamp(made.end_us)),
            };
            let response = ("Backup", &made.to_message(&name));
            Ok(shared.finished.add(
                &made.source_table,
                &name,
                Some(("CreateBackupMetadata", metadata)),
                response,
            ))
        })
        .await
    }

    async fn get_backup(
        &self,
        request: Request<GetBackupRequest>,
    ) -> Result<Response<admin::Backup>, Status> {
        let who = self.0.who(request.metadata())?;
        administer(&self.0, request, move |shared, request| {
            let name = request.name;
            Ok(shared.tables.backup(&name, &who)?.to_message(&name))
        })
        .await
    }

    async fn update_backup(
        &self,
        request: Request<UpdateBackupRequest>,
    ) -> Result<Response<admin::Backup>, Status> {
        let who = self.0.who(request.metadata())?;
        let call = self.0.begin(Call::Admin, &request)?;
        let UpdateBackupRequest { backup, update_mask } = request.into_inner();
        let backup = backup.ok_or_else(|| Status::invalid_argument("no backup"))?;
        let paths = update_mask.unwrap_or_default().paths;
        let shared = self.0.clone();
        let work = move || {
            let changed = shared.tables.update_backup(&backup, &paths, &who)?;
            Ok(Response::new(changed.to_message(&backup.name)))
        };
        call.run(false, work).await
    }

    async fn delete_backup(&self, request: Request<DeleteBackupRequest>) -> Result<Response<()>, Status> {
        let who = self.0.who(request.metadata())?;
        administer(&self.0, request, move |shared, request| shared.tables.delete_backup(&request.name, &who))
            .await
    }

    async fn list_backups(
        &self,
        request: Request<ListBackupsRequest>,
    ) -> Result<Response<Single<ListBackupsResponse>>, Status> {
        let who = self.0.who(request.metadata())?;
        let memory = calls::peer_of(&request)?.answers;
        let call = self.0.begin(Call::Admin, &request)?;
        let request = request.into_inner();
        let query = Query::new(&request)?;
        let Some((instance, cluster)) = request.parent.split_once("/clusters/") else {
            return Err(Status::invalid_argument(format!(
                "\"{}\" is not the name of a cluster",
                request.parent
            )));
        };
        // "-" names all clusters of the instance.
        let prefix = match cluster {
            "-" => format!("{}/clusters/", names::instance(instance)?),
            _ => format!("{}/backups/", request.parent),
        };
        let shared = self.0.clone();
        let work = move || {
            let seen = shared.tables.backups(&prefix, |of| who.sees(&of.source_table))?;
            let (page, next_page_token) = query.page(seen);
            let backups = page.iter().map(|(name, backup)| backup.to_message(name)).collect();
            Single::counted(ListBackupsResponse { backups, next_page_token }, &memory).map(Response::new)
        };
        call.run(false, work).await
    }

    async fn restore_table(
        &self,
        request: Request<RestoreTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        let who = self.0.who(request.metadata())?;
        let name = names::table_of(&request.get_ref().parent, &request.get_ref().table_id)?;
        let call = self.0.begin(Call::Admin, &request)?;
        let Some(restore_table_request::Source::Backup(source)) = request.into_inner().source else {
            return Err(Status::invalid_argument("no backup to restore"));
        };
        let shared = self.0.clone();
        let work = move || {
            let (table, backup) = shared.tables.restore(&source, &name, &who)?;
            let message = table.now().schema.to_message(&name, admin::table::View::SchemaView);
            let metadata = admin::RestoreTableMetadata {
                name: name.clone(),
                source_type: admin::RestoreSourceType::Backup as i32,
                source_info: Some(admin::restore_table_metadata::SourceInfo::BackupInfo(
                    backup.info(&source),
                )),
                ..Default::default()
            };
            let metadata = Some(("RestoreTableMetadata", metadata));
            Ok(Response::new(shared.finished.add(&name, &name, metadata, ("Table", &message))))
        };
        call.run(false, work).await
    }

    async fn copy_backup(&self, request: Request<CopyBackupRequest>) -> Result<Response<Operation>, Status> {
        let who = self.0.who(request.metadata())?;
        names_backups(&who, &request.get_ref().parent)?;
        administer(&self.0, request, move |shared, request| {
            let name = format!("{}/backups/{}", request.parent, request.backup_id);
            names::backup(&name)?;
            let expires = expiry(request.expire_time, time::now_us())?;
            let copy = shared.tables.copy_backup(&name, &request.source_backup, expires, &who)?;
            let metadata = admin::CopyBackupMetadata {
                name: name.clone(),
                source_backup_info: Some(copy.info(&request.source_backup)),
                progress: None,
            };
            let response = ("Backup", &copy.to_message(&name));
            Ok(shared.finished.add(
                &copy.source_table,
                &name,
                Some(("CopyBackupMetadata", metadata)),
                response,
            ))
        })
        .await
    }

    async fn get_iam_policy(
        &self,
        request: Request<GetIamPolicyRequest>,
    ) -> Result<Response<Policy>, Status> {
        iam::get(&self.0, request).await
    }

    async fn set_iam_policy(
        &self,
        request: Request<SetIamPolicyRequest>,
    ) -> Result<Response<Policy>, Status> {
        iam::set(&self.0, request).await
    }

    async fn test_iam_permissions(
        &self,
        request: Request<TestIamPermissionsRequest>,
    ) -> Result<Response<TestIamPermissionsResponse>, Status> {
        iam::test(&self.0, request).await
    }

    async fn create_authorized_view(
        &self,
        request: Request<CreateAuthorizedViewRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let request_time = time::now();
            let made = shared.tables.create_view(&request)?;
            let table = request.parent.clone();
            let metadata = admin::CreateAuthorizedViewMetadata {
                original_request: Some(request),
                request_time,
                finish_time: time::now(),
            };
            let metadata = Some(("CreateAuthorizedViewMetadata", metadata));
            let response = ("AuthorizedView", &made);
            Ok(shared.finished.add(&table, &made.name, metadata, response))
        })
        .await
    }

    async fn list_authorized_views(
        &self,
        request: Request<ListAuthorizedViewsRequest>,
    ) -> Result<Response<Single<ListAuthorizedViewsResponse>>, Status> {
        let who = self.0.who(request.metadata())?;
        administer_long(&self.0, request, move |shared, request| {
            let page = (names::page_size(request.page_size, PAGE)?, &request.page_token[..]);
            let view = views::response_view(request.view, ResponseView::NameOnly)?;
            let sees = |name: &str| who.sees(name);
            shared.tables.views(&request.parent, page, view, sees)
        })
        .await
    }

    async fn get_authorized_view(
        &self,
        request: Request<GetAuthorizedViewRequest>,
    ) -> Result<Response<Single<admin::AuthorizedView>>, Status> {
        administer_long(&self.0, request, move |shared, request| {
            // Clients that ask for nothing in particular read all.
            let view = views::response_view(request.view, ResponseView::Full)?;
            shared.tables.view(&request.name, view)
        })
        .await
    }

    async fn update_authorized_view(
        &self,
        request: Request<UpdateAuthorizedViewRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let request_time = time::now();
            let changed = shared.tables.update_view(&request)?;
            let metadata = admin::UpdateAuthorizedViewMetadata {
                original_request: Some(request),
                request_time,
                finish_time: time::now(),
            };
            let metadata = Some(("UpdateAuthorizedViewMetadata", metadata));
            let (table, response) = (names::table_of_part(&changed.name), ("AuthorizedView", &changed));
            Ok(shared.finished.add(table, &changed.name, metadata, response))
        })
        .await
    }

    async fn delete_authorized_view(
        &self,
        request: Request<DeleteAuthorizedViewRequest>,
    ) -> Result<Response<()>, Status> {
        administer(&self.0, request, move |shared, request| shared.tables.delete_view(&request)).await
    }

    async fn create_schema_bundle(
        &self,
        request: Request<CreateSchemaBundleRequest>,
    ) -> Result<Response<Single<Operation>>, Status> {
        let memory = calls::peer_of(&request)?.answers;
        administer(&self.0, request, move |shared, request| {
            let start_time = time::now();
            let (made, lease) = shared.tables.create_bundle(&request, &memory)?;
            let end_time = time::now();
            let metadata =
                admin::CreateSchemaBundleMetadata { name: made.name.clone(), start_time, end_time };
            let metadata = Some(("CreateSchemaBundleMetadata", metadata));
            let response = ("SchemaBundle", &made);
            Ok(Single::of((shared.finished.add(&request.parent, &made.name, metadata, response), lease)))
        })
        .await
    }

    async fn list_schema_bundles(
        &self,
        request: Request<ListSchemaBundlesRequest>,
    ) -> Result<Response<Single<ListSchemaBundlesResponse>>, Status> {
        let memory = calls::peer_of(&request)?.answers;
        administer(&self.0, request, move |shared, request| {
            let page = (names::page_size(request.page_size, PAGE)?, &request.page_token[..]);
            shared.tables.bundles(&request.parent, page, &memory).map(Single::of)
        })
        .await
    }

    async fn get_schema_bundle(
        &self,
        request: Request<GetSchemaBundleRequest>,
    ) -> Result<Response<Single<admin::SchemaBundle>>, Status> {
        let memory = calls::peer_of(&request)?.answers;
        administer(&self.0, request, move |shared, request| {
            shared.tables.bundle(&request.name, &memory).map(Single::of)
        })
        .await
    }

    async fn update_schema_bundle(
        &self,
        request: Request<UpdateSchemaBundleRequest>,
    ) -> Result<Response<Single<Operation>>, Status> {
        let memory = calls::peer_of(&request)?.answers;
        administer(&self.0, request, move |shared, request| {
            let start_time = time::now();
            let (changed, lease) = shared.tables.update_bundle(&request, &memory)?;
            let (name, end_time) = (changed.name.clone(), time::now());
            let metadata = admin::UpdateSchemaBundleMetadata { name, start_time, end_time };
            let metadata = Some(("UpdateSchemaBundleMetadata", metadata));
            let (table, response) = (names::table_of_part(&changed.name), ("SchemaBundle", &changed));
            Ok(Single::of((shared.finished.add(table, &changed.name, metadata, response), lease)))
        })
        .await
    }

    async fn delete_schema_bundle(
        &self,
        request: Request<DeleteSchemaBundleRequest>,
    ) -> Result<Response<()>, Status> {
        administer(&self.0, request, move |shared, request| shared.tables.delete_bundle(&request)).await
    }
}
