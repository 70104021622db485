//! Application profiles as settings: one process serves all clusters, so routing, affinity and priority are
//! stored and returned. But what a profile forbids is refused: transactions on single rows where it does not
//! allow them, writes where it is for reads alone.

use crate::proto::admin::{self, app_profile};
use crate::tables::clusters::Cluster;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tonic::Status;

/// Bytes of a description, and clusters that a profile names, at most.
const DESCRIPTION_MAX: usize = 1_024;
const CLUSTERS_MAX: usize = 64;

/// A profile as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    #[serde(default)]
    description: String,
    routing: Routing,
    /// None where nobody has said it.
    #[serde(default)]
    isolation: Option<Isolation>,
}

/// The routing of its requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Routing {
    Single { cluster: String, transactions: bool },
    Any { clusters: Vec<String>, row_affinity: bool },
}

/// Its isolation from others: a priority, or reads alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Isolation {
    Low,
    Medium,
    High,
    DataBoost,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    /// It reads a row and writes it.
    Transaction,
}

fn invalid(message: impl Into<String>) -> Status {
    Status::invalid_argument(message)
}

impl Routing {
    fn from_message(asked: &admin::AppProfile) -> Result<Self, Status> {
        use app_profile::RoutingPolicy;
        match &asked.routing_policy {
            Some(RoutingPolicy::SingleClusterRouting(of)) => Ok(Self::Single {
                cluster: of.cluster_id.clone(),
                transactions: of.allow_transactional_writes,
            }),
            Some(RoutingPolicy::MultiClusterRoutingUseAny(of)) => {
                Ok(Self::Any { clusters: of.cluster_ids.clone(), row_affinity: of.affinity.is_some() })
            }
            None => Err(invalid(
                "routing_policy: single_cluster_routing or multi_cluster_routing_use_any is needed",
            )),
        }
    }

    fn to_message(&self) -> app_profile::RoutingPolicy {
        use app_profile::multi_cluster_routing_use_any::{Affinity, RowAffinity};
        use app_profile::{MultiClusterRoutingUseAny, RoutingPolicy, SingleClusterRouting};
        match self {
            Self::Single { cluster, transactions } => {
                RoutingPolicy::SingleClusterRouting(SingleClusterRouting {
                    cluster_id: cluster.clone(),
                    allow_transactional_writes: *transactions,
                })
            }
            Self::Any { clusters, row_affinity } => {
                RoutingPolicy::MultiClusterRoutingUseAny(MultiClusterRoutingUseAny {
                    cluster_ids: clusters.clone(),
                    affinity: row_affinity.then_some(Affinity::RowAffinity(RowAffinity {})),
                })
            }
        }
    }

    /// The clusters that it names.
    fn clusters(&self) -> &[String] {
        match self {
            Self::Single { cluster, .. } => std::slice::from_ref(cluster),
            Self::Any { clusters, .. } => clusters,
        }
    }
}

impl Isolation {
    fn of_priority(number: i32) -> Result<Self, Status> {
        use app_profile::Priority;
        match Priority::try_from(number) {
            Ok(Priority::Low) => Ok(Self::Low),
            Ok(Priority::Medium) => Ok(Self::Medium),
            Ok(Priority::High | Priority::Unspecified) => Ok(Self::High),
            Err(_) => Err(invalid(format!("priority {number} is unknown"))),
        }
    }

    #[expect(deprecated, reason = "older clients send the priority alone")]
    fn from_message(asked: &admin::AppProfile) -> Result<Self, Status> {
        use app_profile::data_boost_isolation_read_only::ComputeBillingOwner;
        match &asked.isolation {
            None => Ok(Self::High),
            Some(app_profile::Isolation::Priority(priority)) => Self::of_priority(*priority),
            Some(app_profile::Isolation::StandardIsolation(of)) => Self::of_priority(of.priority),
            Some(app_profile::Isolation::DataBoostIsolationReadOnly(of)) => {
                match of.compute_billing_owner == Some(ComputeBillingOwner::HostPays as i32) {
                    true => Ok(Self::DataBoost),
                    false => Err(invalid("compute_billing_owner of an app profile must be HOST_PAYS")),
                }
            }
        }
    }

    fn to_message(self) -> app_profile::Isolation {
        use app_profile::data_boost_isolation_read_only::ComputeBillingOwner;
        use app_profile::{DataBoostIsolationReadOnly, Priority, StandardIsolation};
        let standard = |priority: Priority| {
            app_profile::Isolation::StandardIsolation(StandardIsolation { priority: priority as i32 })
        };
        match self {
            Self::Low => standard(Priority::Low),
            Self::Medium => standard(Priority::Medium),
            Self::High => standard(Priority::High),
            Self::DataBoost => {
                app_profile::Isolation::DataBoostIsolationReadOnly(DataBoostIsolationReadOnly {
                    compute_billing_owner: Some(ComputeBillingOwner::HostPays as i32),
                })
            }
        }
    }
}

impl Profile {
    /// The one that an instance with these clusters has from the beginning: with one cluster it allows
    /// everything.
    pub(crate) fn first<'a>(mut clusters: impl Iterator<Item = &'a String>) -> Self {
        let routing = match (clusters.next(), clusters.next()) {
            (Some(one), None) => Routing::Single { cluster: one.clone(), transactions: true },
            _ => Routing::Any { clusters: Vec::new(), row_affinity: false },
        };
        Self { description: String::new(), routing, isolation: None }
    }

    /// One that is to be made.
    pub(crate) fn from_message(asked: &admin::AppProfile) -> Result<Self, Status> {
        Ok(Self {
            description: asked.description.clone(),
            routing: Routing::from_message(asked)?,
            isolation: Some(Isolation::from_message(asked)?),
        })
    }

    /// Takes over what the mask names; all of it where there is no mask.
    pub(crate) fn update(
        &mut self,
        asked: &admin::AppProfile,
        mask: Option<&prost_types::FieldMask>,
    ) -> Result<(), Status> {
        let Some(mask) = mask else {
            *self = Self::from_message(asked)?;
            return Ok(());
        };
        if mask.paths.is_empty() {
            return Err(invalid("update_mask names no field"));
        }
        for path in &mask.paths {
            match path.as_str() {
                "description" => self.description.clone_from(&asked.description),
                "single_cluster_routing" | "multi_cluster_routing_use_any" => {
                    let routing = Routing::from_message(asked)?;
                    if (path == "single_cluster_routing") != matches!(routing, Routing::Single { .. }) {
                        return Err(invalid(format!(
                            "update_mask names \"{path}\", the app profile has another routing"
                        )));
                    }
                    self.routing = routing;
                }
                "priority"
                | "standard_isolation"
                | "standard_isolation.priority"
                | "data_boost_isolation_read_only" => self.isolation = Some(Isolation::from_message(asked)?),
                other => {
                    return Err(invalid(format!(
                        "update_mask names \"{other}\"; of an app profile can be changed: description, \
                         single_cluster_routing, multi_cluster_routing_use_any, standard_isolation and \
                         data_boost_isolation_read_only"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether it fits an instance with these clusters.
    pub(crate) fn check(&self, clusters: &BTreeMap<String, Cluster>) -> Result<(), Status> {
        if self.description.len() > DESCRIPTION_MAX {
            let bytes = self.description.len();
            return Err(invalid(format!("description has {bytes} bytes, the limit is {DESCRIPTION_MAX}")));
        }
        let named = self.routing.clusters();
        if named.len() > CLUSTERS_MAX {
            return Err(invalid(format!(
                "cluster_ids has {} clusters, the limit is {CLUSTERS_MAX}",
                named.len()
            )));
        }
        if let Some(unknown) = named.iter().find(|id| !clusters.contains_key(*id)) {
            return Err(invalid(format!("cluster_id \"{unknown}\" is no cluster of the instance")));
        }
        match (&self.routing, self.isolation) {
            (Routing::Any { .. }, Some(Isolation::DataBoost)) => {
                Err(invalid("data_boost_isolation_read_only needs single_cluster_routing"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it names that cluster.
    pub(crate) fn routes_to(&self, cluster: &str) -> bool {
        self.routing.clusters().iter().any(|id| id == cluster)
    }

    /// Whether calls of that kind may be made with it.
    fn permits(&self, what: Use) -> bool {
        let reads_only = self.isolation == Some(Isolation::DataBoost);
        match what {
            Use::Read => true,
            Use::Write => !reads_only,
            Use::Transaction => {
                !reads_only && matches!(self.routing, Routing::Single { transactions: true, .. })
            }
        }
    }

    /// Whether a call may be made with it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`.
    pub(crate) fn check_use(&self, id: &str, what: Use) -> Result<(), Status> {
        match (self.permits(what), what) {
            (true, _) => Ok(()),
            (false, Use::Transaction) => Err(Status::failed_precondition(format!(
                "Single-row transactions are not allowed by the app profile \"{id}\""
            ))),
            (false, _) => {
                Err(Status::failed_precondition(format!("the app profile \"{id}\" is for reading only")))
            }
        }
    }

    /// The warnings about changing a profile of that id to this one, beside these others.
    pub(crate) fn warning(
        &self,
        id: &str,
        before: Option<&Self>,
        others: &BTreeMap<String, Self>,
    ) -> Option<String> {
        if before.is_some_and(|before| before.permits(Use::Transaction)) && !self.permits(Use::Transaction) {
            return Some(format!("clients that use \"{id}\" may rely on single-row transactions"));
        }
        let Routing::Single { cluster, transactions: true } = &self.routing else { return None };
        let elsewhere = others.iter().find(|(other, profile)| {
            *other != id && profile.permits(Use::Transaction) && !profile.routes_to(cluster)
        });
        elsewhere.map(|(other, _)| {
            format!("\"{other}\" allows single-row transactions in another cluster than {cluster}")
        })
    }

    /// The etag, which differs if the profile has changed.
    pub(crate) fn etag(&self) -> String {
        crate::names::fingerprint(&serde_json::to_vec(self).unwrap_or_default())
    }

    pub(crate) fn to_message(&self, name: String) -> admin::AppProfile {
        admin::AppProfile {
            name,
            etag: self.etag(),
            description: self.description.clone(),
            routing_policy: Some(self.routing.to_message()),
            isolation: self.isolation.map(Isolation::to_message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use app_profile::{MultiClusterRoutingUseAny, RoutingPolicy, SingleClusterRouting, StandardIsolation};

    fn single(cluster: &str, transactions: bool) -> admin::AppProfile {
        let (cluster_id, allow_transactional_writes) = (cluster.to_string(), transactions);
        let routing = SingleClusterRouting { cluster_id, allow_transactional_writes };
        admin::AppProfile {
            routing_policy: Some(RoutingPolicy::SingleClusterRouting(routing)),
            ..Default::default()
        }
    }

    fn any(clusters: &[&str]) -> admin::AppProfile {
        use app_profile::multi_cluster_routing_use_any::{Affinity, RowAffinity};
        let routing = MultiClusterRoutingUseAny {
            cluster_ids: clusters.iter().map(ToString::to_string).collect(),
            affinity: Some(Affinity::RowAffinity(RowAffinity {})),
        };
        let routing_policy = Some(RoutingPolicy::MultiClusterRoutingUseAny(routing));
        admin::AppProfile { routing_policy, ..Default::default() }
    }

    fn mask(path: &str) -> Option<prost_types::FieldMask> {
        Some(prost_types::FieldMask { paths: vec![path.to_string()] })
    }

    fn of(asked: &admin::AppProfile) -> Profile {
        Profile::from_message(asked).unwrap()
    }

    #[test]
    fn a_profile_is_told_as_it_was_made_and_its_priority_is_high_unless_it_says_another() {
        for asked in [single("a", true), any(&["a"])] {
            let told = of(&asked).to_message("n".into());
            assert_eq!(told.routing_policy, asked.routing_policy);
            let high = app_profile::Priority::High as i32;
            let isolation = app_profile::Isolation::StandardIsolation(StandardIsolation { priority: high });
            assert_eq!((told.name.as_str(), told.isolation), ("n", Some(isolation)));
            assert_eq!(of(&told), of(&asked), "what is told can be sent");
        }
        assert!(Profile::from_message(&admin::AppProfile::default()).is_err());
        let odd = app_profile::Isolation::StandardIsolation(StandardIsolation { priority: 9 });
        let odd = admin::AppProfile { isolation: Some(odd), ..single("a", true) };
        assert!(Profile::from_message(&odd).unwrap_err().message().contains("priority 9"));
    }

    #[test]
    fn an_update_changes_what_its_mask_names_and_an_etag_follows() {
        let mut profile = of(&single("a", true));
        let before = profile.etag();
        let asked = admin::AppProfile { description: "new".into(), ..any(&[]) };
        profile.update(&asked, mask("description").as_ref()).unwrap();
        assert!(
            profile.description == "new" && profile.permits(Use::Transaction) && profile.etag() != before
        );
        profile.update(&any(&[]), mask("multi_cluster_routing_use_any").as_ref()).unwrap();
        assert!(profile.description == "new" && !profile.permits(Use::Transaction));
        profile.update(&single("a", true), None).unwrap();
        assert_eq!((profile.description.as_str(), profile.etag()), ("", before));
        for wrong in ["single_cluster_routing", "etag", "other", ""] {
            assert!(profile.update(&any(&[]), mask(wrong).as_ref()).is_err(), "{wrong}");
        }
        let empty = prost_types::FieldMask { paths: Vec::new() };
        assert!(profile.update(&any(&[]), Some(&empty)).is_err());
    }

    #[test]
    fn a_profile_names_clusters_that_are_there_and_warns_of_transactions_in_two() {
        let clusters = BTreeMap::from([("a".to_string(), Cluster::local())]);
        assert!(of(&single("a", true)).check(&clusters).is_ok() && of(&any(&[])).check(&clusters).is_ok());
        for wrong in [single("b", true), single("", true), any(&["a", "b"])] {
            assert!(of(&wrong).check(&clusters).is_err());
        }
        let others = BTreeMap::from([("one".to_string(), of(&single("a", true)))]);
        let warning = |asked: &admin::AppProfile, id: &str| of(asked).warning(id, None, &others);
        assert!(warning(&single("b", true), "two").unwrap().contains("one"));
        assert_eq!(warning(&single("b", true), "one"), None, "of itself");
        assert_eq!(warning(&single("a", true), "two"), None);
        assert_eq!(warning(&single("b", false), "two"), None);
        let before = of(&single("a", true));
        assert!(of(&any(&[])).warning("one", Some(&before), &BTreeMap::new()).is_some());
    }
}
