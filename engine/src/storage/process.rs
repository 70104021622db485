//! Processes of this machine: whether one of them has ended.
//!
//! A process is told apart by the boot of the machine, the name spaces in which its number and its times
//! count, its number, and when it began. Only a process of the same boot and the same name spaces can be
//! judged: a container does not see those of another. Nothing is concluded from what cannot be read, as
//! `/proc` may hide the processes of other users.

use std::fs;

/// What tells a process apart, in one line.
#[derive(PartialEq, Eq, Debug)]
struct Identity {
    /// Boot, and name spaces of process numbers and of times.
    world: [String; 3],
    pid: u32,
    /// Clock ticks after the boot.
    began: u64,
}

impl Identity {
    fn own() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let numbers = fs::read_link("/proc/self/ns/pid").ok()?;
        // Kernels before 5.6 have none.
        let times = fs::read_link("/proc/self/ns/time").unwrap_or_else(|_| "time:".into());
        let world = [boot.trim().to_string(), numbers.to_str()?.to_string(), times.to_str()?.to_string()];
        let (pid, began) = in_proc("self")?;
        // Where `/proc` is that of another name space, numbers mean something else.
        (pid == std::process::id()).then_some(Self { world, pid, began })
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(' ').collect();
        let [boot, numbers, times, pid, began] = parts[..] else { return None };
        let world = [boot, numbers, times].map(str::to_string);
        Some(Self { world, pid: pid.parse().ok()?, began: began.parse().ok()? })
    }

    fn text(&self) -> String {
        format!("{} {} {}", self.world.join(" "), self.pid, self.began)
    }
}

/// A process's number and when it began, as `/proc` has them.
fn in_proc(name: &str) -> Option<(u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
    let pid = stat.split(' ').next()?.parse().ok()?;
    // The name of the program, in brackets, may hold anything. Behind it, the state is field 3.
    let (_, fields) = stat.rsplit_once(')')?;
    let began = fields.split_whitespace().nth(22 - 3)?.parse().ok()?;
    Some((pid, began))
}

/// This process; `None` where it cannot be told.
pub(super) fn own() -> Option<String> {
    Identity::own().map(|own| own.text())
}

/// Whether that process is proved to have ended.
pub(super) fn has_ended(process: &str) -> bool {
    let (Some(other), Some(own)) = (Identity::parse(process), Identity::own()) else { return false };
    if other.world != own.world {
        return false;
    }
    let pid = i32::try_from(other.pid).ok().and_then(rustix::process::Pid::from_raw);
    let Some(pid) = pid else { return false };
    // A signal that is not sent tells of processes that `/proc` hides, too.
    if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
        return true;
    }
    // Another one may have its number by now.
    in_proc(&other.pid.to_string()).is_some_and(|(_, began)| began != other.began)
}

#[cfg(all(test, target_os = "linux", not(models)))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn of_child(pid: u32) -> Identity {
        let (pid, began) = in_proc(&pid.to_string()).unwrap();
        Identity { pid, began, ..Identity::own().unwrap() }
    }

    #[test]
    fn a_process_has_ended_once_it_is_gone_and_no_sooner() {
        let own = own().unwrap();
        assert_eq!(Identity::parse(&own).unwrap().text(), own);
        assert!(!has_ended(&own));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let other = of_child(child.id());
        assert!(!has_ended(&other.text()));
        let reused = Identity { began: other.began + 1, ..of_child(child.id()) };
        assert!(has_ended(&reused.text()), "its number is another's");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&other.text()));
        for at in 0..3 {
            let mut elsewhere = Identity::parse(&other.text()).unwrap();
            elsewhere.world[at] = "other".into();
            assert!(!has_ended(&elsewhere.text()), "nothing is known of another machine or container");
        }
        for bad in ["", "a b c d e", "a b c 1", "a b c 1 2 3"] {
            assert!(!has_ended(bad), "{bad}");
        }
    }
}
