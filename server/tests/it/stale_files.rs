//! Unusable files of compaction's secrets and certificates are reported like those of the API.

use crate::security::told;
use crate::support::Fixture;
use rcgen::{CertificateParams, KeyPair};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use siltstone_server::Config;
use std::os::unix::fs::PermissionsExt;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_files_of_compaction_is_told_by_the_names_of_their_settings() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let own = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(Vec::new()).unwrap().self_signed(&own).unwrap().pem();
    let (secret, others) = ("the secret of these databases", "the secret of the manager");
    let files = [
        ("offload.secret-file", at("secret"), secret),
        ("manager.secret-file", at("others"), others),
        ("offload.ca", at("ca.pem"), signed.as_str()),
    ];
    for (_, file, content) in &files {
        std::fs::write(file, content).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let [offload, manager, ca] = files.each_ref().map(|(_, file, _)| file.display());
    let text = format!(
        "[offload]\nsecret-file = '{offload}'\nca = '{ca}'\n\
         [manager]\nlisten = '127.0.0.1:0'\nsecret-file = '{manager}'\n"
    );
    let settings = Config::parse(&text).unwrap();
    let set = |config: &mut Config| (config.offload, config.manager) = (settings.offload, settings.manager);
    let fixture = Fixture::with(set).await;
    told(&fixture, "/metrics", "siltstone_files_stale 0", true).await;
    for (setting, file, content) in &files {
        let line = format!("{setting}: not usable");
        // Gone, a pipe, which would keep who opens it waiting, and nonsense.
        for broken in ["gone", "pipe", "nonsense"] {
            std::fs::remove_file(file).unwrap();
            match broken {
                "pipe" => mknodat(CWD, file, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                "nonsense" => std::fs::write(file, "nonsense").unwrap(),
                _ => {}
            }
            told(&fixture, "/readyz", &line, true).await;
            told(&fixture, "/metrics", "siltstone_files_stale 1", true).await;
            if broken == "gone" {
                std::fs::write(file, content).unwrap();
                told(&fixture, "/readyz", "not usable", false).await;
            }
        }
        std::fs::write(file, content).unwrap();
        told(&fixture, "/readyz", "not usable", false).await;
        told(&fixture, "/metrics", "siltstone_files_stale 0", true).await;
    }
    for (setting, file, _) in &files[..2] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o640)).unwrap();
        told(&fixture, "/readyz", &format!("{setting}: the file has mode 640"), true).await;
    }
    fixture.server.stop().await.unwrap();
}
