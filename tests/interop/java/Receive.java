import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** NAMESRV SECONDS GROUP:TOPIC:COUNT…: consumes until each group has its count, and SECONDS more; prints "got GROUP QUEUE OFFSET". */
public final class Receive {
    private Receive() { }

    public static void main(String[] args) throws Exception {
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        List<CountDownLatch> left = new ArrayList<>();
        for (int i = 2; i < args.length; i++) {
            String[] words = args[i].split(":");
            CountDownLatch count = new CountDownLatch(Integer.parseInt(words[2]));
            left.add(count);
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[0]);
            consumer.setInstanceName(words[0]);
            consumer.setNamesrvAddr(args[0]);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPersistConsumerOffsetInterval(1000);
            consumer.subscribe(words[1], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt one : messages) {
                    say("got " + words[0] + " " + one.getQueueId() + " " + one.getQueueOffset());
                    count.countDown();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        say("ready");
        boolean all = true;
        for (CountDownLatch one : left) {
            all &= one.await(90, TimeUnit.SECONDS);
        }
        Thread.sleep(1000L * Integer.parseInt(args[1]));
        for (DefaultMQPushConsumer one : consumers) {
            one.shutdown();
        }
        System.exit(all ? 0 : 1);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
