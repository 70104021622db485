//! Reading files of secrets and certificates, which may have become anything since they were read last.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most bytes of a file.
const BYTES_MAX: u64 = 16 << 20;

/// The files that are unusable now, so that the content read before stays in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaleFiles {
    /// The secret cannot be used.
    pub secret: bool,
    /// A certificate, its key, or the file of who signs others cannot be used.
    pub certificates: bool,
}

/// The content of a regular file.
///
/// # Errors
/// What is wrong with the file: it cannot be read, is no regular one, or has more than 16 MiB.
pub fn file_content(file: &Path) -> Result<Vec<u8>, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", file.display());
    // Opening a pipe would wait for who writes into it.
    if !std::fs::metadata(file).map_err(wrong)?.is_file() {
        return Err(format!("{} is no regular file", file.display()));
    }
    let mut content = Vec::new();
    let read = File::open(file).map_err(wrong)?.take(BYTES_MAX + 1).read_to_end(&mut content);
    match read.map_err(wrong)? as u64 {
        0..=BYTES_MAX => Ok(content),
        _ => Err(format!("{} has more than {BYTES_MAX} bytes", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn pipes_and_files_without_end_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let (zero, giant) = (Path::new("/dev/zero"), dir.path().join("giant"));
        for other in [pipe.as_path(), zero, dir.path()] {
            let refused = file_content(other).unwrap_err();
            assert_eq!(refused, format!("{} is no regular file", other.display()));
        }
        File::create(&giant).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert!(file_content(&giant).unwrap_err().ends_with("has more than 16777216 bytes"));
        File::create(&giant).unwrap().set_len(BYTES_MAX).unwrap();
        assert_eq!(file_content(&giant).unwrap().len() as u64, BYTES_MAX);
    }
}
