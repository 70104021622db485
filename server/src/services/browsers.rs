//! Protection from foreign pages that read this server's page in somebody's browser.
//!
//! Where neither tokens nor TLS protect the page, a page elsewhere may name this server's address by a name
//! of its own, and so be let to read what is answered (DNS rebinding). Such a name stands in the request, and
//! is refused. Beside it every answer says that only the page's own script runs in it, and that it is framed
//! by nobody.

use crate::config::Config;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

/// The page, with its script and style.
pub(crate) const PAGE: &str = include_str!("page.html");

/// The error for a request with another host name.
const REFUSED: &str = "this name is not the server's: without tokens and TLS it answers to localhost, to its own address, \
                       and to the names in the setting http-names\n";

/// The policy for browsers: run the page's script, which asks this server, and nothing else.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = STANDARD.encode(Sha256::digest(script(PAGE)));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The script of a page that has one.
fn script(page: &str) -> &str {
    let behind = page.split_once("<script>").map_or("", |(_, behind)| behind);
    behind.split_once("</script>").map_or("", |(script, _)| script)
}

/// Answers to who asks by a name of ours, and says with each answer what a browser may do with it.
pub(crate) async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let config = &shared.config;
    let is_protected = config.tokens.is_some() || config.tls.is_some();
    let mut answer = match is_protected || asks_by_our_name(config, &request) {
        true => next.run(request).await,
        false => (StatusCode::MISDIRECTED_REQUEST, REFUSED).into_response(),
    };
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Whether a request names us, or nobody, which no browser does.
fn asks_by_our_name(config: &Config, request: &Request) -> bool {
    let by_address = request.uri().authority().cloned();
    let by_header = request.headers().get(header::HOST).map(|host| Authority::try_from(host.as_bytes()));
    let named = by_address.map(Ok).into_iter().chain(by_header);
    named.into_iter().all(|name| name.is_ok_and(|name| is_ours(config, name.host())))
}

/// Whether a host, as a request names it, is this server. Where it listens at all addresses of the machine,
/// all are its own: who asks by an address asks no server of names.
fn is_ours(config: &Config, host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    match host.parse::<IpAddr>() {
        Ok(ip) => {
            let (ip, own) = (ip.to_canonical(), config.http.ip().to_canonical());
            ip.is_loopback() || ip == own || own.is_unspecified()
        }
        Err(_) => {
            let mut names = config.http_names.iter().map(String::as_str).chain(["localhost"]);
            names.any(|name| name.eq_ignore_ascii_case(host))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn only_names_of_ours_are_answered() {
        let config = |http: &str| Config {
            http: http.parse().unwrap(),
            http_names: vec!["db.example".into()],
            ..Config::default()
        };
        let asks = |http: &str, host: &str| {
            let request = Request::builder().uri("/api/state").header("host", host).body(Body::empty());
            asks_by_our_name(&config(http), &request.unwrap())
        };
        for host in
            ["localhost", "LocalHost:8087", "localhost.", "127.0.0.1:8087", "[::1]:8087", "db.example:1"]
        {
            assert!(asks("127.0.0.1:8087", host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.5:8087", "127.0.0.1.evil.example", "", "a b"]
        {
            assert!(!asks("127.0.0.1:8087", host), "{host}");
        }
        assert!(asks("10.0.0.5:8087", "10.0.0.5:8087") && !asks("10.0.0.5:8087", "10.0.0.6:8087"));
        assert!(asks("0.0.0.0:8087", "10.0.0.6:8087") && !asks("[::]:8087", "evil.example"));
        let unnamed = Request::builder().uri("/").body(Body::empty()).unwrap();
        assert!(asks_by_our_name(&config("127.0.0.1:8087"), &unnamed));
        let other = Request::builder().uri("http://evil.example/").header("host", "localhost");
        assert!(!asks_by_our_name(&config("127.0.0.1:8087"), &other.body(Body::empty()).unwrap()));
    }

    #[test]
    fn the_policy_lets_the_script_of_the_page_run_and_no_other() {
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert!(script(PAGE).contains("fetch('api/state')"));
        let hash = STANDARD.encode(Sha256::digest(script(PAGE)));
        assert!(POLICY.to_str().unwrap().contains(&format!("script-src 'sha256-{hash}'")));
    }
}
