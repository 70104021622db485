//! How a model is checked: with all rules nothing may be found, without one of them its failure must be.

use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::hash::Hash;

/// A model without one of its rules, and what must then go wrong.
pub struct Variant<M> {
    /// The rule that is left out.
    pub rule: &'static str,
    /// The number of the failure in the design's list of sequences; 0 if it is not in the list.
    pub sequence: u8,
    /// The property that fails.
    pub property: &'static str,
    /// The model without the rule.
    pub model: M,
}

/// A part of the design as a model, with the rules that can be left out.
pub trait Design: Send + Sync + 'static
where
    Self: Model<
            State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
            Action: Clone + Debug + PartialEq + Send + Sync,
        >,
{
    /// The model with all rules.
    fn whole() -> Self;
    /// The models without one rule each.
    fn variants() -> Vec<Variant<Self>>;
}

/// Declares `Rules` of a model, a switch for each, and its `Design`. After a rule stand the number of the
/// sequence that it prevents and the property that fails without it.
macro_rules! rules {
    ($model:ident: $($(#[$says:meta])* $rule:ident: $sequence:literal => $property:ident,)*) => {
        /// Sentences of the design, each of which can be left out.
        #[derive(Clone, Copy, Debug)]
        pub struct Rules {
            $($(#[$says])* pub(crate) $rule: bool,)*
        }

        impl Rules {
            const ALL: Self = Self { $($rule: true,)* };
        }

        impl $crate::check::Design for $model {
            fn whole() -> Self {
                Self { rules: Rules::ALL }
            }

            fn variants() -> Vec<$crate::check::Variant<Self>> {
                vec![$($crate::check::Variant {
                    rule: stringify!($rule),
                    sequence: $sequence,
                    property: $property,
                    model: Self { rules: Rules { $rule: false, ..Rules::ALL } },
                },)*]
            }
        }
    };
}
pub(crate) use rules;

/// The shortest way to the failure without a rule, as text; `None` if there is no such rule, or no failure.
pub fn story<D: Design>(rule: &str) -> Option<String> {
    let variant = || D::variants().into_iter().find(|variant| variant.rule == rule);
    let mut path = failure(variant()?, usize::MAX)?;
    // The checker stops a little after the first failure and tells the last that it found.
    while let Some(shorter) = failure(variant()?, path.len()) {
        path = shorter;
    }
    let Variant { sequence, property, .. } = variant()?;
    let mut text = format!("Without {rule} it is not true that {property} [{sequence}]:\n");
    for (state, action) in path {
        match action {
            Some(action) => _ = writeln!(text, "  {action:?}"),
            None => _ = writeln!(text, "Then: {state:#?}"),
        }
    }
    Some(text)
}

/// States, each with the action that follows on it.
type Steps<D> = Vec<(<D as Model>::State, Option<<D as Model>::Action>)>;

/// The steps to the failure that a variant must have, fewer than so many.
fn failure<D: Design>(variant: Variant<D>, than: usize) -> Option<Steps<D>> {
    let property = variant.property;
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = variant.model.checker().finish_when(until).target_max_depth(than).spawn_bfs().join();
    checker.discovery(property).map(|path| path.into_vec())
}

/// Visits all states of the whole design, which must be at least so many.
///
/// # Panics
///
/// If a property does not hold, or a state that shows that the model does something is not reached.
pub fn holds<D: Design>(states_min: usize) {
    let checker = D::whole().checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut found = checker.discoveries();
    for property in checker.model().properties() {
        let path = found.remove(property.name);
        match (property.expectation, path) {
            (Expectation::Sometimes, path) => assert!(path.is_some(), "never: {}", property.name),
            (_, None) => {}
            (_, Some(path)) => {
                let last = path.last_state().clone();
                panic!("not true: {}\n{:?}\n{last:?}", property.name, path.into_actions());
            }
        }
    }
    let states = checker.unique_state_count();
    println!("{states} states, at most {} steps from the first", checker.max_depth());
    assert!(states >= states_min, "only {states} states");
}

/// Leaves out one rule after another: each time its failure must be found.
///
/// # Panics
///
/// If one of them is not needed.
pub fn each_is_needed<D: Design>() {
    let mut needless = Vec::new();
    for variant in D::variants() {
        let (rule, sequence, property) = (variant.rule, variant.sequence, variant.property);
        match failure(variant, usize::MAX) {
            Some(path) => {
                println!("[{sequence}] without {rule}, after {} steps, not: {property}", path.len() - 1);
            }
            None => needless.push(rule),
        }
    }
    assert!(needless.is_empty(), "nothing goes wrong without {needless:?}");
}
