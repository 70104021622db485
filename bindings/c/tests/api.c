// Every call does what the header says. `api DIR`
#include "common.h"

#include <pthread.h>

static void concatenate(void *context, siltstone_slice key, const siltstone_slice *base, const siltstone_slice *operands,
                        size_t count, siltstone_output *output) {
  __atomic_add_fetch((int *)context, 1, __ATOMIC_RELAXED);
  if (same(key, "refused")) {
    siltstone_output_refuse(output, s("not this key"));
    return;
  }
  if (same(key, "silent")) return;
  char text[256];
  size_t len = 0;
  if (base != NULL) memcpy(text, base->data, len = base->len);
  for (size_t i = 0; i < count; i++) {
    memcpy(text + len, operands[i].data, operands[i].len);
    len += operands[i].len;
  }
  siltstone_output_value(output, (siltstone_slice){(uint8_t *)text, len});
}

static bool is_draft(void *context, siltstone_slice key, uint64_t timestamp, siltstone_slice value, uint64_t now_us) {
  (void)context, (void)key, (void)timestamp;
  EXPECT(now_us > 1600000000000000);
  return same(value, "draft");
}

static void freed(void *context) { __atomic_add_fetch((int *)context, 1000, __ATOMIC_RELAXED); }

static void errors(const char *dir) {
  siltstone_db *db = (siltstone_db *)1;
  siltstone_options *options = siltstone_options_new();
  OK(siltstone_options_parse(options, "create_if_missing = false"));
  siltstone_error *error = siltstone_open(below(dir, "none"), options, &db);
  EXPECT(siltstone_error_kind(error) == SILTSTONE_KIND_NOT_FOUND && db == NULL);
  EXPECT(siltstone_error_offset(error, NULL) == false);
  siltstone_error_free(&error);
  EXPECT(error == NULL);
  siltstone_error_free(&error);
  EXPECT(strcmp(siltstone_error_message(NULL), "") == 0 && siltstone_error_file(NULL) == NULL);

  // One wrong option, and nothing is set.
  error = siltstone_options_parse(options, "create_if_missing = true\nworkes = 3");
  EXPECT(strstr(siltstone_error_message(error), "workes") != NULL);
  siltstone_error_free(&error);
  FAILS(siltstone_open(below(dir, "none"), options, &db), SILTSTONE_KIND_NOT_FOUND);
  FAILS(siltstone_options_parse(options, "workers = "), SILTSTONE_KIND_INVALID);
  FAILS(siltstone_options_parse(options, "families = 3"), SILTSTONE_KIND_INVALID);
  FAILS(siltstone_options_parse(options, "families.a = 3"), SILTSTONE_KIND_INVALID);
  FAILS(siltstone_options_parse(options, "[families.a]\nstrategy = 'flat'"), SILTSTONE_KIND_INVALID);
  FAILS(siltstone_options_parse(options, "\xff"), SILTSTONE_KIND_INVALID);
  siltstone_options_free(&options);
  EXPECT(options == NULL);

  // An error names file and offset where it knows them.
  const char *damaged = below(dir, "damaged");
  OK(siltstone_open(damaged, NULL, &db));
  siltstone_db_free(&db);
  FILE *current = fopen(below(damaged, "CURRENT"), "r+");
  fputc('x', current);
  fclose(current);
  error = siltstone_open(damaged, NULL, &db);
  uint64_t offset = 7;
  EXPECT(siltstone_error_kind(error) == SILTSTONE_KIND_CORRUPTION);
  EXPECT(strstr(siltstone_error_file(error), "CURRENT") != NULL);
  EXPECT(siltstone_error_offset(error, &offset) && offset == 0);
  siltstone_error_free(&error);
}

static void reading_and_writing(siltstone_db *db) {
  siltstone_family *family;
  OK(siltstone_family_open(db, NULL, &family));
  EXPECT(strcmp(siltstone_family_name(family), "default") == 0);
  OK(siltstone_put(family, s("ant"), s("1"), SILTSTONE_BUFFERED));
  OK(siltstone_put(family, s("bee"), s("2"), SILTSTONE_SYNC));
  OK(siltstone_put(family, s("empty"), s(""), SILTSTONE_BUFFERED));
  OK(siltstone_put(family, (siltstone_slice){0}, s("of no key"), SILTSTONE_BUFFERED));
  expect_value(family, NULL, "ant", "1");
  expect_value(family, NULL, "empty", "");
  expect_value(family, NULL, "", "of no key");
  expect_value(family, NULL, "cat", NULL);
  OK(siltstone_delete(family, s(""), SILTSTONE_BUFFERED));

  // A value is held while it is written anew and the database flushed.
  siltstone_value value;
  OK(siltstone_get(family, NULL, s("bee"), &value));
  OK(siltstone_put(family, s("bee"), s("3"), SILTSTONE_BUFFERED));
  OK(siltstone_flush(db));
  EXPECT(same((siltstone_slice){value.data, value.len}, "2"));
  siltstone_value_free(&value);
  EXPECT(value.data == NULL);
  siltstone_value_free(&value);

  siltstone_slice keys[] = {s("bee"), s("cat"), s("ant")};
  siltstone_value values[3];
  OK(siltstone_get_many(family, NULL, keys, 3, values));
  EXPECT(same((siltstone_slice){values[0].data, values[0].len}, "3") && values[1].data == NULL);
  EXPECT(same((siltstone_slice){values[2].data, values[2].len}, "1"));
  for (int i = 0; i < 3; i++) siltstone_value_free(&values[i]);
  OK(siltstone_get_many(family, NULL, NULL, 0, NULL));

  siltstone_batch *batch = siltstone_batch_new();
  OK(siltstone_batch_put(batch, family, s("cat"), s("4")));
  OK(siltstone_batch_delete(batch, family, s("ant")));
  EXPECT(siltstone_batch_count(batch) == 2 && siltstone_batch_bytes(batch) == 7);
  uint64_t seq = 0;
  OK(siltstone_write(db, batch, SILTSTONE_SYNC, &seq));
  EXPECT(seq > 0);
  siltstone_batch_clear(batch);
  EXPECT(siltstone_batch_count(batch) == 0);
  siltstone_range range = {.start = s("b"), .end = s("c")};
  OK(siltstone_batch_delete_range(batch, family, &range));

  siltstone_snapshot *then;
  OK(siltstone_snapshot_new(db, &then));
  EXPECT(siltstone_snapshot_seq(then) == seq);
  OK(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
  siltstone_batch_free(&batch);
  expect_value(family, NULL, "bee", NULL);
  expect_value(family, then, "bee", "3");
  keys[0] = s("bee");
  OK(siltstone_get_many(family, then, keys, 1, values));
  EXPECT(values[0].data != NULL);
  siltstone_value_free(&values[0]);

  // Both ways through what the snapshot sees.
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  OK(siltstone_scan(family, then, NULL, &iterator));
  siltstone_snapshot_free(&then);
  OK(siltstone_iterator_next(iterator, &entry));
  EXPECT(entry == NULL);
  OK(siltstone_iterator_first(iterator, &entry));
  EXPECT(same(entry->key, "bee") && same(entry->value, "3") && entry->timestamp == 0);
  OK(siltstone_iterator_next(iterator, &entry));
  EXPECT(same(entry->key, "cat"));
  OK(siltstone_iterator_next(iterator, &entry));
  EXPECT(same(entry->key, "empty") && entry->value.len == 0);
  OK(siltstone_iterator_next(iterator, &entry));
  EXPECT(entry == NULL);
  OK(siltstone_iterator_last(iterator, &entry));
  EXPECT(same(entry->key, "empty"));
  OK(siltstone_iterator_prev(iterator, &entry));
  EXPECT(same(entry->key, "cat"));
  OK(siltstone_iterator_seek(iterator, s("c"), &entry));
  EXPECT(same(entry->key, "cat"));
  OK(siltstone_iterator_seek_back(iterator, s("c"), &entry));
  EXPECT(same(entry->key, "bee"));
  siltstone_iterator_free(&iterator);

  siltstone_range prefixed = {.prefix = s("c")};
  OK(siltstone_scan(family, NULL, &prefixed, &iterator));
  OK(siltstone_iterator_last(iterator, &entry));
  EXPECT(same(entry->key, "cat"));
  siltstone_iterator_free(&iterator);
  prefixed.start = s("a");
  FAILS(siltstone_scan(family, NULL, &prefixed, &iterator), SILTSTONE_KIND_INVALID);
  EXPECT(iterator == NULL);

  OK(siltstone_delete_range(family, NULL, SILTSTONE_SYNC));
  OK(siltstone_scan(family, NULL, NULL, &iterator));
  OK(siltstone_iterator_first(iterator, &entry));
  EXPECT(entry == NULL);
  siltstone_iterator_free(&iterator);
  siltstone_family_free(&family);
}

static void families(siltstone_db *db) {
  siltstone_family *events, *texts, *posts;
  OK(siltstone_create_family(db, "events", "timestamps = 'explicit'\nversions = 0\nblock_bytes = '8KiB'", &events));
  for (uint64_t day = 1; day <= 9; day++) OK(siltstone_put_at(events, s("door"), day, s("opened"), SILTSTONE_BUFFERED));
  OK(siltstone_delete_at(events, s("door"), 2, SILTSTONE_BUFFERED));
  siltstone_batch *batch = siltstone_batch_new();
  OK(siltstone_batch_put_at(batch, events, s("door"), 10, s("shut")));
  OK(siltstone_batch_delete_at(batch, events, s("door"), 3));
  OK(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
  siltstone_batch_free(&batch);
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  OK(siltstone_scan_times(events, NULL, NULL, 1, 6, &iterator));
  uint64_t expected = 5;
  for (OK(siltstone_iterator_first(iterator, &entry)); entry != NULL; OK(siltstone_iterator_next(iterator, &entry)))
    EXPECT(entry->timestamp == expected--);
  EXPECT(expected == 3);
  siltstone_iterator_free(&iterator);
  OK(siltstone_family_alter(events, "bloom_bits = 12"));
  FAILS(siltstone_family_alter(events, "timestamps = 'implicit'"), SILTSTONE_KIND_INVALID);
  FAILS(siltstone_family_alter(events, "bloom_bytes = 12"), SILTSTONE_KIND_INVALID);
  FAILS(siltstone_create_family(db, "events", NULL, &texts), SILTSTONE_KIND_INVALID);
  EXPECT(texts == NULL);

  OK(siltstone_family_open(db, "texts", &texts));
  OK(siltstone_merge(texts, s("t"), s("a"), SILTSTONE_BUFFERED));
  OK(siltstone_flush(db));
  OK(siltstone_merge(texts, s("t"), s("b"), SILTSTONE_BUFFERED));
  batch = siltstone_batch_new();
  OK(siltstone_batch_merge(batch, texts, s("t"), s("c")));
  OK(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
  siltstone_batch_free(&batch);
  expect_value(texts, NULL, "t", "abc");
  siltstone_value value;
  OK(siltstone_merge(texts, s("refused"), s("a"), SILTSTONE_BUFFERED));
  siltstone_error *error = siltstone_get(texts, NULL, s("refused"), &value);
  EXPECT(siltstone_error_kind(error) == SILTSTONE_KIND_MERGE_REFUSED && value.data == NULL);
  EXPECT(strstr(siltstone_error_message(error), "not this key") != NULL);
  siltstone_error_free(&error);
  OK(siltstone_merge(texts, s("silent"), s("a"), SILTSTONE_BUFFERED));
  FAILS(siltstone_get(texts, NULL, s("silent"), &value), SILTSTONE_KIND_MERGE_REFUSED);
  OK(siltstone_delete(texts, s("refused"), SILTSTONE_BUFFERED));
  OK(siltstone_delete(texts, s("silent"), SILTSTONE_BUFFERED));

  OK(siltstone_family_open(db, "posts", &posts));
  OK(siltstone_put(posts, s("a"), s("draft"), SILTSTONE_BUFFERED));
  OK(siltstone_put(posts, s("b"), s("done"), SILTSTONE_BUFFERED));
  expect_value(posts, NULL, "a", NULL);
  OK(siltstone_family_flush(posts));
  OK(siltstone_compact(posts, NULL));
  expect_value(posts, NULL, "b", "done");
  uint64_t bytes = 0, cells = 0;
  OK(siltstone_estimate(posts, NULL, &bytes, &cells));
  EXPECT(bytes > 0 && cells == 1);

  char *names;
  OK(siltstone_family_names(db, &names));
  EXPECT(strcmp(names, "default\nposts\ntexts\nevents\n") == 0);
  siltstone_text_free(&names);
  EXPECT(names == NULL);
  OK(siltstone_drop_family(db, "events"));
  siltstone_family *unknown;
  FAILS(siltstone_put_at(events, s("door"), 11, s("opened"), SILTSTONE_BUFFERED), SILTSTONE_KIND_NOT_FOUND);
  FAILS(siltstone_family_open(db, "events", &unknown), SILTSTONE_KIND_NOT_FOUND);
  siltstone_family_free(&events);
  siltstone_family_free(&texts);
  siltstone_family_free(&posts);
}

static bool second(void *context, const siltstone_entry *entry) {
  int *left = context;
  return entry->key.len > 0 && --*left > 0;
}

static void transactions(siltstone_db *db) {
  siltstone_family *family;
  OK(siltstone_family_open(db, NULL, &family));
  OK(siltstone_put(family, s("a"), s("1"), SILTSTONE_BUFFERED));
  siltstone_transaction *transaction;
  siltstone_value value;
  OK(siltstone_begin(db, SILTSTONE_SERIALIZABLE, &transaction));
  OK(siltstone_transaction_get(transaction, family, s("a"), &value));
  EXPECT(same((siltstone_slice){value.data, value.len}, "1"));
  siltstone_value_free(&value);
  OK(siltstone_transaction_put(transaction, family, s("b"), s("2")));
  OK(siltstone_transaction_savepoint(transaction));
  OK(siltstone_transaction_delete(transaction, family, s("a")));
  OK(siltstone_transaction_rollback(transaction));
  FAILS(siltstone_transaction_rollback(transaction), SILTSTONE_KIND_NOT_FOUND);
  int left = 100;
  OK(siltstone_transaction_scan(transaction, family, NULL, false, second, &left));
  EXPECT(left == 98);
  left = 1;
  OK(siltstone_transaction_scan(transaction, family, NULL, true, second, &left));
  EXPECT(left == 0);
  expect_value(family, NULL, "b", NULL);
  uint64_t seq;
  OK(siltstone_commit(&transaction, SILTSTONE_SYNC, &seq));
  EXPECT(transaction == NULL);
  expect_value(family, NULL, "b", "2");
  FAILS(siltstone_commit(&transaction, SILTSTONE_SYNC, &seq), SILTSTONE_KIND_INVALID);

  // What others wrote to what was read, or read for update.
  for (int32_t isolation = SILTSTONE_SERIALIZABLE; isolation <= SILTSTONE_SNAPSHOT; isolation++) {
    for (int update = 0; update < 2; update++) {
      OK(siltstone_begin(db, isolation, &transaction));
      if (update)
        OK(siltstone_transaction_get_for_update(transaction, family, s("a"), &value));
      else
        OK(siltstone_transaction_get(transaction, family, s("a"), &value));
      siltstone_value_free(&value);
      OK(siltstone_transaction_put(transaction, family, s("c"), s("3")));
      OK(siltstone_put(family, s("a"), s("9"), SILTSTONE_BUFFERED));
      bool conflict = update || isolation == SILTSTONE_SERIALIZABLE;
      FAILS(siltstone_commit(&transaction, SILTSTONE_BUFFERED, NULL), conflict ? SILTSTONE_KIND_CONFLICT : SILTSTONE_KIND_NONE);
    }
  }
  siltstone_family *texts;
  OK(siltstone_family_open(db, "texts", &texts));
  OK(siltstone_begin(db, SILTSTONE_SERIALIZABLE, &transaction));
  OK(siltstone_transaction_merge(transaction, texts, s("t"), s("d")));
  OK(siltstone_transaction_delete_range(transaction, family, NULL));
  OK(siltstone_commit(&transaction, SILTSTONE_BUFFERED, NULL));
  expect_value(texts, NULL, "t", "abcd");
  expect_value(family, NULL, "b", NULL);
  siltstone_family *events;
  OK(siltstone_create_family(db, "events", "timestamps = 'explicit'", &events));
  OK(siltstone_begin(db, SILTSTONE_SERIALIZABLE, &transaction));
  OK(siltstone_transaction_put_at(transaction, events, s("k"), 5, s("v")));
  OK(siltstone_transaction_delete_at(transaction, events, s("l"), 5));
  OK(siltstone_commit(&transaction, SILTSTONE_BUFFERED, NULL));
  expect_value(events, NULL, "k", "v");
  OK(siltstone_begin(db, SILTSTONE_SNAPSHOT, &transaction));
  siltstone_transaction_free(&transaction);
  EXPECT(transaction == NULL);
  FAILS(siltstone_begin(db, 7, &transaction), SILTSTONE_KIND_INVALID);
  siltstone_family_free(&events);
  siltstone_family_free(&texts);
  siltstone_family_free(&family);
}

static void *work(void *context) {
  siltstone_family *family = context;
  for (int i = 0; i < 2000; i++) {
    char key[16];
    snprintf(key, sizeof key, "t%04d", i % 500);
    OK(siltstone_put(family, s(key), s("v"), SILTSTONE_BUFFERED));
    expect_value(family, NULL, key, "v");
  }
  return NULL;
}

static void threads(siltstone_db *db) {
  siltstone_family *family;
  OK(siltstone_family_open(db, NULL, &family));
  pthread_t ids[4];
  for (int i = 0; i < 4; i++) EXPECT(pthread_create(&ids[i], NULL, work, family) == 0);
  for (int i = 0; i < 4; i++) EXPECT(pthread_join(ids[i], NULL) == 0);
  siltstone_family_free(&family);
}

static void upkeep(siltstone_db *db, const char *dir) {
  siltstone_family *family;
  OK(siltstone_family_open(db, NULL, &family));
  OK(siltstone_put(family, s("kept"), s("1"), SILTSTONE_BUFFERED));
  OK(siltstone_sync(db));
  OK(siltstone_wait_idle(db));
  OK(siltstone_set_memory_limits(db, 1 << 20, 8 << 20));
  OK(siltstone_set_rate_limit(db, 100 << 20));
  char *json;
  OK(siltstone_stats(db, &json));
  EXPECT(json[0] == '{' && strstr(json, "\"writes\"") != NULL);
  siltstone_text_free(&json);
  OK(siltstone_events(db, &json));
  EXPECT(json[0] == '[' && strstr(json, "flush") != NULL);
  siltstone_text_free(&json);
  OK(siltstone_checkpoint(db, below(dir, "checkpoint")));
  uint64_t id = 0;
  OK(siltstone_backup(db, below(dir, "backups"), &id));
  EXPECT(id == 1);
  OK(siltstone_backups(below(dir, "backups"), &json));
  EXPECT(strstr(json, "\"id\":1") != NULL);
  siltstone_text_free(&json);
  OK(siltstone_restore(below(dir, "backups"), 0, below(dir, "restored")));
  FAILS(siltstone_restore(below(dir, "backups"), 9, below(dir, "again")), SILTSTONE_KIND_NOT_FOUND);
  siltstone_family_free(&family);
  const char *copies[] = {"checkpoint", "restored"};
  for (int i = 0; i < 2; i++) {
    OK(siltstone_check(below(dir, copies[i]), &json));
    EXPECT(json[0] == '{');
    siltstone_text_free(&json);
    siltstone_db *copy;
    siltstone_options *options = siltstone_options_new();
    OK(siltstone_options_merge_operator(options, "concatenate", concatenate, &(int){0}, NULL));
    OK(siltstone_options_filter(options, "drafts", is_draft, NULL, NULL));
    OK(siltstone_open_read_only(below(dir, copies[i]), options, &copy));
    OK(siltstone_family_open(copy, "default", &family));
    expect_value(family, NULL, "kept", "1");
    FAILS(siltstone_put(family, s("a"), s("1"), SILTSTONE_BUFFERED), SILTSTONE_KIND_READ_ONLY);
    siltstone_family_free(&family);
    siltstone_db_free(&copy);
    siltstone_options_free(&options);
  }
  OK(siltstone_repair(below(dir, "restored"), &json));
  siltstone_text_free(&json);
  OK(siltstone_destroy(below(dir, "restored")));
  FAILS(siltstone_destroy(below(dir, "restored")), SILTSTONE_KIND_NOT_FOUND);
}

// Of a shared database the directory may be lost, and whoever opens it last has it.
static void shared(const char *dir) {
  char text[8192];
  snprintf(text, sizeof text, "shared = '%s'", below(dir, "shared"));
  siltstone_options *options = siltstone_options_new();
  OK(siltstone_options_parse(options, text));
  siltstone_db *db, *newer;
  siltstone_family *family;
  OK(siltstone_open(below(dir, "here"), options, &db));
  OK(siltstone_family_open(db, NULL, &family));
  OK(siltstone_put(family, s("river"), s("silt"), SILTSTONE_BUFFERED));
  siltstone_family_free(&family);
  OK(siltstone_close(db));
  siltstone_db_free(&db);
  FAILS(siltstone_open(below(dir, "here"), NULL, &db), SILTSTONE_KIND_INVALID);
  snprintf(text, sizeof text, "rm -r '%s'", below(dir, "here"));
  EXPECT(system(text) == 0);

  OK(siltstone_open(below(dir, "there"), options, &db));
  OK(siltstone_family_open(db, NULL, &family));
  expect_value(family, NULL, "river", "silt");
  OK(siltstone_open(below(dir, "elsewhere"), options, &newer));
  siltstone_error *error = siltstone_put(family, s("river"), s("sand"), SILTSTONE_BUFFERED);
  siltstone_kind kind = siltstone_error_kind(error);
  EXPECT(kind == SILTSTONE_KIND_BUSY || kind == SILTSTONE_KIND_POISONED);
  siltstone_error_free(&error);
  siltstone_family_free(&family);
  siltstone_db_free(&db);
  OK(siltstone_family_open(newer, NULL, &family));
  expect_value(family, NULL, "river", "silt");
  OK(siltstone_put(family, s("river"), s("mud"), SILTSTONE_BUFFERED));
  siltstone_family_free(&family);
  OK(siltstone_close(newer));
  siltstone_db_free(&newer);
  siltstone_options_free(&options);
}

int main(int argc, char **argv) {
  EXPECT(argc == 2 && strchr(siltstone_version(), '.') != NULL);
  errors(argv[1]);
  int calls = 0, filters = 0;
  siltstone_options *options = siltstone_options_new();
  OK(siltstone_options_parse(options,
                             "write_memory = '256KiB'\n"
                             "sstable_reads = 'page-cache'\n"
                             "[families.texts]\nmerge_operator = 'concatenate'\n"
                             "[families.posts]\ncompaction_filter = 'drafts'\nstrategy = 'size_tiered{runs=3}'\n"));
  OK(siltstone_options_merge_operator(options, "concatenate", concatenate, &calls, freed));
  OK(siltstone_options_filter(options, "drafts", is_draft, &filters, freed));
  siltstone_db *db;
  OK(siltstone_open(below(argv[1], "db"), options, &db));
  siltstone_options_free(&options);
  EXPECT(strstr(siltstone_db_path(db), "db") != NULL);
  siltstone_db *other;
  FAILS(siltstone_open(below(argv[1], "db"), NULL, &other), SILTSTONE_KIND_BUSY);
  reading_and_writing(db);
  families(db);
  transactions(db);
  threads(db);
  upkeep(db, argv[1]);
  shared(argv[1]);
  EXPECT(calls > 0 && calls < 1000 && filters == 0);
  OK(siltstone_close(db));
  siltstone_db_free(&db);
  EXPECT(calls > 1000 && filters == 1000);
  puts("api: passed");
  return 0;
}
