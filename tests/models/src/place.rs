//! The places of objects in a stream.

/// Place `n` of incarnation `k`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Place {
    pub(crate) k: u8,
    pub(crate) n: u8,
}

impl Place {
    pub(crate) fn next(self) -> Self {
        Self { n: self.n + 1, ..self }
    }
}
