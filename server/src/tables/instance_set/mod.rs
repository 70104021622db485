//! The instances that were made or changed: names with settings, clusters and application profiles, each a
//! record as JSON in the engine family `tables`.
//!
//! Nobody has to make an instance: any that is named is there, with one cluster and one profile that allows
//! everything. The first change of such a one writes it down. Once one was made in a project, those are there
//! that were made or have tables, and no others.

use crate::names::{self, CLUSTER};
use crate::net::auth::{Scope, Who};
use crate::proto::admin;
use crate::status::status;
use crate::tables::clusters::Cluster;
use crate::tables::profiles::{Profile, Use};
use crate::tables::registry::Tables;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use siltstone::{Batch, Durability};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tonic::{Code, Status};

/// The prefix of records of instances.
const INSTANCE: &[u8] = b"instance/";
/// The prefix of notes of projects in which an instance was made.
const PROJECT: &[u8] = b"project/";
/// The profile that each instance has from the beginning, and the default of calls.
pub(crate) const PROFILE: &str = "default";

/// Instances that are written down, or projects that are noted, and those instances of a project; of an
/// instance its clusters, its profiles and the bytes of its record; at most.
const INSTANCES_MAX: usize = 1_000;
const PROJECT_INSTANCES_MAX: usize = 100;
const CLUSTERS_MAX: usize = 64;
const PROFILES_MAX: usize = 500;
const RECORD_MAX: usize = 1 << 20;
/// Labels of an instance, characters of each key and value, and their bytes, at most.
const LABELS_MAX: usize = 64;
const LABEL_MAX: usize = 63;
const LABEL_BYTES: usize = 128;
/// Characters of names that people read, and of ids.
const DISPLAY_NAME: std::ops::RangeInclusive<usize> = 4..=30;
const INSTANCE_ID_MAX: usize = 33;
const CLUSTER_ID_MAX: usize = 30;

/// An instance as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instance {
    display_name: String,
    #[serde(default)]
    is_development: bool,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// In microseconds since 1970; 0 where nobody has made it.
    #[serde(default)]
    created_us: u64,
    pub(crate) clusters: BTreeMap<String, Cluster>,
    pub(crate) profiles: BTreeMap<String, Profile>,
    /// Nobody has made or changed it.
    #[serde(skip)]
    is_implied: bool,
}

fn invalid(message: String) -> Status {
    Status::invalid_argument(message)
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Status> {
    let is_letter = |c: char| c.is_alphabetic() && !c.is_uppercase();
    let is_other = |c: char| is_letter(c) || c.is_numeric() || c == '_' || c == '-';
    let is_short = |text: &str| text.chars().count() <= LABEL_MAX && text.len() < LABEL_BYTES;
    if labels.len() > LABELS_MAX {
        return Err(invalid(format!("{} labels, the limit is {LABELS_MAX}", labels.len())));
    }
    let is_right = |(key, value): &(&String, &String)| {
        key.starts_with(is_letter)
            && key.chars().chain(value.chars()).all(is_other)
            && is_short(key)
            && is_short(value)
    };
    match labels.iter().find(|label| !is_right(label)) {
        None => Ok(()),
        Some((key, value)) => Err(invalid(format!(
            "labels: \"{key}\" = \"{value}\"; keys and values have up to {LABEL_MAX} lower-case letters, \
             digits, '_' and '-', a key begins with a letter"
        ))),
    }
}

impl Instance {
    /// An instance that nobody has made or changed.
    pub(crate) fn implied(name: &str) -> Self {
        let clusters = BTreeMap::from([(CLUSTER.to_string(), Cluster::local())]);
        Self {
            display_name: name.rsplit('/').next().unwrap_or(name).to_string(),
            profiles: [(PROFILE.to_string(), Profile::first(clusters.keys()))].into(),
            clusters,
            is_implied: true,
            ..Self::default()
        }
    }

    /// One that is to be made, of that project.
    pub(crate) fn from_message(
        project: &str,
        asked: &admin::Instance,
        clusters: &BTreeMap<String, admin::Cluster>,
    ) -> Result<Self, Status> {
        if clusters.is_empty() {
            return Err(invalid("clusters: an instance needs at least one".into()));
        }
        let mut instance = Self { created_us: crate::time::now_us(), ..Self::default() };
        for (id, cluster) in clusters {
            instance.add_cluster(id, Cluster::from_message(project, cluster)?)?;
        }
        instance.profiles.insert(PROFILE.to_string(), Profile::first(clusters.keys()));
        instance.replace(asked)?;
        Ok(instance)
    }

    /// Takes over all that can be changed.
    pub(crate) fn replace(&mut self, asked: &admin::Instance) -> Result<(), Status> {
        self.update(asked, &["display_name", "type", "labels"].map(String::from))
    }

    /// Takes over what the mask names.
    pub(crate) fn update(&mut self, asked: &admin::Instance, mask: &[String]) -> Result<(), Status> {
        use admin::instance::Type;
        if !asked.tags.is_empty() {
            return Err(Status::unimplemented("tags of an instance are not served"));
        }
        for path in mask {
            match path.as_str() {
                "display_name" => self.display_name.clone_from(&asked.display_name),
                "labels" => self.labels.clone_from(&asked.labels),
                "type" => match Type::try_from(asked.r#type) {
                    // Left as it is, and production in the beginning.
                    Ok(Type::Unspecified) => {}
                    Ok(kind) => self.is_development = kind == Type::Development,
                    Err(_) => {
                        return Err(invalid(format!("type {} of an instance is unknown", asked.r#type)));
                    }
                },
                other => {
                    return Err(invalid(format!(
                        "update_mask names \"{other}\"; of an instance display_name, type and labels can be \
                         changed"
                    )));
                }
            }
        }
        let characters = self.display_name.chars().count();
        if mask.iter().any(|path| path == "display_name") && !DISPLAY_NAME.contains(&characters) {
            let (least, most) = DISPLAY_NAME.into_inner();
            return Err(invalid(format!(
                "display_name has {characters} characters, it needs {least} to {most}"
            )));
        }
        check_labels(&self.labels)
    }

    pub(crate) fn add_cluster(&mut self, id: &str, cluster: Cluster) -> Result<(), Status> {
        names::new_id("cluster_id", id, CLUSTER_ID_MAX)?;
        if self.clusters.contains_key(id) {
            return Err(Status::already_exists(format!("cluster {id} exists")));
        }
        if self.clusters.len() >= CLUSTERS_MAX {
            return Err(Status::resource_exhausted(format!(
                "an instance has at most {CLUSTERS_MAX} clusters"
            )));
        }
        self.clusters.insert(id.to_string(), cluster);
        Ok(())
    }

    pub(crate) fn remove_cluster(&mut self, id: &str) -> Result<(), Status> {
        self.cluster(id)?;
        if self.clusters.len() == 1 {
            return Err(Status::failed_precondition("the last cluster of an instance cannot be deleted"));
        }
        if let Some((profile, _)) = self.profiles.iter().find(|(_, profile)| profile.routes_to(id)) {
            let message = format!("the app profile \"{profile}\" routes to the cluster {id}");
            return Err(Status::failed_precondition(message));
        }
        self.clusters.remove(id);
        Ok(())
    }

    pub(crate) fn cluster(&self, id: &str) -> Result<&Cluster, Status> {
        self.clusters.get(id).ok_or_else(|| Status::not_found(format!("no cluster {id} in the instance")))
    }

    pub(crate) fn cluster_mut(&mut self, id: &str) -> Result<&mut Cluster, Status> {
        self.clusters.get_mut(id).ok_or_else(|| Status::not_found(format!("no cluster {id} in the instance")))
    }

    pub(crate) fn profile(&self, id: &str) -> Result<&Profile, Status> {
        let missing = || Status::not_found(format!("no app profile \"{id}\" in the instance"));
        self.profiles.get(id).ok_or_else(missing)
    }

    /// Makes a profile of that id be this. Returns warnings as an error, unless the caller ignores them.
    pub(crate) fn put_profile(&mut self, id: &str, profile: Profile, ignores: bool) -> Result<(), Status> {
        profile.check(&self.clusters)?;
        if self.profiles.len() >= PROFILES_MAX && !self.profiles.contains_key(id) {
            return Err(Status::resource_exhausted(format!(
                "an instance has at most {PROFILES_MAX} app profiles"
            )));
        }
        let warning = profile.warning(id, self.profiles.get(id), &self.profiles);
        warn(warning.filter(|_| !ignores))?;
        self.profiles.insert(id.to_string(), profile);
        Ok(())
    }

    pub(crate) fn remove_profile(&mut self, id: &str, ignores: bool) -> Result<(), Status> {
        self.profile(id)?;
        let is_first =
            (id == PROFILE).then(|| "clients that name no app profile use \"default\"".to_string());
        warn(is_first.filter(|_| !ignores))?;
        self.profiles.remove(id);
        Ok(())
    }

    /// The message of a profile.
    pub(crate) fn profile_message(&self, instance: &str, id: &str) -> Result<admin::AppProfile, Status> {
        let mut message = self.profile(id)?.to_message(format!("{instance}/appProfiles/{id}"));
        if self.is_implied {
            message.etag.clear();
        }
        Ok(message)
    }

    /// The message of a cluster.
    pub(crate) fn cluster_message(&self, instance: &str, id: &str) -> Result<admin::Cluster, Status> {
        let name = format!("{instance}/clusters/{id}");
        Ok(self.cluster(id)?.to_message(names::project_of(instance), name))
    }

    pub(crate) fn to_message(&self, name: &str) -> admin::Instance {
        use admin::instance::Type;
        let kind = if self.is_development { Type::Development } else { Type::Production };
        admin::Instance {
            name: name.to_string(),
            display_name: self.display_name.clone(),
            state: admin::instance::State::Ready as i32,
            r#type: kind as i32,
            labels: self.labels.clone(),
            create_time: (self.created_us > 0).then(|| crate::time::timestamp(self.created_us)),
            ..admin::Instance::default()
        }
    }
}

/// Refuses what the caller has not thought over.
fn warn(warning: Option<String>) -> Result<(), Status> {
    let told = |why| Status::failed_precondition(format!("{why}; ignore_warnings does it nevertheless"));
    warning.map_or(Ok(()), |why| Err(told(why)))
}

/// All that is written down.
#[derive(Clone, Default)]
struct Known {
    instances: BTreeMap<String, Arc<Instance>>,
    /// Projects in which an instance was made. Where there are too many, one without instances makes room.
    projects: BTreeSet<String>,
}

impl Known {
    /// The instances that are written down of a project.
    fn of_project(&self, project: &str) -> usize {
        let begin = format!("{project}/instances/");
        let behind = self.instances.range(begin.clone()..);
        behind.take_while(|(name, _)| name.starts_with(&begin)).count()
    }
}

/// The instances.
pub(crate) struct Instances {
    tables: Arc<Tables>,
    known: ArcSwap<Known>,
    /// One change at a time.
    changing: Mutex<()>,
}

fn key(begin: &[u8], name: &str) -> Vec<u8> {
    [begin, name.as_bytes()].concat()
}

fn parse(name: &str, record: &[u8]) -> Result<Instance, Status> {
    serde_json::from_slice(record)
        .map_err(|e| Status::data_loss(format!("the record of instance {name}: {e}")))
}

/// An instance, if it was made or changed.
fn written(tables: &Tables, name: &str) -> Result<Option<Instance>, Status> {
    let record = tables.records.get(key(INSTANCE, name)).map_err(status)?;
    record.map(|record| parse(name, &record)).transpose()
}

/// Whether tables lie in an instance.
fn has_tables(tables: &Tables, instance: &str) -> bool {
    let begin = format!("{instance}/tables/");
    tables.all().range(begin.clone()..).next().is_some_and(|(name, _)| name.starts_with(&begin))
}

/// Whether backups may be named in that cluster: in any of an instance that nobody made. One lock orders
/// changes of the set of backups and deletions of clusters and instances.
///
/// # Errors
/// `NOT_FOUND`.
pub(crate) fn check_cluster(tables: &Tables, cluster: &str) -> Result<(), Status> {
    let (name, id) = names::within_instance(cluster, "clusters")?;
    match written(tables, name)? {
        Some(instance) if instance.created_us > 0 => return instance.cluster(id).map(|_| ()),
        Some(_) => return Ok(()),
        None => {}
    }
    let project = tables.records.get(key(PROJECT, names::project_of(name))).map_err(status)?;
    match project.is_none() || has_tables(tables, name) {
        true => Ok(()),
        false => Err(Status::not_found(format!("no instance {name}"))),
    }
}

/// The cluster in which the server names backups of an instance by itself.
pub(crate) fn first_cluster(tables: &Tables, instance: &str) -> Result<String, Status> {
    let first = written(tables, instance)?.and_then(|of| of.clusters.into_keys().next());
    Ok(first.unwrap_or_else(|| CLUSTER.to_string()))
}

impl Instances {
    /// The instances of a database.
    pub(crate) fn open(tables: Arc<Tables>) -> Result<Self, Status> {
        let mut known = Known::default();
        let name_of = |key: &[u8], begin: &[u8]| String::from_utf8_lossy(&key[begin.len()..]).into_owned();
        for record in tables.records.scan_prefix(INSTANCE) {
            let record = record.map_err(status)?;
            let name = name_of(&record.key, INSTANCE);
            let instance = parse(&name, &record.value)?;
            known.instances.insert(name, Arc::new(instance));
        }
        for note in tables.records.scan_prefix(PROJECT) {
            known.projects.insert(name_of(&note.map_err(status)?.key, PROJECT));
        }
        Ok(Self { tables, known: ArcSwap::from_pointee(known), changing: Mutex::default() })
    }

    /// The instance of that name, as far as the caller may know of it.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(crate) fn find(&self, who: &Who, name: &str) -> Result<Arc<Instance>, Status> {
        names::instance(name)?;
        let known = self.known.load();
        if let Some(instance) = known.instances.get(name)
            && who.sees_of(Scope::Instance(name))
        {
            return Ok(instance.clone());
        }
        let is_there = !known.projects.contains(names::project_of(name))
            || self.has_table(name, |table| who.sees(table));
        match is_there {
            true => Ok(Arc::new(Instance::implied(name))),
            false => Err(Status::not_found(format!("no instance {name}"))),
        }
    }

    /// Instances whose names begin so, from that one on, and that were made or changed or have tables, as far
    /// as the caller may know of them.
    pub(crate) fn all(&self, who: &Who, begin: &str, from: &str) -> BTreeMap<String, Arc<Instance>> {
        let (known, first) = (self.known.load(), begin.max(from));
        let kept = known.instances.range(first.to_string()..);
        let kept = kept.take_while(|(name, _)| name.starts_with(begin));
        let seen = kept.filter(|(name, _)| who.sees_of(Scope::Instance(name)));
        let mut all: BTreeMap<_, _> = seen.map(|(name, instance)| (name.clone(), instance.clone())).collect();
        let tables = self.tables.all();
        // The tables of an instance from there on are behind its name, and so are some of instances before
        // it.
        let named = tables.range(first.to_string()..).map(|(table, _)| table);
        for table in named.take_while(|table| table.starts_with(begin)) {
            let name = names::instance_of(table);
            if name >= first && !all.contains_key(name) && who.sees(table) {
                all.insert(name.to_string(), Arc::new(Instance::implied(name)));
            }
        }
        all
    }

    /// Whether one of an instance's tables is such a one.
    fn has_table(&self, instance: &str, is_such: impl Fn(&str) -> bool) -> bool {
        let begin = format!("{instance}/tables/");
        let tables = self.tables.all();
        let mut names = tables.range(begin.clone()..).take_while(|(name, _)| name.starts_with(&begin));
        names.any(|(name, _)| is_such(name))
    }

    /// The names of an instance's tables.
    fn tables_of(&self, instance: &str) -> Vec<String> {
        let begin = format!("{instance}/tables/");
        let tables = self.tables.all();
        let names = tables.range(begin.clone()..).map(|(name, _)| name);
        names.take_while(|name| name.starts_with(&begin)).cloned().collect()
    }

    /// Whether a call may be made with a profile, where its table's instance was made or changed.
    ///
    /// # Errors
    /// `NOT_FOUND` where there is no such profile, `FAILED_PRECONDITION` where it forbids such calls.
    pub(crate) fn check_use(&self, table: &str, profile: &str, what: Use) -> Result<(), Status> {
        let known = self.known.load();
        if known.instances.is_empty() {
            return Ok(());
        }
        let Some(instance) = known.instances.get(names::instance_of(table)) else { return Ok(()) };
        let id = if profile.is_empty() { PROFILE } else { profile };
        instance.profile(id)?.check_use(id, what)
    }

    /// Changes what is written down; all of it or nothing.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Known, &mut Batch) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let _changing = self.changing.lock();
        let (mut known, mut batch) = (Known::clone(&self.known.load()), Batch::new());
        let done = change(&mut known, &mut batch)?;
        self.tables.db.write_with(&batch, Durability::Sync).map_err(status)?;
        self.known.store(Arc::new(known));
        Ok(done)
    }

    fn put(
        &self,
        (known, batch): (&mut Known, &mut Batch),
        name: &str,
        instance: Instance,
    ) -> Result<Arc<Instance>, Status> {
        let before = known.instances.get(name);
        if before.is_none() {
            let project = names::project_of(name);
            if known.of_project(project) >= PROJECT_INSTANCES_MAX {
                let message =
                    format!("{project} has {PROJECT_INSTANCES_MAX} instances, the most of a project");
                return Err(Status::resource_exhausted(message));
            }
            if known.instances.len() >= INSTANCES_MAX {
                let message = format!("there are {INSTANCES_MAX} instances, the most");
                return Err(Status::resource_exhausted(message));
            }
        }
        let record_of = |of: &Instance| serde_json::to_vec(of).map_err(|e| Status::internal(e.to_string()));
        let record = record_of(&instance)?;
        if record.len() > RECORD_MAX {
            // One that has more already may get smaller.
            let had = before.map_or(Ok(0), |before| record_of(before).map(|record| record.len()))?;
            if record.len() >= had {
                return Err(Status::resource_exhausted(format!(
                    "labels, clusters and app profiles of the instance take {} bytes, the limit is {RECORD_MAX}",
                    record.len()
                )));
            }
        }
        batch.put(&self.tables.records, key(INSTANCE, name), record);
        let instance = Arc::new(instance);
        known.instances.insert(name.to_string(), instance.clone());
        Ok(instance)
    }

    /// Makes an instance; its name, and what it is like.
    pub(crate) fn create(
        &self,
        request: &admin::CreateInstanceRequest,
    ) -> Result<(String, Arc<Instance>), Status> {
        let (project, id) = (&request.parent, &request.instance_id);
        let name = format!("{project}/instances/{id}");
        names::new_id("instance_id", id, INSTANCE_ID_MAX)?;
        names::instance(&name)?;
        let asked = request.instance.clone().unwrap_or_default();
        let instance = Instance::from_message(project, &asked, &request.clusters)?;
        let made = self.change(|known, batch| {
            if known.instances.contains_key(&name) || self.has_table(&name, |_| true) {
                return Err(Status::already_exists(format!("instance {name} exists")));
            }
            if !known.projects.contains(project) {
                // Where all have some, there is no room for another instance either.
                if known.projects.len() >= INSTANCES_MAX {
                    let spare = known.projects.iter().find(|noted| known.of_project(noted) == 0).cloned();
                    if let Some(spare) = spare {
                        batch.delete(&self.tables.records, key(PROJECT, &spare));
                        known.projects.remove(&spare);
                    }
                }
                batch.put(&self.tables.records, key(PROJECT, project), []);
                known.projects.insert(project.clone());
            }
            self.put((known, batch), &name, instance)
        })?;
        Ok((name, made))
    }

    /// Changes an instance, which is written down from then on.
    pub(crate) fn alter<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Instance) -> Result<T, Status>,
    ) -> Result<(Arc<Instance>, T), Status> {
        self.change(|known, batch| {
            let found = self.find(&Who::ANYONE, name)?;
            let mut instance = Instance::clone(&found);
            instance.is_implied = false;
            let done = change(&mut instance)?;
            Ok((self.put((known, batch), name, instance)?, done))
        })
    }

    /// Deletes an instance with its tables.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Status> {
        names::instance(name)?;
        let tables = self.tables_of(name);
        if tables.is_empty() && !self.known.load().instances.contains_key(name) {
            return Err(Status::not_found(format!("no instance {name}")));
        }
        // Nobody makes a backup in it meanwhile.
        let _alone = self.tables.alone()?;
        self.refuse_backups(name)?;
        for table in &tables {
            self.tables.get(table).map_or(Ok(()), |now| now.now().schema.refuse_protected(table))?;
        }
        for table in &tables {
            match self.tables.delete(table) {
                Err(e) if e.code() != Code::NotFound => return Err(e),
                _ => {}
            }
        }
        self.change(|known, batch| {
            batch.delete(&self.tables.records, key(INSTANCE, name));
            known.instances.remove(name);
            Ok(())
        })
    }

    /// Deletes a cluster of an instance.
    pub(crate) fn delete_cluster(&self, instance: &str, id: &str) -> Result<(), Status> {
        // Nobody makes a backup in it meanwhile.
        let _alone = self.tables.alone()?;
        self.refuse_backups(&format!("{instance}/clusters/{id}"))?;
        self.alter(instance, |of| of.remove_cluster(id)).map(|_| ())
    }

    /// Refuses to delete an instance or a cluster that has backups. The caller is alone.
    fn refuse_backups(&self, of: &str) -> Result<(), Status> {
        match self.tables.known_backups.any(&format!("{of}/"))? {
            Some(backup) => Err(Status::failed_precondition(format!(
                "{of} has backups, such as {backup}: delete them first"
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
