//! Service `google.bigtable.admin.v2.BigtableInstanceAdmin`, as far as clients ask before they work: every instance that is named
//! is there, has one cluster and one application profile. A list has the instances that have tables.

use crate::auth::Who;
use crate::names;
use crate::proto::admin::{
    self, AppProfile, Cluster, GetAppProfileRequest, GetClusterRequest, GetInstanceRequest, Instance,
    ListAppProfilesRequest, ListAppProfilesResponse, ListClustersRequest, ListClustersResponse,
    ListInstancesRequest, ListInstancesResponse,
};
use crate::proto::instance_admin::bigtable_instance_admin_server::BigtableInstanceAdmin;
use crate::server::Shared;
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// The one cluster of each instance.
pub(crate) const CLUSTER: &str = "siltstone";
const PROFILE: &str = "default";

/// The service.
pub(crate) struct InstanceAdmin(pub(crate) Arc<Shared>);

fn instance(name: &str) -> Instance {
    Instance {
        name: name.to_string(),
        display_name: name.rsplit('/').next().unwrap_or(name).to_string(),
        state: admin::instance::State::Ready as i32,
        r#type: admin::instance::Type::Production as i32,
        ..Instance::default()
    }
}

fn cluster(instance: &str) -> Cluster {
    let project = instance.split("/instances/").next().unwrap_or_default();
    Cluster {
        name: format!("{instance}/clusters/{CLUSTER}"),
        location: format!("{project}/locations/local"),
        state: admin::cluster::State::Ready as i32,
        serve_nodes: 1,
        default_storage_type: admin::StorageType::Ssd as i32,
        ..Cluster::default()
    }
}

fn profile(instance: &str) -> AppProfile {
    let routing = admin::app_profile::SingleClusterRouting {
        cluster_id: CLUSTER.to_string(),
        allow_transactional_writes: true,
    };
    AppProfile {
        name: format!("{instance}/appProfiles/{PROFILE}"),
        routing_policy: Some(admin::app_profile::RoutingPolicy::SingleClusterRouting(routing)),
        ..AppProfile::default()
    }
}

/// The instance of a name that ends with this.
fn parent<'a>(name: &'a str, end: &str) -> Result<&'a str, Status> {
    match name.strip_suffix(end) {
        Some(parent) => names::instance(parent),
        None => Err(Status::not_found(format!("no {name}"))),
    }
}

impl InstanceAdmin {
    /// The instances whose names begin so and that have tables which the caller may know of.
    fn named(&self, who: &Who, prefix: &str) -> BTreeSet<String> {
        let tables = self.0.tables.all();
        let seen = tables.keys().filter(|name| name.starts_with(prefix) && who.sees(name));
        seen.filter_map(|name| name.split_once("/tables/").map(|(instance, _)| instance.to_string()))
            .collect()
    }
}

#[tonic::async_trait]
impl BigtableInstanceAdmin for InstanceAdmin {
    async fn get_instance(&self, request: Request<GetInstanceRequest>) -> Result<Response<Instance>, Status> {
        self.0.who(request.metadata())?;
        Ok(Response::new(instance(names::instance(&request.get_ref().name)?)))
    }

    async fn list_instances(
        &self,
        request: Request<ListInstancesRequest>,
    ) -> Result<Response<ListInstancesResponse>, Status> {
        let who = self.0.who(request.metadata())?;
        let named = self.named(&who, &format!("{}/instances/", request.get_ref().parent));
        let instances = named.iter().map(|name| instance(name)).collect();
        Ok(Response::new(ListInstancesResponse { instances, ..Default::default() }))
    }

    async fn get_cluster(&self, request: Request<GetClusterRequest>) -> Result<Response<Cluster>, Status> {
        self.0.who(request.metadata())?;
        Ok(Response::new(cluster(parent(&request.get_ref().name, &format!("/clusters/{CLUSTER}"))?)))
    }

    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        let who = self.0.who(request.metadata())?;
        let clusters = match request.get_ref().parent.as_str() {
            // "-" names all instances, which have clusters alike.
            all if all.ends_with("/instances/-") => {
                let named = self.named(&who, all.trim_end_matches('-'));
                named.iter().map(|name| cluster(name)).collect()
            }
            one => vec![cluster(names::instance(one)?)],
        };
        Ok(Response::new(ListClustersResponse { clusters, ..Default::default() }))
    }

    async fn get_app_profile(
        &self,
        request: Request<GetAppProfileRequest>,
    ) -> Result<Response<AppProfile>, Status> {
        self.0.who(request.metadata())?;
        Ok(Response::new(profile(parent(&request.get_ref().name, &format!("/appProfiles/{PROFILE}"))?)))
    }

    async fn list_app_profiles(
        &self,
        request: Request<ListAppProfilesRequest>,
    ) -> Result<Response<ListAppProfilesResponse>, Status> {
        self.0.who(request.metadata())?;
        let app_profiles = vec![profile(names::instance(&request.get_ref().parent)?)];
        Ok(Response::new(ListAppProfilesResponse { app_profiles, ..Default::default() }))
    }
}
