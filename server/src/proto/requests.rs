//! Requests that hold mutations, restated by field number: the crate's messages do not have
//! `Mutation.timestamp_origin`, so it would be gone once they are decoded.

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{Idempotency, RowFilter, mutation};

/// `google.bigtable.v2.Mutation`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mutation {
    #[prost(oneof = "mutation::Mutation", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) mutation: Option<mutation::Mutation>,
    /// Who made the timestamp: a number of an enumeration, which `crate::rows::mutate` knows.
    #[prost(int32, tag = "7")]
    pub(crate) timestamp_origin: i32,
}

/// `google.bigtable.v2.MutateRowRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MutateRowRequest {
    #[prost(string, tag = "1")]
    pub(crate) table_name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) row_key: Bytes,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mutations: Vec<Mutation>,
    #[prost(string, tag = "4")]
    pub(crate) app_profile_id: String,
    #[prost(string, tag = "6")]
    pub(crate) authorized_view_name: String,
    #[prost(message, optional, tag = "8")]
    pub(crate) idempotency: Option<Idempotency>,
}

/// `google.bigtable.v2.MutateRowsRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MutateRowsRequest {
    #[prost(string, tag = "1")]
    pub(crate) table_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) entries: Vec<mutate_rows_request::Entry>,
    #[prost(string, tag = "3")]
    pub(crate) app_profile_id: String,
    #[prost(string, tag = "5")]
    pub(crate) authorized_view_name: String,
}

pub(crate) mod mutate_rows_request {
    use super::{Bytes, Idempotency, Mutation};

    /// `google.bigtable.v2.MutateRowsRequest.Entry`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Entry {
        #[prost(bytes = "bytes", tag = "1")]
        pub(crate) row_key: Bytes,
        #[prost(message, repeated, tag = "2")]
        pub(crate) mutations: Vec<Mutation>,
        #[prost(message, optional, tag = "3")]
        pub(crate) idempotency: Option<Idempotency>,
    }
}

/// `google.bigtable.v2.CheckAndMutateRowRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CheckAndMutateRowRequest {
    #[prost(string, tag = "1")]
    pub(crate) table_name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) row_key: Bytes,
    #[prost(message, repeated, tag = "4")]
    pub(crate) true_mutations: Vec<Mutation>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) false_mutations: Vec<Mutation>,
    #[prost(message, optional, tag = "6")]
    pub(crate) predicate_filter: Option<RowFilter>,
    #[prost(string, tag = "7")]
    pub(crate) app_profile_id: String,
    #[prost(string, tag = "9")]
    pub(crate) authorized_view_name: String,
}
