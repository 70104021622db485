// Siltstone on real data, from C: loads the machine's Debian package index, reads it back in two ways, kills a second process in
// the middle of its load and shows that nothing that was promised is lost. `packages DIR`; build it as tour.c.
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <siltstone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// How often the second process waits until its rows are safe from a power loss.
enum { SYNC_EVERY = 100 };

typedef struct {
  char *key;  // package/Field
  char *value;
} row;

static row *rows;
static size_t count, room;

static siltstone_slice s(const char *text) { return (siltstone_slice){(const uint8_t *)text, strlen(text)}; }

static void check(siltstone_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "packages: %s\n", siltstone_error_message(error));
  siltstone_error_free(&error);
  exit(1);
}

static void wrong(const char *what) {
  fprintf(stderr, "packages: %s\n", what);
  exit(1);
}

static void add(const char *package, const char *field, const char *value) {
  if (count == room) {
    room = room == 0 ? 1024 : 2 * room;
    rows = realloc(rows, room * sizeof *rows);
    if (rows == NULL) wrong("no memory");
  }
  char *key = malloc(strlen(package) + strlen(field) + 2);
  if (key == NULL) wrong("no memory");
  sprintf(key, "%s/%s", package, field);
  rows[count++] = (row){key, strdup(value)};
}

// Lines `Field: value` of `apt-cache dumpavail`; lines that go on with a value are left out, and so are packages without fields.
static void read_index(void) {
  FILE *index = popen("apt-cache dumpavail 2>/dev/null", "r");
  char *line = NULL, package[256] = "";
  size_t size = 0;
  while (index != NULL && getline(&line, &size, index) > 0) {
    char *value = strstr(line, ": ");
    line[strcspn(line, "\n")] = 0;
    if (line[0] == ' ' || value == NULL) continue;
    *value = 0;
    value += 2;
    if (strcmp(line, "Package") == 0) snprintf(package, sizeof package, "%s", value);
    if (package[0] != 0) add(package, line, value);
  }
  free(line);
  if (index != NULL) pclose(index);
  for (int n = 0; count < 10000; n++) {  // no index here: made-up packages
    char number[32];
    snprintf(package, sizeof package, "silt%d", n);
    snprintf(number, sizeof number, "%d.%d", n, n % 7);
    add(package, "Package", package);
    add(package, "Version", number);
  }
}

static int by_key(const void *a, const void *b) { return strcmp(((const row *)a)->key, ((const row *)b)->key); }

// Keys in order, each once.
static void sort_index(void) {
  qsort(rows, count, sizeof *rows, by_key);
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (kept > 0 && strcmp(rows[kept - 1].key, rows[i].key) == 0) {
      free(rows[i].key);
      free(rows[i].value);
    } else {
      rows[kept++] = rows[i];
    }
  }
  count = kept;
}

static void open_family(const char *dir, siltstone_db **db, siltstone_family **family) {
  check(siltstone_open(dir, NULL, db));
  check(siltstone_family_open(*db, NULL, family));
}

static size_t length_of_package(const char *key) { return strcspn(key, "/") + 1; }

// A batch a package: all of it or nothing.
static void load(siltstone_db *db, const siltstone_family *family) {
  siltstone_batch *batch = siltstone_batch_new();
  for (size_t i = 0; i < count; i++) {
    check(siltstone_batch_put(batch, family, s(rows[i].key), s(rows[i].value)));
    size_t length = length_of_package(rows[i].key);
    if (i + 1 < count && strncmp(rows[i].key, rows[i + 1].key, length) == 0) continue;
    check(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
    siltstone_batch_clear(batch);
  }
  siltstone_batch_free(&batch);
  check(siltstone_sync(db));
  printf("loaded %zu rows\n", count);
}

static void read_back(const siltstone_family *family) {
  siltstone_value value;
  const char *known = "bash/Version";
  check(siltstone_get(family, NULL, s(known), &value));
  if (value.data != NULL) printf("%s is %.*s\n", known, (int)value.len, (const char *)value.data);
  siltstone_value_free(&value);
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  check(siltstone_scan(family, NULL, &(siltstone_range){.prefix = s("bash/")}, &iterator));
  for (check(siltstone_iterator_first(iterator, &entry)); entry != NULL; check(siltstone_iterator_next(iterator, &entry)))
    printf("  %.*s: %.*s\n", (int)entry->key.len, (const char *)entry->key.data,
           (int)(entry->value.len < 60 ? entry->value.len : 60), (const char *)entry->value.data);
  siltstone_iterator_free(&iterator);
}

// How many rows are there: the first ones of the load, whole and without a gap, or the program ends.
static size_t count_there(const siltstone_family *family) {
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  size_t there = 0;
  check(siltstone_scan(family, NULL, NULL, &iterator));
  for (check(siltstone_iterator_first(iterator, &entry)); entry != NULL; check(siltstone_iterator_next(iterator, &entry))) {
    siltstone_slice key = s(rows[there].key), value = s(rows[there].value);
    if (entry->key.len != key.len || memcmp(entry->key.data, key.data, key.len) != 0) wrong("a row is missing");
    if (entry->value.len != value.len || memcmp(entry->value.data, value.data, value.len) != 0) wrong("a row is torn");
    there++;
  }
  siltstone_iterator_free(&iterator);
  return there;
}

// The second process: says after each sync how many rows are safe.
static void load_until_killed(const char *dir, int reports) {
  siltstone_db *db;
  siltstone_family *family;
  open_family(dir, &db, &family);
  for (size_t i = 0; i < count; i++) {
    int sync = (i + 1) % SYNC_EVERY == 0;
    check(siltstone_put(family, s(rows[i].key), s(rows[i].value), sync ? SILTSTONE_SYNC : SILTSTONE_BUFFERED));
    size_t safe = i + 1;
    if (sync && write(reports, &safe, sizeof safe) != sizeof safe) break;
  }
  pause();
}

static void crash(const char *dir) {
  int ends[2];
  fflush(stdout);
  if (pipe(ends) != 0) wrong("no pipe");
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    load_until_killed(dir, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  size_t acknowledged = 0;
  // Reads on after the kill: reports that were already in the pipe were promises, too.
  while (read(ends[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged)
    if (acknowledged >= (count < 40000 ? count : 40000) / 4) kill(child, SIGKILL);
  close(ends[0]);
  waitpid(child, NULL, 0);
  siltstone_db *db;
  siltstone_family *family;
  open_family(dir, &db, &family);
  size_t there = count_there(family);
  if (acknowledged == 0 || there < acknowledged) wrong("rows are lost");
  printf("killed: %zu rows were acknowledged, the first %zu are there, without a gap\n", acknowledged, there);
  siltstone_family_free(&family);
  siltstone_db_free(&db);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: packages DIR\n");
    return 2;
  }
  read_index();
  sort_index();
  char whole[4096], crashed[4096];
  snprintf(whole, sizeof whole, "%s/db", argv[1]);
  snprintf(crashed, sizeof crashed, "%s/crashed", argv[1]);
  siltstone_db *db;
  siltstone_family *family;
  open_family(whole, &db, &family);
  load(db, family);
  read_back(family);
  if (count_there(family) != count) wrong("rows are missing");
  siltstone_family_free(&family);
  check(siltstone_close(db));
  siltstone_db_free(&db);
  crash(crashed);
  for (size_t i = 0; i < count; i++) {
    free(rows[i].key);
    free(rows[i].value);
  }
  free(rows);
  return 0;
}
