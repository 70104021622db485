//! What is deleted of a stream.

use super::access::Stream;
use super::place::Place;
use crate::error::Result;
use std::collections::BTreeMap;

/// How many objects are deleted together: as many as a server takes in one request.
const TOGETHER: usize = 1000;

/// Deletes what lies below `upto` in the incarnations before that of the `owner`, but for claims and seals.
/// Returns how many objects.
///
/// Each call lists the whole stream, so it costs O(objects listed) even where nothing is left to delete, and
/// claim and seal of each incarnation stay for ever. One claim is read for each that has more objects.
pub(super) fn collect(stream: &Stream, owner: u64, upto: Place) -> Result<u64> {
    let mut listed: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    let ended = |place: &Place| place.incarnation < owner || planted!(Bug::CollectUnsealed);
    for place in stream.listed()?.into_iter().filter(ended) {
        listed.entry(place.incarnation).or_default().push(place);
    }
    let mut unneeded = Vec::new();
    for (incarnation, places) in listed {
        // As a rule claim and seal are all that is left, and the next claim need not be read.
        if places.len() <= 2 {
            continue;
        }
        // The lowest seal is another where somebody sealed a place that was collected.
        let end = stream.claim(incarnation + 1)?.and_then(|claim| claim.follows).map(|seal| seal.place);
        if end.is_none() && !planted!(Bug::CollectUnsealed) {
            continue;
        }
        let is_entry =
            |place: &Place| Some(*place) != end && (place.number > 0 || planted!(Bug::CollectClaims));
        unneeded.extend(places.into_iter().filter(|place| *place < upto && is_entry(place)));
    }
    for places in unneeded.chunks(TOGETHER) {
        stream.delete_all(places)?;
    }
    Ok(unneeded.len() as u64)
}
