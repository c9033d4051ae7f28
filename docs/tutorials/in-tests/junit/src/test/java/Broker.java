import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A broker for the tests of a class, each of which finds it empty. MQTOOL is its command, "mqtool" by default. */
final class Broker implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback {
    private final List<String> command = new ArrayList<>();
    private Process process;
    private String ready;

    Broker(String... topics) {
        command.addAll(List.of(System.getenv().getOrDefault("MQTOOL", "mqtool").split(" ")));
        command.addAll(List.of("serve", "--temporary", "--test", "--port", "0", "--namesrv-port", "0"));
        for (String topic : topics) {
            command.addAll(List.of("--create-topic", topic));
        }
    }

    /** "host:port": "broker" for gRPC clients, "namesrv" for all others, "admin" for test endpoints. */
    String address(String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"([^\"]+)\"").matcher(ready);
        return found.find() ? found.group(1) : "";
    }

    @Override public void beforeAll(ExtensionContext context) throws Exception {
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        ready = String.valueOf(process.inputReader().readLine());
    }

    @Override public void beforeEach(ExtensionContext context) throws Exception {
        var request = HttpRequest.newBuilder(URI.create("http://" + address("admin") + "/reset"));
        HttpClient.newHttpClient().send(request.method("POST", HttpRequest.BodyPublishers.noBody()).build(),
            HttpResponse.BodyHandlers.discarding());
    }

    @Override public void afterAll(ExtensionContext context) throws Exception {
        process.destroy();
        process.waitFor();
    }
}
