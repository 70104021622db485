//! How messages are put on the wire and taken from it: as tonic does it, but that a request which is none is
//! its client's fault.

use super::data::ReadRowsRequest;
use bytes::{BufMut, Bytes};
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Messages of these types.
pub(crate) struct MessageCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for MessageCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for MessageCodec<T, U>
where
    T: prost::Message + Send + 'static,
    U: prost::Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = Checked<<ProstCodec<T, U> as Codec>::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Checked(ProstCodec::<T, U>::default().decoder())
    }
}

/// A decoder that says `INVALID_ARGUMENT` of what does not decode. (Its own says `INTERNAL`, on which clients
/// try again.)
pub(crate) struct Checked<D>(pub(crate) D);

impl<D: Decoder<Error = Status>> Decoder for Checked<D> {
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<D::Item>, Status> {
        self.0.decode(from).map_err(|wrong| match wrong.code() {
            Code::Internal => {
                Status::invalid_argument(format!("not a message of this call: {}", wrong.message()))
            }
            _ => wrong,
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// The answers of ReadRows, encoded where their cells are read (`crate::rows::chunks`), and their requests.
#[derive(Default)]
pub(crate) struct EncodedCodec;

/// Sends what is encoded already.
pub(crate) struct Encoded;

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(message.len());
        into.put_slice(&message);
        Ok(())
    }
}

impl Codec for EncodedCodec {
    type Encode = Bytes;
    type Decode = ReadRowsRequest;
    type Encoder = Encoded;
    type Decoder = Checked<<ProstCodec<(), ReadRowsRequest> as Codec>::Decoder>;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Self::Decoder {
        Checked(ProstCodec::<(), _>::default().decoder())
    }
}
