//! The page, and the files that the server is told of: tokens, descriptors, paths.

use super::wire::{ADMIN, cluster, create_backup, get, mutate_row, read_rows, set_cell, table};
use super::{DEADLINE, Outcome, Scene, secret, tokens_but, write_private};
use std::fs::{File, FileTimes};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tonic::Code;

/// How long the server may take to see that a file has changed.
const SEEN_AFTER: Duration = Duration::from_secs(10);

/// Waits until it is so; whether it was, in time.
fn becomes(mut is_so: impl FnMut() -> Result<bool, String>) -> Result<bool, String> {
    let began = Instant::now();
    while !is_so()? {
        if began.elapsed() > SEEN_AFTER {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(true)
}

/// Whether the metrics say that a file could not be used as it is now.
fn is_stale(scene: &Scene) -> Result<bool, String> {
    let metrics = get(scene.http, "/metrics", "127.0.0.1", Some(&secret("root")), DEADLINE)?.1;
    let gauge = metrics.lines().find(|line| line.starts_with("siltstone_files_stale"));
    Ok(gauge.is_some_and(|gauge| !gauge.ends_with(" 0")))
}

/// A token is taken out of the file, whose time stays the same; then the file is broken, and then gone.
pub(super) fn revoked_token(scene: &Scene) -> Outcome {
    let failed = |e: std::io::Error| format!("tokens.toml: {e}");
    let (file, reader) = (scene.dir.join("tokens.toml"), scene.caller("reader"));
    reader.must("ReadRows", read_rows("t", &[b"row"], None))?;
    let before = std::fs::metadata(&file).and_then(|file| file.modified()).map_err(failed)?;
    write_private(&file, &tokens_but("reader"))?;
    // As tools leave it that keep times.
    let times = FileTimes::new().set_modified(before);
    File::options().write(true).open(&file).and_then(|file| file.set_times(times)).map_err(failed)?;
    let read = || reader.code("ReadRows", read_rows("t", &[b"row"], None));
    if !becomes(|| Ok(read() == Code::Unauthenticated))? {
        return Err(
            "a token that was taken out of the file is taken, as the file has the time that it had".into()
        );
    }
    write_private(&file, "[[token]\nbroken")?;
    if !becomes(|| is_stale(scene))? {
        return Err("the metrics do not say that the file of tokens is broken".into());
    }
    std::fs::remove_file(&file).map_err(failed)?;
    if !becomes(|| is_stale(scene))? {
        return Err("the metrics do not say that the file of tokens is gone".into());
    }
    Ok("a token that is taken out is refused, and a file that cannot be used is told".into())
}

/// The page by odd paths, without the right to it.
pub(super) fn page_paths(scene: &Scene) -> Outcome {
    let paths = [
        "/",
        "/metrics",
        "/api/state",
        "//metrics",
        "/metrics/",
        "/api/../metrics",
        "/%6detrics",
        "/./metrics",
        "/healthz/../metrics",
        "/healthz%2f..%2fmetrics",
        "/METRICS",
        "/metrics?x=/healthz",
        "/metrics;/healthz",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/state%00",
        "/\\..\\metrics",
    ];
    let long = format!("/{}", "a".repeat(60_000));
    let (until, mut calls) = (scene.until(), 0_u64);
    loop {
        for path in paths.iter().copied().chain([long.as_str()]) {
            for token in [None, Some(secret("reader")), Some("wrong".to_string())] {
                let (status, text) = get(scene.http, path, "127.0.0.1", token.as_deref(), DEADLINE)?;
                let begins = &path[..path.len().min(40)];
                if !(400..500).contains(&status) {
                    return Err(format!("{begins} with the token {token:?} is answered {status}"));
                }
                if text.contains("siltstone_") || text.contains("root:") {
                    return Err(format!("{begins} with the token {token:?} tells what it may not"));
                }
                calls += 1;
            }
        }
        if Instant::now() >= until {
            return Ok(format!("{calls} pages refused"));
        }
    }
}

/// A browser that was led to the page by somebody else's.
pub(super) fn foreign_host(scene: &Scene) -> Outcome {
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"] {
        let status = get(scene.http, "/api/state", host, None, DEADLINE)?.0;
        if status == 200 {
            return Err(format!("/api/state answers the host {host}"));
        }
    }
    for host in ["127.0.0.1".to_string(), format!("localhost:{}", scene.http)] {
        let status = get(scene.http, "/api/state", &host, None, DEADLINE)?.0;
        if status != 200 {
            return Err(format!("/api/state answers the host {host} with {status}"));
        }
    }
    let page = get(scene.http, "/", "127.0.0.1", None, DEADLINE)?.1.to_ascii_lowercase();
    let head = page.split("\r\n\r\n").next().unwrap_or_default();
    let wanted = ["content-security-policy", "x-frame-options", "x-content-type-options"];
    match wanted.into_iter().find(|name| !head.contains(&format!("\r\n{name}:"))) {
        Some(name) => Err(format!("the page is sent without {name}")),
        None => Ok("other hosts are refused, and the page says who may frame and run it".into()),
    }
}

/// Calls that fail in the server, and messages that do not decode.
pub(super) fn told_paths(scene: &Scene) -> Outcome {
    let root = scene.caller("root");
    for method in ["ReadRows", "MutateRow", "CheckAndMutateRow"] {
        match root.code(method, vec![0x0a, 0xff, 0xff]) {
            Code::InvalidArgument => {}
            code => return Err(format!("a {method} that does not decode ends with {code:?}")),
        }
    }
    // A file stands where backups should go.
    let backups = scene.dir.join("data-backups");
    let _ = std::fs::rename(&backups, scene.dir.join("aside"));
    std::fs::write(&backups, "in the way").map_err(|e| format!("{}: {e}", backups.display()))?;
    let message = create_backup(&cluster(), "b", &table("t"));
    match root.call(&format!("{ADMIN}CreateBackup"), message) {
        Ok(_) => Err("a backup is made where a file stands".into()),
        Err(status) if tells(status.message(), &scene.dir) => {
            Err(format!("an answer tells a path of the server: {}", status.message()))
        }
        Err(status) => Ok(format!("a backup that cannot be made ends with: {}", status.message())),
    }
}

/// Whether a text names a directory or something in it.
fn tells(text: &str, dir: &Path) -> bool {
    text.contains(&*dir.to_string_lossy())
}

/// More silent connections than the process may have files: SSTables go on being written.
pub(super) fn descriptors(scene: &Scene) -> Outcome {
    let connect = |_| TcpStream::connect(("127.0.0.1", scene.port)).ok();
    let mut silent: Vec<TcpStream> = (0..300).filter_map(connect).collect();
    for socket in &mut silent {
        let _ = socket.write_all(b"P");
    }
    let (root, until, mut random, mut writes) = (scene.caller("root"), scene.until(), scene.rng(), 0_u64);
    while writes < 80 || Instant::now() < until {
        let message = mutate_row("t", format!("row{writes}"), &[set_cell("q", random.bytes(200_000))]);
        let code = root.code("MutateRow", message);
        if !matches!(code, Code::Ok | Code::Unavailable) {
            return Err(format!(
                "write {writes} beside {} silent connections ends with {code:?}",
                silent.len()
            ));
        }
        writes += 1;
    }
    let count = silent.len();
    drop(silent);
    let later = || Ok(root.code("MutateRow", mutate_row("t", "later", &[set_cell("q", "v")])) == Code::Ok);
    match becomes(later)? {
        true => Ok(format!("{writes} writes beside {count} silent connections")),
        false => Err("when they have closed, writes still fail".into()),
    }
}
