//! Resource names: `projects/P/instances/I`, `.../tables/T`, `.../tables/T/authorizedViews/V`,
//! `.../tables/T/schemaBundles/B`, `.../clusters/C`; and etags. Any project and instance is accepted; a table
//! belongs to the instance it was created in.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use tonic::Status;

/// Bytes of the name of an instance, at most.
const INSTANCE_MAX: usize = 200;

/// The parts between the name of a table and the id of something that belongs to it.
pub(crate) const VIEWS: &str = "/authorizedViews/";
const BUNDLES: &str = "/schemaBundles/";

/// The one cluster of each instance that nobody has made.
pub(crate) const CLUSTER: &str = "siltstone";

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A short text that tells bytes from others, as etags and names of what has no other are.
pub(crate) fn fingerprint(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

/// Checks the name of an instance.
pub(crate) fn instance(name: &str) -> Result<&str, Status> {
    match name.split('/').collect::<Vec<_>>()[..] {
        ["projects", project, "instances", instance]
            if !project.is_empty() && !instance.is_empty() && name.len() <= INSTANCE_MAX =>
        {
            Ok(name)
        }
        _ => Err(Status::invalid_argument(format!(
            "\"{name}\" is not the name of an instance: projects/PROJECT/instances/INSTANCE"
        ))),
    }
}

/// Checks the name of a table.
pub(crate) fn table(name: &str) -> Result<&str, Status> {
    let split = name.split_once("/tables/");
    match split {
        Some((parent, id)) if instance(parent).is_ok() && is_id(id) => Ok(name),
        _ if view(name).is_ok() => Err(Status::invalid_argument(format!(
            "\"{name}\" is the name of an authorized view, where a call takes that of a table"
        ))),
        _ => Err(Status::invalid_argument(format!(
            "\"{name}\" is not the name of a table: projects/PROJECT/instances/INSTANCE/tables/TABLE"
        ))),
    }
}

/// The name of something that belongs to a table: the table's name, and its id.
fn part<'a>(name: &'a str, between: &str, what: &str) -> Result<(&'a str, &'a str), Status> {
    match name.split_once(between) {
        Some((parent, id)) if table(parent).is_ok() && is_id(id) => Ok((parent, id)),
        _ => Err(Status::invalid_argument(format!(
            "\"{name}\" is not the name of {what}: \
             projects/PROJECT/instances/INSTANCE/tables/TABLE{between}ID"
        ))),
    }
}

/// The name of a table's part, of which a request has the id in this field.
fn part_of(parent: &str, between: &str, id: &str, field: &str) -> Result<String, Status> {
    table(parent)?;
    match is_id(id) {
        true => Ok(format!("{parent}{between}{id}")),
        false => Err(Status::invalid_argument(format!(
            "{field} \"{id}\" must be 1 to 50 characters of a-z, A-Z, 0-9, '_', '-' and '.'"
        ))),
    }
}

/// Checks the name of an authorized view. Returns its table's name, and its id.
pub(crate) fn view(name: &str) -> Result<(&str, &str), Status> {
    part(name, VIEWS, "an authorized view")
}

/// The name of an authorized view of a table.
pub(crate) fn view_of(parent: &str, id: &str) -> Result<String, Status> {
    part_of(parent, VIEWS, id, "authorized_view_id")
}

/// The name of an existing authorized view.
pub(crate) fn view_named(table: &str, id: &str) -> String {
    format!("{table}{VIEWS}{id}")
}

/// Checks the name of a schema bundle. Returns its table's name, and its id.
pub(crate) fn bundle(name: &str) -> Result<(&str, &str), Status> {
    part(name, BUNDLES, "a schema bundle")
}

/// The name of a schema bundle of a table.
pub(crate) fn bundle_of(parent: &str, id: &str) -> Result<String, Status> {
    part_of(parent, BUNDLES, id, "schema_bundle_id")
}

/// What a name says its table is, if it is a view's.
pub(crate) fn table_of_view(name: &str) -> Option<&str> {
    name.split_once(VIEWS).map(|(table, _)| table)
}

/// What a name says its table is, if it is that of a part of one; else empty, which is nobody's table.
pub(crate) fn table_of_part(name: &str) -> &str {
    let bundled = || name.split_once(BUNDLES).map(|(table, _)| table);
    table_of_view(name).or_else(bundled).unwrap_or_default()
}

/// The name of a table of an instance.
pub(crate) fn table_of(parent: &str, id: &str) -> Result<String, Status> {
    instance(parent)?;
    match is_id(id) {
        true => Ok(format!("{parent}/tables/{id}")),
        false => Err(Status::invalid_argument(format!(
            "table id \"{id}\" must be 1 to 50 characters of a-z, A-Z, 0-9, '_', '-' and '.'"
        ))),
    }
}

/// Checks the name of a backup.
pub(crate) fn backup(name: &str) -> Result<&str, Status> {
    match name.split_once("/backups/") {
        Some((parent, id)) if cluster(parent).is_ok() && is_id(id) => Ok(name),
        _ => Err(Status::invalid_argument(format!(
            "\"{name}\" is not the name of a backup: projects/PROJECT/instances/INSTANCE/clusters/CLUSTER/backups/BACKUP"
        ))),
    }
}

/// The project of an instance, or of what lies in one.
pub(crate) fn project_of(name: &str) -> &str {
    name.split_once("/instances/").map_or(name, |(project, _)| project)
}

/// The cluster in which a backup of that name is.
pub(crate) fn cluster_of(backup: &str) -> &str {
    backup.split_once("/backups/").map_or(backup, |(cluster, _)| cluster)
}

/// The instance that a name names, or in which lies what it names; of what is no such name, anything.
pub(crate) fn instance_of(name: &str) -> &str {
    name.match_indices('/').nth(3).map_or(name, |(at, _)| &name[..at])
}

/// The instance and the id of a name such as `projects/P/instances/I/clusters/C`, of which `kind` is the
/// fifth part.
pub(crate) fn within_instance<'a>(name: &'a str, kind: &str) -> Result<(&'a str, &'a str), Status> {
    let parent = instance_of(name);
    let rest = name.get(parent.len() + 1..).and_then(|rest| rest.strip_prefix(kind)?.strip_prefix('/'));
    match rest.filter(|id| instance(parent).is_ok() && is_id(id)) {
        Some(id) => Ok((parent, id)),
        None => Err(Status::invalid_argument(format!(
            "\"{name}\" is no name such as projects/PROJECT/instances/INSTANCE/{kind}/ID"
        ))),
    }
}

/// Checks the id of an instance or a cluster that is to be made, of at most so many characters.
pub(crate) fn new_id(what: &str, id: &str, most: usize) -> Result<(), Status> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    match id.starts_with(|c: char| c.is_ascii_lowercase()) && id.bytes().all(is_allowed) && id.len() <= most {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "{what} \"{id}\" must be 1 to {most} characters of a-z, 0-9 and '-', the first of a-z"
        ))),
    }
}

/// Checks the id of an app profile that is to be made.
pub(crate) fn new_profile(id: &str) -> Result<(), Status> {
    match is_id(id) && !id.starts_with(['-', '.']) {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "app_profile_id \"{id}\" must be 1 to 50 characters of a-z, A-Z, 0-9, '_', '-' and '.', the \
             first none of the last two"
        ))),
    }
}

/// Checks the name of a cluster.
fn cluster(name: &str) -> Result<&str, Status> {
    match name.split_once("/clusters/") {
        Some((parent, id)) if instance(parent).is_ok() && is_id(id) => Ok(name),
        _ => Err(Status::invalid_argument(format!(
            "\"{name}\" is not the name of a cluster: projects/PROJECT/instances/INSTANCE/clusters/CLUSTER"
        ))),
    }
}

/// How many things a page of a list has, of which a client asks for so many; 0 for as many as there may be.
pub(crate) fn page_size(asked: i32, most: usize) -> Result<usize, Status> {
    match usize::try_from(asked) {
        Ok(0) => Ok(most),
        Ok(size) => Ok(size.min(most)),
        Err(_) => Err(Status::invalid_argument("page_size is negative")),
    }
}

/// The first items of a list, and the token with which the next page begins behind them: none where there are
/// no more.
pub(crate) fn page<T>(
    mut items: impl Iterator<Item = T>,
    most: usize,
    token: impl Fn(&T) -> &str,
) -> (Vec<T>, String) {
    let page: Vec<T> = items.by_ref().take(most).collect();
    let last = page.last().filter(|_| items.next().is_some());
    let token = last.map_or(String::new(), |last| token(last).to_string());
    (page, token)
}

/// Whether a pattern means a name: that name, or, where it ends in `*`, all that begin with what stands
/// before it.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => pattern == name,
    }
}

fn is_id(id: &str) -> bool {
    (1..=50).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// Checks the name of a column family.
pub(crate) fn family(name: &str) -> Result<&str, Status> {
    match (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
    {
        true => Ok(name),
        false => Err(Status::invalid_argument(format!(
            "family name \"{name}\" must be 1 to 64 characters of a-z, A-Z, 0-9, '_', '-' and '.'"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_others() {
        assert!(
            instance("projects/p/instances/i").is_ok() && table("projects/p/instances/i/tables/t.1").is_ok()
        );
        for wrong in ["", "t", "projects/p", "projects//instances/i", "projects/p/instances/i/x"] {
            assert!(instance(wrong).is_err(), "{wrong}");
        }
        for wrong in
            ["projects/p/instances/i", "projects/p/instances/i/tables/", "projects/p/instances/i/tables/a/b"]
        {
            assert!(table(wrong).is_err(), "{wrong}");
        }
        let backup_name = "projects/p/instances/i/clusters/c/backups/b";
        assert!(backup(backup_name).is_ok() && backup("projects/p/instances/i/backups/b").is_err());
        let cluster = "projects/p/instances/i/clusters/c";
        assert_eq!(instance_of(cluster), "projects/p/instances/i");
        assert_eq!(
            (instance_of("projects/p/instances/i"), instance_of("x")),
            ("projects/p/instances/i", "x")
        );
        assert_eq!(within_instance(cluster, "clusters").unwrap(), ("projects/p/instances/i", "c"));
        for wrong in ["projects/p/instances/i", "projects/p/instances/i/clusters/", "x", "a/b/c/d/clusters/e"]
        {
            assert!(within_instance(wrong, "clusters").is_err(), "{wrong}");
        }
        assert!(within_instance(cluster, "appProfiles").is_err());
        assert!(new_id("id", "a-1", 33).is_ok() && new_profile("A.b").is_ok());
        for wrong in ["", "1a", "-a", "aB", "a_b", &"a".repeat(34)] {
            assert!(new_id("id", wrong, 33).is_err(), "{wrong}");
        }
        assert!(new_profile("").is_err() && new_profile("-a").is_err() && new_profile("a/b").is_err());
        assert!(family("cf-1").is_ok() && family("").is_err() && family("a b").is_err());
    }

    #[test]
    fn what_belongs_to_a_table_has_its_name_before_its_own() {
        let owner = "projects/p/instances/i/tables/t";
        let name = view_of(owner, "v-1").unwrap();
        assert_eq!((view(&name).unwrap(), table_of_part(&name)), ((owner, "v-1"), owner));
        let named = bundle_of(owner, "b").unwrap();
        assert_eq!((bundle(&named).unwrap(), table_of_part(&named)), ((owner, "b"), owner));
        assert!(bundle(&name).is_err() && view(&named).is_err() && table_of_part(owner).is_empty());
        for wrong in ["", "a/b", "a b"] {
            assert!(view_of(owner, wrong).is_err() && view(&format!("{owner}{VIEWS}{wrong}")).is_err());
        }
        assert!(view_of("t", "v").is_err() && view("t/authorizedViews/v").is_err());
        let refused = table(&name).unwrap_err();
        assert!(refused.message().contains("authorized view"), "{refused}");
    }
}
