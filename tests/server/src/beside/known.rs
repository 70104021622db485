//! Where the emulator is known to answer otherwise than Bigtable's documentation, which the server follows,
//! and where two right answers may differ. A difference that is met is judged by `is`; what has none is not
//! drawn, as its answers cannot be compared.

use super::{Answer, Call};
use crate::child::data::mutation::Mutation as Change;
use tonic::Code;

/// A difference.
pub(super) struct Known {
    pub(super) what: &'static str,
    /// Why it is none of ours; read by people alone.
    #[allow(dead_code, reason = "a difference is in the table only with its reason")]
    pub(super) why: &'static str,
    pub(super) is: Option<fn(&Call, &Answer, &Answer) -> bool>,
}

const fn drawn(what: &'static str, why: &'static str, is: fn(&Call, &Answer, &Answer) -> bool) -> Known {
    Known { what, why, is: Some(is) }
}

const fn not_drawn(what: &'static str, why: &'static str) -> Known {
    Known { what, why, is: None }
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[
    drawn(
        "UNKNOWN for what is refused",
        "the emulator gives an error without a code for unknown families, adding to plain ones and increments of no number",
        |_, ours, theirs| {
            let has_code =
                matches!(ours, Err((Code::NotFound | Code::InvalidArgument | Code::FailedPrecondition, _)));
            has_code && matches!(theirs, Err((Code::Unknown, _)))
        },
    ),
    drawn(
        "INTERNAL for each row of MutateRows that is refused",
        "the emulator gives all of them this code",
        |call, ours, theirs| {
            let (Call::MutateRows(_), Ok(ours), Ok(theirs)) = (call, ours, theirs) else { return false };
            let (ours, theirs): (Vec<_>, Vec<_>) = (ours.split(' ').collect(), theirs.split(' ').collect());
            let internal = (Code::Internal as i32).to_string();
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| match *ours {
                    "0" => theirs == "0",
                    _ => theirs == internal,
                })
        },
    ),
    drawn(
        "deletes from families that are not there",
        "the emulator deletes nothing and says that all is well",
        |call, ours, theirs| {
            let deletes = call.changes().any(|change| matches!(change, Change::DeleteFromFamily(_)));
            // It may then refuse what comes behind.
            let goes_on = matches!(theirs, Ok(_) | Err((Code::InvalidArgument, _)));
            deletes && goes_on && matches!(ours, Err((Code::NotFound, _)))
        },
    ),
    not_drawn("sinks", "the emulator takes a sink for a filter that it does not know, and lets all through"),
    not_drawn("min and max", "the emulator replaces the value of a cell of such a family"),
    not_drawn("cells set in aggregate families", "the emulator sets them; they are refused here"),
    not_drawn("read-modify-writes of aggregate families", "the emulator adds what it has just added up"),
    not_drawn("rules of few versions or short ages", "the emulator hides what they collect a second later"),
    not_drawn("ids of tables and families", "the emulator takes any, such as empty ones"),
    not_drawn("empty row keys of conditions and read-modify-writes", "the emulator takes them"),
    not_drawn("limits and offsets of a row's cells over families", "the emulator takes families in no order"),
    not_drawn("row samples", "both draw by chance"),
    not_drawn("limits behind interleaves", "which of two equal cells comes first is not said"),
    not_drawn("filters behind labels", "the emulator loses the label of a cell that is then stripped"),
    not_drawn("chains and interleaves of one filter", "the emulator refuses them; they are served here"),
    not_drawn("filters that are wrong", "the emulator looks at a filter only where it meets a cell"),
    not_drawn(
        "inverted ranges in filters and deletes",
        "the emulator lets nothing through, or does not look",
    ),
    not_drawn(
        "conditions without mutations",
        "the emulator takes them; the documentation wants one at least",
    ),
    not_drawn("two cells of a column at the server's time", "whether they are one depends on the clock"),
    not_drawn("changes of families of which one is wrong", "the emulator has made those before it"),
];
