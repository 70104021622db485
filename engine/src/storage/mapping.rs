//! Files read through memory mappings.
//!
//! A read of a mapped page that the device cannot deliver, or that lies beyond the end of a truncated file,
//! gives no error but a signal (SIGBUS), which kills the process. So the first mapping installs a handler. If
//! the address is in one of our mappings, it puts a page of zeros there, marks the mapping as failed and
//! returns: the reader goes on with wrong bytes and learns from [`MappedRead::failed`] that it must not trust
//! them. Any other SIGBUS goes to the previous handler (whose mask and flags are not taken over). If that is
//! Rust's own and the signal was sent by a process, it removes itself and this one.
//!
//! The handler may run in the middle of anything, so it takes no lock and allocates nothing: it walks a list
//! of slots, one for each live mapping, that only grows. Slots of dropped mappings are reused.
#![expect(unsafe_code, reason = "memory-mapped tables and their signal handler")]

use super::MappedRead;
use std::fs::File;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A slot for a live mapping, or a free one.
struct Slot {
    /// A counter, even while it has a mapping, which then does not change; a new number for each.
    version: AtomicUsize,
    from: AtomicUsize,
    to: AtomicUsize,
    failed: AtomicBool,
    /// The previously created slot; never changes once the slot is in the list.
    next: *mut Slot,
}

// SAFETY: `next` is set before a slot is shared and points to one that lives for ever.
unsafe impl Sync for Slot {}

/// The newest slot. Slots live for ever.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Slots without a mapping.
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());
/// The previous action for SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE: AtomicUsize = AtomicUsize::new(0);
/// Half of what Linux allows a process: threads, large allocations and WAL files need some, too.
const MAPPINGS_MAX: usize = 1 << 15;
/// The number of mappings.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// A whole file, read-only.
pub(super) struct Mapping {
    map: memmap2::Mmap,
    slot: &'static Slot,
}

impl Mapping {
    /// Maps the file at its present length.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        install()?;
        if MAPPINGS.load(Ordering::Relaxed) >= MAPPINGS_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // SAFETY: SSTables are written once, before they are opened, and the database holds its directory's
        // lock. What others do to the file all the same may change bytes under a reader: decoders check every
        // length, and each block is checked again within seconds.
        let map = unsafe { memmap2::MmapOptions::new().map(file)? };
        // A read needs one block. Only advice, so it may fail.
        let _ = map.advise(memmap2::Advice::Random);
        let from = map.as_ptr() as usize;
        // The lock is held until there is a slot.
        let slot = free().pop().unwrap_or_else(new_slot);
        // A reader of the following stores also sees that the previous mapping is gone.
        fence(Ordering::Release);
        slot.failed.store(false, Ordering::Relaxed);
        slot.from.store(from, Ordering::Relaxed);
        slot.to.store(from + map.len(), Ordering::Relaxed);
        slot.version.fetch_add(1, Ordering::Release);
        MAPPINGS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { map, slot })
    }
}

impl MappedRead for Mapping {
    fn bytes(&self) -> &[u8] {
        &self.map
    }

    fn failed(&self) -> bool {
        // The bytes are read before the mark: another thread may have received the signal and put the zeros
        // there.
        fence(Ordering::Acquire);
        self.slot.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the addresses are reused.
        self.slot.version.fetch_add(1, Ordering::AcqRel);
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
        free().push(self.slot);
    }
}

fn free() -> MutexGuard<'static, Vec<&'static Slot>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new slot. Must be called by one thread at a time.
fn new_slot() -> &'static Slot {
    let next = SLOTS.load(Ordering::Acquire);
    let [version, from, to] = [1, 0, 0].map(AtomicUsize::new);
    let slot = Box::leak(Box::new(Slot { version, from, to, failed: AtomicBool::new(false), next }));
    SLOTS.store(slot, Ordering::Release);
    slot
}

/// Installs the handler, once for the process.
fn install() -> io::Result<()> {
    static INSTALLING: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: both are plain structures that the calls fill in; the handler keeps to what a signal handler
    // may do.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The handler needs this first.
        let _ = BEFORE.set(before);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_bus_error as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut ours.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *installed = true;
    Ok(())
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `info` to a handler with SA_SIGINFO.
    let (sent, at) = unsafe { ((*info).si_code <= 0, (*info).si_addr() as usize) };
    if !sent && mend(at) {
        return;
    }
    // SAFETY: what was installed before is called as it asked to be. Without a handler the default action is
    // restored, and the signal comes again when this one returns.
    unsafe {
        match BEFORE.get() {
            Some(before) if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN => {
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    type Told = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                    std::mem::transmute::<usize, Told>(before.sa_sigaction)(signal, info, context);
                } else {
                    type Plain = extern "C" fn(libc::c_int);
                    std::mem::transmute::<usize, Plain>(before.sa_sigaction)(signal);
                }
            }
            Some(before) if sent && before.sa_sigaction == libc::SIG_IGN => {}
            _ => {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
    }
}

/// Puts a page of zeros at the address, if it is in one of our mappings.
fn mend(at: usize) -> bool {
    let mut next = SLOTS.load(Ordering::Acquire);
    // SAFETY: slots live for ever.
    while let Some(slot) = unsafe { next.as_ref() } {
        // The reader holds its mapping, so that its slot does not change. Slots of others may, and then they
        // are not the one.
        let version = slot.version.load(Ordering::Acquire);
        let part = slot.from.load(Ordering::Relaxed)..slot.to.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && slot.version.load(Ordering::Relaxed) == version;
        if is_whole && part.contains(&at) {
            slot.failed.store(true, Ordering::Release);
            let page = PAGE.load(Ordering::Relaxed);
            let from = at & !(page - 1);
            // Replacing a page splits the mapping. If the process has too many mappings, all of it is
            // replaced.
            return zeros(from, page) || zeros(part.start, part.len().next_multiple_of(page));
        }
        next = slot.next;
    }
    false
}

/// Puts zeros at these whole pages of one of our mappings.
fn zeros(from: usize, len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: they lie within a mapping that its owner holds and will unmap as a whole.
    let made = unsafe { libc::mmap(from as *mut libc::c_void, len, libc::PROT_READ, flags, -1, 0) };
    made != libc::MAP_FAILED
}

#[cfg(all(test, not(models)))]
#[allow(clippy::disallowed_methods, reason = "the real world is what is tested here")]
mod tests {
    use super::*;
    use std::process::Command;

    fn file_of(bytes: &[u8]) -> File {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_page_that_is_gone_reads_as_zeros_and_marks_its_mapping_alone() {
        let page = rustix::param::page_size();
        let (cut, whole) = (file_of(&vec![7; 4 * page]), file_of(&vec![9; 4 * page]));
        let (broken, sound) = (Mapping::new(&cut).unwrap(), Mapping::new(&whole).unwrap());
        cut.set_len(page as u64).unwrap();
        assert_eq!((broken.bytes()[0], broken.failed()), (7, false));
        let lost = &broken.bytes()[page..];
        assert!(lost.iter().all(|byte| *byte == 0) && broken.failed());
        assert!(sound.bytes().iter().all(|byte| *byte == 9) && !sound.failed());
        // Its slot serves another mapping, which is sound.
        drop(broken);
        let next = Mapping::new(&whole).unwrap();
        assert!(next.bytes().iter().all(|byte| *byte == 9) && !next.failed());
    }

    #[test]
    fn ten_thousand_mappings_need_as_many_slots_and_later_ones_none() {
        let page = rustix::param::page_size();
        let file = file_of(&[1; 10]);
        let count = || {
            let (mut count, mut next) = (0, SLOTS.load(Ordering::Acquire));
            // SAFETY: slots live for ever.
            while let Some(slot) = unsafe { next.as_ref() } {
                (count, next) = (count + 1, slot.next);
            }
            count
        };
        let all: Vec<_> = (0..10_000).map(|_| Mapping::new(&file).unwrap()).collect();
        assert!(all.iter().all(|one| one.bytes() == [1; 10]));
        let before = count();
        drop(all);
        let again: Vec<_> = (0..9_000).map(|_| Mapping::new(&file).unwrap()).collect();
        assert_eq!(count(), before);
        // The handler finds its mapping among all of them.
        let cut = file_of(&vec![7; 2 * page]);
        let broken = Mapping::new(&cut).unwrap();
        cut.set_len(0).unwrap();
        assert_eq!((broken.bytes()[page], broken.failed()), (0, true));
        assert!(!again.iter().any(MappedRead::failed));
    }

    /// An invalid access by another part of the process still kills it.
    #[test]
    fn a_signal_that_is_not_ours_goes_on() {
        const CHILD: &str = "SILTSTONE_TEST_BUS_ERROR";
        let page = rustix::param::page_size();
        if std::env::var_os(CHILD).is_some() {
            let ours = Mapping::new(&file_of(&[1])).unwrap();
            assert_eq!(ours.bytes(), [1]);
            let cut = file_of(&vec![7; page]);
            // SAFETY: a mapping that nobody else has; reading it is what ends this process.
            let foreign = unsafe { memmap2::MmapOptions::new().map(&cut).unwrap() };
            cut.set_len(0).unwrap();
            println!("{}", foreign[0]);
            return;
        }
        let name = "storage::mapping::tests::a_signal_that_is_not_ours_goes_on";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
        use std::os::unix::process::ExitStatusExt;
        // A sanitizer has a handler of its own, which is then the next one.
        let by_sanitizer = String::from_utf8_lossy(&ended.stderr).contains("AddressSanitizer: BUS");
        assert!(ended.status.signal() == Some(libc::SIGBUS) || by_sanitizer, "{ended:?}");
    }
}
