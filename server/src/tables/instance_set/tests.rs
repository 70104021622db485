use super::*;
use crate::config::Config;
use crate::tables::backup_records::NewBackup;
use crate::tables::schema;

const I: &str = "projects/p/instances/inst";

fn opened(dir: &std::path::Path) -> Instances {
    let config = Config { dir: dir.join("data"), ..Config::default() };
    let db = schema::builder(config.options()).open(&config.dir).unwrap();
    let tables = Tables::open(db, config.store_settings(), config.directories()).unwrap();
    Instances::open(Arc::new(tables)).unwrap()
}

fn request(id: &str) -> admin::CreateInstanceRequest {
    let cluster = admin::Cluster { location: "projects/p/locations/zone".into(), ..Default::default() };
    admin::CreateInstanceRequest {
        parent: "projects/p".into(),
        instance_id: id.into(),
        instance: Some(admin::Instance { display_name: "name".into(), ..Default::default() }),
        clusters: [("one".to_string(), cluster)].into(),
    }
}

#[test]
fn any_instance_is_there_until_one_was_made_and_what_was_made_stays() {
    let dir = tempfile::tempdir().unwrap();
    let instances = opened(dir.path());
    let find = |instances: &Instances, name: &str| instances.find(&Who::ANYONE, name).map(|_| ());
    assert!(find(&instances, "projects/p/instances/other").is_ok());
    assert_eq!(instances.all(&Who::ANYONE, "", "").len(), 0);
    assert_eq!(instances.delete(I).unwrap_err().code(), Code::NotFound);
    instances.create(&request("inst")).unwrap();
    assert_eq!(instances.create(&request("inst")).unwrap_err().code(), Code::AlreadyExists);
    instances.alter(I, |instance| instance.add_cluster("two", Cluster::local())).unwrap();
    instances.tables.db.close().unwrap();
    drop(instances);
    let instances = opened(dir.path());
    assert_eq!(find(&instances, "projects/p/instances/other").unwrap_err().code(), Code::NotFound);
    assert!(find(&instances, "projects/q/instances/other").is_ok());
    let made = instances.find(&Who::ANYONE, I).unwrap();
    assert_eq!(made.clusters.keys().collect::<Vec<_>>(), ["one", "two"]);
    instances.tables.create(&format!("{I}/tables/t"), &admin::Table::default(), &[""; 0]).unwrap();
    instances.delete(I).unwrap();
    assert!(instances.tables.all().is_empty() && instances.all(&Who::ANYONE, "", "").is_empty());
    assert_eq!(find(&instances, I).unwrap_err().code(), Code::NotFound);
}

#[test]
fn instances_have_limits_and_projects_without_some_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let instances = opened(dir.path());
    // As if they were written down.
    let write = |instance: String| {
        let mut known = Known::clone(&instances.known.load());
        known.projects.insert(names::project_of(&instance).to_string());
        known.instances.insert(instance.clone(), Arc::new(Instance::implied(&instance)));
        instances.known.store(Arc::new(known));
    };
    (1..PROJECT_INSTANCES_MAX).for_each(|n| write(format!("projects/p/instances/i-{n}")));
    instances.create(&request("last")).unwrap();
    let refused = instances.create(&request("more")).unwrap_err();
    assert!(refused.code() == Code::ResourceExhausted && refused.message().contains("projects/p"));
    instances.alter("projects/p/instances/i-1", |_| Ok(())).unwrap();
    instances.delete("projects/p/instances/i-1").unwrap();
    instances.create(&request("more")).unwrap();

    let mut known = Known::clone(&instances.known.load());
    known.projects.extend((1..INSTANCES_MAX).map(|n| format!("projects/a{n}")));
    instances.known.store(Arc::new(known));
    let cluster = admin::Cluster { location: "projects/z/locations/zone".into(), ..Default::default() };
    let clusters = [("one".to_string(), cluster)].into();
    let other = admin::CreateInstanceRequest { parent: "projects/z".into(), clusters, ..request("i") };
    instances.create(&other).unwrap();
    let known = instances.known.load();
    assert!(known.projects.len() == INSTANCES_MAX && !known.projects.contains("projects/a1"));
    assert!(["projects/p", "projects/z"].iter().all(|project| known.projects.contains(*project)));
}

#[test]
fn the_record_of_an_instance_has_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let instances = opened(dir.path());
    let put = |instance: &mut Instance, profiles: std::ops::Range<u32>| -> Result<(), Status> {
        use admin::app_profile::{MultiClusterRoutingUseAny, RoutingPolicy};
        for n in profiles {
            // Of these bytes each is six in a record.
            let profile = admin::AppProfile {
                description: "\u{1}".repeat(1_024),
                routing_policy: Some(RoutingPolicy::MultiClusterRoutingUseAny(
                    MultiClusterRoutingUseAny::default(),
                )),
                ..Default::default()
            };
            instance.put_profile(&format!("p{n}"), Profile::from_message(&profile)?, true)?;
        }
        Ok(())
    };
    instances.alter(I, |instance| put(instance, 0..160)).unwrap();
    let refused = instances.alter(I, |instance| put(instance, 160..180)).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("app profiles"), "{refused}");
    // As if it had more already.
    let mut known = Known::clone(&instances.known.load());
    let mut large = Instance::clone(&known.instances[I]);
    put(&mut large, 160..180).unwrap();
    known.instances.insert(I.to_string(), Arc::new(large));
    instances.known.store(Arc::new(known));
    instances.alter(I, |instance| instance.remove_profile("p0", false)).unwrap();
    assert!(instances.alter(I, |instance| put(instance, 180..181)).is_err());
}

#[test]
fn a_list_of_instances_begins_at_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let instances = opened(dir.path());
    for id in ["i", "i-2", "j"] {
        let table = format!("projects/p/instances/{id}/tables/t");
        instances.tables.create(&table, &admin::Table::default(), &[""; 0]).unwrap();
    }
    instances.alter("projects/p/instances/i-3", |_| Ok(())).unwrap();
    let from = |from: &str| {
        let all = instances.all(&Who::ANYONE, "projects/p/instances/", from).into_keys();
        all.map(|name| name.rsplit('/').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(from(""), ["i", "i-2", "i-3", "j"]);
    assert_eq!(from("projects/p/instances/i-2"), ["i-2", "i-3", "j"]);
    assert_eq!(from("projects/q/instances/i"), [""; 0]);
}

#[test]
fn a_profile_matters_where_its_instance_was_made_or_changed() {
    let dir = tempfile::tempdir().unwrap();
    let instances = opened(dir.path());
    let table = format!("{I}/tables/t");
    let used = |profile: &str, what| instances.check_use(&table, profile, what).map_err(|e| e.code());
    assert_eq!(used("any", Use::Transaction), Ok(()));
    instances.create(&request("inst")).unwrap();
    assert_eq!((used("", Use::Transaction), used("default", Use::Write)), (Ok(()), Ok(())));
    assert_eq!(used("any", Use::Read), Err(Code::NotFound));
    assert_eq!(
        instances.check_use("projects/p/instances/other/tables/t", "any", Use::Read).map_err(|e| e.code()),
        Ok(())
    );
    let reads = |transactions| {
        use admin::app_profile::{RoutingPolicy, SingleClusterRouting};
        let (cluster_id, allow_transactional_writes) = ("one".into(), transactions);
        let routing = SingleClusterRouting { cluster_id, allow_transactional_writes };
        let routing_policy = Some(RoutingPolicy::SingleClusterRouting(routing));
        Profile::from_message(&admin::AppProfile { routing_policy, ..Default::default() }).unwrap()
    };
    instances.alter(I, |instance| instance.put_profile("any", reads(false), false)).unwrap();
    assert_eq!(
        (used("any", Use::Write), used("any", Use::Transaction)),
        (Ok(()), Err(Code::FailedPrecondition))
    );
    let remove = |id: &str, ignores| instances.alter(I, |instance| instance.remove_profile(id, ignores));
    assert_eq!(remove("default", false).unwrap_err().code(), Code::FailedPrecondition);
    remove("default", true).unwrap();
    assert_eq!(used("", Use::Read), Err(Code::NotFound));
    let of_one = instances.alter(I, |instance| instance.remove_cluster("one")).unwrap_err();
    assert!(of_one.message().contains("last"), "{of_one}");
}

#[test]
fn backups_are_named_in_clusters_that_are_there_and_keep_them() {
    let dir = tempfile::tempdir().unwrap();
    let instances = opened(dir.path());
    let (tables, table) = (&instances.tables, format!("{I}/tables/t"));
    tables.create(&table, &admin::Table::default(), &[""; 0]).unwrap();
    let expire_us = crate::time::now_us() + 3_600_000_000;
    let make = |instance: &str, cluster: &str| {
        let name = format!("{instance}/clusters/{cluster}/backups/b");
        let new = NewBackup { expire_us, hot: false, hot_until_us: None };
        tables.create_backup(&name, &table, &new).map_err(|e| e.code())?;
        tables.delete_backup(&name, &Who::ANYONE).map_err(|e| e.code())
    };
    assert_eq!((make(I, "any"), first_cluster(tables, I).unwrap().as_str()), (Ok(()), CLUSTER));
    instances.alter(I, |of| of.add_cluster("a", Cluster::local())).unwrap();
    assert_eq!((make(I, "any"), first_cluster(tables, I).unwrap().as_str()), (Ok(()), "a"));
    instances.create(&request("other")).unwrap();
    let other = "projects/p/instances/other";
    assert_eq!((make(other, "one"), make(other, "two")), (Ok(()), Err(Code::NotFound)));
    assert_eq!(make("projects/p/instances/none", CLUSTER), Err(Code::NotFound));
    assert_eq!(make("projects/q/instances/none", "c"), Ok(()));
    assert_eq!(first_cluster(tables, other).unwrap(), "one");
    let source = format!("{other}/clusters/one/backups/b");
    let new = NewBackup { expire_us, hot: false, hot_until_us: None };
    tables.create_backup(&source, &table, &new).unwrap();
    let copy = |cluster: &str| {
        let name = format!("{other}/clusters/{cluster}/backups/copy");
        tables.copy_backup(&name, &source, expire_us, &Who::ANYONE).map(|_| ()).map_err(|e| e.code())
    };
    assert_eq!(copy("two"), Err(Code::NotFound));
    instances.alter(other, |of| of.add_cluster("two", Cluster::local())).unwrap();
    assert_eq!(copy("two"), Ok(()));
    let delete = |id: &str| instances.delete_cluster(other, id).map_err(|e| e.code());
    assert_eq!(
        (delete("one"), delete("two")),
        (Err(Code::FailedPrecondition), Err(Code::FailedPrecondition))
    );
    tables.delete_backup(&format!("{other}/clusters/two/backups/copy"), &Who::ANYONE).unwrap();
    // A deletion waits for a backup that is being made.
    let alone = tables.alone().unwrap();
    std::thread::scope(|scope| {
        let cluster = scope.spawn(|| delete("two"));
        let instance = scope.spawn(|| instances.delete(other).map_err(|e| e.code()));
        assert_eq!(cluster.join().unwrap(), Err(Code::Unavailable));
        assert_eq!(instance.join().unwrap(), Err(Code::Unavailable));
    });
    drop(alone);
    assert_eq!((delete("two"), make(other, "two")), (Ok(()), Err(Code::NotFound)));
    assert_eq!(instances.delete(other).unwrap_err().code(), Code::FailedPrecondition);
    tables.delete_backup(&source, &Who::ANYONE).unwrap();
    instances.delete(other).unwrap();
}

#[test]
fn what_makes_no_sense_of_an_instance_is_refused_by_its_field() {
    let mut instance = Instance::implied(I);
    let label = |key: &str, value: &str| admin::Instance {
        labels: [(key.to_string(), value.to_string())].into(),
        ..Default::default()
    };
    let labels = ["labels".to_string()];
    instance.update(&label("k-1", ""), &labels).unwrap();
    for (key, value) in [("", "v"), ("K", "v"), ("1", "v"), ("k", "V"), ("k", &"v".repeat(64)), ("a b", "")] {
        assert!(instance.update(&label(key, value), &labels).is_err(), "{key}={value}");
    }
    let named = |name: &str| admin::Instance { display_name: name.into(), ..Default::default() };
    for wrong in ["", "abc", &"n".repeat(31)] {
        assert!(instance.replace(&named(wrong)).unwrap_err().message().contains("display_name"));
    }
    let mask = ["create_time".to_string()];
    assert!(instance.update(&named("name"), &mask).unwrap_err().message().contains("create_time"));
    let odd = admin::Instance { r#type: 9, ..named("name") };
    assert!(instance.replace(&odd).unwrap_err().message().contains("type 9"));
    let tagged = admin::Instance { tags: [("a".to_string(), "b".to_string())].into(), ..named("name") };
    assert_eq!(instance.replace(&tagged).unwrap_err().code(), Code::Unimplemented);
    assert!(Instance::from_message("projects/p", &named("name"), &BTreeMap::new()).is_err());
}
