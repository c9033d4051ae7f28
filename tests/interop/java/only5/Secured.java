import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * NAMESRV TOPIC GROUP USER PASSWORD COUNT: sends COUNT messages and consumes them, signing as a user. Prints "sent BODY" and "got BODY", or
 * "refused MESSAGE" and ends when a send is refused.
 */
public final class Secured {
    private Secured() { }

    public static void main(String[] args) throws Exception {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(args[3], args[4]));
        int count = Integer.parseInt(args[5]);
        DefaultMQProducer producer = new DefaultMQProducer("P-" + args[2], hook);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        try {
            for (int i = 0; i < count; i++) {
                producer.send(new Message(args[1], "tag", "key" + i, ("body" + i).getBytes(StandardCharsets.UTF_8)));
                say("sent body" + i);
            }
        } catch (Exception e) {
            say("refused " + (e + " " + e.getCause()).replace('\n', ' '));
            System.exit(0);
        }
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2], hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                say("got " + new String(one.getBody(), StandardCharsets.UTF_8));
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
