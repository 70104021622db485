//! Stubs of the service, from a list of its methods and hand-written message types.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str, input: &str, output: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("crate::protocol::{input}"))
            .output_type(format!("crate::protocol::{output}"))
            .codec_path("crate::codec::CheckedCodec")
    };
    let merge =
        method("merge", "Merge", "ToCompactor", "FromCompactor").client_streaming().server_streaming();
    let state = method("state", "State", "StateRequest", "CompactorState");
    let read = method("read", "Read", "ReadRequest", "ReadPiece").server_streaming();
    let service = Service::builder()
        .package("siltstone.compactor.v1")
        .name("Compactor")
        .method(merge.build())
        .method(read.build())
        .method(state.build());
    let manager = Service::builder()
        .package("siltstone.compactor.v1")
        .name("Manager")
        .method(method("announce", "Announce", "Announcement", "Announced").build())
        .method(method("ring", "Ring", "RingRequest", "Ring").build());
    Builder::new().compile(&[service.build(), manager.build()]);
    println!("cargo:rerun-if-changed=build.rs");
}
