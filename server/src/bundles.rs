//! Schema bundles: descriptors of protocol buffers that belong to a table, kept for clients and given back as they came.
//!
//! A bundle is a record of its own in the engine family `tables`, under its table's id, and is deleted when that is gone for good
//! (`crate::undelete`). Its descriptors are looked at when they come: they must be a set that is whole in itself. An update must
//! leave the names and numbers of the messages before it as they were, unless its maker says that it need not.

use crate::budget::{self, Budget, Lease};
use crate::fingerprint;
use crate::names;
use crate::proto::admin::schema_bundle::Type;
use crate::proto::admin::{
    self, CreateSchemaBundleRequest, DeleteSchemaBundleRequest, ListSchemaBundlesResponse, ProtoSchema,
    UpdateSchemaBundleRequest,
};
use crate::status::status;
use crate::tables::Tables;
use crate::views::check_etag;
use crate::wire;
use bytes::Bytes;
use prost::Message;
use siltstone::{Batch, Durability};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tonic::Status;

/// What the names of bundles begin with among the records.
const BUNDLE: &[u8] = b"bundle/";
/// Bundles of a table, at most.
const BUNDLES_MAX: usize = 10;
/// Bytes of the descriptors of one, at most: with its name it is within what clients take.
const DESCRIPTORS_MAX: usize = 4_000_000;
/// Bytes that descriptors take while they are looked at, at most.
const DECODED_MAX: usize = 64 << 20;
/// The label of a field that must be there.
const REQUIRED: i32 = 2;

/// A set of files of descriptors (`google.protobuf.FileDescriptorSet`), as far as it is looked at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Files {
    #[prost(message, repeated, tag = "1")]
    file: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct File {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(string, repeated, tag = "3")]
    dependency: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    message_type: Vec<Kind>,
    #[prost(message, repeated, tag = "5")]
    enum_type: Vec<Choice>,
}

/// A type of messages.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Kind {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    field: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    nested_type: Vec<Kind>,
    #[prost(message, repeated, tag = "4")]
    enum_type: Vec<Choice>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    kind: i32,
    #[prost(string, tag = "6")]
    type_name: String,
}

/// An enumeration.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Choice {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    number: i32,
}

fn invalid(what: impl Into<String>) -> Status {
    Status::invalid_argument(what)
}

fn no_bundle(name: &str) -> Status {
    Status::not_found(format!("no schema bundle {name}"))
}

impl Files {
    /// Looks at descriptors, in this memory, of which the lease counts what they take.
    pub(crate) fn parse(descriptors: &[u8], memory: &Arc<Budget>) -> Result<(Self, Arc<Lease>), Status> {
        let field = "proto_schema.proto_descriptors";
        match descriptors.len() {
            0 => return Err(invalid(format!("{field} is empty"))),
            1..=DESCRIPTORS_MAX => {}
            len => return Err(invalid(format!("{field} has {len} bytes, the limit is {DESCRIPTORS_MAX}"))),
        }
        let becomes = wire::weigh(&[descriptors], 0, &wire::DESCRIPTORS, None)
            .map_err(|e| invalid(format!("{field}: {}", e.message())))?;
        if becomes > DECODED_MAX {
            return Err(invalid(format!("{field} takes {becomes} bytes, the limit is {DECODED_MAX}")));
        }
        let lease = memory.lend(becomes).ok_or_else(budget::no_memory)?;
        let files = Self::decode(descriptors).map_err(|e| invalid(format!("{field}: {e}")))?;
        let names: BTreeSet<&str> = files.file.iter().map(|file| &file.name[..]).collect();
        if names.is_empty() || names.contains("") {
            return Err(invalid(format!("{field} is no FileDescriptorSet: it names no files")));
        }
        for file in &files.file {
            if let Some(missing) = file.dependency.iter().find(|other| !names.contains(&other[..])) {
                let message = format!(
                    "{field}: {} imports {missing}, which is not there (protoc --include_imports)",
                    file.name
                );
                return Err(invalid(message));
            }
        }
        Ok((files, lease))
    }

    /// All types by their full names.
    fn all(&self) -> All<'_> {
        let mut all = All::default();
        for file in &self.file {
            all.add(&file.package, &file.message_type, &file.enum_type);
        }
        all
    }

    /// Whether what was written by the descriptors before can be read by these, with the same names; else what cannot.
    fn check_reads(&self, before: &Self) -> Result<(), String> {
        let (now, before) = (self.all(), before.all());
        for (name, kind) in &before.kinds {
            let Some(own) = now.kinds.get(name) else { return Err(format!("the message {name} is gone")) };
            let fields: BTreeMap<i32, &Field> = own.field.iter().map(|field| (field.number, field)).collect();
            for field in &kind.field {
                match fields.get(&field.number) {
                    None => return Err(format!("the field {name}.{} is gone", field.name)),
                    Some(own) if *own != field => {
                        return Err(format!("the field {name}.{} is another one", field.name));
                    }
                    Some(_) => {}
                }
            }
            let is_new = |field: &&Field| kind.field.iter().all(|old| old.number != field.number);
            if let Some(field) = own.field.iter().filter(is_new).find(|field| field.label == REQUIRED) {
                return Err(format!("the field {name}.{} is new, and required", field.name));
            }
        }
        for (name, choice) in &before.choices {
            let Some(own) = now.choices.get(name) else { return Err(format!("the enum {name} is gone")) };
            if let Some(value) = choice.value.iter().find(|value| !own.value.contains(value)) {
                return Err(format!("the value {name}.{} is gone", value.name));
            }
        }
        Ok(())
    }
}

/// Types by their full names.
#[derive(Default)]
struct All<'a> {
    kinds: BTreeMap<String, &'a Kind>,
    choices: BTreeMap<String, &'a Choice>,
}

impl<'a> All<'a> {
    fn add(&mut self, within: &str, kinds: &'a [Kind], choices: &'a [Choice]) {
        let full = |name: &str| if within.is_empty() { name.to_string() } else { format!("{within}.{name}") };
        for kind in kinds {
            let name = full(&kind.name);
            self.add(&name, &kind.nested_type, &kind.enum_type);
            self.kinds.insert(name, kind);
        }
        self.choices.extend(choices.iter().map(|choice| (full(&choice.name), choice)));
    }
}

fn of_table(table: u64) -> Vec<u8> {
    [BUNDLE, &table.to_be_bytes(), b"/"].concat()
}

fn record_key(table: u64, id: &str) -> Vec<u8> {
    [&of_table(table)[..], id.as_bytes()].concat()
}

fn to_message(name: String, descriptors: &[u8]) -> admin::SchemaBundle {
    let proto_descriptors = Bytes::copy_from_slice(descriptors);
    let r#type = Some(Type::ProtoSchema(ProtoSchema { proto_descriptors }));
    admin::SchemaBundle { name, etag: fingerprint(descriptors), r#type }
}

fn descriptors_of(bundle: &admin::SchemaBundle) -> Result<&Bytes, Status> {
    match &bundle.r#type {
        Some(Type::ProtoSchema(schema)) => Ok(&schema.proto_descriptors),
        None => Err(invalid("schema_bundle.proto_schema is missing")),
    }
}

impl Tables {
    fn table_id(&self, table: &str) -> Result<u64, Status> {
        Ok(self.get(names::table(table)?)?.now().schema.id)
    }

    fn write_bundle(&self, table: u64, id: &str, descriptors: Option<&[u8]>) -> Result<(), Status> {
        let (mut batch, key) = (Batch::new(), record_key(table, id));
        match descriptors {
            Some(descriptors) => drop(batch.put(&self.records, key, descriptors)),
            None => drop(batch.delete(&self.records, key)),
        }
        self.db.write_with(&batch, Durability::Sync).map(|_| ()).map_err(status)
    }

    /// The ids of the bundles of a table, in order.
    fn bundle_ids(&self, table: u64) -> Result<Vec<String>, Status> {
        let prefix = of_table(table);
        // Without the descriptors, which are long.
        let ids = self.records.scan_prefix(&prefix).keys().map(|key| {
            let key = key.map_err(status)?;
            Ok(String::from_utf8_lossy(&key[prefix.len()..]).into_owned())
        });
        ids.collect()
    }

    /// Makes a bundle.
    pub(crate) fn create_bundle(
        &self,
        request: &CreateSchemaBundleRequest,
        memory: &Arc<Budget>,
    ) -> Result<admin::SchemaBundle, Status> {
        let id = &request.schema_bundle_id;
        let name = names::bundle_of(&request.parent, id)?;
        let asked = request.schema_bundle.as_ref().ok_or_else(|| invalid("no schema_bundle"))?;
        if !asked.name.is_empty() && asked.name != name {
            return Err(invalid(format!("schema_bundle.name is \"{}\", not {name}", asked.name)));
        }
        if !asked.etag.is_empty() {
            return Err(invalid("schema_bundle.etag: a bundle that is made has none before"));
        }
        let descriptors = descriptors_of(asked)?;
        Files::parse(descriptors, memory)?;
        // So the table does not go meanwhile.
        let _changing = self.change();
        let table = self.table_id(&request.parent)?;
        let ids = self.bundle_ids(table)?;
        if ids.contains(id) {
            return Err(Status::already_exists(format!("schema bundle {name} exists")));
        }
        if ids.len() >= BUNDLES_MAX {
            let message = format!("the table has {BUNDLES_MAX} schema bundles, which is the limit");
            return Err(Status::resource_exhausted(message));
        }
        self.write_bundle(table, id, Some(&descriptors[..]))?;
        Ok(to_message(name, descriptors))
    }

    /// Changes a bundle. Where what the one before describes would be read otherwise, that needs `ignore_warnings`.
    pub(crate) fn update_bundle(
        &self,
        request: &UpdateSchemaBundleRequest,
        memory: &Arc<Budget>,
    ) -> Result<admin::SchemaBundle, Status> {
        let asked = request.schema_bundle.as_ref().ok_or_else(|| invalid("no schema_bundle"))?;
        let name = &asked.name;
        let (table, id) = names::bundle(name)?;
        let mask = request.update_mask.as_ref().map_or(&[][..], |mask| &mask.paths);
        let known = ["*", "proto_schema", "proto_schema.proto_descriptors"];
        if let Some(other) = mask.iter().find(|path| !known.contains(&path.as_str())) {
            let message =
                format!("update_mask names \"{other}\", which cannot be updated of a schema bundle");
            return Err(invalid(message));
        }
        let descriptors = descriptors_of(asked)?;
        let (files, _lease) = Files::parse(descriptors, memory)?;
        let _changing = self.change();
        let table = self.table_id(table)?;
        let before =
            self.records.get(record_key(table, id)).map_err(status)?.ok_or_else(|| no_bundle(name))?;
        check_etag(&asked.etag, &fingerprint(&before))?;
        if !request.ignore_warnings {
            let (old, _lease) = Files::parse(&before, memory)?;
            files
                .check_reads(&old)
                .map_err(|why| Status::failed_precondition(format!("{why}, which ignore_warnings allows")))?;
        }
        self.write_bundle(table, id, Some(&descriptors[..]))?;
        Ok(to_message(name.clone(), descriptors))
    }

    /// Deletes a bundle.
    pub(crate) fn delete_bundle(&self, request: &DeleteSchemaBundleRequest) -> Result<(), Status> {
        let name = &request.name;
        let (table, id) = names::bundle(name)?;
        let _changing = self.change();
        let table = self.table_id(table)?;
        let before =
            self.records.get(record_key(table, id)).map_err(status)?.ok_or_else(|| no_bundle(name))?;
        check_etag(&request.etag, &fingerprint(&before))?;
        self.write_bundle(table, id, None)
    }

    /// The bundle of that name.
    pub(crate) fn bundle(&self, name: &str) -> Result<admin::SchemaBundle, Status> {
        let (table, id) = names::bundle(name)?;
        let table = self.table_id(table).map_err(|_| no_bundle(name))?;
        let found = self.records.get(record_key(table, id)).map_err(status)?;
        found.map(|descriptors| to_message(name.to_string(), &descriptors)).ok_or_else(|| no_bundle(name))
    }

    /// A page of the bundles of a table: so many, from that one on, and as many as fit into a message.
    pub(crate) fn bundles(
        &self,
        table: &str,
        (most, from): (usize, &str),
    ) -> Result<ListSchemaBundlesResponse, Status> {
        let owner = self.table_id(table)?;
        let mut response = ListSchemaBundlesResponse::default();
        let mut bytes = 0;
        for id in self.bundle_ids(owner)?.into_iter().filter(|id| &id[..] >= from) {
            // One that was deleted meanwhile is left out.
            let Some(descriptors) = self.records.get(record_key(owner, &id)).map_err(status)? else {
                continue;
            };
            bytes += descriptors.len();
            let told = response.schema_bundles.len();
            if told == most || (told > 0 && bytes > DESCRIPTORS_MAX) {
                response.next_page_token = id;
                break;
            }
            response.schema_bundles.push(to_message(names::bundle_of(table, &id)?, &descriptors));
        }
        Ok(response)
    }

    /// Deletes the bundles of a table that is gone for good.
    pub(crate) fn forget_bundles(&self, table: u64, batch: &mut Batch) -> Result<(), Status> {
        for id in self.bundle_ids(table)? {
            batch.delete(&self.records, record_key(table, &id));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budgets;
    use prost_types::{DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto};
    use prost_types::{FileDescriptorProto, FileDescriptorSet};

    fn memory() -> Arc<Budget> {
        Budgets::new(256 << 20).caller(None, [127, 0, 0, 1].into()).answers.of_connection()
    }

    fn field(name: &str, number: i32, kind: i32) -> FieldDescriptorProto {
        let (name, number, kind) = (Some(name.to_string()), Some(number), Some(kind));
        FieldDescriptorProto { name, number, r#type: kind, label: Some(1), ..Default::default() }
    }

    fn message(name: &str, field: Vec<FieldDescriptorProto>) -> DescriptorProto {
        DescriptorProto { name: Some(name.into()), field, ..Default::default() }
    }

    fn set(message_type: Vec<DescriptorProto>, values: &[(&str, i32)]) -> FileDescriptorSet {
        let value = |(name, number): &(&str, i32)| EnumValueDescriptorProto {
            name: Some((*name).to_string()),
            number: Some(*number),
            ..Default::default()
        };
        let choice = EnumDescriptorProto {
            name: Some("E".into()),
            value: values.iter().map(value).collect(),
            ..Default::default()
        };
        let file = FileDescriptorProto {
            name: Some("a.proto".into()),
            package: Some("p".into()),
            message_type,
            enum_type: vec![choice],
            ..Default::default()
        };
        FileDescriptorSet { file: vec![file] }
    }

    fn parsed(set: &FileDescriptorSet) -> Files {
        Files::parse(&set.encode_to_vec(), &memory()).unwrap().0
    }

    #[test]
    fn descriptors_are_a_set_that_is_whole_in_itself() {
        let mut one = set(vec![message("M", vec![field("f", 1, 9)])], &[("A", 0)]);
        let files = parsed(&one);
        assert!(files.all().kinds.contains_key("p.M") && files.all().choices.contains_key("p.E"));
        one.file[0].dependency.push("b.proto".into());
        let refused = |bytes: &[u8]| Files::parse(bytes, &memory()).map(drop).unwrap_err();
        assert!(refused(&one.encode_to_vec()).message().contains("imports b.proto"));
        let long = vec![0; DESCRIPTORS_MAX + 1];
        // Two million files without a name.
        let empty = [1 << 3 | 2, 0].repeat(DESCRIPTORS_MAX / 2);
        for (bytes, word) in [
            (&b""[..], "empty"),
            (&long[..], "limit is 4000000"),
            (&empty[..], "limit is 67108864"),
            (&b"\x0a\x05ab"[..], "does not end"),
            (&b"\x0a\x00"[..], "names no files"),
            (&b"\x10\x01"[..], "names no files"),
        ] {
            let status = refused(bytes);
            assert!(
                status.code() == tonic::Code::InvalidArgument && status.message().contains(word),
                "{status}"
            );
        }
    }

    #[test]
    fn an_update_leaves_what_is_there_as_it_is() {
        let inner = || message("I", vec![field("x", 1, 5)]);
        let kind = |fields: Vec<FieldDescriptorProto>| DescriptorProto {
            nested_type: vec![inner()],
            ..message("M", fields)
        };
        let first = || vec![field("a", 1, 9), field("b", 2, 5)];
        let before = parsed(&set(vec![kind(first())], &[("A", 0), ("B", 1)]));
        let check = |kinds: Vec<DescriptorProto>, values: &[(&str, i32)]| {
            parsed(&set(kinds, values)).check_reads(&before)
        };
        let same = [("A", 0), ("B", 1)];
        let more = [first(), vec![field("c", 3, 9)]].concat();
        check(vec![kind(more), message("N", vec![])], &[("A", 0), ("B", 1), ("C", 2)]).unwrap();
        check(vec![kind(first().into_iter().rev().collect())], &same).unwrap();
        let required = FieldDescriptorProto { label: Some(REQUIRED), ..field("c", 3, 9) };
        for (kinds, values, word) in [
            (vec![], &same[..], "message p.M"),
            (vec![message("M", first())], &same[..], "message p.M.I"),
            (vec![kind(vec![field("a", 1, 9)])], &same[..], "p.M.b is gone"),
            (vec![kind(vec![field("a", 1, 9), field("b", 2, 9)])], &same[..], "p.M.b is another"),
            (vec![kind(vec![field("a", 1, 9), field("bb", 2, 5)])], &same[..], "p.M.b is another"),
            (vec![kind([first(), vec![required]].concat())], &same[..], "p.M.c is new"),
            (vec![kind(first())], &same[..1], "p.E.B"),
        ] {
            let why = check(kinds, values).unwrap_err();
            assert!(why.contains(word), "{why}, expected {word}");
        }
    }
}
