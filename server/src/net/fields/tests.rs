use super::*;
use crate::proto::{admin, data, longrunning, operator_messages, rpc};
use googleapis_tonic_google_bigtable_admin_v2::google::{iam::v1 as iam, r#type as common};
use std::collections::BTreeMap;

/// Numbers of fields are lower.
const NUMBERS: u32 = 100;

/// Fields by number, each with whether it is a number, a truth or one of an enumeration.
type Fields = BTreeMap<u32, bool>;

/// The fields that a message type knows: a number at each number is kept, or is wrong there, or nothing comes
/// of it.
fn known<M: prost::Message + Default>() -> Fields {
    let of = |number: u32| {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(u64::from(number << 3), &mut bytes);
        bytes.push(1);
        match M::decode(&bytes[..]) {
            Ok(message) if message.encoded_len() == 0 => None,
            Ok(_) => Some((number, true)),
            Err(_) => Some((number, false)),
        }
    };
    (1..NUMBERS).filter_map(of).collect()
}

/// The name of a message in its package, of the names of the modules and of the type.
fn full_name(package: &str, parts: &[&str]) -> String {
    let (name, modules) = parts.split_last().unwrap();
    let mut full = package.to_string();
    for module in modules {
        let words = module.trim_start_matches("r#").split('_');
        let outer: String = words.map(|word| word[..1].to_uppercase() + &word[1..]).collect();
        full += &format!(".{outer}");
    }
    format!("{full}.{name}")
}

/// A message's name, and what asks its type for its fields.
type Known = (String, fn() -> Fields);

macro_rules! types {
    ($($package:literal $module:ident [$($($part:ident)::+),* $(,)?])*) => {
        vec![$($(
            (full_name($package, &[$(stringify!($part)),+]), known::<$module::$($part)::+> as fn() -> Fields)
        ),*),*]
    };
}

/// All messages of `fields.txt`, as the crates (and, where they are restated, we) have them.
#[rustfmt::skip]
fn types() -> Vec<Known> {
    types! {
        "google.bigtable.v2" data [
            ArrayValue, CheckAndMutateRowRequest, ColumnRange, ExecuteQueryRequest,
            GenerateInitialChangeStreamPartitionsRequest, Idempotency, MutateRowRequest, MutateRowsRequest,
            mutate_rows_request::Entry, Mutation, mutation::AddToCell, mutation::DeleteFromColumn,
            mutation::DeleteFromFamily, mutation::DeleteFromRow, mutation::MergeToCell, mutation::SetCell,
            PingAndWarmRequest, PrepareQueryRequest, ProtoFormat, ReadChangeStreamRequest,
            ReadModifyWriteRowRequest, ReadModifyWriteRule, ReadRowsRequest, RowFilter, row_filter::Chain,
            row_filter::Condition, row_filter::Interleave, RowRange, RowSet, SampleRowKeysRequest,
            StreamContinuationToken, StreamContinuationTokens, StreamPartition, TimestampRange, Type,
            r#type::Aggregate, r#type::aggregate::HyperLogLogPlusPlusUniqueCount, r#type::aggregate::Max,
            r#type::aggregate::Min, r#type::aggregate::Sum, r#type::Array, r#type::Bool, r#type::Bytes,
            r#type::bytes::Encoding, r#type::bytes::encoding::Raw, r#type::Date, r#type::Enum,
            r#type::Float32, r#type::Float64, r#type::Int64, r#type::int64::Encoding,
            r#type::int64::encoding::BigEndianBytes, r#type::int64::encoding::OrderedCodeBytes, r#type::Map,
            r#type::Proto, r#type::String, r#type::string::Encoding, r#type::string::encoding::Utf8Bytes,
            r#type::string::encoding::Utf8Raw, r#type::Struct, r#type::r#struct::Encoding,
            r#type::r#struct::encoding::DelimitedBytes, r#type::r#struct::encoding::OrderedCodeBytes,
            r#type::r#struct::encoding::Singleton, r#type::r#struct::Field, r#type::Timestamp,
            r#type::timestamp::Encoding, Value, ValueRange
        ]
        "google.bigtable.admin.v2" admin [
            AppProfile, app_profile::DataBoostIsolationReadOnly, app_profile::MultiClusterRoutingUseAny,
            app_profile::multi_cluster_routing_use_any::RowAffinity, app_profile::SingleClusterRouting,
            app_profile::StandardIsolation, AuthorizedView, authorized_view::FamilySubsets,
            authorized_view::SubsetView, AutoscalingLimits, AutoscalingTargets, Backup, BackupInfo,
            ChangeStreamConfig, CheckConsistencyRequest, Cluster, cluster::ClusterAutoscalingConfig,
            cluster::ClusterConfig, cluster::EncryptionConfig, ColumnFamily, CopyBackupRequest,
            CreateAppProfileRequest, CreateAuthorizedViewRequest, CreateBackupRequest, CreateClusterRequest,
            CreateInstanceRequest, CreateLogicalViewRequest, CreateMaterializedViewRequest,
            CreateSchemaBundleRequest, CreateTableFromSnapshotRequest, CreateTableRequest,
            create_table_request::Split, DataBoostReadLocalWrites, DeleteAppProfileRequest,
            DeleteAuthorizedViewRequest, DeleteBackupRequest, DeleteClusterRequest, DeleteInstanceRequest,
            DeleteLogicalViewRequest, DeleteMaterializedViewRequest, DeleteSchemaBundleRequest,
            DeleteSnapshotRequest, DeleteTableRequest, DropRowRangeRequest, EncryptionInfo, GcRule,
            gc_rule::Intersection, gc_rule::Union, GenerateConsistencyTokenRequest, GetAppProfileRequest,
            GetAuthorizedViewRequest, GetBackupRequest, GetClusterRequest, GetInstanceRequest,
            GetLogicalViewRequest, GetMaterializedViewRequest, GetSchemaBundleRequest, GetSnapshotRequest,
            GetTableRequest, Instance, ListAppProfilesRequest, ListAuthorizedViewsRequest,
            ListBackupsRequest, ListClustersRequest, ListHotTabletsRequest, ListInstancesRequest,
            ListLogicalViewsRequest, ListMaterializedViewsRequest, ListSchemaBundlesRequest,
            ListSnapshotsRequest, ListTablesRequest, LogicalView, MaterializedView,
            ModifyColumnFamiliesRequest, modify_column_families_request::Modification,
            PartialUpdateClusterRequest, PartialUpdateInstanceRequest, ProtoSchema, RestoreInfo,
            RestoreTableRequest, SchemaBundle, SnapshotTableRequest, StandardReadRemoteWrites, Table,
            table::AutomatedBackupPolicy, table::ClusterState, TieredStorageConfig, TieredStorageRule, Type,
            r#type::Aggregate, r#type::aggregate::HyperLogLogPlusPlusUniqueCount, r#type::aggregate::Max,
            r#type::aggregate::Min, r#type::aggregate::Sum, r#type::Array, r#type::Bool, r#type::Bytes,
            r#type::bytes::Encoding, r#type::bytes::encoding::Raw, r#type::Date, r#type::Enum,
            r#type::Float32, r#type::Float64, r#type::Int64, r#type::int64::Encoding,
            r#type::int64::encoding::BigEndianBytes, r#type::int64::encoding::OrderedCodeBytes, r#type::Map,
            r#type::Proto, r#type::String, r#type::string::Encoding, r#type::string::encoding::Utf8Bytes,
            r#type::string::encoding::Utf8Raw, r#type::Struct, r#type::r#struct::Encoding,
            r#type::r#struct::encoding::DelimitedBytes, r#type::r#struct::encoding::OrderedCodeBytes,
            r#type::r#struct::encoding::Singleton, r#type::r#struct::Field, r#type::Timestamp,
            r#type::timestamp::Encoding, UndeleteTableRequest, UpdateAppProfileRequest,
            UpdateAuthorizedViewRequest, UpdateBackupRequest, UpdateLogicalViewRequest,
            UpdateMaterializedViewRequest, UpdateSchemaBundleRequest, UpdateTableRequest
        ]
        "google.iam.v1" iam [
            AuditConfig, AuditLogConfig, Binding, GetIamPolicyRequest, GetPolicyOptions, Policy,
            SetIamPolicyRequest, TestIamPermissionsRequest
        ]
        "google.longrunning" longrunning [
            CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
            WaitOperationRequest
        ]
        "google.protobuf" prost_types [
            Any, Duration, FieldMask, Timestamp
        ]
        "google.rpc" rpc [
            Status
        ]
        "google.type" common [
            Date, Expr
        ]
        "siltstone.v1" operator_messages [
            AlterSettings, TableName
        ]
    }
}

/// The messages of `fields.txt`.
fn listed() -> BTreeMap<String, Fields> {
    let mut messages = BTreeMap::new();
    let mut last = String::new();
    for line in include_str!("fields.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let Some(field) = line.strip_prefix("    ") else {
            last = line.to_string();
            assert_eq!(messages.insert(last.clone(), Fields::new()), None, "{last} is there twice");
            continue;
        };
        let parts: Vec<&str> = field.split("  # ").next().unwrap().splitn(4, ' ').collect();
        let number = parts[0].parse().unwrap();
        let is_number = ["int32", "int64", "bool", "enum"].contains(&parts[3]);
        let fields: &mut Fields = messages.get_mut(&last).unwrap();
        assert_eq!(fields.insert(number, is_number), None, "field {number} of {last} is there twice");
    }
    messages
}

#[test]
fn every_field_of_every_request_is_listed_as_the_message_types_have_it() {
    let mut listed = listed();
    // A message without fields, for which there is no type.
    assert_eq!(listed.remove("google.protobuf.Empty"), Some(Fields::new()));
    for (name, fields) in types() {
        let of_list = listed.remove(&name).unwrap_or_else(|| panic!("{name} is not listed"));
        assert_eq!(of_list, fields(), "{name}: listed, and as its type has it");
    }
    assert!(listed.is_empty(), "no type is held against {listed:?}");
}

#[test]
fn types_are_asked_for_their_fields() {
    let read = known::<data::ReadRowsRequest>();
    assert_eq!((read.get(&1), read.get(&4), read.get(&10)), (Some(&false), Some(&true), None));
    // A map, a list, one of several.
    assert_eq!(known::<admin::Table>().get(&3), Some(&false));
    assert_eq!(known::<data::RowSet>(), [(1, false), (2, false)].into());
    assert_eq!(known::<data::Mutation>().get(&7), Some(&true));
    assert_eq!(full_name("p", &["r#type", "row_affinity", "X"]), "p.Type.RowAffinity.X");
}

#[test]
fn what_is_refused_has_a_value_and_what_is_not_known_is_named() {
    let request = request_of("/google.bigtable.v2.Bigtable/MutateRow").unwrap();
    assert_eq!(request.name, "google.bigtable.v2.MutateRowRequest");
    let within = |message: &'static Message, number| message.take(number, true).unwrap();
    assert_eq!(within(request, 3).unwrap().name, "google.bigtable.v2.Mutation");
    assert!(within(request, 1).is_none() && within(request, 4).is_none());
    let said = |refused: Result<Option<&'static Message>, Status>| {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
        refused.message().to_string()
    };
    assert_eq!(
        said(request.take(8, false)),
        "idempotency of google.bigtable.v2.MutateRowRequest is not served"
    );
    assert!(said(request.take(99, true)).contains("field 99 of google.bigtable.v2.MutateRowRequest"));
    let read = request_of("/google.bigtable.v2.Bigtable/ReadRows").unwrap();
    assert!(read.take(11, false).unwrap().is_none(), "an empty text is no value");
    assert!(said(read.take(11, true)).starts_with("materialized_view_name"));
    // Into an entry of a map.
    let create = request_of("/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable").unwrap();
    let family = within(within(within(create, 3).unwrap(), 3).unwrap(), 2).unwrap();
    assert_eq!(family.name, "google.bigtable.admin.v2.ColumnFamily");
    assert!(request_of("/google.bigtable.v2.Bigtable/NoSuchCall").is_none());
}

#[test]
fn the_requests_of_all_methods_are_listed() {
    for path in crate::proto::METHODS {
        assert!(request_of(path).is_some(), "{path}");
    }
}
