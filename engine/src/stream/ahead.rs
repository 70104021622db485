//! Reading objects in the order of their places, some of them ahead.

use super::access::Stream;
use super::object::Object;
use super::place::Place;
use crate::error::Result;
use std::io;
use std::vec;

/// How many objects are read together at first where the end is not known, and at most.
pub(super) const WINDOW_MIN: usize = 4;
pub(super) const WINDOW_MAX: usize = 64;
/// Where more bytes came together, fewer objects are read the next time.
const WINDOW_BYTES: usize = 64 << 20;

/// The objects at some places, `None` where there is none. They are read together in windows, and each is
/// judged when its turn comes: a caller that stops at one does not meet an error of those after it.
///
/// One that is there is as it will be, whenever it was read. One that is absent may come, and then so may all
/// after it: a caller that does not stop there reads on from that place anew.
pub(super) struct Ahead<'a, P> {
    stream: &'a Stream,
    places: P,
    window: usize,
    fetched: vec::IntoIter<(Place, io::Result<Vec<u8>>)>,
}

impl Stream {
    /// Reads the objects at those places, so many together at first.
    pub(super) fn ahead<P: Iterator<Item = Place>>(&self, places: P, window: usize) -> Ahead<'_, P> {
        Ahead { stream: self, places, window, fetched: Vec::new().into_iter() }
    }
}

/// How many objects are read together after so many, which had that many bytes.
fn window_after(window: usize, bytes: usize) -> usize {
    if bytes > WINDOW_BYTES { (window / 2).max(1) } else { (window * 2).min(WINDOW_MAX) }
}

impl<P: Iterator<Item = Place>> Ahead<'_, P> {
    fn fetch(&mut self) {
        let places: Vec<Place> = self.places.by_ref().take(self.window).collect();
        if places.is_empty() {
            return;
        }
        let found = self.stream.fetch(&places);
        let bytes: usize = found.iter().flatten().map(Vec::len).sum();
        self.window = window_after(self.window, bytes);
        self.fetched = places.into_iter().zip(found).collect::<Vec<_>>().into_iter();
    }
}

impl<P: Iterator<Item = Place>> Iterator for Ahead<'_, P> {
    type Item = Result<(Place, Option<Object>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.as_slice().is_empty() {
            self.fetch();
        }
        let (place, found) = self.fetched.next()?;
        Some(self.stream.object(place, found).map(|object| (place, object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_while_the_objects_in_it_are_small() {
        let windows = |bytes_of_one: usize| {
            let next = move |window: &usize| Some(window_after(*window, window * bytes_of_one));
            std::iter::successors(Some(WINDOW_MIN), next).take(7).collect::<Vec<_>>()
        };
        assert_eq!(windows(256 << 10), [4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(windows(4 << 20), [4, 8, 16, 32, 16, 32, 16]);
        assert_eq!(windows(1 << 30), [4, 2, 1, 1, 1, 1, 1]);
    }
}
