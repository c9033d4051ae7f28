import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** NAMESRV TOPIC GROUP COUNT: sends messages and consumes them; prints "sent BODY QUEUE OFFSET" and "got BODY QUEUE OFFSET". */
public final class Consume {
    private Consume() { }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        DefaultMQProducer producer = new DefaultMQProducer("P-" + args[2]);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int i = 0; i < count; i++) {
            Message message = new Message(args[1], "tag", "key" + i, ("body" + i).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message);
            say("sent body" + i + " " + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
        }
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "tag");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                say("got " + new String(one.getBody(), StandardCharsets.UTF_8) + " " + one.getQueueId() + " " + one.getQueueOffset());
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = left.await(90, TimeUnit.SECONDS);
        consumer.shutdown();
        producer.shutdown();
        System.exit(all ? 0 : 1);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
