//! SIGINT and SIGTERM: each leaves one sentence that says what was done.
//!
//! A thread waits for the first signal and calls what the running command has set by [`on_signal`]. That
//! gives the sentence to end with at once, or `None` where the command ends by itself at its next step with
//! what [`check`] says. A second signal ends at once.

use crate::failure::{Failure, Outcome};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{IsTerminal, Write};
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

type OnSignal = Box<dyn FnMut() -> Option<String> + Send>;

static ON_SIGNAL: Mutex<Option<OnSignal>> = Mutex::new(None);
/// The signal that came; 0 for none.
static CAME: AtomicI32 = AtomicI32::new(0);

/// Waits for signals from now on. Where that is not possible they end the process as they do any other, which
/// is safe, too.
pub(crate) fn watch() {
    let wanted = [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal));
    let Ok(mut signals) = Signals::new(wanted) else { return };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if CAME.swap(signal, Ordering::SeqCst) != 0 {
                end(signal, "a second time; unfinished work is as after a crash");
            }
            // What is to be done may take long, and a second signal is to be heard meanwhile.
            std::thread::spawn(move || {
                let what = match ON_SIGNAL.lock().ok().as_mut().and_then(|on_signal| on_signal.as_mut()) {
                    None => Some("no data was changed".to_string()),
                    Some(on_signal) => on_signal(),
                };
                if let Some(what) = what {
                    end(signal, &what);
                }
            });
        }
    });
}

/// Whether it was ignored when the process began, as a shell does for what it runs in the background.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (signal - 1) & 1 == 1
}

fn end(signal: i32, what: &str) -> ! {
    // Behind a progress bar, or the terminal's ^C.
    let line_end = if std::io::stderr().is_terminal() { "\n" } else { "" };
    // Nobody may be listening.
    let _ = writeln!(std::io::stderr(), "{line_end}siltstone: {}", sentence(signal, what));
    process::exit(128 + signal)
}

/// Sets what to do at a signal, from now on.
pub(crate) fn on_signal(run: impl FnMut() -> Option<String> + Send + 'static) {
    if let Ok(mut on_signal) = ON_SIGNAL.lock() {
        *on_signal = Some(Box::new(run));
    }
}

/// Sets what to say at a signal, from now on.
pub(crate) fn leaves(what: impl Into<String>) {
    let what = what.into();
    on_signal(move || Some(what.clone()));
}

/// Whether a signal came.
pub(crate) fn came() -> bool {
    CAME.load(Ordering::SeqCst) != 0
}

/// An error with that sentence if a signal came.
pub(crate) fn check(what: impl FnOnce() -> String) -> Outcome {
    match CAME.load(Ordering::SeqCst) {
        0 => Ok(()),
        signal => Err(Failure::Signal(signal, sentence(signal, &what()))),
    }
}

fn sentence(signal: i32, what: &str) -> String {
    format!("ended by {}: {what}", if signal == SIGINT { "SIGINT" } else { "SIGTERM" })
}
