//! A bad network between a database and its compaction server (OFF-6): bytes that come late, not at all in
//! one direction, or changed, and connections that are cut or refused. The contents are those without a
//! server, and compactions go there again when it is over.

use crate::support::{self, World, builder, contents, eventually, merged, write};
use siltstone::Rng;
use siltstone_compactor::{CompactorConfig, CompactorServer, Compactors, CompactorsOptions};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The silence after which a compaction goes on elsewhere.
const PATIENCE: Duration = Duration::from_millis(600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Bytes come some milliseconds late.
    Late,
    /// Nothing comes in one direction for longer than a compaction waits.
    OneWay,
    /// The connection is closed in the middle of a message.
    Cut,
    /// The connection is closed in the middle of a message, and new ones are refused for a while.
    Refused,
    /// A bit of a message is flipped.
    Changed,
    /// A bit is flipped in the setting by which a server says how much of a stream may be on its way. The
    /// database takes it for less; neither end notices, and small messages pass.
    Window,
}

/// The network between a database and its server.
struct Network {
    at: SocketAddr,
    rules: Arc<Rules>,
}

struct Rules {
    fault: Fault,
    is_calm: AtomicBool,
    /// The number of connections that are still to be refused.
    refuses: AtomicU64,
    met: AtomicU64,
}

impl Network {
    fn before(server: SocketAddr, fault: Fault, seed: u64) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let at = listener.local_addr().unwrap();
        let (is_calm, refuses, met) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let rules = Arc::new(Rules { fault, is_calm, refuses, met });
        let (of, mut rng) = (rules.clone(), Rng::new(seed));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let refused =
                    of.refuses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
                let Some(server) = TcpStream::connect(server).ok().filter(|_| refused.is_err()) else {
                    continue;
                };
                for (from, to, narrows) in
                    [(&client, &server, false), (&server, &client, fault == Fault::Window)]
                {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    if narrows && !of.is_calm.load(Ordering::Relaxed) {
                        narrow(&mut from, &mut to);
                        of.met.fetch_add(1, Ordering::Relaxed);
                    }
                    let (rules, rng) = (of.clone(), Rng::new(rng.next_u64()));
                    std::thread::spawn(move || pass(from, to, &rules, rng));
                }
            }
        });
        Self { at, rules }
    }
}

/// Passes the server's settings on, in which the size of a stream's window has another setting's number.
fn narrow(from: &mut TcpStream, to: &mut TcpStream) {
    const WINDOW: u16 = 4;
    const SETTING_BYTES: usize = 6;
    let mut head = [0; 9];
    from.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4, "a connection begins with settings");
    let mut settings = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    from.read_exact(&mut settings).unwrap();
    let mut each = settings.chunks_exact_mut(SETTING_BYTES);
    let window = each.find(|setting| setting[..2] == WINDOW.to_be_bytes()).expect("a window");
    window[1] ^= 0x80;
    to.write_all(&head).and_then(|()| to.write_all(&settings)).unwrap();
}

/// Passes bytes on in one direction, as long as there are some.
fn pass(mut from: TcpStream, mut to: TcpStream, rules: &Rules, mut rng: Rng) {
    let mut bytes = vec![0; 8 << 10];
    let _ = to.set_nodelay(true);
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let mut piece = &mut bytes[..len];
        let often = if rules.fault == Fault::Late { 3 } else { 25 };
        if !rules.is_calm.load(Ordering::Relaxed) && rules.fault != Fault::Window && rng.one_in(often) {
            rules.met.fetch_add(1, Ordering::Relaxed);
            let at = rng.range(0..len as u64) as usize;
            match rules.fault {
                Fault::Late => std::thread::sleep(Duration::from_millis(rng.range(1..15))),
                Fault::OneWay => std::thread::sleep(PATIENCE * 2),
                Fault::Window => {}
                Fault::Changed => piece[at] ^= 1 << rng.range(0..8),
                Fault::Cut | Fault::Refused => {
                    if rules.fault == Fault::Refused {
                        rules.refuses.store(rng.range(1..4), Ordering::Relaxed);
                    }
                    piece = &mut piece[..at];
                    let _ = to.write_all(piece);
                    break;
                }
            }
        }
        if to.write_all(piece).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Runs a workload through a network with that fault; the number of faults that happened.
fn case(fault: Fault, carried: bool, seed: u64) -> u64 {
    let world = World::new();
    let tables = if carried { Vec::new() } else { vec![world.dir.path().into()] };
    let config =
        CompactorConfig { tables, memory: 8 << 20, merge_memory: 1 << 20, ..CompactorConfig::default() };
    let server = CompactorServer::start(config, builder()).unwrap();
    let network = Network::before(server.listens_at(), fault, seed);
    let options = CompactorsOptions { patience: PATIENCE, ..support::options() };
    let compactors = Arc::new(Compactors::connect_with([network.at.to_string()], options).unwrap());
    let (here, there) = (world.open("here", None), world.open_with("there", Some(compactors.clone())));
    for round in 0..4 {
        for db in [&here, &there] {
            write(db, seed ^ round, 2_500);
            merged(db);
        }
        assert!(
            contents(&here) == contents(&there),
            "{fault:?}, seed {seed}, carried {carried}, round {round}"
        );
    }
    network.rules.is_calm.store(true, Ordering::Relaxed);
    let done = || compactors.servers()[0].state.as_ref().map(|state| state.done);
    // What was under way ends, and what is known of the server is of later.
    std::thread::sleep(PATIENCE * 2 + Duration::from_millis(1_500));
    eventually("it answers again", || done().is_some());
    let before = done();
    let rounds = AtomicU64::new(0);
    eventually("compactions go there again", || {
        std::thread::sleep(Duration::from_millis(100));
        rounds.fetch_add(1, Ordering::Relaxed);
        write(&there, 9, 200);
        merged(&there);
        done() > before
    });
    (0..rounds.into_inner()).for_each(|_| write(&here, 9, 200));
    let expected = contents(&here);
    assert!(contents(&there) == expected, "{fault:?}, seed {seed}");
    there.reopened_has(&expected);
    network.rules.met.load(Ordering::Relaxed)
}

fn cases(fault: Fault) {
    let fresh = u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos());
    let mut met = 0;
    for (carried, seed) in [(false, 1), (true, 1), (true, fresh), (false, fresh)] {
        println!("{fault:?}: seed {seed}, carried {carried}");
        let here = case(fault, carried, seed);
        assert!(here > 0, "{fault:?} was not met, seed {seed}");
        met += here;
    }
    println!("{fault:?} was met {met} times");
}

#[test]
fn bytes_that_come_late() {
    cases(Fault::Late);
}

#[test]
fn silence_in_one_direction() {
    cases(Fault::OneWay);
}

#[test]
fn connections_that_are_cut() {
    cases(Fault::Cut);
}

#[test]
fn connections_that_are_refused() {
    cases(Fault::Refused);
}

#[test]
fn wrong_bits() {
    cases(Fault::Changed);
}

#[test]
fn a_window_that_the_ends_take_for_different() {
    cases(Fault::Window);
}
