//! The settings with which a database knows its compaction servers.

use crate::tls::ClientTls;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the database's side.
#[derive(Clone, Debug)]
pub struct CompactorsOptions {
    /// The fewest bytes of a compaction that goes to a server: sending one costs as much work as so many
    /// bytes do.
    pub bytes_min: u64,
    /// Whether larger compactions stay too where they cost less here (size, what the sketches predict, what
    /// is cached, load here and there). Without it every one of them goes as long as a server has room.
    pub by_cost: bool,
    /// How long a server may be silent before its compaction goes on elsewhere.
    pub patience: Duration,
    /// How long a compaction may make no progress (no step, no bytes of an SSTable, no other count of cells)
    /// before it goes on elsewhere, whatever the server says; all of it may take that long and a second for
    /// each MiB of its inputs. Time in which the server waits for the database does not count.
    pub stall: Duration,
    /// The address of a manager, which says what other servers there are, and which stores' compactions go to
    /// which; while it does not answer, its last answer holds. Without it, and where that server has no room,
    /// a compaction goes to the known server with the most room.
    pub manager: Option<String>,
    /// Certificates, where the servers and the manager speak TLS. They are read again when they change.
    /// Without, only servers on this machine are reached.
    pub tls: Option<ClientTls>,
    /// A file with a secret of 16 bytes or more that the servers and the manager have too: compactions go
    /// only to servers that show it. It is read again when it changes.
    pub secret_file: Option<PathBuf>,
    /// The servers that a manager may name: `host` or `host:port`, where a host may begin or end with `*`;
    /// with none, those on this machine. Others are not connected to.
    pub allow: Vec<String>,
    /// Whether servers on other machines are reached though nothing proves who answers there.
    pub insecure: bool,
}

impl Default for CompactorsOptions {
    fn default() -> Self {
        Self {
            bytes_min: 4 << 20,
            by_cost: true,
            patience: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            manager: None,
            tls: None,
            secret_file: None,
            allow: Vec::new(),
            insecure: false,
        }
    }
}
