// A tour of Siltstone from C++17. Build it against an installed library:
//     c++ -std=c++17 tour.cpp -o tour $(pkg-config --cflags --libs siltstone)
#include <iostream>
#include <siltstone.hpp>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: tour DIR\n";
    return 2;
  }
  siltstone::Options options("[families.counts]\nmerge_operator = 'add'\n");
  options.merge_operator("add", [](auto, auto base, const auto& operands) {
    long sum = base ? std::stol(std::string(*base)) : 0;
    for (auto operand : operands) sum += std::stol(std::string(operand));
    return std::to_string(sum);
  });
  siltstone::Db db(argv[1], options);
  siltstone::Family family = db.family();
  family.put("ant", "1");
  family.put("bee", "2", siltstone::Durability::sync);  // no power loss can lose it
  std::cout << "bee is " << *family.get("bee") << "\n";
  std::cout << "cat is " << (family.get("cat") ? "there" : "not there") << "\n";

  db.write(siltstone::Batch().put(family, "cat", "3").erase(family, "ant"));
  siltstone::Snapshot then = db.snapshot();
  family.erase(siltstone::Range{"cat", {}, {}});
  for (auto [key, value, timestamp] : family.scan({}, &then)) std::cout << "then: " << key << " = " << value << "\n";

  siltstone::Family counts = db.family("counts");
  counts.merge("visits", "2");
  counts.merge("visits", "3");
  std::cout << "visits: " << *counts.get("visits") << "\n";

  // Called again while others write to what it read.
  db.transact([&](siltstone::Transaction& transaction) {
    const std::string before = transaction.get(family, "bee").str();
    transaction.put(family, "bee", std::to_string(std::stol(before) + 1));
  });
  std::cout << "bee is " << *family.get("bee") << "\n";
  db.close();
  try {
    family.put("late", "1");
  } catch (const siltstone::Error& error) {
    std::cout << (error.kind() == SILTSTONE_KIND_CLOSED ? "closed" : error.what()) << "\n";
  }
  return 0;
} catch (const siltstone::Error& error) {
  std::cerr << "tour: " << error.what() << "\n";
  return 1;
}

// Prints:
//     bee is 2
//     cat is not there
//     then: bee = 2
//     then: cat = 3
//     visits: 5
//     bee is 3
//     closed
