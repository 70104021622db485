//! Inputs and outputs of a compaction over its stream, if server and database share no storage: the server's
//! end asks, the database's end answers, one request at a time.

use crate::protocol::{CARRIED_BYTES, Fetch, FromCompactor, ServerMessage, Store, telling};
use prost::bytes::Bytes;
use siltstone::TableId;
use siltstone::offload::CompactionTables;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::Status;

/// The interval at which a thread that waits for an answer checks whether the database is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The answers of the database.
pub(crate) type Answer = Result<Bytes, String>;

/// The server's end.
pub(crate) struct OverStream {
    into: mpsc::Sender<Result<FromCompactor, Status>>,
    gone: Arc<AtomicBool>,
    /// Locked during a request: one at a time.
    answers: Mutex<std_mpsc::Receiver<Answer>>,
}

impl std::fmt::Debug for OverStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverStream").finish_non_exhaustive()
    }
}

impl OverStream {
    pub(crate) fn new(
        into: mpsc::Sender<Result<FromCompactor, Status>>,
        gone: Arc<AtomicBool>,
        answers: std_mpsc::Receiver<Answer>,
    ) -> Self {
        Self { into, gone, answers: Mutex::new(answers) }
    }

    /// Asks, and waits for the answer, on a thread that may block.
    fn ask(&self, tell: ServerMessage) -> io::Result<Bytes> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let gone =
            || io::Error::new(io::ErrorKind::ConnectionAborted, "the database has given the compaction up");
        // A surplus answer would be taken for that to the next request.
        if answers.try_recv().is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the database answers what was not asked",
            ));
        }
        self.into.blocking_send(Ok(telling(tell))).map_err(|_| gone())?;
        loop {
            match answers.recv_timeout(LOOK_EVERY) {
                Ok(answer) => return answer.map_err(io::Error::other),
                Err(std_mpsc::RecvTimeoutError::Timeout) if !self.gone.load(Ordering::Relaxed) => {}
                Err(_) => return Err(gone()),
            }
        }
    }

    fn store(&self, table: TableId, bytes: Bytes, sync: bool) -> io::Result<()> {
        self.ask(ServerMessage::Store(Store { table: table.file_name(), bytes, sync })).map(|_| ())
    }
}

impl CompactionTables for OverStream {
    fn read(&self, table: TableId, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for part in into.chunks_mut(CARRIED_BYTES) {
            let wanted = Fetch { table: table.file_name(), offset: at, bytes: part.len() as u64 };
            let bytes = self.ask(ServerMessage::Fetch(wanted))?;
            if bytes.len() != part.len() {
                let message = format!("{} bytes of an input came, {} were wanted", bytes.len(), part.len());
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            part.copy_from_slice(&bytes);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write(&self, table: TableId, bytes: &[u8]) -> io::Result<()> {
        // An empty one makes the file.
        if bytes.is_empty() {
            return self.store(table, Bytes::new(), false);
        }
        bytes
            .chunks(CARRIED_BYTES)
            .try_for_each(|part| self.store(table, Bytes::copy_from_slice(part), false))
    }

    fn sync(&self, table: TableId) -> io::Result<()> {
        self.store(table, Bytes::new(), true)
    }
}

/// The database's end: executes requests. It may wait for the device.
pub(crate) fn answer(tables: &dyn CompactionTables, tell: &ServerMessage) -> Answer {
    let named =
        |name: &str| TableId::parse_file_name(name).ok_or_else(|| format!("{name:?} is no name of a table"));
    match tell {
        ServerMessage::Fetch(Fetch { table, offset, bytes }) => {
            let len = usize::try_from(*bytes).ok().filter(|bytes| *bytes <= CARRIED_BYTES);
            let mut into = vec![0; len.ok_or_else(|| format!("{bytes} bytes of an input at once"))?];
            let table = named(table)?;
            tables.read(table, *offset, &mut into).map_err(|e| format!("read table {table}: {e}"))?;
            Ok(into.into())
        }
        ServerMessage::Store(Store { table, bytes, sync }) => {
            let table = named(table)?;
            let written = match sync {
                true if bytes.is_empty() => Ok(()),
                _ => tables.write(table, bytes),
            };
            let stored = written.and_then(|()| if *sync { tables.sync(table) } else { Ok(()) });
            stored.map(|()| Bytes::new()).map_err(|e| format!("write table {table}: {e}"))
        }
        _ => Err("nothing that is answered".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Default)]
    struct Memory(Mutex<BTreeMap<TableId, (Vec<u8>, usize)>>);

    impl CompactionTables for Memory {
        fn read(&self, table: TableId, offset: u64, into: &mut [u8]) -> io::Result<()> {
            let tables = self.0.lock().unwrap();
            let (bytes, _) = tables.get(&table).ok_or(io::ErrorKind::PermissionDenied)?;
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            let found = at.checked_add(into.len()).and_then(|end| bytes.get(at..end));
            into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
        fn write(&self, table: TableId, bytes: &[u8]) -> io::Result<()> {
            self.0.lock().unwrap().entry(table).or_default().0.extend_from_slice(bytes);
            Ok(())
        }
        fn sync(&self, table: TableId) -> io::Result<()> {
            let mut tables = self.0.lock().unwrap();
            let (bytes, synced) = tables.get_mut(&table).ok_or(io::ErrorKind::PermissionDenied)?;
            *synced = bytes.len();
            Ok(())
        }
    }

    #[test]
    fn what_is_written_over_a_stream_is_there_and_read_back_in_parts() {
        let (into, mut told) = mpsc::channel(1);
        let (answers, answered) = std_mpsc::channel();
        let there = OverStream::new(into, Arc::default(), answered);
        let memory = Memory::default();
        let table = TableId { job: 3, ..TableId::default() };
        let bytes: Vec<u8> = (0..CARRIED_BYTES * 2 + 77).map(|n| (n % 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                there.write(table, &bytes).unwrap();
                there.sync(table).unwrap();
                let mut back = vec![0; bytes.len() - 9];
                there.read(table, 9, &mut back).unwrap();
                assert!(back == bytes[9..]);
                let behind = there.read(table, 9, &mut vec![0; bytes.len()]).unwrap_err();
                assert!(behind.to_string().contains("read table"), "{behind}");
                drop(there);
            });
            while let Some(Ok(FromCompactor { tell: Some(tell) })) = told.blocking_recv() {
                answers.send(answer(&memory, &tell)).unwrap();
            }
        });
        let tables = memory.0.lock().unwrap();
        assert!(tables[&table] == (bytes.clone(), bytes.len()), "written and synced");
    }

    #[test]
    fn what_cannot_be_is_refused_and_a_database_that_is_gone_is_not_waited_for() {
        let memory = Memory::default();
        let fetch =
            |table: &str, bytes| ServerMessage::Fetch(Fetch { table: table.into(), offset: 0, bytes });
        for (tell, why) in [
            (fetch("../CURRENT", 4), "is no name of a table"),
            (fetch(&TableId::default().file_name(), 1 << 40), "bytes of an input at once"),
            (fetch(&TableId::default().file_name(), 4), "permission denied"),
            (ServerMessage::Failed(String::new()), "nothing that is answered"),
        ] {
            let refused = answer(&memory, &tell).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let (into, told) = mpsc::channel(1);
        let (_answers, answered) = std_mpsc::channel();
        let there = OverStream::new(into, Arc::new(AtomicBool::new(true)), answered);
        assert_eq!(there.sync(TableId::default()).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        drop(told);
        assert_eq!(there.sync(TableId::default()).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn an_answer_that_nobody_asked_for_is_not_taken_for_that_to_the_next_question() {
        let (into, mut told) = mpsc::channel(1);
        let (answers, answered) = std_mpsc::channel();
        let there = OverStream::new(into, Arc::default(), answered);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(told.blocking_recv().is_some());
                for byte in [1, 2] {
                    answers.send(Ok(Bytes::from(vec![byte; 4]))).unwrap();
                }
            });
            let mut first = [0; 4];
            there.read(TableId::default(), 0, &mut first).unwrap();
            assert_eq!(first, [1; 4]);
        });
        let refused = there.read(TableId::default(), 4, &mut [0; 4]).unwrap_err();
        assert!(refused.to_string().contains("was not asked"), "{refused}");
    }
}
