//! Hostile and clumsy callers, one kind after the other: each attacks a server of its own beside a client
//! that behaves. The server is the real one with small budgets. Beside every attack each call of that client
//! is answered in time, memory stays within what is promised, no right is crossed, nothing panics, and no
//! secret is logged.
//!
//! An attack is a function and a line in [`ATTACKS`]. It works for [`Scene::lasts`]; what takes longer to be
//! seen, such as limits of time, it looks at only where it is given so long: in every tenth round, or with
//! `--each SECONDS`.
//!
//! - `wire`: messages and frames by hand.
//! - `streams`: connections, frames and streams; `bodies`: requests that are large, late or mutated.
//! - `rows`: reads and writes that cost more than they say; `rights`: calls without the right to them.
//! - `files`: the page, tokens, descriptors; `compaction`: servers and managers that lie.

mod bodies;
mod compaction;
mod files;
mod rights;
mod rows;
mod streams;
mod wire;

use crate::Extent;
use crate::child::{Server, channel, free_port, status_of};
use siltstone::Rng;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use wire::Plain;

/// The budgets of memory, in MiB: for cache and writes, and for calls where an attack has no other.
const MEMORY: u64 = 64;
const CALL_MEMORY: u64 = 64;
/// The memory that a process may have besides them and a quarter more, in MiB; its code is not counted.
const BESIDES: u64 = 32;
/// How often the client that behaves reads a row and writes one, and how long each may take.
const EVERY: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_secs(2);
/// How long half of its calls may take.
const USUAL: Duration = Duration::from_millis(250);
/// How long an attack lasts where nothing is said, and how long in every tenth round.
const LASTS: Duration = Duration::from_secs(2);
const LASTS_LONG: Duration = Duration::from_secs(90);
/// An attack that has not ended so long after its time hangs.
const HANGS: Duration = Duration::from_secs(120);
/// The rows that attacks find.
const LARGE: usize = 500_000;

/// The result of an attack: how it was met, or what fell short.
type Outcome = Result<String, String>;

/// A kind of attack.
struct Attack {
    name: &'static str,
    run: fn(&Scene) -> Outcome,
    /// Further lines of the configuration; `{helper}` and `{manager}` stand for free ports, `{secret}` for a
    /// file with a secret.
    config: &'static str,
    /// Whether the server asks for tokens.
    tokens: bool,
    /// Memory for calls, in MiB.
    call_memory: u64,
    /// Files and connections that the server may have open.
    descriptors: Option<u32>,
    /// What the server has to say, as it must refuse to start like that.
    refusal: Option<&'static str>,
}

impl Attack {
    /// An attack on a server with tokens.
    const fn new(name: &'static str, run: fn(&Scene) -> Outcome) -> Self {
        let call_memory = CALL_MEMORY;
        Self { name, run, config: "", tokens: true, call_memory, descriptors: None, refusal: None }
    }

    const fn config(self, config: &'static str) -> Self {
        Self { config, ..self }
    }

    /// On a server that lets everybody in.
    const fn open(self) -> Self {
        Self { tokens: false, ..self }
    }

    const fn call_memory(self, call_memory: u64) -> Self {
        Self { call_memory, ..self }
    }

    const fn descriptors(self, descriptors: u32) -> Self {
        Self { descriptors: Some(descriptors), ..self }
    }

    /// On none, as it says so and does not start.
    const fn refused(name: &'static str, refusal: &'static str) -> Self {
        Self { refusal: Some(refusal), ..Self::new(name, starts) }
    }
}

/// The attack on a server that must refuse to start: getting here is a failure.
fn starts(_: &Scene) -> Outcome {
    Err("the server starts".into())
}

const FEW_CALLS: &str = "calls-max = 64\n";
const FEW_CONNECTIONS: &str = "connections-max = 64\n";
const OPEN_MANAGER: &str = "[manager]\nlisten = \"127.0.0.1:{manager}\"\n";
const MANAGER: &str = "write-memory = \"2MiB\"\n[manager]\nlisten = \"127.0.0.1:{manager}\"\n\
    [offload]\nsecret-file = \"{secret}\"\nby-cost = false\nbytes-min = \"64KiB\"\n\
    [tables]\ncompression = \"none\"\nstrategy = \"leveled{sstable_bytes=128KiB, base_bytes=1MiB}\"\n";
const OFFLOAD: &str = "write-memory = \"2MiB\"\n[offload]\nservers = [\"127.0.0.1:{helper}\"]\nby-cost = false\n\
    bytes-min = \"64KiB\"\npatience-seconds = 2\n[tables]\ncompression = \"none\"\n\
    strategy = \"leveled{sstable_bytes=128KiB, base_bytes=1MiB}\"\n";

/// All of them.
const ATTACKS: &[Attack] = &[
    Attack::new("settings", streams::settings),
    Attack::new("pings", streams::pings),
    Attack::new("pings-unread", streams::pings_unread),
    Attack::new("priorities", streams::priorities),
    Attack::new("unknown-frames", streams::unknown_frames),
    Attack::new("empty-data", streams::empty_data),
    Attack::new("rapid-reset", streams::rapid_reset),
    Attack::new("continuations", streams::continuations),
    Attack::new("hpack-bomb", streams::hpack_bomb),
    Attack::new("large-headers", streams::large_headers),
    Attack::new("nonsense", streams::nonsense),
    Attack::new("byte-by-byte", streams::byte_by_byte),
    Attack::new("health-checks", streams::health_checks),
    Attack::new("health-watches", streams::health_watches),
    Attack::new("half-open-reads", streams::half_open_reads).open(),
    Attack::new("claimed-lengths", streams::claimed_lengths).open(),
    Attack::new("silent-sockets", streams::silent_sockets).config(FEW_CONNECTIONS),
    Attack::new("half-requests", streams::half_requests).config(FEW_CONNECTIONS),
    Attack::new("connections", streams::connections),
    Attack::new("unfinished-bodies", bodies::unfinished),
    Attack::new("dripping-bodies", bodies::dripping),
    Attack::new("forbidden-bodies", bodies::forbidden),
    Attack::new("empty-entries", bodies::empty_entries),
    Attack::new("written-entries", bodies::written_entries),
    Attack::new("empty-ranges", bodies::empty_ranges),
    Attack::new("many-keys", bodies::many_keys),
    Attack::new("large-filter", bodies::large_filter),
    Attack::new("gc-rule", bodies::gc_rule),
    Attack::new("gc-rule-owned", bodies::gc_rule_owned),
    Attack::new("many-mutations", bodies::many_mutations),
    Attack::new("compressed-flag", bodies::compressed_flag),
    Attack::new("mutated-calls", bodies::mutated_calls),
    Attack::new("patterns", rows::patterns),
    Attack::new("predicates", rows::predicates),
    Attack::new("wide-row", rows::wide_row),
    Attack::new("interleaves", rows::interleaves),
    Attack::new("labels", rows::labels),
    Attack::new("conditions", rows::conditions),
    Attack::new("deep-filters", rows::deep_filters),
    Attack::new("short-reads-not-taken", rows::short_reads_not_taken),
    Attack::new("scans-not-taken", rows::scans_not_taken),
    Attack::new("answers-not-taken", rows::answers_not_taken),
    Attack::new("memory-after", rows::memory_after).call_memory(3_072),
    Attack::new("change-streams", rows::change_streams).config(FEW_CALLS),
    Attack::new("operations", rows::operations),
    Attack::new("wrong-rights", rights::wrong_rights),
    Attack::new("backup-names", rights::backup_names),
    Attack::new("odd-names", rights::odd_names),
    Attack::new("revoked-token", files::revoked_token),
    Attack::new("page-paths", files::page_paths),
    Attack::new("foreign-host", files::foreign_host).open(),
    Attack::new("told-paths", files::told_paths),
    Attack::new("descriptors", files::descriptors).descriptors(400),
    Attack::refused("few-descriptors", "384 are needed").descriptors(256),
    Attack::new("announced", compaction::announced).config(MANAGER),
    Attack::new("dialled", compaction::dialled).config(MANAGER),
    Attack::refused("open-manager", "could become a compaction server").config(OPEN_MANAGER),
    Attack::new("lies", compaction::lies).config(OFFLOAD).open(),
    Attack::new("stalls", compaction::stalls).config(OFFLOAD).open(),
    Attack::new("fills", compaction::fills).config(OFFLOAD).open(),
    Attack::new("swells", compaction::swells).config(OFFLOAD).open(),
    Attack::new("fetches", compaction::fetches).config(OFFLOAD).open(),
];

/// The fewest attacks whose success says something: all of them, once.
#[cfg(test)]
pub(crate) const LEAST: u64 = ATTACKS.len() as u64;

/// Who has a token, and for what: name, rights, tables. The token itself is [`secret`].
const TOKENS: [(&str, &str, &str); 6] = [
    ("root", "'read', 'write', 'admin', 'monitor'", "'*'"),
    ("monitor", "'monitor'", ""),
    ("reader", "'read'", "'projects/p/instances/i/tables/t'"),
    ("writer", "'write'", "'projects/p/instances/i/tables/t'"),
    ("admin", "'admin'", "'projects/p/instances/i/tables/t'"),
    ("other", "'read', 'write', 'admin'", "'projects/p/instances/i/tables/other'"),
];

/// The token of that name.
fn secret(name: &str) -> String {
    format!("{name}-secret")
}

/// The file of tokens, without that one.
fn tokens_but(left_out: &str) -> String {
    let line = |(name, rights, tables): &(&str, &str, &str)| {
        let digest = siltstone_server::token_digest(&secret(name));
        format!("[[token]]\nname = '{name}'\nsha256 = '{digest}'\nrights = [{rights}]\ntables = [{tables}]\n")
    };
    TOKENS.iter().filter(|(name, ..)| *name != left_out).map(line).collect()
}

/// The scene that an attack finds.
struct Scene {
    port: u16,
    http: u16,
    process: u32,
    /// The directory of the server's files.
    dir: PathBuf,
    seed: u64,
    lasts: Duration,
    has_tokens: bool,
    /// Where the configuration says that a compaction server is, and where the manager listens.
    helper: u16,
    manager: u16,
    handle: Handle,
}

impl Scene {
    fn rng(&self) -> Rng {
        Rng::new(self.seed)
    }

    /// When the attack is to end.
    fn until(&self) -> Instant {
        Instant::now() + self.lasts
    }

    /// Whether limits of so much time can be seen.
    fn is_longer_than(&self, seconds: u64) -> bool {
        self.lasts > Duration::from_secs(seconds)
    }

    /// Somebody with the token of that name, on a connection of its own; the token is left out where the
    /// server has none.
    fn caller(&self, name: &str) -> Caller {
        let token = self.has_tokens.then(|| secret(name));
        Caller { channel: self.in_runtime(|| channel(self.port)), token, handle: self.handle.clone() }
    }

    /// Somebody without a token, at that port.
    fn stranger(&self, port: u16) -> Caller {
        Caller { channel: self.in_runtime(|| channel(port)), token: None, handle: self.handle.clone() }
    }

    /// Channels are made where a runtime is.
    fn in_runtime<T>(&self, make: impl FnOnce() -> T) -> T {
        let _in = self.handle.enter();
        make()
    }

    /// The header block of a call of the one of that name.
    fn headers(&self, method: &str, name: &str) -> Vec<u8> {
        let token = self.has_tokens.then(|| secret(name));
        wire::headers(method, token.as_deref())
    }

    /// The answer of the page to a caller without a token.
    fn get(&self, path: &str) -> Result<(u16, String), String> {
        wire::get(self.http, path, "127.0.0.1", None, DEADLINE)
    }

    /// Bytes that the server has of memory now.
    fn memory(&self) -> u64 {
        status_of(self.process, "VmRSS:")
    }

    /// A row of so many cells, written by root.
    fn write_wide(&self, row: &str, cells: usize) -> Result<(), String> {
        let root = self.caller("root");
        for from in (0..cells).step_by(5_000) {
            let some = from..cells.min(from + 5_000);
            let mutations: Vec<_> = some.map(|n| wire::set_cell(format!("c{n:07}"), "v")).collect();
            root.must("MutateRow", wire::mutate_row("t", row, &mutations))?;
        }
        Ok(())
    }
}

/// A client that makes sound calls, or nearly so.
#[derive(Clone)]
struct Caller {
    channel: Channel,
    token: Option<String>,
    handle: Handle,
}

impl Caller {
    /// The messages of the answer. A method without a slash is of the data API.
    fn call_within(&self, method: &str, message: Vec<u8>, wait: Duration) -> Result<Vec<Vec<u8>>, Status> {
        let call = answer(self.channel.clone(), self.token.as_deref(), method, message, wait);
        self.handle.block_on(call)
    }

    fn call(&self, method: &str, message: Vec<u8>) -> Result<Vec<Vec<u8>>, Status> {
        self.call_within(method, message, Duration::from_secs(30))
    }

    /// Makes a call that must succeed, or the attack cannot be made.
    fn must(&self, method: &str, message: Vec<u8>) -> Result<Vec<Vec<u8>>, String> {
        self.call(method, message).map_err(|e| format!("{method} fails: {e}"))
    }

    /// How a call ends.
    fn code(&self, method: &str, message: Vec<u8>) -> Code {
        self.call(method, message).err().map_or(Code::Ok, |status| status.code())
    }
}

/// Makes a call; an answer that does not end within the time is an error, whatever the server says.
async fn answer(
    channel: Channel,
    token: Option<&str>,
    method: &str,
    message: Vec<u8>,
    wait: Duration,
) -> Result<Vec<Vec<u8>>, Status> {
    let path = if method.starts_with('/') { method.to_string() } else { format!("{}{method}", wire::DATA) };
    let path = path.parse().map_err(|e| Status::invalid_argument(format!("{path}: {e}")))?;
    let mut request = Request::new(message);
    request.set_timeout(wait);
    if let Some(Ok(bearer)) = token.map(|token| format!("Bearer {token}").parse()) {
        request.metadata_mut().insert("authorization", bearer);
    }
    let whole = async move {
        let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(1 << 30);
        client.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
        let mut stream = client.server_streaming(request, path, Plain).await?.into_inner();
        let mut messages = Vec::new();
        while let Some(message) = stream.message().await? {
            messages.push(message);
        }
        Ok::<_, Status>(messages)
    };
    match tokio::time::timeout(wait, whole).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::deadline_exceeded("nothing came in time")),
    }
}

/// The client that behaves.
struct Good {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<Vec<Duration>, String>>,
}

impl Good {
    /// On a connection that is open already, so that nobody can take its place.
    fn start(channel: Channel, token: Option<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(behave(channel, token, stop.clone()));
        Self { stop, task }
    }

    /// How long it waited for each answer.
    async fn end(self) -> Result<Vec<Duration>, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.map_err(|e| e.to_string())?
    }
}

async fn behave(
    channel: Channel,
    token: Option<String>,
    stop: Arc<AtomicBool>,
) -> Result<Vec<Duration>, String> {
    let mut waits = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let write = wire::mutate_row("t", "good", &[wire::set_cell("q", waits.len().to_string())]);
        let read = wire::read_rows("t", &[b"good"], None);
        for (method, message) in [("MutateRow", write), ("ReadRows", read)] {
            let began = Instant::now();
            let answer = answer(channel.clone(), token.as_deref(), method, message, DEADLINE).await;
            let call = waits.len();
            waits.push(began.elapsed());
            let messages = answer.map_err(|e| format!("call {call} of the good client, {method}: {e}"))?;
            if method == "ReadRows" && messages.iter().all(Vec::is_empty) {
                return Err(format!("call {call} of the good client finds its row no more"));
            }
        }
        tokio::time::sleep(EVERY).await;
    }
    Ok(waits)
}

/// The wait that as many are shorter than as are longer.
fn median(waits: &mut [Duration]) -> Duration {
    waits.sort_unstable();
    waits.get(waits.len() / 2).copied().unwrap_or_default()
}

/// So many attacks, in rounds of all of them, or of the one of that name alone.
pub(crate) async fn run(
    extent: &Extent,
    seed: u64,
    only: Option<&str>,
    each: Option<u64>,
) -> Result<String, String> {
    let attacks: Vec<&Attack> =
        ATTACKS.iter().filter(|attack| only.is_none_or(|only| attack.name == only)).collect();
    if attacks.is_empty() {
        let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        return Err(format!("no attack has that name; there are {}", names.join(", ")));
    }
    let (mut fallen, mut round) = (Vec::new(), 0);
    while extent.goes_on() {
        let usual = if round % 10 == 9 { LASTS_LONG } else { LASTS };
        let lasts = each.map_or(usual, Duration::from_secs);
        for attack in &attacks {
            if !extent.goes_on() {
                break;
            }
            let seed = seed.wrapping_add(round);
            match one(attack, seed, lasts).await {
                Ok(said) => println!("{}: {said}", attack.name),
                Err(why) => {
                    println!("{} FALLS SHORT: {why}", attack.name);
                    let again = format!("--only {} --seed {seed} --each {}", attack.name, lasts.as_secs());
                    println!("  again: siltstone-siege attack --count 1 {again}");
                    fallen.push(attack.name);
                }
            }
            extent.advance(1);
        }
        round += 1;
    }
    match fallen.is_empty() {
        true => Ok(format!("{} attacks", extent.done())),
        false => Err(format!("{} of {} attacks: {}", fallen.len(), extent.done(), fallen.join(", "))),
    }
}

/// One attack on a server of its own.
async fn one(attack: &Attack, seed: u64, lasts: Duration) -> Outcome {
    let (helper, manager) = (free_port(), free_port());
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let config = config_of(attack, dir.path(), helper, manager)?;
    let mut server = match (Server::start_in(dir, &config, attack.descriptors).await, attack.refusal) {
        (Err(why), Some(refusal)) if why.contains("the server ended") && why.contains(refusal) => {
            return Ok(format!("refused at the start: {}", why.lines().last().unwrap_or_default()));
        }
        (started, _) => started?,
    };
    let scene = Scene {
        port: server.port(),
        http: server.http(),
        process: server.process(),
        dir: server.dir.path().to_path_buf(),
        seed,
        lasts,
        has_tokens: attack.tokens,
        helper,
        manager,
        handle: Handle::current(),
    };
    let token = attack.tokens.then(|| secret("root"));
    let channel = channel(scene.port);
    furnish(&channel, token.as_deref(), scene.rng()).await?;
    let code = status_of(scene.process, "RssFile:");
    let (good, run) = (Good::start(channel, token), attack.run);
    let working = tokio::time::timeout(lasts + HANGS, tokio::task::spawn_blocking(move || run(&scene))).await;
    let said = match working {
        Ok(Ok(said)) => said,
        Ok(Err(e)) => Err(format!("the attack itself failed: {e}")),
        Err(_) => Err("the attack does not end".into()),
    };
    let good = good.end().await;
    let most = server.memory().1;
    let (said, mut waits) = (said?, good?);
    let promised = ((MEMORY + attack.call_memory) << 20) / 4 * 5 + (BESIDES << 20) + code;
    judge(&mut server, most, promised)?;
    let usual = median(&mut waits);
    let Some(longest) = waits.last() else { return Err("the good client made no call".into()) };
    let calls = format!(
        "the good client: {} answers, half of them within {} ms, the longest after {} ms",
        waits.len(),
        usual.as_millis(),
        longest.as_millis()
    );
    match usual <= USUAL {
        true => Ok(format!("{said}; {calls}; {} MiB", most >> 20)),
        false => Err(calls),
    }
}

/// The configuration, and the files of tokens and of a secret that it names.
fn config_of(attack: &Attack, dir: &Path, helper: u16, manager: u16) -> Result<String, String> {
    let mut config = format!(
        "memory = \"{MEMORY}MiB\"\ncall-memory = \"{}MiB\"\ndurability = \"buffered\"\n\
         change-log = \"64MiB\"\n",
        attack.call_memory
    );
    if !attack.config.contains("write-memory") {
        config.push_str("write-memory = \"16MiB\"\n");
    }
    if attack.tokens {
        let file = dir.join("tokens.toml");
        write_private(&file, &tokens_but(""))?;
        config.push_str(&format!("tokens = \"{}\"\n", file.display()));
    }
    let file = dir.join("secret");
    if attack.config.contains("{secret}") {
        write_private(&file, &secret("compaction"))?;
    }
    let own =
        attack.config.replace("{helper}", &helper.to_string()).replace("{manager}", &manager.to_string());
    config.push_str(&own.replace("{secret}", &file.display().to_string()));
    Ok(config)
}

/// Writes a file that only its owner may read.
fn write_private(file: &Path, text: &str) -> Result<(), String> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let open = options.create(true).truncate(true).write(true).mode(0o600).open(file);
    open.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| format!("{}: {e}", file.display()))
}

/// The tables and rows that attacks find: t with some large rows, and other.
async fn furnish(channel: &Channel, token: Option<&str>, mut random: Rng) -> Result<(), String> {
    let wait = Duration::from_secs(30);
    let create = format!("{}CreateTable", wire::ADMIN);
    let mut calls: Vec<_> =
        ["t", "other"].map(|name| (create.as_str(), wire::create_table(name, &[]))).to_vec();
    for n in 0..8 {
        let value = wire::set_cell("q", random.bytes(LARGE));
        calls.push(("MutateRow", wire::mutate_row("t", format!("large{n}"), &[value])));
    }
    calls.push(("MutateRow", wire::mutate_row("t", "row", &[wire::set_cell("q", "value")])));
    for (method, message) in calls {
        answer(channel.clone(), token, method, message, wait).await.map_err(|e| format!("{method}: {e}"))?;
    }
    Ok(())
}

/// The conditions that the server meets after every attack: it lives, had no more memory than is promised,
/// and tells no secret.
fn judge(server: &mut Server, most: u64, promised: u64) -> Result<(), String> {
    let log = server.log();
    if !server.lives() || log.contains("panicked") {
        let last: Vec<&str> = log.lines().rev().take(10).collect();
        return Err(format!("the server ended or panicked: {}", last.join("\n")));
    }
    if most > promised {
        return Err(format!("{} MiB of memory, where {} are promised", most >> 20, promised >> 20));
    }
    match log.lines().find(|line| line.contains("-secret")) {
        Some(line) => Err(format!("a token is in the log: {line}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle_and_the_last_is_the_longest() {
        let mut waits = [9, 1, 5].map(Duration::from_millis);
        assert_eq!((median(&mut waits), waits[2]), (Duration::from_millis(5), Duration::from_millis(9)));
        assert_eq!(median(&mut []), Duration::ZERO);
    }

    #[test]
    fn attacks_have_names_of_their_own() {
        let mut names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTACKS.len());
    }
}
