import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** A Hive metastore with a database in memory. Prints its port; the argument is the directory of its warehouse. */
public class HiveCatalogue {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = MetastoreConf.newMetastoreConf();
    settings.set("metastore.warehouse.dir", "file://" + arguments[0]);
    settings.set("metastore.schema.verification", "false");
    settings.set("datanucleus.schema.autoCreateAll", "true");
    settings.set("javax.jdo.option.ConnectionURL", "jdbc:derby:memory:metastore;create=true");
    settings.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
    settings.set("metastore.expression.proxy", "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy");
    // the default tasks belong to the rest of Hive
    settings.set("metastore.task.threads.always", "org.apache.hadoop.hive.metastore.events.EventCleanerTask");
    settings.set("metastore.task.threads.remote", "org.apache.hadoop.hive.metastore.events.EventCleanerTask");
    TxnDbUtil.setConfValues(settings);
    TxnDbUtil.prepDb(settings); // the tables of locks, which are not made with the others
    int port;
    try (ServerSocket free = new ServerSocket(0)) {
      port = free.getLocalPort();
    }
    Thread server = new Thread(() -> {
      try {
        HiveMetaStore.startMetaStore(port, null, settings);
      } catch (Throwable problem) {
        problem.printStackTrace();
        System.exit(1);
      }
    });
    server.setDaemon(true);
    server.start();
    while (!isOpen(port)) {
      Thread.sleep(50);
    }
    System.out.println(port);
    server.join();
  }

  private static boolean isOpen(int port) {
    try (Socket socket = new Socket("127.0.0.1", port)) {
      return socket.isConnected();
    } catch (IOException closed) {
      return false;
    }
  }
}
