// YCSB over the official Java client: `cargo xtask ycsb`. Property `bigtable.server` is the server's HOST:PORT. Records are rows of a
// table of the same name, with a column of the family `f` for each field.
import com.google.api.gax.rpc.NotFoundException;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminClient;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminSettings;
import com.google.cloud.bigtable.admin.v2.models.CreateTableRequest;
import com.google.cloud.bigtable.data.v2.BigtableDataClient;
import com.google.cloud.bigtable.data.v2.BigtableDataSettings;
import com.google.cloud.bigtable.data.v2.models.Filters;
import com.google.cloud.bigtable.data.v2.models.Query;
import com.google.cloud.bigtable.data.v2.models.Row;
import com.google.cloud.bigtable.data.v2.models.RowCell;
import com.google.cloud.bigtable.data.v2.models.RowMutation;
import com.google.protobuf.ByteString;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

public class Bigtable extends DB {
  private static final String FAMILY = "f";
  private static BigtableDataClient client;
  private static int users;

  @Override
  public void init() throws DBException {
    synchronized (Bigtable.class) {
      if (users++ > 0) return;
      String[] server = getProperties().getProperty("bigtable.server", "127.0.0.1:8086").split(":");
      int port = Integer.parseInt(server[1]);
      try {
        BigtableDataSettings.Builder settings = BigtableDataSettings.newBuilderForEmulator(server[0], port);
        client = BigtableDataClient.create(settings.setProjectId("local").setInstanceId("ycsb").build());
        BigtableTableAdminSettings.Builder admin = BigtableTableAdminSettings.newBuilderForEmulator(server[0], port);
        try (BigtableTableAdminClient tables =
            BigtableTableAdminClient.create(admin.setProjectId("local").setInstanceId("ycsb").build())) {
          String table = getProperties().getProperty("table", "usertable");
          if (!tables.exists(table)) tables.createTable(CreateTableRequest.of(table).addFamily(FAMILY));
        }
      } catch (IOException e) {
        throw new DBException(e);
      }
    }
  }

  @Override
  public void cleanup() {
    synchronized (Bigtable.class) {
      if (--users == 0) client.close();
    }
  }

  /** The newest cell of each field; nothing for a row that is not there. */
  private static Map<String, ByteIterator> fieldsOf(Row row, Set<String> fields) {
    Map<String, ByteIterator> found = new HashMap<>();
    for (RowCell cell : row.getCells(FAMILY)) {
      String field = cell.getQualifier().toStringUtf8();
      if (fields == null || fields.contains(field)) {
        found.putIfAbsent(field, new ByteArrayByteIterator(cell.getValue().toByteArray()));
      }
    }
    return found;
  }

  private static Filters.Filter newest(Set<String> fields) {
    Filters.Filter newest = Filters.FILTERS.limit().cellsPerColumn(1);
    if (fields == null || fields.size() != 1) return newest;
    Filters.Filter one = Filters.FILTERS.qualifier().exactMatch(fields.iterator().next());
    return Filters.FILTERS.chain().filter(one).filter(newest);
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    Row row = client.readRow(table, key, newest(fields));
    if (row == null) return Status.NOT_FOUND;
    result.putAll(fieldsOf(row, fields));
    return Status.OK;
  }

  @Override
  public Status scan(
      String table, String from, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    Query query = Query.create(table).range(from, null).limit(count).filter(newest(fields));
    for (Row row : client.readRows(query)) result.add(new HashMap<>(fieldsOf(row, fields)));
    return Status.OK;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    RowMutation mutation = RowMutation.create(table, key);
    values.forEach((field, value) ->
        mutation.setCell(FAMILY, ByteString.copyFromUtf8(field), 1000, ByteString.copyFrom(value.toArray())));
    client.mutateRow(mutation);
    return Status.OK;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return update(table, key, values);
  }

  @Override
  public Status delete(String table, String key) {
    try {
      client.mutateRow(RowMutation.create(table, key).deleteRow());
      return Status.OK;
    } catch (NotFoundException e) {
      return Status.NOT_FOUND;
    }
  }
}
