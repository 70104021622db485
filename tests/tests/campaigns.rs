//! The list of campaigns says of the programs of this package what they say themselves.

#[allow(dead_code, reason = "what it says of other programs is not read here")]
#[path = "../../xtask/src/list.rs"]
mod list;

use list::CAMPAIGNS;
use siltstone_tests::ROWS;
use siltstone_tests::kill::campaign::least;

/// The count from which a campaign of that command asks what it has met.
fn least_of(run: &str) -> Option<u64> {
    let mut words = run.split(' ');
    match (words.next()?, words.next()) {
        ("siltstone-torture", Some(name)) => Some(ROWS.iter().find(|row| row.name == name)?.least()),
        ("siltstone-kill", None) => Some(least()),
        _ => None,
    }
}

#[test]
fn each_campaign_is_listed_with_the_count_from_which_it_asks_what_was_met() {
    for campaign in CAMPAIGNS {
        if let Some(least) = least_of(campaign.run) {
            assert_eq!(campaign.least, least, "{}", campaign.run);
        }
    }
}

#[test]
fn every_row_is_listed() {
    for row in ROWS {
        let run = format!("siltstone-torture {}", row.name);
        let is_listed = |listed: &str| listed == run || listed.starts_with(&format!("{run} "));
        assert!(CAMPAIGNS.iter().any(|campaign| is_listed(campaign.run)), "{run}");
    }
}
