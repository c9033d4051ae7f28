import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A container without Docker: its command in a process, each of its ports behind a forwarder on another one. */
class LocalContainer extends MqtoolContainer {
    final Map<Integer, AtomicInteger> connections = new HashMap<>();
    private final Map<Integer, ServerSocket> mapped = new HashMap<>();
    private Process process;

    LocalContainer() {
        super("none");
    }

    @Override
    public void start() {
        if (process != null) {
            return;
        }
        List<String> line = new ArrayList<>(List.of("mqtool"));
        line.addAll(List.of(getCommandParts()));
        line.addAll(List.of("--port", "0", "--namesrv-port", "0", "--admin-port", "0"));
        try {
            process = new ProcessBuilder(line).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            String ready = process.inputReader().readLine();
            Map<String, Integer> inside = Map.of("broker", 10911, "namesrv", 9876, "admin", 8080);
            for (var one : inside.entrySet()) {
                Matcher found = Pattern.compile("\"" + one.getKey() + "\":\"[^\"]+:([0-9]+)\"").matcher(ready);
                found.find();
                forward(one.getValue(), Integer.parseInt(found.group(1)));
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        containerIsStarted(null);
    }

    private void forward(int port, int to) throws IOException {
        ServerSocket listening = new ServerSocket(0);
        AtomicInteger count = new AtomicInteger();
        mapped.put(port, listening);
        connections.put(port, count);
        daemon(() -> {
            while (true) {
                Socket client = listening.accept();
                count.incrementAndGet();
                Socket server = new Socket("127.0.0.1", to);
                daemon(() -> client.getInputStream().transferTo(server.getOutputStream()));
                daemon(() -> server.getInputStream().transferTo(client.getOutputStream()));
            }
        });
    }

    interface Work {
        Object run() throws IOException;
    }

    private static void daemon(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException error) {
                // a connection has ended
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public String getHost() {
        return "localhost";
    }

    @Override
    public Integer getMappedPort(int port) {
        return mapped.get(port).getLocalPort();
    }

    @Override
    public void stop() {
        process.destroy();
    }
}
