//! Databases with SSTables in a real S3 server, which runs in the test's own process.

mod databases;
mod disk;
mod faults;
mod offloaded;
mod put_once;
mod server;
mod shared;
mod stores;
