//! Who may reach a server, and how one is reached.

use crate::tls::{ClientTls, ServerTls};
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Endpoint, Error};

/// Whether others may reach that address: it is of this machine alone, certificates are asked for, or it is to be so.
pub(crate) fn may_listen(at: SocketAddr, tls: Option<&ServerTls>, insecure: bool) -> bool {
    at.ip().is_loopback() || insecure || tls.is_some_and(|tls| tls.client_ca.is_some())
}

/// The connections that come. Answers do not wait for more to be sent with them.
pub(crate) fn connections(listener: TcpListener) -> impl Stream<Item = std::io::Result<TcpStream>> {
    TcpListenerStream::new(listener)
        .map(|connection| connection.inspect(|stream| _ = stream.set_nodelay(true)))
}

/// How a server at that address is reached; errors name it as `who`.
pub(crate) fn endpoint(who: &str, address: &str, tls: Option<&ClientTls>) -> Result<Endpoint, String> {
    let wrong = |e: Error| format!("{who}: {e}");
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(wrong)?;
    match tls {
        Some(tls) => endpoint.tls_config(tls.config()?).map_err(wrong),
        None => Ok(endpoint),
    }
}
