//! The engine's errors as statuses of calls.
//!
//! Errors for clients do not show where files of the server lie: of a path only the last part remains, which
//! names the file; the log has the whole.

use crate::proto::rpc;
use prost::Message;
use siltstone::{Error, ErrorKind};
use std::path::Path;
use std::time::Duration;
use tonic::{Code, Status};

/// After how long a client that was turned away may try again.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// The status of an error for clients. Kinds that are worth another try are `UNAVAILABLE` or `ABORTED`, which
/// clients retry by themselves.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` wants it")]
pub(crate) fn status(error: Error) -> Status {
    let message = told(&error.to_string());
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
        ErrorKind::Busy => overloaded(Code::Unavailable, &message),
        // Of a write the outcome may be unknown: only who may repeat it does.
        ErrorKind::Closed | ErrorKind::Poisoned => Status::unavailable(message),
        // Connections come and go, and files with them.
        ErrorKind::Io if error.is_for_descriptors() => overloaded(Code::Unavailable, &message),
        _ => Status::internal(message),
    }
}

/// The text of an error for clients: without paths. The log has the whole if it says more.
pub(crate) fn told(text: &str) -> String {
    let told = without_paths(text);
    if told != text {
        tracing::warn!(error = text, "an error was told to a client without its paths");
    }
    told
}

/// A text in which of each path only the last part is left. Spaces stay as they are.
pub(crate) fn without_paths(text: &str) -> String {
    let word = |word: &str| {
        let plain = word.trim_start_matches(['(', '[', '"', '\'', '`']);
        let (before, path) = word.split_at(word.len() - plain.len());
        match path.trim_end_matches('/').rsplit_once('/') {
            Some((_, last)) => format!("{before}{last}"),
            None => word.to_string(),
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// An error of a file of the server's, at which a call failed.
pub(crate) fn file_failed(what: &str, path: &Path, error: &std::io::Error) -> Status {
    tracing::error!(path = %path.display(), %error, "{what}");
    Status::internal(format!("{what}: {error}"))
}

/// The code of a status and its text, for one entry of a call.
pub(crate) fn entry_status(status: &Status) -> rpc::Status {
    rpc::Status { code: status.code() as i32, message: status.message().to_string(), details: Vec::new() }
}

/// Turns a client away, and tells it when to come again.
pub(crate) fn overloaded(code: Code, why: &str) -> Status {
    /// `google.rpc.RetryInfo`.
    #[derive(Clone, PartialEq, Message)]
    struct RetryInfo {
        #[prost(message, optional, tag = "1")]
        retry_delay: Option<prost_types::Duration>,
    }
    let nanos = i32::try_from(TRY_AGAIN.as_nanos()).unwrap_or(i32::MAX);
    let info = RetryInfo { retry_delay: Some(prost_types::Duration { seconds: 0, nanos }) };
    let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_string();
    let details = vec![prost_types::Any { type_url, value: info.encode_to_vec() }];
    let status = rpc::Status { code: code as i32, message: why.to_string(), details };
    Status::with_details(code, why, status.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_paths_the_name_of_the_file_is_left() {
        for (text, expected) in [
            (
                "checksum is 1, expected 2 (/var/lib/db/x.table at byte 5)",
                "checksum is 1, expected 2 (x.table at byte 5)",
            ),
            ("write (data/LOG): No space left on device", "write (LOG): No space left on device"),
            ("/srv/data/ is in use: /srv/data/LOCK is locked", "data is in use: LOCK is locked"),
            ("`s3://bucket/tables/7.table` is missing", "`7.table` is missing"),
            ("no family \"f\" in the table", "no family \"f\" in the table"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(without_paths(text), expected);
        }
    }

    #[test]
    fn statuses_of_the_engines_errors_have_no_paths() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("data");
        let open = siltstone::Db::open(&place).unwrap();
        let busy = siltstone::Db::open(&place).unwrap_err();
        assert!(busy.to_string().contains(dir.path().to_str().unwrap()));
        let told = status(busy);
        assert!(!told.message().contains('/') && told.message().contains("data"), "{told}");
        drop(open);
    }
}
