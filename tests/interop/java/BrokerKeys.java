import java.lang.reflect.Method;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.MixAll;

/**
 * Prints the keys of a broker, a line for each: key, type of its setter ("-" without one), and default ("-" where
 * GET_BROKER_CONFIG has no such key), separated by tabs.
 */
public class BrokerKeys {
    private static final String[] SHOWN = {
        "common.BrokerConfig", "store.config.MessageStoreConfig", "remoting.netty.NettyServerConfig", "remoting.netty.NettyClientConfig"};
    private static final String[] OTHERS = {"tieredstore.MessageStoreConfig", "auth.config.AuthConfig"};

    public static void main(String[] args) throws Exception {
        Map<String, String> types = new TreeMap<>();
        Properties defaults = new Properties();
        for (String name : SHOWN) {
            Object settings = Class.forName("org.apache.rocketmq." + name).getConstructor().newInstance();
            defaults.putAll(MixAll.object2Properties(settings));
            addSetters(settings.getClass(), types);
        }
        for (String name : OTHERS) {
            try {
                addSetters(Class.forName("org.apache.rocketmq." + name), types);
            } catch (ClassNotFoundException e) {
                // not in this release
            }
        }
        defaults.stringPropertyNames().forEach(key -> types.putIfAbsent(key, "-"));
        types.forEach((key, type) -> System.out.println(key + "\t" + type + "\t" + defaults.getProperty(key, "-")));
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
