//! How often recovery and collecting wait for the store: calls are counted, not timed.

use super::*;

type Objects = BTreeMap<String, Vec<u8>>;

/// Objects in memory, and how often each call was made.
#[derive(Default)]
pub(super) struct Counted(Mutex<(Objects, BTreeMap<&'static str, usize>)>);

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

impl Counted {
    fn call<T>(&self, name: &'static str, work: impl FnOnce(&mut Objects) -> T) -> T {
        let mut held = self.0.lock();
        let (objects, calls) = &mut *held;
        *calls.entry(name).or_default() += 1;
        work(objects)
    }

    /// The calls since this was asked last.
    pub(super) fn calls(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut self.0.lock().1)
    }
}

fn whole(objects: &Objects, name: &str) -> io::Result<Vec<u8>> {
    Ok(objects.get(name).ok_or(io::ErrorKind::NotFound)?.clone())
}

impl ObjectStore for Counted {
    fn location(&self) -> String {
        "memory".into()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.call("put", |objects| objects.insert(name.into(), bytes.into()));
        Ok(())
    }
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        self.call("put_once", |objects| {
            let found = objects.entry(name.into()).or_insert_with(|| bytes.into());
            Ok(PutOnce::told_by(bytes, found))
        })
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let bytes = self.call("get", |objects| whole(objects, name))?;
        let part = bytes.get(range.start as usize..range.end as usize);
        Ok(part.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        Ok(self.call("len", |objects| whole(objects, name))?.len() as u64)
    }
    fn get_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        self.call("get_whole", |objects| whole(objects, name))
    }
    fn get_all(&self, names: &[String]) -> Vec<io::Result<Vec<u8>>> {
        self.call("get_all", |objects| names.iter().map(|name| whole(objects, name)).collect())
    }
    fn list(&self) -> io::Result<Vec<String>> {
        let at_top = |name: &&String| !name.contains('/');
        Ok(self.call("list", |objects| objects.keys().filter(at_top).cloned().collect()))
    }
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        let is_below = |name: &&String| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        Ok(self.call("list_below", |objects| objects.keys().filter(is_below).cloned().collect()))
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.call("delete", |objects| objects.remove(name));
        Ok(())
    }
    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        self.call("delete_all", |objects| objects.retain(|name, _| !names.contains(name)));
        Ok(())
    }
}

/// A stream that was begun, in such a store.
pub(super) fn counted(seed: u64) -> (Arc<Counted>, Stream) {
    let store = Arc::new(Counted::default());
    let stream = Stream::new(store.clone(), PREFIX, Arc::new(SimRandom::new(seed)));
    stream.create(7, 0).unwrap();
    (store, stream)
}

#[test]
fn entries_are_read_64_together() {
    let (store, stream) = counted(1);
    let mut owner = stream.recover(1, terms(0)).unwrap().writer;
    for _ in 0..1000 {
        owner.append(entry(b"e")).unwrap();
    }
    // First they lie in the newest incarnation, then in older ones, of which more and more are short.
    for n in 0..20 {
        store.calls();
        let next = stream.recover(owner.incarnation(), terms(0)).unwrap();
        let mut calls = store.calls();
        assert_eq!(next.entries.len(), 1000 + n);
        assert!(next.entries.is_sorted_by_key(|(place, _)| *place));
        let rounds = calls.remove("get_all").unwrap_or_default();
        assert!(rounds <= 1000 / 64 + 8, "{rounds}");
        assert_eq!(calls, BTreeMap::from([("put_once", 2)]));
        owner = next.writer;
        owner.append(entry(b"e")).unwrap();
    }
}

#[test]
fn the_newest_of_10_000_claims_is_found_in_a_few_rounds() {
    let (store, stream) = counted(2);
    let newest = 10_000;
    let seal = |incarnation: u64| {
        let place = Place::new(incarnation, 1);
        Sealed { place, nonce: stream.put(place, &Body::Seal).unwrap().1 }
    };
    let mut last = seal(1);
    for incarnation in 2..=newest {
        let start = Start { checkpoint: None, first: Place::new(incarnation, 1) };
        let claim = Claim { follows: Some(last), start, revision: 0, numbers_upto: 0 };
        stream.put(Place::new(incarnation, 0), &Body::Claim(claim)).unwrap();
        last = seal(incarnation);
    }
    let rounds = |hint: u64, found: u64| {
        store.calls();
        assert_eq!(stream.recover(hint, terms(0)).unwrap().writer.incarnation(), found + 1);
        store.calls()["get_all"]
    };
    let from_the_first = rounds(1, newest);
    assert!(from_the_first <= 8, "{from_the_first}");
    for (hint, found) in [(newest + 1, newest + 1), (newest - 10, newest + 2), (newest + 3, newest + 3)] {
        let near = rounds(hint, found);
        assert!(near <= 8, "{near} from {hint}");
    }
}

#[test]
fn what_lies_beyond_the_first_empty_place_is_not_judged() {
    let (store, stream) = counted(3);
    let owner = stream.recover(1, terms(0)).unwrap().writer;
    owner.append(entry(b"one")).unwrap();
    let name = |number| stream.name(Place::new(2, number));
    store.put(&name(3), b"damaged").unwrap();
    let next = stream.recover(1, terms(0)).unwrap();
    assert_eq!(next.entries, [(Place::new(2, 1), entry(b"one"))]);
    assert_eq!(stream.read(Place::new(2, 2)).unwrap().map(|object| object.body), Some(Body::Seal));
    next.writer.append(entry(b"two")).unwrap();
    store.put(&stream.name(Place::new(3, 1)), b"damaged").unwrap();
    let damaged = stream.recover(1, terms(0)).unwrap_err();
    assert!(damaged.kind() == ErrorKind::Corruption, "{damaged}");
    assert!(damaged.to_string().contains(&stream.name(Place::new(3, 1))), "{damaged}");
}

#[test]
fn objects_are_deleted_a_thousand_together() {
    let (store, stream) = counted(4);
    let owner = stream.recover(1, terms(0)).unwrap().writer;
    for _ in 0..2500 {
        owner.append(entry(b"e")).unwrap();
    }
    owner.roll().unwrap();
    let start = Start { checkpoint: Some(Place::new(2, 2500)), first: Place::new(3, 1) };
    owner.append(Entry { start: Some(start), ..entry(b"names it") }).unwrap();
    store.calls();
    assert_eq!(owner.collect(Place::new(9, 9)).unwrap(), 2500);
    assert_eq!(store.calls(), BTreeMap::from([("delete_all", 3), ("get_whole", 1), ("list_below", 1)]));
    assert_eq!(owner.collect(Place::new(9, 9)).unwrap(), 0);
    assert_eq!(store.calls(), BTreeMap::from([("list_below", 1)]));
}
