//! Certificates of clients: those of an authority that say that they are for clients.
//!
//! The verifier of rustls takes a certificate without a list of purposes for one of all purposes, as the
//! standard allows. An authority that gives certificates to servers too, or to people's mail, would so let
//! all of them in: the purpose must be there.

use std::cell::Cell;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use webpki::{ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage};

/// A verifier of certificates that hang on one of these.
///
/// # Errors
/// What is wrong with the roots.
pub(crate) fn verifier(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let chain = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(Arc::new(ForClients(chain.map_err(|e| e.to_string())?)))
}

/// A verifier that asks for the purpose, beside what another one asks for.
#[derive(Debug)]
struct ForClients(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ForClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        match is_for_clients(end_entity, now) {
            true => Ok(verified),
            false => Err(Error::InvalidCertificate(CertificateError::InvalidPurpose)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Notes whether the purpose is among those of a certificate.
#[derive(Default)]
struct Purposes {
    has_clients: Cell<bool>,
}

impl ExtendedKeyUsageValidator for Purposes {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        for purpose in purposes {
            if purpose?.to_decoded_oid() == KeyUsage::CLIENT_AUTH_REPR {
                self.has_clients.set(true);
            }
        }
        Ok(())
    }
}

/// Whether a certificate, of which all else was verified, says that it is for clients.
fn is_for_clients(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let purposes = Purposes::default();
    if let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) {
        // Asked for the certificate alone: without roots there is no chain, and this ends when its purposes
        // were looked at.
        let _ = certificate.verify_for_usage(&[], &[], &[], now, &purposes, None, None);
    }
    purposes.has_clients.get()
}
