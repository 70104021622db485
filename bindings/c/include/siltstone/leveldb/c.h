// LevelDB's C interface over Siltstone: for programs that were written for LevelDB's header of the same name. They may as well be
// compiled with that and linked with libsiltstone in its place. Databases are Siltstone's own; LevelDB's are not read.
//
// Pointers must not be NULL where it does not say so. What is handed out is freed with leveldb_free. `errptr` points to NULL, or to
// a text from malloc, which is replaced on failure and left alone otherwise.
//
// This header is made of bindings/c/src/leveldb by cbindgen; `cargo xtask c --header` makes it anew.

#ifndef SILTSTONE_LEVELDB_C_H
#define SILTSTONE_LEVELDB_C_H

#include <stddef.h>
#include <stdint.h>
#include <stdarg.h>

enum { leveldb_no_compression = 0, leveldb_snappy_compression = 1 };

// Named by LevelDB's header, and used by none of its functions.
typedef struct leveldb_filelock_t leveldb_filelock_t;
typedef struct leveldb_randomfile_t leveldb_randomfile_t;
typedef struct leveldb_seqfile_t leveldb_seqfile_t;
typedef struct leveldb_writablefile_t leveldb_writablefile_t;

// How large a block cache is to be.
typedef struct leveldb_cache_t leveldb_cache_t;

// A comparator of the caller's.
typedef struct leveldb_comparator_t leveldb_comparator_t;

// The files of this machine.
typedef struct leveldb_env_t leveldb_env_t;

// How a database finds that a key is not in an SSTable.
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;

// An open database.
typedef struct leveldb_t leveldb_t;

// A place among the entries of a database.
typedef struct leveldb_iterator_t leveldb_iterator_t;

// How a database is opened.
typedef struct leveldb_options_t leveldb_options_t;

// A snapshot.
typedef struct leveldb_snapshot_t leveldb_snapshot_t;

// LevelDB hands none out.
typedef struct leveldb_logger_t leveldb_logger_t;

// How to read.
typedef struct leveldb_readoptions_t leveldb_readoptions_t;

// Writes that take effect together.
typedef struct leveldb_writebatch_t leveldb_writebatch_t;

// How to write.
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A comparator. `destructor` gets `state` when neither this nor options, databases and iterators that have
// it need it any more.
leveldb_comparator_t *leveldb_comparator_create(void *state,
                                                void (*destructor)(void*),
                                                int (*compare)(void*, const char*, size_t, const char*, size_t),
                                                const char *(*name)(void*));

// Frees a comparator.
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

// Filters of that many bits a key.
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

// A policy of the caller's: it is freed as such, but SSTables have filters of their own kind in its place.
// Its functions are not called.
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state,
                                                    void (*destructor)(void*),
                                                    char *(*create_filter)(void*,
                                                                           const char*const *,
                                                                           const size_t*,
                                                                           int,
                                                                           size_t*),
                                                    uint8_t (*key_may_match)(void*,
                                                                             const char*,
                                                                             size_t,
                                                                             const char*,
                                                                             size_t),
                                                    const char *(*name)(void*));

// Frees a policy.
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);

// Options as they are by default.
leveldb_options_t *leveldb_options_create(void);

// Frees options.
void leveldb_options_destroy(leveldb_options_t *options);

// Keys are in this order, which must be that of their bytes: calls fail where it is seen to be another.
void leveldb_options_set_comparator(leveldb_options_t *options, const leveldb_comparator_t *comparator);

// SSTables get filters, or none for NULL.
void leveldb_options_set_filter_policy(leveldb_options_t *options, const leveldb_filterpolicy_t *policy);

// Whether a database is made where there is none. Default 0.
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t create);

// Whether opening fails where there is a database. Default 0.
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t error);

// Does nothing: everything that is read is checked.
void leveldb_options_set_paranoid_checks(leveldb_options_t *options, uint8_t check);

// Does nothing: there is one environment.
void leveldb_options_set_env(leveldb_options_t *options, const leveldb_env_t *env);

// Does nothing.
void leveldb_options_set_info_log(leveldb_options_t *options, const leveldb_logger_t *logger);

// Bytes of writes in memory before they are flushed to SSTables; twice as much may be in memory. Default 4
// MiB.
void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t bytes);

// Files open at a time. Default 1,000.
void leveldb_options_set_max_open_files(leveldb_options_t *options, int files);

// The block cache gets as much as this one was made for; each database has its own. Default 8 MiB.
void leveldb_options_set_cache(leveldb_options_t *options, const leveldb_cache_t *cache);

// Bytes of a block. Default 4 KiB.
void leveldb_options_set_block_size(leveldb_options_t *options, size_t bytes);

// Does nothing: blocks are made otherwise here.
void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int keys);

// Bytes of an SSTable. Default 2 MiB; less than 1 MiB is taken for that.
void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t bytes);

// 0 for SSTables without compression; all else compresses with lz4. Default: compressed.
void leveldb_options_set_compression(leveldb_options_t *options, int compression);

// Reads of the present.
leveldb_readoptions_t *leveldb_readoptions_create(void);

// Frees options.
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);

// Does nothing: everything that is read is checked.
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *options, uint8_t verify);

// Does nothing: what scans read once leaves the cache first.
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, uint8_t fill);

// Reads of that moment, or of the present for NULL. The moment stays readable until these options have
// another one or are freed.
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options, const leveldb_snapshot_t *snapshot);

// Writes that a kill of the process cannot lose.
leveldb_writeoptions_t *leveldb_writeoptions_create(void);

// Frees options.
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);

// Whether a power loss cannot lose them either. Default 0.
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t sync);

// A block cache of that many bytes.
leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);

// Frees it; databases keep theirs.
void leveldb_cache_destroy(leveldb_cache_t *cache);

// The one environment.
leveldb_env_t *leveldb_create_default_env(void);

// Frees it.
void leveldb_env_destroy(leveldb_env_t *env);

// A directory for tests: what `TEST_TMPDIR` says, or one of the user's among the temporary files. Freed with
// `leveldb_free`.
char *leveldb_env_get_test_directory(const leveldb_env_t *env);

// Opens a database.
leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr);

// Closes a database and frees its handle.
void leveldb_close(leveldb_t *db);

// Sets a key's value.
void leveldb_put(const leveldb_t *db,
                 const leveldb_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

// Deletes a key, which need not be there.
void leveldb_delete(const leveldb_t *db,
                    const leveldb_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

// Writes all of a batch or nothing.
void leveldb_write(const leveldb_t *db,
                   const leveldb_writeoptions_t *options,
                   const leveldb_writebatch_t *batch,
                   char **errptr);

// The key's value, to be freed with `leveldb_free`, or NULL.
char *leveldb_get(const leveldb_t *db,
                  const leveldb_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

// A snapshot of now, for `leveldb_readoptions_set_snapshot`.
const leveldb_snapshot_t *leveldb_create_snapshot(const leveldb_t *db);

// Frees a snapshot.
void leveldb_release_snapshot(const leveldb_t *db, const leveldb_snapshot_t *snapshot);

// A property of the database, to be freed with `leveldb_free`: `leveldb.stats`, `leveldb.sstables`,
// `leveldb.num-files-at-level<N>`, `leveldb.approximate-memory-usage`. NULL for other names.
char *leveldb_property_value(const leveldb_t *db, const char *propname);

// About how many bytes of SSTables each of the ranges has. A range that cannot be read has 0.
void leveldb_approximate_sizes(const leveldb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes);

// Compacts all of a range into the last level; a NULL key does not bound it.
void leveldb_compact_range(const leveldb_t *db,
                           const char *start_key,
                           size_t start_key_len,
                           const char *limit_key,
                           size_t limit_key_len);

// Deletes a database that is closed, with all that it holds. What is not a database's is left there; where
// there is none, nothing is done.
void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **errptr);

// Saves what can be saved of a damaged database that is closed.
void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **errptr);

// A batch without writes.
leveldb_writebatch_t *leveldb_writebatch_create(void);

// Frees a batch.
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);

// Forgets all writes.
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);

// Adds a put. Key and value are copied.
void leveldb_writebatch_put(leveldb_writebatch_t *batch,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

// Adds a delete.
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen);

// Calls one of the functions for each write, in order.
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch,
                                void *state,
                                void (*put)(void *state,
                                            const char *k,
                                            size_t klen,
                                            const char *v,
                                            size_t vlen),
                                void (*deleted)(void *state, const char *k, size_t klen));

// Adds all writes of `source`, which may be the same batch.
void leveldb_writebatch_append(leveldb_writebatch_t *destination, const leveldb_writebatch_t *source);

// An iterator over the whole database, as it is now or as the options say. It stands nowhere yet.
leveldb_iterator_t *leveldb_create_iterator(const leveldb_t *db, const leveldb_readoptions_t *options);

// Frees an iterator.
void leveldb_iter_destroy(leveldb_iterator_t *iterator);

// Whether it stands at an entry.
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iterator);

// Moves to the first entry.
void leveldb_iter_seek_to_first(leveldb_iterator_t *iterator);

// Moves to the last entry.
void leveldb_iter_seek_to_last(leveldb_iterator_t *iterator);

// Moves to the first entry at or after that key.
void leveldb_iter_seek(leveldb_iterator_t *iterator, const char *k, size_t klen);

// Moves to the next entry.
void leveldb_iter_next(leveldb_iterator_t *iterator);

// Moves to the entry before.
void leveldb_iter_prev(leveldb_iterator_t *iterator);

// The key where it stands, valid until it is moved.
const char *leveldb_iter_key(const leveldb_iterator_t *iterator, size_t *klen);

// The value where it stands, valid until it is moved.
const char *leveldb_iter_value(const leveldb_iterator_t *iterator, size_t *vlen);

// The error of its last move, if there was one.
void leveldb_iter_get_error(const leveldb_iterator_t *iterator, char **errptr);

// Frees what this library handed out.
void leveldb_free(void *memory);

// The version of LevelDB whose interface this is.
int32_t leveldb_major_version(void);

// See `leveldb_major_version`.
int32_t leveldb_minor_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SILTSTONE_LEVELDB_C_H */
