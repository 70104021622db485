//! The treatment of each field of a request: it is used, stored, without effect for a documented reason, or
//! refused by its name.
//!
//! `api.txt` lists all of them, and `build.rs` makes [`MESSAGES`] of it. Requests are looked at by it as they
//! came (`crate::net::wire`): of what the message types do not know nothing is left once they are
//! decoded.

use tonic::Status;

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Used,
    Kept,
    Ignored,
    Refused,
}

/// A message that requests are made of.
#[derive(Debug)]
pub(crate) struct Message {
    name: &'static str,
    fields: &'static [Field],
}

#[derive(Debug)]
struct Field {
    number: u64,
    name: &'static str,
    fate: Fate,
    /// The place of its message in [`MESSAGES`], where it is a message or a map.
    message: Option<usize>,
}

include!(concat!(env!("OUT_DIR"), "/fields.rs"));

/// The message of the requests of a method, if that is one of a service.
pub(crate) const fn request_of(path: &str) -> Option<&'static Message> {
    let mut at = 0;
    while at < REQUESTS.len() {
        if is_same(REQUESTS[at].0.as_bytes(), path.as_bytes()) {
            return Some(&MESSAGES[REQUESTS[at].1]);
        }
        at += 1;
    }
    None
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl Message {
    /// Checks a field of that number, which may have a value. Returns the nested message whose fields are to
    /// be checked, too.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` for one that is refused, or not known.
    pub(crate) fn take(&self, number: u64, has_value: bool) -> Result<Option<&'static Self>, Status> {
        let Some(field) = self.fields.iter().find(|field| field.number == number) else {
            return Err(Status::unimplemented(format!("field {number} of {} is not known here", self.name)));
        };
        match field.fate {
            Fate::Used | Fate::Kept => Ok(field.message.map(|at| &MESSAGES[at])),
            Fate::Refused if has_value || field.message.is_some() => {
                Err(Status::unimplemented(format!("{} of {} is not served", field.name, self.name)))
            }
            Fate::Ignored | Fate::Refused => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
