import java.lang.reflect.Method;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.MixAll;

/**
 * Prints the keys of the classes that a release fills from a properties file, a line for each: key, type of its setter
 * ("-" without one), which part reads it, and default ("?" of a key without a getter), separated by tabs.
 */
public class BrokerKeys {
    private static final String[][] PARTS = {
        {"broker", "common.BrokerConfig", "store.config.MessageStoreConfig", "remoting.netty.NettyServerConfig", "remoting.netty.NettyClientConfig"},
        {"tiered", "tieredstore.MessageStoreConfig"}, {"auth", "auth.config.AuthConfig"}, {"controller", "common.ControllerConfig"}};

    public static void main(String[] args) throws Exception {
        Map<String, String> lines = new TreeMap<>();
        for (String[] part : PARTS) {
            Map<String, String> types = new TreeMap<>();
            Properties defaults = new Properties();
            for (int number = 1; number < part.length; number++) {
                try {
                    Object settings = Class.forName("org.apache.rocketmq." + part[number]).getConstructor().newInstance();
                    defaults.putAll(MixAll.object2Properties(settings));
                    addSetters(settings.getClass(), types);
                } catch (ClassNotFoundException e) {
                    // not in this release
                }
            }
            defaults.stringPropertyNames().forEach(key -> types.putIfAbsent(key, "-"));
            types.forEach((key, type) -> lines.putIfAbsent(key, type + "\t" + part[0] + "\t" + defaults.getProperty(key, "?")));
        }
        lines.forEach((key, line) -> System.out.println(key + "\t" + line));
    }

    /** As MixAll.properties2Object; of two setters the one for a text counts. */
    private static void addSetters(Class<?> type, Map<String, String> types) {
        for (Method method : type.getMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && name.length() > 3 && method.getParameterCount() == 1) {
                Class<?> parameter = method.getParameterTypes()[0];
                String key = name.substring(3, 4).toLowerCase() + name.substring(4);
                String kind = parameter.isPrimitive() ? parameter.getName() : "String";
                types.merge(key, kind, (one, other) -> one.equals(other) ? one : "String");
            }
        }
    }
}
