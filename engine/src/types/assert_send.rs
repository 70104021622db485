//! Says of a type that it may be sent to other threads and shared between them, so that the compiler need not
//! find out anew for each async function of a user that holds a database. It looks at all that a type holds,
//! through every `Arc` twice and without remembering what it saw: of a database that takes half a second for
//! each such function.

/// All fields are named, so that what is said is checked, once.
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
