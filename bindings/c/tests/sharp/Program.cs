// A program in C# over Debian's package libleveldb1.2-cil, which calls LevelDB's C interface by the name libleveldb.so.1d. It is run
// with a link of that name to libsiltstone.so: neither that package nor this program is built for it. `Program DIR`
using System;
using System.Collections.Generic;
using System.Linq;
using LevelDB;

static class Program {
  static void Expect(bool holds, string what) {
    if (!holds) throw new Exception("not so: " + what);
  }

  static string[] Keys(DB db, ReadOptions options, string from) {
    var keys = new List<string>();
    using (var iterator = new Iterator(db, options)) {
      for (iterator.Seek(from); iterator.IsValid; iterator.Next()) keys.Add(iterator.Key);
    }
    return keys.ToArray();
  }

  static void Run(string path) {
    var options = new Options { CreateIfMissing = true, BlockCache = new Cache(1 << 20), WriteBufferSize = 100000 };
    options.BlockSize = 1024;
    options.Compression = CompressionType.NoCompression;
    using (var db = new DB(options, path)) {
      Expect(db.GetProperty("leveldb.stats").StartsWith("Level  Runs"), "it is Siltstone");
      db["river"] = "silt";
      db.Put(new WriteOptions { Sync = true }, "lake", "mud");
      Expect(db["river"] == "silt" && db.Get("lake") == "mud" && db.Get("sea") == null, "what was put is there");
      db.Write(new WriteBatch().Put("sea", "sand").Delete("lake"));
      Expect(db.Get("sea") == "sand" && db.Get("lake") == null, "a batch");
      var then = new ReadOptions { Snapshot = db.CreateSnapshot() };
      db.Delete("sea");
      Expect(db.Get("sea") == null && db.Get(then, "sea") == "sand", "a snapshot");
      Expect(Keys(db, then, "s").SequenceEqual(new[] { "sea" }), "a snapshot's iterator");
      for (int i = 0; i < 20000; i++) db["key" + i.ToString("D6")] = "value " + i;
      db.Compact();
      Expect(db.Count() == 20001 && Keys(db, new ReadOptions(), "key019990").Length == 11, "all are there, in order");
      using (var iterator = new Iterator(db, new ReadOptions())) {
        iterator.SeekToLast();
        Expect(iterator.Key == "river" && iterator.Value == "silt", "the last");
        iterator.Previous();
        Expect(iterator.Key == "key019999", "the one before");
      }
    }
    using (var db = new DB(options, path)) Expect(db["key012345"] == "value 12345", "it is there after it was opened again");
    var another = new Options { ErrorIfExists = true };
    try {
      DB.Open(another, path);
      Expect(false, "an error is an exception");
    } catch (ApplicationException error) {
      Expect(error.Message.Contains("holds a database already"), error.Message);
    }
    DB.Repair(options, path);
    DB.Destroy(options, path);
    Expect(!System.IO.Directory.Exists(path), "it was deleted");
  }

  static int Main(string[] args) {
    Run(args[0] + "/db");
    Console.WriteLine("sharp: passed");
    return 0;
  }
}
