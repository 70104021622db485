//! A service of the same messages that does nothing: what the bench measures the server against (feature
//! `empty`). It has the methods that the bench calls.

use crate::proto::data::{
    MutateRowRequest, MutateRowResponse, MutateRowsRequest, MutateRowsResponse, PingAndWarmRequest,
    PingAndWarmResponse, ReadRowsRequest, mutate_rows_response,
};
use bigtable::bigtable_server::{Bigtable, BigtableServer};
use bytes::Bytes;
use futures_util::stream::{self, Iter};
use read_rows::{CellChunk, ReadRowsResponse, RowStatus};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport};

/// The stubs, all of whose messages are encoded by prost.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
mod bigtable {
    include!(concat!(env!("OUT_DIR"), "/plain/google.bigtable.v2.Bigtable.rs"));
}

/// The answer of ReadRows, restated: the same fields with the same numbers, but names of families and columns
/// are [`Bytes`], which many chunks share, where the crate has a text or vector of its own in each.
pub(crate) mod read_rows {
    pub(crate) use crate::proto::data::read_rows_response::cell_chunk::RowStatus;
    use bytes::Bytes;

    /// `google.bigtable.v2.ReadRowsResponse`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ReadRowsResponse {
        #[prost(message, repeated, tag = "1")]
        pub(crate) chunks: Vec<CellChunk>,
        #[prost(bytes = "bytes", tag = "2")]
        pub(crate) last_scanned_row_key: Bytes,
        #[prost(message, optional, tag = "3")]
        pub(crate) request_stats: Option<crate::proto::data::RequestStats>,
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

struct Empty;

type Streaming<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

fn row(key: Bytes) -> CellChunk {
    CellChunk {
        row_key: key,
        family_name: Some("f".into()),
        qualifier: Some(Bytes::from_static(b"q")),
        timestamp_micros: 1_000,
        value: Bytes::from_static(&[7; 100]),
        row_status: Some(RowStatus::CommitRow(true)),
        ..Default::default()
    }
}

#[tonic::async_trait]
impl Bigtable for Empty {
    type ReadRowsStream = Streaming<ReadRowsResponse>;
    type MutateRowsStream = Streaming<MutateRowsResponse>;

    async fn read_rows(
        &self,
        request: Request<ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        let request = request.into_inner();
        let rows = usize::try_from(request.rows_limit).unwrap_or(0).max(1);
        let keys = request.rows.unwrap_or_default().row_keys;
        let key = keys.into_iter().next().unwrap_or_else(|| Bytes::from_static(b"row0000000000"));
        let messages = (0..rows).step_by(2_000).map(|from| {
            let chunks = (from..rows.min(from + 2_000)).map(|_| row(key.clone())).collect();
            Ok(ReadRowsResponse { chunks, ..Default::default() })
        });
        Ok(Response::new(stream::iter(messages.collect::<Vec<_>>())))
    }

    async fn mutate_row(&self, _: Request<MutateRowRequest>) -> Result<Response<MutateRowResponse>, Status> {
        Ok(Response::new(MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let entries = (0i64..).zip(&request.get_ref().entries);
        let entries =
            entries.map(|(index, _)| mutate_rows_response::Entry { index, status: Some(Default::default()) });
        let message = MutateRowsResponse { entries: entries.collect(), rate_limit_info: None };
        Ok(Response::new(stream::iter(vec![Ok(message)])))
    }

    async fn ping_and_warm(
        &self,
        _: Request<PingAndWarmRequest>,
    ) -> Result<Response<PingAndWarmResponse>, Status> {
        Ok(Response::new(PingAndWarmResponse {}))
    }
}

/// Serves it for ever.
///
/// # Errors
/// What the transport answers.
pub async fn serve(listener: TcpListener) -> Result<(), String> {
    let served = transport::Server::builder()
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .add_service(BigtableServer::new(Empty))
        .serve_with_incoming(TcpListenerStream::new(listener));
    served.await.map_err(|e| e.to_string())
}
