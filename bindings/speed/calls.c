// How long calls take from C: what calls.rs measures from Rust. `calls DIR`
#include <siltstone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 200000, BATCH = 1000, NOTHING = 3000000, KEY = 16, VALUE = 100 };

static char keys[ROWS][KEY + 1];
static char value_bytes[VALUE];

static siltstone_slice key(long number) { return (siltstone_slice){(const uint8_t *)keys[number], KEY}; }

static void check(siltstone_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "calls: %s\n", siltstone_error_message(error));
  exit(1);
}

static double begun;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void told(const char *what, long calls) {
  printf("c\t%s\t%.4f\n", what, (now() - begun) / (double)calls);
  begun = now();
}

static void get_all(const siltstone_family *family, const char *what) {
  begun = now();
  for (long i = 0; i < ROWS; i++) {
    siltstone_value found;
    check(siltstone_get(family, NULL, key(i), &found));
    if (found.len != VALUE) abort();
    siltstone_value_free(&found);
  }
  told(what, ROWS);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  for (long i = 0; i < ROWS; i++) snprintf(keys[i], sizeof keys[i], "%016ld", i * 7919 % ROWS);
  memset(value_bytes, 'x', VALUE);
  siltstone_slice value = {(const uint8_t *)value_bytes, VALUE};
  siltstone_db *db;
  siltstone_family *family, *empty;
  check(siltstone_open(argv[1], NULL, &db));
  check(siltstone_family_open(db, NULL, &family));
  check(siltstone_create_family(db, "empty", NULL, &empty));
  begun = now();
  for (long i = 0; i < NOTHING; i++) {
    siltstone_value found;
    check(siltstone_get(empty, NULL, key(0), &found));
    if (found.data != NULL) abort();
  }
  told("get of nothing", NOTHING);
  for (long i = 0; i < ROWS; i++) check(siltstone_put(family, key(i), value, SILTSTONE_BUFFERED));
  told("put", ROWS);
  get_all(family, "get from memory");
  check(siltstone_flush(db));
  check(siltstone_wait_idle(db));
  get_all(family, "get from tables, first");
  get_all(family, "get from tables");
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  long rows = 0;
  check(siltstone_scan(family, NULL, NULL, &iterator));
  for (check(siltstone_iterator_first(iterator, &entry)); entry != NULL; check(siltstone_iterator_next(iterator, &entry)))
    rows += entry->value.len == VALUE;
  siltstone_iterator_free(&iterator);
  if (rows != ROWS) abort();
  told("scan", ROWS);
  siltstone_batch *batch = siltstone_batch_new();
  for (long i = 0; i < ROWS; i++) {
    check(siltstone_batch_put(batch, family, key(i), value));
    if ((i + 1) % BATCH != 0) continue;
    check(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
    siltstone_batch_clear(batch);
  }
  told("batch", ROWS);
  siltstone_batch_free(&batch);
  siltstone_family_free(&empty);
  siltstone_family_free(&family);
  siltstone_db_free(&db);
  return 0;
}
