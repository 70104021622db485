//! Admission of calls: by their caller, the number of calls, and the memory in use.

use crate::net::auth::{Tokens, Who};
use crate::net::budget::Budgets;
use crate::net::calls::CallMetrics;
use tonic::Status;

/// The tokens, the memory for calls, and the calls under way.
pub(crate) struct Access {
    /// Tokens with rights; without, whoever can connect may do everything.
    pub(crate) tokens: Option<Tokens>,
    /// Memory for calls.
    pub(crate) budgets: Budgets,
    pub(crate) calls: CallMetrics,
}

impl Access {
    /// The caller of a call, by its header `authorization`.
    pub(crate) fn who(&self, header: Option<&[u8]>) -> Result<Who, Status> {
        self.tokens.as_ref().map_or(Ok(Who::ANYONE), |tokens| tokens.who(header))
    }
}
