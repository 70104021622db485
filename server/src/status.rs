//! The engine's errors as statuses of calls.

use siltstone::{Error, ErrorKind};
use tonic::Status;

/// What a client is told. Kinds that are worth another try are `UNAVAILABLE` or `ABORTED`, which clients retry by themselves.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` wants it")]
pub(crate) fn status(error: Error) -> Status {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::Invalid => Status::invalid_argument(message),
        ErrorKind::OutOfRange => Status::unavailable(message),
        ErrorKind::NotFound => Status::not_found(message),
        ErrorKind::Conflict | ErrorKind::Canceled => Status::aborted(message),
        ErrorKind::Corruption => Status::data_loss(message),
        ErrorKind::DiskFull => Status::resource_exhausted(message),
        ErrorKind::ReadOnly | ErrorKind::MergeRefused => Status::failed_precondition(message),
        ErrorKind::Unsupported => Status::unimplemented(message),
        ErrorKind::ChangesLost => Status::out_of_range(message),
        ErrorKind::Busy => crate::calls::overloaded(tonic::Code::Unavailable, &message),
        ErrorKind::Closed => Status::unavailable(message),
        // Connections come and go, and files with them.
        ErrorKind::Io if error.is_for_descriptors() => {
            crate::calls::overloaded(tonic::Code::Unavailable, &message)
        }
        _ => Status::internal(message),
    }
}

/// The code of a status and its text, for one entry of a call.
pub(crate) fn entry_status(status: &Status) -> crate::proto::rpc::Status {
    crate::proto::rpc::Status {
        code: status.code() as i32,
        message: status.message().to_string(),
        details: Vec::new(),
    }
}
