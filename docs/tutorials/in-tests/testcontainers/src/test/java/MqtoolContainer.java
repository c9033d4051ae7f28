import com.github.dockerjava.api.command.InspectContainerResponse;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.URI;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

/** A broker in a container, empty at its start, for clients of this machine. */
public class MqtoolContainer extends GenericContainer<MqtoolContainer> {
    public MqtoolContainer(String image) {
        super(image);
        withExposedPorts(10911, 9876, 8080);
        withCommand("serve", "--temporary", "--test", "--yes", "--host", "0.0.0.0", "--admin-port", "8080");
        waitingFor(Wait.forHttp("/readyz").forPort(8080));
    }

    /** For gRPC clients. */
    public String getEndpoints() {
        return address(10911);
    }

    /** For all other clients. */
    public String getNameServer() {
        return address(9876);
    }

    /** Calls a test endpoint, such as "/reset" or "/clock/advance?hours=2". */
    public void post(String path) {
        try {
            var call = (HttpURLConnection) URI.create("http://" + address(8080) + path).toURL().openConnection();
            call.setRequestMethod("POST");
            call.getInputStream().close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Only now is known which port clients must be given. */
    @Override
    protected void containerIsStarted(InspectContainerResponse info) {
        post("/advertise?address=" + getEndpoints());
    }

    private String address(int port) {
        return getHost() + ":" + getMappedPort(port);
    }
}
