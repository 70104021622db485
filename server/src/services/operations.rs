//! Long-running operations: each is finished when it is answered, and the last ones can be asked for again
//! (service `google.longrunning.Operations`).

use crate::proto::longrunning::{GetOperationRequest, Operation};
use crate::services::stubs::operations::operations_server::Operations;
use crate::shared::Shared;
use std::sync::Arc;
use tonic::{Request, Response, Status};

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
