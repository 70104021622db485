//! Addresses: host and port, whether they are of this machine, and which of them a manager may name.

use std::net::{IpAddr, Ipv6Addr};

/// Host and port of an address `host:port`; none of what else a URI may hold.
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
}
