//! What is kept of a table besides its cells: its families with their rules, as JSON in the engine family `tables`.

use crate::aggregate::Aggregate;
use crate::gc::Gc;
use crate::names;
use crate::proto::admin;
use crate::proto::admin::r#type::Kind;
use crate::settings;
use crate::views::ViewSchema;
use serde::{Deserialize, Serialize};
use siltstone::{Builder, FamilyOptions, Options, Timestamps};
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Status;

/// A table as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Schema {
    /// Never given out again.
    pub(crate) id: u64,
    pub(crate) families: BTreeMap<String, FamilySchema>,
    /// The id of the next family.
    pub(crate) next_family: u32,
    #[serde(default)]
    pub(crate) deletion_protection: bool,
    /// How long changes are to be streamed, in microseconds; `None` where they are not.
    #[serde(default)]
    pub(crate) change_retention_us: Option<u64>,
    /// Since when they are, in microseconds since 1970.
    #[serde(default)]
    pub(crate) changes_from_us: u64,
    /// Where its maker wanted it cut: never joined there.
    #[serde(default)]
    pub(crate) cuts: Vec<Vec<u8>>,
    /// Its authorized views, by their ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) views: BTreeMap<String, ViewSchema>,
}

/// A column family as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FamilySchema {
    pub(crate) id: u32,
    #[serde(default)]
    pub(crate) gc: Gc,
    /// Options of its stores that were set for it, as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) settings: BTreeMap<String, String>,
    /// What its cells add up to; fixed when it is created.
    #[serde(default)]
    pub(crate) aggregate: Option<Aggregate>,
}

/// Opens databases whose families are stores of tables.
pub(crate) fn builder(options: Options) -> Builder {
    with_operators(Builder::new().options(options))
}

/// A builder with the merge operators of tables: what opens their database, or merges for it, needs them.
pub fn with_operators(builder: Builder) -> Builder {
    Aggregate::ALL.iter().fold(builder, |builder, aggregate| {
        builder.merge_operator(aggregate.operator(), Arc::new(*aggregate))
    })
}

impl FamilySchema {
    pub(crate) fn from_message(id: u32, family: &admin::ColumnFamily) -> Result<Self, Status> {
        let aggregate = Aggregate::from_message(family.value_type.as_ref())?;
        Ok(Self { id, gc: Gc::from_message(family.gc_rule.as_ref())?, settings: BTreeMap::new(), aggregate })
    }

    pub(crate) fn to_message(&self) -> admin::ColumnFamily {
        use admin::r#type::{Bytes, bytes};
        // Said also of plain bytes: a family that says nothing is an empty message, which a map leaves out, and the Node client
        // does not take that.
        let raw = bytes::encoding::Encoding::Raw(bytes::encoding::Raw::default());
        let plain = Bytes { encoding: Some(bytes::Encoding { encoding: Some(raw) }) };
        let value_type = self
            .aggregate
            .map_or_else(|| admin::Type { kind: Some(Kind::BytesType(plain)) }, Aggregate::to_message);
        let value_type = Some(value_type);
        admin::ColumnFamily { gc_rule: self.gc.to_message(), value_type }
    }

    /// Of the engine family of each of its regions: what the server's settings say, and over it what was set for this family.
    ///
    /// # Errors
    /// A setting that this version of the engine does not take.
    pub(crate) fn options(&self, base: FamilyOptions) -> Result<FamilyOptions, Status> {
        let (versions, ttl_us) = self.gc.limits();
        let options = FamilyOptions {
            timestamps: Timestamps::Explicit,
            versions,
            ttl_us,
            merge_operator: self.aggregate.map(|aggregate| aggregate.operator().to_string()),
            ..settings::with(base, &self.settings)?
        };
        options.validate().map_err(|e| Status::invalid_argument(e.to_string()))?;
        Ok(options)
    }

    /// Takes over the rules of an update; the type of values stays as it is.
    pub(crate) fn update(&mut self, family: &admin::ColumnFamily, mask: &[String]) -> Result<(), Status> {
        let named = |field: &str| mask.is_empty() || mask.iter().any(|path| path == field);
        if let Some(unknown) = mask.iter().find(|path| !["gc_rule", "value_type"].contains(&path.as_str())) {
            return Err(Status::invalid_argument(format!(
                "update_mask names \"{unknown}\", which a family has not"
            )));
        }
        if named("value_type")
            && family.value_type.is_some()
            && Aggregate::from_message(family.value_type.as_ref())? != self.aggregate
        {
            return Err(Status::invalid_argument("the value_type of a family cannot be changed"));
        }
        if named("gc_rule") {
            self.gc = Gc::from_message(family.gc_rule.as_ref())?;
        }
        Ok(())
    }
}

impl Schema {
    /// Of a table to be created.
    pub(crate) fn new(id: u64, table: &admin::Table) -> Result<Self, Status> {
        let mut schema = Self { id, deletion_protection: table.deletion_protection, ..Self::default() };
        schema.stream_changes(table.change_stream_config.as_ref())?;
        // By name, so that the same request makes the same schema.
        let families: BTreeMap<_, _> = table.column_families.iter().collect();
        for (name, family) in families {
            schema.add(name, family)?;
        }
        Ok(schema)
    }

    /// Whether changes are streamed, and for how long.
    pub(crate) fn stream_changes(
        &mut self,
        config: Option<&admin::ChangeStreamConfig>,
    ) -> Result<(), Status> {
        let retention = config.map(|config| {
            let period =
                config.retention_period.unwrap_or(prost_types::Duration { seconds: 86_400, nanos: 0 });
            match u64::try_from(period.seconds) {
                Ok(seconds) if (1..=7 * 86_400).contains(&seconds) => Ok(seconds * 1_000_000),
                _ => {
                    Err(Status::invalid_argument("retention_period must be between a second and seven days"))
                }
            }
        });
        let retention = retention.transpose()?;
        if self.change_retention_us.is_none() {
            self.changes_from_us = crate::now_us();
        }
        self.change_retention_us = retention;
        Ok(())
    }

    /// Adds a family.
    pub(crate) fn add(&mut self, name: &str, family: &admin::ColumnFamily) -> Result<(), Status> {
        names::family(name)?;
        if self.families.contains_key(name) {
            return Err(Status::already_exists(format!("family \"{name}\" exists")));
        }
        let family = FamilySchema::from_message(self.next_family, family)?;
        self.next_family += 1;
        self.families.insert(name.to_string(), family);
        Ok(())
    }

    pub(crate) fn to_message(&self, name: &str, view: admin::table::View) -> admin::Table {
        use admin::table::View;
        let mut table = admin::Table { name: name.to_string(), ..admin::Table::default() };
        if view == View::NameOnly {
            return table;
        }
        if matches!(view, View::ReplicationView | View::Full | View::EncryptionView) {
            let ready = admin::table::ClusterState {
                replication_state: admin::table::cluster_state::ReplicationState::Ready as i32,
                ..Default::default()
            };
            table.cluster_states.insert(crate::instances::CLUSTER.to_string(), ready);
        }
        if matches!(view, View::Unspecified | View::SchemaView | View::Full) {
            table.granularity = admin::table::TimestampGranularity::Millis as i32;
            table.column_families =
                self.families.iter().map(|(name, family)| (name.clone(), family.to_message())).collect();
        }
        table.deletion_protection = self.deletion_protection;
        table.change_stream_config = self.change_retention_us.map(|us| admin::ChangeStreamConfig {
            retention_period: Some(prost_types::Duration {
                seconds: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
                nanos: 0,
            }),
        });
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn a_family_that_says_nothing_is_no_empty_message() {
        let message = FamilySchema::default().to_message();
        assert!(message.encoded_len() > 0);
        assert_eq!(FamilySchema::from_message(0, &message).unwrap(), FamilySchema::default());
    }
}
