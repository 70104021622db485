//! `siltstone-s3-memory`: an S3 server in memory, until it is killed. It lets in who has the access key
//! `siltstone` with the secret `siltstone-secret`.

use clap::Parser;
use siltstone_s3_memory::{Server, Settings};
use std::process::ExitCode;
use std::time::Duration;

/// An S3 server in memory, on 127.0.0.1, until it is killed (access key siltstone, secret siltstone-secret).
#[derive(Parser)]
#[command(name = "siltstone-s3-memory")]
struct Args {
    /// The port; 0 for any that is free.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Milliseconds that every request takes.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// A bucket that is there from the start.
    #[arg(long, default_value = "bucket")]
    bucket: String,
}

fn main() -> ExitCode {
    let Args { port, latency_ms, bucket } = Args::parse();
    let latency = Duration::from_millis(latency_ms);
    match Server::start(Settings { port, latency, bucket, ..Settings::default() }) {
        Ok(server) => {
            println!("listening on {}", server.endpoint());
            loop {
                std::thread::park();
            }
        }
        Err(e) => {
            eprintln!("siltstone-s3-memory: {e}");
            ExitCode::FAILURE
        }
    }
}
