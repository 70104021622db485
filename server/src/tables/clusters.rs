//! Clusters as settings: one process serves all of them, so their nodes, zones and disks are stored and
//! returned, and have no effect.

use crate::proto::admin::{self, cluster::Config, cluster::NodeScalingFactor};
use serde::{Deserialize, Serialize};
use tonic::Status;

/// Bytes of the name of a zone, at most.
const ZONE_MAX: usize = 63;
/// Where a cluster is whose instance was not created.
const LOCAL: &str = "local";

/// A cluster as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    zone: String,
    nodes: i32,
    /// The number of `NodeScalingFactor`.
    #[serde(default)]
    scaling: i32,
    #[serde(default)]
    is_hdd: bool,
    #[serde(default)]
    autoscaling: Option<Autoscaling>,
}

/// Bounds between which the service would choose the number of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Autoscaling {
    min_nodes: i32,
    max_nodes: i32,
    cpu_percent: i32,
    storage_gib: i32,
}

fn invalid(message: String) -> Status {
    Status::invalid_argument(message)
}

impl Autoscaling {
    fn of(asked: &admin::Cluster) -> Option<Self> {
        let Some(Config::ClusterConfig(config)) = &asked.config else { return None };
        let asked = config.cluster_autoscaling_config?;
        let (limits, targets) =
            (asked.autoscaling_limits.unwrap_or_default(), asked.autoscaling_targets.unwrap_or_default());
        Some(Self {
            min_nodes: limits.min_serve_nodes,
            max_nodes: limits.max_serve_nodes,
            cpu_percent: targets.cpu_utilization_percent,
            storage_gib: targets.storage_utilization_gib_per_node,
        })
    }

    fn to_message(self) -> Config {
        let limits =
            admin::AutoscalingLimits { min_serve_nodes: self.min_nodes, max_serve_nodes: self.max_nodes };
        let targets = admin::AutoscalingTargets {
            cpu_utilization_percent: self.cpu_percent,
            storage_utilization_gib_per_node: self.storage_gib,
        };
        let config = admin::cluster::ClusterAutoscalingConfig {
            autoscaling_limits: Some(limits),
            autoscaling_targets: Some(targets),
        };
        Config::ClusterConfig(admin::cluster::ClusterConfig { cluster_autoscaling_config: Some(config) })
    }

    /// Checks it, and gives what is left out its default.
    fn settle(&mut self, is_hdd: bool) -> Result<(), Status> {
        let (min, max) = (self.min_nodes, self.max_nodes);
        if min < 1 || max < min || i64::from(max) > 10 * i64::from(min) {
            return Err(invalid(format!(
                "autoscaling_limits: min_serve_nodes is {min}, max_serve_nodes {max}; the first is at least 1, \
                 the second between that and ten times as many"
            )));
        }
        if !(10..=80).contains(&self.cpu_percent) {
            let cpu = self.cpu_percent;
            return Err(invalid(format!("cpu_utilization_percent is {cpu}; it is 10 to 80")));
        }
        let (least, most) = if is_hdd { (8_192, 16_384) } else { (2_560, 5_120) };
        if self.storage_gib == 0 {
            self.storage_gib = least;
        }
        match (least..=most).contains(&self.storage_gib) {
            true => Ok(()),
            false => Err(invalid(format!(
                "storage_utilization_gib_per_node is {}; it is {least} to {most}",
                self.storage_gib
            ))),
        }
    }
}

impl Cluster {
    /// The cluster of an instance that was not created.
    pub(crate) fn local() -> Self {
        Self { zone: LOCAL.to_string(), nodes: 1, scaling: 0, is_hdd: false, autoscaling: None }
    }

    /// One that is to be made, of that project.
    pub(crate) fn from_message(project: &str, asked: &admin::Cluster) -> Result<Self, Status> {
        let zone = asked.location.strip_prefix(project).and_then(|rest| rest.strip_prefix("/locations/"));
        let zone = zone.filter(|zone| (1..=ZONE_MAX).contains(&zone.len()) && !zone.contains('/'));
        let zone = zone.ok_or_else(|| {
            invalid(format!("location \"{}\" of a cluster is not {project}/locations/ZONE", asked.location))
        })?;
        if asked.encryption_config.as_ref().is_some_and(|of| !of.kms_key_name.is_empty()) {
            return Err(Status::unimplemented("encryption_config.kms_key_name of a cluster is not served"));
        }
        let scaling = NodeScalingFactor::try_from(asked.node_scaling_factor)
            .map_err(|_| invalid(format!("node_scaling_factor {} is unknown", asked.node_scaling_factor)))?;
        let storage = admin::StorageType::try_from(asked.default_storage_type).map_err(|_| {
            invalid(format!("default_storage_type {} is unknown", asked.default_storage_type))
        })?;
        let mut cluster = Self {
            zone: zone.to_string(),
            nodes: asked.serve_nodes,
            scaling: scaling as i32,
            is_hdd: storage == admin::StorageType::Hdd,
            autoscaling: Autoscaling::of(asked),
        };
        cluster.settle()?;
        Ok(cluster)
    }

    /// Checks it, and gives what is left out its default.
    fn settle(&mut self) -> Result<(), Status> {
        let step = if self.scaling == NodeScalingFactor::NodeScalingFactor2x as i32 { 2 } else { 1 };
        if let Some(autoscaling) = &mut self.autoscaling {
            autoscaling.settle(self.is_hdd)?;
            if autoscaling.min_nodes % step != 0 || autoscaling.max_nodes % step != 0 {
                return Err(invalid(
                    "autoscaling_limits: with a node_scaling_factor of 2 nodes are even".into(),
                ));
            }
            self.nodes = self.nodes.clamp(autoscaling.min_nodes, autoscaling.max_nodes);
        }
        if self.nodes == 0 {
            self.nodes = step;
        }
        match self.nodes > 0 && self.nodes % step == 0 {
            true => Ok(()),
            false => Err(invalid(format!("serve_nodes is {}; it is a multiple of {step}", self.nodes))),
        }
    }

    /// Takes over what the mask names.
    pub(crate) fn update(&mut self, asked: &admin::Cluster, mask: &[String]) -> Result<(), Status> {
        let given = Autoscaling::of(asked);
        for path in mask {
            if path == "serve_nodes" {
                self.nodes = asked.serve_nodes;
                continue;
            }
            let within = path.strip_prefix("cluster_config");
            let within = within.map(|rest| rest.strip_prefix(".cluster_autoscaling_config").unwrap_or(rest));
            let of = given.unwrap_or_default();
            let mine = || self.autoscaling.unwrap_or_default();
            self.autoscaling = match within {
                Some("") => given,
                Some(".autoscaling_limits") => {
                    Some(Autoscaling { min_nodes: of.min_nodes, max_nodes: of.max_nodes, ..mine() })
                }
                Some(".autoscaling_limits.min_serve_nodes") => {
                    Some(Autoscaling { min_nodes: of.min_nodes, ..mine() })
                }
                Some(".autoscaling_limits.max_serve_nodes") => {
                    Some(Autoscaling { max_nodes: of.max_nodes, ..mine() })
                }
                Some(".autoscaling_targets") => {
                    Some(Autoscaling { cpu_percent: of.cpu_percent, storage_gib: of.storage_gib, ..mine() })
                }
                Some(".autoscaling_targets.cpu_utilization_percent") => {
                    Some(Autoscaling { cpu_percent: of.cpu_percent, ..mine() })
                }
                Some(".autoscaling_targets.storage_utilization_gib_per_node") => {
                    Some(Autoscaling { storage_gib: of.storage_gib, ..mine() })
                }
                _ => {
                    return Err(invalid(format!(
                        "update_mask names \"{path}\"; of a cluster serve_nodes and \
                         cluster_config.cluster_autoscaling_config can be changed"
                    )));
                }
            };
        }
        self.settle()
    }

    /// Takes over all that can be changed, as UpdateCluster does: the number of nodes. What is said beside it
    /// must be as it is.
    pub(crate) fn replace(&mut self, project: &str, asked: &admin::Cluster) -> Result<(), Status> {
        let now = self.to_message(project, asked.name.clone());
        let other = [
            ("location", !asked.location.is_empty() && asked.location != now.location),
            (
                "default_storage_type",
                asked.default_storage_type != 0 && asked.default_storage_type != now.default_storage_type,
            ),
            (
                "node_scaling_factor",
                asked.node_scaling_factor != 0 && asked.node_scaling_factor != now.node_scaling_factor,
            ),
            ("cluster_config", asked.config.is_some() && asked.config != now.config),
            (
                "encryption_config",
                asked.encryption_config.as_ref().is_some_and(|of| !of.kms_key_name.is_empty()),
            ),
        ];
        if let Some((field, _)) = other.iter().find(|(_, differs)| *differs) {
            return Err(invalid(format!("{field} of a cluster cannot be changed by UpdateCluster")));
        }
        self.nodes = asked.serve_nodes;
        self.settle()
    }

    pub(crate) fn to_message(&self, project: &str, name: String) -> admin::Cluster {
        let storage = if self.is_hdd { admin::StorageType::Hdd } else { admin::StorageType::Ssd };
        admin::Cluster {
            name,
            location: format!("{project}/locations/{}", self.zone),
            state: admin::cluster::State::Ready as i32,
            serve_nodes: self.nodes,
            node_scaling_factor: self.scaling,
            default_storage_type: storage as i32,
            encryption_config: None,
            config: self.autoscaling.map(Autoscaling::to_message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(nodes: i32, autoscaling: Option<(i32, i32, i32)>) -> admin::Cluster {
        let config = autoscaling.map(|(min_nodes, max_nodes, cpu_percent)| {
            Autoscaling { min_nodes, max_nodes, cpu_percent, storage_gib: 0 }.to_message()
        });
        let location = "projects/p/locations/zone".into();
        admin::Cluster { location, serve_nodes: nodes, config, ..Default::default() }
    }

    fn made(asked: &admin::Cluster) -> Result<Cluster, Status> {
        Cluster::from_message("projects/p", asked)
    }

    fn mask(paths: &[&str]) -> Vec<String> {
        paths.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cluster_has_nodes_or_limits_of_them() {
        let mut cluster = made(&asked(0, Some((3, 4, 60)))).unwrap();
        let shown = cluster.to_message("projects/p", "n".into());
        assert_eq!((shown.serve_nodes, &*shown.location), (3, "projects/p/locations/zone"));
        let of = |cluster: &Cluster| cluster.autoscaling.unwrap();
        assert_eq!(of(&cluster).storage_gib, 2_560);
        // As clients end autoscaling, and begin it anew.
        let autoscaling = "cluster_config.cluster_autoscaling_config";
        cluster.update(&asked(1, None), &mask(&["serve_nodes", autoscaling])).unwrap();
        assert!(cluster.nodes == 1 && cluster.autoscaling.is_none());
        cluster.update(&asked(0, Some((3, 4, 80))), &mask(&[autoscaling])).unwrap();
        assert_eq!((cluster.nodes, of(&cluster).cpu_percent), (3, 80));
        let limit = format!("{autoscaling}.autoscaling_limits.max_serve_nodes");
        cluster.update(&asked(0, Some((7, 5, 0))), &[limit]).unwrap();
        assert_eq!((of(&cluster).min_nodes, of(&cluster).max_nodes, of(&cluster).cpu_percent), (3, 5, 80));
        for wrong in ["location", "cluster_config.other", "cluster_configx", "name", ""] {
            let refused = cluster.update(&asked(1, None), &mask(&[wrong])).unwrap_err();
            assert!(refused.message().contains(&format!("\"{wrong}\"")), "{refused}");
        }
        cluster.autoscaling = None;
        cluster.replace("projects/p", &asked(5, None)).unwrap();
        assert_eq!(cluster.nodes, 5);
        let moved = admin::Cluster { location: "projects/p/locations/other".into(), ..asked(5, None) };
        assert!(cluster.replace("projects/p", &moved).unwrap_err().message().contains("location"));
    }

    #[test]
    fn what_makes_no_sense_of_a_cluster_is_refused_by_its_field() {
        use admin::cluster::EncryptionConfig;
        let plain = || asked(1, None);
        let key = EncryptionConfig { kms_key_name: "k".into() };
        for (wrong, field) in [
            (admin::Cluster { location: "zone".into(), ..plain() }, "location"),
            (admin::Cluster { location: "projects/p/locations/a/b".into(), ..plain() }, "location"),
            (admin::Cluster { default_storage_type: 9, ..plain() }, "default_storage_type"),
            (admin::Cluster { node_scaling_factor: 9, ..plain() }, "node_scaling_factor"),
            (admin::Cluster { node_scaling_factor: 2, ..plain() }, "serve_nodes"),
            (admin::Cluster { encryption_config: Some(key), ..plain() }, "kms_key_name"),
            (asked(-1, None), "serve_nodes"),
            (asked(0, Some((0, 4, 60))), "min_serve_nodes"),
            (asked(0, Some((3, 2, 60))), "max_serve_nodes"),
            (asked(0, Some((1, 11, 60))), "max_serve_nodes"),
            (asked(0, Some((1, 2, 81))), "cpu_utilization_percent"),
        ] {
            let refused = made(&wrong).unwrap_err();
            assert!(refused.message().contains(field), "{field}: {refused}");
        }
    }
}
