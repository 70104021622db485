// The owners in siltstone.hpp: what is moved, thrown, and freed. `wrappers DIR`
#include <siltstone.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#define EXPECT(condition) \
  ((condition) ? (void)0 : (std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition), std::abort()))

template <typename Call>
static siltstone_kind thrown(Call call) {
  try {
    call();
  } catch (const siltstone::Error& error) {
    EXPECT(std::string(error.what()).size() > 0);
    return error.kind();
  }
  return SILTSTONE_KIND_NONE;
}

static std::size_t count(const siltstone::Family& family, const siltstone::Range& range = {}) {
  std::size_t rows = 0;
  for ([[maybe_unused]] auto entry : family.scan(range)) rows++;
  return rows;
}

static void values(siltstone::Family& family) {
  family.put("a", "1");
  family.put("b", "2");
  siltstone::Value a = family.get("a"), b = family.get("b");
  siltstone::Value moved = std::move(a);
  EXPECT(!a && *moved == "1");
  moved = std::move(b);
  EXPECT(!b && *moved == "2");
  siltstone::Value& same = moved;
  moved = std::move(same);
  EXPECT(moved.str() == "2");
  a = family.get("none");
  EXPECT(!a && !family.contains("none") && family.contains("a"));
  family.put("empty", "");
  EXPECT(family.get("empty") && (*family.get("empty")).empty());
}

static void iterators(siltstone::Family& family) {
  siltstone::Iterator one = family.iterator();
  EXPECT(!one && one.first() && (*one).key == "a");
  siltstone::Iterator other = std::move(one);
  EXPECT(!one && other && (*other).key == "a" && other.next());
  one = std::move(other);
  EXPECT(!other && one && (*one).key == "b");
  // What it stands at may be sought.
  EXPECT(one.seek((*one).key) && (*one).key == "b" && one.seek_back((*one).key) && one.prev() && !one.prev());
  EXPECT(one.last() && (*one).key == "empty");
  // An empty text that is given bounds a range, one that is not given does not.
  EXPECT(count(family) == 3 && count(family, {"b", {}, {}}) == 2 && count(family, {{}, "b", {}}) == 1);
  EXPECT(count(family, {"a", std::string(), {}}) == 0);
  EXPECT(count(family, siltstone::Range::prefixed("e")) == 1);
  family.erase(siltstone::Range{"a", std::string(), {}});
  EXPECT(count(family) == 3);
}

static void transactions(siltstone::Db& db, siltstone::Family& family) {
  {
    siltstone::Transaction forgotten = db.begin();
    forgotten.put(family, "a", "9");
  }
  EXPECT(*family.get("a") == "1");
  int tries = 0;
  db.transact([&](siltstone::Transaction& transaction) {
    EXPECT(transaction.get(family, "a"));
    transaction.put(family, "a", "3");
    if (tries++ < 3) family.put("a", "2");
  });
  EXPECT(tries == 4 && *family.get("a") == "3");
  auto conflict = [&](siltstone::Transaction& transaction) {
    transaction.get_for_update(family, "a");
    family.put("a", "4");
  };
  EXPECT(thrown([&] { db.transact(conflict, 2); }) == SILTSTONE_KIND_CONFLICT);
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  const std::string dir = std::string(argv[1]) + "/db";
  EXPECT(thrown([&] { siltstone::Options("workes = 3"); }) == SILTSTONE_KIND_INVALID);
  siltstone::Options options("[families.texts]\nmerge_operator = 'join'\n");
  options.merge_operator("join", [](auto key, auto base, const auto& operands) {
    if (key == "wrong") throw std::runtime_error("not this key");
    std::string all(base.value_or(""));
    for (auto operand : operands) all += operand;
    return all;
  });
  // Another one in its place: the first is freed.
  options.merge_operator("unused", [](auto, auto, const auto&) { return std::string(); });
  options.merge_operator("unused", [](auto, auto, const auto&) { return std::string(); });
  siltstone::Db db(dir, options);
  EXPECT(thrown([&] { siltstone::Db second(dir); }) == SILTSTONE_KIND_BUSY);
  siltstone::Family family = db.family();
  values(family);
  iterators(family);
  transactions(db, family);
  siltstone::Family texts = db.family("texts");
  texts.merge("t", "a");
  texts.merge("t", "b");
  texts.merge("wrong", "a");
  EXPECT(*texts.get("t") == "ab");
  EXPECT(thrown([&] { texts.get("wrong"); }) == SILTSTONE_KIND_MERGE_REFUSED);
  siltstone::Snapshot before = db.snapshot();
  siltstone::Batch batch;
  batch.put(family, "c", "1").erase(family, "b").merge(texts, "t", "c").erase(family, siltstone::Range::prefixed("e"));
  EXPECT(batch.count() == 4 && db.write(batch, siltstone::Durability::sync) > before.seq());
  EXPECT(*texts.get("t") == "abc" && !family.get("b") && family.get("b", &before));
  siltstone::Family events = db.create_family("events", "timestamps = 'explicit'");
  events.put_at("door", 3, "opened");
  for (auto [key, value, timestamp] : events.scan()) EXPECT(key == "door" && value == "opened" && timestamp == 3);
  db.drop_family("events");
  EXPECT(thrown([&] { db.family("events"); }) == SILTSTONE_KIND_NOT_FOUND);
  family.alter("bloom_bits = 12");
  db.flush();
  family.compact();
  db.wait_idle();
  db.sync();
  db.checkpoint(dir + "-copy");
  EXPECT(db.stats().front() == '{' && count(siltstone::Db(dir + "-copy", options).family()) == 2);
  siltstone::Db moved = std::move(db);
  moved.close();
  EXPECT(thrown([&] { family.put("a", "1"); }) == SILTSTONE_KIND_CLOSED);
  EXPECT(thrown([&] { moved.begin(); }) == SILTSTONE_KIND_CLOSED);
  std::puts("wrappers: passed");
  return 0;
}
