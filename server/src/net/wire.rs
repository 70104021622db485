//! Requests as they came, looked at before they are decoded: which table they name, what they would become in
//! memory, and whether they have fields that are not served.
//!
//! A message of a few megabytes may hold a million empty ones, each of two bytes and a hundred times that
//! once it is decoded. So a [`Shape`] says for each kind of request which fields are messages and how large
//! their structs are; [`weigh`] walks the bytes by it, allocates nothing, and refuses what has more of
//! something than a call may have. What is left is counted before it is made. In the same walk each field is
//! looked up in the table of all fields (`crate::net::fields`), of a mutation as of a table.

use crate::net::fields::Message;
use crate::proto::admin::{
    self, authorized_view, create_table_request, modify_column_families_request, table,
};
use crate::proto::data::{self, mutate_rows_request};
use crate::proto::{descriptors, iam, operator_messages};
use tonic::Status;

/// Mutations of one call, at most.
pub(crate) const MUTATIONS_MAX: usize = 100_000;
/// Bytes of the keys and ranges of a scan, at most.
const ROW_SET_MAX: usize = 500_000;
/// Bytes of a filter, at most.
const FILTER_MAX: usize = 20 << 10;
/// Bytes of a garbage collection rule, at most.
const GC_RULE_MAX: usize = 500;
/// How deep messages may lie in messages: as deep as they are decoded.
const DEPTH_MAX: usize = 100;
/// Fields of a shape, at most.
const FIELDS_MAX: usize = 8;
/// About the overhead of an allocation.
const ALLOCATION: usize = 32;

/// Bytes of a request in pieces, read from the front.
struct Input<'a, B> {
    /// Pieces behind the one at which it stands.
    pieces: &'a [B],
    /// Bytes of that piece that were not read yet.
    here: &'a [u8],
    /// Bytes before that place.
    position: usize,
    len: usize,
}

/// It ends before what it says that it holds, or holds what no message has.
#[derive(Debug, PartialEq, Eq)]
struct Ends;

/// What stands before a field, or, of one without a length, all of it.
struct Head {
    number: u64,
    /// The place behind it, of one with a length.
    end: Option<usize>,
    /// It is not 0, or not empty.
    has_value: bool,
}

impl<'a, B: AsRef<[u8]>> Input<'a, B> {
    fn new(pieces: &'a [B]) -> Self {
        let len = pieces.iter().map(|piece| piece.as_ref().len()).sum();
        Self { pieces, here: &[], position: 0, len }
    }

    /// Goes on to the next piece where this one has ended. The bytes left of it, which are none at the end
    /// alone.
    #[inline]
    fn rest(&mut self) -> &'a [u8] {
        while self.here.is_empty() {
            let Some((first, behind)) = self.pieces.split_first() else { break };
            (self.here, self.pieces) = (first.as_ref(), behind);
        }
        self.here
    }

    /// Takes at most that many bytes of the piece at which it stands.
    #[inline]
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let rest = self.rest();
        let (taken, left) = rest.split_at(bytes.min(rest.len()));
        self.here = left;
        self.position += taken.len();
        taken
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Ends> {
        self.take(1).first().copied().ok_or(Ends)
    }

    #[inline]
    fn skip(&mut self, bytes: usize) -> Result<(), Ends> {
        if bytes > self.len - self.position {
            return Err(Ends);
        }
        let mut left = bytes;
        while left > 0 {
            left -= self.take(left).len();
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: usize) -> Result<Vec<u8>, Ends> {
        if bytes > self.len - self.position {
            return Err(Ends);
        }
        let mut read = Vec::with_capacity(bytes);
        while read.len() < bytes {
            read.extend_from_slice(self.take(bytes - read.len()));
        }
        Ok(read)
    }

    /// A number in groups of seven bits, most of which have one.
    #[inline]
    fn varint(&mut self) -> Result<u64, Ends> {
        match self.here {
            [byte @ ..0x80, left @ ..] => {
                (self.here, self.position) = (left, self.position + 1);
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Ends> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Ends)
    }

    /// The next field. One without a length is skipped.
    #[inline]
    fn field(&mut self) -> Result<Head, Ends> {
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || key > u64::from(u32::MAX) {
            return Err(Ends);
        }
        let has_value = match key & 7 {
            0 => self.varint()? != 0,
            1 => self.skip(8).map(|()| true)?,
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Ends)?;
                let end = self.position.checked_add(len).ok_or(Ends)?;
                return Ok(Head { number, end: Some(end), has_value: len > 0 });
            }
            5 => self.skip(4).map(|()| true)?,
            _ => return Err(Ends),
        };
        Ok(Head { number, end: None, has_value })
    }

    /// Adds the texts that stand at that path of field numbers, of the message that ends at `end`, as far as
    /// it goes.
    fn texts(&mut self, end: usize, path: &[u64], found: &mut Vec<String>) -> Result<(), Ends> {
        while self.position < end {
            let Head { number, end: Some(field_end), .. } = self.field()? else { continue };
            if field_end > end {
                return Err(Ends);
            }
            match path {
                [last] if *last == number => {
                    let bytes = self.bytes(field_end - self.position)?;
                    found.push(String::from_utf8(bytes).map_err(|_| Ends)?);
                }
                [first, path @ ..] if *first == number => self.texts(field_end, path, found)?,
                _ => self.skip(field_end - self.position)?,
            }
        }
        Ok(())
    }
}

/// A text of a request, as far as it has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is not there yet.
    NotYet,
    Text(String),
}

/// The text at that path of field numbers. Of one that has all of its `len` bytes it is empty where it is not
/// there.
///
/// # Errors
/// `INVALID_ARGUMENT` for a request that is not whole in itself, or has the text twice: those who decode it
/// take the last.
pub(crate) fn text_of<B: AsRef<[u8]>>(
    pieces: &[B],
    begin: usize,
    len: usize,
    path: &[u64],
) -> Result<Found, Status> {
    let mut input = Input::new(pieces);
    let is_whole = input.len >= begin + len;
    let mut found = Vec::new();
    let read = input.skip(begin).and_then(|()| input.texts(begin + len, path, &mut found));
    match (is_whole, read, found.pop()) {
        (true, Err(Ends), _) => Err(malformed()),
        (_, _, Some(_)) if !found.is_empty() => {
            Err(Status::invalid_argument("the request names what it is about twice"))
        }
        (_, _, Some(text)) => Ok(Found::Text(text)),
        (true, Ok(()), None) => Ok(Found::Text(String::new())),
        (false, _, None) => Ok(Found::NotYet),
    }
}

fn malformed() -> Status {
    Status::invalid_argument("the request is no message of its kind: a field does not end within it")
}

/// A field that takes memory beside the bytes it came in.
struct Field {
    number: u64,
    shape: &'static Shape,
    /// It may come more than once, each time as one more.
    is_repeated: bool,
    /// Bytes that it may have.
    bytes_max: usize,
    /// What it is, where there is a limit.
    what: &'static str,
    /// Where such as this are counted.
    counted: Option<usize>,
}

/// The memory of a message, or of a text.
pub(crate) struct Shape {
    /// Bytes of its struct, and of what it always allocates.
    bytes: usize,
    /// Whether the bytes that it came in are copied.
    is_copied: bool,
    fields: &'static [Field],
}

const fn field(number: u64, shape: &'static Shape) -> Field {
    Field { number, shape, is_repeated: false, bytes_max: usize::MAX, what: "", counted: None }
}

const fn repeated(number: u64, shape: &'static Shape) -> Field {
    Field { is_repeated: true, ..field(number, shape) }
}

/// One of those of which a call may have [`MUTATIONS_MAX`], counted with others of the same number.
const fn counted(number: u64, shape: &'static Shape, at: usize) -> Field {
    Field { counted: Some(at), ..repeated(number, shape) }
}

const fn limited(number: u64, shape: &'static Shape, bytes_max: usize, what: &'static str) -> Field {
    Field { bytes_max, what, ..field(number, shape) }
}

/// The shape of a message with these fields.
macro_rules! shape {
    ($message:ty, [$($field:expr),*]) => {
        Shape { bytes: size_of::<$message>() + ALLOCATION, is_copied: false, fields: &[$($field),*] }
    };
}

/// One whose messages are all within its struct, or are names and numbers.
pub(crate) static PLAIN: Shape = Shape { bytes: 0, is_copied: false, fields: &[] };
static TEXT: Shape = Shape { bytes: size_of::<String>() + ALLOCATION, is_copied: true, fields: &[] };
static BYTES: Shape = Shape { bytes: size_of::<bytes::Bytes>(), is_copied: false, fields: &[] };

static TYPE_OF_VALUE: Shape = shape!(
    data::Type,
    [
        field(6, &AGGREGATE_OF_VALUE),
        field(7, &STRUCT_OF_VALUE),
        field(3, &TYPES_OF_VALUE),
        field(4, &TYPES_OF_VALUE),
        field(13, &TEXTS),
        field(14, &TEXTS)
    ]
);
/// One with up to two types.
static TYPES_OF_VALUE: Shape =
    shape!(data::r#type::Map, [field(1, &TYPE_OF_VALUE), field(2, &TYPE_OF_VALUE)]);
static AGGREGATE_OF_VALUE: Shape =
    shape!(data::r#type::Aggregate, [field(1, &TYPE_OF_VALUE), field(2, &TYPE_OF_VALUE)]);
static STRUCT_OF_VALUE: Shape = shape!(data::r#type::Struct, [repeated(1, &FIELD_OF_VALUE)]);
static FIELD_OF_VALUE: Shape =
    shape!(data::r#type::r#struct::Field, [field(1, &TEXT), field(2, &TYPE_OF_VALUE)]);
static TEXTS: Shape =
    Shape { bytes: ALLOCATION, is_copied: false, fields: &[field(1, &TEXT), field(2, &TEXT)] };

static VALUE: Shape = shape!(data::Value, [field(7, &TYPE_OF_VALUE), field(3, &TEXT), field(4, &VALUES)]);
static VALUES: Shape = shape!(data::ArrayValue, [repeated(1, &VALUE)]);

/// One within another struct whose first field is a text.
static NAMED: Shape = Shape { bytes: 0, is_copied: false, fields: &[field(1, &TEXT)] };
static ADD_TO_CELL: Shape = Shape {
    bytes: 0,
    is_copied: false,
    fields: &[field(1, &TEXT), field(2, &VALUE), field(3, &VALUE), field(4, &VALUE)],
};
static MUTATION: Shape = shape!(
    data::Mutation,
    [field(1, &NAMED), field(2, &NAMED), field(3, &NAMED), field(5, &ADD_TO_CELL), field(6, &ADD_TO_CELL)]
);
/// Where mutations are counted, and what else a call has as many of.
const MUTATIONS: usize = 0;
const OTHERS: usize = 1;
static ENTRY: Shape = shape!(mutate_rows_request::Entry, [counted(2, &MUTATION, MUTATIONS)]);

static FILTER: Shape = shape!(
    data::RowFilter,
    [
        field(1, &FILTERS),
        field(2, &FILTERS),
        field(3, &CONDITION),
        field(5, &TEXT),
        field(7, &NAMED),
        field(19, &TEXT)
    ]
);
static FILTERS: Shape = shape!(data::row_filter::Chain, [repeated(1, &FILTER)]);
static CONDITION: Shape =
    shape!(data::row_filter::Condition, [field(1, &FILTER), field(2, &FILTER), field(3, &FILTER)]);
static ROW_SET: Shape = shape!(data::RowSet, [repeated(1, &BYTES), repeated(2, &ROW_RANGE)]);
static ROW_RANGE: Shape = Shape { bytes: size_of::<data::RowRange>(), is_copied: false, fields: &[] };
static RULE: Shape = shape!(data::ReadModifyWriteRule, [field(1, &TEXT)]);
static TOKENS: Shape = shape!(data::StreamContinuationTokens, [repeated(1, &TOKEN)]);
static TOKEN: Shape = shape!(data::StreamContinuationToken, [field(2, &TEXT)]);

/// The request of ReadRows.
pub(crate) static READ_ROWS: Shape = shape!(
    data::ReadRowsRequest,
    [limited(2, &ROW_SET, ROW_SET_MAX, "row set"), limited(3, &FILTER, FILTER_MAX, "filter")]
);
/// The request of MutateRow.
pub(crate) static MUTATE_ROW: Shape = shape!(data::MutateRowRequest, [counted(3, &MUTATION, MUTATIONS)]);
/// The request of MutateRows.
pub(crate) static MUTATE_ROWS: Shape = shape!(data::MutateRowsRequest, [counted(2, &ENTRY, OTHERS)]);
/// The request of CheckAndMutateRow.
pub(crate) static CHECK_AND_MUTATE_ROW: Shape = shape!(
    data::CheckAndMutateRowRequest,
    [
        limited(6, &FILTER, FILTER_MAX, "filter"),
        counted(4, &MUTATION, MUTATIONS),
        counted(5, &MUTATION, OTHERS)
    ]
);
/// The request of ReadModifyWriteRow.
pub(crate) static READ_MODIFY_WRITE_ROW: Shape =
    shape!(data::ReadModifyWriteRowRequest, [counted(3, &RULE, OTHERS)]);
/// The request of ReadChangeStream.
pub(crate) static READ_CHANGE_STREAM: Shape = shape!(data::ReadChangeStreamRequest, [field(6, &TOKENS)]);

static GC_RULE: Shape = shape!(admin::GcRule, [field(3, &GC_RULES), field(4, &GC_RULES)]);
static GC_RULES: Shape = shape!(admin::gc_rule::Union, [repeated(1, &GC_RULE)]);
static TYPE: Shape = shape!(
    admin::Type,
    [
        field(6, &AGGREGATE),
        field(7, &STRUCT),
        field(3, &TYPES),
        field(4, &TYPES),
        field(13, &TEXTS),
        field(14, &TEXTS)
    ]
);
static TYPES: Shape = shape!(admin::r#type::Map, [field(1, &TYPE), field(2, &TYPE)]);
static AGGREGATE: Shape = shape!(admin::r#type::Aggregate, [field(1, &TYPE), field(2, &TYPE)]);
static STRUCT: Shape = shape!(admin::r#type::Struct, [repeated(1, &STRUCT_FIELD)]);
static STRUCT_FIELD: Shape = shape!(admin::r#type::r#struct::Field, [field(1, &TEXT), field(2, &TYPE)]);
static COLUMN_FAMILY: Shape = shape!(
    admin::ColumnFamily,
    [limited(1, &GC_RULE, GC_RULE_MAX, "garbage collection rule"), field(3, &TYPE)]
);
static FAMILY_BY_NAME: Shape =
    shape!((String, admin::ColumnFamily), [field(1, &TEXT), field(2, &COLUMN_FAMILY)]);
static CLUSTER_BY_NAME: Shape = shape!((String, table::ClusterState), [field(1, &TEXT), field(2, &CLUSTER)]);
static CLUSTER: Shape = shape!(table::ClusterState, [repeated(2, &ENCRYPTION)]);
static ENCRYPTION: Shape = shape!(admin::EncryptionInfo, [field(4, &STATUS), field(2, &TEXT)]);
static STATUS: Shape = shape!(crate::proto::rpc::Status, [field(2, &TEXT), repeated(3, &ANY)]);
static ANY: Shape = shape!(prost_types::Any, [field(1, &TEXT), field(2, &TEXT)]);
static BACKUP_POLICY: Shape = shape!(table::AutomatedBackupPolicy, [repeated(3, &TEXT)]);
static TABLE: Shape = shape!(
    admin::Table,
    [
        repeated(2, &CLUSTER_BY_NAME),
        repeated(3, &FAMILY_BY_NAME),
        field(13, &BACKUP_POLICY),
        field(15, &STRUCT)
    ]
);
static SPLIT: Shape =
    Shape { bytes: size_of::<create_table_request::Split>(), is_copied: false, fields: &[] };
static MASK: Shape = shape!(prost_types::FieldMask, [repeated(1, &TEXT)]);
static MODIFICATION: Shape = shape!(
    modify_column_families_request::Modification,
    [field(1, &TEXT), field(6, &MASK), field(2, &COLUMN_FAMILY), field(3, &COLUMN_FAMILY)]
);

/// The request of CreateTable.
pub(crate) static CREATE_TABLE: Shape =
    shape!(admin::CreateTableRequest, [field(3, &TABLE), repeated(4, &SPLIT)]);
/// The request of UpdateTable.
pub(crate) static UPDATE_TABLE: Shape =
    shape!(admin::UpdateTableRequest, [field(1, &TABLE), field(2, &MASK)]);
/// The request of ModifyColumnFamilies.
pub(crate) static MODIFY_COLUMN_FAMILIES: Shape =
    shape!(admin::ModifyColumnFamiliesRequest, [repeated(2, &MODIFICATION)]);
/// The request of CreateBackup.
pub(crate) static CREATE_BACKUP: Shape = shape!(admin::CreateBackupRequest, [field(3, &BACKUP)]);
static BACKUP: Shape = shape!(admin::Backup, [field(9, &ENCRYPTION)]);
/// The request of UpdateBackup.
pub(crate) static UPDATE_BACKUP: Shape =
    shape!(admin::UpdateBackupRequest, [field(1, &BACKUP), field(2, &MASK)]);

/// The request of UpdateInstance.
pub(crate) static INSTANCE: Shape = shape!(admin::Instance, [repeated(5, &SETTING), repeated(12, &SETTING)]);
static NEW_CLUSTER: Shape = shape!((String, admin::Cluster), [field(1, &TEXT)]);
/// The request of CreateInstance.
pub(crate) static CREATE_INSTANCE: Shape =
    shape!(admin::CreateInstanceRequest, [field(3, &INSTANCE), repeated(4, &NEW_CLUSTER)]);
/// The request of PartialUpdateInstance.
pub(crate) static PARTIAL_UPDATE_INSTANCE: Shape =
    shape!(admin::PartialUpdateInstanceRequest, [field(1, &INSTANCE), field(2, &MASK)]);
/// The request of PartialUpdateCluster.
pub(crate) static PARTIAL_UPDATE_CLUSTER: Shape =
    shape!(admin::PartialUpdateClusterRequest, [field(2, &MASK)]);
static ROUTING: Shape = Shape { bytes: 0, is_copied: false, fields: &[repeated(1, &TEXT)] };
static APP_PROFILE: Shape = shape!(admin::AppProfile, [field(5, &ROUTING)]);
/// The request of CreateAppProfile.
pub(crate) static CREATE_APP_PROFILE: Shape =
    shape!(admin::CreateAppProfileRequest, [field(3, &APP_PROFILE)]);
/// The request of UpdateAppProfile.
pub(crate) static UPDATE_APP_PROFILE: Shape =
    shape!(admin::UpdateAppProfileRequest, [field(1, &APP_PROFILE), field(2, &MASK)]);

static AUDIT_LOG: Shape = shape!(iam::AuditLogConfig, [repeated(2, &TEXT)]);
static AUDIT: Shape = shape!(iam::AuditConfig, [repeated(3, &AUDIT_LOG)]);
static BINDING: Shape = shape!(iam::Binding, [field(1, &TEXT), repeated(2, &TEXT)]);
static POLICY: Shape = shape!(iam::Policy, [repeated(4, &BINDING), repeated(6, &AUDIT)]);
/// The request of SetIamPolicy.
pub(crate) static SET_IAM_POLICY: Shape = shape!(iam::SetIamPolicyRequest, [field(2, &POLICY)]);
/// The request of TestIamPermissions.
pub(crate) static TEST_IAM_PERMISSIONS: Shape = shape!(iam::TestIamPermissionsRequest, [repeated(2, &TEXT)]);

/// The request of CreateAuthorizedView.
pub(crate) static CREATE_AUTHORIZED_VIEW: Shape =
    shape!(admin::CreateAuthorizedViewRequest, [field(3, &AUTHORIZED_VIEW)]);
/// The request of UpdateAuthorizedView.
pub(crate) static UPDATE_AUTHORIZED_VIEW: Shape =
    shape!(admin::UpdateAuthorizedViewRequest, [field(1, &AUTHORIZED_VIEW), field(2, &MASK)]);
static AUTHORIZED_VIEW: Shape = shape!(admin::AuthorizedView, [field(2, &SUBSET_VIEW)]);
static SUBSET_VIEW: Shape =
    shape!(authorized_view::SubsetView, [repeated(1, &BYTES), repeated(2, &FAMILY_SUBSETS_BY_NAME)]);
static FAMILY_SUBSETS_BY_NAME: Shape =
    shape!((String, authorized_view::FamilySubsets), [field(1, &TEXT), field(2, &FAMILY_SUBSETS)]);
static FAMILY_SUBSETS: Shape =
    shape!(authorized_view::FamilySubsets, [repeated(1, &BYTES), repeated(2, &BYTES)]);
/// The request of UpdateSchemaBundle.
pub(crate) static UPDATE_SCHEMA_BUNDLE: Shape = shape!(admin::UpdateSchemaBundleRequest, [field(2, &MASK)]);

/// The descriptors of a schema bundle, as far as they are looked at.
pub(crate) static DESCRIPTORS: Shape = shape!(descriptors::Files, [repeated(1, &FILE)]);
static FILE: Shape = shape!(
    descriptors::File,
    [field(1, &TEXT), field(2, &TEXT), repeated(3, &TEXT), repeated(4, &KIND), repeated(5, &CHOICE)]
);
static KIND: Shape = shape!(
    descriptors::Kind,
    [field(1, &TEXT), repeated(2, &FIELD_OF_KIND), repeated(3, &KIND), repeated(4, &CHOICE)]
);
static FIELD_OF_KIND: Shape = shape!(descriptors::Field, [field(1, &TEXT), field(6, &TEXT)]);
static CHOICE: Shape = shape!(descriptors::Choice, [field(1, &TEXT), repeated(2, &VALUE_OF_CHOICE)]);
static VALUE_OF_CHOICE: Shape = shape!(descriptors::Value, [field(1, &TEXT)]);

/// The request of AlterSettings.
pub(crate) static ALTER_SETTINGS: Shape = shape!(operator_messages::AlterSettings, [repeated(3, &SETTING)]);
static SETTING: Shape = shape!((String, String), [field(1, &TEXT), field(2, &TEXT)]);

/// The memory of a request once it is decoded, beside the bytes it came in: those from `begin` on.
///
/// # Errors
/// `INVALID_ARGUMENT` for one that is over a limit, or no message; `UNIMPLEMENTED` for one with a field that
/// is not served.
pub(crate) fn weigh<B: AsRef<[u8]>>(
    pieces: &[B],
    begin: usize,
    shape: &Shape,
    message: Option<&'static Message>,
) -> Result<usize, Status> {
    let mut input = Input::new(pieces);
    input.skip(begin).map_err(|Ends| malformed())?;
    let (end, mut weight) = (input.len, Weight { bytes: shape.bytes, counts: [0; 2] });
    weight.walk(&mut input, end, (shape, message), DEPTH_MAX)?;
    Ok(weight.bytes)
}

/// The result so far.
struct Weight {
    bytes: usize,
    counts: [usize; 2],
}

impl Weight {
    fn walk<B: AsRef<[u8]>>(
        &mut self,
        input: &mut Input<'_, B>,
        end: usize,
        (shape, message): (&Shape, Option<&'static Message>),
        depth: usize,
    ) -> Result<(), Status> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Status::invalid_argument(format!("messages lie more than {DEPTH_MAX} deep")));
        };
        // How often each field came.
        let mut times = [0; FIELDS_MAX];
        while input.position < end {
            let Head { number, end: field_end, has_value } = input.field().map_err(|Ends| malformed())?;
            let field_end = field_end.unwrap_or(input.position);
            if field_end > end {
                return Err(malformed());
            }
            let len = field_end - input.position;
            let within = message.map_or(Ok(None), |message| message.take(number, has_value))?;
            let within_shape = match shape.fields.iter().position(|field| field.number == number) {
                None => &PLAIN,
                Some(at) => {
                    let field = &shape.fields[at];
                    self.add(field, len, times[at])?;
                    times[at] += 1;
                    field.shape
                }
            };
            if within_shape.fields.is_empty() && within.is_none() {
                input.skip(len).map_err(|Ends| malformed())?;
            } else {
                self.walk(input, field_end, (within_shape, within), depth)?;
            }
        }
        Ok(())
    }

    /// Counts a field, before which there were so many of its kind.
    fn add(&mut self, field: &Field, len: usize, before: usize) -> Result<(), Status> {
        if before > 0 && !field.is_repeated {
            let message = format!("field {} of a message stands there twice", field.number);
            return Err(Status::invalid_argument(message));
        }
        if len > field.bytes_max {
            let (what, most) = (field.what, field.bytes_max);
            return Err(Status::invalid_argument(format!("the {what} has {len} bytes, the limit is {most}")));
        }
        if let Some(at) = field.counted {
            self.counts[at] += 1;
            if self.counts[at] > MUTATIONS_MAX {
                let message = format!("more than {MUTATIONS_MAX} entries or mutations in one call");
                return Err(Status::invalid_argument(message));
            }
        }
        // A list has room for four, and when it is full for twice as many.
        let room = match before {
            _ if !field.is_repeated => 1,
            0 => 4,
            full if full >= 4 && full.is_power_of_two() => full,
            _ => 0,
        };
        self.bytes += field.shape.bytes * room;
        if field.shape.is_copied {
            self.bytes += len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    /// In pieces of that many bytes.
    fn cut(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
        bytes.chunks(size).map(<[u8]>::to_vec).collect()
    }

    fn weighed(bytes: &[u8], shape: &Shape) -> Result<usize, String> {
        weighed_as(bytes, shape, None)
    }

    fn weighed_as(bytes: &[u8], shape: &Shape, message: Option<&'static Message>) -> Result<usize, String> {
        let whole = weigh(&[bytes], 0, shape, message).map_err(|e| e.message().to_string());
        for size in [1, 3, 100] {
            let in_pieces = weigh(&cut(bytes, size), 0, shape, message).map_err(|e| e.message().to_string());
            assert_eq!(in_pieces, whole, "in pieces of {size}");
        }
        whole
    }

    fn set(value: &[u8]) -> data::Mutation {
        let cell = data::mutation::SetCell {
            family_name: "family".into(),
            column_qualifier: "q".into(),
            timestamp_micros: -1,
            value: value.to_vec().into(),
        };
        data::Mutation { mutation: Some(data::mutation::Mutation::SetCell(cell)), ..Default::default() }
    }

    #[test]
    fn what_is_small_on_the_wire_is_counted_as_what_it_becomes() {
        let empty = |count: usize, field: u8| [field << 3 | 2, 0].repeat(count);
        let entries = weighed(&empty(50_000, 2), &MUTATE_ROWS).unwrap();
        assert!(entries >= 50_000 * size_of::<mutate_rows_request::Entry>());
        let splits = weighed(&empty(50_000, 4), &CREATE_TABLE).unwrap();
        assert!(splits >= 50_000 * size_of::<create_table_request::Split>());
        let clusters = weighed(&empty(10_000, 4), &CREATE_INSTANCE).unwrap();
        assert!(clusters >= 10_000 * size_of::<admin::Cluster>());
        let one = data::MutateRowRequest { mutations: vec![set(&[7; 10_000])], ..Default::default() };
        let bytes = weighed(&one.encode_to_vec(), &MUTATE_ROW).unwrap();
        assert!((size_of::<data::Mutation>()..5_000).contains(&bytes), "a value is not copied: {bytes}");
        // Values within values, too.
        let mut value = data::Value::default();
        for _ in 0..20 {
            let values = data::ArrayValue { values: vec![value; 2] };
            value = data::Value { kind: Some(data::value::Kind::ArrayValue(values)), ..Default::default() };
            if value.encoded_len() > 10_000 {
                break;
            }
        }
        let add = data::mutation::AddToCell { input: Some(value.clone()), ..Default::default() };
        let add = data::mutation::Mutation::AddToCell(add);
        let mutation = data::Mutation { mutation: Some(add), ..Default::default() };
        let request = data::MutateRowRequest { mutations: vec![mutation], ..Default::default() };
        let bytes = weighed(&request.encode_to_vec(), &MUTATE_ROW).unwrap();
        assert!(bytes > 10 * value.encoded_len(), "{bytes}");
    }

    #[test]
    fn what_is_over_a_limit_is_refused_before_it_is_made() {
        let empty = |count: usize, field: u8| [field << 3 | 2, 0].repeat(count);
        let within = |field: u8, bytes: Vec<u8>| {
            let mut message = vec![field << 3 | 2];
            prost::encoding::encode_varint(bytes.len() as u64, &mut message);
            [message, bytes].concat()
        };
        for (bytes, shape, word) in [
            (empty(100_001, 2), &MUTATE_ROWS, "100000"),
            (within(2, empty(100_001, 2)), &MUTATE_ROWS, "100000"),
            (empty(100_001, 3), &MUTATE_ROW, "100000"),
            (empty(100_001, 4), &CHECK_AND_MUTATE_ROW, "100000"),
            (within(2, empty(250_001, 2)), &READ_ROWS, "500000"),
            (within(3, within(2, empty(10_240, 1))), &READ_ROWS, "20480"),
            (within(3, within(3, within(2, within(1, empty(251, 1))))), &CREATE_TABLE, "500"),
            (within(2, within(2, within(1, within(4, empty(250, 1))))), &MODIFY_COLUMN_FAMILIES, "500"),
            // Given twice it would be put together.
            ([within(3, empty(1, 1)), within(3, empty(1, 1))].concat(), &READ_ROWS, "twice"),
            (vec![2 << 3 | 2, 5, 0], &READ_ROWS, "does not end"),
            (vec![2 << 3 | 3], &READ_ROWS, "does not end"),
            (vec![0xff; 11], &READ_ROWS, "does not end"),
        ] {
            let refused = weighed(&bytes, shape).unwrap_err();
            assert!(refused.contains(word), "{refused}, expected {word}");
        }
        let mut deep = Vec::new();
        for _ in 0..DEPTH_MAX {
            deep = within(2, within(1, deep));
        }
        let refused = weighed(&within(3, deep), &READ_ROWS).unwrap_err();
        assert!(refused.contains("deep"), "{refused}");
    }

    /// A field of bytes, a text or a message; where there are none, the number 1.
    fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let is_number = bytes.is_empty();
        prost::encoding::encode_varint(u64::from(number) << 3 | u64::from(!is_number) << 1, &mut out);
        prost::encoding::encode_varint(if is_number { 1 } else { bytes.len() as u64 }, &mut out);
        out.extend(bytes);
        out
    }

    #[test]
    fn a_field_that_is_not_served_is_refused_by_its_name_however_deep_it_lies() {
        let data = "/google.bigtable.v2.Bigtable/";
        let tables = "/google.bigtable.admin.v2.BigtableTableAdmin/";
        let path = |numbers: &[u8], last: &[u8]| {
            numbers.iter().rev().fold(last.to_vec(), |within, number| part(*number, &within))
        };
        let cases: &[(&str, &str, &[u8], &Shape, &str)] = &[
            (data, "MutateRow", &[8, 1], &MUTATE_ROW, "idempotency of google.bigtable.v2.MutateRowRequest"),
            (data, "MutateRow", &[3, 8], &MUTATE_ROW, "field 8 of google.bigtable.v2.Mutation is"),
            (data, "MutateRow", &[3, 1, 9], &MUTATE_ROW, "field 9 of google.bigtable.v2.Mutation.SetCell"),
            (data, "MutateRow", &[3, 2, 3, 7], &MUTATE_ROW, "field 7 of google.bigtable.v2.TimestampRange"),
            (
                data,
                "MutateRow",
                &[3, 4, 7],
                &MUTATE_ROW,
                "field 7 of google.bigtable.v2.Mutation.DeleteFromRow",
            ),
            (
                data,
                "MutateRows",
                &[2, 3, 1],
                &MUTATE_ROWS,
                "idempotency of google.bigtable.v2.MutateRowsRequest",
            ),
            (data, "MutateRows", &[2, 2, 5, 4, 5], &MUTATE_ROWS, "field 5 of google.bigtable.v2.Value"),
            (
                data,
                "CheckAndMutateRow",
                &[5, 8],
                &CHECK_AND_MUTATE_ROW,
                "field 8 of google.bigtable.v2.Mutation",
            ),
            (data, "CheckAndMutateRow", &[6, 3, 1, 20], &CHECK_AND_MUTATE_ROW, "field 20"),
            (data, "ReadRows", &[2, 2, 5], &READ_ROWS, "field 5 of google.bigtable.v2.RowRange"),
            (data, "ReadModifyWriteRow", &[3, 5], &READ_MODIFY_WRITE_ROW, "field 5"),
            (data, "SampleRowKeys", &[5], &PLAIN, "materialized_view_name of"),
            (
                tables,
                "CreateTable",
                &[3, 3, 2, 9],
                &CREATE_TABLE,
                "field 9 of google.bigtable.admin.v2.ColumnFamily",
            ),
            (
                tables,
                "CreateTable",
                &[3, 8, 2],
                &CREATE_TABLE,
                "field 2 of google.bigtable.admin.v2.ChangeStream",
            ),
            (tables, "GetTable", &[3], &PLAIN, "field 3 of google.bigtable.admin.v2.GetTableRequest"),
            // Told by the server, so without effect, whatever is in it.
            (tables, "CreateTable", &[3, 6, 9], &CREATE_TABLE, ""),
            (data, "MutateRow", &[3, 7], &MUTATE_ROW, ""),
        ];
        for (service, method, numbers, shape, word) in cases {
            let message = crate::net::fields::request_of(&format!("{service}{method}"));
            assert!(message.is_some(), "{method}");
            let result = weighed_as(&path(numbers, &[]), shape, message);
            match *word {
                "" => assert!(result.is_ok(), "{method} {numbers:?}: {result:?}"),
                word => {
                    let refused = result.unwrap_err();
                    assert!(refused.starts_with(word), "{method} {numbers:?}: {refused}, expected {word}");
                }
            }
        }
        // Without a value it is none.
        let message = crate::net::fields::request_of("/google.bigtable.v2.Bigtable/ReadRows");
        assert!(weighed_as(&[11 << 3 | 2, 0], &READ_ROWS, message).is_ok());
        assert!(
            weighed_as(&part(11, b"view"), &READ_ROWS, message).unwrap_err().contains("materialized_view")
        );
    }

    #[test]
    fn the_name_of_a_table_is_found_as_soon_as_it_is_there_and_never_twice() {
        let request = data::ReadRowsRequest { table_name: "table".into(), ..Default::default() };
        let mut bytes = vec![0; 5];
        bytes.extend(request.encode_to_vec());
        let len = bytes.len() - 5 + 100;
        let of = |bytes: &[u8], path: &[u64]| text_of(&cut(bytes, 2), 5, len, path);
        assert_eq!(of(&bytes[..8], &[1]).unwrap(), Found::NotYet);
        assert_eq!(of(&bytes, &[1]).unwrap(), Found::Text("table".into()));
        bytes.extend([9 << 3 | 2, 98]);
        assert_eq!(of(&bytes, &[1]).unwrap(), Found::Text("table".into()));
        assert_eq!(of(&bytes, &[2, 1]).unwrap(), Found::NotYet);
        bytes.resize(len + 5, b'x');
        assert_eq!(of(&bytes, &[2, 1]).unwrap(), Found::Text(String::new()));
        assert_eq!(of(&bytes, &[1]).unwrap(), Found::Text("table".into()));
        let twice = [&[0; 5][..], &request.encode_to_vec(), &request.encode_to_vec()].concat();
        let refused = text_of(&[&twice], 5, twice.len() - 5, &[1]).unwrap_err();
        assert!(refused.message().contains("twice"), "{refused}");
        let backup = admin::Backup { source_table: "source".into(), ..Default::default() };
        let request = admin::CreateBackupRequest { backup: Some(backup), ..Default::default() };
        let bytes = request.encode_to_vec();
        assert_eq!(text_of(&[&bytes], 0, bytes.len(), &[3, 2]).unwrap(), Found::Text("source".into()));
    }
}
