//! Merge operators and compaction filters that are written in C.

use crate::bytes::Slice;
use siltstone::{CompactionFilter, Error, ErrorKind, MergeOperator, Timestamp};
use std::ffi::c_void;

/// Combines operands, oldest first, with the key's value before them (`base`, NULL where there is none), and
/// says what came of it by `siltstone_output_value` or `siltstone_output_refuse`. Called by readers and by
/// workers of the engine, also at once. Must answer the same whenever it is asked the same, and whether it
/// gets operands one after the other or together. It must return (no longjmp and no C++ exception may leave
/// it) and must not use the database.
pub type OperatorFunction = Option<
    extern "C" fn(
        context: *mut c_void,
        key: Slice,
        base: *const Slice,
        operands: *const Slice,
        operand_count: usize,
        output: &mut Output,
    ),
>;

/// Whether the value is unwanted; `now_us` is the time in microseconds since 1970. Once a value is unwanted
/// it must stay so. Called by readers and by workers of the engine, also at once. It must return (no longjmp
/// and no C++ exception may leave it) and must not use the database.
pub type FilterFunction = Option<
    extern "C" fn(context: *mut c_void, key: Slice, timestamp: u64, value: Slice, now_us: u64) -> bool,
>;

/// The result of a merge operator, to be set by it. Valid during its call alone.
#[derive(Default)]
pub struct Output(Option<Result<Vec<u8>, String>>);

/// The context that a function is called with, and how to free it.
pub(crate) struct Context {
    pointer: *mut c_void,
    free: Option<extern "C" fn(*mut c_void)>,
}

// SAFETY: the caller that registers a function promises that several threads may call it with its context at
// once, and that any thread may free the context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(pointer: *mut c_void, free: Option<extern "C" fn(*mut c_void)>) -> Self {
        Self { pointer, free }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            free(self.pointer);
        }
    }
}

/// A merge operator's function in C.
pub(crate) struct Operator {
    pub(crate) function: OperatorFunction,
    pub(crate) context: Context,
}

impl MergeOperator for Operator {
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        let operands: Vec<Slice> = operands.iter().map(|operand| Slice::of(operand)).collect();
        let base = base.map(Slice::of);
        let base = base.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut output = Output::default();
        let (first, count) = (operands.as_ptr(), operands.len());
        if let Some(function) = self.function {
            function(self.context.pointer, Slice::of(key), base, first, count, &mut output);
        }
        output.0.unwrap_or_else(|| Err("it put nothing out".to_string())).map_err(|why| {
            let why = format!("the merge operator refused key \"{}\": {why}", key.escape_ascii());
            Error::new(ErrorKind::MergeRefused, why)
        })
    }
}

/// A function of C's that tells unwanted values.
pub(crate) struct Filter {
    pub(crate) function: FilterFunction,
    pub(crate) context: Context,
}

impl CompactionFilter for Filter {
    fn remove(&self, key: &[u8], timestamp: Timestamp, value: &[u8], now_us: u64) -> bool {
        let ask = |function: extern "C" fn(_, _, _, _, _) -> bool| {
            function(self.context.pointer, Slice::of(key), timestamp.0, Slice::of(value), now_us)
        };
        self.function.is_some_and(ask)
    }
}

/// The operator's answer: these bytes, which are copied.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_output_value(output: Option<&mut Output>, value: Slice) {
    if let Some(output) = output {
        output.0 = Some(value.bytes("value").map(<[u8]>::to_vec).map_err(|why| why.to_string()));
    }
}

/// The operator's answer: it does not take these operands. Reads of the key answer
/// `SILTSTONE_KIND_MERGE_REFUSED` with this text, and the operands stay.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_output_refuse(output: Option<&mut Output>, why: Slice) {
    if let Some(output) = output {
        let why = why.bytes("why").unwrap_or_default();
        output.0 = Some(Err(String::from_utf8_lossy(why).into_owned()));
    }
}
