//! Files read past the page cache (`O_DIRECT`): the device writes straight into the reader's memory, and file
//! offset, length and memory address must be multiples of its block. All three are rounded to 4096 here,
//! through a buffer of the reading thread, so the caller may read any range.

use super::ReadFile;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The alignment in bytes; no device in use needs more.
const ALIGN: usize = 4096;
/// The largest buffer that a thread keeps.
const BUFFER_BYTES_MAX: usize = 2 << 20;

/// A file that was opened with `O_DIRECT`.
pub(super) struct DirectRead(pub(super) File);

impl DirectRead {
    /// Replaces the error of a file system without `O_DIRECT` by one that explains it.
    pub(super) fn refused(e: io::Error) -> io::Error {
        match e.raw_os_error() {
            Some(libc::EINVAL) => io::Error::new(
                io::ErrorKind::Unsupported,
                "its file system takes no reads past the page cache (O_DIRECT), which sstable_reads asks for",
            ),
            _ => e,
        }
    }
}

/// The part of `buffer` that begins at an aligned address and has `len` bytes, growing it if needed.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len + ALIGN {
        buffer.resize(len + ALIGN, 0);
    }
    let skip = buffer.as_ptr().align_offset(ALIGN);
    &mut buffer[skip..skip + len]
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl ReadFile for DirectRead {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let before = (offset % ALIGN as u64) as usize;
        let wanted = before + into.len();
        BUFFER.with_borrow_mut(|buffer| {
            let aligned = aligned(buffer, wanted.next_multiple_of(ALIGN));
            let mut have = 0;
            while have < wanted {
                match self.0.read_at(&mut aligned[have..], offset - before as u64 + have as u64) {
                    Ok(n) => {
                        have += n;
                        // A read stops within a block only at the end of the file.
                        if n == 0 || n % ALIGN != 0 {
                            break;
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            if have < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into.copy_from_slice(&aligned[before..wanted]);
            if buffer.len() > BUFFER_BYTES_MAX {
                *buffer = Vec::new();
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LocalStorage, Storage};
    use super::*;
    use std::path::Path;

    /// A directory on a file system that supports direct reads, if there is one here.
    fn directory() -> Option<tempfile::TempDir> {
        let places = [std::env::temp_dir(), std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
        places.iter().find_map(|place| {
            let dir = tempfile::tempdir_in(place).ok()?;
            LocalStorage::new().create(&dir.path().join("probe")).ok()?;
            LocalStorage::new().open_direct(&dir.path().join("probe")).ok().map(|_| dir)
        })
    }

    #[test]
    fn any_bytes_are_read_whatever_their_place_and_none_behind_the_end() {
        let Some(dir) = directory() else {
            println!("no file system here takes direct reads");
            return;
        };
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..100_003u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut file = LocalStorage::new().create(&path).unwrap();
        file.write(&bytes).unwrap();
        // Bytes that are not synced are read too, though they are only in the page cache.
        let direct = LocalStorage::new().open_direct(&path).unwrap();
        assert_eq!(direct.len().unwrap(), 100_003);
        let edges = [0, 1, 100, 4095, 4096, 4097, 8191, 8192, 50_000, 98_304, 99_999, 100_002, 100_003];
        for from in edges {
            for to in edges.into_iter().filter(|to| *to >= from) {
                let mut read = vec![0; to - from];
                direct.read_exact_at(&mut read, from as u64).unwrap();
                assert_eq!(read, bytes[from..to], "{from}..{to}");
            }
            let mut beyond = vec![0; 100_004 - from];
            let error = direct.read_exact_at(&mut beyond, from as u64).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{from}");
        }
    }

    #[test]
    fn where_direct_reads_are_refused_the_error_says_so() {
        let Err(error) = LocalStorage::new().open_direct(Path::new("/proc/version")) else {
            panic!("/proc has nothing to read directly")
        };
        assert!(error.to_string().contains("sstable_reads"), "{error}");
    }
}
