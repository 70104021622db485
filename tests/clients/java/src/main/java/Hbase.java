// An unchanged HBase application: reads packages that the demonstration loaded, writes them into a table of its own, reads
// them back and compares; then what HBase's clients do besides. Usage: Hbase HOST:PORT
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.util.Bytes;

public class Hbase {
  static final byte[] ABOUT = Bytes.toBytes("about");
  static final byte[] VERSION = Bytes.toBytes("Version");

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  static byte[] column(int n) {
    return Bytes.toBytes(String.format("%05d", n));
  }

  /** Writes a row of so many MiB between two small ones, and compares what a scan gives and what a get gives. */
  static void large(Table own, int cells, int mib) throws Exception {
    Random random = new Random(7);
    String name = "large " + cells + " " + mib + " ";
    byte[][] values = new byte[cells][(mib << 20) / cells];
    Put put = new Put(Bytes.toBytes(name + "b"));
    for (int n = 0; n < cells; n++) {
      random.nextBytes(values[n]);
      put.addColumn(ABOUT, column(n), values[n]);
    }
    own.put(put);
    for (String end : new String[] {"a", "c"}) {
      own.put(new Put(Bytes.toBytes(name + end)).addColumn(ABOUT, VERSION, Bytes.toBytes("small")));
    }
    List<Result> found = new ArrayList<>();
    found.add(own.get(new Get(Bytes.toBytes(name + "b"))));
    Scan scan = new Scan().withStartRow(Bytes.toBytes(name)).withStopRow(Bytes.toBytes(name + "z"));
    try (ResultScanner scanner = own.getScanner(scan)) {
      scanner.forEach(found::add);
    }
    StringBuilder ends = new StringBuilder();
    for (Result row : found) {
      String end = Bytes.toString(row.getRow()).substring(name.length());
      ends.append(end);
      if (!end.equals("b")) {
        check(Bytes.toString(row.getValue(ABOUT, VERSION)).equals("small"), name + end + " differs");
        continue;
      }
      Cell[] back = row.rawCells();
      check(back.length == cells, name + ": cells that come back: " + back.length);
      for (int n = 0; n < cells; n++) {
        boolean same = CellUtil.matchingQualifier(back[n], column(n)) && CellUtil.matchingValue(back[n], values[n]);
        check(same, name + ": cell " + n + " differs");
      }
    }
    check(ends.toString().equals("babc"), name + ": the rows that come back: " + ends);
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.connection.impl", "com.google.cloud.bigtable.hbase2_x.BigtableConnection");
    conf.set("google.bigtable.project.id", "local");
    conf.set("google.bigtable.instance.id", "demo");
    conf.set("google.bigtable.emulator.endpoint.host", args[0]);
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      Admin admin = connection.getAdmin();
      TableName name = TableName.valueOf("hbase");
      if (admin.tableExists(name)) admin.deleteTable(name);
      ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.newBuilder(ABOUT).setMaxVersions(3).build();
      admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family).build());
      check(admin.tableExists(name), "the table is there");
      Table packages = connection.getTable(TableName.valueOf("packages"));
      Table own = connection.getTable(name);

      Scan scan = new Scan().addFamily(ABOUT).withStartRow(Bytes.toBytes("lib")).setLimit(2000);
      List<Result> rows = new ArrayList<>();
      try (ResultScanner scanner = packages.getScanner(scan)) {
        scanner.forEach(rows::add);
      }
      check(rows.size() == 2000 || rows.size() > 100, "rows of the demonstration: " + rows.size());
      List<Put> puts = new ArrayList<>();
      for (Result row : rows) {
        Put put = new Put(row.getRow());
        for (Cell cell : row.rawCells()) {
          put.addColumn(ABOUT, CellUtil.cloneQualifier(cell), cell.getTimestamp(), CellUtil.cloneValue(cell));
        }
        puts.add(put);
      }
      own.put(puts);
      List<Result> back = new ArrayList<>();
      try (ResultScanner scanner = own.getScanner(new Scan())) {
        scanner.forEach(back::add);
      }
      check(back.size() == rows.size(), "as many rows come back: " + back.size());
      for (int i = 0; i < rows.size(); i++) {
        Result.compareResults(rows.get(i), back.get(i));
      }

      byte[] first = rows.get(0).getRow();
      check(own.get(new Get(first).addColumn(ABOUT, VERSION)).getValue(ABOUT, VERSION) != null, "a get of a column");
      boolean[] there = own.exists(Arrays.asList(new Get(first), new Get(Bytes.toBytes("none"))));
      check(there[0] && !there[1], "exists");
      byte[] row = Bytes.toBytes("counter");
      byte[] n = Bytes.toBytes("n");
      check(own.incrementColumnValue(row, ABOUT, n, 5) == 5, "increment");
      check(own.incrementColumnValue(row, ABOUT, n, 2) == 7, "increment again");
      own.append(new Append(row).addColumn(ABOUT, Bytes.toBytes("s"), Bytes.toBytes("ab")));
      own.append(new Append(row).addColumn(ABOUT, Bytes.toBytes("s"), Bytes.toBytes("cd")));
      check(Bytes.toString(own.get(new Get(row)).getValue(ABOUT, Bytes.toBytes("s"))).equals("abcd"), "append");
      Put put = new Put(row).addColumn(ABOUT, n, Bytes.toBytes(9L));
      check(own.checkAndMutate(row, ABOUT).qualifier(n).ifEquals(Bytes.toBytes(7L)).thenPut(put), "check and put");
      check(!own.checkAndMutate(row, ABOUT).qualifier(n).ifEquals(Bytes.toBytes(7L)).thenPut(put), "and not twice");
      RowMutations mutations = new RowMutations(row);
      mutations.add(new Put(row).addColumn(ABOUT, Bytes.toBytes("x"), Bytes.toBytes("1")));
      mutations.add(new Delete(row).addColumns(ABOUT, n));
      own.mutateRow(mutations);
      Result result = own.get(new Get(row));
      check(result.containsColumn(ABOUT, Bytes.toBytes("x")) && !result.containsColumn(ABOUT, n), "mutations of a row");
      for (long at = 1; at <= 5; at++) {
        own.put(new Put(Bytes.toBytes("v")).addColumn(ABOUT, n, at, Bytes.toBytes(at)));
      }
      check(own.get(new Get(Bytes.toBytes("v")).readAllVersions()).rawCells().length == 3, "three versions are kept");
      check(own.get(new Get(Bytes.toBytes("v")).setTimeRange(3, 5).readAllVersions()).rawCells().length == 2, "time range");
      int count = 0;
      Scan filtered = new Scan().setFilter(new PrefixFilter(Arrays.copyOf(first, 4)));
      try (ResultScanner scanner = own.getScanner(filtered)) {
        for (Result ignored : scanner) count++;
      }
      check(count > 0 && count <= rows.size(), "prefix filter");
      SingleColumnValueFilter equal = new SingleColumnValueFilter(
          ABOUT, VERSION, CompareOperator.EQUAL, rows.get(0).getValue(ABOUT, VERSION));
      equal.setFilterIfMissing(true);
      try (ResultScanner scanner = own.getScanner(new Scan().setFilter(equal))) {
        check(scanner.next() != null, "value filter");
      }
      try (ResultScanner scanner = own.getScanner(new Scan().setFilter(new FirstKeyOnlyFilter()).setReversed(true))) {
        check(Bytes.toString(scanner.next().getRow()).equals("v"), "reversed");
      }
      own.delete(new Delete(row));
      check(own.get(new Get(row)).isEmpty(), "delete of a row");
      check(connection.getRegionLocator(name).getAllRegionLocations().size() >= 1, "regions");
      for (int mib : new int[] {1, 5, 20, 64}) large(own, 10, mib);
      for (int mib : new int[] {1, 5, 20}) large(own, 30_000, mib);
      admin.disableTable(name);
      admin.deleteTable(name);
      check(!admin.tableExists(name), "the table is gone");
      System.out.println("java: " + rows.size() + " rows written and read back through the HBase API");
    }
    System.exit(0);
  }
}
