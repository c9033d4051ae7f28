import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Evaluates SQL92 expressions as the broker does. A line of stdin: URL-encoded words, the expression first, then names and
 * values of properties in turn. A line of stdout: true, false, null, other (no Boolean), throws, or refused.
 */
public final class Sql {
    private Sql() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            for (int i = 0; i < words.length; i++) {
                words[i] = URLDecoder.decode(words[i], "UTF-8");
            }
            answers.append(answer(words)).append('\n');
        }
        System.out.print(answers);
        System.out.flush();
    }

    private static String answer(String[] words) {
        Map<String, Object> properties = new HashMap<>();
        for (int i = 1; i + 1 < words.length; i += 2) {
            properties.put(words[i], words[i + 1]);
        }
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(words[0]);
        } catch (Throwable problem) {
            return "refused";
        }
        try {
            Object value = expression.evaluate(new Context(properties));
            return value == null ? "null" : value instanceof Boolean ? value.toString() : "other";
        } catch (Throwable problem) {
            return "throws";
        }
    }

    private static final class Context implements EvaluationContext {
        private final Map<String, Object> properties;

        Context(Map<String, Object> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return properties;
        }
    }
}
