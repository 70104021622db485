//! Server stubs of the public services, from lists of their methods and the crates' message types. A method that is not
//! listed answers UNIMPLEMENTED, and its name (`src/door.rs`). And the table of the fields of their requests, out of
//! `src/fields.txt`.

use tonic_build::manual::{Builder, Method, Service, ServiceBuilder};

/// A service's methods: name in Rust, name on the wire, request, response, and whether the response is a stream.
type Methods<'a> = &'a [(&'a str, &'a str, &'a str, &'a str, bool)];

const DATA: Methods<'_> = &[
    ("read_rows", "ReadRows", "ReadRowsRequest", "ReadRowsResponse", true),
    ("sample_row_keys", "SampleRowKeys", "SampleRowKeysRequest", "SampleRowKeysResponse", true),
    ("mutate_row", "MutateRow", "MutateRowRequest", "MutateRowResponse", false),
    ("mutate_rows", "MutateRows", "MutateRowsRequest", "MutateRowsResponse", true),
    (
        "check_and_mutate_row",
        "CheckAndMutateRow",
        "CheckAndMutateRowRequest",
        "CheckAndMutateRowResponse",
        false,
    ),
    ("ping_and_warm", "PingAndWarm", "PingAndWarmRequest", "PingAndWarmResponse", false),
    (
        "read_modify_write_row",
        "ReadModifyWriteRow",
        "ReadModifyWriteRowRequest",
        "ReadModifyWriteRowResponse",
        false,
    ),
    (
        "generate_initial_change_stream_partitions",
        "GenerateInitialChangeStreamPartitions",
        "GenerateInitialChangeStreamPartitionsRequest",
        "GenerateInitialChangeStreamPartitionsResponse",
        true,
    ),
    ("read_change_stream", "ReadChangeStream", "ReadChangeStreamRequest", "ReadChangeStreamResponse", true),
];

const TABLE_ADMIN: Methods<'_> = &[
    ("create_table", "CreateTable", "CreateTableRequest", "Table", false),
    ("list_tables", "ListTables", "ListTablesRequest", "ListTablesResponse", false),
    ("get_table", "GetTable", "GetTableRequest", "Table", false),
    ("update_table", "UpdateTable", "UpdateTableRequest", "longrunning::Operation", false),
    ("delete_table", "DeleteTable", "DeleteTableRequest", "Empty", false),
    ("undelete_table", "UndeleteTable", "UndeleteTableRequest", "longrunning::Operation", false),
    ("modify_column_families", "ModifyColumnFamilies", "ModifyColumnFamiliesRequest", "Table", false),
    ("drop_row_range", "DropRowRange", "DropRowRangeRequest", "Empty", false),
    (
        "generate_consistency_token",
        "GenerateConsistencyToken",
        "GenerateConsistencyTokenRequest",
        "GenerateConsistencyTokenResponse",
        false,
    ),
    ("create_backup", "CreateBackup", "CreateBackupRequest", "longrunning::Operation", false),
    ("get_backup", "GetBackup", "GetBackupRequest", "Backup", false),
    ("update_backup", "UpdateBackup", "UpdateBackupRequest", "Backup", false),
    ("delete_backup", "DeleteBackup", "DeleteBackupRequest", "Empty", false),
    ("list_backups", "ListBackups", "ListBackupsRequest", "ListBackupsResponse", false),
    ("restore_table", "RestoreTable", "RestoreTableRequest", "longrunning::Operation", false),
    ("copy_backup", "CopyBackup", "CopyBackupRequest", "longrunning::Operation", false),
    (
        "create_authorized_view",
        "CreateAuthorizedView",
        "CreateAuthorizedViewRequest",
        "longrunning::Operation",
        false,
    ),
    (
        "list_authorized_views",
        "ListAuthorizedViews",
        "ListAuthorizedViewsRequest",
        "ListAuthorizedViewsResponse",
        false,
    ),
    ("get_authorized_view", "GetAuthorizedView", "GetAuthorizedViewRequest", "AuthorizedView", false),
    (
        "update_authorized_view",
        "UpdateAuthorizedView",
        "UpdateAuthorizedViewRequest",
        "longrunning::Operation",
        false,
    ),
    ("delete_authorized_view", "DeleteAuthorizedView", "DeleteAuthorizedViewRequest", "Empty", false),
    (
        "create_schema_bundle",
        "CreateSchemaBundle",
        "CreateSchemaBundleRequest",
        "longrunning::Operation",
        false,
    ),
    (
        "list_schema_bundles",
        "ListSchemaBundles",
        "ListSchemaBundlesRequest",
        "ListSchemaBundlesResponse",
        false,
    ),
    ("get_schema_bundle", "GetSchemaBundle", "GetSchemaBundleRequest", "SchemaBundle", false),
    (
        "update_schema_bundle",
        "UpdateSchemaBundle",
        "UpdateSchemaBundleRequest",
        "longrunning::Operation",
        false,
    ),
    ("delete_schema_bundle", "DeleteSchemaBundle", "DeleteSchemaBundleRequest", "Empty", false),
    ("check_consistency", "CheckConsistency", "CheckConsistencyRequest", "CheckConsistencyResponse", false),
    ("get_iam_policy", "GetIamPolicy", "iam::GetIamPolicyRequest", "iam::Policy", false),
    ("set_iam_policy", "SetIamPolicy", "iam::SetIamPolicyRequest", "iam::Policy", false),
    (
        "test_iam_permissions",
        "TestIamPermissions",
        "iam::TestIamPermissionsRequest",
        "iam::TestIamPermissionsResponse",
        false,
    ),
];

const INSTANCE_ADMIN: Methods<'_> = &[
    ("create_instance", "CreateInstance", "CreateInstanceRequest", "longrunning::Operation", false),
    ("get_instance", "GetInstance", "GetInstanceRequest", "Instance", false),
    ("list_instances", "ListInstances", "ListInstancesRequest", "ListInstancesResponse", false),
    ("update_instance", "UpdateInstance", "Instance", "Instance", false),
    (
        "partial_update_instance",
        "PartialUpdateInstance",
        "PartialUpdateInstanceRequest",
        "longrunning::Operation",
        false,
    ),
    ("delete_instance", "DeleteInstance", "DeleteInstanceRequest", "Empty", false),
    ("create_cluster", "CreateCluster", "CreateClusterRequest", "longrunning::Operation", false),
    ("get_cluster", "GetCluster", "GetClusterRequest", "Cluster", false),
    ("list_clusters", "ListClusters", "ListClustersRequest", "ListClustersResponse", false),
    ("update_cluster", "UpdateCluster", "Cluster", "longrunning::Operation", false),
    (
        "partial_update_cluster",
        "PartialUpdateCluster",
        "PartialUpdateClusterRequest",
        "longrunning::Operation",
        false,
    ),
    ("delete_cluster", "DeleteCluster", "DeleteClusterRequest", "Empty", false),
    ("create_app_profile", "CreateAppProfile", "CreateAppProfileRequest", "AppProfile", false),
    ("get_app_profile", "GetAppProfile", "GetAppProfileRequest", "AppProfile", false),
    ("list_app_profiles", "ListAppProfiles", "ListAppProfilesRequest", "ListAppProfilesResponse", false),
    ("update_app_profile", "UpdateAppProfile", "UpdateAppProfileRequest", "longrunning::Operation", false),
    ("delete_app_profile", "DeleteAppProfile", "DeleteAppProfileRequest", "Empty", false),
    ("list_hot_tablets", "ListHotTablets", "ListHotTabletsRequest", "ListHotTabletsResponse", false),
    ("get_iam_policy", "GetIamPolicy", "iam::GetIamPolicyRequest", "iam::Policy", false),
    ("set_iam_policy", "SetIamPolicy", "iam::SetIamPolicyRequest", "iam::Policy", false),
    (
        "test_iam_permissions",
        "TestIamPermissions",
        "iam::TestIamPermissionsRequest",
        "iam::TestIamPermissionsResponse",
        false,
    ),
];

const OPERATIONS: Methods<'_> =
    &[("get_operation", "GetOperation", "GetOperationRequest", "Operation", false)];

const OPERATOR: Methods<'_> = &[
    ("state", "State", "Empty", "Json", false),
    ("table", "Table", "TableName", "Json", false),
    ("alter_settings", "AlterSettings", "AlterSettings", "Json", false),
];

/// How the stubs of a service are made: `encoded` where its long answers are bytes already, which the service wrote itself.
fn service(package: &str, name: &str, messages: &str, methods: Methods<'_>, encoded: bool) -> Service {
    let mut service = ServiceBuilder::default().package(package).name(name);
    for (rust, wire, input, output, streams) in methods {
        let path = |message: &str| match message {
            "Empty" => "crate::proto::Empty".to_string(),
            "ReadRowsResponse" if encoded => "bytes::Bytes".to_string(),
            "ReadModifyWriteRowResponse" if encoded => {
                format!("crate::answer::Single<crate::proto::{messages}::{message}>")
            }
            // Restated there.
            "ReadRowsResponse" => "crate::empty::read_rows::ReadRowsResponse".to_string(),
            // Of another package than the service's.
            other if other.contains("::") => format!("crate::proto::{other}"),
            message => format!("crate::proto::{messages}::{message}"),
        };
        let method = Method::builder()
            .name(rust)
            .route_name(wire)
            .input_type(path(input))
            .output_type(path(output))
            .codec_path(match *wire {
                "ReadRows" if encoded => "crate::proto::EncodedCodec",
                "ReadModifyWriteRow" if encoded => "crate::proto::SingleCodec",
                _ => "crate::codec::MessageCodec",
            });
        service = service.method(if *streams { method.server_streaming().build() } else { method.build() });
    }
    service.build()
}

/// A service's package, name, messages and methods.
const SERVICES: [(&str, &str, &str, Methods<'_>); 5] = [
    ("google.bigtable.v2", "Bigtable", "data", DATA),
    ("google.bigtable.admin.v2", "BigtableTableAdmin", "admin", TABLE_ADMIN),
    ("google.bigtable.admin.v2", "BigtableInstanceAdmin", "admin", INSTANCE_ADMIN),
    ("google.longrunning", "Operations", "longrunning", OPERATIONS),
    ("siltstone.v1", "Operator", "operator_messages", OPERATOR),
];

/// Writes a list of the paths of all methods, for tests that go through all.
fn list_methods() {
    let paths: Vec<String> = SERVICES
        .iter()
        .flat_map(|(package, name, _, methods)| {
            methods.iter().map(move |(_, wire, ..)| format!("/{package}.{name}/{wire}"))
        })
        .collect();
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let file = std::path::Path::new(&out).join("methods.rs");
    std::fs::write(file, format!("&{paths:?}")).expect("a file in OUT_DIR");
}

/// The full name of a request's message.
fn full_name(messages: &str, message: &str) -> String {
    let (messages, message) = message.split_once("::").unwrap_or((messages, message));
    let package = match messages {
        _ if message == "Empty" => "google.protobuf",
        "data" => "google.bigtable.v2",
        "admin" => "google.bigtable.admin.v2",
        "iam" => "google.iam.v1",
        "longrunning" => "google.longrunning",
        "operator_messages" => "siltstone.v1",
        other => panic!("the package of {other} is not known"),
    };
    format!("{package}.{message}")
}

/// A line of `src/fields.txt`: a field.
struct Field<'a> {
    number: u32,
    name: &'a str,
    fate: &'a str,
    kind: &'a str,
}

fn field_of(line: &str) -> Field<'_> {
    let (facts, why) = line.split_once("  # ").unwrap_or((line, ""));
    let [number, name, fate, kind] = facts.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        panic!("no field: {line}");
    };
    let fate = match fate {
        "used" => "Used",
        "kept" => "Kept",
        "ignored" => "Ignored",
        "refused" => "Refused",
        other => panic!("{other} is no fate: {line}"),
    };
    assert_eq!(
        fate == "Ignored",
        !why.is_empty(),
        "it is said why a field is ignored, and only then: {line}"
    );
    Field { number: number.parse().expect("a field's number"), name, fate, kind }
}

/// Writes the table of the fields of all requests (`fields::MESSAGES`), and which message each method takes.
fn list_fields() {
    let text = std::fs::read_to_string("src/fields.txt").expect("src/fields.txt");
    let mut messages: Vec<(String, Vec<Field<'_>>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("    ") {
            None => messages.push((line.to_string(), Vec::new())),
            Some(field) => messages.last_mut().expect("a message before its fields").1.push(field_of(field)),
        }
    }
    // An entry of a map is a message, too.
    let mut entries = Vec::new();
    for (message, fields) in &messages {
        for field in fields {
            if let Some(types) = field.kind.strip_prefix("map<").and_then(|types| types.strip_suffix('>')) {
                let (key, value) = types.split_once(", ").expect("a map has two types");
                let key = Field { number: 1, name: "key", fate: field.fate, kind: key };
                let value = Field { number: 2, name: "value", fate: field.fate, kind: value };
                entries.push((format!("{message}.{}", field.name), vec![key, value]));
            }
        }
    }
    messages.extend(entries);
    let place = |name: &str| {
        let found = messages.iter().position(|(message, _)| message == name);
        found.unwrap_or_else(|| panic!("src/fields.txt does not have {name}"))
    };
    let mut out = String::from("pub(crate) static MESSAGES: &[Message] = &[\n");
    for (message, fields) in &messages {
        out += &format!("    Message {{ name: {message:?}, fields: &[\n");
        for Field { number, name, fate, kind } in fields {
            let within = match kind.trim_start_matches("repeated ") {
                map if map.starts_with("map<") => Some(place(&format!("{message}.{name}"))),
                kind if kind.contains('.') => Some(place(kind)),
                _ => None,
            };
            out += &format!(
                "        Field {{ number: {number}, name: {name:?}, fate: Fate::{fate}, message: {within:?} }},\n"
            );
        }
        out += "    ] },\n";
    }
    out += "];\n\nconst REQUESTS: &[(&str, usize)] = &[\n";
    for (package, service, of, methods) in SERVICES {
        for (_, wire, input, ..) in methods {
            let at = place(&full_name(of, input));
            out += &format!("    (\"/{package}.{service}/{wire}\", {at}),\n");
        }
    }
    out += "];\n";
    let dir = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(std::path::Path::new(&dir).join("fields.rs"), out).expect("a file in OUT_DIR");
}

/// Stubs of the first service for one that encodes nothing itself, which the bench measures ours against.
fn plain_service() {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let out = std::path::Path::new(&out).join("plain");
    std::fs::create_dir_all(&out).expect("a directory in OUT_DIR");
    let [(package, name, messages, methods), ..] = SERVICES;
    let service = service(package, name, messages, methods, false);
    Builder::new().build_client(false).out_dir(out).compile(&[service]);
}

fn main() {
    let services =
        SERVICES.map(|(package, name, messages, methods)| service(package, name, messages, methods, true));
    list_methods();
    list_fields();
    if std::env::var_os("CARGO_FEATURE_EMPTY").is_some() {
        plain_service();
    }
    // Of the last one, our own, there is no client elsewhere.
    let (own, public) = services.split_last().expect("there are services");
    Builder::new().build_client(false).compile(public);
    Builder::new().compile(std::slice::from_ref(own));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/fields.txt");
}
