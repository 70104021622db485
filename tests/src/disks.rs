//! Small file systems of any kind, mounted for a case and gone with it. That takes root, and their programs
//! (`mkfs.xfs`, `mkfs.btrfs`); what cannot be mounted says why.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In a file.
    Ext4,
    /// In memory.
    Tmpfs,
    /// In a file.
    Xfs,
    /// In a file.
    Btrfs,
    /// Over an ext4 in a file.
    Overlay,
}

/// All of them.
pub const KINDS: [Kind; 5] = [Kind::Ext4, Kind::Tmpfs, Kind::Xfs, Kind::Btrfs, Kind::Overlay];

/// The smallest that `mkfs.xfs` makes.
const XFS_BYTES_MIN: u64 = 300 << 20;

impl Kind {
    /// The one of that name.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = KINDS.into_iter().find(|kind| kind.name() == name);
        let names = || KINDS.map(Kind::name).join(", ");
        found.ok_or_else(|| format!("there is no file system {name}; there are {}", names()))
    }

    /// The name that `mount` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Tmpfs => "tmpfs",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::Overlay => "overlay",
        }
    }
}

/// A mounted file system, unmounted when dropped.
pub struct Disk {
    kind: Kind,
    dir: tempfile::TempDir,
    mounted: Vec<PathBuf>,
    /// Bytes that a file of our own takes away for good.
    taken: u64,
}

impl Disk {
    /// Mounts a new one with about that many bytes for files.
    pub fn mount(kind: Kind, bytes: u64) -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("siltstone-disk-").tempdir();
        let dir = dir.map_err(|e| format!("a temporary directory: {e}"))?;
        let mut disk = Self { kind, dir, mounted: Vec::new(), taken: 0 };
        let (base, root) = (disk.dir.path().join("base"), disk.root());
        for dir in [&base, &root] {
            std::fs::create_dir(dir).map_err(|e| format!("create {}: {e}", dir.display()))?;
        }
        match kind {
            Kind::Tmpfs => {
                let size = format!("size={bytes}");
                disk.mount_at(&root, &["-t", "tmpfs", "-o", &size, "siltstone"])?;
            }
            Kind::Ext4 => disk.mount_image(&root, "mkfs.ext4", &["-q", "-F"], bytes)?,
            Kind::Btrfs => disk.mount_image(&root, "mkfs.btrfs", &["-q", "--mixed"], bytes)?,
            Kind::Xfs => {
                disk.mount_image(&root, "mkfs.xfs", &["-q", "-m", "reflink=1"], bytes.max(XFS_BYTES_MIN))?;
                disk.leave(bytes)?;
            }
            Kind::Overlay => {
                disk.mount_image(&base, "mkfs.ext4", &["-q", "-F"], bytes)?;
                let [lower, upper, work] = ["lower", "upper", "work"].map(|name| base.join(name));
                for dir in [&lower, &upper, &work] {
                    std::fs::create_dir(dir).map_err(|e| format!("create {}: {e}", dir.display()))?;
                }
                let [lower, upper, work] = [lower, upper, work].map(|dir| dir.display().to_string());
                let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
                disk.mount_at(&root, &["-t", "overlay", "-o", &options, "siltstone"])?;
            }
        }
        Ok(disk)
    }

    fn mount_image(&mut self, at: &Path, mkfs: &str, options: &[&str], bytes: u64) -> Result<(), String> {
        let image = self.dir.path().join("image");
        let file = File::create(&image).and_then(|file| file.set_len(bytes));
        file.map_err(|e| format!("create {}: {e}", image.display()))?;
        let image = image.to_string_lossy();
        run(mkfs, &[options, &[&image]].concat())?;
        self.mount_at(at, &["-o", "loop", &image])
    }

    fn mount_at(&mut self, at: &Path, arguments: &[&str]) -> Result<(), String> {
        run("mount", &[arguments, &[&at.to_string_lossy()]].concat())?;
        self.mounted.push(at.to_path_buf());
        Ok(())
    }

    /// Takes all but that many bytes away for good.
    fn leave(&mut self, bytes: u64) -> Result<(), String> {
        let (free, _) = self.space()?;
        self.taken = free.saturating_sub(bytes).max(1);
        let taken = File::create(self.path("taken")).map_err(|e| format!("take space: {e}"))?;
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&taken, flags, 0, self.taken).map_err(|e| format!("take space: {e}"))
    }

    /// Bytes free, and those with what files take.
    pub fn space(&self) -> Result<(u64, u64), String> {
        let stat = rustix::fs::statvfs(self.root()).map_err(|e| format!("how much is free: {e}"))?;
        let free = stat.f_bavail * stat.f_frsize;
        Ok((free, free + ((stat.f_blocks - stat.f_bfree) * stat.f_frsize).saturating_sub(self.taken)))
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its mount point.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A file of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for at in self.mounted.iter().rev() {
            let at = at.to_string_lossy();
            // What is still in use goes when its last user does.
            let unmounted = run("umount", &[&at]).or_else(|_| run("umount", &["-l", &at]));
            if let Err(why) = unmounted {
                eprintln!("{at}: {why}");
            }
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let command = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = command.map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
