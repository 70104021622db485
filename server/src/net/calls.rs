//! Calls under way: how many, how long they take, how they end.

use crate::config::Config;
use crate::net::blocking::blocking;
use crate::net::budget::{Budget, Caller, RequestLease};
use crate::net::counts::{Counts, Kind};
use crate::status::overloaded;
use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::{Code, Request, Status};

/// The kinds of calls that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    ReadRows,
    SampleRowKeys,
    MutateRow,
    MutateRows,
    CheckAndMutateRow,
    ReadModifyWriteRow,
    ReadChangeStream,
    Admin,
}

/// Questions for the health under way, and watches of it, at a time; and how many of them on one connection.
const HEALTH_MAX: usize = 1_000;
const HEALTH_OF_CONNECTION: usize = 64;
const WATCHES_OF_CONNECTION: usize = 16;

/// How many calls may be under way.
#[derive(Clone, Copy, Debug)]
struct Limits {
    calls: usize,
    changes: usize,
}

impl Limits {
    /// The most of a kind: of all callers, of one, and of one connection.
    fn of(self, kind: Kind) -> (usize, usize, usize) {
        let half = |most: usize| (most, most.div_ceil(2), most.div_ceil(2));
        match kind {
            Kind::Call => half(self.calls),
            Kind::Changes => half(self.changes),
            Kind::Health => (HEALTH_MAX, HEALTH_MAX / 2, HEALTH_OF_CONNECTION),
            Kind::Watch => (HEALTH_MAX, HEALTH_MAX / 2, WATCHES_OF_CONNECTION),
        }
    }
}

/// A call among those under way: until it is dropped.
pub(crate) struct Slot {
    kind: Kind,
    all: Arc<Inner>,
    caller: Arc<Caller>,
    connection: Arc<Counts>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.under_way.leave(self.kind);
        self.caller.calls.leave(self.kind);
        self.connection.leave(self.kind);
    }
}

const CALLS: [(Call, &str); 8] = [
    (Call::ReadRows, "ReadRows"),
    (Call::SampleRowKeys, "SampleRowKeys"),
    (Call::MutateRow, "MutateRow"),
    (Call::MutateRows, "MutateRows"),
    (Call::CheckAndMutateRow, "CheckAndMutateRow"),
    (Call::ReadModifyWriteRow, "ReadModifyWriteRow"),
    (Call::ReadChangeStream, "ReadChangeStream"),
    (Call::Admin, "Admin"),
];

/// Bounds of the histogram of latencies, in seconds.
const BUCKETS: [f64; 16] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Counts and times of one kind of calls.
struct Times {
    took: Histogram,
    /// Calls by the first bound that they do not pass, for the page; at the end those that pass all.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    failed: Counter,
    /// Calls that as a rule are answered where they came in, and were gone on with elsewhere.
    moved: Counter,
}

/// Counts and times of all kinds.
pub(crate) struct CallMetrics(Arc<Inner>);

struct Inner {
    recorder: PrometheusRecorder,
    kinds: [Times; CALLS.len()],
    under_way: Counts,
    limits: Limits,
    turned_away: Counter,
}

impl CallMetrics {
    /// # Errors
    /// None that is known: the recorder's.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).map_err(|e| e.to_string())?;
        let recorder = builder.build_recorder();
        let metadata = Metadata::new(module_path!(), Level::INFO, None);
        let key =
            |name: &'static str, label: &'static str| Key::from_parts(name, vec![Label::new("call", label)]);
        let kinds = CALLS.map(|(_, label)| Times {
            took: recorder.register_histogram(&key("siltstone_call_seconds", label), &metadata),
            buckets: Default::default(),
            failed: recorder.register_counter(&key("siltstone_calls_failed_total", label), &metadata),
            moved: recorder.register_counter(&key("siltstone_calls_moved_total", label), &metadata),
        });
        let turned_away =
            recorder.register_counter(&Key::from_name("siltstone_calls_turned_away_total"), &metadata);
        let limits = Limits { calls: config.calls_max, changes: config.change_streams_max };
        Ok(Self(Arc::new(Inner { recorder, kinds, under_way: Counts::default(), limits, turned_away })))
    }

    /// Lets a stream in whose headers have come, where not too many are there: of all, of its caller, of its
    /// connection.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there are too many.
    pub(crate) fn enter(
        &self,
        kind: Kind,
        caller: &Arc<Caller>,
        connection: &Arc<Counts>,
    ) -> Result<Arc<Slot>, Status> {
        let (of_all, of_caller, of_connection) = self.0.limits.of(kind);
        let levels = [
            (&self.0.under_way, of_all, "in all"),
            (&caller.calls, of_caller, "of one caller"),
            (&**connection, of_connection, "on one connection"),
        ];
        for (at, (counts, most, whose)) in levels.iter().enumerate() {
            if !counts.enter(kind, *most) {
                levels[..at].iter().for_each(|(counts, ..)| counts.leave(kind));
                self.0.turned_away.increment(1);
                let what = match kind {
                    Kind::Call => "calls",
                    Kind::Changes => "streams of changes",
                    Kind::Health | Kind::Watch => "calls for the health",
                };
                let message = format!("{most} {what} {whose} are under way");
                return Err(overloaded(Code::ResourceExhausted, &message));
            }
        }
        let (all, caller, connection) = (self.0.clone(), caller.clone(), connection.clone());
        Ok(Arc::new(Slot { kind, all, caller, connection }))
    }

    /// Begins the work of a call that was let in.
    pub(crate) fn begin(&self, call: Call, wait: Option<Duration>, peer: Peer) -> Guard {
        let began = Instant::now();
        let until = wait.and_then(|wait| began.checked_add(wait));
        Guard(Arc::new(Entered { metrics: self.0.clone(), call, began, until, _peer: peer }))
    }

    /// How many calls of each kind took how long; and the bounds in seconds.
    pub(crate) fn buckets(&self) -> (Value, &'static [f64]) {
        let of =
            |kind: &Times| kind.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let all = CALLS.iter().zip(&self.0.kinds);
        let all = all.map(|((_, label), kind)| (label.to_string(), json!({ "buckets": of(kind) })));
        (Value::Object(all.collect()), &BUCKETS)
    }

    /// Counts and times as text for Prometheus, with what `record` records besides.
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    pub(crate) fn render(&self, record: impl FnOnce()) -> String {
        metrics::with_local_recorder(&self.0.recorder, || {
            record();
            let under_way = self.0.under_way.of(Kind::Call) + self.0.under_way.of(Kind::Changes);
            metrics::gauge!("siltstone_calls_under_way").set(under_way as f64);
            metrics::gauge!("siltstone_change_streams").set(self.0.under_way.of(Kind::Changes) as f64);
        });
        self.0.recorder.handle().render()
    }
}

/// The caller of a call, for the services.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) answers: Arc<Budget>,
    /// Its place among the running calls, and the memory of its request, as long as it is worked on.
    pub(crate) _held: (Arc<Slot>, Arc<RequestLease>),
}

/// What is known of the caller of a request, which the door has let in.
pub(crate) fn peer_of<T>(request: &Request<T>) -> Result<Peer, Status> {
    request.extensions().get::<Peer>().cloned().ok_or_else(|| Status::internal("not let in"))
}

/// A running call: until all copies are dropped. The work has one, as it may go on when nobody waits for it
/// any more.
#[derive(Clone)]
pub(crate) struct Guard(Arc<Entered>);

struct Entered {
    metrics: Arc<Inner>,
    call: Call,
    began: Instant,
    /// When its client stops waiting.
    until: Option<Instant>,
    /// Its place among the calls under way, and the memory of its request.
    _peer: Peer,
}

impl Guard {
    /// # Errors
    /// `DEADLINE_EXCEEDED` where the client no longer waits.
    pub(crate) fn check(&self) -> Result<(), Status> {
        match self.0.until.is_some_and(|until| Instant::now() >= until) {
            true => Err(Status::deadline_exceeded("the call's time is over")),
            false => Ok(()),
        }
    }

    /// Counts that it takes too much to be answered where it came in.
    pub(crate) fn count_moved(&self) {
        self.0.metrics.kinds[self.0.call as usize].moved.increment(1);
    }

    /// Does the call's work, and counts its time and end: at once where it does not wait as a rule, as going
    /// to another thread and back costs more than the work; else where it may wait for the disk.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        at_once: bool,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let held = self.clone();
        let work = move || {
            // It may have waited for a thread.
            held.check()?;
            tracing::debug_span!("call", call = ?held.0.call).in_scope(work)
        };
        let result = if at_once { work() } else { blocking(work).await };
        let Entered { metrics, call, began, .. } = &*self.0;
        let kind = &metrics.kinds[*call as usize];
        let took = began.elapsed().as_secs_f64();
        kind.took.record(took);
        kind.buckets[BUCKETS.partition_point(|bound| *bound < took)].fetch_add(1, Ordering::Relaxed);
        if result.is_err() {
            kind.failed.increment(1);
        }
        result
    }
}

/// How long a call's client waits for the answer, where it says so: up to 8 digits and a unit, as gRPC has
/// it.
pub(crate) fn wait_of(headers: &http::HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = (digits.len() <= 8).then(|| digits.parse().ok())??;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_client_waits_is_read_in_all_units_and_nonsense_is_for_ever() {
        let of = |text: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            wait_of(&headers)
        };
        assert_eq!(of("2H"), Some(Duration::from_secs(7_200)));
        assert_eq!((of("3M"), of("4S")), (Some(Duration::from_secs(180)), Some(Duration::from_secs(4))));
        assert_eq!((of("5m"), of("6u")), (Some(Duration::from_millis(5)), Some(Duration::from_micros(6))));
        assert_eq!((of("0n"), of("99999999H").is_some()), (Some(Duration::ZERO), true));
        for nonsense in ["", "S", "5", "-5S", "123456789S", "5 S", "5x"] {
            assert_eq!(of(nonsense), None, "{nonsense}");
        }
    }
    #[test]
    fn neither_a_caller_nor_a_connection_has_all_calls_and_streams_of_changes_are_counted_apart() {
        let config = Config { calls_max: 8, change_streams_max: 4, ..Config::default() };
        let metrics = CallMetrics::new(&config).unwrap();
        let budgets = crate::net::budget::Budgets::new(16 << 20);
        let caller = |name: &str| budgets.caller(Some(name), std::net::Ipv4Addr::LOCALHOST.into());
        let connections = [Arc::<Counts>::default(), Arc::default(), Arc::default()];
        let fill = |name: &str, kind: Kind, connection: usize| {
            std::iter::from_fn(|| metrics.enter(kind, &caller(name), &connections[connection]).ok())
                .collect::<Vec<_>>()
        };
        let first = fill("a", Kind::Call, 0);
        assert_eq!((first.len(), fill("a", Kind::Call, 1).len()), (4, 0), "half of them, on all connections");
        let second = fill("b", Kind::Call, 1);
        assert_eq!((second.len(), fill("c", Kind::Call, 2).len()), (4, 0));
        let refused = metrics.enter(Kind::Call, &caller("c"), &connections[2]).err().unwrap();
        assert!(refused.code() == Code::ResourceExhausted && !refused.details().is_empty(), "{refused}");
        let changes = fill("a", Kind::Changes, 0);
        assert_eq!((changes.len(), fill("b", Kind::Changes, 1).len()), (2, 2));
        let refused = metrics.enter(Kind::Changes, &caller("a"), &connections[0]).err().unwrap();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(fill("a", Kind::Watch, 0).len(), WATCHES_OF_CONNECTION);
        drop((first, second, changes));
        assert_eq!(metrics.0.under_way.all() + connections.iter().map(|c| c.all()).sum::<usize>(), 0);
    }
}
