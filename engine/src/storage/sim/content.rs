//! The bytes of one file in copy-on-write blocks, so that copying a whole disk copies pointers only.

use super::SECTOR;
use std::io;
use std::sync::Arc;

/// The unit of sharing between copies, and of hole punching.
pub(super) const BLOCK: usize = 4096;

/// One sector's bytes; `None` is all zeros.
pub(super) type Sector = Option<Box<[u8; SECTOR]>>;

/// A byte string with cheap copies. Blocks never written are absent and read as zeros; bytes beyond the
/// length within the last block are always zero.
#[derive(Clone, Default)]
pub(super) struct Content {
    blocks: Vec<Option<Arc<[u8; BLOCK]>>>,
    len: u64,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Cuts or extends with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        self.blocks.resize(len.div_ceil(BLOCK as u64) as usize, None);
        if len < self.len
            && let Some(Some(last)) = self.blocks.last_mut()
        {
            let used = len - (len - 1) / BLOCK as u64 * BLOCK as u64;
            Arc::make_mut(last)[used as usize..].fill(0);
        }
        self.len = len;
    }

    /// Writes, extending the length if needed.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end > self.len {
            self.set_len(end);
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (block, within) = ((at / BLOCK as u64) as usize, (at % BLOCK as u64) as usize);
            let n = rest.len().min(BLOCK - within);
            let target = self.blocks[block].get_or_insert_with(|| Arc::new([0; BLOCK]));
            Arc::make_mut(target)[within..within + n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            at += n as u64;
        }
    }

    pub(super) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before"));
        }
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (block, within) = ((at / BLOCK as u64) as usize, (at % BLOCK as u64) as usize);
            let n = rest.len().min(BLOCK - within);
            let (now, later) = rest.split_at_mut(n);
            match &self.blocks[block] {
                Some(bytes) => now.copy_from_slice(&bytes[within..within + n]),
                None => now.fill(0),
            }
            rest = later;
            at += n as u64;
        }
        Ok(())
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len as usize];
        self.read_exact_at(&mut all, 0).expect("the whole file is within the file");
        all
    }

    /// A copy of a sector; zeros for what lies beyond the end.
    pub(super) fn sector(&self, sector: u64) -> Sector {
        let (block, within) = place(sector);
        let bytes = self.blocks.get(block)?.as_ref()?;
        let bytes = bytes[within..within + SECTOR].try_into().expect("a sector's bytes");
        Some(Box::new(bytes))
    }

    /// Overwrites a sector within the length.
    pub(super) fn set_sector(&mut self, sector: u64, bytes: Option<&[u8; SECTOR]>) {
        let (block, within) = place(sector);
        let Some(slot) = self.blocks.get_mut(block) else { return };
        match bytes {
            None if slot.is_none() => {}
            _ => {
                let target = Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; BLOCK])));
                target[within..within + SECTOR].copy_from_slice(bytes.unwrap_or(&[0; SECTOR]));
            }
        }
        if (sector + 1) * SECTOR as u64 > self.len {
            let len = self.len;
            let within = (len % BLOCK as u64) as usize;
            if within > 0
                && let Some(Some(last)) = self.blocks.last_mut()
            {
                Arc::make_mut(last)[within..].fill(0);
            }
        }
    }

    /// Makes a whole block absent.
    pub(super) fn clear_block(&mut self, block: u64) {
        self.blocks[block as usize] = None;
    }

    pub(super) fn is_absent(&self, block: u64) -> bool {
        self.blocks.get(block as usize).is_none_or(Option::is_none)
    }
}

fn place(sector: u64) -> (usize, usize) {
    let at = sector * SECTOR as u64;
    ((at / BLOCK as u64) as usize, (at % BLOCK as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cut_off_do_not_come_back_when_the_file_grows_again() {
        let mut content = Content::default();
        content.write(0, &[7; 9000]);
        content.set_len(4097);
        content.set_len(9000);
        let all = content.to_vec();
        assert!(all[..4097].iter().all(|&b| b == 7) && all[4097..].iter().all(|&b| b == 0));
        content.set_len(0);
        content.set_len(10);
        assert_eq!(content.to_vec(), [0; 10]);
    }

    #[test]
    fn copies_do_not_see_each_others_writes() {
        let mut one = Content::default();
        one.write(100, b"abc");
        let mut two = one.clone();
        two.write(101, b"x");
        assert_eq!((&one.to_vec()[100..], &two.to_vec()[100..]), (&b"abc"[..], &b"axc"[..]));
    }

    #[test]
    fn reads_beyond_the_end_are_refused() {
        let mut content = Content::default();
        content.write(0, b"abc");
        assert!(content.read_exact_at(&mut [0; 2], 2).is_err());
        assert!(content.read_exact_at(&mut [0; 2], u64::MAX).is_err());
        assert!(content.read_exact_at(&mut [0; 2], 1).is_ok());
    }
}
