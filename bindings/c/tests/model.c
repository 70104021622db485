// Random calls beside a plain array that says what there must be. `model DIR SEED OPERATIONS`
#include "common.h"

enum { KEYS = 200, SNAPSHOTS = 4, VALUE = 300 };

typedef struct {
  int len[KEYS];  // -1: not there
  char bytes[KEYS][VALUE];
} state;

static state now, then[SNAPSHOTS];
static siltstone_snapshot *snapshots[SNAPSHOTS];
static uint64_t seed;

static uint32_t random_below(uint32_t n) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (uint32_t)(seed >> 33) % n;
}

static siltstone_slice key(int number) {
  static char texts[4][16];
  static int next;
  char *text = texts[next++ % 4];
  snprintf(text, sizeof texts[0], "key%05d", number);
  return s(text);
}

static void expect(const state *model, int number, const uint8_t *data, size_t len) {
  int expected = model->len[number];
  if (expected < 0 ? data != NULL : data == NULL || len != (size_t)expected || memcmp(data, model->bytes[number], len) != 0)
    FAIL("key %d has %zu bytes, expected %d", number, data ? len : 0, expected);
}

static void check_get(const siltstone_family *family, int which, int number) {
  siltstone_value value;
  OK(siltstone_get(family, which < 0 ? NULL : snapshots[which], key(number), &value));
  expect(which < 0 ? &now : &then[which], number, value.data, value.len);
  siltstone_value_free(&value);
}

// All keys of a range, forward or backward.
static void check_scan(const siltstone_family *family, int which) {
  const state *model = which < 0 ? &now : &then[which];
  int from = (int)random_below(KEYS), to = from + (int)random_below(KEYS - from + 1), backward = (int)random_below(2);
  siltstone_range range = {.start = key(from), .end = key(to)};
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  OK(siltstone_scan(family, which < 0 ? NULL : snapshots[which], &range, &iterator));
  OK(backward ? siltstone_iterator_last(iterator, &entry) : siltstone_iterator_first(iterator, &entry));
  for (int i = 0; i < to - from; i++) {
    int number = backward ? to - 1 - i : from + i;
    if (model->len[number] < 0) continue;
    siltstone_slice expected = key(number);
    if (entry == NULL || entry->key.len != expected.len || memcmp(entry->key.data, expected.data, expected.len) != 0)
      FAIL("the scan misses key %d", number);
    expect(model, number, entry->value.data, entry->value.len);
    OK(backward ? siltstone_iterator_prev(iterator, &entry) : siltstone_iterator_next(iterator, &entry));
  }
  if (entry != NULL) FAIL("the scan has %.*s behind its end", (int)entry->key.len, (const char *)entry->key.data);
  siltstone_iterator_free(&iterator);
}

static siltstone_slice fresh(int number) {
  now.len[number] = (int)random_below(VALUE);
  for (int i = 0; i < now.len[number]; i++) now.bytes[number][i] = (char)random_below(256);
  return (siltstone_slice){(const uint8_t *)now.bytes[number], (size_t)now.len[number]};
}

static void write_several(siltstone_db *db, siltstone_family *family) {
  siltstone_batch *batch = siltstone_batch_new();
  for (uint32_t left = random_below(20); left > 0; left--) {
    int number = (int)random_below(KEYS);
    if (random_below(3) == 0) {
      int to = number + (int)random_below(10);
      siltstone_range range = {.start = key(number), .end = key(to)};
      OK(siltstone_batch_delete_range(batch, family, &range));
      for (int i = number; i < to && i < KEYS; i++) now.len[i] = -1;
    } else {
      OK(siltstone_batch_put(batch, family, key(number), fresh(number)));
    }
  }
  OK(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
  siltstone_batch_free(&batch);
}

static void open_db(const char *dir, siltstone_db **db, siltstone_family **family) {
  siltstone_options *options = siltstone_options_new();
  OK(siltstone_options_parse(options, "write_memory = '64KiB'\nmemory_budget = '1MiB'\n"));
  OK(siltstone_open(below(dir, "model"), options, db));
  siltstone_options_free(&options);
  OK(siltstone_family_open(*db, NULL, family));
}

int main(int argc, char **argv) {
  EXPECT(argc == 4);
  seed = strtoull(argv[2], NULL, 10) * 2 + 1;
  for (int i = 0; i < KEYS; i++) now.len[i] = -1;
  siltstone_db *db;
  siltstone_family *family;
  open_db(argv[1], &db, &family);
  for (long left = strtol(argv[3], NULL, 10); left > 0; left--) {
    int number = (int)random_below(KEYS), slot = (int)random_below(SNAPSHOTS);
    int which = random_below(3) == 0 && snapshots[slot] != NULL ? slot : -1;
    switch (random_below(100)) {
      case 0:
        OK(siltstone_flush(db));
        break;
      case 1:
        OK(siltstone_compact(family, NULL));
        break;
      case 2:
        siltstone_snapshot_free(&snapshots[slot]);
        OK(siltstone_snapshot_new(db, &snapshots[slot]));
        then[slot] = now;
        break;
      case 3:
        if (random_below(4) != 0) break;
        for (int i = 0; i < SNAPSHOTS; i++) siltstone_snapshot_free(&snapshots[i]);
        siltstone_family_free(&family);
        siltstone_db_free(&db);
        open_db(argv[1], &db, &family);
        break;
      case 4 ... 9:
        check_scan(family, which);
        break;
      case 10 ... 14:
        write_several(db, family);
        break;
      case 15 ... 24:
        OK(siltstone_delete(family, key(number), SILTSTONE_BUFFERED));
        now.len[number] = -1;
        break;
      case 25 ... 59:
        OK(siltstone_put(family, key(number), fresh(number), SILTSTONE_BUFFERED));
        break;
      default:
        check_get(family, which, number);
    }
  }
  for (int i = 0; i < SNAPSHOTS; i++) siltstone_snapshot_free(&snapshots[i]);
  siltstone_family_free(&family);
  siltstone_db_free(&db);
  printf("model: passed with seed %s\n", argv[2]);
  return 0;
}
