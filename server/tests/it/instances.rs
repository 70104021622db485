//! Instances, clusters and application profiles; tables that come back; who may do what by IAM's calls; hot
//! tablets; and what is not served.

use crate::security::entry;
use crate::support::{Fixture, INSTANCE, ReadRowsRequest, TABLE, admin_v2, data_v2, refused, set};
use crate::views;
use admin_v2::app_profile::{Isolation, RoutingPolicy, SingleClusterRouting, StandardIsolation};
use admin_v2::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use googleapis_tonic_google_bigtable_admin_v2::google::iam::v1 as iam;
use googleapis_tonic_google_bigtable_admin_v2::google::longrunning::{Operation, operation};
use prost::Message;
use prost_types::FieldMask;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Request};

const MADE: &str = "projects/p/instances/made";

async fn channel(t: &Fixture) -> Channel {
    let at = format!("http://{}", t.server.listens_at());
    Channel::from_shared(at).unwrap().connect().await.unwrap()
}

async fn instances(t: &Fixture) -> BigtableInstanceAdminClient<Channel> {
    BigtableInstanceAdminClient::new(channel(t).await)
}

fn mask(paths: &[&str]) -> Option<FieldMask> {
    Some(FieldMask { paths: paths.iter().map(ToString::to_string).collect() })
}

fn cluster(nodes: i32) -> admin_v2::Cluster {
    let location = "projects/p/locations/zone".into();
    admin_v2::Cluster { location, serve_nodes: nodes, ..Default::default() }
}

fn create(id: &str, clusters: &[&str]) -> admin_v2::CreateInstanceRequest {
    admin_v2::CreateInstanceRequest {
        parent: "projects/p".into(),
        instance_id: id.into(),
        instance: Some(admin_v2::Instance { display_name: "name".into(), ..Default::default() }),
        clusters: clusters.iter().map(|id| (id.to_string(), cluster(3))).collect(),
    }
}

fn single(cluster: &str, transactions: bool) -> admin_v2::AppProfile {
    let routing =
        SingleClusterRouting { cluster_id: cluster.into(), allow_transactional_writes: transactions };
    let routing_policy = Some(RoutingPolicy::SingleClusterRouting(routing));
    admin_v2::AppProfile { routing_policy, ..Default::default() }
}

fn create_profile(
    instance: &str,
    id: &str,
    profile: admin_v2::AppProfile,
) -> admin_v2::CreateAppProfileRequest {
    let (parent, app_profile_id) = (instance.to_string(), id.to_string());
    admin_v2::CreateAppProfileRequest {
        parent,
        app_profile_id,
        app_profile: Some(profile),
        ignore_warnings: false,
    }
}

/// The types of metadata and response of an operation that is done.
fn types(operation: &Operation) -> (String, String) {
    let Some(operation::Result::Response(response)) = &operation.result else { panic!("{operation:?}") };
    let last = |url: &str| url.rsplit('.').next().unwrap().to_string();
    assert!(operation.done);
    (last(&operation.metadata.as_ref().unwrap().type_url), last(&response.type_url))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_served_is_told_by_its_name() {
    let t = Fixture::new().await;
    let channel = channel(&t).await;
    for path in [
        "/google.bigtable.v2.Bigtable/ExecuteQuery",
        "/google.bigtable.v2.Bigtable/GetClientConfiguration",
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/CreateMaterializedView",
        "/google.monitoring.v3.MetricService/CreateServiceTimeSeries",
        "/no.Such/Method",
    ] {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let told = client.unary(Request::new(()), path.parse().unwrap(), codec).await.unwrap_err();
        assert_eq!(told.code(), Code::Unimplemented);
        let names = [path.trim_start_matches('/'), "docs/bigtable-api.md"];
        assert!(names.iter().all(|name| told.message().contains(name)), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_instance_is_there_with_a_cluster_and_a_profile_that_allows_everything() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let mut admin = instances(&t).await;
    let get = admin_v2::GetInstanceRequest { name: "projects/p/instances/any".into() };
    let any = admin.get_instance(get).await.unwrap().into_inner();
    let expected = admin_v2::Instance {
        name: "projects/p/instances/any".into(),
        display_name: "any".into(),
        state: admin_v2::instance::State::Ready as i32,
        r#type: admin_v2::instance::Type::Production as i32,
        ..Default::default()
    };
    assert_eq!(any, expected);
    let list =
        admin_v2::ListClustersRequest { parent: "projects/p/instances/-".into(), ..Default::default() };
    let clusters = admin.list_clusters(list).await.unwrap().into_inner().clusters;
    let expected = admin_v2::Cluster {
        name: format!("{INSTANCE}/clusters/siltstone"),
        location: "projects/p/locations/local".into(),
        state: admin_v2::cluster::State::Ready as i32,
        serve_nodes: 1,
        default_storage_type: admin_v2::StorageType::Ssd as i32,
        ..Default::default()
    };
    assert_eq!(clusters, [expected], "a list has the instances that have tables");
    let list = admin_v2::ListAppProfilesRequest { parent: INSTANCE.into(), ..Default::default() };
    let profiles = admin.list_app_profiles(list).await.unwrap().into_inner().app_profiles;
    let name = format!("{INSTANCE}/appProfiles/default");
    assert_eq!(profiles, [admin_v2::AppProfile { name, ..single("siltstone", true) }]);
    let get = admin_v2::GetClusterRequest { name: format!("{INSTANCE}/clusters/other") };
    refused(admin.get_cluster(get).await, Code::NotFound, "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_and_clusters_are_made_changed_listed_and_deleted() {
    let t = Fixture::new().await;
    let mut admin = instances(&t).await;
    let made = admin.create_instance(create("made", &["one"])).await.unwrap().into_inner();
    assert_eq!(types(&made), ("CreateInstanceMetadata".into(), "Instance".into()));
    refused(admin.create_instance(create("made", &["one"])).await, Code::AlreadyExists, "made");
    refused(admin.create_instance(create("Made", &["one"])).await, Code::InvalidArgument, "instance_id");
    refused(admin.create_instance(create("other", &[])).await, Code::InvalidArgument, "clusters");
    let update = |paths: &[&str]| admin_v2::PartialUpdateInstanceRequest {
        instance: Some(admin_v2::Instance {
            name: MADE.into(),
            display_name: "new name".into(),
            labels: [("key".to_string(), "value".to_string())].into(),
            ..Default::default()
        }),
        update_mask: mask(paths),
    };
    refused(admin.partial_update_instance(update(&[])).await, Code::InvalidArgument, "update_mask");
    refused(admin.partial_update_instance(update(&["state"])).await, Code::InvalidArgument, "state");
    let updated = admin.partial_update_instance(update(&["labels"])).await.unwrap().into_inner();
    assert_eq!(types(&updated), ("UpdateInstanceMetadata".into(), "Instance".into()));
    let added = admin_v2::CreateClusterRequest {
        parent: MADE.into(),
        cluster_id: "two".into(),
        cluster: Some(cluster(1)),
    };
    let added_to = admin.create_cluster(added.clone()).await.unwrap().into_inner();
    assert_eq!(types(&added_to), ("CreateClusterMetadata".into(), "Cluster".into()));
    refused(admin.create_cluster(added).await, Code::AlreadyExists, "two");
    let name = format!("{MADE}/clusters/two");
    let resize = admin_v2::PartialUpdateClusterRequest {
        cluster: Some(admin_v2::Cluster { name: name.clone(), serve_nodes: 5, ..Default::default() }),
        update_mask: mask(&["serve_nodes", "cluster_config.cluster_autoscaling_config"]),
    };
    let resized = admin.partial_update_cluster(resize).await.unwrap().into_inner();
    assert_eq!(types(&resized), ("PartialUpdateClusterMetadata".into(), "Cluster".into()));
    let renamed = admin_v2::Instance { labels: [].into(), ..update(&[]).instance.unwrap() };
    admin.update_instance(renamed).await.unwrap();

    drop(admin);
    let mut t = t.again().await;
    let mut admin = instances(&t).await;
    let get = || admin_v2::GetInstanceRequest { name: MADE.into() };
    let found = admin.get_instance(get()).await.unwrap().into_inner();
    assert!(found.display_name == "new name" && found.labels.is_empty() && found.create_time.is_some());
    let list = admin_v2::ListInstancesRequest { parent: "projects/p".into(), ..Default::default() };
    assert_eq!(admin.list_instances(list).await.unwrap().into_inner().instances, [found]);
    let list = admin_v2::ListClustersRequest { parent: MADE.into(), ..Default::default() };
    let clusters = admin.list_clusters(list).await.unwrap().into_inner().clusters;
    assert_eq!(clusters.iter().map(|cluster| cluster.serve_nodes).collect::<Vec<_>>(), [3, 5]);
    // Where one was made, those that were not made are not there.
    let other = admin_v2::GetInstanceRequest { name: "projects/p/instances/other".into() };
    refused(admin.get_instance(other).await, Code::NotFound, "other");
    let delete = |name: &str| admin_v2::DeleteClusterRequest { name: name.into() };
    refused(admin.delete_cluster(delete(&format!("{MADE}/clusters/none"))).await, Code::NotFound, "none");
    admin.delete_cluster(delete(&name)).await.unwrap();
    let last = format!("{MADE}/clusters/one");
    refused(admin.delete_cluster(delete(&last)).await, Code::FailedPrecondition, "last");
    let table =
        admin_v2::CreateTableRequest { parent: MADE.into(), table_id: "t".into(), ..Default::default() };
    t.admin.create_table(table).await.unwrap();
    let delete = || admin_v2::DeleteInstanceRequest { name: MADE.into() };
    admin.delete_instance(delete()).await.unwrap();
    refused(admin.get_instance(get()).await, Code::NotFound, "made");
    refused(admin.delete_instance(delete()).await, Code::NotFound, "made");
    let table = admin_v2::GetTableRequest { name: format!("{MADE}/tables/t"), ..Default::default() };
    refused(t.admin.get_table(table).await, Code::NotFound, "no table");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_protected_or_has_backups_is_not_deleted() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let mut admin = instances(&t).await;
    let protect = |on| admin_v2::UpdateTableRequest {
        table: Some(admin_v2::Table { name: TABLE.into(), deletion_protection: on, ..Default::default() }),
        update_mask: mask(&["deletion_protection"]),
        ..Default::default()
    };
    let delete = || admin_v2::DeleteInstanceRequest { name: INSTANCE.into() };
    t.admin.update_table(protect(true)).await.unwrap();
    refused(admin.delete_instance(delete()).await, Code::FailedPrecondition, "protected");
    t.admin.update_table(protect(false)).await.unwrap();
    let empty = || views::message(views::subset(&[], &[]));
    let view = admin_v2::AuthorizedView { deletion_protection: true, ..empty() };
    t.admin.create_authorized_view(views::create("v", view)).await.unwrap();
    refused(admin.delete_instance(delete()).await, Code::FailedPrecondition, "authorized view \"v\"");
    let view = admin_v2::AuthorizedView { name: views::named("v"), ..empty() };
    t.admin.update_authorized_view(views::update(view, &["deletion_protection"])).await.unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let expires = prost_types::Timestamp { seconds: i64::try_from(now).unwrap() + 90_000, nanos: 0 };
    let backup =
        admin_v2::Backup { source_table: TABLE.into(), expire_time: Some(expires), ..Default::default() };
    let backup = admin_v2::CreateBackupRequest {
        parent: format!("{INSTANCE}/clusters/siltstone"),
        backup_id: "b".into(),
        backup: Some(backup),
    };
    t.admin.create_backup(backup).await.unwrap();
    refused(admin.delete_instance(delete()).await, Code::FailedPrecondition, "backups");
    let name = format!("{INSTANCE}/clusters/siltstone");
    let cluster = admin_v2::DeleteClusterRequest { name: name.clone() };
    refused(admin.delete_cluster(cluster).await, Code::FailedPrecondition, "backups");
    let backup = admin_v2::DeleteBackupRequest { name: format!("{name}/backups/b") };
    t.admin.delete_backup(backup).await.unwrap();
    admin.delete_instance(delete()).await.unwrap();
    let table = admin_v2::GetTableRequest { name: TABLE.into(), ..Default::default() };
    refused(t.admin.get_table(table).await, Code::NotFound, "no table");
}

#[tokio::test(flavor = "multi_thread")]
async fn app_profiles_are_made_changed_listed_and_deleted() {
    let t = Fixture::new().await;
    let mut admin = instances(&t).await;
    let plain = || single("siltstone", true);
    let made = admin.create_app_profile(create_profile(INSTANCE, "x", plain())).await.unwrap().into_inner();
    let high = StandardIsolation { priority: admin_v2::app_profile::Priority::High as i32 };
    assert_eq!(made.isolation, Some(Isolation::StandardIsolation(high)));
    refused(admin.create_app_profile(create_profile(INSTANCE, "x", plain())).await, Code::AlreadyExists, "x");
    for (id, profile, word) in [
        ("-x", plain(), "app_profile_id"),
        ("y", single("none", true), "none"),
        ("y", admin_v2::AppProfile::default(), "routing_policy"),
    ] {
        refused(
            admin.create_app_profile(create_profile(INSTANCE, id, profile)).await,
            Code::InvalidArgument,
            word,
        );
    }
    let update = |etag: &str, paths: Option<FieldMask>, ignores| admin_v2::UpdateAppProfileRequest {
        app_profile: Some(admin_v2::AppProfile {
            name: made.name.clone(),
            etag: etag.into(),
            description: "new".into(),
            ..single("siltstone", false)
        }),
        update_mask: paths,
        ignore_warnings: ignores,
    };
    refused(admin.update_app_profile(update("", mask(&[]), true)).await, Code::InvalidArgument, "mask");
    refused(admin.update_app_profile(update("", mask(&["etag"]), true)).await, Code::InvalidArgument, "etag");
    let described = update(&made.etag, mask(&["description"]), false);
    let done = admin.update_app_profile(described.clone()).await.unwrap().into_inner();
    assert_eq!(types(&done), ("UpdateAppProfileMetadata".into(), "AppProfile".into()));
    refused(admin.update_app_profile(described).await, Code::Aborted, "etag");
    // Without a mask all is replaced, which takes transactions from who may rely on them.
    refused(
        admin.update_app_profile(update("", None, false)).await,
        Code::FailedPrecondition,
        "ignore_warnings",
    );
    admin.update_app_profile(update("", None, true)).await.unwrap();
    drop(admin);
    let t = t.again().await;
    let mut admin = instances(&t).await;
    let list = |page_token: String| admin_v2::ListAppProfilesRequest {
        parent: "projects/p/instances/-".into(),
        page_size: 1,
        page_token,
    };
    let first = admin.list_app_profiles(list(String::new())).await.unwrap().into_inner();
    let second = admin.list_app_profiles(list(first.next_page_token)).await.unwrap().into_inner();
    assert!(first.app_profiles[0].name.ends_with("/default") && second.next_page_token.is_empty());
    let expected = single("siltstone", false);
    assert_eq!(second.app_profiles[0].routing_policy, expected.routing_policy);
    assert_eq!(second.app_profiles[0].description, "new");
    let delete = |ignore_warnings| {
        let name = format!("{INSTANCE}/appProfiles/default");
        admin_v2::DeleteAppProfileRequest { name, ignore_warnings }
    };
    refused(admin.delete_app_profile(delete(false)).await, Code::FailedPrecondition, "default");
    admin.delete_app_profile(delete(true)).await.unwrap();
    refused(admin.delete_app_profile(delete(true)).await, Code::NotFound, "default");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_profiles_and_clusters_go_on_behind_their_tokens() {
    let t = Fixture::new().await;
    let mut admin = instances(&t).await;
    for id in ["a", "a-1"] {
        admin.create_instance(create(id, &["one", "two"])).await.unwrap();
    }
    let named = |name: &str| format!("projects/p/instances/{name}");
    admin.create_app_profile(create_profile(&named("a"), "x", single("one", false))).await.unwrap();
    let (mut names, mut page_token) = (Vec::new(), String::new());
    for _ in 0..3 {
        let parent = named("-");
        let list = admin_v2::ListAppProfilesRequest { parent, page_size: 1, page_token };
        let page = admin.list_app_profiles(list).await.unwrap().into_inner();
        names.extend(page.app_profiles.into_iter().map(|profile| profile.name));
        page_token = page.next_page_token;
    }
    let expected = ["a/appProfiles/default", "a/appProfiles/x", "a-1/appProfiles/default"].map(named);
    assert_eq!((&names[..], page_token.as_str()), (&expected[..], ""));
    let list = |token: &str| admin_v2::ListClustersRequest { parent: named("-"), page_token: token.into() };
    let behind = list(&named("a/clusters/one"));
    let clusters = admin.list_clusters(behind).await.unwrap().into_inner().clusters;
    let names: Vec<_> = clusters.into_iter().map(|cluster| cluster.name).collect();
    assert_eq!(names, ["a/clusters/two", "a-1/clusters/one", "a-1/clusters/two"].map(named));
    for wrong in ["x".to_string(), named("a/appProfiles/x")] {
        refused(admin.list_clusters(list(&wrong)).await, Code::InvalidArgument, "page_token");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_heeds_its_profile_where_its_instance_was_made_or_changed() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let read = |profile: &str| ReadRowsRequest { app_profile_id: profile.into(), ..Default::default() };
    t.read(read("any")).await.unwrap();
    let mut admin = instances(&t).await;
    let made = create_profile(INSTANCE, "plain", single("siltstone", false));
    admin.create_app_profile(made).await.unwrap();
    let reads = admin_v2::app_profile::DataBoostIsolationReadOnly { compute_billing_owner: Some(1) };
    let reads = admin_v2::AppProfile {
        isolation: Some(Isolation::DataBoostIsolationReadOnly(reads)),
        ..single("siltstone", false)
    };
    admin.create_app_profile(create_profile(INSTANCE, "reads", reads)).await.unwrap();
    for known in ["", "default", "plain", "reads"] {
        t.read(read(known)).await.unwrap();
    }
    refused(t.read(read("any")).await, Code::NotFound, "any");
    views::make(&mut t, "v", &[""], &[("f", &[], &[""])]).await;
    let through = ReadRowsRequest { app_profile_id: "any".into(), ..views::read("v") };
    refused(t.read(through).await, Code::NotFound, "any");
    let write = |profile: &str| data_v2::MutateRowRequest {
        table_name: TABLE.into(),
        app_profile_id: profile.into(),
        row_key: "r".into(),
        mutations: vec![data_v2::Mutation { mutation: Some(set("f", "q", 1_000, "v")) }],
        ..Default::default()
    };
    let both = |profile: &str| data_v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        app_profile_id: profile.into(),
        row_key: "r".into(),
        rules: vec![data_v2::ReadModifyWriteRule {
            family_name: "f".into(),
            column_qualifier: "q".into(),
            rule: Some(data_v2::read_modify_write_rule::Rule::AppendValue("more".into())),
        }],
        ..Default::default()
    };
    t.data.mutate_row(write("plain")).await.unwrap();
    refused(t.data.mutate_row(write("reads")).await, Code::FailedPrecondition, "reads");
    t.data.read_modify_write_row(both("")).await.unwrap();
    for profile in ["plain", "reads"] {
        refused(t.data.read_modify_write_row(both(profile)).await, Code::FailedPrecondition, profile);
    }
    let ping =
        |profile: &str| data_v2::PingAndWarmRequest { name: INSTANCE.into(), app_profile_id: profile.into() };
    t.data.ping_and_warm(ping("plain")).await.unwrap();
    refused(t.data.ping_and_warm(ping("any")).await, Code::NotFound, "any");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_table_comes_back_with_its_rows_rules_regions_and_views() {
    let mut t = Fixture::new().await;
    t.table(&["f", "g"]).await;
    views::make(&mut t, "v", &["a"], &[("f", &["q"], &[])]).await;
    for row in ["a", "z"] {
        t.mutate(row, vec![set("f", "q", 1_000, row), set("g", "q", 1_000, row)]).await.unwrap();
    }
    t.server.split(TABLE, b"m").await.unwrap();
    let before = t.read_all().await;
    let undelete = || admin_v2::UndeleteTableRequest { name: TABLE.into() };
    let delete = || admin_v2::DeleteTableRequest { name: TABLE.into() };
    refused(t.admin.undelete_table(undelete()).await, Code::AlreadyExists, "exists");
    t.admin.delete_table(delete()).await.unwrap();
    let list = admin_v2::ListTablesRequest { parent: INSTANCE.into(), ..Default::default() };
    assert!(t.admin.list_tables(list).await.unwrap().into_inner().tables.is_empty());
    let mut t = t.again().await;
    refused(t.read(ReadRowsRequest::default()).await, Code::NotFound, "no table");
    refused(t.read(views::read("v")).await, Code::NotFound, "authorizedViews/v");
    let metrics = crate::support::get(t.server.page_at(), "/metrics").await;
    assert!(metrics.contains("siltstone_deleted_tables 1"), "{metrics}");
    let back = t.admin.undelete_table(undelete()).await.unwrap().into_inner();
    assert_eq!(types(&back), ("UndeleteTableMetadata".into(), "Table".into()));
    assert_eq!(t.read_all().await, before);
    assert_eq!(t.read(views::read("v")).await.unwrap(), "a f:q@1000=a");
    assert_eq!(t.server.regions(TABLE).unwrap(), [b"".to_vec(), b"m".to_vec()]);
    t.mutate("b", vec![set("f", "q", 1_000, "b")]).await.unwrap();
    let mut t = t.again().await;
    assert_eq!(t.read_all().await.lines().count(), 3);
    assert_eq!(t.read(views::read("v")).await.unwrap(), "a f:q@1000=a");
    // Another of its name does not know of it, and keeps it away.
    t.admin.delete_table(delete()).await.unwrap();
    t.table(&["f"]).await;
    assert_eq!(t.read_all().await, "");
    refused(t.admin.undelete_table(undelete()).await, Code::AlreadyExists, "exists");
    let none = admin_v2::UndeleteTableRequest { name: format!("{INSTANCE}/tables/none") };
    refused(t.admin.undelete_table(none).await, Code::NotFound, "none");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_deleted_tables_are_not_kept_they_are_gone() {
    let mut t = Fixture::with(|config| config.undelete_hours = 0).await;
    t.table(&["f"]).await;
    t.admin.delete_table(admin_v2::DeleteTableRequest { name: TABLE.into() }).await.unwrap();
    let undelete = admin_v2::UndeleteTableRequest { name: TABLE.into() };
    refused(t.admin.undelete_table(undelete).await, Code::NotFound, "no table");
}

/// A request with a token.
fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let header = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", header);
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn iam_tells_what_the_file_of_tokens_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let text = [
        entry("root", "'read', 'admin'", &format!("'{INSTANCE}/tables/*'")),
        entry("reader", "'read'", &format!("'{TABLE}'")),
        entry("owner", "'admin'", &format!("'{TABLE}'")),
        entry("viewer", "'read', 'admin'", &format!("'{}'", views::named("v"))),
    ];
    std::fs::write(&file, text.concat()).unwrap();
    let mut t = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let create =
        admin_v2::CreateTableRequest { parent: INSTANCE.into(), table_id: "t".into(), ..Default::default() };
    t.admin.create_table(by("root", create)).await.unwrap();
    let view = views::create("v", views::message(views::subset(&["r"], &[])));
    t.admin.create_authorized_view(by("owner", view)).await.unwrap();
    let (view, no_view) = (views::named("v"), views::named("none"));
    let asked =
        ["tables.readRows", "tables.mutateRows", "tables.get", "tables.delete", "instances.executeQuery"];
    let test = |resource: &str| iam::TestIamPermissionsRequest {
        resource: resource.into(),
        permissions: asked.iter().map(|permission| format!("bigtable.{permission}")).collect(),
    };
    for (token, resource, expected) in [
        ("reader", TABLE, &["tables.readRows", "tables.get"][..]),
        ("owner", TABLE, &["tables.get", "tables.delete"][..]),
        ("root", TABLE, &["tables.readRows", "tables.get", "tables.delete"][..]),
        ("root", INSTANCE, &["tables.readRows", "tables.get", "tables.delete"][..]),
        ("reader", INSTANCE, &["tables.get"][..]),
        ("viewer", &view[..], &["tables.readRows", "tables.get"][..]),
        ("owner", &view[..], &["tables.get", "tables.delete"][..]),
        ("viewer", TABLE, &[][..]),
        ("root", &no_view[..], &[][..]),
        ("root", "projects/p/instances/i/tables/none", &[][..]),
        ("root", "projects/q/instances/i/tables/t", &[][..]),
    ] {
        let has = t.admin.test_iam_permissions(by(token, test(resource))).await.unwrap().into_inner();
        let has: Vec<_> = has.permissions.iter().filter_map(|has| has.strip_prefix("bigtable.")).collect();
        assert_eq!(has, expected, "{token} on {resource}");
    }
    let many = iam::TestIamPermissionsRequest { permissions: vec!["bigtable.*".into()], ..test(TABLE) };
    refused(t.admin.test_iam_permissions(by("root", many)).await, Code::InvalidArgument, "bigtable.*");

    let get = |resource: &str| iam::GetIamPolicyRequest { resource: resource.into(), options: None };
    let policy = t.admin.get_iam_policy(by("owner", get(TABLE))).await.unwrap().into_inner();
    let binding = |right: &str, names: &[&str]| iam::Binding {
        role: format!("roles/siltstone.{right}"),
        members: names.iter().map(|name| format!("token:{name}")).collect(),
        condition: None,
    };
    assert_eq!(policy.bindings, [binding("admin", &["owner", "root"]), binding("read", &["reader", "root"])]);
    refused(t.admin.get_iam_policy(by("reader", get(TABLE))).await, Code::PermissionDenied, "admin");
    // A view is read by who may read it or its table, and administered with its table.
    refused(t.admin.get_iam_policy(by("viewer", get(&view))).await, Code::PermissionDenied, "admin");
    let of_view = t.admin.get_iam_policy(by("owner", get(&view))).await.unwrap().into_inner().bindings;
    let readers = binding("read", &["reader", "root", "viewer"]);
    assert_eq!(of_view, [binding("admin", &["owner", "root"]), readers]);
    let mut of_instances = instances(&t).await;
    refused(of_instances.get_iam_policy(by("owner", get(INSTANCE))).await, Code::PermissionDenied, "admin");
    let of_all = of_instances.get_iam_policy(by("root", get(INSTANCE))).await.unwrap().into_inner();
    assert_eq!(of_all.bindings, [binding("admin", &["root"]), binding("read", &["root"])]);
    let set = |policy: &iam::Policy| iam::SetIamPolicyRequest {
        resource: TABLE.into(),
        policy: Some(policy.clone()),
        update_mask: None,
    };
    assert_eq!(t.admin.set_iam_policy(by("owner", set(&policy))).await.unwrap().into_inner(), policy);
    let other = iam::Policy { bindings: vec![binding("admin", &["reader"])], ..policy.clone() };
    refused(t.admin.set_iam_policy(by("owner", set(&other))).await, Code::FailedPrecondition, "tokens");
    refused(t.admin.set_iam_policy(by("reader", set(&policy))).await, Code::PermissionDenied, "admin");
    let free = iam::Policy { etag: "".into(), ..policy.clone() };
    assert_eq!(t.admin.set_iam_policy(by("owner", set(&free))).await.unwrap().into_inner(), policy);
    let stale = iam::Policy { etag: "stale".into(), ..policy.clone() };
    refused(t.admin.set_iam_policy(by("owner", set(&stale))).await, Code::Aborted, "policy.etag");
    let odd = iam::Policy { version: 2, ..policy.clone() };
    refused(t.admin.set_iam_policy(by("owner", set(&odd))).await, Code::InvalidArgument, "policy.version");
    let masked = iam::SetIamPolicyRequest { update_mask: mask(&["bindings"]), ..set(&policy) };
    refused(t.admin.set_iam_policy(by("owner", masked)).await, Code::Unimplemented, "update_mask");

    // Who administers one table of an instance does not change the instance, and who administers all does.
    let named = |name: &str| admin_v2::Instance {
        name: name.into(),
        display_name: "name".into(),
        ..Default::default()
    };
    for (token, name) in [("owner", INSTANCE), ("reader", INSTANCE), ("root", "projects/q/instances/i")] {
        let denied = of_instances.update_instance(by(token, named(name))).await;
        refused(denied, Code::PermissionDenied, name);
    }
    of_instances.update_instance(by("root", named(INSTANCE))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_that_is_busy_is_a_hot_tablet() {
    let mut t = Fixture::with(|config| config.region_rate = 100).await;
    t.table(&["f"]).await;
    let mut admin = instances(&t).await;
    let parent = format!("{INSTANCE}/clusters/siltstone");
    let list = || admin_v2::ListHotTabletsRequest { parent: parent.clone(), ..Default::default() };
    let wrong = admin_v2::ListHotTabletsRequest { parent: format!("{INSTANCE}/clusters/c"), ..list() };
    refused(admin.list_hot_tablets(wrong).await, Code::NotFound, "no cluster");
    let until = Instant::now() + Duration::from_secs(40);
    let hot = loop {
        let rows: Vec<_> = (0..200).map(|n| format!("r{n:03}")).collect();
        for row in &rows {
            t.mutate(row, vec![set("f", "q", 1_000, "v")]).await.unwrap();
        }
        let hot = admin.list_hot_tablets(list()).await.unwrap().into_inner().hot_tablets;
        if let Some(hot) = hot.into_iter().next() {
            break hot;
        }
        assert!(Instant::now() < until, "no hot tablet");
    };
    assert!(hot.name.starts_with(&format!("{parent}/hotTablets/")) && hot.table_name == TABLE, "{hot:?}");
    assert!((20.0..=100.0).contains(&hot.node_cpu_usage_percent), "{hot:?}");
    assert!(hot.start_time.unwrap().seconds < hot.end_time.unwrap().seconds && hot.encoded_len() > 0);
}
