//! A running server by the command line: tables made, filled, set, seen, and dumped again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server that is killed where a test fails.
pub(super) struct Serving {
    pub(super) child: Child,
    pub(super) at: String,
}

impl Serving {
    pub(super) fn start(dir: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .arg("serve")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let at = line.split(" at ").nth(1).unwrap().split(' ').next().unwrap().to_string();
        Self { child, at }
    }

    pub(super) fn stop(mut self) -> String {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the command; its output, or what it says of its failure.
pub(super) fn run(args: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_servers_table_is_made_filled_set_shown_and_dumped() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Serving::start(&data, &["--log-format", "json"]);
    let at = ["--server", &*server.at];
    let with = |args: &[&str]| run(&[args, &at[..]].concat());
    with(&["table", "create", "clicks", "--family", "day", "--family", "user"]).unwrap();
    assert_eq!(with(&["table", "list"]).unwrap(), "projects/local/instances/demo/tables/clicks\n");
    let lines = [
        r#"{"row":"a\\x00\\xff","family":"day","qualifier":"","timestamp":2000,"value":"two"}"#,
        r#"{"row":"a\\x00\\xff","family":"day","qualifier":"","timestamp":1000,"value":"\\\\ \n ü"}"#,
        r#"{"row":"b","family":"user","qualifier":"q","timestamp":1000,"value":""}"#,
    ];
    let (cells, back) = (dir.path().join("cells.jsonl"), dir.path().join("back.jsonl"));
    std::fs::write(&cells, lines.join("\n")).unwrap();
    let (from, to) = (cells.to_str().unwrap(), back.to_str().unwrap());
    assert!(with(&["load", "clicks", from]).unwrap().starts_with("loaded 3 cells"));
    assert!(with(&["dump", "clicks", to]).unwrap().starts_with("dumped 3 cells"));
    assert_eq!(
        std::fs::read_to_string(&back).unwrap(),
        format!("{}\n", lines.join("\n").replace("\\\\x00", "\\u0000"))
    );
    // A line that is none is named, and what stood before it is stored.
    std::fs::write(&cells, format!("{}\nnonsense", lines[2].replace("\"b\"", "\"c\""))).unwrap();
    let refused = with(&["load", "clicks", from]).unwrap_err();
    assert!(refused.contains("line 2") && refused.contains("1 cells"), "{refused}");
    assert_eq!(with(&["dump", "clicks", "-"]).unwrap().lines().count(), 4);

    with(&["table", "alter", "clicks", "--family", "day", "--set", "compression=none"]).unwrap();
    let refused = with(&["table", "alter", "clicks", "--set", "versions=3"]).unwrap_err();
    assert!(refused.contains("rules"), "{refused}");
    let refused = with(&["table", "alter", "clicks", "--set", "strategy=flat"]).unwrap_err();
    assert!(refused.contains("flat"), "{refused}");
    let rows = dir.path().join("rows.txt");
    std::fs::write(&rows, "n\n\n\\xff\n").unwrap();
    with(&[
        "table",
        "create",
        "cut",
        "--family",
        "f",
        "--split",
        "g",
        "--splits-file",
        rows.to_str().unwrap(),
    ])
    .unwrap();
    assert!(with(&["table", "show", "cut"]).unwrap().contains("4 regions"));
    let refused = with(&["table", "create", "cut2", "--family", "f", "--split", "\\xg"]).unwrap_err();
    assert!(refused.contains("--split \\xg"), "{refused}");
    let top = with(&["top", "--count", "1", "--every", "0.2"]).unwrap();
    assert!(top.contains("tables/clicks"), "{top}");
    let log = server.stop();
    assert!(log.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{log}");

    // What was set lasts, and stands above what the configuration says.
    let config = dir.path().join("siltstone.toml");
    let text = "[tables]\ncompression = \"zstd\"\n[[table]]\nname = \"*\"\nfamily = \"user\"\nsettings = { block_bytes = 8192 }\n";
    std::fs::write(&config, text).unwrap();
    let server = Serving::start(&data, &["--config", config.to_str().unwrap()]);
    let show = |at: &str| run(&["table", "show", "clicks", "--json", "--server", at]).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&show(&server.at)).unwrap();
    let option =
        |family: usize, name: &str| shown["families"][family]["options"][name].as_str().unwrap().to_string();
    assert_eq!([option(0, "compression"), option(0, "block_bytes")], ["none", "4096"]);
    assert_eq!([option(1, "compression"), option(1, "block_bytes")], ["zstd", "8192"]);
    let alter = ["table", "alter", "clicks", "--set", "compression=", "--server", &server.at];
    run(&alter).unwrap();
    assert!(!show(&server.at).contains("none"));
    server.stop();
}

#[test]
fn a_shared_database_is_served_from_any_directory_by_the_server_that_opened_it_last() {
    let dir = tempfile::tempdir().unwrap();
    let shared = dir.path().join("shared");
    let serve = |data: &str| Serving::start(&dir.path().join(data), &["--shared", shared.to_str().unwrap()]);
    let line = |row: u32| {
        let line = r#"{"row":"ROW","family":"f","qualifier":"","timestamp":1000,"value":"v"}"#;
        line.replace("ROW", &row.to_string()) + "\n"
    };
    let cells = dir.path().join("cells.jsonl");
    let load = |at: &str, row: u32| {
        std::fs::write(&cells, line(row)).unwrap();
        run(&["load", "t", cells.to_str().unwrap(), "--server", at])
    };
    let dump = |at: &str| run(&["dump", "t", "-", "--server", at]).unwrap();

    let first = serve("first");
    run(&["table", "create", "t", "--family", "f", "--server", &first.at]).unwrap();
    load(&first.at, 1).unwrap();
    first.stop();
    std::fs::remove_dir_all(dir.path().join("first")).unwrap();
    let second = serve("second");
    assert_eq!(dump(&second.at), line(1));
    load(&second.at, 2).unwrap();

    // Of two servers the later one has it.
    let third = serve("third");
    let refused = load(&second.at, 3).unwrap_err();
    assert!(refused.contains("another process writes the stream now"), "{refused}");
    assert_eq!(dump(&third.at), [line(1), line(2)].concat());
    load(&third.at, 4).unwrap();
    drop(second);
    third.stop();
}

#[test]
fn what_cannot_be_reached_or_is_not_there_is_said_in_one_line() {
    let nobody = run(&["table", "list", "--server", "127.0.0.1:1"]).unwrap_err();
    assert!(nobody.contains("connect to 127.0.0.1:1") && nobody.lines().count() == 1, "{nobody}");
    let dir = tempfile::tempdir().unwrap();
    let server = Serving::start(&dir.path().join("data"), &[]);
    let none = run(&["table", "show", "none", "--server", &server.at]).unwrap_err();
    assert!(none.contains("NotFound") && none.contains("tables/none"), "{none}");
    let none = run(&["dump", "none", "-", "--server", &server.at]).unwrap_err();
    assert!(none.contains("NotFound"), "{none}");
    server.stop();
}

#[test]
fn a_token_that_was_made_here_opens_what_it_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["token", "me", "--right", "admin,read,write", "--table", "projects/local/*"];
    let made = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(args).output().unwrap();
    let token = String::from_utf8(made.stderr).unwrap().trim().strip_prefix("token: ").unwrap().to_string();
    let file = dir.path().join("tokens.toml");
    std::fs::write(&file, made.stdout).unwrap();
    assert!(token.starts_with("st_"), "{token}");
    let server = Serving::start(&dir.path().join("data"), &["--tokens", file.to_str().unwrap()]);
    let refused = run(&["table", "list", "--server", &server.at]).unwrap_err();
    assert!(refused.contains("Unauthenticated"), "{refused}");
    let with = |args: &[&str]| run(&[args, &["--server", &server.at, "--token", &token]].concat());
    with(&["table", "create", "t", "--family", "f"]).unwrap();
    assert!(with(&["table", "list"]).unwrap().contains("tables/t"));
    let refused = with(&["top", "--count", "1"]).unwrap_err();
    assert!(refused.contains("monitor"), "{refused}");
    server.stop();
}
