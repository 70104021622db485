//! The record of a table, beside its cells: its families with their rules, as JSON in the engine family
//! `tables`.

use crate::cells::aggregate::Aggregate;
use crate::cells::gc::Gc;
use crate::names;
use crate::proto::admin;
use crate::proto::admin::r#type::{Kind, Struct};
use crate::store_options;
use crate::tables::backup_policy::{self, Policy};
use crate::tables::row_key_schema;
use crate::tables::stored_message::{StoredMessage, stored_bytes};
use crate::tables::view_schema::ViewSchema;
use prost::Message;
use serde::{Deserialize, Serialize};
use siltstone::{Builder, FamilyOptions, Options, Timestamps};
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Status;

/// Microseconds of a day.
const DAY_US: u64 = 86_400_000_000;
/// Bytes of a family's type of values as encoded, at most.
const TYPE_MAX: usize = 1 << 10;
/// Microseconds as a granularity, for which the message crate has no word.
const MICROS: i32 = 2;

/// How fine the timestamps of a table are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Granularity {
    #[default]
    Millis,
    Micros,
}

impl Granularity {
    fn from_message(granularity: i32) -> Result<Self, Status> {
        use admin::table::TimestampGranularity::{Millis, Unspecified};
        match granularity {
            MICROS => Ok(Self::Micros),
            other if other == Millis as i32 || other == Unspecified as i32 => Ok(Self::Millis),
            other => Err(Status::invalid_argument(format!(
                "granularity {other} is none: tables have MILLIS (1) or MICROS ({MICROS})"
            ))),
        }
    }

    fn to_message(self) -> i32 {
        match self {
            Self::Millis => admin::table::TimestampGranularity::Millis as i32,
            Self::Micros => MICROS,
        }
    }

    /// Microseconds of which timestamps are multiples.
    pub(crate) fn us(self) -> u64 {
        match self {
            Self::Millis => 1_000,
            Self::Micros => 1,
        }
    }
}

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
    /// The initial splits, at which regions are never joined.
    #[serde(default, with = "stored_bytes")]
    pub(crate) cuts: Vec<Vec<u8>>,
    #[serde(default)]
    pub(crate) granularity: Granularity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) row_key_schema: Option<StoredMessage<Struct>>,
    /// What would lie on cheaper storage, if there were any: all cells lie together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tiered_storage: Option<StoredMessage<admin::TieredStorageConfig>>,
    /// Which backups the server makes of it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) automated_backups: Option<Policy>,
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
    #[serde(default, deserialize_with = "store_options::kept", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) settings: BTreeMap<String, String>,
    /// What its cells add up to; fixed when it is created.
    #[serde(default)]
    pub(crate) aggregate: Option<Aggregate>,
    /// What clients take its values for, unless it is an aggregate. It has no effect on cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_type: Option<StoredMessage<admin::Type>>,
}

/// The type of the values of a family that is no aggregate.
fn plain_type(of: Option<&admin::Type>) -> Result<Option<StoredMessage<admin::Type>>, Status> {
    let plain = of.filter(|of| !matches!(of.kind, None | Some(Kind::AggregateType(_))));
    match plain.map_or(0, Message::encoded_len) {
        bytes if bytes > TYPE_MAX => Err(Status::invalid_argument(format!(
            "value_type has {bytes} bytes as encoded, the limit is {TYPE_MAX}"
        ))),
        _ => Ok(plain.cloned().map(StoredMessage)),
    }
}

/// What protects everything here: whatever the disk has.
pub(crate) fn encryption() -> admin::EncryptionInfo {
    admin::EncryptionInfo {
        encryption_type: admin::encryption_info::EncryptionType::GoogleDefaultEncryption as i32,
        ..Default::default()
    }
}

/// Opens databases whose families are stores of tables.
pub(crate) fn builder(options: Options) -> Builder {
    with_operators(Builder::new().options(options))
}

/// A builder with the merge operators of tables, for opening their database, or compacting for it.
pub fn with_operators(builder: Builder) -> Builder {
    Aggregate::ALL.iter().fold(builder, |builder, aggregate| {
        builder.merge_operator(aggregate.operator(), Arc::new(*aggregate))
    })
}

impl FamilySchema {
    pub(crate) fn from_message(id: u32, family: &admin::ColumnFamily) -> Result<Self, Status> {
        let of = family.value_type.as_ref();
        let (aggregate, value_type) = (Aggregate::from_message(of)?, plain_type(of)?);
        let gc = Gc::from_message(family.gc_rule.as_ref())?;
        Ok(Self { id, gc, settings: BTreeMap::new(), aggregate, value_type })
    }

    pub(crate) fn to_message(&self) -> admin::ColumnFamily {
        use admin::r#type::{Bytes, bytes};
        let gc_rule = self.gc.to_message();
        let value_type = match (self.aggregate, &self.value_type) {
            (Some(aggregate), _) => Some(aggregate.to_message()),
            (None, Some(StoredMessage(of))) => Some(of.clone()),
            // A family that says nothing is an empty message, which a map leaves out, and the Node client
            // does not take that.
            (None, None) if gc_rule.is_none() => {
                let raw = bytes::encoding::Encoding::Raw(bytes::encoding::Raw::default());
                let plain = Bytes { encoding: Some(bytes::Encoding { encoding: Some(raw) }) };
                Some(admin::Type { kind: Some(Kind::BytesType(plain)) })
            }
            (None, None) => None,
        };
        admin::ColumnFamily { gc_rule, value_type }
    }

    /// Options of the engine family of each of its regions: what the server's settings say, and over it what
    /// was set for this family.
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
            ..store_options::with(base, &self.settings)?
        };
        options.validate().map_err(|e| Status::invalid_argument(e.to_string()))?;
        Ok(options)
    }

    /// Takes over what an update names; without a mask its rules alone.
    pub(crate) fn update(&mut self, family: &admin::ColumnFamily, mask: &[String]) -> Result<(), Status> {
        let named = |field: &str| mask.iter().any(|path| path == field);
        if let Some(unknown) = mask.iter().find(|path| !["gc_rule", "value_type"].contains(&path.as_str())) {
            return Err(Status::invalid_argument(format!(
                "update_mask names \"{unknown}\", which a family has not"
            )));
        }
        if named("value_type") {
            let of = family.value_type.as_ref();
            if Aggregate::from_message(of)? != self.aggregate {
                let message = "Immutable fields 'value_type.aggregate_type' cannot be updated";
                return Err(Status::invalid_argument(message));
            }
            self.value_type = plain_type(of)?;
        }
        if mask.is_empty() || named("gc_rule") {
            self.gc = Gc::from_message(family.gc_rule.as_ref())?;
        }
        Ok(())
    }
}

impl Schema {
    /// The schema of a table to be created.
    pub(crate) fn new(id: u64, table: &admin::Table) -> Result<Self, Status> {
        let mut schema = Self {
            id,
            deletion_protection: table.deletion_protection,
            granularity: Granularity::from_message(table.granularity)?,
            row_key_schema: table.row_key_schema.clone().map(StoredMessage),
            ..Self::default()
        };
        schema.stream_changes(table.change_stream_config.as_ref())?;
        schema.tier(table.tiered_storage_config)?;
        schema.automated_backups = backup_policy::of_new(table)?;
        // By name, so that the same request makes the same schema.
        let families: BTreeMap<_, _> = table.column_families.iter().collect();
        for (name, family) in families {
            schema.add(name, family)?;
        }
        schema.check()?;
        Ok(schema)
    }

    /// Takes over what an update of a table names.
    pub(crate) fn update(
        &mut self,
        table: &admin::Table,
        paths: &[String],
        ignore_warnings: bool,
    ) -> Result<(), Status> {
        for path in paths {
            match path.as_str() {
                "deletion_protection" => self.deletion_protection = table.deletion_protection,
                "change_stream_config" | "change_stream_config.retention_period" => {
                    self.stream_changes(table.change_stream_config.as_ref())?;
                }
                "row_key_schema" => {
                    self.set_row_key_schema(table.row_key_schema.as_ref(), ignore_warnings)?;
                }
                "tiered_storage_config"
                | "tiered_storage_config.infrequent_access"
                | "tiered_storage_config.infrequent_access.include_if_older_than" => {
                    self.tier(table.tiered_storage_config)?;
                }
                // Looked at together, below.
                path if backup_policy::is_path(path) => {}
                "column_families" => {
                    return Err(Status::unimplemented("column_families are changed by ModifyColumnFamilies"));
                }
                other => {
                    return Err(Status::invalid_argument(format!(
                        "update_mask names \"{other}\", which is no field of a table that can be updated"
                    )));
                }
            }
        }
        if paths.iter().any(|path| backup_policy::is_path(path)) {
            let before = self.automated_backups.as_ref();
            self.automated_backups = backup_policy::updated(before, table, paths)?;
        }
        self.check()
    }

    /// Refuses to have a table of that name deleted which is protected from that, or of which a view is.
    pub(crate) fn refuse_protected(&self, name: &str) -> Result<(), Status> {
        if self.deletion_protection {
            return Err(Status::failed_precondition(format!("table {name} is protected from deletion")));
        }
        match self.views.iter().find(|(_, view)| view.deletion_protection) {
            None => Ok(()),
            Some((id, _)) => Err(Status::failed_precondition(format!(
                "authorized view \"{id}\" of table {name} is protected from deletion"
            ))),
        }
    }

    /// Refuses what does not go together.
    pub(crate) fn check(&self) -> Result<(), Status> {
        match &self.row_key_schema {
            Some(StoredMessage(schema)) => {
                row_key_schema::check(schema, |name| self.families.contains_key(name))
            }
            None => Ok(()),
        }
    }

    /// It can be given where there is none, and taken away by who says that it is known what that means.
    fn set_row_key_schema(&mut self, new: Option<&Struct>, ignore_warnings: bool) -> Result<(), Status> {
        let message = match (&self.row_key_schema, new) {
            (Some(StoredMessage(now)), Some(new)) if now != new => {
                "row_key_schema cannot be changed, only removed"
            }
            (Some(_), None) if !ignore_warnings => "to remove row_key_schema set ignore_warnings",
            _ => {
                self.row_key_schema = new.cloned().map(StoredMessage);
                return Ok(());
            }
        };
        Err(Status::invalid_argument(message))
    }

    fn tier(&mut self, config: Option<admin::TieredStorageConfig>) -> Result<(), Status> {
        use admin::tiered_storage_rule::Rule::IncludeIfOlderThan;
        if let Some(config) = config {
            let rule = config.infrequent_access.and_then(|rule| rule.rule);
            let age = rule.and_then(|IncludeIfOlderThan(age)| crate::time::micros(age.seconds, age.nanos));
            if age.is_none_or(|us| us < 30 * DAY_US) {
                return Err(Status::invalid_argument(
                    "tiered_storage_config: infrequent_access.include_if_older_than must be at least 30 days",
                ));
            }
        }
        self.tiered_storage = config.map(StoredMessage);
        Ok(())
    }

    /// Whether changes are streamed, and for how long.
    pub(crate) fn stream_changes(
        &mut self,
        config: Option<&admin::ChangeStreamConfig>,
    ) -> Result<(), Status> {
        let retention = config.map(|config| {
            let period =
                config.retention_period.map_or(Some(DAY_US), |of| crate::time::micros(of.seconds, of.nanos));
            let allowed = period.filter(|us| (DAY_US..=7 * DAY_US).contains(us));
            allowed.ok_or_else(|| {
                Status::invalid_argument("change_stream_config: retention_period must be 1 to 7 days")
            })
        });
        let retention = retention.transpose()?;
        if self.change_retention_us.is_none() {
            self.changes_from_us = crate::time::now_us();
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
                encryption_info: match view {
                    View::ReplicationView => Vec::new(),
                    _ => vec![encryption()],
                },
            };
            table.cluster_states.insert(names::CLUSTER.to_string(), ready);
        }
        if matches!(view, View::Unspecified | View::SchemaView | View::Full) {
            table.granularity = self.granularity.to_message();
            table.row_key_schema = self.row_key_schema.as_ref().map(|StoredMessage(schema)| schema.clone());
            table.tiered_storage_config = self.tiered_storage.as_ref().map(|StoredMessage(config)| *config);
            table.column_families =
                self.families.iter().map(|(name, family)| (name.clone(), family.to_message())).collect();
        }
        table.deletion_protection = self.deletion_protection;
        table.automated_backup_config = self.automated_backups.as_ref().map(Policy::to_message);
        table.change_stream_config = self
            .change_retention_us
            .map(|us| admin::ChangeStreamConfig { retention_period: Some(crate::time::duration(us)) });
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(kind: Option<Kind>) -> admin::ColumnFamily {
        admin::ColumnFamily { value_type: kind.map(|kind| admin::Type { kind: Some(kind) }), gc_rule: None }
    }

    fn paths(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_string()).collect()
    }

    #[test]
    fn a_family_that_says_nothing_is_no_empty_message() {
        let message = FamilySchema::default().to_message();
        assert!(message.encoded_len() > 0);
        let again = FamilySchema::from_message(0, &message).unwrap();
        assert_eq!(again.to_message(), message);
        // One with rules says those alone.
        let ruled = FamilySchema { gc: Gc::Versions(3), ..FamilySchema::default() }.to_message();
        assert!(ruled.gc_rule.is_some() && ruled.value_type.is_none());
    }

    #[test]
    fn types_of_plain_families_are_kept_and_change_and_those_of_aggregates_do_not() {
        let text = || Some(Kind::StringType(admin::r#type::String { encoding: None }));
        let nested = admin::r#type::Array { element_type: family(text()).value_type.map(Box::new) };
        let all = [
            text(),
            Some(Kind::Int64Type(admin::r#type::Int64 { encoding: None })),
            Some(Kind::BoolType(admin::r#type::Bool {})),
            Some(Kind::ArrayType(Box::new(nested))),
        ];
        let mut kept = FamilySchema::default();
        for kind in all {
            let message = family(kind);
            assert_eq!(FamilySchema::from_message(0, &message).unwrap().to_message(), message);
            kept.update(&message, &paths(&["value_type"])).unwrap();
            assert_eq!(kept.to_message(), message);
            let stored = serde_json::to_vec(&kept).unwrap();
            assert_eq!(serde_json::from_slice::<FamilySchema>(&stored).unwrap(), kept);
        }
        let long = admin::r#type::Proto { message_name: "m".repeat(TYPE_MAX), ..Default::default() };
        let refused = kept.update(&family(Some(Kind::ProtoType(long))), &paths(&["value_type"])).unwrap_err();
        assert!(refused.message().contains("limit"), "{refused}");
        // An update without a mask is one of the rules.
        let sum = admin::ColumnFamily { value_type: Some(Aggregate::Sum.to_message()), gc_rule: None };
        kept.update(&sum, &[]).unwrap();
        assert!(kept.aggregate.is_none());
        let immutable = "Immutable fields 'value_type.aggregate_type' cannot be updated";
        let update = |of: &mut FamilySchema, to: &admin::ColumnFamily| {
            of.update(to, &paths(&["value_type"])).map_err(|e| e.message().to_string())
        };
        assert_eq!(update(&mut kept, &sum), Err(immutable.into()));
        let mut aggregate = FamilySchema::from_message(0, &sum).unwrap();
        let max = admin::ColumnFamily { value_type: Some(Aggregate::Max.to_message()), gc_rule: None };
        for other in [family(text()), family(None), max] {
            assert_eq!(update(&mut aggregate, &other), Err(immutable.into()));
        }
        assert_eq!(update(&mut aggregate, &sum), Ok(()));
        assert_eq!(aggregate.to_message(), sum);
    }

    #[test]
    fn a_row_key_schema_is_given_once_and_removed_by_who_means_it() {
        let with = |names: &[&str]| admin::Table {
            row_key_schema: Some(row_key_schema::tests::named(names)),
            ..Default::default()
        };
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        let clash = admin::Table { column_families: families, ..with(&["f"]) };
        assert!(Schema::new(1, &clash).unwrap_err().message().contains("column family"));
        let mut schema = Schema::new(1, &admin::Table { row_key_schema: None, ..clash }).unwrap();
        let named = paths(&["row_key_schema"]);
        let refused = schema.clone().update(&with(&["f"]), &named, false).unwrap_err();
        assert!(refused.message().contains("column family"), "{refused}");
        schema.update(&with(&["user"]), &named, false).unwrap();
        let told = |schema: &Schema| schema.to_message("t", admin::table::View::SchemaView).row_key_schema;
        assert_eq!(told(&schema), with(&["user"]).row_key_schema);
        schema.update(&with(&["user"]), &named, false).unwrap();
        let refused = schema.clone().update(&with(&["other"]), &named, true).unwrap_err();
        assert!(refused.message().contains("only removed"), "{refused}");
        let refused = schema.clone().update(&admin::Table::default(), &named, false).unwrap_err();
        assert!(refused.message().contains("ignore_warnings"), "{refused}");
        // A family may not take a field's name later either.
        schema.add("user", &admin::ColumnFamily::default()).unwrap();
        assert!(schema.check().is_err());
        schema.families.remove("user");
        schema.update(&admin::Table::default(), &named, true).unwrap();
        assert_eq!(told(&schema), None);
    }

    #[test]
    fn settings_of_tables_are_kept_or_refused_by_name() {
        let rule = |days: i64| admin::TieredStorageConfig {
            infrequent_access: Some(admin::TieredStorageRule {
                rule: Some(admin::tiered_storage_rule::Rule::IncludeIfOlderThan(prost_types::Duration {
                    seconds: days * 86_400,
                    nanos: 0,
                })),
            }),
        };
        let tiered = |config| admin::Table { tiered_storage_config: config, ..Default::default() };
        let streamed = |seconds| admin::Table {
            change_stream_config: Some(admin::ChangeStreamConfig {
                retention_period: Some(prost_types::Duration { seconds, nanos: 0 }),
            }),
            ..Default::default()
        };
        let granular = |granularity| admin::Table { granularity, ..Default::default() };
        for right in [tiered(Some(rule(30))), streamed(86_400), streamed(7 * 86_400), granular(MICROS)] {
            let schema = Schema::new(1, &right).unwrap();
            let stored = serde_json::to_vec(&schema).unwrap();
            let told = serde_json::from_slice::<Schema>(&stored).unwrap();
            let told = told.to_message("", admin::table::View::Full);
            assert_eq!(told.tiered_storage_config, right.tiered_storage_config);
            assert_eq!(told.change_stream_config, right.change_stream_config);
            assert_eq!(told.granularity, right.granularity.max(1));
        }
        for (wrong, word) in [
            (tiered(Some(rule(29))), "30 days"),
            (tiered(Some(admin::TieredStorageConfig::default())), "include_if_older_than"),
            (streamed(86_399), "1 to 7 days"),
            (streamed(3_600), "1 to 7 days"),
            (streamed(7 * 86_400 + 1), "1 to 7 days"),
            (granular(99), "granularity 99"),
        ] {
            let refused = Schema::new(1, &wrong).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().contains(word), "{refused}, expected {word}");
        }
        let mut schema = Schema::new(1, &tiered(Some(rule(30)))).unwrap();
        let named = paths(&["tiered_storage_config"]);
        schema.update(&tiered(Some(rule(45))), &named, false).unwrap();
        let told =
            |schema: &Schema| schema.to_message("", admin::table::View::SchemaView).tiered_storage_config;
        assert_eq!(told(&schema), Some(rule(45)));
        schema.update(&tiered(None), &named, false).unwrap();
        assert_eq!(told(&schema), None);
        for (path, code) in [
            ("nonsense", tonic::Code::InvalidArgument),
            ("granularity", tonic::Code::InvalidArgument),
            ("*", tonic::Code::InvalidArgument),
            ("column_families", tonic::Code::Unimplemented),
        ] {
            let refused = schema.update(&admin::Table::default(), &paths(&[path]), true).unwrap_err();
            assert!(refused.code() == code && refused.message().contains(path), "{refused}");
        }
    }

    #[test]
    fn how_a_table_is_encrypted_is_told_of_its_cluster_where_it_is_asked_for() {
        use admin::table::View;
        let told = |view| {
            let table = Schema::default().to_message("", view);
            let all: Vec<_> = table.cluster_states.into_values().flat_map(|of| of.encryption_info).collect();
            all.iter().map(|of| of.encryption_type).collect::<Vec<_>>()
        };
        assert_eq!((told(View::EncryptionView), told(View::Full)), (vec![1], vec![1]));
        assert!(told(View::ReplicationView).is_empty() && told(View::SchemaView).is_empty());
    }
}
