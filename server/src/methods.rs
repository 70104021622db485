//! The methods that are served: who may call each, and what a call of it may be.
//!
//! What a caller may do is looked up here by the path of a call and the table that it names, before the rest of its request is
//! taken. A method that is not listed is not served.

use crate::auth::{Right, Who};
use crate::calls::Kind;
use crate::fields::{self, Message};
use crate::wire::{self, Found, Shape};
use tonic::Status;

/// Bytes of a request that writes, at most: a row of 256 MiB with what belongs to it.
pub(crate) const WRITE_MAX: usize = 257 << 20;
/// Bytes of other requests, at most.
const REQUEST_MAX: usize = 4 << 20;
/// Bytes of those that hold names and little else, at most.
const NAMES_MAX: usize = 64 << 10;
/// Bytes of a question for the health, at most.
const HEALTH_MAX: usize = 1 << 10;

/// Characters of the path of a method that is not served which its caller is told.
const NAME_SHOWN_MAX: usize = 200;

/// Where a text stands in a request: the numbers of the fields that lead to it.
type Path = &'static [u64];

/// Who may call a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Whoever can connect.
    Anybody,
    /// Who has a token that is known. What is answered depends on its rights, or the method looks at them itself.
    Known,
    /// Who may monitor.
    Monitor,
    /// Who has any right to the table whose name stands there.
    Sees(Path),
    /// Who has these rights to the table whose name stands there.
    May(&'static [Right], Path),
    /// Who may administer the table whose instance stands in field 1, and its id in field 2.
    Makes,
    /// Who may administer all tables of the instance that is named there, or in which lies what is named there.
    Governs(Path),
    /// Who may administer all tables of the instance whose project stands in field 1, and its id in field 2.
    MakesInstance,
}

/// A method.
pub(crate) struct Method {
    path: &'static str,
    rule: Rule,
    pub(crate) kind: Kind,
    /// Bytes of its request, at most.
    pub(crate) bytes_max: usize,
    pub(crate) shape: &'static Shape,
    /// What becomes of its request's fields.
    pub(crate) request: Option<&'static Message>,
}

const fn method(path: &'static str, rule: Rule, bytes_max: usize, shape: &'static Shape) -> Method {
    Method { path, rule, kind: Kind::Call, bytes_max, shape, request: fields::request_of(path) }
}

/// One whose request holds names.
const fn named(path: &'static str, rule: Rule) -> Method {
    method(path, rule, NAMES_MAX, &wire::PLAIN)
}

const READS: Rule = Rule::May(&[Right::Read], &[1]);
const WRITES: Rule = Rule::May(&[Right::Write], &[1]);
const READS_AND_WRITES: Rule = Rule::May(&[Right::Read, Right::Write], &[1]);
const ADMINISTERS: Rule = Rule::May(&[Right::Admin], &[1]);
const GOVERNS: Rule = Rule::Governs(&[1]);
/// Of a message within the request.
const GOVERNS_WITHIN: Rule = Rule::Governs(&[1, 1]);

static METHODS: &[Method] = &[
    method("/google.bigtable.v2.Bigtable/ReadRows", READS, REQUEST_MAX, &wire::READ_ROWS),
    method("/google.bigtable.v2.Bigtable/MutateRow", WRITES, WRITE_MAX, &wire::MUTATE_ROW),
    method("/google.bigtable.v2.Bigtable/MutateRows", WRITES, WRITE_MAX, &wire::MUTATE_ROWS),
    named("/google.bigtable.v2.Bigtable/SampleRowKeys", READS),
    method(
        "/google.bigtable.v2.Bigtable/CheckAndMutateRow",
        READS_AND_WRITES,
        REQUEST_MAX,
        &wire::CHECK_AND_MUTATE_ROW,
    ),
    method(
        "/google.bigtable.v2.Bigtable/ReadModifyWriteRow",
        READS_AND_WRITES,
        REQUEST_MAX,
        &wire::READ_MODIFY_WRITE_ROW,
    ),
    named("/google.bigtable.v2.Bigtable/PingAndWarm", Rule::Known),
    named("/google.bigtable.v2.Bigtable/GenerateInitialChangeStreamPartitions", READS),
    Method {
        kind: Kind::Changes,
        ..method(
            "/google.bigtable.v2.Bigtable/ReadChangeStream",
            READS,
            REQUEST_MAX,
            &wire::READ_CHANGE_STREAM,
        )
    },
    method(
        "/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable",
        Rule::Makes,
        REQUEST_MAX,
        &wire::CREATE_TABLE,
    ),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/ListTables", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/GetTable", Rule::Sees(&[1])),
    method(
        "/google.bigtable.admin.v2.BigtableTableAdmin/UpdateTable",
        Rule::May(&[Right::Admin], &[1, 1]),
        REQUEST_MAX,
        &wire::UPDATE_TABLE,
    ),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/DeleteTable", ADMINISTERS),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/UndeleteTable", ADMINISTERS),
    method(
        "/google.bigtable.admin.v2.BigtableTableAdmin/ModifyColumnFamilies",
        ADMINISTERS,
        REQUEST_MAX,
        &wire::MODIFY_COLUMN_FAMILIES,
    ),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/DropRowRange", ADMINISTERS),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/GenerateConsistencyToken", Rule::Sees(&[1])),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/CheckConsistency", Rule::Sees(&[1])),
    method(
        "/google.bigtable.admin.v2.BigtableTableAdmin/CreateBackup",
        Rule::May(&[Right::Admin], &[3, 2]),
        NAMES_MAX,
        &wire::CREATE_BACKUP,
    ),
    // A backup is of a table that its record names.
    named("/google.bigtable.admin.v2.BigtableTableAdmin/GetBackup", Rule::Known),
    method(
        "/google.bigtable.admin.v2.BigtableTableAdmin/UpdateBackup",
        Rule::Known,
        NAMES_MAX,
        &wire::UPDATE_BACKUP,
    ),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/DeleteBackup", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/ListBackups", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/RestoreTable", Rule::Makes),
    named("/google.bigtable.admin.v2.BigtableTableAdmin/CopyBackup", Rule::Known),
    // What these are about is an instance, a table, or a backup, of which its record names the table.
    named("/google.bigtable.admin.v2.BigtableTableAdmin/GetIamPolicy", Rule::Known),
    method(
        "/google.bigtable.admin.v2.BigtableTableAdmin/SetIamPolicy",
        Rule::Known,
        NAMES_MAX,
        &wire::SET_IAM_POLICY,
    ),
    method(
        "/google.bigtable.admin.v2.BigtableTableAdmin/TestIamPermissions",
        Rule::Known,
        NAMES_MAX,
        &wire::TEST_IAM_PERMISSIONS,
    ),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/CreateInstance",
        Rule::MakesInstance,
        NAMES_MAX,
        &wire::CREATE_INSTANCE,
    ),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/GetInstance", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/ListInstances", Rule::Known),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/UpdateInstance",
        GOVERNS,
        NAMES_MAX,
        &wire::INSTANCE,
    ),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/PartialUpdateInstance",
        GOVERNS_WITHIN,
        NAMES_MAX,
        &wire::PARTIAL_UPDATE_INSTANCE,
    ),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/DeleteInstance", GOVERNS),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/CreateCluster", GOVERNS),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/GetCluster", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/ListClusters", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/UpdateCluster", GOVERNS),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/PartialUpdateCluster",
        GOVERNS_WITHIN,
        NAMES_MAX,
        &wire::PARTIAL_UPDATE_CLUSTER,
    ),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/DeleteCluster", GOVERNS),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/CreateAppProfile",
        GOVERNS,
        NAMES_MAX,
        &wire::CREATE_APP_PROFILE,
    ),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/GetAppProfile", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/ListAppProfiles", Rule::Known),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/UpdateAppProfile",
        GOVERNS_WITHIN,
        NAMES_MAX,
        &wire::UPDATE_APP_PROFILE,
    ),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/DeleteAppProfile", GOVERNS),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/ListHotTablets", Rule::Known),
    named("/google.bigtable.admin.v2.BigtableInstanceAdmin/GetIamPolicy", Rule::Known),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/SetIamPolicy",
        Rule::Known,
        NAMES_MAX,
        &wire::SET_IAM_POLICY,
    ),
    method(
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/TestIamPermissions",
        Rule::Known,
        NAMES_MAX,
        &wire::TEST_IAM_PERMISSIONS,
    ),
    named("/google.longrunning.Operations/GetOperation", Rule::Known),
    named("/siltstone.v1.Operator/State", Rule::Monitor),
    named("/siltstone.v1.Operator/Table", Rule::Sees(&[1])),
    method("/siltstone.v1.Operator/AlterSettings", ADMINISTERS, REQUEST_MAX, &wire::ALTER_SETTINGS),
    Method {
        kind: Kind::Health,
        ..method("/grpc.health.v1.Health/Check", Rule::Anybody, HEALTH_MAX, &wire::PLAIN)
    },
    Method {
        kind: Kind::Watch,
        ..method("/grpc.health.v1.Health/Watch", Rule::Anybody, HEALTH_MAX, &wire::PLAIN)
    },
];

/// The method of that path.
pub(crate) fn of(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

/// What is answered to a call of a method that is not served, of whatever service: its name, and where it is told what is.
pub(crate) fn not_served(path: &str) -> Status {
    let name: String = path.chars().take(NAME_SHOWN_MAX).collect();
    let name = name.trim_start_matches('/');
    Status::unimplemented(format!(
        "\"{name}\" is not served; docs/bigtable-api.md lists the methods that are"
    ))
}

/// Whether a call may go on, as far as its request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Yes,
    /// What it is about is not there yet.
    NotYet,
}

impl Method {
    /// Whether it is answered without a token.
    pub(crate) fn is_open(&self) -> bool {
        self.rule == Rule::Anybody
    }

    /// Whether that caller may call it, with a request of which so many bytes of `len` have come, from `begin` on.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, and what is wrong with the request.
    pub(crate) fn allows<B: AsRef<[u8]>>(
        &self,
        who: &Who,
        pieces: &[B],
        begin: usize,
        len: usize,
    ) -> Result<Allowed, Status> {
        let text = |path: &[u64]| wire::text_of(pieces, begin, len, path);
        match self.rule {
            Rule::Anybody | Rule::Known => {}
            Rule::Monitor if who.may_monitor() => {}
            Rule::Monitor => return Err(Status::permission_denied("the token has no right to monitor")),
            Rule::Sees(path) => match text(path)? {
                Found::Text(table) => who.check_sees(&table)?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::May(rights, path) => match text(path)? {
                Found::Text(table) => rights.iter().try_for_each(|right| who.may(*right, &table))?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::Makes => match (text(&[1])?, text(&[2])?) {
                (Found::Text(instance), Found::Text(id)) => {
                    // What is no name is nobody's table.
                    let table = crate::names::table_of(&instance, &id).unwrap_or_default();
                    who.may(Right::Admin, &table)?;
                }
                _ => return Ok(Allowed::NotYet),
            },
            Rule::Governs(path) => match text(path)? {
                Found::Text(name) => who.governs(crate::names::instance_of(&name))?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::MakesInstance => match (text(&[1])?, text(&[2])?) {
                (Found::Text(project), Found::Text(id)) => {
                    who.governs(&format!("{project}/instances/{id}"))?;
                }
                _ => return Ok(Allowed::NotYet),
            },
        }
        Ok(Allowed::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_that_is_served_has_a_rule_and_only_the_health_is_open() {
        let served: BTreeSet<_> = crate::proto::METHODS.iter().copied().collect();
        let health = |path: &str| path.starts_with("/grpc.health.v1.Health/");
        let listed: BTreeSet<_> = METHODS.iter().map(|m| m.path).filter(|path| !health(path)).collect();
        assert_eq!(listed, served);
        for method in METHODS {
            assert_eq!(method.is_open(), health(method.path), "{}", method.path);
            assert!(std::ptr::eq(of(method.path).unwrap(), method), "{} is there twice", method.path);
        }
        assert!(of("/google.bigtable.v2.Bigtable/Other").is_none());
    }

    #[test]
    fn a_method_that_is_not_served_is_told_by_its_name() {
        let told = not_served("/google.bigtable.v2.Bigtable/ExecuteQuery");
        assert_eq!(told.code(), tonic::Code::Unimplemented);
        let text = told.message();
        assert!(text.contains("\"google.bigtable.v2.Bigtable/ExecuteQuery\""), "{text}");
        assert!(text.contains("docs/bigtable-api.md"), "{text}");
        assert!(not_served(&"x".repeat(10_000)).message().len() < 300);
    }
}
