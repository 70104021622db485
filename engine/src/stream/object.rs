//! The objects of a stream and their bytes; docs/format.md has the layout.

use super::place::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::types::codec::{Decoded, Decoder, Malformed, put_u32, put_u64, put_varint};

const MAGIC: &[u8; 7] = b"SILTSTM";
const VERSION: u8 = b'1';
const CLAIM: u8 = 0;
const ENTRY: u8 = 1;
const SEAL: u8 = 2;
/// What the magic, a nonce, a kind, the other fields and the checksum may take besides a payload.
const OVERHEAD_MAX: u64 = 256;

/// The longest payload of an entry.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// The longest object.
pub(super) const OBJECT_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64 + OVERHEAD_MAX;

/// An object of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// A number that no other object has, drawn by its writer.
    pub nonce: u128,
    /// What it says.
    pub body: Body,
}

/// What an object says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Object 0 of an incarnation: a process owns it.
    Claim(Claim),
    /// Something was written.
    Entry(Entry),
    /// The incarnation ends here.
    Seal,
}

impl Object {
    /// The claim: all objects with number 0 are such, as nothing else is decoded there.
    pub(super) fn into_claim(self) -> Option<Claim> {
        if let Body::Claim(claim) = self.body { Some(claim) } else { None }
    }
}

/// The claim of an incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The seal of the incarnation before; none in the first.
    pub follows: Option<Sealed>,
    /// From where a reader starts, as far as was known.
    pub start: Start,
    /// The revision of the order that the process acts on.
    pub revision: u64,
    /// Up to which sequence number the process may give any out; those up to the last claim's are taken.
    pub numbers_upto: u64,
}

/// The seal at the end of an incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// Its place.
    pub place: Place,
    /// Its nonce.
    pub nonce: u128,
}

/// From where a reader starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// The newest checkpoint that counts: the manifest as of that place.
    pub checkpoint: Option<Place>,
    /// The oldest place that memory needed when the checkpoint was written.
    pub first: Place,
}

/// An entry of the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Up to which sequence number the writer may give any out, once the entry is acknowledged.
    pub numbers_upto: u64,
    /// From where a reader starts, from this entry on, if that changes.
    pub start: Option<Start>,
    /// The rest, which has no meaning here.
    pub payload: Vec<u8>,
}

impl Start {
    /// The place that a reader replays first.
    pub fn replay_from(&self) -> Place {
        // What memory needed may begin after the checkpoint, where edits are.
        self.checkpoint.map_or(self.first, |checkpoint| self.first.min(checkpoint.next()))
    }

    /// Whether an object at that place may say so.
    pub(super) fn fits(&self, place: Place) -> bool {
        let is_entry = self.first.incarnation > 0 && self.first.number > 0;
        is_entry && self.first <= place.next() && self.checkpoint.is_none_or(|checkpoint| checkpoint < place)
    }
}

/// The checksum of an object's bytes, which also covers where it belongs.
fn sum(place: Place, bytes: &[u8]) -> u32 {
    let mut at = Vec::with_capacity(16);
    put_u64(&mut at, place.incarnation);
    put_u64(&mut at, place.number);
    crc32c::crc32c_append(crc32c::crc32c(&at), bytes)
}

fn put_u128(out: &mut Vec<u8>, n: u128) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_place(out: &mut Vec<u8>, place: Place) {
    put_varint(out, place.incarnation);
    put_varint(out, place.number);
}

fn put_start(out: &mut Vec<u8>, start: &Start) {
    put_place(out, start.first);
    out.push(u8::from(start.checkpoint.is_some()));
    if let Some(checkpoint) = start.checkpoint {
        put_place(out, checkpoint);
    }
}

/// The bytes of an object at that place.
pub(super) fn encode(place: Place, nonce: u128, body: &Body) -> Vec<u8> {
    let payload = if let Body::Entry(entry) = body { entry.payload.len() } else { 0 };
    let mut out = Vec::with_capacity(payload + OVERHEAD_MAX as usize);
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    put_u128(&mut out, nonce);
    match body {
        Body::Claim(claim) => {
            out.push(CLAIM);
            put_varint(&mut out, claim.revision);
            put_varint(&mut out, claim.numbers_upto);
            put_start(&mut out, &claim.start);
            out.push(u8::from(claim.follows.is_some()));
            if let Some(Sealed { place, nonce }) = claim.follows {
                put_place(&mut out, place);
                put_u128(&mut out, nonce);
            }
        }
        Body::Entry(entry) => {
            out.push(ENTRY);
            put_varint(&mut out, entry.numbers_upto);
            out.push(u8::from(entry.start.is_some()));
            if let Some(start) = &entry.start {
                put_start(&mut out, start);
            }
            out.extend_from_slice(&entry.payload);
        }
        Body::Seal => out.push(SEAL),
    }
    let sum = sum(place, &out);
    put_u32(&mut out, sum);
    out
}

/// The object with that name, at that place, from its bytes.
pub(super) fn decode(name: &str, place: Place, bytes: &[u8]) -> Result<Object> {
    let mut fields = Fields { rest: Decoder::new(bytes), end: bytes.len(), field: "magic" };
    let decoded = fields.object(place, bytes);
    decoded.map_err(|Malformed(why)| match fields.field {
        "format version" => Error::new(ErrorKind::Unsupported, format!("{name}: format version: {why}")),
        field => {
            let offset = fields.end - fields.rest.rest().len();
            Error::corruption(name, offset as u64, format!("{field}: {why}"))
        }
    })
}

/// The fields of an object: those that are left, and the name of the one that is read.
struct Fields<'a> {
    rest: Decoder<'a>,
    /// Where they end.
    end: usize,
    field: &'static str,
}

impl<'a> Fields<'a> {
    fn at(&mut self, field: &'static str) -> &mut Decoder<'a> {
        self.field = field;
        &mut self.rest
    }

    fn object(&mut self, place: Place, bytes: &'a [u8]) -> Decoded<Object> {
        if self.at("magic").take(MAGIC.len())? != MAGIC {
            return Err(Malformed("no object of a stream"));
        }
        if self.at("magic").u8()? != VERSION {
            self.field = "format version";
            return Err(Malformed("of another release, expected 1"));
        }
        self.field = "checksum";
        let short = Malformed("object shorter than its checksum");
        let (signed, checksum) = bytes.split_last_chunk::<4>().ok_or(short)?;
        self.rest = Decoder::new(signed.get(MAGIC.len() + 1..).ok_or(short)?);
        self.end = signed.len();
        if sum(place, signed) != u32::from_le_bytes(*checksum) {
            return Err(Malformed("does not fit the bytes and the place"));
        }
        let nonce = self.number("nonce")?;
        let body = match (self.at("kind").u8()?, place.number) {
            (CLAIM, 0) => Body::Claim(self.claim(place)?),
            (ENTRY, 1..) => Body::Entry(self.entry(place)?),
            (SEAL, 1..) => Body::Seal,
            (CLAIM | ENTRY | SEAL, _) => return Err(Malformed("of another place")),
            _ => return Err(Malformed("unknown")),
        };
        self.at("end").finish()?;
        Ok(Object { nonce, body })
    }

    fn claim(&mut self, place: Place) -> Decoded<Claim> {
        let revision = self.at("revision").varint()?;
        let numbers_upto = self.at("numbers").varint()?;
        let start = self.start(place)?;
        let follows = match self.is_there("seal")? {
            true => Some(Sealed { place: self.place("seal")?, nonce: self.number("seal")? }),
            false => None,
        };
        let is_right = match follows {
            Some(Sealed { place: seal, .. }) => {
                seal.incarnation > 0
                    && seal.incarnation.checked_add(1) == Some(place.incarnation)
                    && seal.number > 0
            }
            None => place.incarnation == 1,
        };
        if !is_right {
            return Err(Malformed("not of the incarnation before"));
        }
        Ok(Claim { follows, start, revision, numbers_upto })
    }

    fn entry(&mut self, place: Place) -> Decoded<Entry> {
        let numbers_upto = self.at("numbers").varint()?;
        let start = if self.is_there("start")? { Some(self.start(place)?) } else { None };
        let payload = self.at("payload");
        let len = payload.rest().len();
        let payload = payload.take(len)?.to_vec();
        Ok(Entry { numbers_upto, start, payload })
    }

    fn start(&mut self, place: Place) -> Decoded<Start> {
        let first = self.place("first")?;
        let checkpoint = if self.is_there("checkpoint")? { Some(self.place("checkpoint")?) } else { None };
        let start = Start { checkpoint, first };
        self.at("start");
        if start.fits(place) { Ok(start) } else { Err(Malformed("after the object itself, or no entry")) }
    }

    fn place(&mut self, field: &'static str) -> Decoded<Place> {
        let fields = self.at(field);
        Ok(Place { incarnation: fields.varint()?, number: fields.varint()? })
    }

    fn number(&mut self, field: &'static str) -> Decoded<u128> {
        let bytes = self.at(field).take(16)?;
        bytes.try_into().map(u128::from_le_bytes).map_err(|_| Malformed("cut short"))
    }

    fn is_there(&mut self, field: &'static str) -> Decoded<bool> {
        match self.at(field).u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("neither there nor absent")),
        }
    }
}

/// The decoder on forged bytes.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod forge {
    use super::*;
    use crate::hooks::Target;

    pub(crate) const TARGETS: &[Target] = &[Target { name: "stream-object", seeds, sign, decode: object }];

    const KIND_AT: usize = MAGIC.len() + 1 + 16;

    /// Where an object of that kind may lie.
    fn place(bytes: &[u8]) -> Place {
        Place::new(2, if bytes.get(KIND_AT) == Some(&CLAIM) { 0 } else { 7 })
    }

    pub(super) fn samples() -> Vec<(Place, Object)> {
        let start = Start { checkpoint: Some(Place::new(1, 300)), first: Place::new(1, 4) };
        let follows = Some(Sealed { place: Place::new(1, 400), nonce: 5 << 90 });
        let claim = Body::Claim(Claim { follows, start, revision: 9, numbers_upto: 1_000_000 });
        let entry = |start, payload: &[u8]| {
            Body::Entry(Entry { numbers_upto: 70_000, start, payload: payload.to_vec() })
        };
        let none = Start { checkpoint: None, first: Place::new(2, 8) };
        let bodies =
            [claim, entry(None, b"bytes"), entry(Some(none), b""), entry(Some(start), b"b"), Body::Seal];
        let at = |body: &Body| Place::new(2, if matches!(body, Body::Claim(_)) { 0 } else { 7 });
        bodies.into_iter().map(|body| (at(&body), Object { nonce: 3 << 70, body })).collect()
    }

    fn seeds() -> Vec<Vec<u8>> {
        samples().into_iter().map(|(place, object)| encode(place, object.nonce, &object.body)).collect()
    }

    #[allow(clippy::ptr_arg, reason = "signers share one function type")]
    fn sign(bytes: &mut Vec<u8>) {
        let place = place(bytes);
        if let Some((signed, checksum)) = bytes.split_last_chunk_mut::<4>() {
            *checksum = sum(place, signed).to_le_bytes();
        }
    }

    /// Accepted objects are written down as they are, and no reader starts after them.
    fn object(bytes: &[u8]) {
        let place = place(bytes);
        let Ok(object) = decode("forged", place, bytes) else { return };
        let again = decode("forged", place, &encode(place, object.nonce, &object.body));
        assert_eq!(again.ok().as_ref(), Some(&object));
        let start = match &object.body {
            Body::Claim(claim) => Some(claim.start),
            Body::Entry(entry) => entry.start,
            Body::Seal => None,
        };
        assert!(start.is_none_or(|start| start.replay_from() <= place.next()), "{object:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::forge::samples;
    use super::*;

    #[test]
    fn an_object_reads_back_and_no_flipped_cut_or_moved_byte_passes() {
        for (place, object) in samples() {
            let bytes = encode(place, object.nonce, &object.body);
            assert_eq!(decode("o", place, &bytes).unwrap(), object);
            for other in [place.next(), Place::new(place.incarnation + 1, place.number)] {
                assert!(decode("o", other, &bytes).is_err(), "{object:?} at {other}");
            }
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 4;
                assert!(decode("o", place, &flipped).is_err(), "{object:?}, byte {at}");
                assert!(decode("o", place, &bytes[..at]).is_err(), "{object:?}, {at} bytes");
            }
        }
    }

    #[test]
    fn an_error_names_object_and_field() {
        let place = Place::new(2, 7);
        let why = |bytes: &[u8]| decode("p/2/7", place, bytes).unwrap_err();
        let signed = |change: fn(&mut Vec<u8>)| {
            let mut bytes = encode(place, 1, &Body::Seal);
            bytes.truncate(bytes.len() - 4);
            change(&mut bytes);
            let sum = sum(place, &bytes);
            put_u32(&mut bytes, sum);
            why(&bytes)
        };
        for (error, says) in [
            (why(b""), "magic"),
            (why(b"SILTSTM1"), "checksum"),
            (why(&[7; 40]), "magic: no object of a stream"),
            (signed(|bytes| bytes[24] = 7), "kind: unknown"),
            (signed(|bytes| bytes[24] = CLAIM), "kind: of another place"),
            (signed(|bytes| bytes.push(0)), "end: "),
            (signed(|bytes| bytes.truncate(20)), "nonce: "),
            (signed(|bytes| bytes[24] = ENTRY), "numbers: "),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            let text = error.to_string();
            assert!(text.contains(says) && text.contains("p/2/7"), "{text}");
        }
        let newer = signed(|bytes| bytes[7] = b'2');
        assert_eq!(newer.kind(), ErrorKind::Unsupported, "{newer}");
    }
}
