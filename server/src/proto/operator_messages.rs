//! The messages of service `siltstone.v1.Operator`.

use prost::Message;
use std::collections::BTreeMap;

/// A text that is JSON.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Json {
    /// The text.
    #[prost(string, tag = "1")]
    pub json: String,
}

/// Which table.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableName {
    /// Its full name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// New settings of a table's stores.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AlterSettings {
    /// Its full name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// One column family; all of them if it is empty.
    #[prost(string, tag = "2")]
    pub family: String,
    /// Options and their values; an empty value takes back what was set.
    #[prost(btree_map = "string, string", tag = "3")]
    pub settings: BTreeMap<String, String>,
}
