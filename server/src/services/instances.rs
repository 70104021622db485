//! Service `google.bigtable.admin.v2.BigtableInstanceAdmin`: instances, clusters and application profiles,
//! which are names with settings ([`crate::tables::instance_set`]); hot tablets; and policies.

use crate::names;
use crate::net::answer::Single;
use crate::net::auth::Who;
use crate::proto::admin::{
    self, AppProfile, Cluster, CreateAppProfileRequest, CreateClusterMetadata, CreateClusterRequest,
    CreateInstanceMetadata, CreateInstanceRequest, DeleteAppProfileRequest, DeleteClusterRequest,
    DeleteInstanceRequest, GetAppProfileRequest, GetClusterRequest, GetInstanceRequest,
    ListAppProfilesRequest, ListAppProfilesResponse, ListClustersRequest, ListClustersResponse,
    ListHotTabletsRequest, ListHotTabletsResponse, ListInstancesRequest, ListInstancesResponse,
    PartialUpdateClusterMetadata, PartialUpdateClusterRequest, PartialUpdateInstanceRequest,
    UpdateAppProfileMetadata, UpdateAppProfileRequest, UpdateClusterMetadata, UpdateInstanceMetadata,
};
use crate::proto::iam::{
    GetIamPolicyRequest, Policy, SetIamPolicyRequest, TestIamPermissionsRequest, TestIamPermissionsResponse,
};
use crate::proto::longrunning::Operation;
use crate::services::iam;
use crate::services::stubs::instance_admin::bigtable_instance_admin_server::BigtableInstanceAdmin;
use crate::shared::{Shared, administer, administer_long};
use crate::tables::hot_tablets;
use crate::tables::instance_set::Instance;
use crate::time::now;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// The kinds of names.
const CLUSTERS: &str = "clusters";
const PROFILES: &str = "appProfiles";
/// Profiles of one page of a list, if the client does not say, and clusters, of which it cannot.
const PAGE: usize = 1_000;
const CLUSTERS_PAGE: usize = 10_000;

/// The service.
pub(crate) struct InstanceAdmin(pub(crate) Arc<Shared>);

fn missing(field: &str) -> Status {
    Status::invalid_argument(format!("the request has no {field}"))
}

/// The paths of a mask that must name something.
fn paths(mask: Option<&prost_types::FieldMask>) -> Result<&[String], Status> {
    match mask {
        Some(mask) if !mask.paths.is_empty() => Ok(&mask.paths),
        _ => Err(Status::invalid_argument("update_mask names no field")),
    }
}

/// A change of an instance that is done, for who may know of all its tables.
fn done<M: Message, R: Message>(
    shared: &Shared,
    name: &str,
    metadata: (&str, M),
    response: (&str, &R),
) -> Operation {
    let tables = format!("{}/tables/", names::instance_of(name));
    shared.finished.add(&tables, name, Some(metadata), response)
}

/// A page of a list of clusters or profiles: which it is, behind the token of the one before.
struct Page<'a> {
    kind: &'static str,
    token: &'a str,
    most: usize,
}

impl Page<'_> {
    /// Messages of what instances have, in the order of these and of ids, and the token of the next page. The
    /// parent is an instance, or stands for all of a project (`projects/P/instances/-`).
    fn of<T: 'static, M>(
        &self,
        (shared, who, parent): (&Shared, &Who, &str),
        have: impl for<'a> Fn(&'a Instance) -> &'a BTreeMap<String, T>,
        message: impl Fn(&Instance, &str, &str) -> Result<M, Status>,
    ) -> Result<(Vec<M>, String), Status> {
        let last = (!self.token.is_empty()).then(|| names::within_instance(self.token, self.kind));
        let last = last.transpose().map_err(|_| Status::invalid_argument("page_token is of no such list"))?;
        let found = match parent.strip_suffix('-').filter(|begin| begin.ends_with("/instances/")) {
            Some(begin) => shared.instances.all(who, begin, last.map_or("", |(instance, _)| instance)),
            None => [(parent.to_string(), shared.instances.find(who, parent)?)].into(),
        };
        let ids = found.iter().flat_map(|(name, of)| have(of).keys().map(move |id| (name, of, id)));
        let mut ids = ids.filter(|(name, _, id)| last.is_none_or(|last| (&name[..], &id[..]) > last));
        let page: Vec<_> = ids.by_ref().take(self.most).collect();
        let next = page.last().filter(|_| ids.next().is_some());
        let token = next.map_or(String::new(), |(name, _, id)| format!("{name}/{}/{id}", self.kind));
        let messages = page.into_iter().map(|(name, of, id)| message(of, name, id));
        Ok((messages.collect::<Result<_, _>>()?, token))
    }
}

#[tonic::async_trait]
impl BigtableInstanceAdmin for InstanceAdmin {
    async fn create_instance(
        &self,
        request: Request<CreateInstanceRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let request_time = now();
            let (name, made) = shared.instances.create(&request)?;
            let original_request = Some(request);
            let metadata = CreateInstanceMetadata { original_request, request_time, finish_time: now() };
            let response = ("Instance", &made.to_message(&name));
            Ok(done(shared, &name, ("CreateInstanceMetadata", metadata), response))
        })
        .await
    }

    async fn get_instance(
        &self,
        request: Request<GetInstanceRequest>,
    ) -> Result<Response<admin::Instance>, Status> {
        let who = self.0.who(request.metadata())?;
        administer(&self.0, request, move |shared, GetInstanceRequest { name }| {
            Ok(shared.instances.find(&who, &name)?.to_message(&name))
        })
        .await
    }

    async fn list_instances(
        &self,
        request: Request<ListInstancesRequest>,
    ) -> Result<Response<Single<ListInstancesResponse>>, Status> {
        let who = self.0.who(request.metadata())?;
        administer_long(&self.0, request, move |shared, request| {
            let found = shared.instances.all(&who, &format!("{}/instances/", request.parent), "");
            let instances = found.iter().map(|(name, instance)| instance.to_message(name)).collect();
            Ok(ListInstancesResponse { instances, ..Default::default() })
        })
        .await
    }

    async fn update_instance(
        &self,
        request: Request<admin::Instance>,
    ) -> Result<Response<admin::Instance>, Status> {
        administer(&self.0, request, move |shared, asked| {
            let (changed, ()) = shared.instances.alter(&asked.name, |instance| instance.replace(&asked))?;
            Ok(changed.to_message(&asked.name))
        })
        .await
    }

    async fn partial_update_instance(
        &self,
        request: Request<PartialUpdateInstanceRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let request_time = now();
            let asked = request.instance.as_ref().ok_or_else(|| missing("instance"))?;
            let mask = paths(request.update_mask.as_ref())?;
            let name = asked.name.clone();
            let (changed, ()) = shared.instances.alter(&name, |instance| instance.update(asked, mask))?;
            let original_request = Some(request);
            let metadata = UpdateInstanceMetadata { original_request, request_time, finish_time: now() };
            let response = ("Instance", &changed.to_message(&name));
            Ok(done(shared, &name, ("UpdateInstanceMetadata", metadata), response))
        })
        .await
    }

    async fn delete_instance(&self, request: Request<DeleteInstanceRequest>) -> Result<Response<()>, Status> {
        administer(&self.0, request, move |shared, request| shared.instances.delete(&request.name)).await
    }

    async fn create_cluster(
        &self,
        request: Request<CreateClusterRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let request_time = now();
            let asked = request.cluster.as_ref().ok_or_else(|| missing("cluster"))?;
            let (instance, id) = (request.parent.clone(), request.cluster_id.clone());
            let project = names::project_of(&instance);
            let cluster = crate::tables::clusters::Cluster::from_message(project, asked)?;
            let (_, made) = shared.instances.alter(&instance, |of| {
                of.add_cluster(&id, cluster)?;
                of.cluster_message(&instance, &id)
            })?;
            let metadata = CreateClusterMetadata {
                original_request: Some(request),
                request_time,
                finish_time: now(),
                ..Default::default()
            };
            Ok(done(shared, &made.name, ("CreateClusterMetadata", metadata), ("Cluster", &made)))
        })
        .await
    }

    async fn get_cluster(&self, request: Request<GetClusterRequest>) -> Result<Response<Cluster>, Status> {
        let who = self.0.who(request.metadata())?;
        administer(&self.0, request, move |shared, request| {
            let (instance, id) = names::within_instance(&request.name, CLUSTERS)?;
            shared.instances.find(&who, instance)?.cluster_message(instance, id)
        })
        .await
    }

    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<Single<ListClustersResponse>>, Status> {
        let who = self.0.who(request.metadata())?;
        administer_long(&self.0, request, move |shared, request| {
            let page = Page { kind: CLUSTERS, token: &request.page_token, most: CLUSTERS_PAGE };
            let of = (shared, &who, &request.parent[..]);
            let (clusters, next_page_token) = page.of(of, |of| &of.clusters, Instance::cluster_message)?;
            Ok(ListClustersResponse { clusters, next_page_token, ..Default::default() })
        })
        .await
    }

    async fn update_cluster(&self, request: Request<Cluster>) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, asked| {
            let request_time = now();
            let (instance, id) = names::within_instance(&asked.name, CLUSTERS)?;
            let (_, changed) = shared.instances.alter(instance, |of| {
                of.cluster_mut(id)?.replace(names::project_of(instance), &asked)?;
                of.cluster_message(instance, id)
            })?;
            let original_request = Some(asked);
            let metadata = UpdateClusterMetadata { original_request, request_time, finish_time: now() };
            Ok(done(shared, &changed.name, ("UpdateClusterMetadata", metadata), ("Cluster", &changed)))
        })
        .await
    }

    async fn partial_update_cluster(
        &self,
        request: Request<PartialUpdateClusterRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let request_time = now();
            let asked = request.cluster.as_ref().ok_or_else(|| missing("cluster"))?;
            let mask = paths(request.update_mask.as_ref())?;
            let (instance, id) = names::within_instance(&asked.name, CLUSTERS)?;
            let (_, changed) = shared.instances.alter(instance, |of| {
                of.cluster_mut(id)?.update(asked, mask)?;
                of.cluster_message(instance, id)
            })?;
            let original_request = Some(request);
            let metadata =
                PartialUpdateClusterMetadata { request_time, finish_time: now(), original_request };
            let response = ("Cluster", &changed);
            Ok(done(shared, &changed.name, ("PartialUpdateClusterMetadata", metadata), response))
        })
        .await
    }

    async fn delete_cluster(&self, request: Request<DeleteClusterRequest>) -> Result<Response<()>, Status> {
        administer(&self.0, request, move |shared, request| {
            let (instance, id) = names::within_instance(&request.name, CLUSTERS)?;
            shared.instances.delete_cluster(instance, id)
        })
        .await
    }

    async fn create_app_profile(
        &self,
        request: Request<CreateAppProfileRequest>,
    ) -> Result<Response<AppProfile>, Status> {
        administer(&self.0, request, move |shared, request| {
            let (instance, id) = (&request.parent, &request.app_profile_id);
            names::new_profile(id)?;
            let asked = request.app_profile.as_ref().ok_or_else(|| missing("app_profile"))?;
            let profile = crate::tables::profiles::Profile::from_message(asked)?;
            let (made, ()) = shared.instances.alter(instance, |of| {
                if of.profiles.contains_key(id) {
                    return Err(Status::already_exists(format!("app profile \"{id}\" exists")));
                }
                of.put_profile(id, profile, request.ignore_warnings)
            })?;
            made.profile_message(instance, id)
        })
        .await
    }

    async fn get_app_profile(
        &self,
        request: Request<GetAppProfileRequest>,
    ) -> Result<Response<AppProfile>, Status> {
        let who = self.0.who(request.metadata())?;
        administer(&self.0, request, move |shared, request| {
            let (instance, id) = names::within_instance(&request.name, PROFILES)?;
            shared.instances.find(&who, instance)?.profile_message(instance, id)
        })
        .await
    }

    async fn list_app_profiles(
        &self,
        request: Request<ListAppProfilesRequest>,
    ) -> Result<Response<Single<ListAppProfilesResponse>>, Status> {
        let who = self.0.who(request.metadata())?;
        administer_long(&self.0, request, move |shared, request| {
            let most = names::page_size(request.page_size, PAGE)?;
            let page = Page { kind: PROFILES, token: &request.page_token, most };
            let of = (shared, &who, &request.parent[..]);
            let (app_profiles, next_page_token) =
                page.of(of, |of| &of.profiles, Instance::profile_message)?;
            Ok(ListAppProfilesResponse { app_profiles, next_page_token, ..Default::default() })
        })
        .await
    }

    async fn update_app_profile(
        &self,
        request: Request<UpdateAppProfileRequest>,
    ) -> Result<Response<Operation>, Status> {
        administer(&self.0, request, move |shared, request| {
            let asked = request.app_profile.as_ref().ok_or_else(|| missing("app_profile"))?;
            let (instance, id) = names::within_instance(&asked.name, PROFILES)?;
            let (changed, ()) = shared.instances.alter(instance, |of| {
                let mut profile = of.profile(id)?.clone();
                if !asked.etag.is_empty() && asked.etag != profile.etag() {
                    return Err(Status::aborted(format!("app profile \"{id}\" has changed since that etag")));
                }
                profile.update(asked, request.update_mask.as_ref())?;
                of.put_profile(id, profile, request.ignore_warnings)
            })?;
            let metadata = ("UpdateAppProfileMetadata", UpdateAppProfileMetadata {});
            let response = ("AppProfile", &changed.profile_message(instance, id)?);
            Ok(done(shared, &asked.name, metadata, response))
        })
        .await
    }

    async fn delete_app_profile(
        &self,
        request: Request<DeleteAppProfileRequest>,
    ) -> Result<Response<()>, Status> {
        administer(&self.0, request, move |shared, request| {
            let (instance, id) = names::within_instance(&request.name, PROFILES)?;
            shared.instances.alter(instance, |of| of.remove_profile(id, request.ignore_warnings))?;
            Ok(())
        })
        .await
    }

    async fn list_hot_tablets(
        &self,
        request: Request<ListHotTabletsRequest>,
    ) -> Result<Response<Single<ListHotTabletsResponse>>, Status> {
        let who = self.0.who(request.metadata())?;
        administer_long(&self.0, request, move |shared, request| {
            let (instance, id) = names::within_instance(&request.parent, CLUSTERS)?;
            shared.instances.find(&who, instance)?.cluster(id)?;
            let asked = hot_tablets::Asked::new(&request, crate::time::now_us())?;
            Ok(shared.hot.list(&request.parent, &asked, |table| who.sees(table)))
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
}
