//! Progress bars: on stderr, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use siltstone::CheckProgress;
use std::time::Duration;

/// Bytes of a known or unknown total, with rate and remaining time.
pub(crate) fn bytes(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => styled(
            ProgressBar::new(total),
            "{bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left {msg}",
        ),
        None => styled(ProgressBar::new_spinner(), "{spinner} {binary_bytes}, {binary_bytes_per_sec} {msg}"),
    }
}

/// Rows, of about this many.
pub(crate) fn rows(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {human_pos} rows of about {human_len}, {per_sec}, {eta} left")
}

/// Something whose end is not known.
pub(crate) fn waiting(what: &'static str) -> ProgressBar {
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {msg}, {elapsed}").with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn styled(bar: ProgressBar, template: &'static str) -> ProgressBar {
    bar.with_style(ProgressStyle::with_template(template).expect("a template of ours is well formed"))
}

/// Runs a check or a repair under a bar over the database's bytes.
pub(crate) fn over_files<T>(run: impl FnOnce(&mut dyn FnMut(CheckProgress)) -> T) -> T {
    let bar = bytes(Some(0));
    let result = run(&mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(progress.file);
    });
    bar.finish_and_clear();
    result
}
