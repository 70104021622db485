//! The HTTP side: health, metrics, and the page that shows what the server does.

use crate::services::browsers::{self, PAGE};
use crate::shared::Shared;
use crate::status::without_paths;
use crate::tables::layout::{Layout, Region};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use siltstone::FamilyStatistics;
use siltstone_compactor::{Compactors, ServerSeen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Regions of a table that the page shows.
const SHOWN_REGIONS: usize = 100;

/// The routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let of_all_tables = Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/metrics", get(metrics))
        .route("/api/state", get(state))
        .route_layer(middleware::from_fn_with_state(shared.clone(), may_monitor));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(of_all_tables)
        .layer(middleware::from_fn_with_state(shared.clone(), browsers::guard))
        .with_state(shared)
}

/// Lets callers through that may see the figures of all tables.
async fn may_monitor(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    match shared.access.who(header) {
        Ok(who) if who.may_monitor() => next.run(request).await,
        Ok(_) => (StatusCode::FORBIDDEN, "the token has no right to monitor\n").into_response(),
        Err(e) => {
            let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"siltstone: the password is a token\"")];
            (StatusCode::UNAUTHORIZED, ask, format!("{}\n", e.message())).into_response()
        }
    }
}

/// Whether it takes calls; else why not.
async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    if shared.stopping.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n".into());
    }
    if let Err(error) = shared.tables.db.check_lease() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", without_paths(&error.to_string())));
    }
    match shared.tables.db.statistics().background_error {
        // Callers must not learn where files lie.
        Some(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", without_paths(&error))),
        None => (StatusCode::OK, format!("ready\n{}", of_files(&shared))),
    }
}

/// The problems of files of secrets, a line each, by the names of their settings.
fn of_files(shared: &Shared) -> String {
    let stale = shared.stale_files().into_iter();
    let stale = stale.map(|what| format!("{what}: not usable as it is now; what was read before goes on\n"));
    let wide = shared.wide_files.lock();
    stale.chain(wide.iter().map(|what| format!("{what}\n"))).collect()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let render = move || shared.access.calls.render(|| record(&shared));
    let text = tokio::task::spawn_blocking(render).await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text.unwrap_or_default())
}

/// Records what the database counts, and what the server holds.
#[expect(clippy::cast_precision_loss, reason = "counts")]
fn record(shared: &Shared) {
    shared.tables.db.record_own_metrics();
    for (name, table) in shared.tables.all().iter() {
        for family in &table.now().families {
            let statistics: FamilyStatistics = family.regions.iter().map(|r| r.store.statistics()).sum();
            statistics.record(&[("table", name.clone()), ("family", family.name.to_string())]);
        }
    }
    metrics::gauge!("siltstone_connections").set(shared.connections.taken() as f64);
    metrics::gauge!("siltstone_files_stale").set(f64::from(u8::from(!shared.stale_files().is_empty())));
    let (deleted, bytes) = shared.tables.kept.size();
    metrics::gauge!("siltstone_deleted_tables").set(deleted as f64);
    metrics::gauge!("siltstone_deleted_table_bytes").set(bytes as f64);
    metrics::gauge!("siltstone_call_memory_bytes").set(shared.access.budgets.used() as f64);
}

/// The contents of the page.
async fn state(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let text = tokio::task::spawn_blocking(move || picture(&shared).to_string()).await;
    ([(header::CONTENT_TYPE, "application/json")], text.unwrap_or_default())
}

pub(crate) fn picture(shared: &Shared) -> Value {
    let db = &shared.tables.db;
    let tables: Vec<Value> =
        shared.tables.all().iter().map(|(name, table)| drawn(name, &table.now())).collect();
    // A store's name says nothing to people.
    let mut names = BTreeMap::new();
    for (name, table) in shared.tables.all().iter() {
        let id = name.rsplit('/').next().unwrap_or(name);
        for family in &table.now().families {
            for Region { store, .. } in &family.regions {
                names.insert(store.name().to_string(), format!("{id} {}", family.name));
            }
        }
    }
    let events: Vec<Value> = db
        .events()
        .iter()
        .rev()
        .take(50)
        .map(|event| {
            let mut shown = serde_json::to_value(event).unwrap_or_default();
            if let Some(name) = names.get(&*event.family) {
                shown["family"] = Value::from(name.clone());
            }
            shown
        })
        .collect();
    let (calls, bounds) = shared.access.calls.buckets();
    let statistics = db.statistics();
    json!({
        "tables": tables,
        "statistics": statistics,
        "wal": db.wal_files(),
        "events": events,
        "compactors": shared.compactors.as_ref().map(|compactors| seen(compactors)),
        "manager": shared.compactors.as_ref().and_then(|compactors| compactors.manager()).map(|manager| {
            json!({ "address": manager.address, "answers": manager.answers })
        }),
        "calls": calls,
        "bounds": bounds,
    })
}

/// The compaction servers as they were a second ago.
fn seen(compactors: &Compactors) -> Vec<Value> {
    let one = |server: ServerSeen| {
        let state = server.state.as_ref();
        json!({
            "address": server.address,
            "answers": state.is_some(),
            "given": server.given,
            "slots": state.map(|state| state.slots),
            "running": state.map(|state| state.running),
            "queued": state.map(|state| state.queued),
            "done": state.map(|state| state.done),
            "failed": state.map(|state| state.failed),
            "bytes_per_second": state.map(|state| state.bytes_per_second),
            "cpu_percent": state.map(|state| state.cpu_percent),
            "memory_bytes": state.map(|state| state.memory_bytes),
            "kept_bytes": state.map(|state| state.kept_bytes),
            "fetched_bytes": state.map(|state| state.fetched_bytes),
        })
    };
    compactors.servers().into_iter().map(one).collect()
}

/// One table. Of its regions the busiest, and after them the largest, are shown.
fn drawn(name: &str, layout: &Layout) -> Value {
    let mut starts: Vec<(f64, u64, Arc<[u8]>)> = Vec::new();
    let mut of_families = Vec::new();
    for family in &layout.families {
        let mut sum = FamilyStatistics::default();
        for region in &family.regions {
            let statistics = region.store.statistics();
            let bytes = statistics.sstable_bytes + statistics.memory_bytes;
            starts.push((region.traffic.rate(), bytes, region.start.clone()));
            sum += statistics;
        }
        of_families.push((family, sum));
    }
    starts.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let mut shown = BTreeSet::new();
    for (_, _, start) in &starts {
        if shown.len() < SHOWN_REGIONS {
            shown.insert(start);
        }
    }
    let families = of_families.into_iter().map(|(family, sum)| {
        let regions = family.regions.iter().filter(|region| shown.contains(&region.start));
        json!({
            "name": &*family.name,
            "gc": family.gc,
            "aggregate": family.aggregate,
            "count": family.regions.len(),
            "statistics": sum,
            "regions": regions.map(region).collect::<Vec<Value>>(),
        })
    });
    json!({ "name": name, "families": families.collect::<Vec<Value>>() })
}

/// One store: its levels of runs of SSTables, and its memory.
fn region(region: &Region) -> Value {
    let Region { start, store, traffic } = region;
    let shape = store.shape();
    let levels: Vec<Value> = shape
        .levels
        .iter()
        .map(|level| {
            let run = |run: &siltstone::shape::Run| {
                let of = |table: &Arc<siltstone::shape::TableInfo>| {
                    json!({ "bytes": table.bytes, "live": table.live_bytes(), "clipped": table.clip.is_some() })
                };
                run.tables().iter().map(of).collect::<Vec<_>>()
            };
            Value::from(level.runs.iter().map(run).map(Value::from).collect::<Vec<_>>())
        })
        .collect();
    let start = crate::cells::row_key::row_len(start)
        .map(|len| crate::cells::row_key::row_of(&start[..len]).escape_ascii().to_string());
    json!({
        "store": store.name(),
        "start": start,
        "rate": traffic.rate(),
        "levels": levels,
        "memtables": store.memtables(),
        "statistics": store.statistics(),
    })
}
