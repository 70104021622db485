//! Python from threads of the engine, or of other libraries.
//!
//! pyo3 counts how often a thread has entered Python. It does not see that C code which Python called has let
//! go of it since: so does pyarrow while it reads a stream of ours. There pyo3 would take the thread for one
//! that runs Python, and an operator in Python would run beside another thread. The interpreter itself knows
//! better, so it is asked first.

#![expect(unsafe_code, reason = "pyo3 has no call for it that is right in such a thread")]

use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Python ends: a thread that asks for it then would not come back.
static ENDS: AtomicBool = AtomicBool::new(false);

/// From now on Python is not entered.
#[pyfunction]
pub(crate) fn _ends() {
    ENDS.store(true, Ordering::SeqCst);
}

/// Entered once more than before, until it is dropped.
struct Entered(ffi::PyGILState_STATE);

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: it was entered by this thread, which has left whatever it entered since.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

/// Calls something with Python, unless that ends.
pub(crate) fn with_python<T>(call: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    if ENDS.load(Ordering::SeqCst) {
        return None;
    }
    // SAFETY: there is an interpreter, as it has loaded this library, and it does not end yet. Any thread may
    // enter it, also one that is inside.
    let _entered = Entered(unsafe { ffi::PyGILState_Ensure() });
    Python::try_attach(call)
}

/// The main thread gets a `KeyboardInterrupt` as soon as it runs Python again.
pub(crate) fn interrupt(_py: Python<'_>) {
    // SAFETY: any thread may call it that runs Python.
    unsafe { ffi::PyErr_SetInterrupt() }
}
