import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS with one name node and one data node on loopback, until standard input ends. Says where it is. */
public class MiniHdfs {
  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    conf.set("dfs.replication", "1");
    conf.set("hdfs.minidfs.basedir", Files.createDirectories(Path.of(args[0])).toString());
    try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).build()) {
      cluster.waitActive();
      System.out.println("hdfs://127.0.0.1:" + cluster.getNameNodePort());
      System.out.flush();
      System.in.transferTo(java.io.OutputStream.nullOutputStream());
    }
  }
}
