//! Notes of stores that were attached: sequence numbers that no write has.

use crate::status::status;
use siltstone::{Batch, Db, Durability, Family, SeqNo};
use tonic::Status;

/// The prefix of notes of attached stores.
const ATTACHED: &[u8] = b"attached/";

/// Notes that a store was attached, so that streams of changes do not take the skipped sequence numbers for a
/// loss: under the last of them, the first. They are many if the other server's database is ahead.
pub(super) fn note(db: &Db, records: &Family, store: &Family) -> Result<(), Status> {
    let Some((first, last)) = store.attached_from().zip(store.attached_at()) else { return Ok(()) };
    let mut batch = Batch::new();
    batch.put(records, [ATTACHED, &last.0.to_be_bytes()].concat(), first.0.to_be_bytes());
    db.write_with(&batch, Durability::Sync).map_err(status)?;
    Ok(())
}

/// Whether all of these sequence numbers were taken as stores were attached.
pub(crate) fn were_attached(records: &Family, first: SeqNo, last: SeqNo) -> Result<bool, Status> {
    let mut at = last.0;
    while first.0 <= at {
        let key = [ATTACHED, &at.to_be_bytes()].concat();
        let Some(note) = records.get(key).map_err(status)? else { return Ok(false) };
        // An empty one is of a single number.
        let begin = <[u8; 8]>::try_from(&note[..]).map_or(at, u64::from_be_bytes).min(at);
        match begin.checked_sub(1) {
            Some(before) => at = before,
            None => break,
        }
    }
    Ok(true)
}
