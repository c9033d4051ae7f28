import java.io.BufferedReader;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A broker in a process of its own. MQTOOL is its command, such as "docker run --rm --network host mqtool". */
final class Broker implements AutoCloseable {
    final String endpoints;
    private final Process process;

    Broker(String... topics) throws Exception {
        String command = System.getenv().getOrDefault("MQTOOL", "mqtool");
        List<String> line = new ArrayList<>(List.of(command.split(" ")));
        line.addAll(List.of("serve", Files.createTempDirectory("broker").toString(), "--port", "0", "--namesrv-port", "0"));
        for (String topic : topics) {
            line.addAll(List.of("--create-topic", topic));
        }
        process = new ProcessBuilder(line).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        BufferedReader output = process.inputReader();
        Matcher ready = Pattern.compile("\"broker\":\"([^\"]+)\"").matcher(String.valueOf(output.readLine()));
        if (!ready.find()) {
            throw new IllegalStateException("the broker did not start");
        }
        endpoints = ready.group(1);
    }

    @Override
    public void close() throws Exception {
        process.destroy();
        process.waitFor();
    }
}
