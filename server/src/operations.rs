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
/// Bytes of all of them as encoded, and of one: a larger one is kept without its metadata and its response.
const BYTES_KEPT: usize = 1 << 20;
const BYTES_OF_ONE: usize = 64 << 10;

/// The operations that were answered last.
#[derive(Default)]
pub(crate) struct Finished(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    next: u64,
    /// Each with the table that it is about.
    operations: VecDeque<(String, Operation)>,
    bytes: usize,
}

fn bytes_of((table, operation): &(String, Operation)) -> usize {
    table.len() + operation.encoded_len()
}

impl Kept {
    fn push(&mut self, table: &str, operation: &Operation) {
        let own = match table.len() + operation.encoded_len() > BYTES_OF_ONE {
            // That it is done, and went well, is what is asked for again.
            true => Operation {
                name: operation.name.clone(),
                metadata: None,
                done: operation.done,
                result: Some(operation::Result::Response(prost_types::Any::default())),
            },
            false => operation.clone(),
        };
        let kept = (table.to_string(), own);
        self.bytes += bytes_of(&kept);
        self.operations.push_back(kept);
        while self.operations.len() > KEPT || self.bytes > BYTES_KEPT {
            let Some(oldest) = self.operations.pop_front() else { return };
            self.bytes -= bytes_of(&oldest);
        }
    }
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
        let metadata = metadata.map(|(kind, message)| any(kind, &message));
        let result = Some(operation::Result::Response(any(response.0, response.1)));
        let mut kept = self.0.lock();
        kept.next += 1;
        let operation = Operation {
            name: format!("operations/{name}/operations/{}", kept.next),
            metadata,
            done: true,
            result,
        };
        kept.push(table, &operation);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::admin;

    /// Adds an operation whose answer has about that many bytes, and returns its name.
    fn add(finished: &Finished, bytes: usize) -> String {
        let response = admin::Table { name: "n".repeat(bytes), ..Default::default() };
        let metadata = admin::UpdateTableMetadata { name: "t".into(), ..Default::default() };
        let metadata = Some(("UpdateTableMetadata", metadata));
        let answered = finished.add("t", "t", metadata, ("Table", &response));
        assert!(answered.metadata.is_some() && answered.encoded_len() > bytes, "the answer itself is whole");
        answered.name
    }

    #[test]
    fn operations_are_kept_by_number_and_by_bytes() {
        let finished = Finished::default();
        let names: Vec<_> = (0..=KEPT).map(|_| add(&finished, 10)).collect();
        assert!(finished.get(&names[0]).is_none() && finished.get(&names[1]).is_some());
        let large: Vec<_> = (0..40).map(|_| add(&finished, 60_000)).collect();
        let kept = finished.0.lock();
        assert!(kept.bytes <= BYTES_KEPT && kept.operations.len() < 20, "{} bytes", kept.bytes);
        assert_eq!(kept.bytes, kept.operations.iter().map(bytes_of).sum::<usize>());
        drop(kept);
        assert!(finished.get(&large[0]).is_none() && finished.get(&large[39]).is_some());
    }

    #[test]
    fn of_a_large_operation_only_that_it_is_done_is_kept() {
        let finished = Finished::default();
        let name = add(&finished, BYTES_OF_ONE);
        let (table, kept) = finished.get(&name).unwrap();
        assert!(kept.done && kept.metadata.is_none() && table == "t");
        assert_eq!(kept.result, Some(operation::Result::Response(prost_types::Any::default())));
        assert!(finished.0.lock().bytes < 1_000);
    }
}
