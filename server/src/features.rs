//! What a client says it understands, in the metadata `bigtable-features`.

use crate::proto::data::FeatureFlags;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message;
use tonic::metadata::MetadataMap;

/// Whether it understands to be told how far a scan is that finds nothing.
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
}
