//! Followers beside owners and recoverers: what they wait for, and what they begin anew at.

use super::requests::counted;
use super::*;

/// What is found from that place on, and where the follower goes on.
fn follow(stream: &Stream, from: Place) -> Result<(Vec<Vec<u8>>, Place)> {
    let mut found = Vec::new();
    let next = stream.follow(from, &mut |_, entry| {
        found.push(entry.payload);
        Ok(())
    })?;
    Ok((found, next))
}

#[test]
fn a_follower_waits_at_a_hole_and_at_a_seal_that_no_claim_names() {
    let stream = calm(6);
    stream.create(7, 0).unwrap();
    let _owner = stream.recover(1, terms(0)).unwrap().writer;
    let put =
        |number, body: &Body| assert_eq!(stream.put(Place::new(2, number), body).unwrap().0, PutOnce::Mine);
    // Two puts are in flight, and the later one lands first.
    put(2, &Body::Entry(entry(b"two")));
    let begun = stream.begin_following(1).unwrap();
    assert_eq!((begun.entries.len(), begun.next), (0, Place::new(2, 1)));
    assert_eq!(follow(&stream, begun.next).unwrap(), (vec![], begun.next));
    put(1, &Body::Entry(entry(b"one")));
    let both = vec![b"one".to_vec(), b"two".to_vec()];
    assert_eq!(follow(&stream, begun.next).unwrap(), (both, Place::new(2, 3)));
    // A recoverer has sealed it, and has not claimed the next incarnation yet.
    put(3, &Body::Seal);
    assert_eq!(follow(&stream, Place::new(2, 3)).unwrap(), (vec![], Place::new(2, 3)));
    let next = stream.recover(1, terms(0)).unwrap().writer;
    next.append(entry(b"three")).unwrap();
    next.roll().unwrap();
    next.append(entry(b"four")).unwrap();
    let both = vec![b"three".to_vec(), b"four".to_vec()];
    assert_eq!(follow(&stream, Place::new(2, 3)).unwrap(), (both, Place::new(4, 2)));
    assert_eq!(stream.begin_following(99).unwrap().entries.len(), 4);
}

#[test]
fn a_follower_begins_anew_where_its_place_was_collected_and_perhaps_sealed_since() {
    let stream = calm(7);
    stream.create(7, 0).unwrap();
    let owner = stream.recover(1, terms(0)).unwrap().writer;
    for _ in 0..4 {
        owner.append(entry(b"e")).unwrap();
    }
    let slow = Place::new(2, 2);
    owner.roll().unwrap();
    let start = Start { checkpoint: Some(Place::new(2, 4)), first: Place::new(2, 4) };
    owner.append(Entry { start: Some(start), ..entry(b"names it") }).unwrap();
    assert_eq!(follow(&stream, slow).unwrap().0.len(), 4);
    assert_eq!(owner.collect(Place::new(9, 9)).unwrap(), 3);
    assert_eq!(follow(&stream, slow).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(stream.put(slow, &Body::Seal).unwrap().0, PutOnce::Mine);
    assert_eq!(follow(&stream, slow).unwrap_err().kind(), ErrorKind::NotFound);
    let begun = stream.begin_following(1).unwrap();
    assert_eq!((begun.start, begun.next), (start, Place::new(3, 2)));
    let places: Vec<Place> = begun.entries.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [Place::new(2, 4), Place::new(3, 1)]);
    assert_eq!(follow(&stream, begun.next).unwrap(), (vec![], begun.next));
}

#[test]
fn a_follower_puts_nothing_and_asks_twice_where_there_is_nothing_new() {
    let (store, stream) = counted(5);
    let owner = stream.recover(1, terms(0)).unwrap().writer;
    for _ in 0..200 {
        owner.append(entry(b"e")).unwrap();
    }
    store.calls();
    let begun = stream.begin_following(owner.incarnation()).unwrap();
    assert_eq!(begun.entries.len(), 200);
    let calls = store.calls();
    assert!(calls.keys().all(|call| *call == "get_all"), "{calls:?}");
    assert!(calls["get_all"] <= 200 / 64 + 8, "{calls:?}");
    assert_eq!(follow(&stream, begun.next).unwrap(), (vec![], begun.next));
    assert_eq!(store.calls(), BTreeMap::from([("get_all", 1), ("get_whole", 1)]));
}
