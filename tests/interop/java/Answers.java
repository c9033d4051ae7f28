import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Opens a store with the broker's own DefaultMessageStore, prints what it holds and answers questions, as JSON Lines.
 *
 * <pre>Answers STORE_ROOT BROKER_CONF &lt; questions</pre>
 *
 * Recovery writes, so STORE_ROOT has to be a copy. A question is a line of URL-encoded words parted by blanks:
 * {@code get TOPIC QUEUE OFFSET MAX [TAGS]}, {@code query TOPIC KEY MAX BEGIN END}, {@code time TOPIC QUEUE MILLIS}.
 */
public final class Answers {
    private static final PrintStream ANSWERS = System.out;
    private static DefaultMessageStore store;

    private Answers() { }

    public static void main(String[] arguments) {
        int status = 2;
        try {
            System.setOut(System.err); // whatever the store prints is no answer
            status = run(Paths.get(arguments[0]), Paths.get(arguments[1])) ? 0 : 1;
            ANSWERS.flush();
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        Runtime.getRuntime().halt(status); // the store leaves threads behind
    }

    private static boolean run(Path root, Path configuration) throws Exception {
        Properties keys = new Properties();
        try (Reader reader = Files.newBufferedReader(configuration)) {
            keys.load(reader);
        }
        store = Releases.store(config(keys, root), keys, root);
        boolean loaded = store.load();
        if (loaded) {
            Releases.withoutDeliveries(store);
            store.start();
            Releases.awaitLeader(store);
            while (store.dispatchBehindBytes() > 0) {
                Thread.sleep(20);
            }
            Thread.sleep(200); // the last request may still be in the hands of its dispatchers
        }
        print("opened", Json.object("loaded", loaded, "minPhyOffset", store.getMinPhyOffset(), "maxPhyOffset", store.getMaxPhyOffset()));
        if (loaded) {
            if (!store.getMessageStoreConfig().isEnableDLegerCommitLog()) { // there, records lie in entries
                messages();
            }
            queues();
            questions();
            store.shutdown();
        }
        return loaded;
    }

    private static MessageStoreConfig config(Properties keys, Path root) {
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(keys, config);
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(below(root, keys.getProperty("storePathCommitLog", "commitlog")));
        String readOnly = keys.getProperty("readOnlyCommitLogStorePaths", "");
        config.setReadOnlyCommitLogStorePaths(readOnly.isEmpty() ? null : below(root, readOnly));
        config.setHaListenPort(0);
        config.setFileReservedTime(1_000_000); // hours: nothing expires while it is looked at
        config.setCleanFileForciblyEnable(false);
        config.setDiskMaxUsedSpaceRatio(95);
        return config;
    }

    /** The same directories, by their last names, in the copy. */
    private static String below(Path root, String paths) {
        List<String> moved = new ArrayList<>();
        for (String path : paths.split(",")) {
            moved.add(root.resolve(Paths.get(path).getFileName()).toString());
        }
        return String.join(",", moved);
    }

    private static void messages() throws Exception {
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult found = store.getCommitLog().getData(offset);
            if (found == null) {
                return;
            }
            DispatchRequest request = store.getCommitLog().checkMessageAndReturnSize(found.getByteBuffer().duplicate(), false, false);
            if (request.isSuccess() && request.getMsgSize() > 0) {
                print("messages", message(found.getByteBuffer()));
                offset += request.getMsgSize();
            } else if (request.isSuccess()) {
                offset = store.getCommitLog().rollNextFile(offset);
            } else {
                offset = Long.MAX_VALUE;
            }
            found.release();
        }
    }

    private static Map<String, Object> message(ByteBuffer buffer) throws Exception {
        int start = buffer.position();
        int sysFlag = buffer.getInt(start + 36); // the decoder takes bits away
        MessageExt stored = decode(buffer, start, false);
        boolean compressed = (sysFlag & 1) != 0;
        return Json.object("physicalOffset", stored.getCommitLogOffset(), "storeSize", stored.getStoreSize(),
            "magic", String.format("%08x", buffer.getInt(start + 4)), "topic", stored.getTopic(), "queueId", stored.getQueueId(),
            "queueOffset", stored.getQueueOffset(), "flag", stored.getFlag(), "sysFlag", sysFlag,
            "bornTimestamp", stored.getBornTimestamp(), "storeTimestamp", stored.getStoreTimestamp(),
            "bornHost", host(stored.getBornHost()), "storeHost", host(stored.getStoreHost()),
            "reconsumeTimes", stored.getReconsumeTimes(), "preparedTransactionOffset", stored.getPreparedTransactionOffset(),
            "properties", new TreeMap<>(stored.getProperties() == null ? new TreeMap<>() : stored.getProperties()),
            "bodyCRC", stored.getBodyCRC(), "body", base64(stored),
            "decodedBody", compressed ? base64(decode(buffer, start, true)) : null,
            "offsetMsgId", MessageDecoder.createMessageId(stored.getStoreHost(), stored.getCommitLogOffset()));
    }

    private static MessageExt decode(ByteBuffer buffer, int start, boolean decompress) {
        ByteBuffer record = buffer.duplicate();
        record.position(start);
        return MessageDecoder.decode(record, true, decompress);
    }

    private static String base64(MessageExt message) {
        return Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody());
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + "|" + host.getPort();
    }

    /** Every queue with its bounds, and its messages as a consumer that begins at the minimum would get them. */
    private static void queues() throws Exception {
        for (String topic : new TreeSet<>(store.getConsumeQueueTable().keySet())) {
            for (int queueId : new TreeSet<>(store.getConsumeQueueTable().get(topic).keySet())) {
                long next = store.getMinOffsetInQueue(topic, queueId);
                long end = store.getMaxOffsetInQueue(topic, queueId);
                List<Long> served = new ArrayList<>();
                Map<String, Object> queue = Json.object("topic", topic, "queueId", queueId, "minOffset", next, "maxOffset", end, "served", served);
                while (next < end) {
                    GetMessageResult result = store.getMessage("interop", topic, queueId, next, 32, null);
                    served.addAll(physicalOffsets(result.getMessageBufferList()));
                    next = Math.max(result.getNextBeginOffset(), next + 1);
                    result.release();
                }
                print("queues", queue);
            }
        }
    }

    private static void questions() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            for (int i = 0; i < words.length; i++) {
                words[i] = URLDecoder.decode(words[i], "UTF-8");
            }
            switch (words[0]) {
                case "get":
                    get(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]), words.length > 5 ? words[5] : null);
                    break;
                case "query":
                    query(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]), Long.parseLong(words[5]));
                    break;
                case "time":
                    time(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
                    break;
                default:
                    throw new IllegalArgumentException("unknown question: " + line);
            }
        }
    }

    private static void get(String topic, int queueId, long offset, int max, String tags) throws Exception {
        GetMessageResult result = store.getMessage("interop", topic, queueId, offset, max, tags == null ? null : Releases.filter(topic, tags));
        print("gets", Json.object("topic", topic, "queueId", queueId, "offset", offset, "max", max, "tags", tags,
            "status", result.getStatus(), "count", result.getMessageCount(), "nextBeginOffset", result.getNextBeginOffset(),
            "minOffset", result.getMinOffset(), "maxOffset", result.getMaxOffset(), "bytes", result.getBufferTotalSize(),
            "physicalOffsets", physicalOffsets(result.getMessageBufferList())));
        result.release();
    }

    private static void query(String topic, String key, int max, long begin, long end) {
        QueryMessageResult result = store.queryMessage(topic, key, max, begin, end);
        print("queries", Json.object("topic", topic, "key", key, "max", max, "begin", begin, "end", end,
            "physicalOffsets", physicalOffsets(result.getMessageBufferList()),
            "indexLastUpdatePhyOffset", result.getIndexLastUpdatePhyoffset(), "indexLastUpdateTimestamp", result.getIndexLastUpdateTimestamp()));
        result.release();
    }

    private static void time(String topic, int queueId, long timestamp) throws Exception {
        Map<String, Object> row = Json.object("topic", topic, "queueId", queueId, "timestamp", timestamp,
            "offset", store.getOffsetInQueueByTime(topic, queueId, timestamp));
        Releases.addBoundaries(row, store, topic, queueId, timestamp);
        print("times", row);
    }

    private static List<Long> physicalOffsets(List<ByteBuffer> records) {
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer record : records) {
            offsets.add(record.getLong(record.position() + 28));
        }
        return offsets;
    }

    /** One line: the kind of answer, a tab, the answer. */
    private static void print(String kind, Map<String, Object> answer) {
        ANSWERS.print(kind + "\t" + Json.line(answer) + "\n");
    }
}
