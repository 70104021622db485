//! Server stubs of the public services, from lists of their methods and the crates' message types. A method
//! that is not listed answers UNIMPLEMENTED, and its name (`src/net/door.rs`). And the table of the fields of
//! their requests, out of `src/net/fields/fields.txt`.

use tonic_build::manual::{Builder, Method, Service, ServiceBuilder};

/// A service's methods, one a line: `NAME [REQUEST] -> [stream] RESPONSE`. The request is `NAMERequest` where
/// none is named.
type Methods = &'static str;

const DATA: Methods = "
    ReadRows -> stream ReadRowsResponse
    SampleRowKeys -> stream SampleRowKeysResponse
    MutateRow -> MutateRowResponse
    MutateRows -> stream MutateRowsResponse
    CheckAndMutateRow -> CheckAndMutateRowResponse
    PingAndWarm -> PingAndWarmResponse
    ReadModifyWriteRow -> ReadModifyWriteRowResponse
    GenerateInitialChangeStreamPartitions -> stream GenerateInitialChangeStreamPartitionsResponse
    ReadChangeStream -> stream ReadChangeStreamResponse
";

const TABLE_ADMIN: Methods = "
    CreateTable -> Table
    ListTables -> ListTablesResponse
    GetTable -> Table
    UpdateTable -> longrunning::Operation
    DeleteTable -> Empty
    UndeleteTable -> longrunning::Operation
    ModifyColumnFamilies -> Table
    DropRowRange -> Empty
    GenerateConsistencyToken -> GenerateConsistencyTokenResponse
    CreateBackup -> longrunning::Operation
    GetBackup -> Backup
    UpdateBackup -> Backup
    DeleteBackup -> Empty
    ListBackups -> ListBackupsResponse
    RestoreTable -> longrunning::Operation
    CopyBackup -> longrunning::Operation
    CreateAuthorizedView -> longrunning::Operation
    ListAuthorizedViews -> ListAuthorizedViewsResponse
    GetAuthorizedView -> AuthorizedView
    UpdateAuthorizedView -> longrunning::Operation
    DeleteAuthorizedView -> Empty
    CreateSchemaBundle -> longrunning::Operation
    ListSchemaBundles -> ListSchemaBundlesResponse
    GetSchemaBundle -> SchemaBundle
    UpdateSchemaBundle -> longrunning::Operation
    DeleteSchemaBundle -> Empty
    CheckConsistency -> CheckConsistencyResponse
    GetIamPolicy iam::GetIamPolicyRequest -> iam::Policy
    SetIamPolicy iam::SetIamPolicyRequest -> iam::Policy
    TestIamPermissions iam::TestIamPermissionsRequest -> iam::TestIamPermissionsResponse
";

const INSTANCE_ADMIN: Methods = "
    CreateInstance -> longrunning::Operation
    GetInstance -> Instance
    ListInstances -> ListInstancesResponse
    UpdateInstance Instance -> Instance
    PartialUpdateInstance -> longrunning::Operation
    DeleteInstance -> Empty
    CreateCluster -> longrunning::Operation
    GetCluster -> Cluster
    ListClusters -> ListClustersResponse
    UpdateCluster Cluster -> longrunning::Operation
    PartialUpdateCluster -> longrunning::Operation
    DeleteCluster -> Empty
    CreateAppProfile -> AppProfile
    GetAppProfile -> AppProfile
    ListAppProfiles -> ListAppProfilesResponse
    UpdateAppProfile -> longrunning::Operation
    DeleteAppProfile -> Empty
    ListHotTablets -> ListHotTabletsResponse
    GetIamPolicy iam::GetIamPolicyRequest -> iam::Policy
    SetIamPolicy iam::SetIamPolicyRequest -> iam::Policy
    TestIamPermissions iam::TestIamPermissionsRequest -> iam::TestIamPermissionsResponse
";

const OPERATIONS: Methods = "
    GetOperation -> Operation
";

const OPERATOR: Methods = "
    State Empty -> Json
    Table TableName -> Json
    AlterSettings AlterSettings -> Json
";

/// Methods whose answer of one message may be long: its memory is counted as long as it waits for its client
/// (`src/net/answer.rs`).
const SINGLE: [&str; 14] = [
    "ReadModifyWriteRow",
    "GetTable",
    "ListTables",
    "ListBackups",
    "GetAuthorizedView",
    "ListAuthorizedViews",
    "CreateSchemaBundle",
    "GetSchemaBundle",
    "ListSchemaBundles",
    "UpdateSchemaBundle",
    "ListInstances",
    "ListClusters",
    "ListAppProfiles",
    "ListHotTablets",
];

/// A method: its name on the wire, its request, its response, and whether that is a stream.
struct Rpc {
    name: &'static str,
    request: String,
    response: &'static str,
    streams: bool,
}

fn rpcs(methods: Methods) -> impl Iterator<Item = Rpc> {
    methods.lines().filter(|line| !line.is_empty()).map(|line| {
        let (call, response) = line.split_once(" -> ").expect("a method's response");
        let (name, request) = call.trim().split_once(' ').unwrap_or((call.trim(), ""));
        let request = if request.is_empty() { format!("{name}Request") } else { request.to_string() };
        let (streams, response) = match response.strip_prefix("stream ") {
            Some(response) => (true, response),
            None => (false, response),
        };
        Rpc { name, request, response, streams }
    })
}

/// A name in Rust: `ReadRows` is `read_rows`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// How the stubs of a service are made: `encoded` where its long answers are bytes already, which the service
/// wrote itself.
fn service(package: &str, name: &str, messages: &str, methods: Methods, encoded: bool) -> Service {
    let mut service = ServiceBuilder::default().package(package).name(name);
    for Rpc { name, request, response, streams } in rpcs(methods) {
        let path = |message: &str| match message {
            "Empty" => "crate::proto::Empty".to_string(),
            "ReadRowsResponse" if encoded => "bytes::Bytes".to_string(),
            // Restated there.
            "ReadRowsResponse" => "crate::empty::read_rows::ReadRowsResponse".to_string(),
            // Of another package than the service's.
            other if other.contains("::") => format!("crate::proto::{other}"),
            message => format!("crate::proto::{messages}::{message}"),
        };
        let is_single = encoded && SINGLE.contains(&name);
        let answer = match is_single {
            true => format!("crate::net::answer::Single<{}>", path(response)),
            false => path(response),
        };
        let method = Method::builder()
            .name(snake_case(name))
            .route_name(name)
            .input_type(path(&request))
            .output_type(answer)
            .codec_path(match name {
                "ReadRows" if encoded => "crate::proto::codec::EncodedCodec",
                _ if is_single => "crate::net::answer::SingleCodec",
                _ => "crate::proto::codec::MessageCodec",
            });
        service = service.method(if streams { method.server_streaming().build() } else { method.build() });
    }
    service.build()
}

/// A service's package, name, messages and methods.
const SERVICES: [(&str, &str, &str, Methods); 5] = [
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
            rpcs(methods).map(move |rpc| format!("/{package}.{name}/{}", rpc.name))
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

/// A line of `src/net/fields/fields.txt`: a field.
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
    let text = std::fs::read_to_string("src/net/fields/fields.txt").expect("src/net/fields/fields.txt");
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
        found.unwrap_or_else(|| panic!("src/net/fields/fields.txt does not have {name}"))
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
        for Rpc { name, request, .. } in rpcs(methods) {
            let at = place(&full_name(of, &request));
            out += &format!("    (\"/{package}.{service}/{name}\", {at}),\n");
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
    println!("cargo:rerun-if-changed=src/net/fields/fields.txt");
}
