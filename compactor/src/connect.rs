//! Connections to servers: which addresses are allowed, and how to connect.

use crate::address::{is_loopback, parts};
use crate::files::StaleFiles;
use crate::secret::{Calls, Secret};
use crate::tls::{Certificates, ClientTls, ServerTls};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tonic::transport::{Channel, Endpoint, Error};

/// Checks whether a server may listen at that address: it is of this machine alone, callers have to show who
/// they are, or the settings allow it.
pub(crate) fn may_listen(
    at: SocketAddr,
    tls: Option<&ServerTls>,
    secret: Option<&Path>,
    insecure: bool,
) -> bool {
    let asks = tls.is_some_and(|tls| tls.client_ca.is_some() || secret.is_some());
    at.ip().is_loopback() || insecure || asks
}

/// The certificates and the secret with which servers are reached.
pub(crate) struct Reach {
    tls: Option<Certificates>,
    secret: Option<Arc<Secret>>,
    /// Whether other machines may be used without proof of who they are.
    insecure: bool,
}

impl Reach {
    pub(crate) fn new(
        tls: Option<&ClientTls>,
        secret: Option<&Path>,
        insecure: bool,
    ) -> Result<Arc<Self>, String> {
        let tls = tls.map(Certificates::read).transpose()?;
        let secret = secret.map(Secret::read).transpose()?;
        Ok(Arc::new(Self { tls, secret, insecure }))
    }

    /// The version of the certificates: another number whenever they have changed.
    pub(crate) fn version(&self) -> u64 {
        self.tls.as_ref().map_or(0, Certificates::version)
    }

    /// Reads its files again when they are due.
    pub(crate) fn look_if_due(&self) {
        self.version();
        if let Some(secret) = &self.secret {
            secret.look_if_due();
        }
    }

    /// The files that cannot be used as they are. Does not read them.
    pub(crate) fn stale_files(&self) -> StaleFiles {
        StaleFiles {
            secret: self.secret.as_ref().is_some_and(|secret| secret.is_stale()),
            certificates: self.tls.as_ref().is_some_and(Certificates::is_stale),
        }
    }

    /// The endpoint of a server at that address; errors name it as `who`.
    pub(crate) fn endpoint(&self, who: &str, address: &str) -> Result<Endpoint, String> {
        let wrong = |e: Error| format!("{who}: {e}");
        if parts(address).is_none() {
            return Err(format!("{who}: {address} is no address such as host:port"));
        }
        if self.tls.is_none() && !self.insecure && !is_loopback(address) {
            return Err(format!(
                "{who}: it is not on this machine, so say who signs its certificate, or that it may be insecure"
            ));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(wrong)?;
        match &self.tls {
            Some(tls) => endpoint.tls_config(tls.config()).map_err(wrong),
            None => Ok(endpoint),
        }
    }

    /// The calls to that server.
    pub(crate) fn calls(&self, address: &str) -> Calls {
        Calls::new(self.secret.as_ref(), address, self.tls.is_some())
    }
}

/// A connection to one server, which is made anew when certificates have changed.
pub(crate) struct Line {
    reach: Arc<Reach>,
    address: String,
    /// Settings of the connection.
    set: fn(Endpoint) -> Endpoint,
    /// The version of the certificates that `endpoint` uses.
    version: u64,
    endpoint: Endpoint,
    channel: Option<Channel>,
    pub(crate) calls: Calls,
}

impl Line {
    pub(crate) fn new(
        reach: &Arc<Reach>,
        address: &str,
        set: fn(Endpoint) -> Endpoint,
    ) -> Result<Self, String> {
        Ok(Self {
            reach: reach.clone(),
            address: address.to_string(),
            set,
            version: reach.version(),
            endpoint: set(reach.endpoint(address, address)?),
            channel: None,
            calls: reach.calls(address),
        })
    }

    /// The connection. Inside a runtime.
    pub(crate) fn channel(&mut self) -> Channel {
        let version = self.reach.version();
        if version != self.version
            && let Ok(endpoint) = self.reach.endpoint(&self.address, &self.address)
        {
            (self.version, self.endpoint, self.channel) = (version, (self.set)(endpoint), None);
        }
        self.channel.get_or_insert_with(|| self.endpoint.connect_lazy()).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_reached_only_where_they_prove_who_they_are() {
        let plain = Reach::new(None, None, false).unwrap();
        assert!(plain.endpoint("it", "127.0.0.1:7400").is_ok());
        let refused = plain.endpoint("it", "10.0.0.1:7400").unwrap_err();
        assert!(refused.contains("not on this machine"), "{refused}");
        assert!(Reach::new(None, None, true).unwrap().endpoint("it", "10.0.0.1:7400").is_ok());
    }
}
