//! The services of the API as `build.rs` makes them of `net/api.txt`: what serves each has to implement, and
//! how it is called.

/// Service `google.bigtable.v2.Bigtable`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod bigtable {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.v2.Bigtable.rs"));
}

/// Service `google.bigtable.admin.v2.BigtableTableAdmin`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod table_admin {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableTableAdmin.rs"));
}

/// Service `google.bigtable.admin.v2.BigtableInstanceAdmin`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod instance_admin {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableInstanceAdmin.rs"));
}

/// Service `google.longrunning.Operations`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod operations {
    include!(concat!(env!("OUT_DIR"), "/google.longrunning.Operations.rs"));
}

/// Service `siltstone.v1.Operator`, with a client for the command line.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub mod operator {
    include!(concat!(env!("OUT_DIR"), "/siltstone.v1.Operator.rs"));
}
