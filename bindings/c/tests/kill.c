// Nothing that was acknowledged is lost by a kill. `kill DIR ROUNDS`: a child writes numbers in order and says by a pipe which are
// acknowledged; it is killed; another open must find them all, and nothing but them and at most the batch under way.
#include "common.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 10 };

static siltstone_slice number_key(uint64_t *number) { return (siltstone_slice){(const uint8_t *)number, sizeof *number}; }

static void write_on(const char *dir, uint64_t from, int acknowledged) {
  siltstone_db *db;
  siltstone_family *family;
  siltstone_options *options = siltstone_options_new();
  OK(siltstone_options_parse(options, "write_memory = '64KiB'\nmemory_budget = '1MiB'\n"));
  OK(siltstone_open(dir, options, &db));
  OK(siltstone_family_open(db, NULL, &family));
  siltstone_batch *batch = siltstone_batch_new();
  for (uint64_t number = from;; number += BATCH) {
    siltstone_batch_clear(batch);
    for (uint64_t i = 0; i < BATCH; i++) {
      uint64_t one = __builtin_bswap64(number + i);
      OK(siltstone_batch_put(batch, family, number_key(&one), s("a value of some bytes")));
    }
    OK(siltstone_write(db, batch, SILTSTONE_BUFFERED, NULL));
    uint64_t end = number + BATCH;
    if (write(acknowledged, &end, sizeof end) != sizeof end) _exit(3);
  }
}

// How many numbers there are, which must be the first ones.
static uint64_t count(const char *dir) {
  siltstone_db *db;
  siltstone_family *family;
  siltstone_iterator *iterator;
  const siltstone_entry *entry;
  OK(siltstone_open(dir, NULL, &db));
  OK(siltstone_family_open(db, NULL, &family));
  OK(siltstone_scan(family, NULL, NULL, &iterator));
  uint64_t found = 0;
  for (OK(siltstone_iterator_first(iterator, &entry)); entry != NULL; OK(siltstone_iterator_next(iterator, &entry))) {
    uint64_t expected = __builtin_bswap64(found++);
    EXPECT(entry->key.len == 8 && memcmp(entry->key.data, &expected, 8) == 0);
  }
  siltstone_iterator_free(&iterator);
  siltstone_family_free(&family);
  siltstone_db_free(&db);
  return found;
}

int main(int argc, char **argv) {
  EXPECT(argc == 3);
  const char *dir = below(argv[1], "kill");
  uint64_t known = 0;
  for (int left = atoi(argv[2]); left > 0; left--) {
    int ends[2];
    EXPECT(pipe(ends) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      close(ends[0]);
      write_on(dir, known, ends[1]);
      _exit(0);
    }
    close(ends[1]);
    uint64_t acknowledged = known;
    // Killed at another moment each time.
    for (int reads = 1 + left * 37 % 400; reads > 0; reads--)
      EXPECT(read(ends[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged);
    EXPECT(kill(child, SIGKILL) == 0);
    EXPECT(waitpid(child, NULL, 0) == child);
    while (read(ends[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged) continue;
    close(ends[0]);
    uint64_t found = count(dir);
    if (found < acknowledged || found > acknowledged + BATCH || found % BATCH != 0)
      FAIL("%llu numbers are there, of %llu acknowledged", (unsigned long long)found, (unsigned long long)acknowledged);
    known = found;
  }
  printf("kill: passed, %llu numbers\n", (unsigned long long)known);
  return 0;
}
