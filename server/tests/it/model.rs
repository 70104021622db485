//! Random mutations and reads against a map, with regions that are split and joined, and restarts, in
//! between.

use crate::support::*;
use siltstone::Rng;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const FAMILIES: [&str; 2] = ["f", "g"];
const CASES: u64 = 6;
const CALLS: u64 = 250;

/// Cells by row, family, qualifier, newest first.
type Model = BTreeMap<(String, &'static str, String), BTreeMap<Reverse<i64>, String>>;

fn row(rng: &mut Rng) -> String {
    format!("r{:02}", rng.range(0..30))
}

fn shown(model: &Model, keys: impl Fn(&str) -> bool, limit: usize, reversed: bool) -> String {
    let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((row, family, qualifier), versions) in model.iter().filter(|((row, _, _), _)| keys(row)) {
        for (Reverse(at), value) in versions {
            rows.entry(row).or_default().push(format!("{family}:{qualifier}@{at}={value}"));
        }
    }
    let mut rows: Vec<_> =
        rows.into_iter().map(|(row, cells)| format!("{row} {}", cells.join(" "))).collect();
    if reversed {
        rows.reverse();
    }
    rows.truncate(limit);
    rows.join("\n")
}

/// A mutation, done to the model, too.
fn change(rng: &mut Rng, model: &mut Model, row: &str) -> Change {
    let family = *rng.pick(&FAMILIES);
    let qualifier = format!("q{}", rng.range(0..3));
    let key = (row.to_string(), family, qualifier.clone());
    let time = |rng: &mut Rng| rng.range(1..8) as i64 * 1_000;
    match rng.range(0..12) {
        0..8 => {
            let (at, value) = (time(rng), format!("v{}", rng.range(0..1_000)));
            model.entry(key).or_default().insert(Reverse(at), value.clone());
            set(family, &qualifier, at, value)
        }
        8 => {
            let (from, to) = (time(rng), time(rng));
            let (from, to) = (from.min(to), from.max(to) + 1_000);
            if let Some(versions) = model.get_mut(&key) {
                versions.retain(|Reverse(at), _| *at < from || *at >= to);
            }
            delete_column(family, &qualifier, Some((from, to)))
        }
        9 => {
            model.remove(&key);
            delete_column(family, &qualifier, None)
        }
        10 => {
            model.retain(|(r, f, _), _| r != row || *f != family);
            delete_family(family)
        }
        _ => {
            model.retain(|(r, _, _), _| r != row);
            delete_row()
        }
    }
}

async fn case(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut t = Fixture::new().await;
    t.table(&FAMILIES).await;
    let mut model = Model::new();
    for call in 0..CALLS {
        let context = format!("seed {seed}, call {call}");
        match rng.range(0..20) {
            0..11 => {
                let row = row(&mut rng);
                let changes = (0..rng.range(1..5)).map(|_| change(&mut rng, &mut model, &row)).collect();
                t.mutate(&row, changes).await.unwrap();
            }
            11..15 => {
                let (a, b) = (row(&mut rng), row(&mut rng));
                let (from, to) = (a.clone().min(b.clone()), a.max(b));
                let range = data_v2::RowRange {
                    start_key: Some(data_v2::row_range::StartKey::StartKeyClosed(from.clone().into())),
                    end_key: Some(data_v2::row_range::EndKey::EndKeyOpen(to.clone().into())),
                };
                let single = row(&mut rng);
                let set = RowSet {
                    row_keys: vec![single.clone().into()],
                    row_ranges: if from < to { vec![range] } else { vec![] },
                };
                let (limit, reversed) = (rng.range(0..12), rng.one_in(3));
                let request = ReadRowsRequest {
                    rows: Some(set),
                    rows_limit: limit as i64,
                    reversed,
                    ..Default::default()
                };
                let found = t.read(request).await.unwrap();
                let named = |row: &str| row == single || (row >= &from[..] && row < &to[..]);
                let limit = if limit == 0 { usize::MAX } else { limit as usize };
                assert_eq!(found, shown(&model, named, limit, reversed), "{context}");
            }
            15 => assert_eq!(t.read_all().await, shown(&model, |_| true, usize::MAX, false), "{context}"),
            16 | 17 => {
                let row = row(&mut rng);
                t.server.split(TABLE, row.as_bytes()).await.unwrap();
            }
            18 => {
                let starts = t.server.regions(TABLE).unwrap();
                if starts.len() > 1 {
                    let at = rng.pick(&starts[1..]).clone();
                    t.server.join(TABLE, &at).await.unwrap();
                }
            }
            _ if rng.one_in(5) => t = t.again().await,
            _ => {}
        }
    }
    assert_eq!(t.read_all().await, shown(&model, |_| true, usize::MAX, false), "seed {seed}, at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_calls_answer_as_a_map_does() {
    let fresh = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let first = fresh.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seeds from {first}; again: SEED={first} cargo test -p siltstone-server random_calls");
    for seed in first..first + CASES {
        case(seed).await;
    }
}
