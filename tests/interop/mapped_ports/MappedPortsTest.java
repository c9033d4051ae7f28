import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Collections;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.boot.testcontainers.service.connection.ServiceConnection;
import org.springframework.boot.test.context.TestConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.core.env.Environment;

@SpringBootTest(
    classes = MappedPortsTest.Application.class,
    properties = "spring.main.allow-bean-definition-overriding=true")
class MappedPortsTest {
    @org.springframework.boot.autoconfigure.EnableAutoConfiguration
    @Import({RocketMq.class, WithoutDocker.class})
    static class Application {}

    @TestConfiguration(proxyBeanMethods = false)
    static class WithoutDocker {
        @Bean
        @ServiceConnection
        MqtoolContainer mqtool() {
            return new LocalContainer();
        }
    }

    @Autowired MqtoolContainer container;
    @Autowired Environment environment;

    private int connections() {
        return ((LocalContainer) container).connections.get(10911).get();
    }

    @Test
    void aRemotingClientIsGivenTheMappedPort() throws Exception {
        String nameServer = environment.getProperty("rocketmq.name-server");
        assertEquals(container.getNameServer(), nameServer);
        int before = connections();
        DefaultMQProducer producer = new DefaultMQProducer("Paying");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        String id = producer.send(new Message("Orders", "paid".getBytes(UTF_8)), 10_000).getOffsetMsgId();
        assertTrue(connections() > before);
        assertEquals("paid", new String(producer.viewMessage("Orders", id).getBody(), UTF_8));
        producer.shutdown();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("Shipping");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Orders", "*");
        consumer.start();
        assertEquals("paid", new String(consumer.poll(30_000).get(0).getBody(), UTF_8));
        consumer.shutdown();
    }

    @Test
    void aGrpcClientIsGivenTheMappedPort() throws Exception {
        container.post("/reset");
        DefaultMQProducer creating = new DefaultMQProducer("Creating");
        creating.setNamesrvAddr(container.getNameServer());
        creating.start();
        creating.send(new Message("Payments", "first".getBytes(UTF_8)), 10_000);
        creating.shutdown();
        int before = connections();
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration =
            ClientConfiguration.newBuilder().setEndpoints(container.getEndpoints()).enableSsl(false).build();
        try (var consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                 .setConsumerGroup("Bookkeeping").setAwaitDuration(Duration.ofSeconds(10))
                 .setSubscriptionExpressions(Collections.singletonMap("Payments", FilterExpression.SUB_ALL)).build()) {
            assertEquals("first", UTF_8.decode(consumer.receive(1, Duration.ofSeconds(30)).get(0).getBody()).toString());
        }
        assertTrue(connections() > before);
    }
}
