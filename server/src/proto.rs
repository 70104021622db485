//! The messages and services of the public API. Messages come from crates; `build.rs` makes the services' stubs.

pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
pub(crate) use googleapis_tonic_google_bigtable_admin_v2::google::longrunning;
pub(crate) use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
pub(crate) use googleapis_tonic_google_bigtable_v2::google::rpc;

/// The answer of ReadRows, restated: the same fields with the same numbers, but names of families and columns are [`Bytes`], which
/// many chunks share, where the crate has a text or vector of its own in each.
pub(crate) mod read_rows {
    pub(crate) use super::data::read_rows_response::cell_chunk::RowStatus;
    use bytes::Bytes;

    /// `google.bigtable.v2.ReadRowsResponse`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ReadRowsResponse {
        #[prost(message, repeated, tag = "1")]
        pub(crate) chunks: Vec<CellChunk>,
        #[prost(bytes = "bytes", tag = "2")]
        pub(crate) last_scanned_row_key: Bytes,
        #[prost(message, optional, tag = "3")]
        pub(crate) request_stats: Option<super::data::RequestStats>,
    }

    /// `google.bigtable.v2.ReadRowsResponse.CellChunk`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct CellChunk {
        #[prost(bytes = "bytes", tag = "1")]
        pub(crate) row_key: Bytes,
        /// A `google.protobuf.StringValue`, whose bytes are those of a `BytesValue`.
        #[prost(message, optional, tag = "2")]
        pub(crate) family_name: Option<Bytes>,
        /// A `google.protobuf.BytesValue`.
        #[prost(message, optional, tag = "3")]
        pub(crate) qualifier: Option<Bytes>,
        #[prost(int64, tag = "4")]
        pub(crate) timestamp_micros: i64,
        #[prost(string, repeated, tag = "5")]
        pub(crate) labels: Vec<String>,
        #[prost(bytes = "bytes", tag = "6")]
        pub(crate) value: Bytes,
        #[prost(int32, tag = "7")]
        pub(crate) value_size: i32,
        #[prost(oneof = "RowStatus", tags = "8, 9")]
        pub(crate) row_status: Option<RowStatus>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn the_restated_answer_has_the_same_bytes() {
        use data::read_rows_response as crates;
        let chunk = read_rows::CellChunk {
            row_key: "row".into(),
            family_name: Some("fam\u{fc}".into()),
            qualifier: Some(vec![0, 255].into()),
            timestamp_micros: -5,
            labels: vec!["a".into(), String::new()],
            value: vec![7; 300].into(),
            value_size: 9,
            row_status: Some(read_rows::RowStatus::CommitRow(true)),
        };
        let empty = read_rows::CellChunk {
            family_name: Some(bytes::Bytes::new()),
            qualifier: Some(bytes::Bytes::new()),
            ..Default::default()
        };
        let request_stats = Some(data::RequestStats::default());
        let ours = read_rows::ReadRowsResponse {
            chunks: vec![chunk, empty],
            last_scanned_row_key: "last".into(),
            request_stats,
        };
        let chunk = crates::CellChunk {
            row_key: "row".into(),
            family_name: Some("fam\u{fc}".into()),
            qualifier: Some(vec![0, 255]),
            timestamp_micros: -5,
            labels: vec!["a".into(), String::new()],
            value: vec![7; 300].into(),
            value_size: 9,
            row_status: Some(crates::cell_chunk::RowStatus::CommitRow(true)),
        };
        let empty = crates::CellChunk {
            family_name: Some(String::new()),
            qualifier: Some(Vec::new()),
            ..Default::default()
        };
        let theirs = data::ReadRowsResponse {
            chunks: vec![chunk, empty],
            last_scanned_row_key: "last".into(),
            request_stats,
        };
        assert_eq!(ours.encode_to_vec(), theirs.encode_to_vec());
    }
}
