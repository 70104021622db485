//! Every decoder of what compaction servers, databases and managers send each other, each as a function of
//! bytes that must not panic, hang or take much memory whatever it is given, and that uses what came of it.
//! The package `siltstone-fuzz` calls them.

use crate::codec::{seal, unsealed};
use crate::fetch::add;
use crate::protocol::{
    Announcement, Begin, ClientRequest, CompactorState, Fetch, FromCompactor, PROTOCOL_VERSION, ReadPiece,
    ReadRequest, Ring, ServerMessage, Store, ToCompactor, Waits, asking, telling,
};
use crate::ring::{Spread, number, ring, server_of};
use prost::Message;
use siltstone::TableId;
use siltstone::offload::{CompactionAnswer, CompactionSpec};
use siltstone::testing::Target;

/// Every decoder.
pub fn all() -> Vec<Target> {
    let target = |name, seeds, decode| Target { name, seeds, sign, decode };
    vec![
        target("to-compactor", ask_seeds, ask),
        target("from-compactor", tell_seeds, tell),
        target("announcement", announcement_seeds, announcement),
        target("ring", ring_seeds, of_ring),
        target("read-request", request_seeds, request),
        target("read-piece", piece_seeds, piece),
    ]
}

/// Bytes of a checksum behind a message.
const SEAL_BYTES: usize = 6;
const ADDRESS: &str = "10.0.0.5:7400";
const TABLE: &str = "000001-000001-000004-0000.table";

fn sealed(message: &impl Message) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    seal(&mut bytes);
    bytes
}

/// Makes the checksum fit what stands before it.
fn sign(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len().saturating_sub(SEAL_BYTES));
    seal(bytes);
}

/// The message, if its checksum fits; it is written as it was read.
fn opened<T: Message + Default + PartialEq>(bytes: &[u8]) -> Option<T> {
    let message = T::decode(unsealed(bytes).ok()?).ok()?;
    let again = T::decode(unsealed(&sealed(&message)).expect("its checksum was just made")).ok();
    // (Numbers that are none are not equal to themselves; there is no such field.)
    assert!(again.as_ref() == Some(&message), "a message is sent as it is");
    Some(message)
}

fn ask_seeds() -> Vec<Vec<u8>> {
    let begin =
        Begin { protocol_version: PROTOCOL_VERSION, merge: b"00000000 {}".to_vec(), keep: 1, carried: true };
    let asks = [
        ClientRequest::Begin(begin),
        ClientRequest::Done(vec![7; 100].into()),
        ClientRequest::Refused("no".into()),
    ];
    asks.map(|ask| sealed(&asking(ask))).to_vec()
}

fn ask(bytes: &[u8]) {
    if let Some(ToCompactor { ask: Some(ClientRequest::Begin(begin)) }) = opened(bytes) {
        let _ = (begin.keeps(), CompactionSpec::from_bytes(&begin.merge));
    }
}

fn tell_seeds() -> Vec<Vec<u8>> {
    let tells = [
        ServerMessage::Waits(Waits { before: 3 }),
        ServerMessage::Answer(b"00000000 {}".to_vec()),
        ServerMessage::Failed("it has no room".into()),
        ServerMessage::Fetch(Fetch { table: TABLE.into(), offset: 4_096, bytes: 1 << 20 }),
        ServerMessage::Store(Store { table: TABLE.into(), bytes: vec![7; 100].into(), sync: true }),
    ];
    tells.map(|tell| sealed(&telling(tell))).to_vec()
}

fn tell(bytes: &[u8]) {
    match opened::<FromCompactor>(bytes).and_then(|message| message.tell) {
        Some(ServerMessage::Answer(answer)) => drop(CompactionAnswer::from_bytes(&answer)),
        Some(ServerMessage::Fetch(Fetch { table, .. }) | ServerMessage::Store(Store { table, .. })) => {
            let is_plain = TableId::parse_file_name(&table).is_none_or(|id| id.file_name() == table);
            assert!(is_plain, "{table} leads elsewhere");
        }
        _ => {}
    }
}

fn state() -> CompactorState {
    CompactorState {
        protocol_version: PROTOCOL_VERSION,
        slots: 4,
        processors: 2,
        ..CompactorState::default()
    }
}

fn announcement_seeds() -> Vec<Vec<u8>> {
    let (protocol_version, address) = (PROTOCOL_VERSION, ADDRESS.into());
    vec![sealed(&Announcement { protocol_version, address, state: Some(state()) })]
}

/// What a manager makes of it: a place on the ring.
fn announcement(bytes: &[u8]) {
    let Some(Announcement { address, state: Some(state), .. }) = opened(bytes) else { return };
    let servers = [(address, state.clone()), (ADDRESS.into(), state)].into();
    for spread in [Spread::RoundRobin, Spread::Load] {
        let all = ring(spread, &servers);
        assert!(
            !all.is_empty() && all.len() <= 16 && number(&all) > 0,
            "{} places on a ring of two",
            all.len()
        );
    }
}

fn ring_seeds() -> Vec<Vec<u8>> {
    let servers = vec![ADDRESS.to_string(), "10.0.0.6:7400".into(), ADDRESS.into()];
    vec![sealed(&Ring { number: number(&servers), servers })]
}

fn of_ring(bytes: &[u8]) {
    let Some(Ring { servers, .. }) = opened(bytes) else { return };
    for store in [0, 1, 7, u32::MAX] {
        assert_eq!(server_of(&servers, store).is_some(), !servers.is_empty());
    }
}

fn request_seeds() -> Vec<Vec<u8>> {
    let (starts, ends) = (vec![0, 8_192], vec![4_096, 9_000]);
    vec![sealed(&ReadRequest { database: 7, table: TABLE.into(), starts, ends, compress: true })]
}

fn request(bytes: &[u8]) {
    let Some(ReadRequest { table, starts, ends, .. }) = opened(bytes) else { return };
    let parts = starts
        .iter()
        .zip(&ends)
        .fold(0_u64, |sum, (start, end)| sum.saturating_add(end.saturating_sub(*start)));
    let _ = (TableId::parse_file_name(&table), parts);
}

fn piece_seeds() -> Vec<Vec<u8>> {
    let raw = b"a table's block ".repeat(40);
    let compressed = lz4_flex::block::compress(&raw);
    let pieces = [(raw.clone(), 0), (compressed, raw.len() as u32)];
    pieces.map(|(bytes, raw)| sealed(&ReadPiece { bytes: bytes.into(), raw })).to_vec()
}

/// What a database makes of a piece of the bytes that it asked for: no more than those.
fn piece(bytes: &[u8]) {
    let Some(piece) = opened::<ReadPiece>(bytes) else { return };
    let mut all = Vec::new();
    for wanted in [640, 64 << 10] {
        all.clear();
        let taken = add(&mut all, &piece, wanted);
        assert!(all.len() <= wanted && (taken.is_err() || !all.is_empty() || piece.bytes.is_empty()));
    }
}
