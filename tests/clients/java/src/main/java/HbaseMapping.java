// What bigtable-hbase maps of HBase's filters, scans, gets, deletes and conditions: each operation stands beside the rows
// that HBase's documentation promises. Usage: HbaseMapping HOST:PORT
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.*;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter.RowRange;
import org.apache.hadoop.hbase.io.TimeRange;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

public class HbaseMapping {
  static final byte[] A = bytes("a");
  static final byte[] B = bytes("b");
  static final byte[] EMPTY = new byte[0];

  // The rows that are read; below, a cell is FAMILY:QUALIFIER=VALUE, and rows are joined by bars.
  static final String R1 = "r1 a:=e a:q1=v2 a:q2= b:x=10";
  static final String R2 = "r2 a:q1=v2 a:q2=v3 b:y=20";
  static final String R3 = "r3 b:x=v1 b:y=";
  static final String S1 = "s1 a:p1=v1";
  static final String ALL = rows(R1, R2, R3, S1);

  interface Operation {
    String run() throws Exception;
  }

  record Case(String what, String expected, Operation operation) {}

  static Table table;
  static final List<Case> cases = new ArrayList<>();

  static byte[] bytes(String text) {
    return Bytes.toBytes(text);
  }

  static String rows(String... rows) {
    return String.join(" | ", rows);
  }

  static String text(Result result, boolean times) {
    StringBuilder text = new StringBuilder(Bytes.toString(result.getRow()));
    for (Cell cell : result.rawCells()) {
      text.append(' ').append(Bytes.toString(CellUtil.cloneFamily(cell)));
      text.append(':').append(Bytes.toString(CellUtil.cloneQualifier(cell)));
      text.append('=').append(Bytes.toString(CellUtil.cloneValue(cell)));
      if (times) text.append('@').append(cell.getTimestamp());
    }
    return text.toString();
  }

  static String read(Scan scan) throws Exception {
    List<String> found = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) found.add(text(result, false));
    }
    return String.join(" | ", found);
  }

  static String read(Get get, boolean times) throws Exception {
    Result result = table.get(get);
    return result.isEmpty() ? "" : text(result, times);
  }

  static void scan(String what, Scan scan, String expected) {
    cases.add(new Case("scan, " + what, expected, () -> read(scan)));
  }

  static void filter(String what, Filter filter, String expected) {
    cases.add(new Case("filter, " + what, expected, () -> read(rowsOfReads().setFilter(filter))));
  }

  static void filterOfA(String what, Filter filter, String expected) {
    cases.add(new Case("filter, " + what, expected, () -> read(rowsOfReads().addFamily(A).setFilter(filter))));
  }

  static void get(String what, Get get, String expected) {
    cases.add(new Case("get, " + what, expected, () -> read(get, false)));
  }

  // All rows that reads are about: those of deletes and conditions come before.
  static Scan rowsOfReads() {
    return new Scan().withStartRow(bytes("r"));
  }

  static final String BEFORE_DELETE = "d a:=e@1 a:p=1@1 a:q=3@3 a:q=2@2 a:q=1@1 b:x=1@1";

  // Deletes from a row that is as above, and reads all versions of what is left.
  static void delete(String what, Delete delete, String expected) {
    cases.add(
        new Case(
            "delete, " + what,
            expected,
            () -> {
              byte[] row = bytes("d");
              table.delete(new Delete(row));
              Put put = new Put(row).addColumn(A, EMPTY, 1, bytes("e")).addColumn(A, bytes("p"), 1, bytes("1"));
              for (long at = 1; at <= 3; at++) put.addColumn(A, bytes("q"), at, bytes("" + at));
              table.put(put.addColumn(B, bytes("x"), 1, bytes("1")));
              String before = read(new Get(row).readAllVersions(), true);
              if (!before.equals(BEFORE_DELETE)) return "before the delete: " + before;
              table.delete(delete);
              return read(new Get(row).readAllVersions(), true);
            }));
  }

  interface Check {
    Table.CheckAndMutateBuilder of(Table.CheckAndMutateBuilder builder);
  }

  // Puts a cell if the check holds; whether it says so, and whether the cell is there.
  static void check(String what, String qualifier, Check check, boolean expected) {
    cases.add(
        new Case(
            "condition, " + what,
            expected + " " + expected,
            () -> {
              byte[] row = bytes("c");
              table.delete(new Delete(row));
              Put put = new Put(row).addColumn(A, bytes("n"), 1, bytes("10")).addColumn(A, bytes("e"), 1, EMPTY);
              table.put(put.addColumn(A, EMPTY, 1, bytes("x")));
              Put then = new Put(row).addColumn(B, bytes("seen"), 1, bytes("1"));
              Table.CheckAndMutateBuilder builder = table.checkAndMutate(row, A).qualifier(bytes(qualifier));
              boolean says = check.of(builder).thenPut(then);
              return says + " " + table.exists(new Get(row).addColumn(B, bytes("seen")));
            }));
  }

  static BinaryComparator is(String value) {
    return new BinaryComparator(bytes(value));
  }

  static RegexStringComparator like(String pattern) {
    return new RegexStringComparator(pattern);
  }

  static ValueFilter value(CompareOperator operator, String value) {
    return new ValueFilter(operator, is(value));
  }

  static QualifierFilter qualifier(CompareOperator operator, String qualifier) {
    return new QualifierFilter(operator, is(qualifier));
  }

  static SingleColumnValueFilter column(String qualifier, CompareOperator operator, String value, boolean missingToo) {
    SingleColumnValueFilter filter = new SingleColumnValueFilter(A, bytes(qualifier), operator, bytes(value));
    filter.setFilterIfMissing(!missingToo);
    return filter;
  }

  static void filters() {
    filter("PrefixFilter", new PrefixFilter(bytes("r")), rows(R1, R2, R3));
    filter("PageFilter", new PageFilter(2), rows(R1, R2));
    filter("RowFilter of a key", new RowFilter(CompareOperator.EQUAL, is("r2")), R2);
    filter("RowFilter of a pattern", new RowFilter(CompareOperator.EQUAL, like("r[13]")), rows(R1, R3));
    byte[] anyThenOne = {0, '1'};
    FuzzyRowFilter fuzzy = new FuzzyRowFilter(Arrays.asList(new Pair<>(anyThenOne, new byte[] {1, 0})));
    filter("FuzzyRowFilter", fuzzy, rows(R1, S1));
    List<RowRange> ranges =
        Arrays.asList(new RowRange("r1", true, "r2", false), new RowRange("s", true, "t", false));
    filter("MultiRowRangeFilter", new MultiRowRangeFilter(ranges), rows(R1, S1));

    String ofB = rows("r1 b:x=10", "r2 b:y=20", R3);
    filter("FamilyFilter of a name", new FamilyFilter(CompareOperator.EQUAL, is("b")), ofB);
    filter("FamilyFilter of a pattern", new FamilyFilter(CompareOperator.EQUAL, like("[b-z]")), ofB);

    String q1 = rows("r1 a:q1=v2", "r2 a:q1=v2");
    String q = rows("r1 a:q1=v2 a:q2=", "r2 a:q1=v2 a:q2=v3");
    filter("QualifierFilter =", qualifier(CompareOperator.EQUAL, "q1"), q1);
    filter("QualifierFilter = empty", qualifier(CompareOperator.EQUAL, ""), "r1 a:=e");
    filter("QualifierFilter of a pattern", new QualifierFilter(CompareOperator.EQUAL, like("q.*")), q);
    String upToQ1 = rows("r1 a:=e a:q1=v2", "r2 a:q1=v2", S1);
    filterOfA("QualifierFilter <", qualifier(CompareOperator.LESS, "q2"), upToQ1);
    filterOfA("QualifierFilter <=", qualifier(CompareOperator.LESS_OR_EQUAL, "q1"), upToQ1);
    filterOfA("QualifierFilter >", qualifier(CompareOperator.GREATER, "q1"), rows("r1 a:q2=", "r2 a:q2=v3"));
    filterOfA("QualifierFilter >=", qualifier(CompareOperator.GREATER_OR_EQUAL, "q1"), q);
    String notQ1 = rows("r1 a:=e a:q2=", "r2 a:q2=v3", S1);
    filterOfA("QualifierFilter !=", qualifier(CompareOperator.NOT_EQUAL, "q1"), notQ1);
    filter("ColumnPrefixFilter", new ColumnPrefixFilter(bytes("q")), q);
    byte[][] prefixes = {bytes("p"), bytes("x")};
    String pOrX = rows("r1 b:x=10", "r3 b:x=v1", S1);
    filter("MultipleColumnPrefixFilter", new MultipleColumnPrefixFilter(prefixes), pOrX);
    ColumnRangeFilter range = new ColumnRangeFilter(bytes("p"), true, bytes("q2"), false);
    filterOfA("ColumnRangeFilter", range, rows("r1 a:q1=v2", "r2 a:q1=v2", S1));
    filterOfA("ColumnPaginationFilter by number", new ColumnPaginationFilter(1, 1), rows("r1 a:q1=v2", "r2 a:q2=v3"));
    filterOfA("ColumnPaginationFilter by column", new ColumnPaginationFilter(1, bytes("q1")), q1);
    get("ColumnCountGetFilter", new Get(bytes("r2")).setFilter(new ColumnCountGetFilter(1)), "r2 a:q1=v2");

    String first = rows("r1 a:=e", "r2 a:q1=v2", "r3 b:x=v1", S1);
    filter("FirstKeyOnlyFilter", new FirstKeyOnlyFilter(), first);
    filter("KeyOnlyFilter", new KeyOnlyFilter(), ALL.replaceAll("=[^ ]*", "="));
    filter("TimestampsFilter", new TimestampsFilter(Arrays.asList(3L, 5L)), rows("r3 b:y=", S1));

    String empty = rows("r1 a:q2=", "r3 b:y=");
    String overV1 = rows("r1 a:q1=v2", "r2 a:q1=v2 a:q2=v3");
    filter("ValueFilter =", value(CompareOperator.EQUAL, "v1"), rows("r3 b:x=v1", S1));
    filter("ValueFilter = empty", value(CompareOperator.EQUAL, ""), empty);
    String notV2 = rows("r1 a:=e a:q2= b:x=10", "r2 a:q2=v3 b:y=20", R3, S1);
    filter("ValueFilter !=", value(CompareOperator.NOT_EQUAL, "v2"), notV2);
    filter("ValueFilter <", value(CompareOperator.LESS, "2"), rows("r1 a:q2= b:x=10", "r3 b:y="));
    filter("ValueFilter <=", value(CompareOperator.LESS_OR_EQUAL, "10"), rows("r1 a:q2= b:x=10", "r3 b:y="));
    filter("ValueFilter >", value(CompareOperator.GREATER, "v1"), overV1);
    filter("ValueFilter >=", value(CompareOperator.GREATER_OR_EQUAL, "v2"), overV1);
    String v1OrV3 = rows("r2 a:q2=v3", "r3 b:x=v1", S1);
    filter("ValueFilter of a pattern", new ValueFilter(CompareOperator.EQUAL, like("v[13]")), v1OrV3);

    filter("SingleColumnValueFilter =", column("q1", CompareOperator.EQUAL, "v2", false), rows(R1, R2));
    filter("SingleColumnValueFilter = or missing", column("q1", CompareOperator.EQUAL, "v9", true), rows(R3, S1));
    filter("SingleColumnValueFilter = empty", column("q2", CompareOperator.EQUAL, "", false), R1);
    filter("SingleColumnValueFilter of the empty qualifier", column("", CompareOperator.EQUAL, "e", false), R1);
    filter("SingleColumnValueFilter !=", column("q2", CompareOperator.NOT_EQUAL, "v3", false), R1);
    filter("SingleColumnValueFilter >", column("q2", CompareOperator.GREATER, "v2", false), R2);
    SingleColumnValueExcludeFilter without =
        new SingleColumnValueExcludeFilter(A, bytes("q1"), CompareOperator.EQUAL, bytes("v2"));
    without.setFilterIfMissing(true);
    // bigtable-hbase takes it of scans of one family alone.
    filterOfA("SingleColumnValueExcludeFilter", without, rows("r1 a:=e a:q2=", "r2 a:q2=v3"));

    RowFilter ofR = new RowFilter(CompareOperator.EQUAL, like("r.*"));
    filter("WhileMatchFilter", new WhileMatchFilter(ofR), rows(R1, R2, R3));
    QualifierFilter isQ1 = qualifier(CompareOperator.EQUAL, "q1");
    filter("FilterList of all", new FilterList(new PrefixFilter(bytes("r1")), isQ1), "r1 a:q1=v2");
    FilterList one = new FilterList(FilterList.Operator.MUST_PASS_ONE, isQ1, value(CompareOperator.EQUAL, "20"));
    filter("FilterList of one", one, rows("r1 a:q1=v2", "r2 a:q1=v2 b:y=20"));
    FilterList both = new FilterList(FilterList.Operator.MUST_PASS_ONE, isQ1, value(CompareOperator.EQUAL, "v2"));
    filter("FilterList of one, where both hold", both, q1);
    FilterList either = new FilterList(FilterList.Operator.MUST_PASS_ONE);
    either.addFilter(new ColumnPrefixFilter(bytes("p")));
    either.addFilter(new ColumnPrefixFilter(bytes("q")));
    FilterList nested = new FilterList(new FamilyFilter(CompareOperator.EQUAL, is("a")), either);
    filter("FilterList in another", nested, rows("r1 a:q1=v2 a:q2=", "r2 a:q1=v2 a:q2=v3", S1));
  }

  static void reads() {
    scan("of all", rowsOfReads(), ALL);
    scan("from a row", new Scan().withStartRow(bytes("r2")), rows(R2, R3, S1));
    scan("behind a row", new Scan().withStartRow(bytes("r2"), false), rows(R3, S1));
    scan("up to a row", rowsOfReads().withStopRow(bytes("r2")), R1);
    scan("up to a row and with it", rowsOfReads().withStopRow(bytes("r2"), true), rows(R1, R2));
    Scan reversed = new Scan().setReversed(true).withStartRow(bytes("s1")).withStopRow(bytes("r1"));
    scan("reversed", reversed, rows(S1, R3, R2));
    scan("of so many rows", rowsOfReads().setLimit(2), rows(R1, R2));
    scan("of a family", rowsOfReads().addFamily(B), rows("r1 b:x=10", "r2 b:y=20", R3));
    Scan columns = rowsOfReads().addColumn(A, bytes("q1")).addColumn(B, bytes("x"));
    scan("of columns", columns, rows("r1 a:q1=v2 b:x=10", "r2 a:q1=v2", "r3 b:x=v1"));
    scan("of the empty qualifier", rowsOfReads().addColumn(A, null), "r1 a:=e");
    Scan late = new Scan().withStartRow(bytes("r2"));
    cases.add(new Case("scan, of times", rows("r3 b:y=", S1), () -> read(late.setTimeRange(3, 6))));

    byte[] r1 = bytes("r1");
    get("of a row", new Get(r1), R1);
    get("of no row", new Get(bytes("r0")), "");
    get("of a column", new Get(r1).addColumn(A, bytes("q1")), "r1 a:q1=v2");
    get("of the empty qualifier", new Get(r1).addColumn(A, null), "r1 a:=e");
    get("of an empty value", new Get(r1).addColumn(A, bytes("q2")), "r1 a:q2=");
    String versions = "r1 a:q1=v2@2 a:q1=v1@1";
    cases.add(
        new Case(
            "get, of all versions",
            versions,
            () -> read(new Get(r1).addColumn(A, bytes("q1")).readAllVersions(), true)));
    cases.add(
        new Case(
            "get, of a time", "r1 a:q1=v1@1", () -> read(new Get(r1).addColumn(A, bytes("q1")).setTimestamp(1), true)));
    List<Get> asked = Arrays.asList(new Get(r1).addColumn(A, null), new Get(r1).addColumn(B, null));
    Operation exists = () -> Arrays.toString(table.exists(asked));
    cases.add(new Case("exists, of the empty qualifier", "[true, false]", exists));
  }

  static void deletes() {
    byte[] row = bytes("d");
    byte[] q = bytes("q");
    delete("of a row", new Delete(row), "");
    delete("of a column", new Delete(row).addColumns(A, q), "d a:=e@1 a:p=1@1 b:x=1@1");
    delete("of a column up to a time", new Delete(row).addColumns(A, q, 2), "d a:=e@1 a:p=1@1 a:q=3@3 b:x=1@1");
    delete("of a version", new Delete(row).addColumn(A, q, 2), "d a:=e@1 a:p=1@1 a:q=3@3 a:q=1@1 b:x=1@1");
    delete("of no version", new Delete(row).addColumn(A, q, 9), BEFORE_DELETE);
    delete("of the empty qualifier", new Delete(row).addColumns(A, EMPTY), BEFORE_DELETE.replace(" a:=e@1", ""));
    delete("of a family", new Delete(row).addFamily(A), "d b:x=1@1");
    delete("of columns", new Delete(row).addColumns(A, q).addColumns(B, bytes("x")), "d a:=e@1 a:p=1@1");
  }

  // HBase has what is expected on the left of the operator, and the cell on its right.
  static void conditions() {
    check("= the cell", "n", c -> c.ifEquals(bytes("10")), true);
    check("= another", "n", c -> c.ifEquals(bytes("11")), false);
    check("= in a missing column", "none", c -> c.ifEquals(bytes("10")), false);
    // Of HBase itself an empty cell is equal too; bigtable-hbase asks no more than whether the column is missing.
    check("= empty, which the client asks as missing", "e", c -> c.ifEquals(EMPTY), false);
    check("= empty, and the cell is not", "n", c -> c.ifEquals(EMPTY), false);
    check("= in the empty qualifier", "", c -> c.ifEquals(bytes("x")), true);
    check("!= another", "n", c -> c.ifMatches(CompareOperator.NOT_EQUAL, bytes("11")), true);
    check("!= the cell", "n", c -> c.ifMatches(CompareOperator.NOT_EQUAL, bytes("10")), false);
    check("more > the cell", "n", c -> c.ifMatches(CompareOperator.GREATER, bytes("20")), true);
    check("more < the cell", "n", c -> c.ifMatches(CompareOperator.LESS, bytes("20")), false);
    check("the same >= the cell", "n", c -> c.ifMatches(CompareOperator.GREATER_OR_EQUAL, bytes("10")), true);
    check("less <= the cell", "n", c -> c.ifMatches(CompareOperator.LESS_OR_EQUAL, bytes("0")), true);
    check("a column that is missing", "none", c -> c.ifNotExists(), true);
    check("a column that is there", "n", c -> c.ifNotExists(), false);
    check("within times", "n", c -> c.timeRange(TimeRange.between(1, 2)).ifEquals(bytes("10")), true);
    check("out of times", "n", c -> c.timeRange(TimeRange.between(5, 9)).ifEquals(bytes("10")), false);
    cases.add(
        new Case(
            "condition, then mutations",
            "true m a:p=1",
            () -> {
              byte[] row = bytes("m");
              table.put(new Put(row).addColumn(A, bytes("n"), 1, bytes("10")));
              RowMutations then = new RowMutations(row);
              then.add(new Put(row).addColumn(A, bytes("p"), 1, bytes("1")));
              then.add(new Delete(row).addColumns(A, bytes("n")));
              boolean says = table.checkAndMutate(row, A).qualifier(bytes("n")).ifEquals(bytes("10")).thenMutate(then);
              return says + " " + read(new Get(row), false);
            }));
  }

  static void write() throws Exception {
    Put r1 = new Put(bytes("r1")).addColumn(A, EMPTY, 1, bytes("e")).addColumn(A, bytes("q1"), 1, bytes("v1"));
    r1.addColumn(A, bytes("q1"), 2, bytes("v2")).addColumn(A, bytes("q2"), 1, EMPTY);
    r1.addColumn(B, bytes("x"), 1, bytes("10"));
    Put r2 = new Put(bytes("r2")).addColumn(A, bytes("q1"), 1, bytes("v2")).addColumn(A, bytes("q2"), 1, bytes("v3"));
    r2.addColumn(B, bytes("y"), 1, bytes("20"));
    Put r3 = new Put(bytes("r3")).addColumn(B, bytes("x"), 1, bytes("v1")).addColumn(B, bytes("y"), 5, EMPTY);
    Put s1 = new Put(bytes("s1")).addColumn(A, bytes("p1"), 3, bytes("v1"));
    table.put(Arrays.asList(r1, r2, r3, s1));
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.connection.impl", "com.google.cloud.bigtable.hbase2_x.BigtableConnection");
    conf.set("google.bigtable.project.id", "local");
    conf.set("google.bigtable.instance.id", "demo");
    conf.set("google.bigtable.emulator.endpoint.host", args[0]);
    int differ = 0;
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      Admin admin = connection.getAdmin();
      TableName name = TableName.valueOf("mapping");
      if (admin.tableExists(name)) admin.deleteTable(name);
      TableDescriptorBuilder made = TableDescriptorBuilder.newBuilder(name);
      for (byte[] family : new byte[][] {A, B}) {
        made.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family).setMaxVersions(5).build());
      }
      admin.createTable(made.build());
      table = connection.getTable(name);
      write();
      reads();
      filters();
      deletes();
      conditions();
      for (Case one : cases) {
        String answer;
        try {
          answer = one.operation().run();
        } catch (Exception e) {
          answer = e.toString().lines().findFirst().orElse("");
        }
        boolean holds = answer.equals(one.expected());
        differ += holds ? 0 : 1;
        System.out.println((holds ? "passed: " : "differs: ") + one.what());
        if (!holds) System.out.println("  HBase: " + one.expected() + "\n  here:  " + answer);
      }
      admin.disableTable(name);
      admin.deleteTable(name);
    }
    if (differ == 0) System.out.println("hbase: " + cases.size() + " operations answer as expected");
    System.exit(differ == 0 ? 0 : 1);
  }
}
