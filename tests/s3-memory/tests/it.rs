//! The server, as clients of S3 meet it.

use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{BackoffConfig, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode};
use object_store::{PutOptions, PutPayload, PutResult, RetryConfig, UpdateVersion};
use siltstone_s3_memory::{ACCESS_KEY, Counts, Faults, REGION, SECRET_KEY, Server, Settings};
use std::sync::Barrier;
use std::time::Duration;

fn server() -> Server {
    Server::start(Settings::default()).unwrap()
}

/// A client, which tries again so often.
fn client(server: &Server, retries: usize) -> AmazonS3 {
    client_with(server, SECRET_KEY, retries)
}

fn client_with(server: &Server, secret: &str, retries: usize) -> AmazonS3 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(10),
        base: 2.0,
    };
    AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region(REGION)
        .with_bucket_name(server.bucket())
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(secret)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(RetryConfig { backoff, max_retries: retries, retry_timeout: Duration::from_secs(60) })
        .build()
        .unwrap()
}

/// Waits for what a client does.
fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn put(
    store: &AmazonS3,
    key: &str,
    bytes: impl Into<PutPayload>,
    mode: PutMode,
) -> object_store::Result<PutResult> {
    let options = PutOptions { mode, ..PutOptions::default() };
    store.put_opts(&Path::from(key), bytes.into(), options).await
}

async fn get(store: &AmazonS3, key: &str) -> object_store::Result<Vec<u8>> {
    Ok(store.get(&Path::from(key)).await?.bytes().await?.to_vec())
}

async fn get_range(store: &AmazonS3, key: &str, range: GetRange) -> object_store::Result<Vec<u8>> {
    let options = GetOptions { range: Some(range), ..GetOptions::default() };
    Ok(store.get_opts(&Path::from(key), options).await?.bytes().await?.to_vec())
}

async fn keys(store: &AmazonS3, prefix: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(Path::from);
    let listed = store.list(prefix.as_ref()).map_ok(|object| object.location.to_string());
    listed.try_collect().await.unwrap()
}

fn swap(e_tag: &Option<String>) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: None })
}

#[test]
fn of_many_who_put_one_key_once_one_wins() {
    const THREADS: usize = 32;
    const ROUNDS: usize = 8;
    let server = server();
    server.set_latency(Duration::from_millis(10));
    let barrier = Barrier::new(THREADS);
    let body = |thread: usize, round: usize| format!("thread {thread} in round {round}");
    let work = |thread: usize| {
        wait(async {
            let (store, mut puts) = (client(&server, 0), Vec::new());
            for round in 0..ROUNDS {
                barrier.wait();
                puts.push(put(&store, &round.to_string(), body(thread, round), PutMode::Create).await);
            }
            puts
        })
    };
    let puts: Vec<Vec<_>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let store = client(&server, 0);
    for round in 0..ROUNDS {
        let won: Vec<usize> = (0..THREADS).filter(|thread| puts[*thread][round].is_ok()).collect();
        assert_eq!(won.len(), 1, "round {round}: {won:?}");
        for (thread, put) in puts.iter().map(|puts| &puts[round]).enumerate() {
            let is_told = put.is_ok() || matches!(put, Err(Error::AlreadyExists { .. }));
            assert!(is_told, "thread {thread}, round {round}: {put:?}");
        }
        let there = wait(async { get(&store, &round.to_string()).await.unwrap() });
        assert_eq!(there, body(won[0], round).into_bytes());
    }
    assert_eq!(server.counts().puts, (THREADS * ROUNDS) as u64);
}

#[test]
fn a_swap_is_of_the_object_that_was_read() {
    let server = server();
    wait(async {
        let store = client(&server, 0);
        let missing = put(&store, "state", "1", swap(&Some("\"none\"".into()))).await;
        assert!(matches!(missing, Err(Error::Precondition { .. })), "{missing:?}");
        let first = put(&store, "state", "1", PutMode::Create).await.unwrap();
        let second = put(&store, "state", "2", swap(&first.e_tag)).await.unwrap();
        let stale = put(&store, "state", "3", swap(&first.e_tag)).await;
        assert!(matches!(stale, Err(Error::Precondition { .. })), "{stale:?}");
        assert_eq!(get(&store, "state").await.unwrap(), b"2");

        let of = |e_tag: &Option<String>| GetOptions { if_match: e_tag.clone(), ..GetOptions::default() };
        let path = Path::from("state");
        let stale = store.get_opts(&path, of(&first.e_tag)).await.map(|_| ());
        assert!(matches!(stale, Err(Error::Precondition { .. })), "{stale:?}");
        assert!(store.get_opts(&path, of(&second.e_tag)).await.is_ok());
    });
}

#[test]
fn no_swap_of_many_is_lost() {
    const THREADS: usize = 8;
    const EACH: usize = 10;
    let server = server();
    wait(async {
        put(&client(&server, 0), "counter", "0", PutMode::Create).await.unwrap();
    });
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                wait(async {
                    let (store, mut added) = (client(&server, 0), 0);
                    while added < EACH {
                        let read = store.get(&Path::from("counter")).await.unwrap();
                        let e_tag = read.meta.e_tag.clone();
                        let text = String::from_utf8(read.bytes().await.unwrap().to_vec()).unwrap();
                        let next = (text.parse::<usize>().unwrap() + 1).to_string();
                        match put(&store, "counter", next, swap(&e_tag)).await {
                            Ok(_) => added += 1,
                            Err(Error::Precondition { .. }) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                });
            });
        }
    });
    let counted = wait(async { get(&client(&server, 0), "counter").await.unwrap() });
    assert_eq!(counted, (THREADS * EACH).to_string().into_bytes());
}

#[test]
fn equal_bytes_have_equal_tags() {
    let server = server();
    wait(async {
        let store = client(&server, 0);
        let one = put(&store, "one", "a", PutMode::Create).await.unwrap();
        let other = put(&store, "other", "a", PutMode::Overwrite).await.unwrap();
        let different = put(&store, "different", "b", PutMode::Overwrite).await.unwrap();
        assert_eq!(one.e_tag.as_deref(), Some("\"0cc175b9c0f1b6a831c399e269772661\""));
        assert_eq!(one.e_tag, other.e_tag);
        assert_ne!(one.e_tag, different.e_tag);
        assert_eq!(store.head(&Path::from("one")).await.unwrap().e_tag, one.e_tag);
    });
}

#[test]
fn listings_have_pages() {
    let server = server();
    wait(async {
        let store = client(&server, 3);
        let names: Vec<String> = (0..2_500).map(|n| format!("d/{}/{n:04}", n / 1_250)).collect();
        let puts = futures_util::stream::iter(names.iter().cloned().chain(["e".to_owned()]))
            .map(|name| {
                let store = &store;
                async move { put(store, &name, "x", PutMode::Overwrite).await }
            })
            .buffer_unordered(16);
        puts.try_for_each(|_| async { Ok(()) }).await.unwrap();

        let before = server.counts().lists;
        assert_eq!(keys(&store, Some("d")).await, names);
        assert_eq!(server.counts().lists - before, 3);
        assert_eq!(keys(&store, None).await.len(), 2_501);
        assert_eq!(keys(&store, Some("d/1")).await, names[1_250..]);
        assert!(keys(&store, Some("f")).await.is_empty());
        let behind = store.list_with_offset(None, &Path::from("d/1/2498")).map_ok(|object| object.location);
        let behind: Vec<Path> = behind.try_collect().await.unwrap();
        assert_eq!(behind, [Path::from("d/1/2499"), Path::from("e")]);

        let top = store.list_with_delimiter(None).await.unwrap();
        assert_eq!(top.common_prefixes, [Path::from("d")]);
        let objects = top.objects.iter().map(|object| (object.location.to_string(), object.size));
        assert_eq!(objects.collect::<Vec<_>>(), [("e".to_owned(), 1)]);
        let below = store.list_with_delimiter(Some(&Path::from("d"))).await.unwrap();
        assert_eq!(below.common_prefixes, [Path::from("d/0"), Path::from("d/1")]);

        let paths = names.iter().map(|name| Ok(Path::from(name.as_str()))).collect::<Vec<_>>();
        let deleted = store.delete_stream(futures_util::stream::iter(paths).boxed());
        assert_eq!(deleted.try_collect::<Vec<_>>().await.unwrap().len(), 2_500);
        assert_eq!(server.counts().deletes, 3);
        assert_eq!(keys(&store, None).await, ["e"]);
    });
}

#[test]
fn an_upload_by_parts_appears_whole() {
    const PART: usize = 5 << 20;
    let server = server();
    wait(async {
        let (store, path) = (client(&server, 0), Path::from("whole"));
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part(vec![1u8; PART].into()).await.unwrap();
        upload.put_part(vec![2u8; 10].into()).await.unwrap();
        assert!(matches!(store.head(&path).await, Err(Error::NotFound { .. })));
        assert!(keys(&store, None).await.is_empty());
        let done = upload.complete().await.unwrap();
        assert!(done.e_tag.as_ref().is_some_and(|tag| tag.ends_with("-2\"")), "{:?}", done.e_tag);
        let whole = get(&store, "whole").await.unwrap();
        assert!(whole == [vec![1; PART], vec![2; 10]].concat());
        assert_eq!(store.head(&path).await.unwrap().e_tag, done.e_tag);

        let path = Path::from("given-up");
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part(vec![1u8; 10].into()).await.unwrap();
        upload.abort().await.unwrap();
        assert!(upload.complete().await.is_err());
        assert!(matches!(store.head(&path).await, Err(Error::NotFound { .. })));

        let mut upload = store.put_multipart(&Path::from("too-small")).await.unwrap();
        upload.put_part(vec![1u8; 10].into()).await.unwrap();
        upload.put_part(vec![2u8; 10].into()).await.unwrap();
        assert!(upload.complete().await.is_err());
        assert_eq!(keys(&store, None).await, ["whole"]);
    });
}

#[test]
fn ranges_and_suffixes_are_got() {
    let server = server();
    wait(async {
        let store = client(&server, 0);
        put(&store, "ten", "0123456789", PutMode::Create).await.unwrap();
        for (range, bytes) in [
            (GetRange::Bounded(0..10), "0123456789"),
            (GetRange::Bounded(2..5), "234"),
            (GetRange::Bounded(8..20), "89"),
            (GetRange::Offset(7), "789"),
            (GetRange::Suffix(3), "789"),
            (GetRange::Suffix(30), "0123456789"),
        ] {
            let says = format!("{range:?}");
            assert_eq!(get_range(&store, "ten", range).await.unwrap(), bytes.as_bytes(), "{says}");
        }
        assert!(get_range(&store, "ten", GetRange::Offset(10)).await.is_err());
        let missing = get_range(&store, "none", GetRange::Suffix(1)).await;
        assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    });
}

#[test]
fn requests_are_counted() {
    let server = server();
    wait(async {
        let (store, path) = (client(&server, 0), Path::from("a"));
        put(&store, "a", "four", PutMode::Create).await.unwrap();
        put(&store, "a", "sixsix", PutMode::Create).await.unwrap_err();
        get_range(&store, "a", GetRange::Suffix(3)).await.unwrap();
        get(&store, "b").await.unwrap_err();
        store.head(&path).await.unwrap();
        keys(&store, None).await;
        store.delete(&path).await.unwrap();
        get(&store, "a").await.unwrap_err();
    });
    let counts = Counts {
        puts: 2,
        gets: 3,
        heads: 1,
        lists: 1,
        deletes: 1,
        bytes_in: 10,
        bytes_out: 3,
        ..Counts::default()
    };
    assert_eq!(server.counts(), counts);
}

#[test]
fn a_restart_keeps_the_objects() {
    let server = server();
    wait(async {
        let store = client(&server, 3);
        put(&store, "kept", "bytes", PutMode::Create).await.unwrap();
        let (port, tag) = (server.port(), store.head(&Path::from("kept")).await.unwrap().e_tag);
        let objects = Some(server.stop());
        let server = Server::start(Settings { port, objects, ..Settings::default() }).unwrap();
        assert_eq!((server.port(), server.counts()), (port, Counts::default()));
        assert_eq!(get(&store, "kept").await.unwrap(), b"bytes");
        assert_eq!(store.head(&Path::from("kept")).await.unwrap().e_tag, tag);
        let again = put(&store, "kept", "other", PutMode::Create).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
    });
}

#[test]
fn a_fault_is_a_request_that_was_not_carried_out_or_an_answer_that_was_lost() {
    const PUTS: usize = 200;
    let faults = Faults { seed: 7, unavailable_in: 4, lost_answers_in: 4 };
    let server = Server::start(Settings { faults: Some(faults), ..Settings::default() }).unwrap();
    wait(async {
        let (store, mut failed) = (client(&server, 0), Vec::new());
        for n in 0..PUTS {
            let key = format!("{n:03}");
            match put(&store, &key, "x", PutMode::Create).await {
                Ok(_) => {}
                Err(Error::AlreadyExists { .. }) => panic!("{key} was put once"),
                Err(_) => failed.push(key),
            }
        }
        server.set_faults(None);
        let there = keys(&store, None).await;
        let lost = failed.iter().filter(|key| there.contains(key)).count();
        let counts = server.counts();
        assert_eq!(counts.lost_answers, lost as u64);
        assert_eq!(counts.unavailable, (failed.len() - lost) as u64);
        assert_eq!(there.len(), PUTS - (failed.len() - lost));
        assert!(counts.lost_answers > 0 && counts.unavailable > 0, "{counts:?}");

        // Who tries again gets through.
        server.set_faults(Some(faults));
        let store = client(&server, 100);
        for n in 0..50 {
            put(&store, "again", n.to_string(), PutMode::Overwrite).await.unwrap();
            assert_eq!(get(&store, "again").await.unwrap(), n.to_string().into_bytes());
        }
    });
}

#[test]
fn who_has_another_secret_is_not_let_in() {
    let server = server();
    wait(async {
        let store = client_with(&server, "another-secret", 0);
        put(&store, "a", "x", PutMode::Create).await.unwrap_err();
    });
    assert_eq!(server.counts(), Counts::default());
}

#[test]
fn a_port_in_use_and_a_bad_name_of_a_bucket_are_refused() {
    let server = server();
    let port = server.port();
    let e = Server::start(Settings { port, ..Settings::default() }).err().unwrap();
    assert!(e.to_string().contains(&port.to_string()), "{e}");
    let e = Server::start(Settings { bucket: "No Name".into(), ..Settings::default() }).err().unwrap();
    assert!(e.to_string().contains("No Name"), "{e}");
}
