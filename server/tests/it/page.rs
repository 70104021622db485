//! The page in a browser, and what is deployed.

use crate::security::entry;
use crate::support::Fixture;

#[tokio::test]
async fn pages_of_others_cannot_read_ours_by_a_name_of_their_own() {
    let open = Fixture::with(|config| config.http_names = vec!["db.example".into()]).await;
    let at = open.server.page_at();
    for path in ["/", "/api/state", "/metrics", "/readyz", "/none"] {
        let answer =
            crate::support::get_from(at, "evil.example", path, "origin: http://evil.example\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("http-names"), "{path}: {answer}");
    }
    for host in ["localhost", "127.0.0.1:5", "[::1]", "db.example"] {
        let answer = crate::support::get_from(at, host, "/api/state", "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
    for path in ["/", "/api/state", "/healthz", "/none"] {
        let answer = crate::support::get(at, path).await;
        for header in [
            "content-security-policy: default-src 'none'; script-src 'sha256-",
            "x-frame-options: DENY",
            "x-content-type-options: nosniff",
        ] {
            assert!(answer.contains(header), "{path} has no {header}: {answer}");
        }
    }
    open.server.stop().await.unwrap();
    // A token is nothing that a page of others has.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    std::fs::write(&file, entry("eye", "'monitor'", "")).unwrap();
    let closed = Fixture::with(|config| config.tokens = Some(file.clone())).await;
    let answer = crate::support::get_from(closed.server.page_at(), "any.example", "/api/state", "").await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    closed.server.stop().await.unwrap();
}

#[test]
fn what_is_deployed_lets_in_nobody_by_itself() {
    let unit = include_str!("../../../deploy/siltstone.service");
    for line in [
        "UMask=0077",
        "StateDirectoryMode=0700",
        "PrivateDevices=true",
        "ProtectKernelTunables=true",
        "ProtectKernelModules=true",
        "ProtectKernelLogs=true",
        "CapabilityBoundingSet=",
        "SystemCallFilter=@system-service",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    ] {
        assert!(unit.lines().any(|of| of == line), "{line}");
    }
    assert!(unit.contains("\nMemoryMax="));
    let container = include_str!("../../../deploy/Containerfile");
    let run = container.lines().filter(|line| line.starts_with("ENTRYPOINT") || line.starts_with("CMD"));
    assert!(run.clone().count() == 2 && !run.into_iter().any(|line| line.contains("insecure")));
}
