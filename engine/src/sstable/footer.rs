//! Header and footer of an SSTable file. Both name the SSTable and its identity; the footer says where the
//! other blocks are and how long the file must be.

use super::frame::{Handle, seed};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Storage;
use crate::types::codec::{Decoded, Decoder, Malformed, put_u32, put_u64};
use crate::types::{StoreId, TableId};
use std::path::Path;

pub(super) const HEADER_MAGIC: &[u8; 8] = b"SiltSTab";
const FOOTER_MAGIC: &[u8; 8] = b"SiltSEnd";
/// Incremented with every change of the format that an older release cannot read.
pub(super) const FORMAT_VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 8 + 4 + 16 + 8 + 4;
pub(super) const FOOTER_BYTES: usize = 4 * 16 + 8 + 16 + 8 + 4 + 4 + 8;

/// Whether a file with the name of an SSTable was written by some database.
pub(crate) fn is_own(storage: &dyn Storage, path: &Path) -> std::io::Result<bool> {
    crate::storage::is_own(storage, path, |head| crate::storage::begins_with(head, HEADER_MAGIC))
}

/// Whether a file ends as a whole SSTable does, even if its beginning is damaged.
pub(crate) fn ends_as_table(storage: &dyn Storage, path: &Path) -> std::io::Result<bool> {
    let (_, tail) = storage.open(path)?.tail(FOOTER_MAGIC.len() as u64)?;
    Ok(tail == FOOTER_MAGIC)
}

/// The first bytes of an SSTable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) id: TableId,
    pub(super) identity: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = HEADER_MAGIC.to_vec();
        put_u32(&mut out, FORMAT_VERSION);
        put_id(&mut out, self.id);
        put_u64(&mut out, self.identity);
        let crc = crc32c::crc32c_append(seed(self.identity, 0), &out);
        put_u32(&mut out, crc);
        out
    }

    pub(super) fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bad = |e: Malformed| Error::corruption(path, 0, format!("header: {}", e.0));
        let (fields, crc) =
            bytes.split_at_checked(HEADER_BYTES - 4).ok_or_else(|| bad(Malformed("cut short")))?;
        let mut d = Decoder::new(fields);
        let mut parse = || -> Decoded<_> {
            if d.take(8)? != HEADER_MAGIC {
                return Err(Malformed("magic not found; this is no table"));
            }
            Ok((d.u32()?, take_id(&mut d)?, d.u64()?))
        };
        let (version, id, identity) = parse().map_err(bad)?;
        if crc != crc32c::crc32c_append(seed(identity, 0), fields).to_le_bytes() {
            return Err(bad(Malformed("checksum does not match")));
        }
        check_version(path, version)?;
        Ok(Self { id, identity })
    }
}

/// The last bytes of an SSTable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Footer {
    pub(super) tombstones: Handle,
    pub(super) sketch: Handle,
    pub(super) properties: Handle,
    pub(super) top: Handle,
    pub(super) file_bytes: u64,
    pub(super) id: TableId,
    pub(super) identity: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for handle in [self.tombstones, self.sketch, self.properties, self.top] {
            put_u64(&mut out, handle.offset);
            put_u32(&mut out, handle.stored);
            put_u32(&mut out, handle.raw);
        }
        put_u64(&mut out, self.file_bytes);
        put_id(&mut out, self.id);
        put_u64(&mut out, self.identity);
        put_u32(&mut out, FORMAT_VERSION);
        let offset = self.file_bytes - FOOTER_BYTES as u64;
        let crc = crc32c::crc32c_append(seed(self.identity, offset), &out);
        let crc = crc32c::crc32c_append(crc, FOOTER_MAGIC);
        put_u32(&mut out, crc);
        out.extend_from_slice(FOOTER_MAGIC);
        out
    }

    /// Decodes the footer found at the end of a file of that length.
    pub(super) fn decode(path: &Path, bytes: &[u8], file_bytes: u64) -> Result<Self> {
        let offset = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let bad = |message: String| Error::corruption(path, offset, format!("footer: {message}"));
        let cut = |e: Malformed| bad(e.0.into());
        let (fields, rest) =
            bytes.split_at_checked(FOOTER_BYTES - 12).ok_or_else(|| bad("file cut short".into()))?;
        let (crc, magic) = rest.split_at_checked(4).ok_or_else(|| bad("file cut short".into()))?;
        if magic != FOOTER_MAGIC {
            return Err(bad("magic not found; the file was cut short or never finished".into()));
        }
        let mut d = Decoder::new(fields);
        let mut raw = [(0, 0, 0); 4];
        let mut parse = || -> Decoded<_> {
            for handle in &mut raw {
                *handle = (d.u64()?, d.u32()?, d.u32()?);
            }
            Ok((d.u64()?, take_id(&mut d)?, d.u64()?, d.u32()?))
        };
        let (length, id, identity, version) = parse().map_err(cut)?;
        let found = crc32c::crc32c_append(crc32c::crc32c_append(seed(identity, offset), fields), magic);
        if crc != found.to_le_bytes() {
            return Err(bad("checksum does not match".into()));
        }
        check_version(path, version)?;
        if length != file_bytes {
            return Err(bad(format!("file has {file_bytes} bytes, expected {length}")));
        }
        let [tombstones, sketch, properties, top] =
            raw.map(|(at, stored, raw)| Handle::checked(at, stored.into(), raw.into(), offset).map_err(cut));
        let (tombstones, sketch, properties, top) = (tombstones?, sketch?, properties?, top?);
        Ok(Self { tombstones, sketch, properties, top, file_bytes, id, identity })
    }
}

fn check_version(path: &Path, version: u32) -> Result<()> {
    if version == FORMAT_VERSION {
        return Ok(());
    }
    let message =
        format!("{}: table format version {version}, this release reads {FORMAT_VERSION}", path.display());
    Err(Error::new(ErrorKind::Unsupported, message))
}

fn put_id(out: &mut Vec<u8>, id: TableId) {
    put_u32(out, id.store.0);
    put_u32(out, id.epoch);
    put_u32(out, id.job);
    put_u32(out, id.part);
}

fn take_id(d: &mut Decoder<'_>) -> Decoded<TableId> {
    Ok(TableId { store: StoreId(d.u32()?), epoch: d.u32()?, job: d.u32()?, part: d.u32()? })
}
