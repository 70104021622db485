//! Declares that a type may be sent to other threads and shared between them, so that the compiler need not
//! derive it again for each async function of a user that has a database. It would visit all fields, through
//! every `Arc` twice and without caching: half a second for each such function.

/// Declares `Send` and `Sync` for a type; naming all fields makes the compiler check it, once.
macro_rules! sent {
    ($type:ident { $($field:ident),* $(,)? }) => {
        const _: fn(&$type) = |all| {
            fn both<T: Send + Sync>(_: &T) {}
            let $type { $($field),* } = all;
            $(both($field);)*
        };
        #[expect(unsafe_code, reason = "users of async code compile for seconds longer without it")]
        // SAFETY: a structure may be sent where all its fields may be sent and shared, and this does not
        // compile otherwise.
        unsafe impl Send for $type {}
        #[expect(unsafe_code, reason = "users of async code compile for seconds longer without it")]
        // SAFETY: as above.
        unsafe impl Sync for $type {}
    };
}

pub(crate) use sent;
