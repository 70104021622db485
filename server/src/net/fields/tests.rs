use super::*;
use crate::proto::{admin, data, iam, longrunning, operator_messages, rpc};
use googleapis_tonic_google_bigtable_admin_v2::google::r#type as common;
use std::collections::{BTreeMap, BTreeSet};

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

/// A message of `api.txt`: its fields there, and what asks its type for them, as the crates (and, where they
/// are restated, we) have it.
struct Listed {
    name: &'static str,
    fields: &'static [(u32, bool)],
    of_type: fn() -> Fields,
}

static LISTED: &[Listed] = include!(concat!(env!("OUT_DIR"), "/types.rs"));

#[test]
fn every_field_of_every_request_is_listed_as_the_message_types_have_it() {
    let mut names = BTreeSet::new();
    for Listed { name, fields, of_type } in LISTED {
        assert!(names.insert(name), "{name} is there twice");
        let of_list: Fields = fields.iter().copied().collect();
        assert_eq!(of_list.len(), fields.len(), "{name} has a field twice");
        assert_eq!(of_list, of_type(), "{name}: listed, and as its type has it");
    }
}

#[test]
fn types_are_asked_for_their_fields() {
    let read = known::<data::ReadRowsRequest>();
    assert_eq!((read.get(&1), read.get(&4), read.get(&10)), (Some(&false), Some(&true), None));
    // A map, a list, one of several.
    assert_eq!(known::<admin::Table>().get(&3), Some(&false));
    assert_eq!(known::<data::RowSet>(), [(1, false), (2, false)].into());
    assert_eq!(known::<data::Mutation>().get(&7), Some(&true));
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
