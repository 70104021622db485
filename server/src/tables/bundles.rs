//! Schema bundles: descriptors of protocol buffers that belong to a table, stored for clients and returned
//! unchanged.
//!
//! A bundle is a record of its own in the engine family `tables`, under its table's id, and is deleted when
//! that is gone for good (`crate::tables::undelete`). Its descriptors are checked on arrival: they must be a
//! complete set. An update must leave the names and numbers of the messages before it as they were, unless
//! its maker says that it need not.

use crate::names::{self, fingerprint};
use crate::net::answer;
use crate::net::budget::{self, Budget, Lease};
use crate::net::wire;
use crate::proto::admin::schema_bundle::Type;
use crate::proto::admin::{
    self, CreateSchemaBundleRequest, DeleteSchemaBundleRequest, ListSchemaBundlesResponse, ProtoSchema,
    UpdateSchemaBundleRequest,
};
use crate::proto::descriptors::{Choice, Field, File, Files, Kind, Value};
use crate::status::status;
use crate::tables::registry::Tables;
use crate::tables::views::check_etag;
use bytes::Bytes;
use prost::Message;
use siltstone::{Batch, Durability, Pinned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tonic::Status;

/// The prefix of bundles' names among the records.
const BUNDLE: &[u8] = b"bundle/";
/// Bundles of a table, at most.
const BUNDLES_MAX: usize = 10;
/// Bytes of the descriptors of one, at most: with its name it is within what clients take.
const DESCRIPTORS_MAX: usize = 4_000_000;
/// Bytes that descriptors take while they are looked at, at most, and those that the full names of their
/// types take.
const DECODED_MAX: usize = 64 << 20;
/// The memory of a full name beside its bytes.
const NAME_BYTES: usize = 96;
/// Characters of a name that an error says, at most.
const NAME_SHOWN_MAX: usize = 200;
/// The label of a field that must be there.
const REQUIRED: i32 = 2;

fn invalid(what: impl Into<String>) -> Status {
    Status::invalid_argument(what)
}

fn no_bundle(name: &str) -> Status {
    Status::not_found(format!("no schema bundle {name}"))
}

/// A name out of descriptors as errors say it: of a long one the beginning.
fn shown(name: &str) -> &str {
    let end = name.char_indices().nth(NAME_SHOWN_MAX).map_or(name.len(), |(at, _)| at);
    &name[..end]
}

/// What the full names take of types that lie within one of so many bytes. They are counted before any is
/// made, as each repeats all that it lies in.
fn names_bytes(within: usize, kinds: &[Kind], choices: &[Choice]) -> usize {
    let full = |name: &str| within.saturating_add(1 + name.len());
    let of_kind = |kind: &Kind| {
        let name = full(&kind.name);
        let nested = names_bytes(name, &kind.nested_type, &kind.enum_type);
        name.saturating_add(nested).saturating_add(NAME_BYTES)
    };
    let of_choice = |choice: &Choice| full(&choice.name).saturating_add(NAME_BYTES);
    let all = kinds.iter().map(of_kind).chain(choices.iter().map(of_choice));
    all.fold(0, usize::saturating_add)
}

impl Files {
    /// Checks descriptors, whose memory the lease counts.
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
        let of_file = |file: &File| names_bytes(file.package.len(), &file.message_type, &file.enum_type);
        let full_names = files.file.iter().map(of_file).fold(0, usize::saturating_add);
        if full_names > DECODED_MAX {
            return Err(invalid(format!(
                "{field}: the full names of its types take {full_names} bytes, the limit is {DECODED_MAX}"
            )));
        }
        if !lease.grow(full_names) {
            return Err(budget::no_memory());
        }
        let names: BTreeSet<&str> = files.file.iter().map(|file| &file.name[..]).collect();
        if names.is_empty() || names.contains("") {
            return Err(invalid(format!("{field} is no FileDescriptorSet: it names no files")));
        }
        for file in &files.file {
            if let Some(missing) = file.dependency.iter().find(|other| !names.contains(&other[..])) {
                let message = format!(
                    "{field}: {} imports {}, which is not there (protoc --include_imports)",
                    shown(&file.name),
                    shown(missing)
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

    /// Whether what was written by the descriptors before can be read by these, with the same names; else
    /// what cannot.
    pub(crate) fn check_reads(&self, before: &Self) -> Result<(), String> {
        let (now, before) = (self.all(), before.all());
        for (name, kind) in &before.kinds {
            let Some(own) = now.kinds.get(name) else {
                return Err(format!("the message {} is gone", shown(name)));
            };
            let said = |field: &Field, what: &str| {
                Err(format!("the field {}.{} is {what}", shown(name), shown(&field.name)))
            };
            let fields: BTreeMap<i32, &Field> = own.field.iter().map(|field| (field.number, field)).collect();
            for field in &kind.field {
                match fields.get(&field.number) {
                    None => return said(field, "gone"),
                    Some(own) if *own != field => return said(field, "another one"),
                    Some(_) => {}
                }
            }
            let old: BTreeSet<i32> = kind.field.iter().map(|field| field.number).collect();
            let is_new = |field: &&Field| !old.contains(&field.number);
            if let Some(field) = own.field.iter().filter(is_new).find(|field| field.label == REQUIRED) {
                return said(field, "new, and required");
            }
        }
        for (name, choice) in &before.choices {
            let Some(own) = now.choices.get(name) else {
                return Err(format!("the enum {} is gone", shown(name)));
            };
            let values: BTreeSet<_> = own.value.iter().map(|value| (value.number, &value.name[..])).collect();
            let is_gone = |value: &&Value| !values.contains(&(value.number, &value.name[..]));
            if let Some(value) = choice.value.iter().find(is_gone) {
                return Err(format!("the value {}.{} is gone", shown(name), shown(&value.name)));
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

fn to_message(name: String, proto_descriptors: Bytes) -> admin::SchemaBundle {
    let etag = fingerprint(&proto_descriptors);
    let r#type = Some(Type::ProtoSchema(ProtoSchema { proto_descriptors }));
    admin::SchemaBundle { name, etag, r#type }
}

/// Memory for an answer with so many bytes of descriptors, as they are told and as they are sent.
fn lent(bytes: usize, memory: &Arc<Budget>) -> Result<Arc<Lease>, Status> {
    answer::counted(memory, 2 * bytes).ok_or_else(budget::no_memory)
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

    /// The id of a bundle's table, its own id, and its descriptors.
    fn stored_bundle<'a>(&self, name: &'a str) -> Result<(u64, &'a str, Pinned), Status> {
        let (table, id) = names::bundle(name)?;
        let table = self.table_id(table)?;
        let found = self.records.get(record_key(table, id)).map_err(status)?;
        Ok((table, id, found.ok_or_else(|| no_bundle(name))?))
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

    /// Makes a bundle. It is returned with the memory for the answer.
    pub(crate) fn create_bundle(
        &self,
        request: &CreateSchemaBundleRequest,
        memory: &Arc<Budget>,
    ) -> Result<(admin::SchemaBundle, Arc<Lease>), Status> {
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
        drop(Files::parse(descriptors, memory)?);
        let lease = lent(descriptors.len(), memory)?;
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
        Ok((to_message(name, descriptors.clone()), lease))
    }

    /// Whether a bundle may be updated as asked; and where that depends on what it is now, the etag of that.
    fn check_update(
        &self,
        asked: &admin::SchemaBundle,
        ignores_warnings: bool,
        memory: &Arc<Budget>,
    ) -> Result<Option<String>, Status> {
        let (files, _lease) = Files::parse(descriptors_of(asked)?, memory)?;
        if ignores_warnings {
            return Ok(None);
        }
        let (.., before) = self.stored_bundle(&asked.name)?;
        let etag = fingerprint(&before);
        check_etag(&asked.etag, &etag)?;
        let (old, _lease) = Files::parse(&before, memory)?;
        match files.check_reads(&old) {
            Ok(()) => Ok(Some(etag)),
            Err(why) => Err(Status::failed_precondition(format!("{why}, which ignore_warnings allows"))),
        }
    }

    /// Changes a bundle. Where what the one before describes would be read otherwise, that needs
    /// `ignore_warnings`. It is returned with the memory for the answer.
    pub(crate) fn update_bundle(
        &self,
        request: &UpdateSchemaBundleRequest,
        memory: &Arc<Budget>,
    ) -> Result<(admin::SchemaBundle, Arc<Lease>), Status> {
        let asked = request.schema_bundle.as_ref().ok_or_else(|| invalid("no schema_bundle"))?;
        let name = &asked.name;
        names::bundle(name)?;
        let mask = request.update_mask.as_ref().map_or(&[][..], |mask| &mask.paths);
        let known = ["*", "proto_schema", "proto_schema.proto_descriptors"];
        if let Some(other) = mask.iter().find(|path| !known.contains(&path.as_str())) {
            let message =
                format!("update_mask names \"{other}\", which cannot be updated of a schema bundle");
            return Err(invalid(message));
        }
        let descriptors = descriptors_of(asked)?;
        // The slow part is done before others wait.
        let looked_at = self.check_update(asked, request.ignore_warnings, memory)?;
        let lease = lent(descriptors.len(), memory)?;
        let _changing = self.change();
        let (table, id, before) = self.stored_bundle(name)?;
        let now = fingerprint(&before);
        check_etag(&asked.etag, &now)?;
        if looked_at.is_some_and(|looked_at| looked_at != now) {
            return Err(Status::aborted(format!(
                "schema bundle {name} was changed by another call meanwhile"
            )));
        }
        self.write_bundle(table, id, Some(&descriptors[..]))?;
        Ok((to_message(name.clone(), descriptors.clone()), lease))
    }

    /// Deletes a bundle.
    pub(crate) fn delete_bundle(&self, request: &DeleteSchemaBundleRequest) -> Result<(), Status> {
        let _changing = self.change();
        let (table, id, before) = self.stored_bundle(&request.name)?;
        check_etag(&request.etag, &fingerprint(&before))?;
        self.write_bundle(table, id, None)
    }

    /// The bundle of that name, with the memory for the answer.
    pub(crate) fn bundle(
        &self,
        name: &str,
        memory: &Arc<Budget>,
    ) -> Result<(admin::SchemaBundle, Arc<Lease>), Status> {
        let (table, id) = names::bundle(name)?;
        let table = self.table_id(table).map_err(|_| no_bundle(name))?;
        let found = self.records.get(record_key(table, id)).map_err(status)?;
        let descriptors = found.ok_or_else(|| no_bundle(name))?;
        // Before anything is copied.
        let lease = lent(descriptors.len(), memory)?;
        Ok((to_message(name.to_string(), Bytes::copy_from_slice(&descriptors)), lease))
    }

    /// A page of the bundles of a table: so many, from that one on, and as many as fit into a message. With
    /// the memory for the answer.
    pub(crate) fn bundles(
        &self,
        table: &str,
        (most, from): (usize, &str),
        memory: &Arc<Budget>,
    ) -> Result<(ListSchemaBundlesResponse, Arc<Lease>), Status> {
        let owner = self.table_id(table)?;
        let mut response = ListSchemaBundlesResponse::default();
        let (mut page, mut bytes) = (Vec::new(), 0);
        for id in self.bundle_ids(owner)?.into_iter().filter(|id| &id[..] >= from) {
            // One that was deleted meanwhile is left out.
            let Some(descriptors) = self.records.get(record_key(owner, &id)).map_err(status)? else {
                continue;
            };
            let with_it = bytes + descriptors.len();
            if page.len() == most || (!page.is_empty() && with_it > DESCRIPTORS_MAX) {
                response.next_page_token = id;
                break;
            }
            bytes = with_it;
            page.push((names::bundle_of(table, &id)?, descriptors));
        }
        // Before anything is copied.
        let lease = lent(bytes, memory)?;
        let told =
            |(name, descriptors): (String, Pinned)| to_message(name, Bytes::copy_from_slice(&descriptors));
        response.schema_bundles = page.into_iter().map(told).collect();
        Ok((response, lease))
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
    use crate::config::Config;
    use crate::net::budget::Budgets;
    use prost_types::{DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto};
    use prost_types::{FileDescriptorProto, FileDescriptorSet};

    const TABLE: &str = "projects/p/instances/i/tables/t";

    fn memory() -> Arc<Budget> {
        memory_of(256 << 20)
    }

    /// A quarter of so many bytes.
    fn memory_of(bytes: u64) -> Arc<Budget> {
        Budgets::new(bytes).caller(None, [127, 0, 0, 1].into()).answers.of_connection()
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

    /// Tables of a database, of which there is one.
    fn opened(dir: &std::path::Path) -> Tables {
        let config = Config { dir: dir.join("data"), ..Config::default() };
        let db = crate::tables::schema::builder(config.options()).open(&config.dir).unwrap();
        let tables = Tables::open(db, config.store_settings(), config.directories()).unwrap();
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        let table = admin::Table { column_families: families, ..Default::default() };
        tables.create(TABLE, &table, &["m"]).unwrap();
        tables
    }

    fn asked(descriptors: &[u8]) -> Option<admin::SchemaBundle> {
        let told = to_message(format!("{TABLE}/schemaBundles/b"), Bytes::copy_from_slice(descriptors));
        Some(admin::SchemaBundle { etag: String::new(), ..told })
    }

    type Told = Result<(admin::SchemaBundle, Arc<Lease>), Status>;

    fn create(tables: &Tables, descriptors: &[u8], memory: &Arc<Budget>) -> Told {
        let (parent, schema_bundle_id) = (TABLE.to_string(), "b".to_string());
        let schema_bundle = asked(descriptors);
        tables.create_bundle(&CreateSchemaBundleRequest { parent, schema_bundle_id, schema_bundle }, memory)
    }

    fn update(tables: &Tables, descriptors: &[u8], memory: &Arc<Budget>) -> Told {
        let schema_bundle = asked(descriptors);
        let request = UpdateSchemaBundleRequest { schema_bundle, ..Default::default() };
        tables.update_bundle(&request, memory)
    }

    #[test]
    fn answers_have_their_memory_before_anything_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        let file = FileDescriptorProto { name: Some("n".repeat(100_000)), ..Default::default() };
        let descriptors = FileDescriptorSet { file: vec![file] }.encode_to_vec();
        let bytes = 2 * descriptors.len();
        // There is room for one answer.
        let memory = memory_of(1 << 20);
        let refused = |status: Status| assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
        let (made, lease) = create(&tables, &descriptors, &memory).unwrap();
        assert_eq!(memory.used(), bytes);
        refused(tables.bundle(&made.name, &memory).unwrap_err());
        drop(lease);
        let (told, lease) = tables.bundle(&made.name, &memory).unwrap();
        assert_eq!((told == made, memory.used()), (true, bytes));
        refused(tables.bundles(TABLE, (10, ""), &memory).unwrap_err());
        drop(lease);
        let (page, lease) = tables.bundles(TABLE, (10, ""), &memory).unwrap();
        assert_eq!((page.schema_bundles == [told], memory.used()), (true, bytes));
        refused(update(&tables, &descriptors, &memory).unwrap_err());
        drop(lease);
        let (_, lease) = update(&tables, &descriptors, &memory).unwrap();
        assert_eq!(memory.used(), bytes);
        drop(lease);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn an_update_is_compared_before_others_wait_and_refused_where_the_bundle_changes_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let (tables, memory) = (opened(dir.path()), memory());
        let of = |numbers: &[i32]| {
            let fields = numbers.iter().map(|n| field(&format!("f{n}"), *n, 5)).collect();
            set(vec![message("M", fields)], &[]).encode_to_vec()
        };
        let (one, two, other) = (of(&[1]), of(&[1, 2]), of(&[1, 3]));
        drop(create(&tables, &one, &memory).unwrap());
        let table = tables.table_id(TABLE).unwrap();
        let changing = tables.change();
        let late = std::thread::scope(|scope| {
            let waits = scope.spawn(|| update(&tables, &two, &memory));
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            // Once it is compared it has the memory for its answer, and no other.
            while memory.used() != 2 * two.len() {
                assert!(std::time::Instant::now() < until, "it waits before it is compared");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            tables.write_bundle(table, "b", Some(&other)).unwrap();
            drop(changing);
            waits.join().unwrap().unwrap_err()
        });
        assert_eq!(late.code(), tonic::Code::Aborted, "{late}");
        let gone = update(&tables, &two, &memory).unwrap_err();
        assert_eq!(gone.code(), tonic::Code::FailedPrecondition, "{gone}");
        assert!(update(&tables, &of(&[1, 2, 3]), &memory).is_ok());
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
    fn full_names_are_counted_before_they_are_made() {
        let refused = |set: &FileDescriptorSet| {
            let status = Files::parse(&set.encode_to_vec(), &memory()).map(drop).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
            assert!(status.message().contains("full names") && status.message().len() < 500, "{status}");
        };
        // Each of many messages has the name of the package in its own.
        let mut packaged = set(vec![DescriptorProto::default(); 131_000], &[]);
        packaged.file[0].package = Some("p".repeat(2_900_000));
        refused(&packaged);
        // As has each of those that lie in one with a long name.
        let inner = vec![message("I", vec![]); 100];
        let nested = DescriptorProto { nested_type: inner, ..message(&"m".repeat(1_000_000), vec![]) };
        refused(&set(vec![nested], &[]));
        // What is taken is counted.
        let mut some = set(vec![message("M", vec![]); 1_000], &[]);
        some.file[0].package = Some("p".repeat(10_000));
        let memory = memory();
        let (files, lease) = Files::parse(&some.encode_to_vec(), &memory).unwrap();
        assert!(memory.used() > 1_000 * 10_000, "{}", memory.used());
        drop(lease);
        assert_eq!(memory.used(), 0);
        // Of a name that is told there is the beginning.
        let why = parsed(&set(vec![], &[])).check_reads(&files).unwrap_err();
        assert!(why.contains("is gone") && why.len() < 500, "{why}");
    }

    #[test]
    fn an_update_of_a_hundred_thousand_fields_and_values_is_looked_at_in_one_pass() {
        let one = |n: i32| field(&format!("f{n}"), n, 5);
        let fields = |count: i32| (1..=count).rev().map(one).collect::<Vec<_>>();
        let names: Vec<String> = (0..=100_000).map(|n| format!("V{n}")).collect();
        let values: Vec<(&str, i32)> = names.iter().map(|name| &name[..]).zip(0..).collect();
        let before = parsed(&set(vec![message("M", fields(100_000))], &values[..100_000]));
        let after = parsed(&set(vec![message("M", fields(100_001))], &values));
        after.check_reads(&before).unwrap();
        let why = before.check_reads(&after).unwrap_err();
        assert!(why.contains("p.M.f100001 is gone"), "{why}");
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
