//! What holds for every shape: plans are valid, steps keep the shape sound, debt never rises, and `validate`
//! accepts nothing that would show a reader an old version first. The last is checked against a model in
//! which every SSTable is a list of (key, version).

use super::*;
use crate::shape::Run;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;
use std::collections::BTreeMap;

/// The step that ends a compaction of SSTables without any redundancy: outputs of the inputs' total size.
pub(super) fn concatenate(shape: &Shape, plan: &CompactionPlan, next: &mut u32) -> Step {
    if plan.kind == CompactionKind::TrivialMove {
        return Step::default();
    }
    let inputs: Vec<_> = plan.live_inputs(shape).into_iter().map(|(_, t)| t.clone()).collect();
    let (range, bytes) = (cover(&inputs).expect("inputs"), inputs.iter().map(|t| t.live_bytes()).sum());
    let mut table = TableInfo::over(after(next), range, bytes);
    table.cells = inputs.iter().map(|t| t.cells).sum();
    table.distinct = table.cells;
    Step { outputs: vec![Arc::new(table)], ..Step::default() }
}

fn after(next: &mut u32) -> u32 {
    *next += 1;
    *next
}

fn key(n: u8) -> Vec<u8> {
    vec![n]
}

type Cells = BTreeMap<TableId, Vec<(u8, u32)>>;

/// A shape and its cells, newest run first: versions fall with age.
fn build(runs: &[(usize, Vec<(u8, u8)>)]) -> (Shape, Cells) {
    let (mut shape, mut cells, mut next) = (Shape::default(), Cells::new(), 0);
    let mut sorted: Vec<_> = runs.to_vec();
    sorted.sort_by_key(|(level, _)| *level);
    for (age, (level, spans)) in sorted.iter().enumerate() {
        let mut tables = Vec::new();
        let mut from = 0u8;
        for (gap, len) in spans {
            let start = from.saturating_add(*gap);
            let end = start.saturating_add(*len);
            if end > 40 {
                break;
            }
            from = end;
            let range = KeyRange::new(key(start), key(end));
            let mut table = TableInfo::over(after(&mut next), range, 1000 * u64::from(*len));
            table.tombstones = u64::from(*gap);
            (table.cells, table.distinct) = (u64::from(*len), u64::from(*len));
            let held = (start..end).filter(|k| k % 3 != gap % 3 || *k == start || *k == end - 1);
            cells.insert(table.id, held.map(|k| (k, 1000 - age as u32)).collect());
            tables.push(Arc::new(table));
        }
        if tables.is_empty() {
            continue;
        }
        while shape.levels.len() <= *level {
            shape.levels.push(Default::default());
        }
        shape.levels[*level].runs.push(Run::new(1000 - age as u64, tables));
    }
    (shape, cells)
}

/// Runs the compaction on the model up to a key: the newest version of every key, one output SSTable.
fn run(
    shape: &mut Shape,
    cells: &mut Cells,
    plan: &CompactionPlan,
    upto: Option<u8>,
    next: &mut u32,
) -> Result<(), String> {
    let mut merged: BTreeMap<u8, u32> = BTreeMap::new();
    let mut bytes = 0;
    let mut below = Vec::new();
    for (_, table) in plan.live_inputs(shape) {
        let live = table.live_range();
        let moved = |k: u8| live.contains(&key(k)) && upto.is_none_or(|upto| k < upto);
        for (k, version) in cells[&table.id].iter().filter(|(k, _)| moved(*k)) {
            let best = merged.entry(*k).or_default();
            *best = (*best).max(*version);
        }
        // Bytes are spread evenly over the SSTable's range; the output has as many as the inputs lose.
        let (start, end) =
            (u64::from(table.range.start[0]), u64::from(table.range.end.as_ref().expect("an end")[0]));
        let below_key =
            |k: u8| table.bytes * u64::from(k).clamp(start, end).saturating_sub(start) / (end - start);
        let before = table.bytes - table.live_bytes();
        let after = upto.map_or(table.bytes, below_key).max(before);
        bytes += after - before;
        below.push((table.id, after));
    }
    let mut step = Step { upto: upto.map(key), bytes_below: below, ..Step::default() };
    if let (CompactionKind::Merge, Some((first, _)), Some((last, _))) =
        (plan.kind, merged.first_key_value(), merged.last_key_value())
    {
        let mut table = TableInfo::over(after(next), KeyRange::new(key(*first), key(last + 1)), bytes);
        (table.cells, table.distinct) = (merged.len() as u64, merged.len() as u64);
        cells.insert(table.id, merged.into_iter().collect());
        step.outputs.push(Arc::new(table));
    }
    apply(shape, plan, &step)
}

/// Runs one of the compactions that are running, up to a key if that lies within what is left of it, else to
/// its end.
fn run_one(
    shape: &mut Shape,
    cells: &mut Cells,
    running: &mut Vec<RunningCompaction>,
    (choice, upto): (prop::sample::Index, u8),
    next: &mut u32,
) -> Result<(), String> {
    let at = choice.index(running.len());
    let left = running[at].range_left();
    let is_within = left.start < key(upto) && left.ends_after(&key(upto));
    let upto = (running[at].plan.kind == CompactionKind::Merge && is_within).then_some(upto);
    let compaction = running[at].plan.clone();
    run(shape, cells, &compaction, upto, next)?;
    match upto {
        Some(upto) => running[at].clip = Some(key(upto)),
        None => drop(running.remove(at)),
    }
    Ok(())
}

/// What a reader sees: the version of every key from the newest table that has it.
fn read(shape: &Shape, cells: &Cells) -> BTreeMap<u8, u32> {
    let mut seen = BTreeMap::new();
    for (_, _, table) in shape.tables() {
        for (k, version) in cells[&table.id].iter().filter(|(k, _)| table.live_range().contains(&key(*k))) {
            seen.entry(*k).or_insert(*version);
        }
    }
    seen
}

/// Invariant I3: versions of a key fall from source to source.
fn in_order(shape: &Shape, cells: &Cells) -> bool {
    let mut last: BTreeMap<u8, u32> = BTreeMap::new();
    shape.tables().all(|(_, _, table)| {
        let live = table.live_range();
        cells[&table.id].iter().filter(|(k, _)| live.contains(&key(*k))).all(|(k, version)| {
            let before = last.insert(*k, *version);
            before.is_none_or(|before| before > *version)
        })
    })
}

fn shapes() -> impl proptest::strategy::Strategy<Value = (Shape, Cells)> {
    let spans = prop::collection::vec((0u8..6, 1u8..9), 1..6);
    prop::collection::vec((0usize..5, spans), 1..9).prop_map(|runs| build(&runs))
}

/// Settings for little data, beside those of `METHODS`.
const SETTINGS: [&str; 6] = [
    "leveled{l0_runs_trigger=2, multiplier=2, levels=5, base_bytes=4096, sstable_bytes=4096, tombstone_share=0.4}",
    "auto{runs_max=4, sstable_bytes=4096}",
    "auto{sstable_bytes=4096}",
    "size_tiered{runs=3, sstable_bytes=4096}",
    "rangemerge{sstable_bytes=8192, deltas_max=2}",
    "exploring{min_runs=2, max_runs=4, blocking_runs=3, sstable_bytes=4096}",
];

fn strategies() -> impl proptest::strategy::Strategy<Value = StrategyOptions> {
    let parsed = |text: &str| text.parse::<StrategyOptions>().expect("a strategy");
    let methods = METHODS.iter().map(|text| parsed(text).with_sstable_bytes(4096));
    prop::sample::select(methods.chain(SETTINGS.iter().map(|text| parsed(text))).collect::<Vec<_>>())
}

fn facts<'a>(running: &'a [RunningCompaction], compactions_max: usize) -> Facts<'a> {
    // SSTables of the beginning have seek misses.
    let looks = &|table: TableId| if table.part < 100_000 { u64::from(table.part % 4) * 20 } else { 0 };
    Facts { running, flush_bytes: 2000, compactions_max, unique: &|_| 0.1, looks, ..Facts::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Compactions run side by side in random steps; all the while the shape is sound, readers see the same,
    /// and debt falls. When nothing is planned any more, there is no debt.
    #[test]
    fn a_strategy_run_to_its_end_keeps_order_and_never_raises_debt(
        (mut shape, mut cells) in shapes(), options in strategies(),
        choices in prop::collection::vec((any::<prop::sample::Index>(), 0u8..44), 200),
        unique in prop::sample::select(vec![0.1, 0.5, 0.9, 1.0]),
        unread in prop::sample::select(vec![None, Some(1000)]),
    ) {
        // Little redundancy makes L0 wait, even where nobody reads.
        let unique: Unique<'_> = &move |_| unique;
        let (strategy, before) = (options.strategy(), read(&shape, &cells));
        let mut state = PlanState { unread: unread.unwrap_or(0), ..PlanState::default() };
        let (mut running, mut next) = (Vec::<RunningCompaction>::new(), 100_000);
        let looks = if unread.is_some() { &|_| 0 } else { facts(&[], 3).looks };
        let mut debt = u64::MAX;
        for (choice, upto) in choices {
            let plan = strategy.plan(&shape, &Facts { unique, looks, ..facts(&running, 3) }, &state);
            state = plan.state;
            for compaction in plan.compactions {
                prop_assert_eq!(validate(&shape, &compaction, &running), Ok(()), "{} {:?}", options, compaction);
                running.push(RunningCompaction { plan: compaction, clip: None });
            }
            if running.is_empty() {
                break;
            }
            prop_assert_eq!(run_one(&mut shape, &mut cells, &mut running, (choice, upto), &mut next), Ok(()));
            prop_assert_eq!(shape.check(), Ok(()));
            prop_assert!(in_order(&shape, &cells), "{}", shape);
            prop_assert_eq!(&read(&shape, &cells), &before);
            let now = strategy.debt(&shape, &Facts { unique, looks, ..facts(&running, 3) }, &state);
            prop_assert!(now <= debt, "debt of {} rose from {} to {} at\n{}", options, debt, now, shape);
            debt = now;
        }
        if running.is_empty() {
            prop_assert_eq!(strategy.debt(&shape, &Facts { unique, looks, ..facts(&[], 3) }, &state), 0);
        }
    }

    /// The strategy changes while compactions and flushes run, again and again; each one goes on from the
    /// shape it finds.
    #[test]
    fn strategies_take_over_from_each_other_in_the_middle_of_compactions(
        (mut shape, mut cells) in shapes(), first in strategies(),
        choices in prop::collection::vec((0u8..8, strategies(), any::<prop::sample::Index>(), 0u8..44), 80),
    ) {
        let (mut options, mut before) = (first, read(&shape, &cells));
        let (mut state, mut running, mut next) = (PlanState::default(), Vec::<RunningCompaction>::new(), 100_000);
        let mut flush = 2000u64;
        for (what, other, choice, upto) in choices {
            match what {
                0 => options = other,
                1 => {
                    flush += 1;
                    let range = KeyRange::new(key(upto / 2), key(upto / 2 + 10));
                    let table = TableInfo::over(after(&mut next), range, 1000);
                    let held = (upto / 2..upto / 2 + 10).map(|k| (k, flush as u32));
                    before.extend(held.clone());
                    cells.insert(table.id, held.collect());
                    prop_assert_eq!(shape.add_flush(Run::new(flush, vec![Arc::new(table)])), Ok(()));
                }
                // A compaction is given up now and then: its finished steps stay.
                2 if !running.is_empty() => drop(running.remove(choice.index(running.len()))),
                _ => {}
            }
            let plan = options.strategy().plan(&shape, &facts(&running, 3), &state);
            state = plan.state;
            for compaction in plan.compactions {
                prop_assert_eq!(validate(&shape, &compaction, &running), Ok(()), "{} {:?}", options, compaction);
                running.push(RunningCompaction { plan: compaction, clip: None });
            }
            if !running.is_empty() {
                prop_assert_eq!(run_one(&mut shape, &mut cells, &mut running, (choice, upto), &mut next), Ok(()));
            }
            prop_assert_eq!(shape.check(), Ok(()));
            prop_assert!(in_order(&shape, &cells), "{}", shape);
            prop_assert_eq!(&read(&shape, &cells), &before);
        }
        for compaction in std::mem::take(&mut running) {
            prop_assert_eq!(run(&mut shape, &mut cells, &compaction.plan, None, &mut next), Ok(()));
        }
        for _ in 0..200 {
            let plan = options.strategy().plan(&shape, &facts(&[], 3), &state);
            state = plan.state;
            let Some(compaction) = plan.compactions.into_iter().next() else {
                prop_assert_eq!(options.strategy().debt(&shape, &facts(&[], 3), &state), 0, "{} at\n{}", options, shape);
                break;
            };
            prop_assert_eq!(run(&mut shape, &mut cells, &compaction, None, &mut next), Ok(()));
            prop_assert!(in_order(&shape, &cells), "{}", shape);
        }
        prop_assert_eq!(read(&shape, &cells), before);
        let plan = options.strategy().plan(&shape, &facts(&[], 3), &state);
        prop_assert!(plan.compactions.is_empty(), "{} does not come to an end at\n{}", options, shape);
    }

    /// A major compaction of any strategy leaves one run.
    #[test]
    fn a_major_compaction_leaves_one_run((mut shape, mut cells) in shapes(), options in strategies()) {
        let (strategy, before) = (options.strategy(), read(&shape, &cells));
        if let Some(compaction) = major::major(&shape, &KeyRange::all(), ManualRequest::ALL, strategy.last_level(&shape), strategy.sstable_bytes()) {
            prop_assert_eq!(validate(&shape, &compaction, &[]), Ok(()));
            prop_assert_eq!(run(&mut shape, &mut cells, &compaction, None, &mut 100_000), Ok(()));
        }
        prop_assert_eq!(shape.runs().count(), usize::from(!before.is_empty()));
        prop_assert!(strategy.plan(&shape, &facts(&[], 3), &PlanState::default()).compactions.iter().all(|m| m.kind == CompactionKind::TrivialMove || matches!(options, StrategyOptions::Leveled(_) | StrategyOptions::Rangemerge(_))));
        prop_assert_eq!(read(&shape, &cells), before);
    }

    /// Any compaction at all: what `validate` accepts does no harm; what does harm it refuses.
    #[test]
    fn what_validate_accepts_keeps_every_reader_right(
        (mut shape, mut cells) in shapes(),
        picks in prop::collection::vec(any::<bool>(), 60),
        level in 0usize..6, run_id in 990u64..1002, moves in any::<bool>(), upto in prop::option::of(0u8..44),
    ) {
        let mut picks = picks.into_iter().cycle();
        let mut inputs = Vec::new();
        let mut range: Option<KeyRange> = None;
        for (level, run) in shape.runs() {
            let tables: Vec<_> = run.tables().iter().filter(|_| picks.next() == Some(true)).collect();
            if let Some(reach) = cover(tables.iter().copied()) {
                range = Some(range.map_or(reach.clone(), |range| range.cover(&reach)));
                inputs.push(InputRun { level, run: run.id, tables: ids(&tables) });
            }
        }
        let kind = if moves { CompactionKind::TrivialMove } else { CompactionKind::Merge };
        let plan = CompactionPlan {
            inputs, output: Target { level, run: run_id }, range: range.unwrap_or_default(), kind,
            bytes: 0, sstable_bytes: 1, score: 1.0, reason: String::new(),
        };
        let before = read(&shape, &cells);
        if validate(&shape, &plan, &[]).is_ok() {
            let upto = upto.filter(|upto| !moves && plan.range.start < key(*upto) && plan.range.ends_after(&key(*upto)));
            prop_assert_eq!(run(&mut shape, &mut cells, &plan, upto, &mut 100_000), Ok(()));
            prop_assert_eq!(shape.check(), Ok(()));
            prop_assert!(in_order(&shape, &cells), "{:?}\n{}", plan, shape);
            prop_assert_eq!(read(&shape, &cells), before);
        }
    }

    /// A plan that lost an input, or meets a compaction of the same SSTables, is refused.
    #[test]
    fn a_plan_that_lost_a_table_or_meets_itself_is_refused(
        (shape, _) in shapes(), options in strategies(), at in any::<prop::sample::Index>(),
    ) {
        let plan = options.strategy().plan(&shape, &facts(&[], 3), &PlanState::default());
        for compaction in plan.compactions {
            let twin = [RunningCompaction { plan: compaction.clone(), clip: None }];
            prop_assert!(validate(&shape, &compaction, &twin).is_err());
            if compaction.kind == CompactionKind::Merge && compaction.inputs.len() > 1 {
                let mut less = compaction.clone();
                let target = less.inputs.last_mut().expect("inputs");
                let joins_target = (target.level, target.run) == (compaction.output.level, compaction.output.run);
                let lost = at.index(target.tables.len());
                target.tables.remove(lost);
                less.inputs.retain(|input| !input.tables.is_empty());
                prop_assert!(!joins_target || validate(&shape, &less, &[]).is_err());
            }
            let mut gone = compaction.clone();
            gone.inputs[0].tables.push(TableId { epoch: 9, job: 9, part: 9, ..TableId::default() });
            prop_assert!(validate(&shape, &gone, &[]).is_err());
        }
    }

    /// A little more data, a little more debt.
    #[test]
    fn debt_has_no_jump((shape, _) in shapes(), options in strategies(), grow in 0u64..50_000) {
        let strategy = options.strategy();
        let with = |bytes: u64| {
            let mut shape = shape.clone();
            let table = TableInfo::over(1_000, KeyRange::all(), bytes);
            shape.add_flush(Run::new(5000, vec![Arc::new(table)])).expect("a flush");
            strategy.debt(&shape, &facts(&[], 3), &PlanState::default())
        };
        let (a, b) = (with(grow + 1), with(grow + 2));
        // Under `remerge` a byte of L0 counts as often as the data is larger than a flush.
        let most = 50 + shape.live_bytes() / 1000;
        prop_assert!(a.abs_diff(b) <= most, "one byte changes debt from {} to {}", a, b);
    }
}
