//! Answers that are read and sent turn by turn, as there is memory and as their client takes them: scans, and
//! streams of changes.

use crate::net::answer::{SEND_WAIT, Sender};
use crate::net::auth::Right;
use crate::net::blocking::blocking;
use crate::net::budget::{self, Budget, Lease};
use crate::net::calls::Guard;
use crate::net::work::{Caller, Work};
use crate::proto::data::ReadChangeStreamResponse;
use crate::rows::changes::ChangeRead;
use crate::rows::chunks;
use crate::rows::read_rows::RowScan;
use crate::shared::Shared;
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::Status;
use tonic::metadata::MetadataMap;

/// Bytes that a turn of a scan takes, about.
pub(super) const TURN_BYTES: usize = chunks::ROOM_BYTES;
/// The interval at which a scan that found no memory tries again.
const ROOM_AGAIN: Duration = Duration::from_millis(5);
/// How often it is looked whether a stream of changes may still be read, while there are none.
const CHANGES_LOOK: Duration = Duration::from_secs(1);

/// Becomes true when nobody waits for the answer any more.
#[derive(Default)]
pub(super) struct Interest(pub(super) Arc<AtomicBool>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does a turn of a call's work where it may wait for the disk, and gives back what it was done with.
async fn turn<R: Send + 'static, T: Send + 'static>(
    call: &Guard,
    mut with: R,
    work: impl FnOnce(&mut R) -> Result<T, Status> + Send + 'static,
) -> Result<(R, T), Status> {
    let held = call.clone();
    blocking(move || {
        held.check()?;
        let done = work(&mut with)?;
        Ok((with, done))
    })
    .await
}

/// A scan under way, for whom, and where its messages go.
pub(super) struct Scan {
    pub(super) call: Guard,
    pub(super) caller: Caller,
    pub(super) memory: Arc<Budget>,
    pub(super) into: Sender<Bytes>,
}

impl Scan {
    /// Sends the scan's messages, turn by turn, until it ends or the client is gone. Of the first turn there
    /// may be messages, and memory for them.
    pub(super) async fn send_all(self, read: RowScan, first: (Vec<Bytes>, Option<Arc<Lease>>)) {
        let ended = self.send(read, first).await;
        let Self { call, caller, into, .. } = self;
        // What it read may wait for its client; it takes no more turns.
        drop((call, caller));
        into.end(ended).await;
    }

    async fn send(
        &self,
        mut read: RowScan,
        (mut next, mut lent): (Vec<Bytes>, Option<Arc<Lease>>),
    ) -> Result<(), Status> {
        loop {
            let lease = match lent.take() {
                Some(lease) => lease,
                // Before it reads: what waits for memory has none.
                None => self.room(&mut read).await?,
            };
            let mut bytes = TURN_BYTES;
            if next.is_empty() {
                (read, next) = self.turn(read).await?;
            }
            // A large row is read as far as there is memory for it.
            while next.is_empty() && !read.is_ended() {
                let wanted = read.wants()?.max(TURN_BYTES);
                let may_fit = bytes + wanted <= self.memory.most();
                let fits = match read.needs_whole_rows() {
                    false => may_fit && lease.grow(wanted),
                    true if !may_fit => return Err(chunks::too_large(self.memory.most())),
                    true => self.wait(|| lease.grow(wanted).then_some(true)).await?,
                };
                match fits {
                    true => {
                        bytes += wanted;
                        read.allow(wanted);
                    }
                    // Those who waited for it would each hold a part of a row.
                    false => read.cut(),
                }
                (read, next) = self.turn(read).await?;
            }
            lease.add((bytes_of(&next) + read.held()).saturating_sub(bytes));
            for message in std::mem::take(&mut next) {
                // A client that takes its time holds no blocks and no snapshot, but within a row.
                if self.into.is_full() {
                    read.rest();
                }
                if !self.into.send(message, lease.clone()).await {
                    return Err(gone());
                }
            }
            drop(lease);
            if read.is_ended() {
                return Ok(());
            }
        }
    }

    async fn turn(&self, read: RowScan) -> Result<(RowScan, Vec<Bytes>), Status> {
        let caller = self.caller.clone();
        turn(&self.call, read, move |read| read.turn(&mut Work::unbounded(caller))).await
    }

    /// Waits until there is memory for a turn, as long as its client waits.
    async fn room(&self, read: &mut RowScan) -> Result<Arc<Lease>, Status> {
        if let Some(lease) = self.memory.lend_new(TURN_BYTES) {
            return Ok(lease);
        }
        read.rest();
        self.wait(|| self.memory.lend(TURN_BYTES)).await
    }

    async fn wait<T>(&self, try_it: impl FnMut() -> Option<T>) -> Result<T, Status> {
        wait_for_memory(&self.call, &self.memory, || self.into.is_gone(), try_it).await
    }
}

fn gone() -> Status {
    Status::cancelled("the client is gone")
}

/// Bytes of some messages.
pub(super) fn bytes_of(messages: &[Bytes]) -> usize {
    messages.iter().map(Bytes::len).sum()
}

/// Waits until there is memory, for a minute at most, as long as the client waits.
async fn wait_for_memory<T>(
    call: &Guard,
    memory: &Arc<Budget>,
    is_gone: impl Fn() -> bool,
    mut try_it: impl FnMut() -> Option<T>,
) -> Result<T, Status> {
    let (began, _waits) = (tokio::time::Instant::now(), memory.wait());
    loop {
        if let Some(found) = try_it() {
            return Ok(found);
        }
        if began.elapsed() >= SEND_WAIT {
            return Err(budget::no_memory());
        }
        if is_gone() {
            return Err(gone());
        }
        call.check()?;
        tokio::time::sleep(ROOM_AGAIN).await;
    }
}

/// Sends changes as they come, until the stream ends, the client is gone or may not read any more, or the
/// server stops.
pub(super) async fn send_changes(
    shared: Arc<Shared>,
    call: Guard,
    metadata: MetadataMap,
    memory: Arc<Budget>,
    read: ChangeRead,
    into: Sender<ReadChangeStreamResponse>,
) {
    let ended = send_changes_of(&shared, &call, &metadata, &memory, read, &into).await;
    drop(call);
    into.end(ended).await;
}

async fn send_changes_of(
    shared: &Shared,
    call: &Guard,
    metadata: &MetadataMap,
    memory: &Arc<Budget>,
    mut read: ChangeRead,
    into: &Sender<ReadChangeStreamResponse>,
) -> Result<(), Status> {
    let mut news = shared.news.subscribe();
    while !read.is_ended() && !into.is_gone() {
        may_go_on(shared, metadata, &read)?;
        // What comes from now on is new.
        news.mark_unchanged();
        let found;
        (read, found) = turn(call, read, ChangeRead::turn).await?;
        let bytes: usize = found.messages.iter().map(Message::encoded_len).sum();
        if bytes > 0 {
            let part = bytes.min(TURN_BYTES);
            let lease = wait_for_memory(call, memory, || into.is_gone(), || memory.lend(part)).await?;
            lease.add(bytes - part);
            for message in found.messages {
                // One that reads nothing for long is given up, and goes on from its last token.
                if !into.send(message, lease.clone()).await {
                    return Err(gone());
                }
            }
        }
        if read.is_ended() {
            return Ok(());
        }
        if !found.waits {
            continue;
        }
        let due = tokio::time::Instant::now() + read.rests();
        loop {
            let look = due.min(tokio::time::Instant::now() + CHANGES_LOOK);
            tokio::select! {
                _ = news.changed() => break,
                () = into.gone() => return Ok(()),
                () = tokio::time::sleep_until(look) => {}
            }
            if look == due {
                break;
            }
            may_go_on(shared, metadata, &read)?;
        }
    }
    Ok(())
}

/// Whether a stream of changes may still be read: it may last longer than a token, or its table.
fn may_go_on(shared: &Shared, metadata: &MetadataMap, read: &ChangeRead) -> Result<(), Status> {
    if shared.stopping.load(Ordering::Relaxed) {
        return Err(Status::unavailable("the server is stopping"));
    }
    shared.who(metadata).and_then(|who| who.may(Right::Read, read.table_name()))?;
    read.check()
}
