//! The command line's connection to a server: address, TLS, token, names of tables.

use crate::failure::{Failure, Outcome};
use clap::Args;
use siltstone_server::OperatorClient;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

/// How to reach a server.
#[derive(Args)]
pub(crate) struct Access {
    /// Authority for the server's certificate, in PEM [default: the system's authorities]
    #[arg(long, env = "SILTSTONE_CA")]
    ca: Option<PathBuf>,
    /// Our certificate, in PEM, for a server that asks for one
    #[arg(long, env = "SILTSTONE_CERTIFICATE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The key of our certificate, in PEM
    #[arg(long, env = "SILTSTONE_KEY", requires = "certificate")]
    key: Option<PathBuf>,
    /// Token for a server that asks for one; better given by the environment, as others see arguments
    #[arg(long, env = "SILTSTONE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Instance of tables that are named in short
    #[arg(long, env = "SILTSTONE_INSTANCE", default_value = "projects/local/instances/demo")]
    instance: String,
}

/// Sends the token with each call.
#[derive(Clone)]
pub(crate) struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// The connection for calls.
pub(crate) type Service = InterceptedService<Channel, Token>;

/// A server that answers.
pub(crate) struct Remote {
    runtime: Runtime,
    service: Service,
    instance: String,
}

impl Access {
    /// Connects to `HOST:PORT`, or `https://HOST:PORT` for TLS.
    pub(crate) fn connect(&self, server: &str) -> Outcome<Remote> {
        let with_tls = server.starts_with("https://");
        if (self.ca.is_some() || self.certificate.is_some()) && !with_tls {
            return Err(Failure::Usage("certificates are for a server named https://HOST:PORT".into()));
        }
        let address = if server.contains("://") { server.to_string() } else { format!("http://{server}") };
        let wrong = |e: &dyn std::fmt::Display| Failure::Usage(format!("server {server}: {e}"));
        let mut endpoint = Endpoint::from_shared(address).map_err(|e| wrong(&e))?;
        if with_tls {
            endpoint = endpoint.tls_config(self.tls()?).map_err(|e| wrong(&e))?;
        }
        let token = self.token.as_ref().map(|token| format!("Bearer {token}").parse());
        let token = token.transpose().map_err(|_| Failure::Usage("the token cannot be sent".into()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::Failed(format!("start the client: {e}")))?;
        let channel = runtime.block_on(endpoint.connect()).map_err(|e| {
            let cause = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            Failure::Failed(format!("connect to {server}: {cause}"))
        })?;
        let service = InterceptedService::new(channel, Token(token));
        Ok(Remote { runtime, service, instance: self.instance.clone() })
    }

    fn tls(&self) -> Outcome<ClientTlsConfig> {
        let read = |file: &Path| {
            std::fs::read(file).map_err(|e| Failure::Failed(format!("read {}: {e}", file.display())))
        };
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(read(ca)?)),
            None => tls.with_native_roots(),
        };
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        Ok(tls)
    }
}

impl Remote {
    /// The connection to it.
    pub(crate) fn service(&self) -> Service {
        self.service.clone()
    }

    /// Runs a call to its end.
    pub(crate) fn wait<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Outcome<T> {
        self.runtime.block_on(call).map_err(|e| failed(&e))
    }

    /// The full name of a table.
    pub(crate) fn table(&self, name: &str) -> String {
        match name.contains('/') {
            true => name.to_string(),
            false => format!("{}/tables/{name}", self.instance),
        }
    }

    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Our own service.
    pub(crate) fn operator(&self) -> OperatorClient<Service> {
        OperatorClient::new(self.service())
    }
}

/// The server's answer, in one line.
pub(crate) fn failed(status: &Status) -> Failure {
    let message = status.message();
    match message.is_empty() {
        true => Failure::Failed(format!("the server answers {:?}", status.code())),
        false => Failure::Failed(format!("the server answers {:?}: {message}", status.code())),
    }
}
