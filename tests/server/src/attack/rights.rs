//! Calls by those who have no right to them.

use super::wire::{
    ADMIN, DATA, OPERATOR, backup, cluster, copy_backup, create_backup, create_table, in_seconds, mutate_row,
    number, part, set_cell, table,
};
use super::{Caller, Outcome, Scene, secret};
use crate::child::INSTANCE;
use std::time::Instant;
use tonic::Code;

const INSTANCES: &str = "/google.bigtable.admin.v2.BigtableInstanceAdmin/";
/// The project in which the instance lies.
const PROJECT: &str = "projects/p";
/// Calls that say of what their caller may not know that it is not there.
const HIDING: [&str; 5] = ["/GetBackup", "/UpdateBackup", "/DeleteBackup", "/CopyBackup", "/GetOperation"];

/// All calls about a table, its view `v`, its schema bundle `s`, its backup `b-NAME`, its instance and a
/// profile `a` of that, with the rights that they need, those that delete last. To `see` is for whoever has
/// any right to the table, to `govern` for who administers all tables of the instance.
pub(super) fn every_call(name: &str) -> Vec<(String, Vec<u8>, &'static str)> {
    let (of, named) = (table(name), part(1, table(name)));
    let of_backup = backup(&format!("b-{name}"));
    let (view, bundle) = (format!("{of}/authorizedViews/v"), format!("{of}/schemaBundles/s"));
    let rows = part(2, part(1, "r"));
    // A set of one file without anything in it.
    let schema = part(2, part(2, part(1, part(1, "a.proto"))));
    let profile = format!("{INSTANCE}/appProfiles/a");
    let settings = [part(2, format!("{PROJECT}/locations/z")), number(4, 1)].concat();
    let of_instance = [part(1, INSTANCE), part(2, "name")].concat();
    let of_cluster = [&part(1, cluster())[..], &settings].concat();
    let of_profile = [part(1, &profile), part(3, "text")].concat();
    let new_profile = [part(1, INSTANCE), part(2, "a"), part(3, part(5, ""))].concat();
    let new_cluster = [part(1, INSTANCE), part(2, "c"), part(3, &settings)].concat();
    let clusters = part(4, [part(1, "c"), part(2, &settings)].concat());
    let new_instance = [part(1, PROJECT), part(2, format!("new-{name}")), part(3, part(2, "name")), clusters];
    let mask = |field: &str| part(2, part(1, field));
    let until = [part(1, &of_backup), part(3, number(1, in_seconds(90_000)))].concat();
    let rule = [part(1, "f"), part(2, "n"), part(3, "x")].concat();
    let cell = [set_cell("q", "v")];
    let entry = part(2, [part(1, "r"), part(2, &cell[0])].concat());
    let conditional = [&named[..], &part(2, "r"), &part(4, &cell[0])].concat();
    let modify = part(2, [part(1, "f"), part(3, b"")].concat());
    let setting = part(3, [part(1, "bloom_bits"), part(2, "10")].concat());
    let with = |more: &[u8]| [&named[..], more].concat();
    let calls: Vec<(&str, &str, Vec<u8>, &'static str)> = vec![
        (DATA, "ReadRows", named.clone(), "read"),
        (DATA, "SampleRowKeys", named.clone(), "read"),
        (DATA, "MutateRow", mutate_row(name, "r", &cell), "write"),
        (DATA, "MutateRows", with(&entry), "write"),
        (DATA, "CheckAndMutateRow", conditional, "read write"),
        (DATA, "ReadModifyWriteRow", with(&[part(2, "r"), part(3, rule)].concat()), "read write"),
        (DATA, "GenerateInitialChangeStreamPartitions", named.clone(), "read"),
        (DATA, "ReadChangeStream", named.clone(), "read"),
        (ADMIN, "GetTable", named.clone(), "see"),
        (OPERATOR, "Table", named.clone(), "see"),
        (OPERATOR, "State", Vec::new(), "monitor"),
        (ADMIN, "UpdateTable", [part(1, &named), mask("deletion_protection")].concat(), "admin"),
        (ADMIN, "ModifyColumnFamilies", with(&modify), "admin"),
        (ADMIN, "DropRowRange", with(&part(2, "zzz")), "admin"),
        (ADMIN, "GenerateConsistencyToken", named.clone(), "see"),
        (ADMIN, "CheckConsistency", with(&part(2, "consistent")), "see"),
        (OPERATOR, "AlterSettings", with(&setting), "admin"),
        (ADMIN, "CreateTable", create_table(&format!("new-{name}"), &[]), "admin"),
        (ADMIN, "CreateBackup", create_backup(&cluster(), &format!("c-{name}"), &of), "admin"),
        (ADMIN, "CopyBackup", copy_backup(&format!("d-{name}"), &format!("b-{name}")), "admin"),
        (ADMIN, "GetBackup", part(1, &of_backup), "see"),
        (ADMIN, "UpdateBackup", [part(1, until), mask("expire_time")].concat(), "admin"),
        (
            ADMIN,
            "RestoreTable",
            [part(1, INSTANCE), part(2, "restored"), part(3, &of_backup)].concat(),
            "admin",
        ),
        (
            "/google.longrunning.Operations/",
            "GetOperation",
            part(1, format!("operations/{of}/operations/1")),
            "see",
        ),
        (ADMIN, "ListTables", part(1, INSTANCE), ""),
        (ADMIN, "ListBackups", part(1, cluster()), ""),
        (DATA, "PingAndWarm", part(1, INSTANCE), ""),
        (DATA, "PrepareQuery", part(1, INSTANCE), ""),
        (DATA, "ExecuteQuery", part(1, INSTANCE), ""),
        (INSTANCES, "GetInstance", part(1, INSTANCE), ""),
        (INSTANCES, "ListInstances", part(1, PROJECT), ""),
        (INSTANCES, "GetCluster", part(1, cluster()), ""),
        (INSTANCES, "ListClusters", part(1, INSTANCE), ""),
        // A caller without any right in an instance gets answers as if nobody had made anything in it.
        (INSTANCES, "GetAppProfile", part(1, &profile), ""),
        (INSTANCES, "ListAppProfiles", part(1, INSTANCE), ""),
        (INSTANCES, "ListHotTablets", part(1, cluster()), ""),
        (
            INSTANCES,
            "TestIamPermissions",
            [part(1, INSTANCE), part(2, "bigtable.instances.get")].concat(),
            "",
        ),
        (ADMIN, "ListAuthorizedViews", named.clone(), ""),
        (ADMIN, "TestIamPermissions", with(&part(2, "bigtable.tables.get")), ""),
        (ADMIN, "GetIamPolicy", named.clone(), "admin"),
        (ADMIN, "SetIamPolicy", with(&part(2, b"")), "admin"),
        (ADMIN, "UndeleteTable", named.clone(), "admin"),
        (INSTANCES, "CreateInstance", new_instance.concat(), "govern"),
        (INSTANCES, "UpdateInstance", of_instance.clone(), "govern"),
        (INSTANCES, "PartialUpdateInstance", [part(1, of_instance), mask("display_name")].concat(), "govern"),
        (INSTANCES, "CreateCluster", new_cluster, "govern"),
        (INSTANCES, "UpdateCluster", of_cluster.clone(), "govern"),
        (INSTANCES, "PartialUpdateCluster", [part(1, of_cluster), mask("serve_nodes")].concat(), "govern"),
        (INSTANCES, "DeleteCluster", part(1, cluster()), "govern"),
        (INSTANCES, "CreateAppProfile", new_profile, "govern"),
        (INSTANCES, "UpdateAppProfile", [part(1, of_profile), mask("description")].concat(), "govern"),
        (INSTANCES, "DeleteAppProfile", part(1, &profile), "govern"),
        (INSTANCES, "GetIamPolicy", part(1, INSTANCE), "govern"),
        (INSTANCES, "SetIamPolicy", [part(1, INSTANCE), part(2, b"")].concat(), "govern"),
        (ADMIN, "CreateAuthorizedView", with(&[part(2, "v"), part(3, rows)].concat()), "admin"),
        (ADMIN, "GetAuthorizedView", part(1, &view), "see"),
        (ADMIN, "UpdateAuthorizedView", part(1, part(1, &view)), "admin"),
        (ADMIN, "DeleteAuthorizedView", part(1, &view), "admin"),
        (ADMIN, "CreateSchemaBundle", with(&[part(2, "s"), part(3, schema)].concat()), "admin"),
        (ADMIN, "ListSchemaBundles", named.clone(), "see"),
        (ADMIN, "GetSchemaBundle", part(1, &bundle), "see"),
        (ADMIN, "UpdateSchemaBundle", part(1, part(1, &bundle)), "admin"),
        (ADMIN, "DeleteSchemaBundle", part(1, &bundle), "admin"),
        (ADMIN, "DeleteBackup", part(1, &of_backup), "admin"),
        (ADMIN, "DeleteTable", named.clone(), "admin"),
        (INSTANCES, "DeleteInstance", part(1, INSTANCE), "govern"),
    ];
    calls
        .into_iter()
        .map(|(service, method, message, needs)| (format!("{service}{method}"), message, needs))
        .collect()
}

/// Who calls with that token, which may be none of ours.
fn with_token(scene: &Scene, token: Option<String>) -> Caller {
    Caller { token, ..scene.stranger(scene.port) }
}

/// Makes a table's backup, `b-NAME`.
fn back_up(scene: &Scene, name: &str) -> Result<(), String> {
    let message = create_backup(&cluster(), &format!("b-{name}"), &table(name));
    scene.caller("root").must(&format!("{ADMIN}CreateBackup"), message).map(drop)
}

/// Makes what the calls about a table name, so that none is refused for what is not there.
fn furnish(scene: &Scene, name: &str) -> Result<(), String> {
    let (root, calls) = (scene.caller("root"), every_call(name));
    let make = |which: &dyn Fn(&str) -> bool| {
        let mut calls = calls.iter().filter(|(method, ..)| which(method));
        calls.try_for_each(|(method, message, _)| root.must(method, message.clone()).map(drop))
    };
    // The first operation of the server is that of the update.
    for method in ["/UpdateTable", "/CreateAuthorizedView", "/CreateSchemaBundle", "/CreateAppProfile"] {
        make(&|called| called.ends_with(method))?;
    }
    back_up(scene, name)?;
    make(&|called| called.contains("/Get"))
}

/// Each call with each kind of token: those without the right to it are refused, and lists have nothing of
/// others.
pub(super) fn wrong_rights(scene: &Scene) -> Outcome {
    furnish(scene, "t")?;
    let known: [(&str, &[&str]); 5] = [
        ("monitor", &["monitor"]),
        ("other", &[]),
        ("reader", &["read", "see"]),
        ("writer", &["write", "see"]),
        ("admin", &["admin", "see"]),
    ];
    let (until, mut refused) = (scene.until(), 0_u64);
    loop {
        for (name, has) in known {
            let caller = with_token(scene, Some(secret(name)));
            for (method, message, needs) in every_call("t") {
                if needs.split_whitespace().all(|right| has.contains(&right)) {
                    continue;
                }
                let hides = !has.contains(&"see") && HIDING.iter().any(|hiding| method.ends_with(hiding));
                match caller.code(&method, message) {
                    Code::PermissionDenied => {}
                    Code::NotFound if hides => {}
                    code => return Err(format!("{method} by {name} ends with {code:?}")),
                }
                refused += 1;
            }
            let lists = [
                ("ListTables", INSTANCE.to_string()),
                ("ListBackups", cluster()),
                ("ListAuthorizedViews", table("t")),
            ];
            for (list, parent) in lists {
                let seen = caller.must(&format!("{ADMIN}{list}"), part(1, parent))?.concat();
                let theirs = table("t").into_bytes();
                if !has.contains(&"see") && seen.windows(theirs.len()).any(|part| part == theirs) {
                    return Err(format!("{list} shows {name} a table that is not theirs"));
                }
            }
        }
        for token in [None, Some(String::new()), Some("wrong".into()), Some("ROOT-SECRET".into())] {
            let caller = with_token(scene, token.clone());
            for (method, message, _) in every_call("t") {
                let code = caller.code(&method, message);
                if !matches!(code, Code::Unauthenticated | Code::Unimplemented) {
                    return Err(format!("{method} with the token {token:?} ends with {code:?}"));
                }
                refused += 1;
            }
        }
        if Instant::now() >= until {
            return Ok(format!("{refused} calls without the right to them refused"));
        }
    }
}

/// Names of backups: who has no right learns none, and takes none in the instance of another.
pub(super) fn backup_names(scene: &Scene) -> Outcome {
    back_up(scene, "other")?;
    let (monitor, admin) = (scene.caller("monitor"), scene.caller("admin"));
    let (until, mut calls) = (scene.until(), 0_u64);
    let copy = format!("{ADMIN}CopyBackup");
    loop {
        let taken = monitor.code(&copy, copy_backup("b-other", "none"));
        let free = monitor.code(&copy, copy_backup("b-none", "none"));
        if taken != free || taken == Code::Ok {
            return Err(format!(
                "CopyBackup by monitor tells a name that is taken, {taken:?}, from one that is not, {free:?}"
            ));
        }
        let elsewhere = create_backup("projects/victim/instances/v/clusters/c", "daily", &table("t"));
        let code = admin.code(&format!("{ADMIN}CreateBackup"), elsewhere);
        if code == Code::Ok {
            return Err("who administers a table takes a name in the instance of another".into());
        }
        calls += 3;
        if Instant::now() >= until {
            return Ok(format!("{calls} calls tell and take nothing"));
        }
    }
}

/// Names that would be paths, commands or lines of a log.
pub(super) fn odd_names(scene: &Scene) -> Outcome {
    let odd = [
        "..",
        "../../x",
        "/etc/passwd",
        "a\nb",
        "a\0b",
        "<b>",
        "\x1b[31m",
        "%2e%2e",
        ".",
        "a/b",
        "",
        "CON",
        " ",
    ];
    let long = "n".repeat(5_000);
    let root = scene.caller("root");
    for name in odd.iter().copied().chain([long.as_str()]) {
        let calls = [
            ("CreateTable", create_table(name, &[])),
            ("CreateBackup", create_backup(&cluster(), name, &table("t"))),
            ("GetTable", part(1, table(name))),
            ("GetBackup", part(1, backup(name))),
        ];
        for (method, message) in calls {
            let code = root.code(&format!("{ADMIN}{method}"), message);
            if matches!(code, Code::Internal | Code::Unknown | Code::DataLoss) {
                return Err(format!("{method} of {name:?} ends with {code:?}"));
            }
        }
    }
    // What is beside the server's directory is what we put there.
    let found = std::fs::read_dir(&scene.dir).map_err(|e| e.to_string())?;
    let known = ["data", "data-backups", "log", "siltstone.toml", "tokens.toml"];
    for entry in found.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !known.contains(&name.as_str()) {
            return Err(format!("beside the database there is {name} now"));
        }
    }
    Ok(format!("{} odd names", odd.len() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_that_is_served_is_called() {
        let calls = every_call("t");
        for served in siltstone_server::METHODS {
            assert!(calls.iter().any(|(method, ..)| method == served), "{served}");
        }
    }
}
