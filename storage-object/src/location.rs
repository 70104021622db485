//! A location as people write it, and the store behind it.

use crate::Settings;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// A call is tried again so often at most.
const TRIES: usize = 12;

/// A place in an object store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) store: Arc<dyn object_store::ObjectStore>,
    /// The prefix of all names.
    pub(crate) prefix: Path,
    /// The location as people write it, always in the same way.
    pub(crate) location: String,
    /// The location with the server that is asked, so that no two places are taken for one.
    pub(crate) identity: String,
    /// How long a call is tried again.
    pub(crate) patience: Duration,
}

fn invalid(location: &str, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("object store {location}: {why}"))
}

/// Finds what a location names.
pub(crate) fn find(location: &str, settings: &Settings) -> io::Result<Place> {
    let (scheme, rest) =
        location.split_once("://").ok_or_else(|| invalid(location, "expected s3://bucket/prefix"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err(invalid(location, "names no bucket"));
    }
    let prefix = Path::parse(path.trim_matches('/')).map_err(|e| invalid(location, e))?;
    let store = match scheme {
        "s3" => s3(authority, settings),
        "hdfs" => hdfs(authority, settings),
        _ => Err(format!("there is no \"{scheme}\" here, only s3 and hdfs")),
    };
    let (store, endpoint) = store.map_err(|e| invalid(location, e))?;
    let location = match prefix.as_ref() {
        "" => format!("{scheme}://{authority}"),
        prefix => format!("{scheme}://{authority}/{prefix}"),
    };
    let (identity, patience) = (format!("{location} at {endpoint}"), settings.patience);
    Ok(Place { store, prefix, location, identity, patience })
}

/// A store, and the server that is asked.
type Found = (Arc<dyn object_store::ObjectStore>, String);

fn s3(bucket: &str, settings: &Settings) -> Result<Found, String> {
    let mut builder = AmazonS3Builder::from_env();
    for (name, value) in &settings.variables {
        let key = AmazonS3ConfigKey::from_str(&name.to_lowercase()).map_err(|e| e.to_string())?;
        builder = builder.with_config(key, value);
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
    // Of a server on this machine nobody asks for TLS.
    if endpoint.starts_with("http://") {
        builder = builder.with_allow_http(true);
    }
    let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(20),
        max_backoff: Duration::from_secs(3),
        base: 2.0,
    };
    let store = builder
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), milliseconds(settings.timeout))
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout), milliseconds(CONNECT))
        .with_bucket_name(bucket)
        .with_retry(RetryConfig { backoff, max_retries: TRIES, retry_timeout: settings.patience })
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .build();
    Ok((Arc::new(store.map_err(|e| e.to_string())?), endpoint))
}

#[cfg(feature = "hdfs")]
fn hdfs(authority: &str, settings: &Settings) -> Result<Found, String> {
    let (url, variables) = (format!("hdfs://{authority}"), settings.variables.clone());
    let builder =
        hdfs_native_object_store::HdfsObjectStoreBuilder::new().with_url(url).with_config(variables);
    Ok((Arc::new(builder.build().map_err(|e| e.to_string())?), String::new()))
}

#[cfg(not(feature = "hdfs"))]
fn hdfs(_: &str, _: &Settings) -> Result<Found, String> {
    Err("this program was built without HDFS (feature `hdfs`)".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(location: &str) -> io::Result<Place> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        super::find(location, &Settings::default())
    }

    #[test]
    fn a_location_is_written_in_one_way() {
        for (said, is) in [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ] {
            assert_eq!(find(said).unwrap().location, is);
        }
    }

    #[test]
    fn what_is_no_location_is_refused_by_name() {
        for (said, why) in [
            ("bucket/a", "expected s3://"),
            ("s3:///a", "no bucket"),
            ("ftp://a/b", "no \"ftp\""),
            ("s3://bucket/a//b", "a//b"),
        ] {
            let error = find(said).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(why) && error.to_string().contains(said), "{error}");
        }
    }
}
