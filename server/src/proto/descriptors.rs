//! Descriptors of protocol buffers (`google.protobuf.FileDescriptorSet`), as far as they are looked at.

use prost::Message;

/// A set of files of descriptors (`google.protobuf.FileDescriptorSet`), as far as it is looked at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Files {
    #[prost(message, repeated, tag = "1")]
    pub(crate) file: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct File {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) package: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) dependency: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) message_type: Vec<Kind>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) enum_type: Vec<Choice>,
}

/// A type of messages.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Kind {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) field: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) nested_type: Vec<Kind>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) enum_type: Vec<Choice>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Field {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(int32, tag = "3")]
    pub(crate) number: i32,
    #[prost(int32, tag = "4")]
    pub(crate) label: i32,
    #[prost(int32, tag = "5")]
    pub(crate) kind: i32,
    #[prost(string, tag = "6")]
    pub(crate) type_name: String,
}

/// An enumeration.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Choice {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(int32, tag = "2")]
    pub(crate) number: i32,
}
