//! The server as a process: started, killed, started again, and what it takes of memory.

pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
pub(crate) use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;

use admin::bigtable_table_admin_client::BigtableTableAdminClient;
use data::bigtable_client::BigtableClient;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

pub(crate) const INSTANCE: &str = "projects/p/instances/i";
pub(crate) const TABLE: &str = "projects/p/instances/i/tables/t";
const SIGABRT: i32 = 6;
/// How long a server may take to answer after it was started.
const START_WAIT: Duration = Duration::from_secs(60);

/// A server and its place. Ended with this.
pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) dir: tempfile::TempDir,
    port: u16,
    http: u16,
    /// Files and connections that it may have open; as many as we, where nothing is said.
    descriptors: Option<u32>,
}

/// The binary beside ours.
pub(crate) fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("our own path");
    own.with_file_name("siltstone")
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

impl Server {
    /// A server with this configuration, which answers.
    pub(crate) async fn start(config: &str) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        Self::start_in(dir, config, None).await
    }

    /// A server in that directory, which has the files that the configuration names. `descriptors`: how many
    /// files and connections it may have open.
    pub(crate) async fn start_in(
        dir: tempfile::TempDir,
        config: &str,
        descriptors: Option<u32>,
    ) -> Result<Self, String> {
        std::fs::write(dir.path().join("siltstone.toml"), config).map_err(|e| e.to_string())?;
        let mut server = Self { child: None, dir, port: free_port(), http: free_port(), descriptors };
        server.start_again().await?;
        Ok(server)
    }

    /// Starts it where it was; returns when it answers.
    pub(crate) async fn start_again(&mut self) -> Result<(), String> {
        self.start_until(None).await
    }

    /// Starts the server again, to end itself at a visit of a kill point of the engine: `NAME:NTH`.
    pub(crate) async fn start_until(&mut self, kill: Option<&str>) -> Result<(), String> {
        let place = self.dir.path();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(place.join("log"));
        let log = log.map_err(|e| e.to_string())?;
        let (listen, http) = (format!("127.0.0.1:{}", self.port), format!("127.0.0.1:{}", self.http));
        let child = self
            .program()
            .arg("serve")
            .arg(place.join("data"))
            .args(["--config", &place.join("siltstone.toml").to_string_lossy()])
            .args(["--listen", &listen, "--http", &http])
            .envs(kill.map(|point| ("SILTSTONE_KILL", point)))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.map_err(|e| format!("{}: {e}", binary().display()))?);
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                return Err(format!("the server ended with {status}: {}", self.log()));
            }
            if began.elapsed() > START_WAIT {
                return Err(format!("the server does not answer: {}", self.log()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The command that runs the server.
    fn program(&self) -> Command {
        let Some(descriptors) = self.descriptors else { return Command::new(binary()) };
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]).arg(binary());
        limited
    }

    /// The output of the server.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Ends it, without a word.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Whether it is still there.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Whether it ended itself at a kill point: by an abort, and not over a panic.
    pub(crate) fn ended_at_a_point(&mut self) -> bool {
        let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) else { return false };
        status.signal() == Some(SIGABRT) && !self.log().contains("panicked")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The port of its page.
    pub(crate) fn http(&self) -> u16 {
        self.http
    }

    /// The number of its process; 0 where there is none.
    pub(crate) fn process(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// A channel that connects when it is used, again and again.
    pub(crate) fn channel(&self) -> Channel {
        channel(self.port)
    }

    pub(crate) fn data(&self) -> BigtableClient<Channel> {
        BigtableClient::new(self.channel())
    }

    pub(crate) fn admin(&self) -> BigtableTableAdminClient<Channel> {
        BigtableTableAdminClient::new(self.channel())
    }

    /// Makes the table.
    pub(crate) async fn create(&self, families: &[&str]) -> Result<(), String> {
        let families = families.iter().map(|name| ((*name).to_string(), admin::ColumnFamily::default()));
        let table = admin::Table {
            column_families: families.collect(),
            change_stream_config: Some(admin::ChangeStreamConfig::default()),
            ..Default::default()
        };
        let request = admin::CreateTableRequest {
            parent: INSTANCE.into(),
            table_id: "t".into(),
            table: Some(table),
            ..Default::default()
        };
        self.admin().create_table(request).await.map(drop).map_err(|e| format!("create the table: {e}"))
    }

    /// Bytes of memory that it has, now and at most.
    pub(crate) fn memory(&self) -> (u64, u64) {
        memory_of(self.process())
    }
}

/// Bytes of memory that a process has, now and at most.
pub(crate) fn memory_of(process: u32) -> (u64, u64) {
    (status_of(process, "VmRSS:"), status_of(process, "VmHWM:"))
}

/// Bytes that the line of that name in a process's status has.
pub(crate) fn status_of(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status"));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn channel(port: u16) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    endpoint.connect_timeout(Duration::from_secs(5)).connect_lazy()
}

/// A cell to be set.
pub(crate) fn set(family: &str, qualifier: &str, at: i64, value: Vec<u8>) -> data::Mutation {
    let set = data::mutation::SetCell {
        family_name: family.into(),
        column_qualifier: qualifier.to_string().into(),
        timestamp_micros: at,
        value: value.into(),
    };
    data::Mutation { mutation: Some(data::mutation::Mutation::SetCell(set)) }
}

/// Calls `seen` with each cell of a table: row, family, qualifier, value.
pub(crate) async fn scan(
    client: &mut BigtableClient<Channel>,
    request: data::ReadRowsRequest,
    mut seen: impl FnMut(&[u8], &str, &[u8], &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let failed = |e: tonic::Status| format!("a scan: {e}");
    let mut stream = client.read_rows(request).await.map_err(failed)?.into_inner();
    let (mut row, mut family, mut qualifier) = (bytes::Bytes::new(), String::new(), Vec::new());
    while let Some(message) = stream.message().await.map_err(failed)? {
        for chunk in message.chunks {
            if !chunk.row_key.is_empty() {
                row = chunk.row_key;
            }
            family = chunk.family_name.unwrap_or(family);
            qualifier = chunk.qualifier.unwrap_or(qualifier);
            seen(&row, &family, &qualifier, &chunk.value)?;
        }
    }
    Ok(())
}
