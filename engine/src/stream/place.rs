//! Places, and the names of the objects that lie there.

use std::fmt;

/// A place in a stream. Places are ordered as the stream is.
///
/// ```
/// use siltstone::stream::Place;
/// let place = Place::new(3, 17);
/// assert_eq!(place.name(), "0000000000000003/0000000000000011");
/// assert_eq!(Place::parse(&place.name()), Some(place));
/// assert!(place < place.next() && place.next() < Place::new(4, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The incarnation, from 1 on.
    pub incarnation: u64,
    /// The number within the incarnation; 0 is its claim.
    pub number: u64,
}

impl Place {
    /// The place with that number of an incarnation.
    pub const fn new(incarnation: u64, number: u64) -> Self {
        Self { incarnation, number }
    }

    /// The next place of the incarnation.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }

    /// This place and those after it in the incarnation.
    pub(super) fn onwards(self) -> impl Iterator<Item = Self> {
        (self.number..u64::MAX).map(move |number| Self { number, ..self })
    }

    /// The object's name below the stream's prefix. Names sort as places do.
    pub fn name(self) -> String {
        format!("{:016x}/{:016x}", self.incarnation, self.number)
    }

    /// The place whose object has that name; `None` if no object is named so.
    pub fn parse(name: &str) -> Option<Self> {
        let (incarnation, number) = name.split_once('/')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        let place = Self { incarnation: parse(incarnation)?, number: parse(number)? };
        // One name for each place: no signs, capitals or other lengths.
        (place.name() == name).then_some(place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.incarnation, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_places_do_and_other_names_are_no_places() {
        let places =
            [Place::new(1, 0), Place::new(1, 9), Place::new(1, 10), Place::new(2, 0), Place::new(16, 1)];
        assert!(places.is_sorted() && places.map(Place::name).is_sorted());
        assert!(places.into_iter().all(|place| Place::parse(&place.name()) == Some(place)));
        let good = Place::new(10, 1).name();
        for bad in ["", "/", "1/2", &good.to_uppercase(), &good.replace('/', "-"), &format!("{good}/1")] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
        assert_eq!(Place::parse("+00000000000000a/0000000000000001"), None);
    }
}
