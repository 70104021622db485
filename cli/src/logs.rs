//! Logs and traces of the server: structured logs on standard error, and with the feature `otel` spans of
//! calls for a collector of OpenTelemetry.

use clap::ValueEnum;
use std::io::{self, IsTerminal};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// Begins to log what passes the filter (`info`, or `warn,siltstone=debug`).
///
/// # Errors
/// A filter that is none, a collector's address that is none.
pub(crate) fn start(filter: &str, format: Format, collector: Option<&str>) -> Result<Logs, String> {
    let levels: EnvFilter = filter.parse().map_err(|e| format!("log: \"{filter}\": {e}"))?;
    let lines: Boxed = match format {
        Format::Text => {
            let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
            lines.with_filter(levels).boxed()
        }
        Format::Json => {
            fmt::layer().json().flatten_event(true).with_writer(io::stderr).with_filter(levels).boxed()
        }
    };
    let (spans, logs) = spans(collector)?;
    let layers: Vec<Boxed> = [Some(lines), spans].into_iter().flatten().collect();
    tracing_subscriber::registry().with(layers).try_init().map_err(|e| e.to_string())?;
    Ok(logs)
}

/// Keeps logging alive. Dropping it sends what was not sent yet.
pub(crate) struct Logs {
    #[cfg(feature = "otel")]
    provider: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

#[cfg(not(feature = "otel"))]
fn spans(collector: Option<&str>) -> Result<(Option<Boxed>, Logs), String> {
    match collector {
        Some(_) => Err("otlp: this program was built without the feature otel".into()),
        None => Ok((None, Logs {})),
    }
}

#[cfg(feature = "otel")]
fn spans(collector: Option<&str>) -> Result<(Option<Boxed>, Logs), String> {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_otlp::WithExportConfig;
    let Some(collector) = collector else { return Ok((None, Logs { provider: None })) };
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(collector).build();
    let exporter = exporter.map_err(|e| format!("otlp: {collector}: {e}"))?;
    let resource = opentelemetry_sdk::Resource::builder().with_service_name("siltstone").build();
    let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder()
        .with_resource(resource)
        .with_batch_exporter(exporter)
        .build();
    let ours = EnvFilter::new("off,siltstone_server=debug");
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("siltstone")).with_filter(ours);
    Ok((Some(layer.boxed()), Logs { provider: Some(provider) }))
}

#[cfg(feature = "otel")]
impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.provider.take().map(|provider| provider.shutdown()) {
            eprintln!("otlp: the last spans were not sent: {e}");
        }
    }
}
