//! Work that may wait for the disk, on threads where it may.

use tonic::Status;

/// Runs work of the engine, which may wait for the disk, on a thread where it may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a call failed");
            Err(panicked())
        }
    }
}

/// The status of a call whose work panicked.
pub(crate) fn panicked() -> Status {
    Status::internal("the call failed; the server's log says why")
}
