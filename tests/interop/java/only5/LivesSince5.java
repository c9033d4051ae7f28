import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** NAMESRV BROKER: as Lives, with timers, recalls and POP. */
public final class LivesSince5 extends Lives {
    private static final String POPPING = "LivesPopping";
    private static final String HANGING = "LivesHanging";

    private LivesSince5() { }

    public static void main(String[] args) throws Exception {
        new LivesSince5().run(args);
    }

    @Override
    protected int count(int number) {
        return number;
    }

    @Override
    protected List<String> topics() {
        return List.of("LivesPlain", "LivesDelay", "LivesTimer", "LivesRecall", "LivesTx", "LivesRetry", "LivesPop", "LivesHang");
    }

    @Override
    protected List<String> topicsOfGroup() {
        return topics().subList(0, 6);
    }

    @Override
    protected void prepare(DefaultMQAdminExt admin, String broker) throws Exception {
        admin.setMessageRequestMode(broker, "LivesPop", POPPING, MessageRequestMode.POP, 8, 30_000);
        admin.setMessageRequestMode(broker, "LivesHang", HANGING, MessageRequestMode.POP, 8, 30_000);
    }

    @Override
    protected void consumeMore(String server) throws Exception {
        pop(server, POPPING, "LivesPop", 10_000);
        pop(server, HANGING, "LivesHang", 300_000);
    }

    @Override
    protected void sendMore(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 10; i++) {
            plain(producer, "LivesTimer", "timerwait-" + i, "TIMER_DELAY_SEC", String.valueOf(3600 + i));
        }
        for (int i = 0; i < 15; i++) {
            plain(producer, "LivesTimer", "timer-" + i, "TIMER_DELAY_SEC", String.valueOf(2 + i % 4));
        }
        for (int i = 0; i < 10; i++) {
            SendResult sent = plain(producer, "LivesRecall", "recall-" + i, "TIMER_DELAY_SEC", "40");
            String id = producer.recallMessage("LivesRecall", sent.getRecallHandle());
            say("recall-" + i, "recalled", "\"msgId\":\"" + id + "\"");
        }
        for (int i = 0; i < 15; i++) {
            plain(producer, "LivesPop", "pop-" + i, null, null);
            plain(producer, "LivesPop", "popretry-" + i, null, null);
        }
    }

    @Override
    protected void sendLast(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 3; i++) {
            plain(producer, "LivesHang", "pophang-" + i, null, null);
        }
    }

    private static void pop(String server, String group, String topic, long invisible) throws Exception {
        DefaultMQPushConsumer consumer = newConsumer(server, group, List.of(topic), 16);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(invisible);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt one = messages.get(0);
            String key = one.getKeys();
            context.setDelayLevelWhenNextConsume(1);
            boolean isDone = key.startsWith("pop-") || key.startsWith("popretry") && one.getReconsumeTimes() >= 1;
            got(one, group, isDone);
            if (!isDone) {
                sleep(key.startsWith("pophang") ? 3_600_000 : 13_000);
            }
            return isDone ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
