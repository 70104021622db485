//! Messages that are stored unchanged, and keys, in records of JSON: as a text of their bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A message in a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredMessage<M>(pub(crate) M);

impl<M: Message> Serialize for StoredMessage<M> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(self.0.encode_to_vec()))
    }
}

impl<'de, M: Message + Default> Deserialize<'de> for StoredMessage<M> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)?;
        M::decode(&bytes[..]).map(Self).map_err(D::Error::custom)
    }
}

/// Lists of keys in a record: each a text of its bytes. Those that are lists of numbers are read, too.
pub(crate) mod stored_bytes {
    use super::*;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StoredBytes {
        Text(String),
        Numbers(Vec<u8>),
    }

    pub(crate) fn serialize<S: Serializer>(all: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|one| STANDARD.encode(one)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
        let bytes = |kept: StoredBytes| match kept {
            StoredBytes::Text(text) => STANDARD.decode(text).map_err(D::Error::custom),
            StoredBytes::Numbers(bytes) => Ok(bytes),
        };
        Vec::<StoredBytes>::deserialize(from)?.into_iter().map(bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::admin;

    #[test]
    fn a_message_that_is_kept_is_the_same_again_and_nonsense_is_refused() {
        let field = admin::r#type::r#struct::Field { field_name: "user".into(), ..Default::default() };
        let kept = StoredMessage(admin::r#type::Struct { fields: vec![field; 2], encoding: None });
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<StoredMessage<admin::r#type::Struct>>(&text).unwrap(), kept);
        for wrong in ["\"!\"", "\"CgA\"", "\"CgU=\"", "7"] {
            assert!(serde_json::from_str::<StoredMessage<admin::r#type::Struct>>(wrong).is_err(), "{wrong}");
        }
    }
}
