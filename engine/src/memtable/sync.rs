//! The atomics of lock-free reads, which `--cfg models` replaces by loom's (see `model`). Locks come from
//! `crate::sync`, as in all of the engine; the index's atomics do not, because loom's need the help below,
//! and because shuttle's schedules of a whole database need no switches inside a node.

#[cfg(all(test, models))]
pub(super) use checked::as_writer;
#[cfg(models)]
pub(super) use checked::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
pub(super) use std::sync::atomic::Ordering;
#[cfg(not(models))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// Makes the writer's loads visible to loom. loom decides by the last access to an atomic where else a thread
/// could have been interrupted, and a load by the storing thread hides the reader's load before it. So the
/// writer's loads become exchanges that change nothing, which depend on loads; readers' loads stay loads, so
/// that they may see old values.
#[cfg(models)]
mod checked {
    use super::Ordering;
    use crate::sync::is_loom;
    use std::cell::Cell;

    loom::thread_local! {
        static WRITER: Cell<bool> = Cell::new(false);
    }

    #[cfg(test)]
    /// Runs the writer thread's part of a model.
    pub(in super::super) fn as_writer(work: impl FnOnce()) {
        WRITER.with(|writer| writer.set(true));
        work();
    }

    enum Of<L, P> {
        Loom(L),
        Plain(P),
    }

    macro_rules! wrap {
        ($name:ident $(<$t:ident>)?, $value:ty, $zero:expr) => {
            pub(in super::super) struct $name $(<$t>)? (
                Of<loom::sync::atomic::$name $(<$t>)?, std::sync::atomic::$name $(<$t>)?>
            );

            impl $(<$t>)? $name $(<$t>)? {
                pub(in super::super) fn new(value: $value) -> Self {
                    Self(match is_loom() {
                        true => Of::Loom(loom::sync::atomic::$name::new(value)),
                        false => Of::Plain(std::sync::atomic::$name::new(value)),
                    })
                }

                pub(in super::super) fn load(&self, order: Ordering) -> $value {
                    match &self.0 {
                        Of::Plain(plain) => plain.load(order),
                        Of::Loom(loom) if WRITER.with(Cell::get) => {
                            match loom.compare_exchange($zero, $zero, order, order) {
                                Ok(value) | Err(value) => value,
                            }
                        }
                        Of::Loom(loom) => loom.load(order),
                    }
                }

                pub(in super::super) fn store(&self, value: $value, order: Ordering) {
                    match &self.0 {
                        Of::Loom(loom) => loom.store(value, order),
                        Of::Plain(plain) => plain.store(value, order),
                    }
                }
            }
        };
    }

    wrap!(AtomicU32, u32, 0);
    wrap!(AtomicU64, u64, 0);
    wrap!(AtomicUsize, usize, 0);
    wrap!(AtomicPtr<T>, *mut T, std::ptr::null_mut());
}
