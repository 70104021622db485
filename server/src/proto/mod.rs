//! The messages of the public API: those of crates, and what is restated here.
//!
//! - `requests` are messages with a field that the crates' do not have. [`data`] has them in the place of the
//!   crates'.
//! - `operator_messages` are those of our own service, for the command line.
//! - `descriptors` are those of protocol buffers, as far as they are looked at.
//! - `codec` puts messages on the wire, and takes them from it.

pub(crate) mod codec;
pub(crate) mod descriptors;
pub(crate) mod operator_messages;
mod requests;

pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::iam::v1 as iam;
pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::longrunning;
pub(crate) use googleapis_tonic_google_bigtable_v2::google::rpc;

/// The messages of `google.bigtable.v2`: the crate's, but for those that are restated.
pub(crate) mod data {
    pub(crate) use super::requests::{
        CheckAndMutateRowRequest, MutateRowRequest, MutateRowsRequest, Mutation, mutate_rows_request,
    };
    /// A mutation as streams of changes tell it.
    pub(crate) use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::Mutation as ToldMutation;
    pub(crate) use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::*;
}

/// `google.protobuf.Empty`.
pub(crate) type Empty = ();

/// The paths of all methods that are served.
pub const METHODS: &[&str] = include!(concat!(env!("OUT_DIR"), "/paths.rs"));
