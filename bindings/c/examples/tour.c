// A tour of Siltstone from C. Build it against an installed library:
//     cc tour.c -o tour $(pkg-config --cflags --libs siltstone)
#include <siltstone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A text's bytes.
static siltstone_slice s(const char *text) { return (siltstone_slice){(const uint8_t *)text, strlen(text)}; }

// Ends the program at the first error.
static void check(siltstone_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "tour: %s\n", siltstone_error_message(error));
  siltstone_error_free(&error);
  exit(1);
}

// A merge operator: the sum of numbers in decimal.
static void add(void *context, siltstone_slice key, const siltstone_slice *base, const siltstone_slice *operands,
                size_t count, siltstone_output *output) {
  (void)context, (void)key;
  long sum = 0;
  char text[32];
  for (size_t i = 0; i <= count; i++) {
    const siltstone_slice *number = i < count ? &operands[i] : base;
    if (number == NULL) continue;
    if (number->len >= sizeof text) {
      siltstone_output_refuse(output, s("a number has over 31 digits"));
      return;
    }
    memcpy(text, number->data, number->len);
    text[number->len] = 0;
    sum += strtol(text, NULL, 10);
  }
  snprintf(text, sizeof text, "%ld", sum);
  siltstone_output_value(output, s(text));
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: tour DIR\n");
    return 2;
  }
  // Options are TOML; functions are registered by name.
  siltstone_options *options = siltstone_options_new();
  check(siltstone_options_parse(options,
                                "write_memory = '16MiB'\n"
                                "[families.counts]\n"
                                "merge_operator = 'add'\n"));
  check(siltstone_options_merge_operator(options, "add", add, NULL, NULL));
  siltstone_db *db = NULL;
  check(siltstone_open(argv[1], options, &db));
  siltstone_options_free(&options);

  // Writing and reading.
  siltstone_family *family = NULL;
  check(siltstone_family_open(db, NULL, &family));
  check(siltstone_put(family, s("ant"), s("1"), SILTSTONE_BUFFERED));
  check(siltstone_put(family, s("bee"), s("2"), SILTSTONE_SYNC));  // no power loss can lose it
  siltstone_value value;
  check(siltstone_get(family, NULL, s("bee"), &value));
  printf("bee is %.*s\n", (int)value.len, (const char *)value.data);
  siltstone_value_free(&value);
  check(siltstone_get(family, NULL, s("cat"), &value));
  printf("cat is %s\n", value.data == NULL ? "not there" : "there");

  // Writes that belong together.
  siltstone_batch *batch = siltstone_batch_new();
  check(siltstone_batch_put(batch, family, s("cat"), s("3")));
  check(siltstone_batch_delete(batch, family, s("ant")));
  check(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
  siltstone_batch_free(&batch);

  // A read point, and a range delete that it does not see.
  siltstone_snapshot *then = NULL;
  check(siltstone_snapshot_new(db, &then));
  siltstone_range from_cat = {.start = s("cat")};
  check(siltstone_delete_range(family, &from_cat, SILTSTONE_BUFFERED));
  siltstone_iterator *iterator = NULL;
  check(siltstone_scan(family, then, NULL, &iterator));
  const siltstone_entry *entry;
  check(siltstone_iterator_first(iterator, &entry));
  while (entry != NULL) {
    printf("then: %.*s = %.*s\n", (int)entry->key.len, (const char *)entry->key.data, (int)entry->value.len,
           (const char *)entry->value.data);
    check(siltstone_iterator_next(iterator, &entry));
  }
  siltstone_iterator_free(&iterator);
  siltstone_snapshot_free(&then);

  // Another family, whose operands are merged when somebody reads them.
  siltstone_family *counts = NULL;
  check(siltstone_family_open(db, "counts", &counts));
  check(siltstone_merge(counts, s("visits"), s("2"), SILTSTONE_BUFFERED));
  check(siltstone_merge(counts, s("visits"), s("3"), SILTSTONE_BUFFERED));
  check(siltstone_get(counts, NULL, s("visits"), &value));
  printf("visits: %.*s\n", (int)value.len, (const char *)value.data);
  siltstone_value_free(&value);

  // A transaction that another write gets in the way of.
  siltstone_transaction *transaction = NULL;
  check(siltstone_begin(db, SILTSTONE_SERIALIZABLE, &transaction));
  check(siltstone_transaction_get(transaction, family, s("bee"), &value));
  siltstone_value_free(&value);
  check(siltstone_transaction_put(transaction, family, s("bee"), s("3")));
  check(siltstone_put(family, s("bee"), s("9"), SILTSTONE_BUFFERED));
  siltstone_error *error = siltstone_commit(&transaction, SILTSTONE_BUFFERED, NULL);
  printf("commit: %s\n", siltstone_error_kind(error) == SILTSTONE_KIND_CONFLICT ? "conflict" : "done");
  siltstone_error_free(&error);

  siltstone_family_free(&counts);
  siltstone_family_free(&family);
  check(siltstone_close(db));
  siltstone_db_free(&db);
  return 0;
}

// Prints:
//     bee is 2
//     cat is not there
//     then: bee = 2
//     then: cat = 3
//     visits: 5
//     commit: conflict
