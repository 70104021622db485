//! Compactions of SSTables run in another process, a *compaction server*, so that the database's own
//! processor and disk are left to those who read and write (OFF-1).
//!
//! ```text
//! database (siltstone::Db)                      compaction server
//!   offers each compaction of tables
//!   client: takes it or not, sends it   ->      server: admits it, runs it step by step (siltstone's own merge code)
//!   checks each step, makes it true     <-      writes the step's tables where both reach them, and says which
//! ```
//!
//! - `protocol`: the messages and the service's stubs; `codec` puts each under a checksum.
//! - `server`: the compaction server; `admission` says how many compactions it runs, `load` what its process
//!   uses.
//! - `capacity`: how many servers a workload needs.
//! - `table_transfer`: inputs and outputs of compactions over the connection, where no storage is shared.
//! - `manager`: knows which servers there are, and says by a `ring` which stores' compactions go to which.
//! - `client`: decides which compactions go, by its `options` and what `cost` says; `directory` chooses a
//!   server, `drive` follows a compaction for the database and takes it back if the server makes no progress
//!   (`watch`), and `fetch` fetches blocks that it wrote from the server's memory.
//!
//! - `secret` and `tls`: how both ends of a connection show who they are, by `files` that may change;
//!   `connect` says where it may lead, by what an `address` is, and `listen` which ones are taken.
//!
//! `testing` has the decoders, for fuzzing.
//!
//! A server has no durable state. Whatever fails, the compaction goes on on another server or in the
//! database, from the last step that the database installed (OFF-6).
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! use siltstone_compactor::{CompactorConfig, CompactorServer, Compactors};
//! use std::sync::Arc;
//!
//! // A compaction server that may work in this directory; usually another process, `siltstone compactor --tables DIR`.
//! let config = CompactorConfig { tables: vec![dir.path().into()], ..Default::default() };
//! let server = CompactorServer::start(config, siltstone::Db::builder())?;
//!
//! // A database that has its compactions run there: one line.
//! let compactors = Compactors::connect([server.listens_at().to_string()])?;
//! let db = siltstone::Db::builder().offload(Arc::new(compactors)).open(dir.path().join("db"))?;
//! db.put(b"river", b"silt")?;
//! # db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod admission;
mod capacity;
mod client;
mod codec;
mod connect;
mod cost;
mod directory;
mod drive;
mod fetch;
mod files;
mod listen;
mod load;
mod manager;
mod options;
mod protocol;
mod ring;
mod secret;
mod server;
mod table_transfer;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod tls;
mod watch;

pub use address::is_loopback;
pub use capacity::{Capacity, CapacityPlan, MeasuredRates, Waits};
pub use client::Compactors;
#[doc(hidden)]
pub use codec::{Checked, CheckedCodec, seal};
pub use directory::{ManagerSeen, ServerSeen};
pub use files::StaleFiles;
#[doc(hidden)]
pub use files::file_content;
pub use manager::{CompactionManager, ManagerConfig};
pub use options::CompactorsOptions;
pub use protocol::CompactorState;
pub use ring::Spread;
pub use server::{CompactorConfig, CompactorServer};
#[doc(hidden)]
pub use tls::server_config;
pub use tls::{ClientTls, ServerTls};
