//! Small runs of the damage campaigns; the large ones are the torture binary's.

use siltstone_tests::rot::{rescue, rot};

#[test]
fn no_damage_gives_a_wrong_answer_or_a_panic() {
    let report = rot(1, 3_000);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(report.fixture_bytes >= 256 << 10 && report.damages > 2_700, "{report:?}");
    assert!(report.named > report.damages / 2 && report.harmless > 0, "{report:?}");
    assert!(report.checked.1 > 0, "{report:?}");
}

#[test]
fn a_repair_gives_everything_back_that_it_does_not_report_lost() {
    let report = rescue(2, 50);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert_eq!(report.rescues, 50);
    assert!(report.complete > 0 && report.excused > 0 && report.excused < report.keys / 4, "{report:?}");
}
