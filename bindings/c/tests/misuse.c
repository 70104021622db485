// Wrong calls are errors, and harm nothing: NULL for every argument, use after close, freeing twice. `misuse DIR`
#include "common.h"
#include <sys/stat.h>
#include <unistd.h>

#define INVALID(call) FAILS(call, SILTSTONE_KIND_INVALID)
#define CLOSED(call) FAILS(call, SILTSTONE_KIND_CLOSED)

static siltstone_slice nothing_of_five = {NULL, 5};

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void expect_file(const char *path, const char *expected) {
  char text[64];
  FILE *file = fopen(path, "r");
  EXPECT(file != NULL && fgets(text, sizeof text, file) != NULL && strcmp(text, expected) == 0 && fclose(file) == 0);
}

static void count(void *context) { ++*(int *)context; }

static void refuse(void *context, siltstone_slice key, const siltstone_slice *base, const siltstone_slice *operands,
                   size_t operand_count, siltstone_output *output) {
  (void)context, (void)key, (void)base, (void)operands, (void)operand_count;
  siltstone_output_refuse(output, s("never"));
}

static bool keep(void *context, siltstone_slice key, uint64_t timestamp, siltstone_slice value, uint64_t now_us) {
  (void)context, (void)key, (void)timestamp, (void)value, (void)now_us;
  return false;
}

static void nulls(const char *dir) {
  siltstone_db *db;
  siltstone_family *family;
  siltstone_value value;
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  siltstone_snapshot *snapshot;
  siltstone_transaction *transaction;
  siltstone_batch *batch = siltstone_batch_new();
  siltstone_options *options = siltstone_options_new();
  char *text;

  INVALID(siltstone_open(NULL, NULL, &db));
  EXPECT(db == NULL);
  INVALID(siltstone_open(dir, NULL, NULL));
  INVALID(siltstone_open_read_only(NULL, NULL, &db));
  INVALID(siltstone_close(NULL));
  INVALID(siltstone_family_open(NULL, NULL, &family));
  INVALID(siltstone_create_family(NULL, "a", NULL, &family));
  INVALID(siltstone_drop_family(NULL, "a"));
  INVALID(siltstone_family_names(NULL, &text));
  INVALID(siltstone_write(NULL, batch, SILTSTONE_BUFFERED, NULL));
  INVALID(siltstone_snapshot_new(NULL, &snapshot));
  INVALID(siltstone_sync(NULL));
  INVALID(siltstone_flush(NULL));
  INVALID(siltstone_wait_idle(NULL));
  INVALID(siltstone_set_memory_limits(NULL, 1, 1));
  INVALID(siltstone_set_rate_limit(NULL, 1));
  INVALID(siltstone_begin(NULL, SILTSTONE_SNAPSHOT, &transaction));
  INVALID(siltstone_stats(NULL, &text));
  INVALID(siltstone_events(NULL, &text));
  EXPECT(text == NULL && db == NULL && family == NULL && snapshot == NULL && transaction == NULL);
  INVALID(siltstone_checkpoint(NULL, dir));
  INVALID(siltstone_backup(NULL, dir, NULL));
  INVALID(siltstone_backups(NULL, &text));
  INVALID(siltstone_restore(NULL, 1, dir));
  INVALID(siltstone_restore(dir, 1, NULL));
  INVALID(siltstone_check(NULL, &text));
  INVALID(siltstone_check(dir, NULL));
  INVALID(siltstone_repair(NULL, &text));
  INVALID(siltstone_destroy(NULL));
  INVALID(siltstone_put(NULL, s("a"), s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_put_at(NULL, s("a"), 1, s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_delete(NULL, s("a"), SILTSTONE_BUFFERED));
  INVALID(siltstone_delete_at(NULL, s("a"), 1, SILTSTONE_BUFFERED));
  INVALID(siltstone_merge(NULL, s("a"), s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_merge_at(NULL, s("a"), 1, s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_delete_range(NULL, NULL, SILTSTONE_BUFFERED));
  INVALID(siltstone_get(NULL, NULL, s("a"), &value));
  EXPECT(value.data == NULL);
  INVALID(siltstone_get_many(NULL, NULL, (siltstone_slice[]){s("a")}, 1, &value));
  INVALID(siltstone_scan(NULL, NULL, NULL, &iterator));
  INVALID(siltstone_scan_times(NULL, NULL, NULL, 1, 2, &iterator));
  INVALID(siltstone_family_flush(NULL));
  INVALID(siltstone_family_alter(NULL, ""));
  INVALID(siltstone_compact(NULL, NULL));
  INVALID(siltstone_estimate(NULL, NULL, NULL, NULL));
  INVALID(siltstone_iterator_first(NULL, &entry));
  INVALID(siltstone_iterator_last(NULL, &entry));
  INVALID(siltstone_iterator_next(NULL, &entry));
  INVALID(siltstone_iterator_prev(NULL, &entry));
  INVALID(siltstone_iterator_seek(NULL, s("a"), &entry));
  INVALID(siltstone_iterator_seek_back(NULL, s("a"), &entry));
  INVALID(siltstone_options_parse(NULL, ""));
  INVALID(siltstone_options_parse(options, NULL));
  // The context is freed, whatever is wrong, and when another function takes the name.
  int freed = 0;
  INVALID(siltstone_options_merge_operator(options, "a", NULL, &freed, count));
  INVALID(siltstone_options_merge_operator(options, NULL, refuse, &freed, count));
  INVALID(siltstone_options_merge_operator(NULL, "a", refuse, &freed, count));
  INVALID(siltstone_options_filter(options, "a", NULL, &freed, count));
  INVALID(siltstone_options_filter(options, "\xff", keep, &freed, count));
  INVALID(siltstone_options_filter(NULL, "a", keep, &freed, count));
  EXPECT(freed == 6);
  OK(siltstone_options_merge_operator(options, "a", refuse, &freed, count));
  OK(siltstone_options_merge_operator(options, "a", refuse, NULL, NULL));
  EXPECT(freed == 7);
  INVALID(siltstone_commit(NULL, SILTSTONE_BUFFERED, NULL));
  INVALID(siltstone_transaction_get(NULL, NULL, s("a"), &value));
  INVALID(siltstone_transaction_get_for_update(NULL, NULL, s("a"), &value));
  INVALID(siltstone_transaction_scan(NULL, NULL, NULL, false, NULL, NULL));
  INVALID(siltstone_transaction_put(NULL, NULL, s("a"), s("b")));
  INVALID(siltstone_transaction_put_at(NULL, NULL, s("a"), 1, s("b")));
  INVALID(siltstone_transaction_delete_at(NULL, NULL, s("a"), 1));
  INVALID(siltstone_transaction_merge_at(NULL, NULL, s("a"), 1, s("b")));
  INVALID(siltstone_batch_put_at(NULL, NULL, s("a"), 1, s("b")));
  INVALID(siltstone_batch_delete_at(NULL, NULL, s("a"), 1));
  INVALID(siltstone_batch_merge_at(NULL, NULL, s("a"), 1, s("b")));
  INVALID(siltstone_transaction_delete(NULL, NULL, s("a")));
  INVALID(siltstone_transaction_merge(NULL, NULL, s("a"), s("b")));
  INVALID(siltstone_transaction_delete_range(NULL, NULL, NULL));
  INVALID(siltstone_transaction_savepoint(NULL));
  INVALID(siltstone_transaction_rollback(NULL));
  INVALID(siltstone_batch_put(NULL, NULL, s("a"), s("b")));
  INVALID(siltstone_batch_put(batch, NULL, s("a"), s("b")));
  INVALID(siltstone_batch_delete(NULL, NULL, s("a")));
  INVALID(siltstone_batch_merge(NULL, NULL, s("a"), s("b")));
  INVALID(siltstone_batch_delete_range(NULL, NULL, NULL));

  OK(siltstone_open(below(dir, "db"), NULL, &db));
  OK(siltstone_family_open(db, NULL, &family));
  INVALID(siltstone_family_open(db, NULL, NULL));
  siltstone_family *unmade;
  INVALID(siltstone_create_family(db, NULL, NULL, &unmade));
  INVALID(siltstone_drop_family(db, NULL));
  INVALID(siltstone_family_names(db, NULL));
  INVALID(siltstone_write(db, NULL, SILTSTONE_BUFFERED, NULL));
  INVALID(siltstone_write(db, batch, 2, NULL));
  INVALID(siltstone_snapshot_new(db, NULL));
  INVALID(siltstone_begin(db, SILTSTONE_SNAPSHOT, NULL));
  INVALID(siltstone_put(family, nothing_of_five, s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_put(family, s("a"), nothing_of_five, SILTSTONE_BUFFERED));
  INVALID(siltstone_put(family, s("a"), (siltstone_slice){(const uint8_t *)"a", SIZE_MAX}, SILTSTONE_BUFFERED));
  INVALID(siltstone_put(family, s("a"), s("b"), -1));
  INVALID(siltstone_put_at(family, s("a"), 1, s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_merge(family, s("a"), s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_get(family, NULL, nothing_of_five, &value));
  INVALID(siltstone_get(family, NULL, s("a"), NULL));
  INVALID(siltstone_get_many(family, NULL, NULL, 1, &value));
  INVALID(siltstone_get_many(family, NULL, (siltstone_slice[]){s("a")}, SIZE_MAX, &value));
  INVALID(siltstone_get_many(family, NULL, (siltstone_slice[]){s("a")}, SIZE_MAX / sizeof value, &value));
  INVALID(siltstone_get_many(family, NULL, (siltstone_slice[]){s("a")}, 1, NULL));
  INVALID(siltstone_get_many(family, NULL, (siltstone_slice[]){nothing_of_five}, 1, &value));
  EXPECT(value.data == NULL);
  INVALID(siltstone_scan(family, NULL, NULL, NULL));
  siltstone_range wrong = {.end = nothing_of_five};
  INVALID(siltstone_scan(family, NULL, &wrong, &iterator));
  INVALID(siltstone_delete_range(family, &wrong, SILTSTONE_BUFFERED));
  INVALID(siltstone_family_alter(family, NULL));
  // A family of another database.
  siltstone_db *other;
  siltstone_family *others;
  OK(siltstone_open(below(dir, "other"), NULL, &other));
  OK(siltstone_family_open(other, NULL, &others));
  OK(siltstone_batch_put(batch, others, s("a"), s("b")));
  INVALID(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
  OK(siltstone_begin(db, SILTSTONE_SERIALIZABLE, &transaction));
  OK(siltstone_transaction_put(transaction, others, s("a"), s("b")));
  INVALID(siltstone_transaction_scan(transaction, family, NULL, false, NULL, NULL));
  INVALID(siltstone_commit(&transaction, SILTSTONE_BUFFERED, NULL));
  EXPECT(transaction == NULL);
  expect_value(others, NULL, "a", NULL);
  siltstone_family_free(&others);
  siltstone_db_free(&other);
  // Nothing of all that was written.
  OK(siltstone_scan(family, NULL, NULL, &iterator));
  OK(siltstone_iterator_first(iterator, &entry));
  EXPECT(entry == NULL);
  INVALID(siltstone_iterator_first(iterator, NULL));
  siltstone_iterator_free(&iterator);
  siltstone_family_free(&family);
  siltstone_db_free(&db);
  siltstone_batch_free(&batch);
  siltstone_options_free(&options);

  // Queries without an answer.
  EXPECT(siltstone_db_path(NULL) == NULL && siltstone_family_name(NULL) == NULL);
  EXPECT(siltstone_batch_count(NULL) == 0 && siltstone_batch_bytes(NULL) == 0 && siltstone_snapshot_seq(NULL) == 0);
  EXPECT(siltstone_error_kind(NULL) == SILTSTONE_KIND_NONE && !siltstone_error_offset(NULL, NULL));
  siltstone_batch_clear(NULL);
  siltstone_output_value(NULL, s("a"));
  siltstone_output_refuse(NULL, s("a"));
}

static void freed_twice(const char *dir) {
  siltstone_db *db;
  siltstone_family *family;
  siltstone_iterator *iterator;
  siltstone_snapshot *snapshot;
  siltstone_transaction *transaction;
  siltstone_batch *batch = siltstone_batch_new();
  siltstone_options *options = siltstone_options_new();
  siltstone_value value;
  char *text;
  OK(siltstone_open(below(dir, "twice"), options, &db));
  OK(siltstone_family_open(db, NULL, &family));
  OK(siltstone_put(family, s("a"), s("b"), SILTSTONE_BUFFERED));
  OK(siltstone_get(family, NULL, s("a"), &value));
  OK(siltstone_scan(family, NULL, NULL, &iterator));
  OK(siltstone_snapshot_new(db, &snapshot));
  OK(siltstone_begin(db, SILTSTONE_SNAPSHOT, &transaction));
  OK(siltstone_stats(db, &text));
  siltstone_error *error = siltstone_write(db, NULL, SILTSTONE_BUFFERED, NULL);
  OK(siltstone_batch_put(batch, family, s("c"), s("d")));
  for (int twice = 0; twice < 2; twice++) {
    siltstone_error_free(&error);
    siltstone_text_free(&text);
    // Before all that was made of it.
    siltstone_db_free(&db);
    siltstone_family_free(&family);
    siltstone_iterator_free(&iterator);
    siltstone_snapshot_free(&snapshot);
    siltstone_transaction_free(&transaction);
    siltstone_batch_free(&batch);
    siltstone_options_free(&options);
    siltstone_value_free(&value);
  }
  // Used once freed.
  INVALID(siltstone_put(family, s("a"), s("b"), SILTSTONE_BUFFERED));
  INVALID(siltstone_flush(db));
  siltstone_db_free(NULL);
  siltstone_family_free(NULL);
  siltstone_iterator_free(NULL);
  siltstone_snapshot_free(NULL);
  siltstone_transaction_free(NULL);
  siltstone_batch_free(NULL);
  siltstone_options_free(NULL);
  siltstone_value_free(NULL);
  siltstone_text_free(NULL);
  siltstone_error_free(NULL);
  // The directory is free again.
  OK(siltstone_open(below(dir, "twice"), NULL, &db));
  siltstone_db_free(&db);
}

static void after_close(const char *dir) {
  siltstone_db *db;
  siltstone_family *family, *unmade;
  siltstone_iterator *iterator, *late;
  siltstone_snapshot *snapshot;
  siltstone_transaction *transaction, *unbegun;
  siltstone_value value, held;
  const siltstone_entry *entry;
  siltstone_snapshot *unmade_snapshot;
  char *text;
  siltstone_batch *batch = siltstone_batch_new();
  OK(siltstone_open(below(dir, "closed"), NULL, &db));
  OK(siltstone_family_open(db, NULL, &family));
  OK(siltstone_put(family, s("a"), s("b"), SILTSTONE_BUFFERED));
  OK(siltstone_flush(db));
  OK(siltstone_batch_put(batch, family, s("c"), s("d")));
  OK(siltstone_get(family, NULL, s("a"), &held));
  OK(siltstone_scan(family, NULL, NULL, &iterator));
  OK(siltstone_snapshot_new(db, &snapshot));
  OK(siltstone_begin(db, SILTSTONE_SERIALIZABLE, &transaction));
  OK(siltstone_transaction_put(transaction, family, s("e"), s("f")));
  OK(siltstone_close(db));
  OK(siltstone_close(db));
  CLOSED(siltstone_put(family, s("a"), s("b"), SILTSTONE_BUFFERED));
  CLOSED(siltstone_delete(family, s("a"), SILTSTONE_BUFFERED));
  CLOSED(siltstone_write(db, batch, SILTSTONE_SYNC, NULL));
  CLOSED(siltstone_get(family, NULL, s("a"), &value));
  CLOSED(siltstone_get(family, snapshot, s("a"), &value));
  CLOSED(siltstone_iterator_first(iterator, &entry));
  CLOSED(siltstone_transaction_get(transaction, family, s("a"), &value));
  CLOSED(siltstone_commit(&transaction, SILTSTONE_BUFFERED, NULL));
  CLOSED(siltstone_flush(db));
  CLOSED(siltstone_sync(db));
  CLOSED(siltstone_checkpoint(db, below(dir, "late")));
  CLOSED(siltstone_create_family(db, "late", NULL, &unmade));
  CLOSED(siltstone_family_open(db, NULL, &unmade));
  CLOSED(siltstone_drop_family(db, "default"));
  CLOSED(siltstone_family_names(db, &text));
  CLOSED(siltstone_scan(family, NULL, NULL, &late));
  CLOSED(siltstone_begin(db, SILTSTONE_SERIALIZABLE, &unbegun));
  CLOSED(siltstone_snapshot_new(db, &unmade_snapshot));
  CLOSED(siltstone_stats(db, &text));
  CLOSED(siltstone_events(db, &text));
  CLOSED(siltstone_set_rate_limit(db, 1));
  CLOSED(siltstone_set_memory_limits(db, 1 << 20, 8 << 20));
  CLOSED(siltstone_wait_idle(db));
  CLOSED(siltstone_backup(db, below(dir, "late"), NULL));
  CLOSED(siltstone_family_alter(family, "bloom_bits = 12"));
  CLOSED(siltstone_family_flush(family));
  CLOSED(siltstone_compact(family, NULL));
  CLOSED(siltstone_estimate(family, NULL, NULL, NULL));
  CLOSED(siltstone_get_many(family, NULL, (siltstone_slice[]){s("a")}, 1, &value));
  // What was handed out before stays.
  EXPECT(same((siltstone_slice){held.data, held.len}, "b"));
  siltstone_value_free(&held);
  siltstone_iterator_free(&iterator);
  siltstone_snapshot_free(&snapshot);
  siltstone_batch_free(&batch);
  siltstone_family_free(&family);
  siltstone_db_free(&db);
}

// A directory of other things is neither opened nor repaired nor deleted.
static void others(const char *dir) {
  const char *home = below(dir, "home");
  EXPECT(mkdir(home, 0755) == 0);
  write_file(below(home, "letter.new"), "dear");
  write_file(below(home, "syslog.log"), "booted");
  siltstone_db *db;
  char *text;
  INVALID(siltstone_open(home, NULL, &db));
  EXPECT(db == NULL);
  FAILS(siltstone_check(home, &text), SILTSTONE_KIND_NOT_FOUND);
  FAILS(siltstone_repair(home, &text), SILTSTONE_KIND_NOT_FOUND);
  FAILS(siltstone_destroy(home), SILTSTONE_KIND_NOT_FOUND);
  // Its two files are all that it has, and are as they were.
  expect_file(below(home, "letter.new"), "dear");
  expect_file(below(home, "syslog.log"), "booted");
  EXPECT(remove(below(home, "letter.new")) == 0 && remove(below(home, "syslog.log")) == 0);
  EXPECT(rmdir(home) == 0);
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  nulls(argv[1]);
  freed_twice(argv[1]);
  after_close(argv[1]);
  others(argv[1]);
  puts("misuse: passed");
  return 0;
}
