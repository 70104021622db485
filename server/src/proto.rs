//! The messages and services of the public API. Messages come from crates; `build.rs` makes the services' stubs.

use crate::answer::Single;
use crate::codec::Checked;
use bytes::{BufMut, Bytes};
use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::iam::v1 as iam;
pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::longrunning;
pub(crate) use googleapis_tonic_google_bigtable_v2::google::rpc;

/// The messages of `google.bigtable.v2`: the crate's, but for those that are restated.
pub(crate) mod data {
    pub(crate) use crate::requests::{
        CheckAndMutateRowRequest, MutateRowRequest, MutateRowsRequest, Mutation, mutate_rows_request,
    };
    /// A mutation as streams of changes tell it.
    pub(crate) use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::Mutation as ToldMutation;
    pub(crate) use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::*;
}

/// The answers of ReadRows, encoded where their cells are read (`crate::chunks`), and their requests.
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
    type Decode = data::ReadRowsRequest;
    type Encoder = Encoded;
    type Decoder = Checked<<ProstCodec<(), data::ReadRowsRequest> as Codec>::Decoder>;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Self::Decoder {
        Checked(ProstCodec::<(), _>::default().decoder())
    }
}

/// Answers of one message, which may be large, and are kept for a while ([`Single`]); and their requests.
pub(crate) struct SingleCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SingleCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Sends what is kept.
pub(crate) struct SingleEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for SingleEncoder<T> {
    type Item = Single<T>;
    type Error = Status;

    fn encode(&mut self, single: Single<T>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let (message, _lease) = single.take()?;
        message.encode(into).map_err(|e| Status::internal(e.to_string()))
    }
}

impl<T: Message + 'static, U: Message + Default + 'static> Codec for SingleCodec<T, U> {
    type Encode = Single<T>;
    type Decode = U;
    type Encoder = SingleEncoder<T>;
    type Decoder = Checked<<ProstCodec<T, U> as Codec>::Decoder>;

    fn encoder(&mut self) -> SingleEncoder<T> {
        SingleEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        Checked(ProstCodec::<T, U>::default().decoder())
    }
}

/// `google.protobuf.Empty`.
pub(crate) type Empty = ();

/// Service `google.bigtable.v2.Bigtable`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod bigtable {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.v2.Bigtable.rs"));
}

/// Service `google.bigtable.admin.v2.BigtableTableAdmin`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod table_admin {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableTableAdmin.rs"));
}

/// Service `google.bigtable.admin.v2.BigtableInstanceAdmin`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod instance_admin {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableInstanceAdmin.rs"));
}

/// Service `google.longrunning.Operations`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod operations {
    include!(concat!(env!("OUT_DIR"), "/google.longrunning.Operations.rs"));
}

/// Service `siltstone.v1.Operator`, with a client for the command line.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub mod operator {
    include!(concat!(env!("OUT_DIR"), "/siltstone.v1.Operator.rs"));
}

/// The messages of that.
pub(crate) use crate::operator as operator_messages;

/// The paths of all methods that are served.
pub const METHODS: &[&str] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));
