//! What `src/net/api.txt` says becomes code here: server stubs of the services, with the crates' message
//! types; the table of their methods; and that of the fields of their requests. A method that is not listed
//! answers UNIMPLEMENTED, and its name (`src/net/door.rs`).

use tonic_build::manual::{Builder, Method, Service, ServiceBuilder};

const API: &str = include_str!("src/net/api.txt");

/// The modules that have the messages, each with its package. Those of the last three are within requests.
static MODULES: [(&str, &str); 8] = [
    ("data", "google.bigtable.v2"),
    ("admin", "google.bigtable.admin.v2"),
    ("iam", "google.iam.v1"),
    ("longrunning", "google.longrunning"),
    ("operator_messages", "siltstone.v1"),
    ("prost_types", "google.protobuf"),
    ("rpc", "google.rpc"),
    ("common", "google.type"),
];

/// The methods of data that the empty service has (`src/empty.rs`).
const EMPTY: [&str; 4] = ["ReadRows", "MutateRow", "MutateRows", "PingAndWarm"];

/// A service whose methods are listed.
struct Served {
    package: &'static str,
    name: &'static str,
    /// The module of its messages.
    module: &'static str,
    methods: Vec<Rpc>,
}

/// A method: its name on the wire, its request, whether the response is a `stream` or `single`, the response,
/// and the rights and limits.
struct Rpc {
    name: &'static str,
    request: String,
    form: &'static str,
    response: &'static str,
    rights: &'static str,
}

impl Served {
    fn path(&self, rpc: &Rpc) -> String {
        format!("/{}.{}/{}", self.package, self.name, rpc.name)
    }
}

/// The lines without indentation, each with those below it.
fn sections() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in API.lines().filter(|line| !line.is_empty() && !line.trim_start().starts_with('#')) {
        match line.strip_prefix("    ") {
            None => sections.push((line, Vec::new())),
            Some(part) => sections.last_mut().expect("a section before its parts").1.push(part),
        }
    }
    sections
}

fn services() -> Vec<Served> {
    let served = |(head, lines): (&'static str, Vec<&'static str>)| {
        let [package, name, module] = head.strip_prefix("service ")?.split(' ').collect::<Vec<_>>()[..]
        else {
            panic!("no service: {head}");
        };
        Some(Served { package, name, module, methods: lines.into_iter().map(rpc).collect() })
    };
    sections().into_iter().filter_map(served).collect()
}

fn rpc(line: &'static str) -> Rpc {
    let parts = line.split_once(": ").and_then(|(types, rights)| Some((types.split_once(" -> ")?, rights)));
    let Some(((call, answer), rights)) = parts else { panic!("no method: {line}") };
    let (name, request) = match call.split_once(' ') {
        Some((name, request)) => (name, request.to_string()),
        None => (call, format!("{call}Request")),
    };
    let (form, response) = answer.split_once(' ').unwrap_or(("", answer));
    assert!(["", "stream", "single"].contains(&form), "{form} is no form of an answer: {line}");
    Rpc { name, request, form, response, rights }
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
fn service(served: &Served, encoded: bool) -> Service {
    let mut service = ServiceBuilder::default().package(served.package).name(served.name);
    for Rpc { name, request, form, response, .. } in &served.methods {
        let path = |message: &str| match message {
            "Empty" => "crate::proto::Empty".to_string(),
            "ReadRowsResponse" if encoded => "bytes::Bytes".to_string(),
            // Restated there.
            "ReadRowsResponse" => "crate::empty::read_rows::ReadRowsResponse".to_string(),
            // Of another package than the service's.
            other if other.contains("::") => format!("crate::proto::{other}"),
            message => format!("crate::proto::{}::{message}", served.module),
        };
        let is_single = encoded && *form == "single";
        let answer = match is_single {
            true => format!("crate::net::answer::Single<{}>", path(response)),
            false => path(response),
        };
        let method = Method::builder()
            .name(snake_case(name))
            .route_name(*name)
            .input_type(path(request))
            .output_type(answer)
            .codec_path(match *name {
                "ReadRows" if encoded => "crate::proto::codec::EncodedCodec",
                _ if is_single => "crate::net::answer::SingleCodec",
                _ => "crate::proto::codec::MessageCodec",
            });
        service = service.method(if *form == "stream" {
            method.server_streaming().build()
        } else {
            method.build()
        });
    }
    service.build()
}

fn out(name: &str) -> std::path::PathBuf {
    std::path::Path::new(&std::env::var_os("OUT_DIR").expect("cargo sets it")).join(name)
}

fn write(name: &str, text: &str) {
    std::fs::write(out(name), text).expect("a file in OUT_DIR");
}

/// Writes the paths of all methods (`proto::METHODS`), and each with its rights and limits
/// (`methods::METHODS`).
fn list_methods(services: &[Served]) {
    let (mut paths, mut methods) = (String::from("&["), String::from("&[\n"));
    for served in services {
        for rpc in &served.methods {
            let path = served.path(rpc);
            paths += &format!("{path:?}, ");
            methods += &format!("    {},\n", rpc.rights.replacen('(', &format!("({path:?}, "), 1));
        }
    }
    write("paths.rs", &(paths + "]"));
    write("methods.rs", &(methods + "]"));
}

/// The full name of a request's message.
fn full_name(module: &str, message: &str) -> String {
    let (module, message) = message.split_once("::").unwrap_or((module, message));
    let module = if message == "Empty" { "prost_types" } else { module };
    let found = MODULES.iter().find(|(name, _)| *name == module);
    let (_, package) = found.unwrap_or_else(|| panic!("the package of {module} is not known"));
    format!("{package}.{message}")
}

/// The type of a message, by its full name: of `google.bigtable.v2.Type.Array` it is `data::r#type::Array`.
fn type_of(message: &str) -> String {
    if message == "google.protobuf.Empty" {
        return "()".to_string();
    }
    let within = |package: &str| message.strip_prefix(package)?.strip_prefix('.');
    let found = MODULES.iter().find_map(|(module, package)| Some((module, within(package)?)));
    let (module, names) = found.unwrap_or_else(|| panic!("the module of {message} is not known"));
    let (outer, name) = names.rsplit_once('.').unwrap_or(("", names));
    let outer = outer.split('.').filter(|outer| !outer.is_empty());
    let outer: String = outer.map(|outer| format!("r#{}::", snake_case(outer))).collect();
    format!("{module}::{outer}{name}")
}

/// A line of a message: a field.
struct Field {
    number: u32,
    name: &'static str,
    fate: &'static str,
    kind: &'static str,
}

fn field_of(line: &'static str) -> Field {
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

/// The messages that requests are made of, by name.
fn messages() -> Vec<(String, Vec<Field>)> {
    let messages = sections().into_iter().filter(|(name, _)| !name.starts_with("service "));
    messages.map(|(name, lines)| (name.to_string(), lines.into_iter().map(field_of).collect())).collect()
}

/// Writes the messages with their types, which a test holds against each other.
fn list_types(messages: &[(String, Vec<Field>)]) {
    let mut out = String::from("&[\n");
    for (name, fields) in messages {
        let is_number = |kind: &str| ["int32", "int64", "bool", "enum"].contains(&kind);
        let fields: Vec<_> = fields.iter().map(|field| (field.number, is_number(field.kind))).collect();
        let of_type = type_of(name);
        out +=
            &format!("    Listed {{ name: {name:?}, fields: &{fields:?}, of_type: known::<{of_type}> }},\n");
    }
    write("types.rs", &(out + "]"));
}

/// Writes the table of the fields of all requests (`fields::MESSAGES`), and which message each method takes.
fn list_fields(services: &[Served], mut messages: Vec<(String, Vec<Field>)>) {
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
        found.unwrap_or_else(|| panic!("src/net/api.txt does not have {name}"))
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
    for served in services {
        for rpc in &served.methods {
            let at = place(&full_name(served.module, &rpc.request));
            out += &format!("    ({:?}, {at}),\n", served.path(rpc));
        }
    }
    write("fields.rs", &(out + "];\n"));
}

/// Stubs of the first service for one that encodes nothing itself, which the bench measures ours against.
fn plain_service(mut data: Served) {
    data.methods.retain(|rpc| EMPTY.contains(&rpc.name));
    let out = out("plain");
    std::fs::create_dir_all(&out).expect("a directory in OUT_DIR");
    Builder::new().build_client(false).out_dir(out).compile(&[service(&data, false)]);
}

fn main() {
    let listed = services();
    list_methods(&listed);
    let messages = messages();
    list_types(&messages);
    list_fields(&listed, messages);
    let services: Vec<Service> = listed.iter().map(|served| service(served, true)).collect();
    // Of the last one, our own, there is no client elsewhere.
    let (own, public) = services.split_last().expect("there are services");
    Builder::new().build_client(false).compile(public);
    Builder::new().compile(std::slice::from_ref(own));
    if std::env::var_os("CARGO_FEATURE_EMPTY").is_some() {
        plain_service(listed.into_iter().next().expect("there are services"));
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/net/api.txt");
}
