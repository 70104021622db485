//! The features that a client announces, in the metadata `bigtable-features`.

use crate::proto::data::FeatureFlags;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message;
use tonic::metadata::MetadataMap;

/// Whether the client understands progress messages of a scan that finds nothing.
pub(crate) fn last_scanned_row(metadata: &MetadataMap) -> bool {
    let engine = GeneralPurpose::new(
        &base64::alphabet::URL_SAFE,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let flags = metadata.get("bigtable-features").and_then(|value| engine.decode(value.as_bytes()).ok());
    flags
        .and_then(|bytes| FeatureFlags::decode(&bytes[..]).ok())
        .is_some_and(|flags| flags.last_scanned_row_responses)
}

/// Whether it takes no row that comes in several messages: Go's requires that no row is open at the end of a
/// message. Its generated clients say `gl-go`; that for rows says only which library makes its connections.
pub(crate) fn whole_rows(metadata: &MetadataMap) -> bool {
    let says = |header: &str, word: &str| {
        let names = metadata.get(header).and_then(|value| value.to_str().ok());
        names.is_some_and(|names| names.split_whitespace().any(|name| name.starts_with(word)))
    };
    says("x-goog-api-client", "gl-go/") || says("user-agent", "grpc-go/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_with_and_without_padding_and_nonsense_is_none() {
        let told = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("bigtable-features", text.parse().unwrap());
            last_scanned_row(&metadata)
        };
        let flags = FeatureFlags { last_scanned_row_responses: true, ..Default::default() }.encode_to_vec();
        let text = base64::engine::general_purpose::URL_SAFE.encode(flags);
        assert!(told(&text) && told(text.trim_end_matches('=')));
        assert!(!told("!!") && !told("") && !last_scanned_row(&MetadataMap::new()));
    }

    #[test]
    fn clients_in_go_take_rows_whole_and_others_need_not() {
        let told = |header: &'static str, text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(header, text.parse().unwrap());
            whole_rows(&metadata)
        };
        let generated = "x-goog-api-client";
        assert!(told(generated, "gl-go/1.26.0 gccl/1.58.0") && told(generated, "gccl/1.58.0 gl-go/1.26.0"));
        assert!(told("user-agent", "cbt-go/v1.58.0 grpc-go/1.81.0"));
        assert!(!told(generated, "gl-java/21 gccl/2.80.0") && !told(generated, ""));
        assert!(!told("user-agent", "grpc-java-netty/1.71.0") && !whole_rows(&MetadataMap::new()));
    }
}
