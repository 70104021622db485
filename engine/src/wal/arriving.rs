//! Frames of WAL files whose bytes arrive piece by piece and in order, as those in the stream of a shared
//! database do: no file holds them.

use super::delta_frame::decode_frame;
use super::file::{HEADER_BYTES, Header};
use super::frame::Frame;
use super::head::{Base, FileIdentity};
use crate::error::{Error, Result};
use crate::types::LogPosition;
use std::path::Path;

/// WAL files that arrive.
pub(crate) struct Arriving {
    database: u64,
    /// Up to where the present file has arrived, and its last full frame.
    at: Option<(LogPosition, Option<Base>)>,
}

impl Arriving {
    /// The files of that database, from the header of one of them on.
    pub(crate) fn new(database: u64) -> Self {
        Self { database, at: None }
    }

    /// Takes what lies at that position: a file's header, or a frame, which is returned. `from` names where
    /// the bytes came from.
    pub(crate) fn take<'b>(
        &mut self,
        from: &str,
        at: LogPosition,
        bytes: &'b [u8],
    ) -> Result<Option<Frame<'b>>> {
        let wrong = |what: String| Error::corruption(from, 0, what);
        if at.offset == 0 {
            let header = Header::decode(bytes, self.database, at.file, Path::new(from))?;
            header.map_err(|fault| {
                wrong(format!("expected the header of WAL file {}, found {fault}", at.file))
            })?;
            self.at = Some((LogPosition { offset: HEADER_BYTES, ..at }, None));
            return Ok(None);
        }
        let Some((end, base)) = self.at.as_mut().filter(|(end, _)| *end == at) else {
            return Err(wrong(format!("WAL goes on at {at}, and what is before is missing")));
        };
        let identity = FileIdentity::new(self.database, at.file);
        let frame = decode_frame(bytes, identity, at.offset, base.as_ref());
        let frame = frame.map_err(|fault| wrong(format!("expected a WAL frame, found {fault}")))?;
        if frame.end().offset - at.offset != bytes.len() as u64 {
            return Err(wrong(format!(
                "expected one WAL frame in {} bytes, found a shorter one",
                bytes.len()
            )));
        }
        (*end, *base) = (frame.end(), Some(frame.base));
        Ok(Some(frame))
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::storage::Env;
    use crate::types::{CellRef, Generation, LogFileId, SeqNo, StoreId};
    use crate::wal::{FrameEncoder, Wal, WalOptions, WalStart, file_name};

    /// The bytes of a WAL file with frames of one cell each, and where the frames begin and end.
    fn file(dir: &Path) -> (Vec<u8>, Vec<u64>) {
        let env = Env::local();
        let options = WalOptions { file_bytes: 64 << 10, ..WalOptions::default() };
        let (wal, mut appender) = Wal::open(&env, dir, options, WalStart::fresh(7)).unwrap();
        let mut frame = FrameEncoder::new();
        let mut ends = vec![0, HEADER_BYTES];
        for n in 1..20u64 {
            frame.begin(SeqNo(n), 1_000 + n);
            frame.part(StoreId(1), Generation(3));
            frame.cell(&CellRef::plain(b"key", 0, &vec![7; 40 * n as usize]));
            ends.push(appender.append(&mut frame).unwrap().end.offset);
        }
        wal.sync().unwrap();
        let path = dir.join(file_name(LogFileId(1)));
        let file = env.storage.open(&path).unwrap();
        let mut bytes = vec![0; *ends.last().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (bytes, ends)
    }

    #[test]
    fn frames_that_arrive_one_by_one_are_those_of_the_file_and_a_gap_or_damage_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, ends) = file(dir.path());
        let pieces: Vec<(LogPosition, &[u8])> = ends
            .windows(2)
            .map(|pair| {
                let at = LogPosition { file: LogFileId(1), offset: pair[0] };
                (at, &bytes[pair[0] as usize..pair[1] as usize])
            })
            .collect();
        let mut arriving = Arriving::new(7);
        for (n, (at, bytes)) in pieces.iter().enumerate() {
            let frame = arriving.take("d/one", *at, bytes).unwrap();
            let last = frame.map(|frame| (frame.last_seq, frame.entries().count()));
            assert_eq!(last, (n > 0).then_some((Some(SeqNo(n as u64)), 1)));
        }
        let refused = |skipped: usize, taken: &[u8]| {
            let mut arriving = Arriving::new(7);
            for (at, bytes) in pieces[..5].iter().skip(skipped) {
                let _ = arriving.take("d/one", *at, bytes);
            }
            let error = arriving.take("d/one", pieces[5].0, taken).unwrap_err();
            assert!(error.to_string().contains("d/one"), "{error}");
            error.kind()
        };
        assert_eq!(refused(5, pieces[5].1), ErrorKind::Corruption, "without what is before");
        let mut damaged = pieces[5].1.to_vec();
        damaged[20] ^= 1;
        assert_eq!(refused(0, &damaged), ErrorKind::Corruption);
        assert_eq!(refused(0, &[pieces[5].1, &[0; 8]].concat()), ErrorKind::Corruption);
        assert_eq!(refused(0, &pieces[5].1[..8]), ErrorKind::Corruption);
    }
}
