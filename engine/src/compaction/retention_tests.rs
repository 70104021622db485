//! One story per rule: cells in, read points, surviving cells.

use super::*;
use crate::compaction::kway_merge::tests::cell;
use crate::error::{Error, ErrorKind};

struct Concat;
impl MergeOperator for Concat {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let mut all = base.unwrap_or(b"-").to_vec();
        for operand in operands {
            match *operand {
                b"refuse" => return Err(Error::new(ErrorKind::MergeRefused, "refused")),
                b"panic" => panic!("an operator's own bug"),
                operand => all.extend_from_slice(operand),
            }
        }
        Ok(all)
    }
}

fn rules(points: &[u64]) -> RetentionRules {
    RetentionRules {
        read_points: points.iter().map(|p| SeqNo(*p)).collect(),
        explicit: false,
        versions: 0,
        ttl_us: 0,
        now_us: 1_000,
        operator: Some(Arc::new(Concat)),
        filter: None,
        below: TombstoneElision::default(),
    }
}

fn somewhere_below() -> TombstoneElision {
    TombstoneElision::new(vec![KeyRange::all()])
}

/// Cells as `key@timestamp#seq=value`, `-` for a tombstone, `~` for a hidden version, `+value` for an
/// operand.
fn parse(text: &str) -> Cell {
    let (head, value) = text.split_once('=').unwrap();
    let (head, seq) = head.split_once('#').unwrap();
    let (key, timestamp) = head.split_once('@').unwrap_or((head, "0"));
    let (kind, value) = match value {
        "-" => (Kind::Tombstone, ""),
        "~" => (Kind::Hidden, ""),
        _ => value.strip_prefix('+').map_or((Kind::Value, value), |v| (Kind::Operand, v)),
    };
    let mut cell = cell(key, seq.parse().unwrap(), kind, value);
    cell.timestamp = Timestamp(timestamp.parse().unwrap());
    cell
}

fn show(cell: &CellRef<'_>) -> String {
    let value = String::from_utf8_lossy(cell.value);
    let value = match cell.kind {
        Kind::Tombstone => "-".into(),
        Kind::Hidden => "~".into(),
        Kind::Operand => format!("+{value}"),
        Kind::Value => value.into_owned(),
    };
    let timestamp = if cell.timestamp.0 > 0 { format!("@{}", cell.timestamp) } else { String::new() };
    format!("{}{timestamp}#{}={value}", String::from_utf8_lossy(cell.key), cell.seq)
}

fn survivors(rules: RetentionRules, tombstones: Vec<RangeTombstone>, cells: &str) -> String {
    let mut keep = Retention::new(rules, Fragments::new(tombstones));
    let mut out = Vec::new();
    let mut sink = |c: &CellRef<'_>| {
        out.push(show(c));
        Ok(())
    };
    for text in cells.split_whitespace() {
        keep.push(&parse(text).as_ref(), &mut sink).unwrap();
    }
    keep.end_key(&mut sink).unwrap();
    out.join(" ")
}

fn range_tombstone(start: &str, end: &str, seq: u64) -> RangeTombstone {
    let range = KeyRange::new(start, end);
    RangeTombstone { range, from: Timestamp::ZERO, to: Timestamp::MAX, seq: SeqNo(seq) }
}

#[test]
fn without_snapshots_only_the_newest_version_survives() {
    assert_eq!(survivors(rules(&[]), vec![], "a#9=x a#5=y b#3=z"), "a#9=x b#3=z");
}

#[test]
fn each_snapshot_keeps_the_version_it_sees() {
    assert_eq!(survivors(rules(&[4, 7]), vec![], "a#9=x a#8=w a#7=v a#5=u a#4=t a#2=s"), "a#9=x a#7=v a#4=t");
}

#[test]
fn a_tombstone_goes_only_with_nothing_below_and_no_older_snapshot() {
    assert_eq!(survivors(rules(&[]), vec![], "a#9=- a#5=y"), "");
    assert_eq!(survivors(rules(&[6]), vec![], "a#9=- a#5=y"), "a#9=- a#5=y");
    let below = RetentionRules { below: somewhere_below(), ..rules(&[]) };
    assert_eq!(survivors(below, vec![], "a#9=- a#5=y"), "a#9=-");
}

#[test]
fn operands_join_their_base_within_a_stripe_only() {
    let below = || RetentionRules { below: somewhere_below(), ..rules(&[]) };
    assert_eq!(survivors(below(), vec![], "a#9=+c a#8=+b a#5=a"), "a#9=abc");
    assert_eq!(survivors(below(), vec![], "a#9=+c a#8=+b"), "a#9=+c a#8=+b");
    assert_eq!(survivors(rules(&[]), vec![], "a#9=+c a#8=+b"), "a#9=-bc");
    assert_eq!(survivors(rules(&[8]), vec![], "a#9=+c a#8=+b a#5=a"), "a#9=+c a#8=ab");
    assert_eq!(survivors(below(), vec![], "a#9=+c a#8=- a#5=a"), "a#9=-c");
}

#[test]
fn a_range_tombstone_deletes_older_cells_of_its_stripe() {
    let tombstones = || vec![range_tombstone("a", "c", 6)];
    assert_eq!(survivors(rules(&[]), tombstones(), "a#9=x a#5=y b#4=z c#3=w"), "a#9=x c#3=w");
    assert_eq!(survivors(rules(&[5]), tombstones(), "a#9=x a#5=y b#4=z c#3=w"), "a#9=x a#5=y b#4=z c#3=w");
}

/// The bound of writes without a trace, once all outputs are written.
fn forgotten(rules: RetentionRules, tombstones: Vec<RangeTombstone>, cells: &str) -> u64 {
    let mut keep = Retention::new(rules, Fragments::new(tombstones));
    for text in cells.split_whitespace() {
        keep.push(&parse(text).as_ref(), &mut |_| Ok(())).unwrap();
    }
    keep.end_key(&mut |_| Ok(())).unwrap();
    keep.tombstones_within(&KeyRange::all());
    keep.forgotten().0
}

#[test]
fn nothing_newer_than_a_read_point_is_forgotten() {
    let under = || vec![range_tombstone("a", "c", 9)];
    assert_eq!(forgotten(rules(&[5]), under(), "b#7=x d#4=- d#3=y"), 4);
    assert_eq!(forgotten(rules(&[5]), under(), "b#7=- b#4=x"), 0);
    assert_eq!(forgotten(rules(&[]), under(), "b#7=x d#4=x"), 9);
    let below = RetentionRules { below: somewhere_below(), ..rules(&[]) };
    assert_eq!(forgotten(below, under(), "b#7=x"), 0, "the tombstone tells of it");
    // A version that never counted, because of a later timestamp.
    let counted = |points: &[u64]| RetentionRules { explicit: true, versions: 1, ..rules(points) };
    assert_eq!(survivors(counted(&[5]), vec![], "a@9#6=x a@8#7=y"), "a@9#6=x a@8#7=y");
    assert_eq!(forgotten(counted(&[5]), vec![], "a@9#6=x a@8#7=y"), 0);
    assert_eq!(forgotten(counted(&[]), vec![], "a@9#6=x a@8#7=y"), 7);
}

#[test]
fn range_tombstones_go_on_while_something_is_below_or_a_snapshot_is_older() {
    let go_on = |rules: RetentionRules| {
        let tombstones = vec![range_tombstone("a", "m", 6), range_tombstone("a", "m", 4)];
        let keep = Retention::new(rules, Fragments::new(tombstones));
        keep.tombstones_within(&KeyRange::new("b", "d")).len()
    };
    assert_eq!(go_on(rules(&[])), 0);
    assert_eq!(go_on(RetentionRules { below: somewhere_below(), ..rules(&[]) }), 1);
    assert_eq!(go_on(RetentionRules { below: somewhere_below(), ..rules(&[5]) }), 2);
    assert_eq!(go_on(rules(&[5])), 1);
}

#[test]
fn versions_beyond_the_count_go_unless_a_snapshot_sees_fewer() {
    let explicit = |points: &[u64]| RetentionRules { explicit: true, versions: 2, ..rules(points) };
    assert_eq!(survivors(explicit(&[]), vec![], "a@9#1=x a@8#7=y a@7#3=z"), "a@9#1=x a@8#7=y");
    // A reader at 5 sees timestamps 9 and 7 only.
    assert_eq!(
        survivors(explicit(&[5]), vec![], "a@9#1=x a@8#7=y a@7#3=z a@6#2=w"),
        "a@9#1=x a@8#7=y a@7#3=z"
    );
}

#[test]
fn a_version_the_filter_does_not_want_has_pushed_out_others_all_the_same() {
    struct Nines;
    impl CompactionFilter for Nines {
        fn remove(&self, _: &[u8], timestamp: Timestamp, _: &[u8], _: u64) -> bool {
            timestamp.0 == 9
        }
    }
    let filtered = || RetentionRules {
        explicit: true,
        versions: 1,
        filter: Some(Arc::new(Nines)),
        operator: None,
        ..rules(&[])
    };
    assert_eq!(survivors(filtered(), vec![], "a@9#1=x a@8#7=y a@7#3=z"), "a@9#1=~");
    let below = RetentionRules { below: somewhere_below(), ..filtered() };
    assert_eq!(survivors(below, vec![], "a@9#1=x a@8#7=y a@7#3=z"), "a@9#1=~");
    // It also stays in later compactions, until the limit, a delete or its age removes it, or versions are no
    // longer counted.
    assert_eq!(survivors(filtered(), vec![], "a@9#1=~ a@7#8=z"), "a@9#1=~");
    assert_eq!(survivors(filtered(), vec![], "a@10#8=x a@9#1=~"), "a@10#8=x");
    assert_eq!(survivors(filtered(), vec![], "a@10#8=- a@9#1=~"), "");
    assert_eq!(survivors(filtered(), vec![range_tombstone("a", "b", 8)], "a@9#1=~"), "");
    assert_eq!(survivors(filtered(), vec![], "a@9#8=x a@9#1=~ b@9#3=~ b@9#2=y"), "a@9#8=~ b@9#3=~");
    let old = RetentionRules { ttl_us: 500, ..filtered() };
    assert_eq!(survivors(old, vec![], "a@9#1=~"), "");
    let all = || RetentionRules { versions: 0, ..filtered() };
    assert_eq!(survivors(all(), vec![], "a@9#1=~ a@8#2=x b@9#3=y"), "a@8#2=x");
    let below = RetentionRules { below: somewhere_below(), ..all() };
    assert_eq!(survivors(below, vec![], "b@9#3=y"), "b@9#3=~");
    // It is no base for operands.
    let merging = RetentionRules { operator: Some(Arc::new(Concat)), ..filtered() };
    assert_eq!(survivors(merging, vec![], "a@9#2=+b a@9#1=~"), "a@9#2=-b");
}

/// A version that older ones below depend on stays until these are inputs too.
#[test]
fn what_pushed_versions_out_is_kept_under_a_delete_of_it_alone_while_older_ones_may_lie_below() {
    let counted = || RetentionRules { explicit: true, versions: 1, ..rules(&[]) };
    let alone =
        || RangeTombstone { range: KeyRange::all(), from: Timestamp(9), to: Timestamp(9), seq: SeqNo(5) };
    assert_eq!(survivors(counted(), vec![alone()], "a@9#3=x a@8#2=y a@7#6=z"), "a@7#6=z");
    let below = || RetentionRules { below: somewhere_below(), ..counted() };
    assert_eq!(
        survivors(below(), vec![alone()], "a@9#4=x a@9#3=w a@8#2=y a@7#6=z"),
        "a@9#4=x a@9#3=w a@8#2=y a@7#6=z"
    );
    // A delete that also reaches all lower ones needs no record.
    let all = RangeTombstone { from: Timestamp::ZERO, ..alone() };
    assert_eq!(survivors(below(), vec![all], "a@9#4=x a@8#2=y a@7#6=z"), "a@7#6=z");
}

#[test]
fn operands_that_the_operator_refuses_stay_with_their_base() {
    for why in ["refuse", "panic"] {
        let cells = format!("a#9=+{why} a#8=+y a#7=x b#6=+z b#5=w");
        assert_eq!(survivors(rules(&[]), vec![], &cells), format!("a#9=+{why} a#8=+y a#7=x b#6=wz"));
        let cells = format!("a#9=+{why} a#8=- a#7=x");
        assert_eq!(survivors(rules(&[]), vec![], &cells), format!("a#9=+{why}"));
    }
}

#[test]
fn a_bounded_range_tombstone_does_not_stand_in_for_a_point_tombstone() {
    let explicit = || RetentionRules { explicit: true, below: somewhere_below(), ..rules(&[]) };
    let range =
        |from| RangeTombstone { from: Timestamp(from), to: Timestamp(9), ..range_tombstone("a", "z", 9) };
    assert_eq!(survivors(explicit(), vec![range(5)], "a@6#8=- a@6#5=x a@2#3=y"), "a@6#8=-");
    assert_eq!(survivors(explicit(), vec![range(0)], "a@6#8=- a@6#5=x a@2#3=y"), "");
}

#[test]
fn an_explicit_tombstone_deletes_at_and_below_its_timestamp_what_is_older() {
    let explicit = || RetentionRules { explicit: true, ..rules(&[]) };
    assert_eq!(survivors(explicit(), vec![], "a@9#1=x a@8#5=- a@8#2=y a@7#7=z a@6#3=w"), "a@9#1=x a@7#7=z");
}

#[test]
fn expired_values_leave_a_tombstone_while_something_may_lie_below() {
    let expiring =
        |below: TombstoneElision| RetentionRules { explicit: true, ttl_us: 500, below, ..rules(&[]) };
    assert_eq!(survivors(expiring(TombstoneElision::default()), vec![], "a@900#1=x a@400#2=y"), "a@900#1=x");
    assert_eq!(survivors(expiring(somewhere_below()), vec![], "a@900#1=x a@400#2=y"), "a@900#1=x a@400#2=-");
}

#[test]
fn ranges_below_are_joined_and_searched() {
    let below = TombstoneElision::new(
        [("m", "p"), ("a", "c"), ("b", "d")].map(|(a, b)| KeyRange::new(a, b)).to_vec(),
    );
    let held = ["a", "c", "d", "m", "p"].map(|k| below.holds(k.as_bytes()));
    assert_eq!(held, [true, true, false, true, false]);
    assert!(!below.overlaps(&KeyRange::new("d", "m")));
}
