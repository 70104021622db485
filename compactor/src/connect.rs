//! Connections to servers: which addresses are allowed, and how to connect.

use crate::files::StaleFiles;
use crate::secret::{Calls, Secret};
use crate::tls::{Certificates, ClientTls, ServerTls};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
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

/// Host and port of an address `host:port`; `None` for other URIs.
pub(crate) fn parts(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let numbers = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_host = match numbers {
        Some(numbers) => numbers.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_plain),
    };
    is_host.then_some((host, port))
}

/// Whether only this machine can be at the address.
#[must_use]
pub fn is_loopback(address: &str) -> bool {
    let Some((host, _)) = parts(address) else { return false };
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The addresses that a manager may name: `host` or `host:port`, where a host may begin or end with `*`. With
/// none, those of this machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed(Vec<String>);

impl Allowed {
    pub(crate) fn new(entries: &[String]) -> Self {
        Self(entries.to_vec())
    }

    pub(crate) fn has(&self, address: &str) -> bool {
        let Some((host, port)) = parts(address) else { return false };
        let fits = |pattern: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => host.ends_with(end),
            // `10.0.0.*` are addresses, and no name that begins so.
            (_, Some(start)) if start.chars().all(|c| c.is_ascii_digit() || c == '.') => {
                host.starts_with(start) && host.parse::<IpAddr>().is_ok()
            }
            (_, Some(start)) => host.starts_with(start),
            _ => host == pattern,
        };
        let is_of = |entry: &String| match entry.rsplit_once(':') {
            // The end of `[::1]` is no port.
            Some((pattern, own)) if !own.ends_with(']') => own.parse() == Ok(port) && fits(pattern),
            _ => fits(entry),
        };
        if self.0.is_empty() { is_loopback(address) } else { self.0.iter().any(is_of) }
    }
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
    fn addresses_are_hosts_and_ports_and_nothing_else() {
        for address in ["127.0.0.1:7400", "[::1]:1", "host-1.example.org:65535", "a_b:80"] {
            assert!(parts(address).is_some(), "{address}");
        }
        for wrong in
            ["", ":1", "host", "host:0", "host:65536", "u@host:1", "host/x:1", "a b:1", "[::1:1", "::1:7400x"]
        {
            assert!(parts(wrong).is_none(), "{wrong}");
        }
        for (address, expected) in [
            ("127.9.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("localhost:1", true),
            ("localhost.example.org:1", false),
            ("0.0.0.0:1", false),
            ("10.0.0.1:1", false),
        ] {
            assert_eq!(is_loopback(address), expected, "{address}");
        }
    }

    #[test]
    fn only_what_the_list_has_is_allowed_and_without_one_what_is_on_this_machine() {
        let of =
            |entries: &[&str]| Allowed::new(&entries.iter().map(ToString::to_string).collect::<Vec<_>>());
        let none = of(&[]);
        assert!(none.has("127.0.0.1:7400") && none.has("[::1]:7400") && !none.has("10.0.0.1:7400"));
        let some = of(&["10.0.0.*", "*.example.org:7400", "[::1]", "one:7400"]);
        for (address, expected) in [
            ("10.0.0.77:1", true),
            ("10.0.1.77:1", false),
            ("a.example.org:7400", true),
            ("a.example.org:7401", false),
            ("example.org:7400", false),
            ("[::1]:9", true),
            ("one:7400", true),
            ("one:7401", false),
            ("u@one:7400", false),
            ("127.0.0.1:7400", false),
        ] {
            assert_eq!(some.has(address), expected, "{address}");
        }
    }

    #[test]
    fn other_machines_are_reached_only_where_they_prove_who_they_are() {
        let plain = Reach::new(None, None, false).unwrap();
        assert!(plain.endpoint("it", "127.0.0.1:7400").is_ok());
        let refused = plain.endpoint("it", "10.0.0.1:7400").unwrap_err();
        assert!(refused.contains("not on this machine"), "{refused}");
        assert!(Reach::new(None, None, true).unwrap().endpoint("it", "10.0.0.1:7400").is_ok());
    }
}
