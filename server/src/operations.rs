//! Long-running operations: each is finished when it is answered, and the last ones can be asked for again
//! (service `google.longrunning.Operations`).

use crate::proto::longrunning::{GetOperationRequest, Operation, operation};
use crate::proto::operations::operations_server::Operations;
use crate::server::Shared;
use parking_lot::Mutex;
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Operations that can be asked for again.
const KEPT: usize = 1_000;

/// The operations that were answered last.
#[derive(Default)]
pub(crate) struct Finished(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    next: u64,
    /// Each with the table that it is about.
    operations: VecDeque<(String, Operation)>,
}

fn any(kind: &str, message: &impl Message) -> prost_types::Any {
    let type_url = format!("type.googleapis.com/google.bigtable.admin.v2.{kind}");
    prost_types::Any { type_url, value: message.encode_to_vec() }
}

impl Finished {
    /// An operation about a table, on what has that name, with its metadata and its response and the types of both.
    pub(crate) fn add<M: Message, R: Message>(
        &self,
        table: &str,
        name: &str,
        metadata: Option<(&str, M)>,
        response: (&str, &R),
    ) -> Operation {
        let mut kept = self.0.lock();
        kept.next += 1;
        let operation = Operation {
            name: format!("operations/{name}/operations/{}", kept.next),
            metadata: metadata.map(|(kind, message)| any(kind, &message)),
            done: true,
            result: Some(operation::Result::Response(any(response.0, response.1))),
        };
        kept.operations.push_back((table.to_string(), operation.clone()));
        if kept.operations.len() > KEPT {
            kept.operations.pop_front();
        }
        operation
    }

    fn get(&self, name: &str) -> Option<(String, Operation)> {
        self.0.lock().operations.iter().rev().find(|(_, operation)| operation.name == name).cloned()
    }
}

/// The service.
pub(crate) struct OperationsService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl Operations for OperationsService {
    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let who = self.0.who(request.metadata())?;
        let name = &request.get_ref().name;
        let found = self.0.finished.get(name);
        let found = found.filter(|(table, _)| who.sees(table));
        found
            .map(|(_, operation)| Response::new(operation))
            .ok_or_else(|| Status::not_found(format!("no operation {name}")))
    }
}
