//! Messages with a checksum, so that bytes that a network changed are never used, and never become part of an
//! SSTable.
//!
//! The checksum stands behind the message as a field of its own, number 100, so that a decoder that does not
//! know it still reads all other fields:
//!
//! ```text
//! fields of the message | A5 06 (field 100, four bytes) | CRC-32C of the fields, little-endian
//! ```

use prost::Message;
use prost::bytes::{Buf, BufMut};
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Field 100, of four bytes.
const KEY: [u8; 2] = [0xa5, 0x06];
const SEAL_BYTES: usize = KEY.len() + size_of::<u32>();

/// Puts the checksum behind an encoded message.
pub fn seal(message: &mut Vec<u8>) {
    let sum = crc32c::crc32c(message);
    message.extend_from_slice(&KEY);
    message.extend_from_slice(&sum.to_le_bytes());
}

/// The message without its checksum, if that fits.
pub(crate) fn unsealed(message: &[u8]) -> Result<&[u8], Status> {
    let (fields, rest) =
        message.split_last_chunk::<SEAL_BYTES>().filter(|(_, rest)| rest.starts_with(&KEY)).ok_or_else(
            || Status::invalid_argument("a message without a checksum: is it of an older version?"),
        )?;
    if rest.ends_with(&crc32c::crc32c(fields).to_le_bytes()) {
        Ok(fields)
    } else {
        Err(Status::data_loss("a message does not fit its checksum: it was changed on its way"))
    }
}

/// Encodes messages with a checksum, and refuses those whose checksum is wrong.
#[derive(Debug)]
pub struct CheckedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CheckedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// One direction of it.
#[derive(Debug)]
pub struct Checked<T>(PhantomData<T>);

impl<T: Message + 'static, U: Message + Default + 'static> Codec for CheckedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = Checked<T>;
    type Decoder = Checked<U>;

    fn encoder(&mut self) -> Checked<T> {
        Checked(PhantomData)
    }

    fn decoder(&mut self) -> Checked<U> {
        Checked(PhantomData)
    }
}

impl<T: Message> Encoder for Checked<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let mut message = Vec::with_capacity(item.encoded_len() + SEAL_BYTES);
        item.encode(&mut message).map_err(|e| Status::internal(e.to_string()))?;
        seal(&mut message);
        into.put_slice(&message);
        Ok(())
    }
}

impl<U: Message + Default> Decoder for Checked<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let mut message = from.copy_to_bytes(from.remaining());
        let len = unsealed(&message)?.len();
        message.truncate(len);
        U::decode(message).map(Some).map_err(|e| Status::internal(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ServerMessage, Store, telling};

    #[test]
    fn a_message_is_read_only_as_it_was_written() {
        let bytes = vec![7; 100].into();
        let message =
            telling(ServerMessage::Store(Store { table: "a".into(), bytes, sync: true })).encode_to_vec();
        let mut sent = message.clone();
        seal(&mut sent);
        assert_eq!(unsealed(&sent).unwrap(), message);
        // Without knowing the checksum it reads the same.
        let read = crate::protocol::FromCompactor::decode(&sent[..]).unwrap();
        assert_eq!(read.encode_to_vec(), message);
        for bit in 0..sent.len() * 8 {
            sent[bit / 8] ^= 1 << (bit % 8);
            assert!(unsealed(&sent).is_err(), "bit {bit}");
            sent[bit / 8] ^= 1 << (bit % 8);
        }
        for len in 0..sent.len() {
            assert!(unsealed(&sent[..len]).is_err(), "cut to {len} bytes");
        }
        let old = unsealed(&message).unwrap_err();
        assert!(old.message().contains("without a checksum"), "{old}");
    }
}
