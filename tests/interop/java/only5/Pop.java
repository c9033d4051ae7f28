import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * NAMESRV BROKER TOPIC GROUP COUNT: sends COUNT messages, then consumes by POP until it is killed. Of those just sent it never finishes
 * one with an odd number. Prints "sent BODY", "got BODY TIMES", and "done BODY TIMES" of what it acknowledges.
 */
public final class Pop {
    private Pop() { }

    public static void main(String[] args) throws Exception {
        String topic = args[2];
        String group = args[3];
        int count = Integer.parseInt(args[4]);
        DefaultMQAdminExt admin = new DefaultMQAdminExt("A-" + group);
        admin.setNamesrvAddr(args[0]);
        admin.start();
        admin.setMessageRequestMode(args[1], topic, group, MessageRequestMode.POP, 8, 30_000);
        DefaultMQProducer producer = new DefaultMQProducer("P-" + group);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int i = 0; i < count; i++) {
            producer.send(new Message(topic, "tag", "key" + i, ("body" + i).getBytes(StandardCharsets.UTF_8)));
            say("sent body" + i);
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(Long.getLong("invisible", 10_000));
        consumer.setConsumeThreadMin(64);
        consumer.setConsumeThreadMax(64);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                String body = new String(one.getBody(), StandardCharsets.UTF_8);
                say("got " + body + " " + one.getReconsumeTimes());
                if (count > 0 && Integer.parseInt(body.substring(4)) % 2 == 1) {
                    sleep();
                }
                say("done " + body + " " + one.getReconsumeTimes());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        sleep();
    }

    private static void sleep() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
