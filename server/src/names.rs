//! Resource names: `projects/P/instances/I`, `.../tables/T`, `.../clusters/C`. Any project and instance is accepted; a table
//! belongs to the instance it was created in.

use tonic::Status;

/// Bytes of the name of an instance, at most.
const INSTANCE_MAX: usize = 200;

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
        _ => Err(Status::invalid_argument(format!(
            "\"{name}\" is not the name of a table: projects/PROJECT/instances/INSTANCE/tables/TABLE"
        ))),
    }
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

/// Checks the name of a cluster.
fn cluster(name: &str) -> Result<&str, Status> {
    match name.split_once("/clusters/") {
        Some((parent, id)) if instance(parent).is_ok() && is_id(id) => Ok(name),
        _ => Err(Status::invalid_argument(format!(
            "\"{name}\" is not the name of a cluster: projects/PROJECT/instances/INSTANCE/clusters/CLUSTER"
        ))),
    }
}

/// Whether a pattern means a name: that name, or, where it ends in `*`, all that begin with what stands before it.
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
        assert!(family("cf-1").is_ok() && family("").is_err() && family("a b").is_err());
    }
}
