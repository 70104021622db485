//! SIGINT and SIGTERM: each leaves one sentence that says what was done.
//!
//! A thread waits for the first signal and calls what the running command has set by [`on_signal`]. That gives the sentence
//! to end with at once, or `None` where the command ends by itself at its next step with what [`check`] says.
//! A second signal ends at once.

use crate::failure::{Failure, Outcome};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

type OnSignal = Box<dyn FnMut() -> Option<String> + Send>;

static ON_SIGNAL: Mutex<Option<OnSignal>> = Mutex::new(None);
/// The signal that came; 0 for none.
static CAME: AtomicI32 = AtomicI32::new(0);

/// Waits for signals from now on. Where that is not possible they end the process as they do any other, which is safe, too.
pub(crate) fn watch() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let is_second = CAME.swap(signal, Ordering::SeqCst) != 0;
            let what = match ON_SIGNAL.lock().ok().as_mut().and_then(|on_signal| on_signal.as_mut()) {
                _ if is_second => Some("at once; what was not finished is as after a crash".to_string()),
                None => Some("no data was changed".to_string()),
                Some(on_signal) => on_signal(),
            };
            if let Some(what) = what {
                // Behind a progress bar, or the terminal's ^C.
                let line_end = if std::io::stderr().is_terminal() { "\n" } else { "" };
                eprintln!("{line_end}siltstone: {}", sentence(signal, &what));
                process::exit(128 + signal);
            }
        }
    });
}

/// What to do at a signal, from now on.
pub(crate) fn on_signal(run: impl FnMut() -> Option<String> + Send + 'static) {
    if let Ok(mut on_signal) = ON_SIGNAL.lock() {
        *on_signal = Some(Box::new(run));
    }
}

/// What to say at a signal, from now on.
pub(crate) fn leaves(what: impl Into<String>) {
    let what = what.into();
    on_signal(move || Some(what.clone()));
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
