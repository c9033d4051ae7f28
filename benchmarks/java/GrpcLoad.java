import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The load of one job by the official Java client: ENDPOINTS TOPIC JOB SECONDS MESSAGES, see benchmarks/grpc_java.py.
 *
 * <p>Prints "begun" when what follows counts, then one JSON object: messages counted, seconds, the processor time of this
 * process in them, and the latencies in milliseconds where there are any.
 */
public final class GrpcLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int IN_FLIGHT = 256;
    private static final int ROUNDS = 200;
    private static final byte[] BODY = new byte[1024];
    private static final AtomicLongArray NANOS = new AtomicLongArray(1 << 22);
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static ClientConfiguration configuration;
    private static String topic;
    private static long cpuBefore;

    private GrpcLoad() { }

    public static void main(String[] args) throws Exception {
        int status = 1; // threads of the client would keep a failed run alive
        try {
            Arrays.fill(BODY, (byte) 'a');
            configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
                .setRequestTimeout(Duration.ofSeconds(20)).build();
            topic = args[1];
            double seconds = Double.parseDouble(args[3]);
            int messages = Integer.parseInt(args[4]);
            String[] job = args[2].split("-");
            double took;
            switch (job[0]) {
                case "send" -> took = send(Integer.parseInt(job[1]), seconds);
                case "async" -> took = async(seconds);
                case "receive" -> took = receive(Integer.parseInt(job[1]), messages);
                case "push" -> took = push(messages);
                case "latency" -> took = latency();
                default -> throw new IllegalArgumentException(args[2]);
            }
            long[] nanos = new long[Math.min(COUNT.get(), NANOS.length())];
            Arrays.setAll(nanos, NANOS::get);
            Arrays.sort(nanos);
            boolean timed = nanos.length > 0 && nanos[nanos.length - 1] > 0;
            double cpu = (cpuNanos() - cpuBefore) / 1e9;
            System.out.printf("{\"messages\":%d,\"seconds\":%.3f,\"cpu_s\":%.3f%s}%n", COUNT.get(), took, cpu, timed
                ? String.format(",\"p50_ms\":%.2f,\"p99_ms\":%.2f", nanos[nanos.length / 2] / 1e6, nanos[nanos.length * 99 / 100] / 1e6)
                : "");
            status = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** What happens from now on counts. */
    private static void begin() {
        COUNT.set(0);
        System.out.println("begun");
        cpuBefore = cpuNanos();
    }

    private static Message message() {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(BODY).build();
    }

    private static Producer producer() throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
    }

    private static void count(long nanos) {
        NANOS.set(COUNT.getAndIncrement() % NANOS.length(), nanos);
    }

    private interface Work {
        void run() throws Exception;
    }

    /** Runs work in threads; returns the seconds until the last ended. */
    private static double inThreads(int threads, Work work) throws Exception {
        Thread[] running = new Thread[threads];
        AtomicInteger failed = new AtomicInteger();
        long began = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            running[i] = new Thread(() -> {
                try {
                    work.run();
                } catch (Exception error) {
                    error.printStackTrace();
                    failed.incrementAndGet();
                }
            });
            running[i].start();
        }
        for (Thread one : running) {
            one.join();
        }
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " threads failed");
        }
        return (System.nanoTime() - began) / 1e9;
    }

    /** Sends in threads for so long, after as long again uncounted, at most two seconds. */
    private static double send(int threads, double seconds) throws Exception {
        Producer producer = producer();
        double took = 0;
        for (double part : new double[] {Math.min(2, seconds), seconds}) {
            begin();
            long end = System.nanoTime() + (long) (part * 1e9);
            took = inThreads(threads, () -> {
                while (System.nanoTime() < end) {
                    long began = System.nanoTime();
                    producer.send(message());
                    count(System.nanoTime() - began);
                }
            });
        }
        return took;
    }

    private static double async(double seconds) throws Exception {
        Producer producer = producer();
        double took = 0;
        for (double part : new double[] {Math.min(2, seconds), seconds}) {
            begin();
            long began = System.nanoTime();
            sendAsync(producer, () -> System.nanoTime() - began < part * 1e9);
            took = (System.nanoTime() - began) / 1e9;
        }
        return took;
    }

    private interface More {
        boolean holds();
    }

    private static void sendAsync(Producer producer, More more) throws Exception {
        Semaphore window = new Semaphore(IN_FLIGHT);
        AtomicInteger failed = new AtomicInteger();
        while (more.holds()) {
            window.acquire();
            long began = System.nanoTime();
            producer.sendAsync(message()).whenComplete((receipt, error) -> {
                count(System.nanoTime() - began);
                failed.addAndGet(error == null ? 0 : 1);
                window.release();
            });
        }
        window.acquire(IN_FLIGHT);
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " sends failed");
        }
    }

    /** Stores messages, uncounted. */
    private static void fill(int messages) throws Exception {
        AtomicInteger left = new AtomicInteger(messages);
        try (Producer producer = producer()) {
            sendAsync(producer, () -> left.getAndDecrement() > 0);
        }
        for (int i = 0; i < COUNT.get(); i++) {
            NANOS.set(i, 0);
        }
    }

    private static double receive(int threads, int messages) throws Exception {
        fill(messages);
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("G" + topic).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
        begin();
        AtomicLong last = new AtomicLong();
        long began = System.nanoTime();
        inThreads(threads, () -> {
            while (COUNT.get() < messages) {
                for (MessageView one : consumer.receive(32, Duration.ofSeconds(120))) {
                    consumer.ack(one);
                    COUNT.incrementAndGet();
                    last.set(System.nanoTime());
                }
            }
        });
        return (last.get() - began) / 1e9;
    }

    private static PushConsumer pushing(MessageListener listener) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("G" + topic)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).setMessageListener(listener).build();
    }

    private static double push(int messages) throws Exception {
        fill(messages);
        CountDownLatch done = new CountDownLatch(messages);
        AtomicLong first = new AtomicLong();
        begin();
        pushing(one -> {
            first.compareAndSet(0, System.nanoTime());
            COUNT.incrementAndGet();
            done.countDown();
            return ConsumeResult.SUCCESS;
        });
        done.await();
        return (System.nanoTime() - first.get()) / 1e9;
    }

    /** Sends one message at a time to a push consumer that waits: from the send to the listener. */
    private static double latency() throws Exception {
        Semaphore arrived = new Semaphore(0);
        AtomicLong when = new AtomicLong();
        pushing(one -> {
            when.set(System.nanoTime());
            arrived.release();
            return ConsumeResult.SUCCESS;
        });
        Producer producer = producer();
        begin();
        long start = System.nanoTime();
        for (int i = -5; i < ROUNDS; i++) {
            long began = System.nanoTime();
            producer.send(message());
            arrived.acquire();
            if (i >= 0) {
                count(when.get() - began);
            }
        }
        return (System.nanoTime() - start) / 1e9;
    }
}
