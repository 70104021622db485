// What the tests in C share.
#ifndef COMMON_H
#define COMMON_H

#include <siltstone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...) (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), abort())
#define EXPECT(condition) ((condition) ? (void)0 : (void)FAIL("not so: %s", #condition))
#define OK(call) expect_ok((call), #call, __FILE__, __LINE__)
#define FAILS(call, kind) expect_kind((call), (kind), #call, __FILE__, __LINE__)

static inline siltstone_slice s(const char *text) {
  return (siltstone_slice){(const uint8_t *)text, strlen(text)};
}

static inline void expect_ok(siltstone_error *error, const char *call, const char *file, int line) {
  if (error == NULL) return;
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, siltstone_error_message(error));
  abort();
}

static inline void expect_kind(siltstone_error *error, siltstone_kind kind, const char *call, const char *file, int line) {
  if (siltstone_error_kind(error) != kind || (error != NULL && strlen(siltstone_error_message(error)) == 0)) {
    fprintf(stderr, "%s:%d: %s: kind %d, expected %d: %s\n", file, line, call, siltstone_error_kind(error), kind,
            siltstone_error_message(error));
    abort();
  }
  siltstone_error_free(&error);
}

static inline int same(siltstone_slice bytes, const char *text) {
  return bytes.data != NULL && bytes.len == strlen(text) && memcmp(bytes.data, text, bytes.len) == 0;
}

// Whether the key has that value; NULL for none.
static inline void expect_value(const siltstone_family *family, const siltstone_snapshot *at, const char *key,
                                const char *expected) {
  siltstone_value value;
  OK(siltstone_get(family, at, s(key), &value));
  siltstone_slice found = {value.data, value.len};
  if (expected == NULL ? value.data != NULL : !same(found, expected))
    FAIL("%s is %.*s, expected %s", key, (int)value.len, (const char *)value.data, expected ? expected : "nothing");
  siltstone_value_free(&value);
}

// A directory below the tests' own.
static inline const char *below(const char *dir, const char *name) {
  static char paths[8][4096];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", dir, name);
  return path;
}

#endif
