//! The calls of IAM on instances, tables, backups and what belongs to tables, answered from the file of
//! tokens.
//!
//! A policy has a binding for each right, whose members are the tokens by their names. It is changed in the
//! file alone: to set it to what it is already is the one that is taken.

use crate::names;
use crate::net::auth::{Right, Scope, Who};
use crate::net::calls::Call;
use crate::proto::iam::{
    Binding, GetIamPolicyRequest, Policy, SetIamPolicyRequest, TestIamPermissionsRequest,
    TestIamPermissionsResponse,
};
use crate::shared::{Shared, administer};
use prost::Message;
use std::sync::Arc;
use tonic::{Code, Request, Response, Status};

/// Permissions of which one call may ask.
const PERMISSIONS_MAX: usize = 1_000;

/// The resource of a call.
enum Resource {
    /// By its name.
    Instance(String),
    /// By its name, or by that of its schema bundle.
    Table(String),
    /// A backup that is there, by the name of its table, which may be gone.
    Backup(String),
    /// An authorized view, by its name.
    View(String),
}

impl Resource {
    /// # Errors
    /// `NOT_FOUND` for a backup that is not there, or of a table on which there is no right; and what is
    /// wrong with the name.
    fn of(shared: &Shared, who: &Who, name: &str) -> Result<Self, Status> {
        if name.contains("/backups/") {
            return Ok(Self::Backup(shared.tables.backup(name, who)?.source_table));
        }
        if names::view(name).is_ok() {
            return Ok(Self::View(name.to_string()));
        }
        let table = names::bundle(name).map_or(name, |(table, _)| table);
        match (names::instance(name), names::table(table)) {
            (Ok(instance), _) => Ok(Self::Instance(instance.to_string())),
            (_, Ok(table)) => Ok(Self::Table(table.to_string())),
            _ => Err(Status::invalid_argument(format!(
                "\"{name}\" is not the name of an instance, a table, a view, a schema bundle or a backup"
            ))),
        }
    }

    /// What any right to it is to.
    fn scope(&self) -> Scope<'_> {
        match self {
            Self::Instance(name) => Scope::Instance(name),
            Self::Table(name) | Self::Backup(name) | Self::View(name) => Scope::Table(name),
        }
    }

    /// What that right to it is to: a view is administered by who administers its table.
    fn scope_of(&self, right: Right) -> Scope<'_> {
        match self {
            Self::View(name) if right == Right::Admin => Scope::Table(names::table_of_part(name)),
            _ => self.scope(),
        }
    }

    /// Whether the resource exists.
    fn is_there(&self, shared: &Shared, who: &Who) -> bool {
        match self {
            Self::Instance(name) => shared.instances.find(who, name).is_ok(),
            Self::Table(name) => shared.tables.get(name).is_ok(),
            Self::Backup(_) => true,
            Self::View(name) => shared.tables.target("", name).is_ok(),
        }
    }

    /// The policy of the resource.
    fn policy(&self, shared: &Shared) -> Policy {
        let members = |right| match &shared.access.tokens {
            None => vec!["allUsers".to_string()],
            Some(tokens) => {
                let names = tokens.holders(right, self.scope_of(right)).into_iter();
                names.map(|name| format!("token:{name}")).collect()
            }
        };
        let binding = |right: Right| Binding {
            role: format!("roles/siltstone.{}", right.name()),
            members: members(right),
            condition: None,
        };
        let bindings = [Right::Admin, Right::Read, Right::Write].map(binding).into_iter();
        let bindings = bindings.filter(|binding| !binding.members.is_empty()).collect();
        let mut policy = Policy { version: 1, bindings, ..Policy::default() };
        policy.etag = names::fingerprint(&policy.encode_to_vec()).into_bytes().into();
        policy
    }
}

/// The right that a permission needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Any right.
    See,
    Has(Right),
    /// None has it, as what it permits is not served.
    Never,
}

/// The right for a permission of Google's service, such as `bigtable.tables.readRows`.
fn need_of(permission: &str) -> Need {
    let Some((kind, verb)) =
        permission.strip_prefix("bigtable.").and_then(|permission| permission.split_once('.'))
    else {
        return Need::Never;
    };
    match (kind, verb) {
        ("tables" | "authorizedViews", "readRows" | "sampleRowKeys") => Need::Has(Right::Read),
        ("tables" | "authorizedViews", "mutateRows") => Need::Has(Right::Write),
        ("tables", "checkConsistency" | "generateConsistencyToken") | ("instances", "ping") => Need::See,
        ("hotTablets", "list") => Need::See,
        (
            "instances" | "clusters" | "appProfiles" | "tables" | "backups" | "authorizedViews"
            | "schemaBundles",
            verb,
        ) => match verb {
            "get" | "list" => Need::See,
            "create" | "update" | "delete" => Need::Has(Right::Admin),
            "undelete" if kind == "tables" => Need::Has(Right::Admin),
            "read" | "restore" if kind == "backups" => Need::Has(Right::Admin),
            "getIamPolicy" if !matches!(kind, "clusters" | "appProfiles") => Need::Has(Right::Admin),
            _ => Need::Never,
        },
        _ => Need::Never,
    }
}

/// The resource of a call, for who may administer it.
fn administered(shared: &Shared, who: &Who, name: &str) -> Result<Resource, Status> {
    let denied = || Status::permission_denied(format!("the token has no right to admin {name}"));
    let resource = match Resource::of(shared, who, name) {
        Err(e) if e.code() == Code::NotFound && who.name().is_some() => return Err(denied()),
        resource => resource?,
    };
    match who.has_on(Right::Admin, resource.scope_of(Right::Admin)) {
        false => Err(denied()),
        true if resource.is_there(shared, who) => Ok(resource),
        true => Err(Status::not_found(format!("no {name}"))),
    }
}

/// The versions of policies.
fn check_version(field: &str, version: i32) -> Result<(), Status> {
    match version {
        0 | 1 | 3 => Ok(()),
        _ => Err(Status::invalid_argument(format!("{field} {version} is not 0, 1 or 3"))),
    }
}

/// GetIamPolicy.
pub(crate) async fn get(
    shared: &Arc<Shared>,
    request: Request<GetIamPolicyRequest>,
) -> Result<Response<Policy>, Status> {
    let who = shared.who(request.metadata())?;
    let call = shared.begin(Call::Admin, &request)?;
    let (shared, request) = (shared.clone(), request.into_inner());
    let version = request.options.map_or(0, |options| options.requested_policy_version);
    check_version("requested_policy_version", version)?;
    let work = move || Ok(Response::new(administered(&shared, &who, &request.resource)?.policy(&shared)));
    call.run(false, work).await
}

/// SetIamPolicy.
pub(crate) async fn set(
    shared: &Arc<Shared>,
    request: Request<SetIamPolicyRequest>,
) -> Result<Response<Policy>, Status> {
    let who = shared.who(request.metadata())?;
    administer(shared, request, move |shared, request| {
        let now = administered(shared, &who, &request.resource)?.policy(shared);
        let asked = request.policy.ok_or_else(|| Status::invalid_argument("no policy"))?;
        check_version("policy.version", asked.version)?;
        if !asked.etag.is_empty() && asked.etag != now.etag {
            return Err(Status::aborted("policy.etag: the policy has changed since"));
        }
        match asked.bindings == now.bindings && asked.audit_configs.is_empty() {
            true => Ok(now),
            false => Err(Status::failed_precondition(
                "rights are changed in the file that the setting `tokens` names, and not by SetIamPolicy",
            )),
        }
    })
    .await
}

/// TestIamPermissions: those of the asked permissions that the caller has. Of what is not there nobody has
/// any.
pub(crate) async fn test(
    shared: &Arc<Shared>,
    request: Request<TestIamPermissionsRequest>,
) -> Result<Response<TestIamPermissionsResponse>, Status> {
    let who = shared.who(request.metadata())?;
    let call = shared.begin(Call::Admin, &request)?;
    let (shared, request) = (shared.clone(), request.into_inner());
    let asked = &request.permissions;
    if asked.len() > PERMISSIONS_MAX {
        let message = format!("{} permissions, the limit is {PERMISSIONS_MAX}", asked.len());
        return Err(Status::invalid_argument(message));
    }
    if let Some(wrong) = asked.iter().find(|permission| permission.contains('*')) {
        return Err(Status::invalid_argument(format!("permission \"{wrong}\" stands for several")));
    }
    let work = move || {
        let TestIamPermissionsRequest { resource, mut permissions } = request;
        let resource = match Resource::of(&shared, &who, &resource) {
            Err(e) if e.code() == Code::NotFound => {
                return Ok(Response::new(TestIamPermissionsResponse::default()));
            }
            resource => resource?,
        };
        let is_there = resource.is_there(&shared, &who);
        permissions.retain(|permission| {
            is_there
                && match need_of(permission) {
                    Need::See => who.sees_of(resource.scope()),
                    Need::Has(right) => who.has_on(right, resource.scope_of(right)),
                    Need::Never => false,
                }
        });
        Ok(Response::new(TestIamPermissionsResponse { permissions }))
    };
    call.run(false, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_rights_and_what_is_not_served_nobody_has() {
        for (permission, need) in [
            ("bigtable.tables.readRows", Need::Has(Right::Read)),
            ("bigtable.authorizedViews.mutateRows", Need::Has(Right::Write)),
            ("bigtable.tables.get", Need::See),
            ("bigtable.tables.undelete", Need::Has(Right::Admin)),
            ("bigtable.instances.undelete", Need::Never),
            ("bigtable.backups.restore", Need::Has(Right::Admin)),
            ("bigtable.tables.restore", Need::Never),
            ("bigtable.instances.create", Need::Has(Right::Admin)),
            ("bigtable.tables.setIamPolicy", Need::Never),
            ("bigtable.tables.getIamPolicy", Need::Has(Right::Admin)),
            ("bigtable.clusters.getIamPolicy", Need::Never),
            ("bigtable.instances.executeQuery", Need::Never),
            ("bigtable.materializedViews.get", Need::Never),
            ("storage.buckets.get", Need::Never),
            ("bigtable.tables", Need::Never),
            ("", Need::Never),
        ] {
            assert_eq!(need_of(permission), need, "{permission}");
        }
    }
}
