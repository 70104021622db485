//! Garbage collection rules: which cells of a column they hide.
//!
//! The engine knows two limits of a family, a number of versions and an age, and drops what is beyond either:
//! a union. What it cannot say (an intersection) is judged here when cells are read, so no reader sees such a
//! cell, and is deleted later ([`crate::tables::gc_sweep`]).

use crate::proto::admin;
use crate::proto::admin::gc_rule::Rule;
use prost::Message;
use serde::{Deserialize, Serialize};
use tonic::Status;

/// Rules may hold rules, this deep.
const DEPTH_MAX: usize = 10;
/// Bytes of a rule as encoded, at most: as in the public service. Every cell that is read is judged by the
/// whole rule.
const BYTES_MAX: usize = 500;

/// The condition under which a cell is hidden.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Gc {
    /// Never.
    #[default]
    Never,
    /// It is not among this many newest of its column.
    Versions(u32),
    /// Its timestamp is longer ago than this many microseconds.
    AgeUs(u64),
    /// One of these says so.
    Union(Vec<Gc>),
    /// All of these say so.
    Intersection(Vec<Gc>),
}

impl Gc {
    pub(crate) fn from_message(rule: Option<&admin::GcRule>) -> Result<Self, Status> {
        let bytes = rule.map_or(0, Message::encoded_len);
        if bytes > BYTES_MAX {
            return Err(Status::invalid_argument(format!(
                "GC rule: it has {bytes} bytes as encoded, more than {BYTES_MAX}"
            )));
        }
        Self::nested(rule, DEPTH_MAX)
    }

    fn nested(rule: Option<&admin::GcRule>, depth: usize) -> Result<Self, Status> {
        let wrong = |what: String| Err(Status::invalid_argument(format!("GC rule: {what}")));
        if depth == 0 {
            return wrong(format!("nested more than {DEPTH_MAX} deep"));
        }
        let all = |rules: &[admin::GcRule]| -> Result<Vec<Self>, Status> {
            rules.iter().map(|rule| Self::nested(Some(rule), depth - 1)).collect()
        };
        Ok(match rule.and_then(|rule| rule.rule.as_ref()) {
            None => Self::Never,
            Some(Rule::MaxNumVersions(n)) => match u32::try_from(*n) {
                Ok(n) if n > 0 => Self::Versions(n),
                _ => return wrong(format!("max_num_versions is {n}, and must be positive")),
            },
            Some(Rule::MaxAge(age)) => match crate::time::micros(age.seconds, age.nanos) {
                Some(us) if us >= 1_000 => Self::AgeUs(us),
                _ => return wrong("max_age must be at least one millisecond".into()),
            },
            Some(Rule::Union(union)) => Self::Union(all(&union.rules)?),
            Some(Rule::Intersection(intersection)) => Self::Intersection(all(&intersection.rules)?),
        })
    }

    pub(crate) fn to_message(&self) -> Option<admin::GcRule> {
        let all = |rules: &[Self]| rules.iter().filter_map(Self::to_message).collect();
        let rule = match self {
            Self::Never => return None,
            Self::Versions(n) => Rule::MaxNumVersions(i32::try_from(*n).unwrap_or(i32::MAX)),
            Self::AgeUs(us) => Rule::MaxAge(crate::time::duration(*us)),
            Self::Union(rules) => Rule::Union(admin::gc_rule::Union { rules: all(rules) }),
            Self::Intersection(rules) => {
                Rule::Intersection(admin::gc_rule::Intersection { rules: all(rules) })
            }
        };
        Some(admin::GcRule { rule: Some(rule) })
    }

    /// The part of the rule that the engine applies: (number of versions, 0 for all; microseconds to live, 0
    /// for ever).
    pub(crate) fn limits(&self) -> (u32, u64) {
        let least = |a: u64, b: u64| if a == 0 || (b != 0 && b < a) { b } else { a };
        match self {
            Self::Never => (0, 0),
            Self::Versions(n) => (*n, 0),
            Self::AgeUs(us) => (0, *us),
            Self::Union(rules) => rules.iter().map(Self::limits).fold((0, 0), |(n, us), (m, other)| {
                (u32::try_from(least(n.into(), m.into())).unwrap_or(u32::MAX), least(us, other))
            }),
            Self::Intersection(rules) if rules.len() == 1 => rules[0].limits(),
            Self::Intersection(_) => (0, 0),
        }
    }

    /// Whether the engine cannot apply all of the rule.
    pub(crate) fn is_judged_here(&self) -> bool {
        match self {
            Self::Union(rules) => rules.iter().any(Self::is_judged_here),
            Self::Intersection(rules) if rules.len() == 1 => rules[0].is_judged_here(),
            Self::Intersection(rules) => !rules.is_empty(),
            _ => false,
        }
    }

    /// Whether a cell is gone that is this newest (from 0) of its column, with that timestamp, at that time.
    pub(crate) fn is_gone(&self, newest: usize, timestamp_us: u64, now_us: u64) -> bool {
        let judge = |rule: &Self| rule.is_gone(newest, timestamp_us, now_us);
        match self {
            Self::Never => false,
            Self::Versions(n) => newest >= *n as usize,
            Self::AgeUs(us) => timestamp_us.saturating_add(*us) <= now_us,
            Self::Union(rules) => rules.iter().any(judge),
            Self::Intersection(rules) => !rules.is_empty() && rules.iter().all(judge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_are_the_engines_limits_and_intersections_are_judged_here() {
        let (three, day) = (Gc::Versions(3), Gc::AgeUs(86_400_000_000));
        let either = Gc::Union(vec![three.clone(), day.clone(), Gc::Versions(5)]);
        assert_eq!((either.limits(), either.is_judged_here()), ((3, 86_400_000_000), false));
        let both = Gc::Intersection(vec![three.clone(), day.clone()]);
        assert_eq!((both.limits(), both.is_judged_here()), ((0, 0), true));
        let now = 100 * 86_400_000_000;
        assert!(!both.is_gone(5, now - 1, now) && !both.is_gone(2, 1, now) && both.is_gone(3, 1, now));
        let mixed = Gc::Union(vec![Gc::Versions(9), both.clone()]);
        assert_eq!((mixed.limits(), mixed.is_judged_here()), ((9, 0), true));
        assert!(!Gc::Intersection(Vec::new()).is_gone(9, 0, now));
        for gc in [three, day, either, both, mixed, Gc::Never] {
            assert_eq!(Gc::from_message(gc.to_message().as_ref()).unwrap(), gc);
        }
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        let rule = |rule| admin::GcRule { rule: Some(rule) };
        assert!(Gc::from_message(Some(&rule(Rule::MaxNumVersions(0)))).is_err());
        assert!(
            Gc::from_message(Some(&rule(Rule::MaxAge(prost_types::Duration { seconds: 0, nanos: 5 }))))
                .is_err()
        );
        let mut deep = rule(Rule::MaxNumVersions(1));
        for _ in 0..DEPTH_MAX {
            deep = rule(Rule::Union(admin::gc_rule::Union { rules: vec![deep] }));
        }
        assert!(Gc::from_message(Some(&deep)).is_err());
    }

    #[test]
    fn rules_of_more_than_500_bytes_are_refused_whatever_they_are_made_of() {
        let part = admin::GcRule { rule: Some(Rule::MaxNumVersions(5)) };
        // A part has 2 bytes and 2 before it, the list of all of them 3 before it.
        let of = |parts: usize| {
            let rules = vec![part.clone(); parts];
            admin::GcRule { rule: Some(Rule::Union(admin::gc_rule::Union { rules })) }
        };
        let (most, over) = (of(124), of(125));
        assert!(most.encoded_len() <= BYTES_MAX && over.encoded_len() > BYTES_MAX);
        assert!(Gc::from_message(Some(&most)).is_ok());
        let refused = Gc::from_message(Some(&over)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains("500"), "{refused}");
        // Parts that say nothing count too.
        let empty = vec![admin::GcRule::default(); 1_000];
        let empty = Rule::Intersection(admin::gc_rule::Intersection { rules: empty });
        assert!(Gc::from_message(Some(&admin::GcRule { rule: Some(empty) })).is_err());
    }
}
