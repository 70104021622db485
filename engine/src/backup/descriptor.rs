//! The descriptor of a backup, which makes it exist: a line with magic and checksum, then JSON that names
//! every file of it. Layout: docs/format.md.

use super::BackupInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::TableInfo;
use crate::types::{SeqNo, TableId};
use crate::wal;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The magic, without the format version.
const MAGIC: &str = "SILTBKP";
const VERSION: char = '1';
/// Some 300 bytes an SSTable.
pub(super) const DESCRIPTOR_BYTES_MAX: u64 = 1 << 30;
/// The name of the copied manifest, after the number of its backup.
pub(super) const MANIFEST: &str = "manifest";

/// A backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Descriptor {
    pub(crate) id: u64,
    /// Database id, in hexadecimal.
    pub(crate) database: String,
    pub(crate) seq: SeqNo,
    pub(crate) created_us: u64,
    /// The number in the manifest's header.
    pub(crate) manifest_number: u64,
    pub(crate) manifest: StoredFile,
    pub(crate) logs: Vec<StoredFile>,
    pub(crate) tables: Vec<StoredFile>,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredFile {
    /// Its name in the database.
    pub(crate) name: String,
    /// Its name in the directory of backups.
    pub(crate) file: String,
    pub(crate) bytes: u64,
    /// The checksum of the whole file.
    pub(crate) crc32c: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<StoredTable>,
}

/// The identity and clip of an SSTable, by which those of one name differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredTable {
    /// The SSTable's identity, in hexadecimal.
    pub(crate) identity: String,
    /// The clip of this backup, in hexadecimal; bytes below it may be missing from the file.
    pub(crate) clip: Option<String>,
}

impl StoredTable {
    pub(crate) fn of(info: &TableInfo) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect();
        Self {
            identity: format!("{:016x}", info.identity),
            clip: info.clip.as_ref().map(|clip| hex(&clip.key)),
        }
    }

    /// Whether a file that holds what `self` needs holds what `other` needs too. (Hexadecimal keeps the order
    /// of keys.)
    pub(crate) fn serves(&self, other: &StoredTable) -> bool {
        self.identity == other.identity && self.clip <= other.clip
    }
}

pub(crate) fn file_name(id: u64) -> String {
    format!("{id:08}.backup")
}

/// The name of a descriptor that is being written.
pub(super) fn unfinished_name(id: u64) -> String {
    file_name(id) + ".new"
}

/// Whether a file begins as a descriptor does.
pub(super) fn begins(head: &[u8]) -> bool {
    crate::storage::begins_with(head, MAGIC.as_bytes())
}

pub(crate) fn parse_file_name(name: &str) -> Option<u64> {
    let id = name.strip_suffix(".backup")?.parse().ok()?;
    (file_name(id) == name).then_some(id)
}

/// The backup that a file was copied for; `None` for names that are not ours.
pub(super) fn owner(name: &str) -> Option<u64> {
    let (id, rest) = name.split_once('-')?;
    let ours =
        rest == MANIFEST || TableId::parse_file_name(rest).is_some() || wal::parse_file_name(rest).is_some();
    let number: u64 = id.parse().ok()?;
    (ours && format!("{number:08}") == id).then_some(number)
}

/// The name in the database of a file that was copied for some backup.
pub(super) fn stored_of(name: &str) -> Option<&str> {
    owner(name).and_then(|_| Some(name.split_once('-')?.1))
}

/// The number in any name that a backup may use.
pub(super) fn number_in(name: &str) -> Option<u64> {
    let id = owner(name).or_else(|| parse_file_name(name));
    id.or_else(|| parse_file_name(name.strip_suffix(".new")?))
}

/// The name of a file copied for that backup.
pub(super) fn stored_name(id: u64, name: &str) -> String {
    format!("{id:08}-{name}")
}

impl Descriptor {
    pub(super) fn all_files(&self) -> impl Iterator<Item = &StoredFile> {
        self.tables.iter().chain(&self.logs).chain([&self.manifest])
    }

    pub(super) fn info(&self) -> BackupInfo {
        let bytes = |own: bool| {
            let files = self.all_files().filter(|file| !own || owner(&file.file) == Some(self.id));
            files.map(|file| file.bytes).sum()
        };
        BackupInfo {
            id: self.id,
            seq: self.seq,
            created_us: self.created_us,
            tables: self.tables.len() as u64,
            bytes: bytes(false),
            copied_bytes: bytes(true),
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_string_pretty(self).map_err(|e| Error::invalid(e.to_string()))? + "\n";
        Ok(format!("{MAGIC}{VERSION} {:08x}\n{json}", crc32c::crc32c(json.as_bytes())).into_bytes())
    }

    /// Reads and checks the one of that number.
    pub(crate) fn decode(bytes: &[u8], id: u64, path: &Path) -> Result<Self> {
        let wrong = |at: usize, what: String| Error::corruption(path, at as u64, what);
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|e| wrong(e.valid_up_to(), "descriptor is not UTF-8".into()))?;
        let Some((version, rest)) = text.strip_prefix(MAGIC).and_then(|rest| rest.split_once(' ')) else {
            return Err(wrong(0, format!("descriptor does not begin with {MAGIC}")));
        };
        let (sum, json) = rest.split_once('\n').ok_or_else(|| wrong(0, "descriptor is cut short".into()))?;
        let found = format!("{:08x}", crc32c::crc32c(json.as_bytes()));
        if sum != found {
            let expected = sum.escape_debug();
            return Err(wrong(0, format!("descriptor's checksum is {found}, expected {expected}")));
        }
        if version != VERSION.to_string() {
            let message =
                format!("{} has format version {version}, this release reads {VERSION}", path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let descriptor: Self =
            serde_json::from_str(json).map_err(|e| wrong(0, format!("descriptor: {e}")))?;
        if descriptor.id != id {
            return Err(wrong(0, format!("descriptor is of backup {}, expected {id}", descriptor.id)));
        }
        let mut all_bytes: u64 = 0;
        for file in descriptor.all_files() {
            all_bytes = all_bytes.checked_add(file.bytes).ok_or_else(|| {
                let (name, bytes) = (file.file.escape_debug(), file.bytes);
                wrong(0, format!("descriptor says \"{name}\" has {bytes} bytes, too many with the others'"))
            })?;
            // Names that are not ours could lead anywhere.
            if owner(&file.file).map(|owner| stored_name(owner, &file.name)).as_ref() != Some(&file.file) {
                let (file, name) = (file.file.escape_debug(), file.name.escape_debug());
                return Err(wrong(0, format!("descriptor says \"{file}\" holds \"{name}\"")));
            }
        }
        Ok(descriptor)
    }
}

/// The decoder on forged bytes.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod forge {
    use super::*;
    use crate::hooks::Target;

    pub(crate) const TARGETS: &[Target] =
        &[Target { name: "backup-descriptor", seeds, sign, decode: descriptor }];

    const ID: u64 = 3;

    fn stored(name: &str, table: Option<StoredTable>) -> StoredFile {
        StoredFile { name: name.into(), file: stored_name(ID, name), bytes: 9, crc32c: 7, table }
    }

    pub(super) fn sample() -> Descriptor {
        let table = StoredTable { identity: "00ff".into(), clip: Some("6b".into()) };
        Descriptor {
            id: ID,
            database: "0000000000000007".into(),
            seq: SeqNo(900),
            created_us: 1,
            manifest_number: 4,
            manifest: stored(MANIFEST, None),
            logs: vec![stored("0000000012.log", None)],
            tables: vec![stored("000001-000001-000004-0000.table", Some(table))],
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        sample().encode().into_iter().collect()
    }

    #[allow(clippy::ptr_arg, reason = "signers share one function type")]
    fn sign(bytes: &mut Vec<u8>) {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
        let (head, json) = bytes.split_at_mut(end);
        if let Some(sum) = head.last_chunk_mut::<8>() {
            sum.copy_from_slice(format!("{:08x}", crc32c::crc32c(&json[1..])).as_bytes());
        }
    }

    /// Accepted descriptors name no file that is not a backup's.
    fn descriptor(bytes: &[u8]) {
        let Ok(found) = Descriptor::decode(bytes, ID, Path::new("forged")) else { return };
        assert!(found.all_files().all(|file| !file.file.contains('/')), "{found:?}");
        let _ = (found.info(), found.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::forge::sample;
    use super::*;

    #[test]
    fn a_descriptor_reads_back_and_no_flipped_or_cut_byte_passes() {
        let (bytes, path) = (sample().encode().unwrap(), Path::new("00000003.backup"));
        assert_eq!(Descriptor::decode(&bytes, 3, path).unwrap(), sample());
        assert!(Descriptor::decode(&bytes, 4, path).is_err(), "under another number");
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            let error = Descriptor::decode(&flipped, 3, path).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{at}: {error}");
            assert!(Descriptor::decode(&bytes[..at], 3, path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_descriptor_leads_to_no_file_that_is_not_a_backups() {
        for (file, name) in
            [("../secret", "secret"), ("00000003-../x.log", "../x.log"), ("00000003-CURRENT", "CURRENT")]
        {
            let mut descriptor = sample();
            (descriptor.logs[0].file, descriptor.logs[0].name) = (file.into(), name.into());
            let bytes = descriptor.encode().unwrap();
            let error = Descriptor::decode(&bytes, 3, Path::new("00000003.backup")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{file}");
        }
    }

    #[test]
    fn a_stored_table_serves_who_reads_no_more_of_it() {
        let table = |clip: Option<&str>| StoredTable { identity: "1".into(), clip: clip.map(str::to_string) };
        assert!(table(None).serves(&table(Some("6b"))) && table(Some("6b")).serves(&table(Some("6b00"))));
        assert!(!table(Some("6b")).serves(&table(None)) && !table(Some("6b00")).serves(&table(Some("6b"))));
        let other = StoredTable { identity: "2".into(), clip: None };
        assert!(!table(None).serves(&other), "another table of that name");
    }
}
