//! Schema bundles: given back as they came, kept with their table.

use crate::support::*;
use prost::Message;
use siltstone_server::Size;
use std::time::Duration;
use tonic::Code;

fn descriptors(fields: &[(&str, i32)]) -> Vec<u8> {
    let field = |(name, number): &(&str, i32)| prost_types::FieldDescriptorProto {
        name: Some((*name).to_string()),
        number: Some(*number),
        label: Some(1),
        r#type: Some(9),
        ..Default::default()
    };
    let kind = prost_types::DescriptorProto {
        name: Some("Author".into()),
        field: fields.iter().map(field).collect(),
        ..Default::default()
    };
    let file = prost_types::FileDescriptorProto {
        name: Some("author.proto".into()),
        message_type: vec![kind],
        ..Default::default()
    };
    prost_types::FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

fn bundle(id: &str, descriptors: Vec<u8>) -> admin_v2::SchemaBundle {
    let schema = admin_v2::ProtoSchema { proto_descriptors: descriptors.into() };
    admin_v2::SchemaBundle {
        name: format!("{TABLE}/schemaBundles/{id}"),
        r#type: Some(admin_v2::schema_bundle::Type::ProtoSchema(schema)),
        ..Default::default()
    }
}

fn new_bundle(id: &str, descriptors: Vec<u8>) -> admin_v2::CreateSchemaBundleRequest {
    admin_v2::CreateSchemaBundleRequest {
        parent: TABLE.into(),
        schema_bundle_id: id.into(),
        schema_bundle: Some(bundle(id, descriptors)),
    }
}

fn changed_bundle(etag: &str, descriptors: Vec<u8>) -> admin_v2::UpdateSchemaBundleRequest {
    let mask = prost_types::FieldMask { paths: vec!["proto_schema".into()] };
    admin_v2::UpdateSchemaBundleRequest {
        schema_bundle: Some(admin_v2::SchemaBundle { etag: etag.into(), ..bundle("b", descriptors) }),
        update_mask: Some(mask),
        ignore_warnings: false,
    }
}

async fn bundles(t: &mut Fixture) -> Vec<admin_v2::SchemaBundle> {
    let request = admin_v2::ListSchemaBundlesRequest { parent: TABLE.into(), ..Default::default() };
    t.admin.list_schema_bundles(request).await.unwrap().into_inner().schema_bundles
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_bundles_are_given_back_as_they_came_and_updated_only_to_what_reads_the_same() {
    let mut t = Fixture::new().await;
    t.table(&["f"]).await;
    let (one, two) = (descriptors(&[("first", 1)]), descriptors(&[("first", 1), ("last", 2)]));
    refused(
        t.admin.create_schema_bundle(new_bundle("b", vec![7; 9])).await,
        Code::InvalidArgument,
        "proto_descriptors",
    );
    let unnamed = admin_v2::CreateSchemaBundleRequest { schema_bundle: None, ..new_bundle("b", one.clone()) };
    refused(t.admin.create_schema_bundle(unnamed).await, Code::InvalidArgument, "schema_bundle");
    let made = t.admin.create_schema_bundle(new_bundle("b", one.clone())).await.unwrap().into_inner();
    assert!(made.done && made.metadata.is_some());
    refused(t.admin.create_schema_bundle(new_bundle("b", one.clone())).await, Code::AlreadyExists, "/b");
    let name = || format!("{TABLE}/schemaBundles/b");
    let get = || admin_v2::GetSchemaBundleRequest { name: name() };
    let told = t.admin.get_schema_bundle(get()).await.unwrap().into_inner();
    assert_eq!(told, admin_v2::SchemaBundle { etag: told.etag.clone(), ..bundle("b", one.clone()) });
    assert!(!told.etag.is_empty());
    refused(t.admin.update_schema_bundle(changed_bundle("stale", two.clone())).await, Code::Aborted, "etag");
    t.admin.update_schema_bundle(changed_bundle(&told.etag, two.clone())).await.unwrap();
    let mut back = changed_bundle("", one.clone());
    refused(t.admin.update_schema_bundle(back.clone()).await, Code::FailedPrecondition, "Author.last");
    back.ignore_warnings = true;
    t.admin.update_schema_bundle(back).await.unwrap();
    let mut t = t.again().await;
    assert_eq!(bundles(&mut t).await, std::slice::from_ref(&told));
    // So many, page by page.
    for n in 0..9 {
        t.admin.create_schema_bundle(new_bundle(&format!("c{n}"), one.clone())).await.unwrap();
    }
    refused(t.admin.create_schema_bundle(new_bundle("d", one.clone())).await, Code::ResourceExhausted, "10");
    let mut request =
        admin_v2::ListSchemaBundlesRequest { parent: TABLE.into(), page_size: 4, ..Default::default() };
    let mut pages = Vec::new();
    loop {
        let page = t.admin.list_schema_bundles(request.clone()).await.unwrap().into_inner();
        pages.push(page.schema_bundles.len());
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [4, 4, 2]);
    let stale = admin_v2::DeleteSchemaBundleRequest { name: name(), etag: "stale".into() };
    refused(t.admin.delete_schema_bundle(stale).await, Code::Aborted, "etag");
    let delete = || admin_v2::DeleteSchemaBundleRequest { name: name(), ..Default::default() };
    t.admin.delete_schema_bundle(delete()).await.unwrap();
    refused(t.admin.delete_schema_bundle(delete()).await, Code::NotFound, "/b");
    refused(t.admin.get_schema_bundle(get()).await, Code::NotFound, "/b");
    // They go and come back with the table; another of its name has none.
    let delete_table = || admin_v2::DeleteTableRequest { name: TABLE.into() };
    let kept = bundles(&mut t).await;
    t.admin.delete_table(delete_table()).await.unwrap();
    let list = admin_v2::ListSchemaBundlesRequest { parent: TABLE.into(), ..Default::default() };
    refused(t.admin.list_schema_bundles(list).await, Code::NotFound, "no table");
    t.admin.undelete_table(admin_v2::UndeleteTableRequest { name: TABLE.into() }).await.unwrap();
    assert_eq!((bundles(&mut t).await, kept.len()), (kept, 9));
    t.admin.delete_table(delete_table()).await.unwrap();
    t.table(&["f"]).await;
    assert!(bundles(&mut t).await.is_empty());
    t.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_of_which_nothing_is_taken_stay_within_the_memory_for_calls() {
    let mut t = Fixture::with(|config| config.call_memory = Size(16 << 20)).await;
    t.table(&["f"]).await;
    let file = prost_types::FileDescriptorProto { name: Some("n".repeat(500_000)), ..Default::default() };
    let large = prost_types::FileDescriptorSet { file: vec![file] }.encode_to_vec();
    t.admin.create_schema_bundle(new_bundle("b", large)).await.unwrap();
    // Each asks for 1 MB, and takes nothing of it.
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let at = format!("http://{}", t.server.listens_at());
        let at = tonic::transport::Channel::from_shared(at).unwrap().initial_stream_window_size(0);
        let client = BigtableTableAdminClient::new(at.connect().await.unwrap());
        for n in 0..20 {
            let mut client = client.clone();
            waiting.spawn(async move {
                let list = admin_v2::ListSchemaBundlesRequest { parent: TABLE.into(), ..Default::default() };
                let get = admin_v2::GetSchemaBundleRequest { name: format!("{TABLE}/schemaBundles/b") };
                match n % 2 {
                    0 => client.list_schema_bundles(list).await.map(drop),
                    _ => client.get_schema_bundle(get).await.map(drop),
                }
            });
        }
    }
    // A caller may have 4 MiB: few have room, and all others are refused.
    for _ in 0..60 {
        let ended = tokio::time::timeout(Duration::from_secs(60), waiting.join_next()).await;
        let ended = ended.expect("an answer for which there is no room is kept");
        refused(ended.unwrap().unwrap(), Code::ResourceExhausted, "memory");
    }
    drop(waiting);
    t.server.stop().await.unwrap();
}
