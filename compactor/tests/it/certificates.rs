//! A compaction server that asks for certificates: who has none, one of somebody else, or one that is over
//! gets nothing done.

use crate::support::{World, builder, contents, eventually, merged, options, write};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use siltstone_compactor::{
    ClientTls, CompactorConfig, CompactorServer, Compactors, CompactorsOptions, ServerTls,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Files of certificates, and who signs them.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    ca: PathBuf,
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let ca = dir.join(format!("{name}.ca.pem"));
        std::fs::write(&ca, issuer.pem()).unwrap();
        Self { issuer, ca }
    }

    /// A certificate and its key; one that is over has been so since 1999.
    fn sign(&self, purpose: ExtendedKeyUsagePurpose, is_over: bool) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        params.extended_key_usages = vec![purpose.clone()];
        if is_over {
            params.not_before = rcgen::date_time_ymd(1998, 1, 1);
            params.not_after = rcgen::date_time_ymd(1999, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let of = |what: &str| self.ca.with_extension(format!("{purpose:?}.{is_over}.{what}"));
        std::fs::write(of("cert"), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(of("key"), key.serialize_pem()).unwrap();
        (of("cert"), of("key"))
    }
}

#[test]
fn only_who_has_a_certificate_of_the_right_authority_is_served() {
    let world = World::new();
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "theirs"));
    let (certificate, key) = ours.sign(ExtendedKeyUsagePurpose::ServerAuth, false);
    let config = CompactorConfig {
        tables: vec![world.dir.path().into()],
        tls: Some(ServerTls { certificate, key, client_ca: Some(ours.ca.clone()) }),
        ..CompactorConfig::default()
    };
    let server = CompactorServer::start(config, builder()).unwrap();
    let connect = |ca: &PathBuf, identity: Option<(PathBuf, PathBuf)>, is_plain: bool| {
        let (certificate, key) = identity.unzip();
        let tls = ClientTls { ca: ca.clone(), certificate, key, domain: Some("localhost".into()) };
        let options = CompactorsOptions { tls: (!is_plain).then_some(tls), ..options() };
        Arc::new(Compactors::connect_with([server.listens_at().to_string()], options).unwrap())
    };
    let client = |of: &Authority, is_over| Some(of.sign(ExtendedKeyUsagePurpose::ClientAuth, is_over));
    let strangers = [
        ("no TLS", connect(&ours.ca, None, true)),
        ("no certificate", connect(&ours.ca, None, false)),
        ("one of somebody else", connect(&ours.ca, client(&theirs, false), false)),
        ("one that is over", connect(&ours.ca, client(&ours, true), false)),
        ("a server that is not trusted", connect(&theirs.ca, client(&ours, false), false)),
    ];
    let good = connect(&ours.ca, client(&ours, false), false);
    eventually("it answers who may ask", || good.servers()[0].state.is_some());
    // The others have asked about as often.
    std::thread::sleep(Duration::from_secs(1));
    for (who, compactors) in &strangers {
        assert!(compactors.servers()[0].state.is_none(), "{who}: it was answered");
    }
    let (here, there) = (world.open("here", None), world.open_with("there", Some(good.clone())));
    for round in 0..2 {
        for db in [&here, &there] {
            write(db, round, 3_000);
            merged(db);
        }
    }
    assert_eq!(contents(&here), contents(&there));
    eventually("it has merged", || good.servers()[0].state.as_ref().is_some_and(|state| state.done > 0));
}
