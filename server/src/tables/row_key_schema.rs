//! The schema of a table's row keys: how clients and queries read the parts of a key. It has no effect on
//! what is written.

use crate::proto::admin::r#type::r#struct::encoding::Encoding;
use crate::proto::admin::r#type::{self, Kind, Struct};
use prost::Message;
use std::collections::BTreeSet;
use tonic::Status;

/// Bytes of a schema as encoded, at most.
const BYTES_MAX: usize = 16 << 10;
/// Bytes of the delimiter between parts, at most.
const DELIMITER_MAX: usize = 50;
/// Names that queries have for other things.
const RESERVED: [&str; 2] = ["_key", "_timestamp"];

/// Refuses a schema that says nothing of a key, or not the same to all.
pub(crate) fn check(schema: &Struct, is_family: impl Fn(&str) -> bool) -> Result<(), Status> {
    let wrong = |what: String| Err(Status::invalid_argument(format!("row_key_schema: {what}")));
    let bytes = schema.encoded_len();
    if bytes > BYTES_MAX {
        return wrong(format!("it has {bytes} bytes as encoded, the limit is {BYTES_MAX}"));
    }
    if schema.fields.is_empty() {
        return wrong("it has no fields".into());
    }
    match schema.encoding.as_ref().and_then(|of| of.encoding.as_ref()) {
        None => return wrong("it has no encoding".into()),
        Some(Encoding::Singleton(_)) if schema.fields.len() != 1 => {
            return wrong(format!("a singleton has one field, not {}", schema.fields.len()));
        }
        Some(Encoding::DelimitedBytes(of)) if !(1..=DELIMITER_MAX).contains(&of.delimiter.len()) => {
            let len = of.delimiter.len();
            return wrong(format!("the delimiter has {len} bytes; it must have 1 to {DELIMITER_MAX}"));
        }
        Some(Encoding::Singleton(_) | Encoding::DelimitedBytes(_) | Encoding::OrderedCodeBytes(_)) => {}
    }
    let mut names = BTreeSet::new();
    for field in &schema.fields {
        let name = field.field_name.as_str();
        if name.is_empty() {
            return wrong("a field without a name".into());
        }
        if RESERVED.contains(&name) {
            return wrong(format!("the field name \"{name}\" is reserved"));
        }
        if is_family(name) {
            return wrong(format!("the field \"{name}\" has the name of a column family"));
        }
        if !names.insert(name) {
            return wrong(format!("two fields are named \"{name}\""));
        }
        if !is_encoded(field.r#type.as_ref().and_then(|of| of.kind.as_ref())) {
            return wrong(format!(
                "the field \"{name}\" must be bytes, a string, an int64 or a timestamp, with an encoding"
            ));
        }
    }
    Ok(())
}

/// Whether values of a type are bytes of a key in one way.
fn is_encoded(kind: Option<&Kind>) -> bool {
    let int64 = |of: &r#type::int64::Encoding| of.encoding.is_some();
    match kind {
        Some(Kind::BytesType(of)) => of.encoding.as_ref().is_some_and(|of| of.encoding.is_some()),
        Some(Kind::StringType(of)) => of.encoding.as_ref().is_some_and(|of| of.encoding.is_some()),
        Some(Kind::Int64Type(of)) => of.encoding.as_ref().is_some_and(int64),
        Some(Kind::TimestampType(of)) => {
            use r#type::timestamp::encoding::Encoding::UnixMicrosInt64;
            let inner = of.encoding.as_ref().and_then(|of| of.encoding.as_ref());
            inner.is_some_and(|UnixMicrosInt64(of)| int64(of))
        }
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proto::admin::Type;
    use crate::proto::admin::r#type::r#struct::{self, Field, encoding};
    use crate::proto::admin::r#type::{Array, String as Text, string};

    fn text() -> Type {
        let encoding = string::encoding::Encoding::Utf8Bytes(string::encoding::Utf8Bytes::default());
        let encoding = Some(string::Encoding { encoding: Some(encoding) });
        Type { kind: Some(Kind::StringType(Text { encoding })) }
    }

    fn delimited(delimiter: &str) -> Encoding {
        Encoding::DelimitedBytes(encoding::DelimitedBytes { delimiter: delimiter.to_string().into() })
    }

    /// A schema of texts with these names.
    pub(crate) fn of(names: &[&str], encoding: Option<Encoding>) -> Struct {
        let field = |name: &&str| Field { field_name: (*name).to_string(), r#type: Some(text()) };
        let encoding = encoding.map(|encoding| r#struct::Encoding { encoding: Some(encoding) });
        Struct { fields: names.iter().map(field).collect(), encoding }
    }

    pub(crate) fn named(names: &[&str]) -> Struct {
        of(names, Some(delimited("#")))
    }

    #[test]
    fn schemas_that_say_nothing_of_a_key_are_refused() {
        let refused =
            |schema: &Struct| check(schema, |name| name == "family").map_err(|e| e.message().to_string());
        let singleton = || Some(Encoding::Singleton(encoding::Singleton {}));
        let ordered = || Some(Encoding::OrderedCodeBytes(encoding::OrderedCodeBytes {}));
        for right in [named(&["a", "b"]), of(&["a"], singleton()), of(&["a", "b"], ordered())] {
            assert_eq!(refused(&right), Ok(()));
        }
        let of_type = |r#type: Option<Type>| {
            let mut schema = named(&["a"]);
            schema.fields[0].r#type = r#type;
            schema
        };
        let kind = |kind: Kind| of_type(Some(Type { kind: Some(kind) }));
        for (wrong, word) in [
            (named(&[]), "no fields"),
            (named(&["a", ""]), "without a name"),
            (named(&["a", "family"]), "family"),
            (named(&["_key"]), "reserved"),
            (named(&["_timestamp"]), "reserved"),
            (named(&["a", "a"]), "two fields"),
            (of(&["a"], None), "no encoding"),
            (of(&["a", "b"], singleton()), "singleton"),
            (of(&["a"], Some(delimited(""))), "delimiter"),
            (of(&["a"], Some(delimited(&"#".repeat(51)))), "delimiter"),
            (of_type(None), "with an encoding"),
            (of_type(Some(Type { kind: None })), "with an encoding"),
            (kind(Kind::StringType(Text { encoding: None })), "with an encoding"),
            (kind(Kind::Int64Type(r#type::Int64 { encoding: None })), "with an encoding"),
            (
                kind(Kind::ArrayType(Box::new(Array { element_type: Some(Box::new(text())) }))),
                "with an encoding",
            ),
            (kind(Kind::StructType(named(&["b"]))), "with an encoding"),
            (named(&[&"a".repeat(BYTES_MAX)]), "limit"),
        ] {
            let told = refused(&wrong).unwrap_err();
            assert!(told.contains(word), "{told}, expected {word}");
        }
    }
}
