import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * One job of RocketMQ's own store (5.x), timed by its own clock without the start of the JVM; prints one JSON line.
 *
 * <pre>RealStore JOB DIR MESSAGES SIZE [THREADS_OR_BATCH]</pre>
 *
 * Message i goes to topic bench-(i % 16 / 4), queue i % 4, with key k(i) and tag Tag(i % 8), as in engine_messages.py.
 * The jobs recover, reput, decode, pull and query want a store of such messages that was stopped in order; the jobs
 * put, batch and sync want a new directory. A job fails if it has not seen every message.
 */
public final class RealStore {
    private static final int SLOTS = 16;
    private static final int BLANK = 0xCBD43194; // formats.commit_log.BLANK_MAGIC
    private static Path root;
    private static int messages;
    private static int size;
    private static int extra;
    private static DefaultMessageStore store;

    private RealStore() { }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            root = Path.of(arguments[1]);
            messages = Integer.parseInt(arguments[2]);
            size = Integer.parseInt(arguments[3]);
            extra = arguments.length > 4 ? Integer.parseInt(arguments[4]) : 1;
            run(arguments[0]);
            System.out.flush();
            status = 0;
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        Runtime.getRuntime().halt(status); // the store leaves threads behind
    }

    private static void run(String job) throws Exception {
        switch (job) {
            case "recover" -> recover();
            case "reput" -> reput();
            case "decode" -> decode();
            case "pull" -> pull();
            case "query" -> query();
            case "put" -> put();
            case "batch" -> batch();
            case "sync" -> sync();
            default -> throw new IllegalArgumentException(job);
        }
    }

    /** A start after a crash of which nothing is known: framing and CRC of the whole log. */
    private static void recover() throws Exception {
        Files.write(root.resolve("abort"), new byte[0]);
        Files.write(root.resolve("checkpoint"), new byte[4096]);
        MessageStoreConfig config = config();
        config.setMessageIndexEnable(false);
        store = made(config);
        long begin = System.nanoTime();
        expect(store.load(), "load");
        print(messages, System.nanoTime() - begin);
        Files.delete(root.resolve("abort"));
    }

    /** Queues and index from the log alone. */
    private static void reput() throws Exception {
        for (String name : List.of("consumequeue", "index", "checkpoint")) {
            delete(root.resolve(name));
        }
        store = made(config());
        long begin = System.nanoTime();
        expect(store.load(), "load");
        store.start();
        awaitUnits(messages);
        print(messages, System.nanoTime() - begin);
        store.shutdown();
    }

    private static void decode() throws Exception {
        long seen = 0;
        long begin = 0;
        for (int pass = 0; pass < 2; pass++) { // the first one warms up
            seen = 0;
            begin = System.nanoTime();
            try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of("/dev/null")), 1 << 16);
                 Stream<Path> files = Files.list(root.resolve("commitlog"))) {
                for (Path segment : files.sorted().toList()) {
                    seen += decodeSegment(segment, out);
                }
            }
        }
        expect(seen == messages, seen + " messages decoded");
        print(seen, System.nanoTime() - begin);
    }

    private static long decodeSegment(Path segment, OutputStream out) throws IOException {
        long seen = 0;
        try (FileChannel channel = FileChannel.open(segment, StandardOpenOption.READ)) {
            ByteBuffer bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            while (bytes.remaining() >= 8 && bytes.getInt(bytes.position()) > 0 && bytes.getInt(bytes.position() + 4) != BLANK) {
                int next = bytes.position() + bytes.getInt(bytes.position());
                MessageExt message = MessageDecoder.decode(bytes, true, true);
                expect(message != null, "record at " + (next - bytes.position()));
                out.write(json(message).getBytes(StandardCharsets.UTF_8));
                bytes.position(next);
                seen++;
            }
        }
        return seen;
    }

    private static String json(MessageExt message) {
        StringBuilder line = new StringBuilder(2048).append('{');
        field(line, "topic", message.getTopic());
        field(line, "message_id", message.getMsgId());
        field(line, "born_host", message.getBornHostString());
        for (Map.Entry<String, String> property : message.getProperties().entrySet()) {
            field(line, property.getKey(), property.getValue());
        }
        field(line, "body", new String(message.getBody(), StandardCharsets.UTF_8));
        return line.append("\"queue_id\":").append(message.getQueueId())
            .append(",\"queue_offset\":").append(message.getQueueOffset())
            .append(",\"physical_offset\":").append(message.getCommitLogOffset())
            .append(",\"store_size\":").append(message.getStoreSize())
            .append(",\"flag\":").append(message.getFlag()).append(",\"sys_flag\":").append(message.getSysFlag())
            .append(",\"body_crc\":").append(message.getBodyCRC())
            .append(",\"reconsume_times\":").append(message.getReconsumeTimes())
            .append(",\"born_timestamp\":").append(message.getBornTimestamp())
            .append(",\"store_timestamp\":").append(message.getStoreTimestamp()).append("}\n").toString();
    }

    private static void field(StringBuilder line, String name, String value) {
        line.append('"').append(name).append("\":\"");
        for (int at = 0; at < value.length(); at++) {
            char letter = value.charAt(at);
            if (letter == '"' || letter == '\\') {
                line.append('\\').append(letter);
            } else if (letter < ' ') {
                line.append("\\u00").append(Character.forDigit(letter >> 4, 16)).append(Character.forDigit(letter & 15, 16));
            } else {
                line.append(letter);
            }
        }
        line.append("\",");
    }

    private static void pull() throws Exception {
        open(config());
        byte[] copy = new byte[1 << 20]; // as a broker with default settings answers
        long best = Long.MAX_VALUE;
        for (int pass = 0; pass < 3; pass++) {
            long seen = 0;
            long begin = System.nanoTime();
            for (int slot = 0; slot < SLOTS; slot++) {
                long offset = 0;
                GetMessageResult found = store.getMessage("bench", topic(slot), slot % 4, offset, 32, null);
                while (found.getStatus() == GetMessageStatus.FOUND) {
                    int at = 0;
                    for (ByteBuffer one : found.getMessageBufferList()) {
                        int length = one.remaining();
                        one.get(copy, at, length);
                        at += length;
                    }
                    seen += found.getMessageCount();
                    offset = found.getNextBeginOffset();
                    found.release();
                    found = store.getMessage("bench", topic(slot), slot % 4, offset, 32, null);
                }
            }
            expect(seen == messages, seen + " messages pulled");
            best = Math.min(best, System.nanoTime() - begin);
        }
        print(messages, best);
        Files.deleteIfExists(root.resolve("abort"));
    }

    private static void query() throws Exception {
        open(config());
        Random chance = new Random(7);
        int asked = 10_000;
        long best = Long.MAX_VALUE;
        for (int pass = 0; pass < 3; pass++) {
            long begin = System.nanoTime();
            for (int one = 0; one < asked; one++) {
                int number = chance.nextInt(messages);
                QueryMessageResult found = store.queryMessage(topic(number), "k" + number, 32, 0, Long.MAX_VALUE);
                expect(!found.getMessageBufferList().isEmpty(), "no message with key k" + number);
                found.release();
            }
            best = Math.min(best, System.nanoTime() - begin);
        }
        print(asked, best);
        Files.deleteIfExists(root.resolve("abort"));
    }

    private static void put() throws Exception {
        open(config());
        byte[][] bodies = bodies();
        int warm = 200_000;
        putRange(0, warm, 1, bodies);
        awaitUnits(warm);
        long begin = System.nanoTime();
        putRange(warm, messages, 1, bodies);
        awaitUnits(warm + messages);
        print(messages, System.nanoTime() - begin);
    }

    private static void putRange(int first, int count, int step, byte[][] bodies) {
        for (int number = first; number < first + count; number += step) {
            MessageExtBrokerInner message = addressed(new MessageExtBrokerInner(), number);
            message.setBody(bodies[number & 1023]);
            message.setKeys("k" + number);
            message.setTags("Tag" + number % 8);
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            store(store.putMessage(message));
        }
    }

    /** Batches of {@code extra} messages until all are dispatched; making and encoding them counts too. */
    private static void batch() throws Exception {
        open(config());
        byte[][] bodies = bodies();
        int warm = 200_000 / extra * extra;
        putBatches(0, warm, bodies);
        awaitUnits(warm);
        int counted = messages / extra * extra;
        long begin = System.nanoTime();
        putBatches(warm, counted, bodies);
        awaitUnits(warm + counted);
        print(counted, System.nanoTime() - begin);
    }

    private static void putBatches(int first, int count, byte[][] bodies) {
        for (int number = first; number < first + count; number += extra) {
            List<Message> list = new ArrayList<>(extra);
            for (int one = number; one < number + extra; one++) {
                list.add(new Message("", "Tag" + one % 8, "k" + one, bodies[one & 1023]));
            }
            MessageExtBatch batch = addressed(new MessageExtBatch(), number / extra);
            batch.setBody(MessageDecoder.encodeMessages(list));
            store(store.putMessages(batch));
        }
    }

    /** SYNC_FLUSH from {@code extra} threads. */
    private static void sync() throws Exception {
        MessageStoreConfig config = config();
        config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        open(config);
        byte[][] bodies = bodies();
        putInThreads(0, messages / 10, bodies);
        long begin = System.nanoTime();
        putInThreads(messages, messages, bodies);
        print(messages, System.nanoTime() - begin);
    }

    private static void putInThreads(int first, int count, byte[][] bodies) throws InterruptedException {
        CountDownLatch done = new CountDownLatch(extra);
        AtomicLong failed = new AtomicLong();
        for (int thread = 0; thread < extra; thread++) {
            int begin = first + thread;
            new Thread(() -> {
                try {
                    putRange(begin, count - count % extra, extra, bodies);
                } catch (RuntimeException problem) {
                    failed.incrementAndGet();
                }
                done.countDown();
            }).start();
        }
        done.await();
        expect(failed.get() == 0, "put");
    }

    private static void store(PutMessageResult result) {
        expect(result.isOk(), "put: " + result.getPutMessageStatus());
    }

    private static <M extends MessageExt> M addressed(M message, int number) {
        int slot = number % SLOTS;
        message.setTopic(topic(slot));
        message.setQueueId(slot % 4);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 54321));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        return message;
    }

    private static byte[][] bodies() {
        Random chance = new Random(1);
        byte[][] bodies = new byte[1024][size];
        for (byte[] body : bodies) {
            chance.nextBytes(body);
        }
        return bodies;
    }

    private static String topic(int number) {
        return "bench-" + number % SLOTS / 4;
    }

    private static MessageStoreConfig config() {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);
        return config;
    }

    private static DefaultMessageStore made(MessageStoreConfig config) throws IOException {
        BrokerStatsManager statistics = new BrokerStatsManager("bench", false);
        return new DefaultMessageStore(config, statistics, null, new BrokerConfig(), new ConcurrentHashMap<>());
    }

    private static void open(MessageStoreConfig config) throws Exception {
        Files.createDirectories(root);
        store = made(config);
        expect(store.load(), "load");
        store.start();
    }

    private static void awaitUnits(long count) throws Exception {
        long units = -1;
        while (units != count || store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
            units = 0;
            for (int slot = 0; slot < SLOTS; slot++) {
                units += store.getMaxOffsetInQueue(topic(slot), slot % 4);
            }
            expect(units <= count, units + " units");
        }
    }

    private static void delete(Path path) throws IOException {
        if (Files.exists(path)) {
            try (Stream<Path> below = Files.walk(path)) {
                for (Path one : below.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(one);
                }
            }
        }
    }

    private static void expect(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }

    private static void print(long count, long nanoseconds) {
        double cpu = ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
        System.out.printf("{\"messages\": %d, \"seconds\": %.4f, \"rate\": %.0f, \"cpu_s\": %.2f}%n", count, nanoseconds / 1e9,
            count * 1e9 / nanoseconds, cpu);
    }
}
