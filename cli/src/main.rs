//! The siltstone command line.
fn main() {}
