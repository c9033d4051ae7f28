import io.openmessaging.storage.dledger.DLedgerServer;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What 4.9 and 5.x spell differently. */
final class Releases {
    private Releases() { }

    static DefaultMessageStore store(MessageStoreConfig config, Properties keys, Path root) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        MixAll.properties2Object(keys, broker);
        BrokerStatsManager statistics = new BrokerStatsManager("interop", false);
        Constructor<?> constructor = DefaultMessageStore.class.getConstructors()[0];
        for (Constructor<?> other : DefaultMessageStore.class.getConstructors()) {
            if (other.getParameterCount() < constructor.getParameterCount()) {
                constructor = other;
            }
        }
        boolean topicsWanted = constructor.getParameterCount() == 5; // 5.x: the kind of queue is an attribute of the topic
        return (DefaultMessageStore) (topicsWanted
            ? constructor.newInstance(config, statistics, null, broker, topics(root))
            : constructor.newInstance(config, statistics, null, broker));
    }

    private static Object topics(Path root) throws Exception {
        Path file = root.resolve("config/topics.json");
        if (!Files.exists(file)) {
            return new ConcurrentHashMap<>();
        }
        Class<?> wrapper = Class.forName("org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper");
        Method read = Class.forName("org.apache.rocketmq.remoting.protocol.RemotingSerializable")
            .getMethod("fromJson", String.class, Class.class);
        return wrapper.getMethod("getTopicConfigTable").invoke(read.invoke(null, new String(Files.readAllBytes(file), "UTF-8"), wrapper));
    }

    /** In 4.9 the store itself delivers delayed messages that are due, which would add records: pretend it does already. */
    static void withoutDeliveries(DefaultMessageStore store) throws Exception {
        try {
            Field service = DefaultMessageStore.class.getDeclaredField("scheduleMessageService");
            service.setAccessible(true);
            Field started = service.getType().getDeclaredField("started");
            started.setAccessible(true);
            ((AtomicBoolean) started.get(service.get(store))).set(true);
        } catch (NoSuchFieldException moved) {
            return; // 5.x: the broker delivers
        }
    }

    /** In DLedger mode the log ends where a leader says so: waits until the node, alone in its group, is that leader. */
    static void awaitLeader(DefaultMessageStore store) throws Exception {
        if (!store.getMessageStoreConfig().isEnableDLegerCommitLog()) {
            return;
        }
        DLedgerServer server = ((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer();
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!server.getMemberState().isLeader() || server.getdLedgerStore().getCommittedIndex() < server.getdLedgerStore().getLedgerEndIndex()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the node has not become the leader of its group");
            }
            Thread.sleep(20);
        }
    }

    static MessageFilter filter(String topic, String tags) throws Exception {
        Class<?> api = first("org.apache.rocketmq.remoting.protocol.filter.FilterAPI", "org.apache.rocketmq.common.filter.FilterAPI");
        Object subscription = api.getMethod("buildSubscriptionData", String.class, String.class).invoke(null, topic, tags);
        return (MessageFilter) DefaultMessageFilter.class.getConstructor(subscription.getClass()).newInstance(subscription);
    }

    /** 5.x: adds what each boundary gives. */
    static void addBoundaries(Map<String, Object> row, DefaultMessageStore store, String topic, int queueId, long time) throws Exception {
        Class<?> boundary = first("org.apache.rocketmq.common.BoundaryType", "java.lang.Void");
        if (!boundary.isEnum()) {
            return;
        }
        Method search = DefaultMessageStore.class.getMethod("getOffsetInQueueByTime", String.class, int.class, long.class, boundary);
        for (Object side : boundary.getEnumConstants()) {
            row.put(side.toString().toLowerCase(), search.invoke(store, topic, queueId, time, side));
        }
    }

    private static Class<?> first(String name, String otherwise) throws ClassNotFoundException {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException absent) {
            return Class.forName(otherwise);
        }
    }
}
