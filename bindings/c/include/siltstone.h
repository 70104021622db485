// Siltstone, an embedded key-value store: a log-structured merge tree whose compactions are not felt.
//
// Every call that can fail answers NULL, or a siltstone_error that the caller frees with siltstone_error_free. A NULL argument that
// must not be NULL is an error like others.
//
// Who owns what: what a call puts through a pointer to a pointer (siltstone_db **) belongs to the caller, who frees it with the
// function named after it. These take the address of the pointer and set it to NULL, so that freeing twice does nothing, and a later
// use is an error. All else that is handed out (texts of errors, entries of iterators) belongs to what it came from and lives as it
// says. Keys, values and texts that are handed in stay the caller's and are read during the call alone.
//
// The order in which things are freed does not matter: a database lives until the last handle that was made of it is freed. Once it
// has been closed (siltstone_close), calls answer SILTSTONE_KIND_CLOSED.
//
// siltstone_db, siltstone_family and siltstone_snapshot may be used by several threads at once, all else by one at a time. No
// handle may be freed while another thread uses it. A process that forks goes on with its databases; its child must not use them.
//
// This header is made of bindings/c/src by cbindgen; `cargo xtask c --header` makes it anew.

#ifndef SILTSTONE_H
#define SILTSTONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The call returns once the write survives a kill of the process. A power loss may lose the newest writes.
#define SILTSTONE_BUFFERED 0

// The call returns once the write survives a power loss.
#define SILTSTONE_SYNC 1

// A commit fails where others wrote to anything that the transaction read.
#define SILTSTONE_SERIALIZABLE 0

// A commit fails where others wrote to what the transaction wrote, or read for update.
#define SILTSTONE_SNAPSHOT 1

// The kind of an error, which says what to do about it.
typedef enum {
  // No error: the pointer was NULL.
  SILTSTONE_KIND_NONE = 0,
  // The call was wrong (a null pointer, a key over the limit, an unknown option): change the call.
  SILTSTONE_KIND_INVALID = 1,
  // The key is not one of the family's: it was split, and another family answers for the key now.
  SILTSTONE_KIND_OUT_OF_RANGE = 2,
  // The named thing does not exist.
  SILTSTONE_KIND_NOT_FOUND = 3,
  // A transaction met a newer write: read again and retry.
  SILTSTONE_KIND_CONFLICT = 4,
  // Somebody else holds it (the directory's lock): wait or pick another.
  SILTSTONE_KIND_BUSY = 5,
  // Stored bytes are not what was written: restore, or repair. Nothing was answered from them.
  SILTSTONE_KIND_CORRUPTION = 6,
  // The file system failed; file and cause are in the message.
  SILTSTONE_KIND_IO = 7,
  // No space left. Reads go on; writes resume by themselves once there is space.
  SILTSTONE_KIND_DISK_FULL = 8,
  // A write or sync of the WAL failed before. Reads go on; reopen the database to write again.
  SILTSTONE_KIND_POISONED = 9,
  // The database, or what it belongs to, was closed.
  SILTSTONE_KIND_CLOSED = 10,
  // The database was opened read-only.
  SILTSTONE_KIND_READ_ONLY = 11,
  // Written by a newer release, or needs a name (merge operator, filter) that was not registered.
  SILTSTONE_KIND_UNSUPPORTED = 12,
  // A stream of changes asked for writes that are not in the WAL any more.
  SILTSTONE_KIND_CHANGES_LOST = 13,
  // Cancelled by its caller.
  SILTSTONE_KIND_CANCELED = 14,
  // The family's merge operator refused a key's operands. Other keys are not affected.
  SILTSTONE_KIND_MERGE_REFUSED = 15,
  // A kind that is newer than this header.
  SILTSTONE_KIND_OTHER = 255,
} siltstone_kind;

// Writes, of any families of one database, for `siltstone_write`. To be used by one thread at a time.
typedef struct siltstone_batch siltstone_batch;

// An open database. May be used by several threads at once.
typedef struct siltstone_db siltstone_db;

// Why a call failed. The caller frees it with `siltstone_error_free`.
typedef struct siltstone_error siltstone_error;

// A column family: an ordered map of keys to values. May be used by several threads at once.
typedef struct siltstone_family siltstone_family;

// A place among the entries of a range. To be used by one thread at a time.
typedef struct siltstone_iterator siltstone_iterator;

// How a database is opened. Made by `siltstone_options_new`, freed with `siltstone_options_free`, to be used
// by one thread at a time. May be used for several databases.
typedef struct siltstone_options siltstone_options;

// The result of a merge operator, to be set by it. Valid during its call alone.
typedef struct siltstone_output siltstone_output;

// A read point, made by `siltstone_snapshot_new`. May be used by several threads at once.
typedef struct siltstone_snapshot siltstone_snapshot;

// Sees one moment under its own writes, which take effect together at the commit, or not at all. To be used
// by one thread at a time.
typedef struct siltstone_transaction siltstone_transaction;

// A value, held where it lies: in memory or in the block cache. What it holds is kept until it is freed,
// also when the key is written anew or the database closed. Must not be copied as a struct and freed twice.
typedef struct {
  // The first byte; NULL where the key is not there. Not NULL for a value of no bytes.
  const uint8_t *data;
  // How many there are.
  size_t len;
  // The library's own: more than it needs, so that it may grow.
  size_t reserved[6];
} siltstone_value;

// Bytes that belong to somebody else. NULL with length 0 is no bytes where bytes are asked for, and nothing
// given where that may be left out.
typedef struct {
  // The first byte.
  const uint8_t *data;
  // How many there are.
  size_t len;
} siltstone_slice;

// Combines operands, oldest first, with the key's value before them (`base`, NULL where there is none), and
// says what came of it by `siltstone_output_value` or `siltstone_output_refuse`. Called by readers and by
// workers of the engine, also at once. Must answer the same whenever it is asked the same, and whether it
// gets operands one after the other or together. It must return (no longjmp and no C++ exception may leave
// it) and must not use the database.
typedef void (*siltstone_operator_function)(void *context,
                                            siltstone_slice key,
                                            const siltstone_slice *base,
                                            const siltstone_slice *operands,
                                            size_t operand_count,
                                            siltstone_output *output);

// Whether the value is unwanted; `now_us` is the time in microseconds since 1970. Once a value is unwanted
// it must stay so. Called by readers and by workers of the engine, also at once. It must return (no longjmp
// and no C++ exception may leave it) and must not use the database.
typedef bool (*siltstone_filter_function)(void *context,
                                          siltstone_slice key,
                                          uint64_t timestamp,
                                          siltstone_slice value,
                                          uint64_t now_us);

// A range of keys, in the order of their bytes: from `start` up to, but not including, `end`; or those that
// begin with `prefix`, if that is given instead. What is left out (`data` NULL) does not bound it: `{0}` is
// all keys.
typedef struct {
  // The first key.
  siltstone_slice start;
  // The key behind the last one.
  siltstone_slice end;
  // The prefix of all keys.
  siltstone_slice prefix;
} siltstone_range;

// The entry of an iterator. Valid until the iterator is moved or freed.
typedef struct {
  // The key.
  siltstone_slice key;
  // Its value.
  siltstone_slice value;
  // Zero where timestamps are implicit.
  uint64_t timestamp;
} siltstone_entry;

// Is called with each entry of a scan, which is valid during that call; true goes on, false ends the scan.
typedef bool (*siltstone_entry_function)(void *context, const siltstone_entry *entry);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Lets go of a value, whose `data` becomes NULL. One without data, and NULL, are fine.
void siltstone_value_free(siltstone_value *value);

// Frees a text of this library's and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
void siltstone_text_free(char **text);

// How to react to an error; `SILTSTONE_KIND_NONE` for NULL.
siltstone_kind siltstone_error_kind(const siltstone_error *error);

// One line that says what happened, with file, offset and cause where they are known; empty for NULL. Lives
// as long as the error.
const char *siltstone_error_message(const siltstone_error *error);

// The file concerned, or NULL. Lives as long as the error.
const char *siltstone_error_file(const siltstone_error *error);

// Puts the place in that file, in bytes, into `offset` and answers true, or answers false where none is
// known.
bool siltstone_error_offset(const siltstone_error *error, uint64_t *offset);

// Frees an error and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
void siltstone_error_free(siltstone_error **error);

// The operator's answer: these bytes, which are copied.
void siltstone_output_value(siltstone_output *output, siltstone_slice value);

// The operator's answer: it does not take these operands. Reads of the key answer
// `SILTSTONE_KIND_MERGE_REFUSED` with this text, and the operands stay.
void siltstone_output_refuse(siltstone_output *output, siltstone_slice why);

// Options as they are by default.
siltstone_options *siltstone_options_new(void);

// Sets what the TOML text says, and nothing if it is wrong. Options have the names and meanings that
// docs.rs/siltstone gives for `Options` and `FamilyOptions`; sizes may be numbers of bytes or texts such as
// "64MiB", times numbers of microseconds or texts such as "30days":
//
//     write_memory = "128MiB"
//     sstable_reads = "mapped"
//     [families.events]               # made if it is not there
//     timestamps = "explicit"
//     strategy = "size_tiered{runs=4}"
//
// A family that is named there gets all its options by it: those that are not given have their defaults. To
// change some of a family's options and keep the others, use `siltstone_family_alter`.
siltstone_error *siltstone_options_parse(siltstone_options *options, const char *toml);

// Registers a merge operator under the name that families refer to (`merge_operator = "name"`). `context` is
// handed to each call, from several threads at once. `free_context` (which may be NULL) is called with it
// once, on any thread, when neither these options nor a database need it any more, or when this call fails.
siltstone_error *siltstone_options_merge_operator(siltstone_options *options,
                                                  const char *name,
                                                  siltstone_operator_function function,
                                                  void *context,
                                                  void (*free_context)(void*));

// Registers a compaction filter under the name that families refer to (`filter = "name"`). `context` is
// treated as for merge operators.
siltstone_error *siltstone_options_filter(siltstone_options *options,
                                          const char *name,
                                          siltstone_filter_function function,
                                          void *context,
                                          void (*free_context)(void*));

// Frees options and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
void siltstone_options_free(siltstone_options **options);

// The version of this library.
const char *siltstone_version(void);

// Opens the database in a directory, and makes one where there is none. `options` may be NULL. `*db` is
// freed with `siltstone_db_free`; where this fails it becomes NULL.
siltstone_error *siltstone_open(const char *dir, const siltstone_options *options, siltstone_db **db);

// Opens a database read-only: nothing on disk changes, writes are refused. Another process may have it open.
siltstone_error *siltstone_open_read_only(const char *dir,
                                          const siltstone_options *options,
                                          siltstone_db **db);

// Closes a database: waits for its workers and unlocks its directory. Calls that come later, by this handle
// and all that were made of it, answer `SILTSTONE_KIND_CLOSED`. Values stay, and batches and transactions
// may still be filled, but not committed. May be called again.
siltstone_error *siltstone_close(const siltstone_db *db);

// Frees a database's handle and sets the pointer to NULL. Unless `siltstone_close` did so, the database
// itself is closed when all families, iterators, transactions and batches with writes that were made of it
// are freed, too. NULL, and a pointer to NULL, are fine.
void siltstone_db_free(siltstone_db **db);

// The database's directory; lives as long as the handle. NULL for NULL.
const char *siltstone_db_path(const siltstone_db *db);

// Puts the family of that name into `*family`, or the one named "default", which every database has, for
// NULL. Freed with `siltstone_family_free`.
siltstone_error *siltstone_family_open(const siltstone_db *db, const char *name, siltstone_family **family);

// Makes a family. Its options are TOML text (`strategy = "size_tiered{runs=4}"`), NULL for the defaults.
siltstone_error *siltstone_create_family(const siltstone_db *db,
                                         const char *name,
                                         const char *toml,
                                         siltstone_family **family);

// Drops a family with all that it holds. Handles of it answer `SILTSTONE_KIND_NOT_FOUND` then.
siltstone_error *siltstone_drop_family(const siltstone_db *db, const char *name);

// The names of the families, each on a line of its own. Freed with `siltstone_text_free`.
siltstone_error *siltstone_family_names(const siltstone_db *db, char **names);

// Writes all of a batch or nothing. `seq` gets the sequence number of its last write; it may be NULL. The
// batch stays as it is.
siltstone_error *siltstone_write(const siltstone_db *db,
                                 const siltstone_batch *batch,
                                 int32_t durability,
                                 uint64_t *seq);

// A read point: reads that are given it see what was there now. Until it is freed, everything it sees stays
// on disk.
siltstone_error *siltstone_snapshot_new(const siltstone_db *db, siltstone_snapshot **snapshot);

// Makes all that was written durable.
siltstone_error *siltstone_sync(const siltstone_db *db);

// Flushes the memory of all families to SSTables.
siltstone_error *siltstone_flush(const siltstone_db *db);

// Waits until no flush and no compaction is running or due.
siltstone_error *siltstone_wait_idle(const siltstone_db *db);

// Sets the limits of memory, in bytes: for unflushed writes, and in total.
siltstone_error *siltstone_set_memory_limits(const siltstone_db *db,
                                             uint64_t write_memory,
                                             uint64_t memory_budget);

// Bytes a second that flushes and compactions may write together; 0 for no limit.
siltstone_error *siltstone_set_rate_limit(const siltstone_db *db, uint64_t bytes_per_second);

// The family's name; lives as long as the handle. NULL for NULL.
const char *siltstone_family_name(const siltstone_family *family);

// Frees a family's handle and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
void siltstone_family_free(siltstone_family **family);

// Changes options by TOML text (`bloom_bits = 12`), without rewriting data. `timestamps` cannot change.
siltstone_error *siltstone_family_alter(const siltstone_family *family, const char *toml);

// Sets a key's value. With explicit timestamps the version gets the current time. `durability` is
// `SILTSTONE_BUFFERED` or `SILTSTONE_SYNC`.
siltstone_error *siltstone_put(const siltstone_family *family,
                               siltstone_slice key,
                               siltstone_slice value,
                               int32_t durability);

// Sets the version of that timestamp, where timestamps are explicit.
siltstone_error *siltstone_put_at(const siltstone_family *family,
                                  siltstone_slice key,
                                  uint64_t timestamp,
                                  siltstone_slice value,
                                  int32_t durability);

// Deletes a key, with all its versions. A key that is not there may be deleted.
siltstone_error *siltstone_delete(const siltstone_family *family, siltstone_slice key, int32_t durability);

// Deletes a key's versions up to that timestamp, where timestamps are explicit.
siltstone_error *siltstone_delete_at(const siltstone_family *family,
                                     siltstone_slice key,
                                     uint64_t timestamp,
                                     int32_t durability);

// Adds an operand for the family's merge operator, which readers and compactions apply.
siltstone_error *siltstone_merge(const siltstone_family *family,
                                 siltstone_slice key,
                                 siltstone_slice operand,
                                 int32_t durability);

// Adds an operand at a timestamp of choice.
siltstone_error *siltstone_merge_at(const siltstone_family *family,
                                    siltstone_slice key,
                                    uint64_t timestamp,
                                    siltstone_slice operand,
                                    int32_t durability);

// Deletes all keys of a range, at the cost of one write; all keys for NULL.
siltstone_error *siltstone_delete_range(const siltstone_family *family,
                                        const siltstone_range *range,
                                        int32_t durability);

// Puts the key's newest value into `*value`: now, or at a snapshot if that is not NULL. `value->data` is
// NULL where the key is not there. Free it with `siltstone_value_free` before it is used for another key.
// What `*value` was before does not matter.
siltstone_error *siltstone_get(const siltstone_family *family,
                               const siltstone_snapshot *snapshot,
                               siltstone_slice key,
                               siltstone_value *value);

// Puts the values of `count` keys into `values`, as of one moment. Cheaper than a `siltstone_get` each. If
// it fails all of `values` are empty; else each is freed with `siltstone_value_free`.
siltstone_error *siltstone_get_many(const siltstone_family *family,
                                    const siltstone_snapshot *snapshot,
                                    const siltstone_slice *keys,
                                    size_t count,
                                    siltstone_value *values);

// Puts an iterator over a range (all keys for NULL) into `*iterator`, which sees the family as it is now, or
// at a snapshot. It stands nowhere yet. With explicit timestamps it stands at each version, newest first.
// Freed with `siltstone_iterator_free`.
siltstone_error *siltstone_scan(const siltstone_family *family,
                                const siltstone_snapshot *snapshot,
                                const siltstone_range *range,
                                siltstone_iterator **iterator);

// Puts an iterator into `*iterator` as `siltstone_scan` does, over versions with timestamps from `from` up
// to, but not including, `to`. Where timestamps are explicit.
siltstone_error *siltstone_scan_times(const siltstone_family *family,
                                      const siltstone_snapshot *snapshot,
                                      const siltstone_range *range,
                                      uint64_t from,
                                      uint64_t to,
                                      siltstone_iterator **iterator);

// Flushes the family's memory to SSTables.
siltstone_error *siltstone_family_flush(const siltstone_family *family);

// Compacts all that was written in a range (all keys for NULL) into the last level.
siltstone_error *siltstone_compact(const siltstone_family *family, const siltstone_range *range);

// About how many bytes and cells of SSTables a range has; nothing of memory counts. `bytes` and `cells` may
// be NULL.
siltstone_error *siltstone_estimate(const siltstone_family *family,
                                    const siltstone_range *range,
                                    uint64_t *bytes,
                                    uint64_t *cells);

// The sequence number of the last write that it sees; 0 for NULL.
uint64_t siltstone_snapshot_seq(const siltstone_snapshot *snapshot);

// Frees a snapshot and sets the pointer to NULL. Iterators that were made at it go on. NULL, and a pointer
// to NULL, are fine.
void siltstone_snapshot_free(siltstone_snapshot **snapshot);

// Moves to the first entry. `*entry` is where the iterator stands then, or NULL where there is no entry.
// After an error, which also sets `*entry` to NULL, the iterator stands nowhere and may be put somewhere
// again.
siltstone_error *siltstone_iterator_first(siltstone_iterator *iterator, const siltstone_entry **entry);

// Moves to the last entry.
siltstone_error *siltstone_iterator_last(siltstone_iterator *iterator, const siltstone_entry **entry);

// Moves to the first entry at or after that key.
siltstone_error *siltstone_iterator_seek(siltstone_iterator *iterator,
                                         siltstone_slice key,
                                         const siltstone_entry **entry);

// Moves to the last entry at or before that key.
siltstone_error *siltstone_iterator_seek_back(siltstone_iterator *iterator,
                                              siltstone_slice key,
                                              const siltstone_entry **entry);

// Moves to the entry behind this one. Where it stands nowhere, it stays there.
siltstone_error *siltstone_iterator_next(siltstone_iterator *iterator, const siltstone_entry **entry);

// Moves to the entry before this one. Where it stands nowhere, it stays there.
siltstone_error *siltstone_iterator_prev(siltstone_iterator *iterator, const siltstone_entry **entry);

// Frees an iterator and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
void siltstone_iterator_free(siltstone_iterator **iterator);

// A batch without writes.
siltstone_batch *siltstone_batch_new(void);

// See `siltstone_put`. Key and value are copied.
siltstone_error *siltstone_batch_put(siltstone_batch *batch,
                                     const siltstone_family *family,
                                     siltstone_slice key,
                                     siltstone_slice value);

// See `siltstone_put_at`.
siltstone_error *siltstone_batch_put_at(siltstone_batch *batch,
                                        const siltstone_family *family,
                                        siltstone_slice key,
                                        uint64_t timestamp,
                                        siltstone_slice value);

// See `siltstone_delete`.
siltstone_error *siltstone_batch_delete(siltstone_batch *batch,
                                        const siltstone_family *family,
                                        siltstone_slice key);

// See `siltstone_delete_at`.
siltstone_error *siltstone_batch_delete_at(siltstone_batch *batch,
                                           const siltstone_family *family,
                                           siltstone_slice key,
                                           uint64_t timestamp);

// See `siltstone_merge`.
siltstone_error *siltstone_batch_merge(siltstone_batch *batch,
                                       const siltstone_family *family,
                                       siltstone_slice key,
                                       siltstone_slice operand);

// See `siltstone_merge_at`.
siltstone_error *siltstone_batch_merge_at(siltstone_batch *batch,
                                          const siltstone_family *family,
                                          siltstone_slice key,
                                          uint64_t timestamp,
                                          siltstone_slice operand);

// See `siltstone_delete_range`.
siltstone_error *siltstone_batch_delete_range(siltstone_batch *batch,
                                              const siltstone_family *family,
                                              const siltstone_range *range);

// How many writes it has; 0 for NULL.
size_t siltstone_batch_count(const siltstone_batch *batch);

// Bytes of all its keys and values; 0 for NULL.
size_t siltstone_batch_bytes(const siltstone_batch *batch);

// Forgets all writes and keeps the memory.
void siltstone_batch_clear(siltstone_batch *batch);

// Frees a batch and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
void siltstone_batch_free(siltstone_batch **batch);

// Begins a transaction; `isolation` is `SILTSTONE_SERIALIZABLE` or `SILTSTONE_SNAPSHOT`. End it with
// `siltstone_commit`, or with `siltstone_transaction_free`, which discards its writes.
siltstone_error *siltstone_begin(const siltstone_db *db,
                                 int32_t isolation,
                                 siltstone_transaction **transaction);

// Commits a transaction, or answers `SILTSTONE_KIND_CONFLICT`. Either way the transaction is freed and its
// pointer set to NULL. `seq` gets the last sequence number; it may be NULL.
siltstone_error *siltstone_commit(siltstone_transaction **transaction, int32_t durability, uint64_t *seq);

// Discards a transaction and sets its pointer to NULL. NULL, and a pointer to NULL, are fine.
void siltstone_transaction_free(siltstone_transaction **transaction);

// `siltstone_get` of what the transaction sees. The commit fails if others write to the key before, unless
// the isolation is `SILTSTONE_SNAPSHOT`.
siltstone_error *siltstone_transaction_get(const siltstone_transaction *transaction,
                                           const siltstone_family *family,
                                           siltstone_slice key,
                                           siltstone_value *value);

// `siltstone_get` of what the transaction sees. The commit fails if others write to the key before, whatever
// the isolation.
siltstone_error *siltstone_transaction_get_for_update(const siltstone_transaction *transaction,
                                                      const siltstone_family *family,
                                                      siltstone_slice key,
                                                      siltstone_value *value);

// Calls `function` with each entry of a range (all keys for NULL) that the transaction sees, in order, from
// the end where `reverse` says so. It must not use the transaction meanwhile.
siltstone_error *siltstone_transaction_scan(const siltstone_transaction *transaction,
                                            const siltstone_family *family,
                                            const siltstone_range *range,
                                            bool reverse,
                                            siltstone_entry_function function,
                                            void *context);

// See `siltstone_put`. Key and value are copied.
siltstone_error *siltstone_transaction_put(siltstone_transaction *transaction,
                                           const siltstone_family *family,
                                           siltstone_slice key,
                                           siltstone_slice value);

// See `siltstone_put_at`.
siltstone_error *siltstone_transaction_put_at(siltstone_transaction *transaction,
                                              const siltstone_family *family,
                                              siltstone_slice key,
                                              uint64_t timestamp,
                                              siltstone_slice value);

// See `siltstone_delete`.
siltstone_error *siltstone_transaction_delete(siltstone_transaction *transaction,
                                              const siltstone_family *family,
                                              siltstone_slice key);

// See `siltstone_delete_at`.
siltstone_error *siltstone_transaction_delete_at(siltstone_transaction *transaction,
                                                 const siltstone_family *family,
                                                 siltstone_slice key,
                                                 uint64_t timestamp);

// See `siltstone_merge`.
siltstone_error *siltstone_transaction_merge(siltstone_transaction *transaction,
                                             const siltstone_family *family,
                                             siltstone_slice key,
                                             siltstone_slice operand);

// See `siltstone_merge_at`.
siltstone_error *siltstone_transaction_merge_at(siltstone_transaction *transaction,
                                                const siltstone_family *family,
                                                siltstone_slice key,
                                                uint64_t timestamp,
                                                siltstone_slice operand);

// See `siltstone_delete_range`.
siltstone_error *siltstone_transaction_delete_range(siltstone_transaction *transaction,
                                                    const siltstone_family *family,
                                                    const siltstone_range *range);

// Marks this moment, for `siltstone_transaction_rollback`. Marks may be nested.
siltstone_error *siltstone_transaction_savepoint(siltstone_transaction *transaction);

// Forgets what was written since the newest mark, and that mark. `SILTSTONE_KIND_NOT_FOUND` if there is
// none.
siltstone_error *siltstone_transaction_rollback(siltstone_transaction *transaction);

// Statistics of the database since it was opened, as a JSON object. Freed with `siltstone_text_free`.
siltstone_error *siltstone_stats(const siltstone_db *db, char **json);

// Recent flushes, compactions and the like, oldest first, as a JSON array of texts. Freed with
// `siltstone_text_free`.
siltstone_error *siltstone_events(const siltstone_db *db, char **json);

// Makes a database of its own in a new directory, by hard links where it can.
siltstone_error *siltstone_checkpoint(const siltstone_db *db, const char *dir);

// Adds a backup to a directory of backups and puts its number into `id`, which may be NULL. What earlier
// ones have is not copied again.
siltstone_error *siltstone_backup(const siltstone_db *db, const char *dir, uint64_t *id);

// The backups in a directory, oldest first, as a JSON array. Freed with `siltstone_text_free`.
siltstone_error *siltstone_backups(const char *dir, char **json);

// Writes a backup, the newest one for id 0, to a new directory.
siltstone_error *siltstone_restore(const char *dir, uint64_t id, const char *to);

// Reads a closed database whole and tells what is wrong with it, as a JSON object. Freed with
// `siltstone_text_free`.
siltstone_error *siltstone_check(const char *dir, char **json);

// Saves what can be saved of a damaged database that is closed, and tells what, as a JSON object. Freed with
// `siltstone_text_free`.
siltstone_error *siltstone_repair(const char *dir, char **json);

// Deletes a database that is closed, with all that it holds. `SILTSTONE_KIND_NOT_FOUND` where there is none.
siltstone_error *siltstone_destroy(const char *dir);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SILTSTONE_H */
