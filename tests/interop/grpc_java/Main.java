import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Uses features of the official gRPC client for Java: ENDPOINTS USER PASSWORD FEATURE...; a user of "-" is none.
 *
 * <p>Prints one JSON object per feature, with what was seen or the error. tests/interop/test_grpc_clients.py says which
 * topics and groups there must be, and what is to be seen.
 */
public final class Main {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static ClientConfiguration configuration;

    private Main() { }

    public static void main(String[] args) throws Exception {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(15));
        if (!args[1].equals("-")) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(args[1], args[2]));
        }
        configuration = builder.build();
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> running = new ArrayList<>();
        for (String feature : Arrays.asList(args).subList(3, args.length)) {
            running.add(threads.submit(() -> run(feature)));
        }
        for (Future<?> one : running) {
            one.get();
        }
        System.exit(0); // the client's threads would go on
    }

    private static void run(String feature) {
        String seen;
        try {
            seen = "\"seen\":" + json(feature(feature).call());
        } catch (Throwable error) {
            seen = "\"error\":" + json(error.toString());
        }
        System.out.println("{\"feature\":" + json(feature) + "," + seen + "}");
    }

    private static Callable<Object> feature(String name) {
        return switch (name) {
            case "normal" -> () -> roundTrip("Normal", "GNormal", 10, one -> one);
            case "fifo" -> () -> roundTrip("Fifo", "GFifo", 10, one -> one.setMessageGroup("g"));
            case "delay" -> Main::delay;
            case "transactions" -> Main::transactions;
            case "checks" -> Main::checks;
            case "lite" -> Main::lite;
            case "priority" -> Main::priority;
            case "recall" -> Main::recall;
            case "redelivery" -> Main::redelivery;
            case "push" -> Main::push;
            case "filters" -> Main::filters;
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(one -> json(one.getKey()) + ":" + json(one.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Collection<?> list) {
            return list.stream().map(Main::json).collect(Collectors.joining(",", "[", "]"));
        }
        if (value == null || value instanceof Number) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder("\"");
        for (char one : value.toString().toCharArray()) {
            text.append(one >= ' ' && one < 127 && one != '"' && one != '\\' ? "" + one : String.format("\\u%04x", (int) one));
        }
        return text.append('"').toString();
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(UTF_8));
    }

    private static String body(MessageView message) {
        return UTF_8.decode(message.getBody()).toString();
    }

    private static List<String> bodies(List<MessageView> messages) {
        return messages.stream().map(Main::body).collect(Collectors.toList());
    }

    private static <T> List<T> snapshot(List<T> list) {
        synchronized (list) {
            return new ArrayList<>(list);
        }
    }

    private static Producer producer(String topic, TransactionChecker checker) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic);
        return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
    }

    private static SimpleConsumer simple(String topic, String group, FilterExpression filter) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(Map.of(topic, filter)).build();
    }

    private static SimpleConsumer simple(String topic, String group) throws Exception {
        return simple(topic, group, FilterExpression.SUB_ALL);
    }

    /** Acknowledges messages until there are so many, or the time is over. */
    private static List<MessageView> take(SimpleConsumer consumer, int count, int seconds) throws Exception {
        List<MessageView> found = new ArrayList<>();
        long end = System.nanoTime() + Duration.ofSeconds(seconds).toNanos();
        while (found.size() < count && System.nanoTime() < end) {
            for (MessageView one : consumer.receive(16, Duration.ofSeconds(30))) {
                consumer.ack(one);
                found.add(one);
            }
        }
        return found;
    }

    private static void await(BooleanSupplier holds) throws InterruptedException {
        for (int i = 0; i < 600 && !holds.getAsBoolean(); i++) {
            Thread.sleep(100);
        }
        Thread.sleep(1000); // for what must not come
    }

    private static Object roundTrip(String topic, String group, int count, UnaryOperator<MessageBuilder> more) throws Exception {
        Producer sender = producer(topic, null);
        List<Object> sent = new ArrayList<>();
        List<Object> got = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            MessageBuilder made = message(topic, "m" + i).setTag("t").setKeys("k" + i).addProperty("p", "\u00fc");
            sent.add(List.of("m" + i, sender.send(more.apply(made).build()).getMessageId()));
        }
        for (MessageView one : take(simple(topic, group), count, 30)) {
            got.add(List.of(body(one), one.getMessageId(), one.getTag().orElse(""), one.getKeys(), one.getProperties().get("p")));
        }
        return Map.of("sent", sent, "got", got);
    }

    private static Object delay() throws Exception {
        long due = System.currentTimeMillis() + 3000;
        Object seen = roundTrip("Delay", "GDelay", 1, one -> one.setDeliveryTimestamp(due));
        double late = (System.currentTimeMillis() - due) / 1000.0;
        return Map.of("sent", ((Map<?, ?>) seen).get("sent"), "got", ((Map<?, ?>) seen).get("got"), "late_s", late);
    }

    private static Object transactions() throws Exception {
        Producer sender = producer("Transactions", one -> TransactionResolution.COMMIT);
        Transaction dropped = sender.beginTransaction();
        sender.send(message("Transactions", "dropped").build(), dropped);
        Transaction kept = sender.beginTransaction();
        sender.send(message("Transactions", "kept").build(), kept);
        dropped.rollback();
        kept.commit();
        return bodies(take(simple("Transactions", "GTransactions"), 2, 7));
    }

    private static Object checks() throws Exception {
        List<String> asked = Collections.synchronizedList(new ArrayList<>());
        Producer sender = producer("Checks", one -> {
            asked.add(body(one));
            return TransactionResolution.COMMIT;
        });
        sender.send(message("Checks", "orphan").build(), sender.beginTransaction());
        List<String> got = bodies(take(simple("Checks", "GChecks"), 1, 30));
        return Map.of("got", got, "asked", snapshot(asked).stream().distinct().collect(Collectors.toList()));
    }

    private static Object lite() throws Exception {
        List<Object> found = Collections.synchronizedList(new ArrayList<>());
        LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration)
            .bindTopic("Lite").setConsumerGroup("GLite").setMessageListener(one -> {
                found.add(List.of(one.getLiteTopic().orElse(""), body(one)));
                return ConsumeResult.SUCCESS;
            }).build();
        consumer.subscribeLite("first");
        consumer.subscribeLite("second");
        Thread.sleep(2000); // a subscription does not begin at the end that its call finds
        Producer sender = producer("Lite", null);
        for (String name : List.of("first", "second", "third")) {
            sender.send(message("Lite", "to " + name).setLiteTopic(name).build());
        }
        await(() -> found.size() >= 2);
        return snapshot(found).stream().sorted((a, b) -> a.toString().compareTo(b.toString())).collect(Collectors.toList());
    }

    private static Object priority() throws Exception {
        producer("Priority", null).send(message("Priority", "urgent").setPriority(3).build());
        return take(simple("Priority", "GPriority"), 1, 30).stream().map(one -> one.getPriority().orElse(-1)).collect(Collectors.toList());
    }

    private static Object recall() throws Exception {
        Producer sender = producer("Recall", null);
        long due = System.currentTimeMillis() + 5000;
        SendReceipt recalled = sender.send(message("Recall", "recalled").setDeliveryTimestamp(due).build());
        sender.send(message("Recall", "kept").setDeliveryTimestamp(due).build());
        sender.recallMessage("Recall", recalled.getRecallHandle());
        return bodies(take(simple("Recall", "GRecall"), 2, 12));
    }

    private static Object redelivery() throws Exception {
        producer("Redelivery", null).send(message("Redelivery", "again").build());
        SimpleConsumer consumer = simple("Redelivery", "GRedelivery");
        List<Object> attempts = new ArrayList<>();
        for (int i = 0; i < 6 && attempts.size() < 2; i++) {
            for (MessageView one : consumer.receive(1, Duration.ofSeconds(30))) {
                attempts.add(one.getDeliveryAttempt());
                if (attempts.size() == 1) {
                    consumer.changeInvisibleDuration(one, Duration.ofSeconds(2));
                } else {
                    consumer.ack(one);
                }
            }
        }
        return attempts;
    }

    private static Object push() throws Exception {
        List<List<Object>> found = Collections.synchronizedList(new ArrayList<>());
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("GPush")
            .setSubscriptionExpressions(Map.of("Push", FilterExpression.SUB_ALL)).setMessageListener(one -> {
                found.add(List.of(body(one), one.getDeliveryAttempt()));
                return body(one).equals("m3") && one.getDeliveryAttempt() == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        Producer sender = producer("Push", null);
        for (int i = 0; i < 10; i++) {
            sender.send(message("Push", "m" + i).build());
        }
        await(() -> found.size() >= 11);
        return snapshot(found).stream().sorted((a, b) -> a.toString().compareTo(b.toString())).collect(Collectors.toList());
    }

    private static Object filters() throws Exception {
        Producer sender = producer("Filters", null);
        List<String> tags = List.of("a", "b", "c");
        for (int i = 0; i < 3; i++) {
            sender.send(message("Filters", tags.get(i)).setTag(tags.get(i)).addProperty("n", "" + i).build());
        }
        FilterExpression sql = new FilterExpression("n > 0", FilterExpressionType.SQL92);
        List<String> first = bodies(take(simple("Filters", "GTags", new FilterExpression("a || c")), 3, 7));
        List<String> second = bodies(take(simple("Filters", "GSql", sql), 3, 7));
        return Map.of("tags", first.stream().sorted().toList(), "sql", second.stream().sorted().toList());
    }
}
