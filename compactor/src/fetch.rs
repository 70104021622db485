//! Blocks that a compaction server wrote, fetched from its memory (OFF-3).

use crate::directory::Server;
use crate::protocol::stubs::compactor_client::CompactorClient;
use crate::protocol::{MESSAGE_BYTES_MAX, PARTS_MAX, READ_BYTES_MAX, ReadPiece, ReadRequest};
use crate::secret::Calls;
use siltstone::offload::{CompactionSpec, RemoteCache, RemoteRead};
use siltstone::{Error, ErrorKind, TableId};
use std::ops::Range;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::Handle;
use tonic::transport::Channel;

/// The SSTables of one database in the memory of one server.
pub(crate) struct Memory {
    runtime: Handle,
    client: CompactorClient<Channel>,
    calls: Calls,
    database: u64,
    /// Whether the server compresses blocks on the way, as the SSTables are not compressed.
    compress: bool,
    /// The time after which a fetch is given up.
    patience: Duration,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Memory {
    pub(crate) fn new(runtime: &Handle, server: &Server, spec: &CompactionSpec, patience: Duration) -> Self {
        Self {
            runtime: runtime.clone(),
            calls: server.calls.clone(),
            client: CompactorClient::new(server.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            database: spec.database(),
            compress: !spec.compresses(),
            patience,
        }
    }
}

impl RemoteCache for Memory {
    fn read(&self, table: TableId, parts: Vec<Range<u64>>) -> Box<dyn RemoteRead> {
        let (into, coming) = mpsc::sync_channel(1);
        let (client, calls) = (self.client.clone(), self.calls.clone());
        let (patience, parts_len) = (self.patience, parts.len());
        let wanted =
            parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.end.saturating_sub(part.start)));
        let request = ReadRequest {
            database: self.database,
            table: table.file_name(),
            starts: parts.iter().map(|part| part.start).collect(),
            ends: parts.iter().map(|part| part.end).collect(),
            compress: self.compress,
        };
        if wanted > READ_BYTES_MAX || parts_len > PARTS_MAX {
            let _ =
                into.send(Err(format!("{wanted} bytes in {parts_len} parts are more than it gives at once")));
            return Box::new(Coming { coming, reading: None });
        }
        let reading = self.runtime.spawn(async move {
            // The limit is for the whole answer: a byte now and then does not extend it.
            let come = tokio::time::timeout(patience, fetch(client, calls, request, wanted)).await;
            let silent = |_| format!("it has not answered for {} s", patience.as_secs_f32());
            let _ = into.send(come.map_err(silent).and_then(|come| come));
        });
        Box::new(Coming { coming, reading: Some(reading.abort_handle()) })
    }
}

/// All that was asked for, or why not.
async fn fetch(
    mut client: CompactorClient<Channel>,
    calls: Calls,
    request: ReadRequest,
    wanted: u64,
) -> Result<Vec<u8>, String> {
    let told = |status: tonic::Status| status.message().to_string();
    let (request, asked) = calls.request(request);
    let answer = calls.believed(&asked, client.read(request).await);
    let mut pieces = answer.map_err(told)?.into_inner();
    let wanted = usize::try_from(wanted).map_err(|e| e.to_string())?;
    let mut all = Vec::with_capacity(wanted);
    while let Some(piece) = pieces.message().await.map_err(told)? {
        add(&mut all, &piece, wanted)?;
    }
    if all.len() < wanted {
        return Err(format!("it sent {} of the {wanted} bytes it was asked for", all.len()));
    }
    Ok(all)
}

/// Adds a piece to what came of so many bytes.
pub(crate) fn add(all: &mut Vec<u8>, piece: &ReadPiece, wanted: usize) -> Result<(), String> {
    let ReadPiece { bytes, raw } = piece;
    let len = if *raw > 0 { *raw as usize } else { bytes.len() };
    if len > wanted.saturating_sub(all.len()) {
        return Err(format!("it sent more than the {wanted} bytes it was asked for"));
    }
    if *raw == 0 {
        all.extend_from_slice(bytes);
        return Ok(());
    }
    let at = all.len();
    all.resize(at + len, 0);
    match lz4_flex::block::decompress_into(bytes, &mut all[at..]).ok() == Some(len) {
        true => Ok(()),
        false => Err("what it sent does not decompress to what it says".into()),
    }
}

/// Parts on their way. Dropped, nobody wants them any more.
struct Coming {
    coming: mpsc::Receiver<Result<Vec<u8>, String>>,
    reading: Option<tokio::task::AbortHandle>,
}

impl RemoteRead for Coming {
    fn advance(&mut self, wait: Duration) -> siltstone::Result<Option<Vec<u8>>> {
        let come = match wait.is_zero() {
            true => self.coming.try_recv().map_err(|e| e == mpsc::TryRecvError::Empty),
            false => self.coming.recv_timeout(wait).map_err(|e| e == mpsc::RecvTimeoutError::Timeout),
        };
        let failed =
            |why: &str| Err(Error::new(ErrorKind::Io, format!("the memory of a compaction server: {why}")));
        match come {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(why)) => failed(&why),
            Err(true) => Ok(None),
            Err(false) => failed("nothing comes any more"),
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}
