// The HBase API on com.google.cloud.bigtable:bigtable-hbase-2.x-hadoop; the server's address is the argument.
import com.google.cloud.bigtable.hbase.BigtableConfiguration;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import static org.apache.hadoop.hbase.util.Bytes.toBytes;

public class Hello {
    public static void main(String[] args) throws Exception {
        Configuration conf = BigtableConfiguration.configure("local", "demo");
        conf.set("google.bigtable.emulator.endpoint.host", args[0]);
        TableName name = TableName.valueOf("hello-hbase");
        try (Connection connection = BigtableConfiguration.connect(conf); Admin admin = connection.getAdmin()) {
            if (!admin.tableExists(name)) {
                admin.createTable(TableDescriptorBuilder.newBuilder(name)
                    .setColumnFamily(ColumnFamilyDescriptorBuilder.of("said")).build());
            }
            Table table = connection.getTable(name);
            table.put(new Put(toBytes("greeting")).addColumn(toBytes("said"), toBytes("word"), toBytes("hello")));
            byte[] word = table.get(new Get(toBytes("greeting"))).getValue(toBytes("said"), toBytes("word"));
            System.out.println(new String(word));
        }
    }
}
