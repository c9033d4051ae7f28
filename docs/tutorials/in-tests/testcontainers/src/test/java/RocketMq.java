import org.springframework.boot.autoconfigure.service.connection.ConnectionDetails;
import org.springframework.boot.test.context.TestConfiguration;
import org.springframework.boot.testcontainers.service.connection.ContainerConnectionDetailsFactory;
import org.springframework.boot.testcontainers.service.connection.ContainerConnectionSource;
import org.springframework.boot.testcontainers.service.connection.ServiceConnection;
import org.springframework.context.annotation.Bean;
import org.springframework.test.context.DynamicPropertyRegistrar;

/** The broker of a test of Spring Boot, for an @Import. */
@TestConfiguration(proxyBeanMethods = false)
public class RocketMq {
    @Bean
    @ServiceConnection
    MqtoolContainer mqtool() {
        return new MqtoolContainer("mqtool");
    }

    @Bean
    DynamicPropertyRegistrar addresses(Addresses found) {
        return registry -> registry.add("rocketmq.name-server", found::nameServer);
    }

    /** What @ServiceConnection finds. */
    public interface Addresses extends ConnectionDetails {
        String nameServer();
    }

    /** Named in META-INF/spring.factories. */
    static class Factory extends ContainerConnectionDetailsFactory<MqtoolContainer, Addresses> {
        @Override
        protected Addresses getContainerConnectionDetails(ContainerConnectionSource<MqtoolContainer> source) {
            return new Found(source);
        }

        static class Found extends ContainerConnectionDetails<MqtoolContainer> implements Addresses {
            Found(ContainerConnectionSource<MqtoolContainer> source) {
                super(source);
            }

            @Override
            public String nameServer() {
                return getContainer().getNameServer();
            }
        }
    }
}
