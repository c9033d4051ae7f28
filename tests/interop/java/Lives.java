import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * NAMESRV BROKER: gives some 200 messages scripted lives, and prints what the clients saw of each as one JSON object a line. The key of a
 * message is KIND-NUMBER. The broker needs the keys in made.txt of the fixtures lives-*. Timers and POP are in LivesSince5.
 */
public class Lives {
    private static final String GROUP = "LivesGroup";
    private static final String OTHER = "LivesOther";

    public static void main(String[] args) throws Exception {
        new Lives().run(args);
    }

    /** How many lives of a kind; more of them than LivesSince5, which has more kinds. */
    protected int count(int number) {
        return number * 3 / 2;
    }

    protected List<String> topics() {
        return List.of("LivesPlain", "LivesDelay", "LivesTx", "LivesRetry");
    }

    protected List<String> topicsOfGroup() {
        return topics();
    }

    protected void prepare(DefaultMQAdminExt admin, String broker) throws Exception { }

    protected void consumeMore(String server) throws Exception { }

    protected void sendMore(DefaultMQProducer producer) throws Exception { }

    protected void sendLast(DefaultMQProducer producer) throws Exception { }

    protected final void run(String[] args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt("LivesAdmin");
        admin.setNamesrvAddr(args[0]);
        admin.start();
        for (String topic : topics()) {
            org.apache.rocketmq.common.TopicConfig config = new org.apache.rocketmq.common.TopicConfig(topic, 2, 2, 6);
            admin.createAndUpdateTopicConfig(args[1], config);
        }
        prepare(admin, args[1]);
        DefaultMQProducer producer = new DefaultMQProducer("LivesProducer", null, true, null);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        TransactionMQProducer transactions = transactions(args[0]);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        consumers.add(consumer(args[0], GROUP, topicsOfGroup()));
        consumers.add(consumer(args[0], OTHER, List.of("LivesPlain")));
        consumeMore(args[0]);
        Thread.sleep(15_000);
        send(producer, transactions);
        Thread.sleep(Long.getLong("wait", 75_000));
        consumers.get(0).shutdown();
        consumers.get(1).shutdown();
        for (int i = 0; i < count(5); i++) {
            plain(producer, "LivesPlain", "unread-" + i, null, null);
        }
        for (int i = 0; i < count(4); i++) {
            transaction(transactions, "txopen-" + i);
        }
        sendLast(producer);
        Thread.sleep(3_000);
        System.exit(0);
    }

    private void send(DefaultMQProducer producer, TransactionMQProducer transactions) throws Exception {
        for (int i = 0; i < count(20); i++) {
            plain(producer, "LivesPlain", "plain-" + i, null, null);
            plain(producer, "LivesDelay", "delay-" + i, "DELAY", String.valueOf(1 + i % 3));
        }
        for (int i = 0; i < count(10); i++) {
            plain(producer, "LivesDelay", "delaywait-" + i, "DELAY", String.valueOf(17 + i % 2));
        }
        for (int i = 0; i < count(15); i++) {
            transaction(transactions, "txcommit-" + i);
            transaction(transactions, "txrollback-" + i);
        }
        for (int i = 0; i < count(10); i++) {
            transaction(transactions, "txchecked-" + i);
            transaction(transactions, "txgivenup-" + i);
        }
        for (int i = 0; i < count(20); i++) {
            plain(producer, "LivesRetry", "retry" + (1 + i % 2) + "-" + i, null, null);
        }
        for (int i = 0; i < count(10); i++) {
            plain(producer, "LivesRetry", "dead-" + i, null, null);
        }
        sendMore(producer);
    }

    protected static SendResult plain(DefaultMQProducer producer, String topic, String key, String name, String value) throws Exception {
        Message message = new Message(topic, "tag", key, key.getBytes(StandardCharsets.UTF_8));
        if (name != null) {
            message.getProperties().put(name, value);
        }
        SendResult sent = producer.send(message);
        sent(key, topic, sent);
        return sent;
    }

    private static void transaction(TransactionMQProducer producer, String key) throws Exception {
        Message message = new Message("LivesTx", "tag", key, key.getBytes(StandardCharsets.UTF_8));
        if (key.startsWith("txopen")) { // it is not checked before that
            message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "7200");
        }
        sent(key, "LivesTx", producer.sendMessageInTransaction(message, null));
    }

    private static TransactionMQProducer transactions(String server) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("LivesTransactions");
        producer.setNamesrvAddr(server);
        producer.setSendMsgTimeout(30_000);
        producer.setTransactionListener(new Decisions());
        producer.start();
        return producer;
    }

    private static final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String key = message.getKeys();
            if (key.startsWith("txcommit")) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return key.startsWith("txrollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String key = message.getKeys();
            say(key, "checked", "\"offset\":" + message.getCommitLogOffset());
            return key.startsWith("txchecked") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    private static DefaultMQPushConsumer consumer(String server, String group, List<String> topics) throws Exception {
        DefaultMQPushConsumer consumer = newConsumer(server, group, topics, group.equals(GROUP) ? 2 : 16);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt one = messages.get(0);
            String key = one.getKeys();
            context.setDelayLevelWhenNextConsume(1);
            boolean isDone = !key.startsWith("dead") && one.getReconsumeTimes() >= failures(key);
            got(one, group, isDone);
            return isDone ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        return consumer;
    }

    /** A consumer without listener, not started. */
    protected static DefaultMQPushConsumer newConsumer(String server, String group, List<String> topics, int tries) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, null, new org.apache.rocketmq.client.consumer.rebalance
            .AllocateMessageQueueAveragely(), group.equals(GROUP), null);
        consumer.setNamesrvAddr(server);
        consumer.setInstanceName(group);
        consumer.setMaxReconsumeTimes(tries);
        consumer.setConsumeThreadMin(32);
        consumer.setConsumeThreadMax(32);
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        return consumer;
    }

    private static int failures(String key) {
        return key.startsWith("retry2") ? 2 : key.startsWith("retry") ? 1 : 0;
    }

    protected static void got(MessageExt one, String group, boolean isDone) {
        String id = ((MessageClientExt) one).getOffsetMsgId();
        say(one.getKeys(), "delivered", "\"group\":\"" + group + "\",\"topic\":\"" + one.getTopic() + "\",\"queue\":" + one.getQueueId()
            + ",\"queueOffset\":" + one.getQueueOffset() + ",\"msgId\":\"" + one.getMsgId() + "\",\"offsetMsgId\":\"" + id + "\",\"offset\":"
            + one.getCommitLogOffset() + ",\"times\":" + one.getReconsumeTimes() + ",\"done\":" + isDone);
    }

    private static void sent(String key, String topic, SendResult sent) {
        say(key, "sent", "\"topic\":\"" + topic + "\",\"msgId\":\"" + sent.getMsgId() + "\",\"offsetMsgId\":\"" + sent.getOffsetMsgId()
            + "\",\"queue\":" + sent.getMessageQueue().getQueueId() + ",\"queueOffset\":" + sent.getQueueOffset());
    }

    protected static synchronized void say(String life, String event, String more) {
        System.out.println("{\"life\":\"" + life + "\",\"event\":\"" + event + "\",\"at\":" + System.currentTimeMillis() + "," + more + "}");
        System.out.flush();
    }
}
