// Siltstone from C++17: owners over siltstone.h. What C frees by hand is freed here by destructors; what C answers as an error is
// thrown as siltstone::Error. See siltstone.h for what calls mean, for threads and for lifetimes. Of a moved-from object nothing but
// assignment and destruction is allowed, except that values and iterators are empty then.
#ifndef SILTSTONE_HPP
#define SILTSTONE_HPP

#include "siltstone.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace siltstone {

// Why a call failed.
class Error : public std::runtime_error {
 public:
  explicit Error(siltstone_error* error)
      : std::runtime_error(siltstone_error_message(error)), kind_(siltstone_error_kind(error)) {
    if (const char* file = siltstone_error_file(error)) file_ = file;
    std::uint64_t at = 0;
    if (siltstone_error_offset(error, &at)) offset_ = at;
    siltstone_error_free(&error);
  }

  // What to do about it.
  siltstone_kind kind() const noexcept { return kind_; }
  // The file concerned; empty if there is none.
  const std::string& file() const noexcept { return file_; }
  // The place in that file, in bytes.
  std::optional<std::uint64_t> offset() const noexcept { return offset_; }

 private:
  siltstone_kind kind_;
  std::string file_;
  std::optional<std::uint64_t> offset_;
};

namespace detail {

inline void check(siltstone_error* error) {
  if (error != nullptr) throw Error(error);
}

inline siltstone_slice slice(std::string_view bytes) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

inline std::string_view view(siltstone_slice bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data), bytes.len};
}

// Calls what C frees a handle with.
template <typename T, void (*Free)(T**)>
struct Freed {
  void operator()(T* handle) const noexcept { Free(&handle); }
};

template <typename T, void (*Free)(T**)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

inline std::string taken(char* text) {
  std::string copy(text);
  siltstone_text_free(&text);
  return copy;
}

}  // namespace detail

// What a write waits for.
enum class Durability : std::int32_t { buffered = SILTSTONE_BUFFERED, sync = SILTSTONE_SYNC };

// Which writes of others make a commit fail.
enum class Isolation : std::int32_t { serializable = SILTSTONE_SERIALIZABLE, snapshot = SILTSTONE_SNAPSHOT };

// A value that is held where it lies, without a copy.
class Value {
 public:
  Value() noexcept : value_{} {}
  Value(Value&& other) noexcept : value_(std::exchange(other.value_, siltstone_value{})) {}
  Value& operator=(Value&& other) noexcept {
    if (this != &other) {
      siltstone_value_free(&value_);
      value_ = std::exchange(other.value_, siltstone_value{});
    }
    return *this;
  }
  ~Value() { siltstone_value_free(&value_); }

  // Whether the key was there.
  explicit operator bool() const noexcept { return value_.data != nullptr; }
  // Its bytes, as long as this lives.
  std::string_view operator*() const noexcept { return {reinterpret_cast<const char*>(value_.data), value_.len}; }
  std::string str() const { return std::string(**this); }

  siltstone_value* place() noexcept {
    siltstone_value_free(&value_);
    return &value_;
  }

 private:
  siltstone_value value_;
};

// A range of keys: from `start` up to, but not including, `end`, or those with a prefix. What is not given does not bound it; an
// empty text that is given does.
struct Range {
  std::string_view start;
  std::string_view end;
  std::string_view prefix;

  // All keys that begin with these bytes.
  static Range prefixed(std::string_view prefix) { return {{}, {}, prefix}; }

  siltstone_range c() const noexcept {
    auto given = [](std::string_view bytes) { return bytes.data() == nullptr ? siltstone_slice{} : detail::slice(bytes); };
    return {given(start), given(end), given(prefix)};
  }
};

// A read point.
class Snapshot {
 public:
  explicit Snapshot(siltstone_snapshot* handle) noexcept : handle_(handle) {}
  std::uint64_t seq() const noexcept { return siltstone_snapshot_seq(handle_.get()); }
  const siltstone_snapshot* c() const noexcept { return handle_.get(); }

 private:
  detail::Owned<siltstone_snapshot, siltstone_snapshot_free> handle_;
};

// A key, its value, and its timestamp where those are explicit. Valid until the iterator is moved.
struct Entry {
  std::string_view key;
  std::string_view value;
  std::uint64_t timestamp;
};

// A place among the entries of a range. Each move says whether there is an entry where it came to.
class Iterator {
 public:
  explicit Iterator(siltstone_iterator* handle) noexcept : handle_(handle) {}
  Iterator(Iterator&& other) noexcept
      : handle_(std::move(other.handle_)), at_(std::exchange(other.at_, nullptr)) {}
  Iterator& operator=(Iterator&& other) noexcept {
    handle_ = std::move(other.handle_);
    at_ = std::exchange(other.at_, nullptr);
    return *this;
  }

  bool first() { return moved(siltstone_iterator_first(handle_.get(), &at_)); }
  bool last() { return moved(siltstone_iterator_last(handle_.get(), &at_)); }
  bool next() { return moved(siltstone_iterator_next(handle_.get(), &at_)); }
  bool prev() { return moved(siltstone_iterator_prev(handle_.get(), &at_)); }
  // To the first entry at or after the key.
  bool seek(std::string_view key) { return moved(siltstone_iterator_seek(handle_.get(), detail::slice(key), &at_)); }
  // To the last entry at or before the key.
  bool seek_back(std::string_view key) {
    return moved(siltstone_iterator_seek_back(handle_.get(), detail::slice(key), &at_));
  }

  explicit operator bool() const noexcept { return at_ != nullptr; }
  // Where it stands; it must stand somewhere.
  Entry operator*() const noexcept { return {detail::view(at_->key), detail::view(at_->value), at_->timestamp}; }

 private:
  bool moved(siltstone_error* error) {
    detail::check(error);
    return at_ != nullptr;
  }

  detail::Owned<siltstone_iterator, siltstone_iterator_free> handle_;
  const siltstone_entry* at_ = nullptr;
};

// For loops: `for (auto [key, value, timestamp] : family.scan())`. It can be gone through once.
class Scan {
 public:
  struct End {};

  class Step {
   public:
    explicit Step(Iterator* iterator) noexcept : iterator_(iterator) {}
    Entry operator*() const noexcept { return **iterator_; }
    Step& operator++() {
      iterator_->next();
      return *this;
    }
    bool operator!=(End) const noexcept { return static_cast<bool>(*iterator_); }

   private:
    Iterator* iterator_;
  };

  explicit Scan(Iterator iterator) : iterator_(std::move(iterator)) {}
  Step begin() {
    iterator_.first();
    return Step(&iterator_);
  }
  End end() const noexcept { return {}; }

 private:
  Iterator iterator_;
};

// A column family: an ordered map of keys to values.
class Family {
 public:
  explicit Family(siltstone_family* handle) noexcept : handle_(handle) {}

  std::string name() const { return siltstone_family_name(handle_.get()); }

  void put(std::string_view key, std::string_view value, Durability how = Durability::buffered) {
    detail::check(siltstone_put(c(), detail::slice(key), detail::slice(value), static_cast<std::int32_t>(how)));
  }
  void put_at(std::string_view key, std::uint64_t timestamp, std::string_view value,
              Durability how = Durability::buffered) {
    auto error = siltstone_put_at(c(), detail::slice(key), timestamp, detail::slice(value), static_cast<std::int32_t>(how));
    detail::check(error);
  }
  void erase(std::string_view key, Durability how = Durability::buffered) {
    detail::check(siltstone_delete(c(), detail::slice(key), static_cast<std::int32_t>(how)));
  }
  void erase(const Range& range, Durability how = Durability::buffered) {
    const siltstone_range c_range = range.c();
    detail::check(siltstone_delete_range(c(), &c_range, static_cast<std::int32_t>(how)));
  }
  void merge(std::string_view key, std::string_view operand, Durability how = Durability::buffered) {
    detail::check(siltstone_merge(c(), detail::slice(key), detail::slice(operand), static_cast<std::int32_t>(how)));
  }

  Value get(std::string_view key, const Snapshot* at = nullptr) const {
    Value value;
    detail::check(siltstone_get(c(), at == nullptr ? nullptr : at->c(), detail::slice(key), value.place()));
    return value;
  }
  bool contains(std::string_view key) const { return static_cast<bool>(get(key)); }

  Iterator iterator(const Range& range = {}, const Snapshot* at = nullptr) const {
    const siltstone_range c_range = range.c();
    siltstone_iterator* made = nullptr;
    detail::check(siltstone_scan(c(), at == nullptr ? nullptr : at->c(), &c_range, &made));
    return Iterator(made);
  }
  Scan scan(const Range& range = {}, const Snapshot* at = nullptr) const { return Scan(iterator(range, at)); }

  void alter(const std::string& toml) { detail::check(siltstone_family_alter(c(), toml.c_str())); }
  void flush() { detail::check(siltstone_family_flush(c())); }
  void compact(const Range& range = {}) {
    const siltstone_range c_range = range.c();
    detail::check(siltstone_compact(c(), &c_range));
  }

  const siltstone_family* c() const noexcept { return handle_.get(); }

 private:
  detail::Owned<siltstone_family, siltstone_family_free> handle_;
};

// Writes that take effect together.
class Batch {
 public:
  Batch() : handle_(siltstone_batch_new()) {}

  Batch& put(const Family& family, std::string_view key, std::string_view value) {
    detail::check(siltstone_batch_put(handle_.get(), family.c(), detail::slice(key), detail::slice(value)));
    return *this;
  }
  Batch& erase(const Family& family, std::string_view key) {
    detail::check(siltstone_batch_delete(handle_.get(), family.c(), detail::slice(key)));
    return *this;
  }
  Batch& erase(const Family& family, const Range& range) {
    const siltstone_range c_range = range.c();
    detail::check(siltstone_batch_delete_range(handle_.get(), family.c(), &c_range));
    return *this;
  }
  Batch& merge(const Family& family, std::string_view key, std::string_view operand) {
    detail::check(siltstone_batch_merge(handle_.get(), family.c(), detail::slice(key), detail::slice(operand)));
    return *this;
  }
  std::size_t count() const noexcept { return siltstone_batch_count(handle_.get()); }
  void clear() noexcept { siltstone_batch_clear(handle_.get()); }

  const siltstone_batch* c() const noexcept { return handle_.get(); }

 private:
  detail::Owned<siltstone_batch, siltstone_batch_free> handle_;
};

// One moment under own writes, which take effect together at `commit`, or never.
class Transaction {
 public:
  explicit Transaction(siltstone_transaction* handle) noexcept : handle_(handle) {}

  Value get(const Family& family, std::string_view key) const {
    Value value;
    detail::check(siltstone_transaction_get(handle_.get(), family.c(), detail::slice(key), value.place()));
    return value;
  }
  Value get_for_update(const Family& family, std::string_view key) const {
    Value value;
    auto error = siltstone_transaction_get_for_update(handle_.get(), family.c(), detail::slice(key), value.place());
    detail::check(error);
    return value;
  }
  void put(const Family& family, std::string_view key, std::string_view value) {
    detail::check(siltstone_transaction_put(handle_.get(), family.c(), detail::slice(key), detail::slice(value)));
  }
  void erase(const Family& family, std::string_view key) {
    detail::check(siltstone_transaction_delete(handle_.get(), family.c(), detail::slice(key)));
  }
  void merge(const Family& family, std::string_view key, std::string_view operand) {
    detail::check(siltstone_transaction_merge(handle_.get(), family.c(), detail::slice(key), detail::slice(operand)));
  }
  // Commits and answers the last sequence number, or throws with kind SILTSTONE_KIND_CONFLICT.
  std::uint64_t commit(Durability how = Durability::buffered) {
    std::uint64_t seq = 0;
    siltstone_transaction* handle = handle_.release();
    detail::check(siltstone_commit(&handle, static_cast<std::int32_t>(how), &seq));
    return seq;
  }

 private:
  detail::Owned<siltstone_transaction, siltstone_transaction_free> handle_;
};

// How a database is opened.
class Options {
 public:
  // The operands of a key, oldest first, and what was there before them; answers what comes of them. What it throws is a refusal.
  using Merge = std::function<std::string(std::string_view key, std::optional<std::string_view> base,
                                          const std::vector<std::string_view>& operands)>;

  Options() : handle_(siltstone_options_new()) {}
  explicit Options(const std::string& toml) : Options() { parse(toml); }

  Options& parse(const std::string& toml) {
    detail::check(siltstone_options_parse(handle_.get(), toml.c_str()));
    return *this;
  }
  Options& merge_operator(const std::string& name, Merge merge) {
    auto* context = new Merge(std::move(merge));
    auto freed = [](void* context) { delete static_cast<Merge*>(context); };
    detail::check(siltstone_options_merge_operator(handle_.get(), name.c_str(), called, context, freed));
    return *this;
  }

  const siltstone_options* c() const noexcept { return handle_.get(); }

 private:
  static void called(void* context, siltstone_slice key, const siltstone_slice* base, const siltstone_slice* operands,
                     std::size_t count, siltstone_output* output) noexcept {
    try {
      std::optional<std::string_view> before;
      if (base != nullptr) before = detail::view(*base);
      std::vector<std::string_view> all;
      for (std::size_t i = 0; i < count; i++) all.push_back(detail::view(operands[i]));
      const std::string value = (*static_cast<Merge*>(context))(detail::view(key), before, all);
      siltstone_output_value(output, detail::slice(value));
    } catch (const std::exception& why) {
      siltstone_output_refuse(output, detail::slice(why.what()));
    } catch (...) {
      siltstone_output_refuse(output, detail::slice("it threw what is no std::exception"));
    }
  }

  detail::Owned<siltstone_options, siltstone_options_free> handle_;
};

// An open database.
class Db {
 public:
  explicit Db(const std::string& dir) : Db(dir, nullptr) {}
  Db(const std::string& dir, const Options& options) : Db(dir, options.c()) {}

  // The family of that name.
  Family family(const std::string& name = "default") const {
    siltstone_family* made = nullptr;
    detail::check(siltstone_family_open(handle_.get(), name.c_str(), &made));
    return Family(made);
  }
  Family create_family(const std::string& name, const std::string& toml = "") {
    siltstone_family* made = nullptr;
    detail::check(siltstone_create_family(handle_.get(), name.c_str(), toml.c_str(), &made));
    return Family(made);
  }
  void drop_family(const std::string& name) { detail::check(siltstone_drop_family(handle_.get(), name.c_str())); }

  std::uint64_t write(const Batch& batch, Durability how = Durability::buffered) {
    std::uint64_t seq = 0;
    detail::check(siltstone_write(handle_.get(), batch.c(), static_cast<std::int32_t>(how), &seq));
    return seq;
  }
  Snapshot snapshot() const {
    siltstone_snapshot* made = nullptr;
    detail::check(siltstone_snapshot_new(handle_.get(), &made));
    return Snapshot(made);
  }
  Transaction begin(Isolation isolation = Isolation::serializable) {
    siltstone_transaction* made = nullptr;
    detail::check(siltstone_begin(handle_.get(), static_cast<std::int32_t>(isolation), &made));
    return Transaction(made);
  }
  // Calls `work` with a transaction and commits it, again while others write to what it read, `retries` times at most.
  template <typename Work>
  std::uint64_t transact(Work work, int retries = 100, Durability how = Durability::buffered) {
    for (;; retries--) {
      Transaction transaction = begin();
      work(transaction);
      try {
        return transaction.commit(how);
      } catch (const Error& error) {
        if (error.kind() != SILTSTONE_KIND_CONFLICT || retries <= 0) throw;
      }
    }
  }

  void sync() { detail::check(siltstone_sync(handle_.get())); }
  void flush() { detail::check(siltstone_flush(handle_.get())); }
  void wait_idle() { detail::check(siltstone_wait_idle(handle_.get())); }
  void checkpoint(const std::string& dir) { detail::check(siltstone_checkpoint(handle_.get(), dir.c_str())); }
  // What it holds and has done, as JSON.
  std::string stats() const {
    char* json = nullptr;
    detail::check(siltstone_stats(handle_.get(), &json));
    return detail::taken(json);
  }
  // Closes it: calls that come later throw. Without it, it is closed when all that was made of it is gone.
  void close() { detail::check(siltstone_close(handle_.get())); }

  const siltstone_db* c() const noexcept { return handle_.get(); }

 private:
  Db(const std::string& dir, const siltstone_options* options) {
    siltstone_db* made = nullptr;
    detail::check(siltstone_open(dir.c_str(), options, &made));
    handle_.reset(made);
  }

  detail::Owned<siltstone_db, siltstone_db_free> handle_;
};

}  // namespace siltstone

#endif  // SILTSTONE_HPP
