import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.Collections;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class OrdersTest {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    @RegisterExtension
    static final Broker BROKER = new Broker("Orders", "Payments=FIFO");

    @Test
    void anOrderArrives() throws Exception {
        ClientConfiguration configuration =
            ClientConfiguration.newBuilder().setEndpoints(BROKER.address("broker")).enableSsl(false).build();
        try (Producer producer = PROVIDER.newProducerBuilder()
                 .setClientConfiguration(configuration).setTopics("Orders").build();
             SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
                 .setClientConfiguration(configuration).setConsumerGroup("Shipping")
                 .setAwaitDuration(Duration.ofSeconds(10))
                 .setSubscriptionExpressions(Collections.singletonMap("Orders", FilterExpression.SUB_ALL)).build()) {
            producer.send(PROVIDER.newMessageBuilder().setTopic("Orders").setBody("paid".getBytes(UTF_8)).build());
            MessageView message = consumer.receive(1, Duration.ofSeconds(30)).get(0);
            consumer.ack(message);
            assertEquals("paid", UTF_8.decode(message.getBody()).toString());
        }
    }
}
