//! Prints how the design fails without one of its rules.

use siltstone_models::check::{Design, story};
use siltstone_models::{adopt, collect, formats, lease, locks, numbers, retry, stream, tables};
use std::process::ExitCode;

/// A model's name, its rules, and the story without one of them.
type Entry = (&'static str, fn() -> Vec<&'static str>, fn(&str) -> Option<String>);

const MODELS: [Entry; 9] = [
    ("stream", rules::<stream::Stream>, story::<stream::Stream>),
    ("collect", rules::<collect::Collect>, story::<collect::Collect>),
    ("numbers", rules::<numbers::Numbers>, story::<numbers::Numbers>),
    ("tables", rules::<tables::Tables>, story::<tables::Tables>),
    ("lease", rules::<lease::Lease>, story::<lease::Lease>),
    ("adopt", rules::<adopt::Adopt>, story::<adopt::Adopt>),
    ("retry", rules::<retry::Retry>, story::<retry::Retry>),
    ("locks", rules::<locks::Locks>, story::<locks::Locks>),
    ("formats", rules::<formats::Formats>, story::<formats::Formats>),
];

fn rules<D: Design>() -> Vec<&'static str> {
    D::variants().into_iter().map(|variant| variant.rule).collect()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let told = args.first().zip(args.get(1)).and_then(|(model, rule)| {
        let (_, _, story) = MODELS.iter().find(|(name, ..)| name == model)?;
        story(rule)
    });
    if let Some(told) = told {
        print!("{told}");
        return ExitCode::SUCCESS;
    }
    println!("Usage: siltstone-models MODEL RULE, where the rule is left out of the model:");
    for (name, rules, _) in MODELS {
        println!("{name}: {}", rules().join(", "));
    }
    ExitCode::FAILURE
}
