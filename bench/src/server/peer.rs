//! The servers that are measured: processes of their own, started by the one that measures them and told by
//! their standard input what no client may ask.

use crate::compactor::GIVEN_MIN;
use crate::measure::{cpu_of, rss_bytes_of};
use clap::Args;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use siltstone::CacheFill;
use siltstone_server::{Config, OffloadConfig, Server, Size, WriteDurability};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tonic::transport::Channel;

pub(super) const PARENT: &str = "projects/bench/instances/bench";
pub(super) const TABLE: &str = "projects/bench/instances/bench/tables/bench";

pub(crate) type Client = data::bigtable_client::BigtableClient<Channel>;

/// A process that the bench starts for itself.
#[derive(Args)]
pub(crate) struct Served {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    empty: bool,
    /// Bytes for the cache and for writes.
    #[arg(long, default_value_t = 1 << 30)]
    memory: u64,
    #[arg(long, default_value_t = 128 << 20)]
    write_memory: u64,
    /// The blocks that compactions put into the cache.
    #[arg(long, default_value = "step", value_parser = crate::text::cache_fill)]
    cache_fill: CacheFill,
    /// Compaction servers, to which all compactions go that are not too small.
    #[arg(long)]
    compactors: Vec<String>,
}

impl Served {
    /// Serves until it is killed, or its standard input ends.
    pub(crate) fn run(self) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let begun = Instant::now();
        runtime.block_on(async {
            if self.empty {
                let listener = tokio::net::TcpListener::bind(any).await.map_err(|e| e.to_string())?;
                println!("{} - 0", listener.local_addr().map_err(|e| e.to_string())?);
                return siltstone_server::empty::serve(listener).await;
            }
            let config = Config {
                dir: self.dir,
                listen: any,
                http: any,
                durability: WriteDurability::Buffered,
                memory: Size(self.memory),
                write_memory: Size(self.write_memory),
                cache_fill: self.cache_fill,
                offload: OffloadConfig {
                    servers: self.compactors,
                    by_cost: false,
                    bytes_min: Size(GIVEN_MIN),
                    ..OffloadConfig::default()
                },
                ..Config::default()
            };
            let server = Server::start(config).await?;
            println!("{} {} {}", server.listens_at(), server.page_at(), begun.elapsed().as_millis());
            // A line is something to do for the table; its answer is how long that took.
            let (lines, mut asked) = tokio::sync::mpsc::channel(1);
            std::thread::spawn(move || {
                std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| lines.blocking_send(line))
            });
            while let Some(line) = asked.recv().await {
                let begun = Instant::now();
                match line.split_once(' ') {
                    Some(("split", row)) => server.split(TABLE, row.as_bytes()).await?,
                    Some(("compact", table)) => server.compact(&table_name(table)).await?,
                    None if line == "compact" => server.compact(TABLE).await?,
                    None if line == "flush" => server.flush().await?,
                    None if line == "settle" => server.settle().await?,
                    _ => return Err(format!("what is {line}?")),
                }
                println!("{}", begun.elapsed().as_micros());
            }
            server.stop().await
        })
    }
}

/// The whole name of a table.
pub(crate) fn table_name(id: &str) -> String {
    format!("{PARENT}/tables/{id}")
}

/// A child, on the second core as a rule.
pub(crate) struct Peer {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Address of the gRPC API.
    pub(super) at: String,
    /// Address of the page.
    pub(super) page: String,
    /// How long the start took.
    pub(super) started_in: Duration,
}

/// How a child is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) empty: bool,
    /// Bytes for the cache and for writes; 0 for what the bench gives otherwise.
    pub(crate) memory: u64,
    pub(crate) write_memory: u64,
    /// It shares the first core with the one that measures.
    pub(crate) on_first: bool,
    /// What else it is told.
    pub(crate) more: Vec<String>,
}

impl Peer {
    pub(crate) fn start(dir: &Path, given: &Given) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("taskset");
        command.args(["-c", if given.on_first { "0" } else { "1" }]);
        command.arg(program).arg("served").arg("--dir").arg(dir).args(&given.more);
        if given.empty {
            command.arg("--empty");
        }
        for (name, bytes) in [("--memory", given.memory), ("--write-memory", given.write_memory)] {
            if bytes > 0 {
                command.arg(name).arg(bytes.to_string());
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("taskset: {e}"))?;
        let (asks, answers) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let mut answers = answers.ok_or("no output")?;
        let mut line = String::new();
        answers.read_line(&mut line).map_err(|e| e.to_string())?;
        let mut parts = line.split_whitespace();
        let (Some(at), Some(page), Some(ms)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("the server did not start".into());
        };
        let (at, page) = (format!("http://{at}"), page.to_string());
        let started_in = Duration::from_millis(ms.parse().map_err(|_| "no time of the start")?);
        Ok(Self { child, asks, answers, at, page, started_in })
    }

    /// Starts the in-memory emulator, on the second core as well.
    pub(super) fn emulator(program: &Path) -> Result<Self, String> {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let port = free.map_err(|e| e.to_string())?.port();
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]).arg(program).args(["-host", "127.0.0.1", "-port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("taskset: {e}"))?;
        let mut answers = child.stdout.take().map(BufReader::new).ok_or("no output")?;
        // It says where it listens.
        answers.read_line(&mut String::new()).map_err(|e| e.to_string())?;
        let at = format!("http://127.0.0.1:{port}");
        Ok(Self { child, asks: None, answers, at, page: String::new(), started_in: Duration::ZERO })
    }

    /// CPU time of all its threads.
    pub(super) fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }

    /// Memory that it has in use.
    pub(super) fn rss_bytes(&self) -> u64 {
        rss_bytes_of(&self.child.id().to_string())
    }

    /// Has it do something, and tells how long that took.
    pub(crate) fn ask(&mut self, line: &str) -> Result<Duration, String> {
        let asks = self.asks.as_mut().ok_or("the server has been stopped")?;
        writeln!(asks, "{line}").map_err(|e| e.to_string())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(|e| e.to_string())?;
        answer.trim().parse().map(Duration::from_micros).map_err(|_| format!("{line}: no answer"))
    }

    /// Stops it as a signal would, and waits for its end.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        drop(self.asks.take());
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the server: {status}")) }
    }

    async fn channel(&self) -> Result<Channel, String> {
        let endpoint = Channel::from_shared(self.at.clone()).map_err(|e| e.to_string())?;
        let endpoint = endpoint.initial_stream_window_size(1 << 20).initial_connection_window_size(4 << 20);
        endpoint.connect().await.map_err(|e| e.to_string())
    }

    pub(crate) async fn client(&self) -> Result<Client, String> {
        self.channel().await.map(Client::new)
    }

    /// Creates a table with a family `f`, cut at these rows.
    pub(crate) async fn create_table(
        &self,
        id: &str,
        cuts: impl Iterator<Item = String>,
    ) -> Result<(), String> {
        let client = admin::bigtable_table_admin_client::BigtableTableAdminClient::new(self.channel().await?);
        let families = [("f".to_string(), admin::ColumnFamily::default())];
        let table = admin::Table { column_families: families.into(), ..Default::default() };
        let request = admin::CreateTableRequest {
            parent: PARENT.into(),
            table_id: id.into(),
            table: Some(table),
            initial_splits: cuts.map(|row| admin::create_table_request::Split { key: row.into() }).collect(),
        };
        let mut client = client.max_encoding_message_size(64 << 20).max_decoding_message_size(64 << 20);
        client.create_table(request).await.map(drop).map_err(|e| e.to_string())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
