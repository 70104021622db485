// LevelDB's interface: what its own test does not ask, and where this library differs. `leveldb DIR`
#include <leveldb/c.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAIL(...) (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), abort())
#define EXPECT(condition) ((condition) ? (void)0 : (void)FAIL("not so: %s", #condition))

static char *err;

static void ok(int line) {
  if (err != NULL) FAIL("line %d: %s", line, err);
}

static void fails(const char *with, int line) {
  if (err == NULL || strstr(err, with) == NULL) FAIL("line %d: %s, expected %s", line, err ? err : "no error", with);
  leveldb_free(err);
  err = NULL;
}

#define OK(call) (call, ok(__LINE__))
#define FAILS(call, with) (call, fails(with, __LINE__))

static const char *below(const char *dir, const char *name) {
  static char paths[4][4096];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", dir, name);
  return path;
}

static leveldb_options_t *options;
static leveldb_readoptions_t *reading;
static leveldb_writeoptions_t *writing;

static void put(leveldb_t *db, const char *key, const char *value) {
  leveldb_put(db, writing, key, strlen(key), value, strlen(value), &err);
}

static void expect_value(leveldb_t *db, const char *key, const char *expected) {
  size_t len = 99;
  char *value = leveldb_get(db, reading, key, strlen(key), &len, &err);
  ok(__LINE__);
  if (expected == NULL)
    EXPECT(value == NULL && len == 0);
  else
    EXPECT(value != NULL && len == strlen(expected) && memcmp(value, expected, len) == 0);
  leveldb_free(value);
}

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

// LevelDB's own directory is neither opened nor repaired nor deleted.
static void others(const char *dir) {
  const char *theirs = below(dir, "theirs");
  EXPECT(mkdir(theirs, 0755) == 0);
  char current[4096];
  snprintf(current, sizeof current, "%s/CURRENT", theirs);
  write_file(current, "MANIFEST-000002\n");
  EXPECT(leveldb_open(options, theirs, &err) == NULL);
  fails("LevelDB", __LINE__);
  FAILS(leveldb_repair_db(options, theirs, &err), "LevelDB");
  FAILS(leveldb_destroy_db(options, theirs, &err), "LevelDB");
  FILE *file = fopen(current, "r");
  char text[64];
  EXPECT(file != NULL && fgets(text, sizeof text, file) != NULL && strcmp(text, "MANIFEST-000002\n") == 0);
  fclose(file);
}

// A directory of other things, which may have names as those of a database, is left as it is.
static void letters(const char *dir) {
  const char *home = below(dir, "home");
  EXPECT(mkdir(home, 0755) == 0);
  char letter[4096], other[4096], text[64];
  snprintf(letter, sizeof letter, "%s/letter.new", home);
  snprintf(other, sizeof other, "%s/syslog.log", home);
  write_file(letter, "dear");
  write_file(other, "booted");
  EXPECT(leveldb_open(options, home, &err) == NULL);
  fails("holds no database", __LINE__);
  FILE *file = fopen(letter, "r");
  EXPECT(file != NULL && fgets(text, sizeof text, file) != NULL && strcmp(text, "dear") == 0 && fclose(file) == 0);
  file = fopen(other, "r");
  EXPECT(file != NULL && fgets(text, sizeof text, file) != NULL && strcmp(text, "booted") == 0 && fclose(file) == 0);
  // Nothing was put beside them.
  EXPECT(remove(letter) == 0 && remove(other) == 0 && rmdir(home) == 0);
}

static int in_bytes(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  ++*(int *)state;
  int order = memcmp(a, b, alen < blen ? alen : blen);
  return order != 0 ? order : (alen > blen) - (alen < blen);
}

static int reversed(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  return in_bytes(state, b, blen, a, alen);
}

static const char *name(void *state) {
  (void)state;
  return "of this test";
}

static void gone(void *state) { *(int *)state += 1000; }

// A comparator that orders by bytes is taken, another is refused as soon as it shows.
static void comparators(const char *dir) {
  int asked = 0;
  leveldb_comparator_t *comparator = leveldb_comparator_create(&asked, gone, in_bytes, name);
  leveldb_options_set_comparator(options, comparator);
  leveldb_comparator_destroy(comparator);
  leveldb_t *db = leveldb_open(options, below(dir, "ordered"), &err);
  ok(__LINE__);
  OK(put(db, "b", "1"));
  OK(put(db, "a", "2"));
  expect_value(db, "a", "2");
  leveldb_iterator_t *iterator = leveldb_create_iterator(db, reading);
  leveldb_iter_seek(iterator, "a", 1);
  leveldb_iter_next(iterator);
  EXPECT(leveldb_iter_valid(iterator) && asked >= 3 && asked < 1000);
  leveldb_iter_destroy(iterator);
  leveldb_close(db);

  int wrong = 0;
  comparator = leveldb_comparator_create(&wrong, gone, reversed, name);
  leveldb_options_set_comparator(options, comparator);
  EXPECT(asked > 1000);
  db = leveldb_open(options, below(dir, "ordered"), &err);
  ok(__LINE__);
  iterator = leveldb_create_iterator(db, reading);
  leveldb_iter_seek_to_first(iterator);
  leveldb_iter_next(iterator);
  EXPECT(!leveldb_iter_valid(iterator));
  leveldb_iter_get_error(iterator, &err);
  fails("of this test", __LINE__);
  leveldb_iter_destroy(iterator);
  OK(put(db, "c", "1"));
  FAILS(put(db, "d", "1"), "of this test");
  size_t len;
  EXPECT(leveldb_get(db, reading, "d", 1, &len, &err) == NULL);
  fails("of this test", __LINE__);
  leveldb_writebatch_t *batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "e", 1, "1", 1);
  leveldb_writebatch_put(batch, "f", 1, "1", 1);
  FAILS(leveldb_write(db, writing, batch, &err), "of this test");
  leveldb_writebatch_destroy(batch);
  leveldb_close(db);
  leveldb_options_set_comparator(options, NULL);
  leveldb_comparator_destroy(comparator);
  EXPECT(wrong > 1000);
}

static void count(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
  EXPECT(klen + vlen > 0 && k != NULL && v != NULL);
  ++*(int *)state;
}

static void count_deleted(void *state, const char *k, size_t klen) {
  EXPECT(klen == 1 && *k == 'a');
  ++*(int *)state;
}

static void batches(leveldb_t *db) {
  leveldb_writebatch_t *batch = leveldb_writebatch_create();
  for (int i = 0; i < 100; i++) {
    char key[16];
    int len = snprintf(key, sizeof key, "batch%02d", i);
    leveldb_writebatch_put(batch, key, (size_t)len, key, (size_t)len);
  }
  leveldb_writebatch_append(batch, batch);
  leveldb_writebatch_delete(batch, "a", 1);
  int seen = 0;
  leveldb_writebatch_iterate(batch, &seen, count, count_deleted);
  EXPECT(seen == 201);
  OK(leveldb_write(db, writing, batch, &err));
  expect_value(db, "batch99", "batch99");
  leveldb_writebatch_destroy(batch);

  // Larger than the memory for writes.
  batch = leveldb_writebatch_create();
  size_t bytes = 100 << 10;
  char *value = calloc(1, bytes);
  for (int i = 0; i < 120; i++) {
    char key[16];
    int len = snprintf(key, sizeof key, "large%03d", i);
    leveldb_writebatch_put(batch, key, (size_t)len, value, bytes);
  }
  OK(leveldb_write(db, writing, batch, &err));
  leveldb_writebatch_destroy(batch);
  free(value);
}

// A key of more bytes than there can be ends the process, in an orderly way: this call cannot tell of an error.
static void too_long(void) {
  fflush(NULL);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_writebatch_delete(batch, "a", (size_t)-1);
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

// The key and the value where an iterator stands may be what is sought.
static void sought(leveldb_t *db) {
  OK(put(db, "from", "to"));
  OK(put(db, "to", ""));
  OK(put(db, "", "from"));
  leveldb_iterator_t *iterator = leveldb_create_iterator(db, reading);
  leveldb_iter_seek(iterator, "", 0);
  size_t len;
  for (int i = 0; i < 6; i++) {
    EXPECT(leveldb_iter_valid(iterator));
    const char *value = leveldb_iter_value(iterator, &len);
    EXPECT(value != NULL);
    leveldb_iter_seek(iterator, value, len);
    const char *key = leveldb_iter_key(iterator, &len);
    EXPECT(key != NULL);
    leveldb_iter_seek(iterator, key, len);
  }
  leveldb_iter_destroy(iterator);
}

int main(int argc, char **argv) {
  EXPECT(argc == 2 && leveldb_major_version() == 1);
  too_long();
  options = leveldb_options_create();
  reading = leveldb_readoptions_create();
  writing = leveldb_writeoptions_create();
  const char *dir = below(argv[1], "db");
  EXPECT(leveldb_open(options, dir, &err) == NULL && err != NULL);
  // An error takes the place of the one before.
  EXPECT(leveldb_open(options, dir, &err) == NULL);
  fails("holds no database", __LINE__);
  OK(leveldb_destroy_db(options, dir, &err));
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_write_buffer_size(options, (size_t)-1);
  leveldb_t *db = leveldb_open(options, dir, &err);
  ok(__LINE__);
  leveldb_close(db);
  leveldb_options_set_write_buffer_size(options, 1);
  leveldb_options_set_max_open_files(options, 20);
  db = leveldb_open(options, dir, &err);
  ok(__LINE__);
  batches(db);
  sought(db);
  EXPECT(leveldb_open(options, dir, &err) == NULL);
  fails("in use", __LINE__);
  FAILS(leveldb_destroy_db(options, dir, &err), "in use");
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  char *files = leveldb_property_value(db, "leveldb.num-files-at-level0");
  char *tables = leveldb_property_value(db, "leveldb.sstables");
  char *memory = leveldb_property_value(db, "leveldb.approximate-memory-usage");
  EXPECT(files != NULL && strcmp(files, "0") == 0 && strstr(tables, "bytes") != NULL && atoi(memory) >= 0);
  leveldb_free(files);
  leveldb_free(tables);
  leveldb_free(memory);
  EXPECT(leveldb_property_value(db, "leveldb.num-files-at-levelx") == NULL);
  EXPECT(leveldb_property_value(db, "stats") == NULL);
  leveldb_close(db);
  comparators(argv[1]);
  others(argv[1]);
  letters(argv[1]);
  OK(leveldb_destroy_db(options, dir, &err));
  struct stat there;
  EXPECT(stat(dir, &there) != 0);
  leveldb_options_destroy(options);
  leveldb_readoptions_destroy(reading);
  leveldb_writeoptions_destroy(writing);
  puts("leveldb: passed");
  return 0;
}
