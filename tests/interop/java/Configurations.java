import java.io.BufferedInputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Reads each properties file of a directory as a broker does and writes what it takes from it, a line for each file:
 * name, keys and values of the file, "|", keys and values of the broker's settings, separated by tabs and in
 * hexadecimal UTF-16; "refused" instead where the file is refused. The first line has the settings of an empty file.
 */
public class Configurations {
    public static void main(String[] args) throws Exception {
        try (PrintStream out = new PrintStream(new FileOutputStream(args[1]), false, "UTF-8")) {
            out.println("\t|" + text(taken(new Properties(), null)));
            File[] files = new File(args[0]).listFiles();
            Arrays.sort(files);
            for (File file : files) {
                Properties properties = new Properties();
                try (InputStream in = new BufferedInputStream(new FileInputStream(file))) {
                    properties.load(in);
                } catch (IllegalArgumentException e) {
                    out.println(file.getName() + "\trefused");
                    continue;
                }
                out.println(file.getName() + text(sorted(properties)) + "\t|" + text(taken(properties, properties)));
            }
        }
    }

    private static Map<String, String> taken(Properties properties, Properties only) {
        Map<String, String> found = new TreeMap<>();
        for (Object settings : new Object[] {new BrokerConfig(), new MessageStoreConfig()}) {
            MixAll.properties2Object(properties, settings);
            found.putAll(sorted(MixAll.object2Properties(settings)));
        }
        if (only != null) {
            found.keySet().retainAll(only.keySet());
        }
        return found;
    }

    private static Map<String, String> sorted(Properties properties) {
        Map<String, String> found = new TreeMap<>();
        for (String key : properties.stringPropertyNames()) {
            found.put(key, properties.getProperty(key));
        }
        return found;
    }

    private static String text(Map<String, String> values) {
        StringBuilder text = new StringBuilder();
        values.forEach((key, value) -> text.append('\t').append(hex(key)).append('=').append(hex(value)));
        return text.toString();
    }

    private static String hex(String text) {
        StringBuilder found = new StringBuilder();
        for (char unit : text.toCharArray()) {
            found.append(String.format("%04x", (int) unit));
        }
        return found.toString();
    }
}
