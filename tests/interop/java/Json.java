import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/** Just enough to print JSON Lines: maps, collections, numbers, booleans, null; anything else as a string, in ASCII. */
final class Json {
    private final StringBuilder text = new StringBuilder();

    static String line(Object value) {
        Json json = new Json();
        json.add(value);
        return json.text.toString();
    }

    /** A map that keeps its order: name, value, name, value, … */
    static Map<String, Object> object(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        return map;
    }

    private void add(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            text.append(value);
        } else if (value instanceof Map) {
            String separator = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(separator);
                quote(entry.getKey().toString());
                text.append(':');
                add(entry.getValue());
                separator = ",";
            }
            text.append(separator.equals("{") ? "{}" : "}");
        } else if (value instanceof Collection) {
            String separator = "[";
            for (Object element : (Collection<?>) value) {
                text.append(separator);
                add(element);
                separator = ",";
            }
            text.append(separator.equals("[") ? "[]" : "]");
        } else {
            quote(value.toString());
        }
    }

    private void quote(String string) {
        text.append('"');
        for (char c : string.toCharArray()) {
            if (c < ' ' || c > '~' || c == '"' || c == '\\') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }
}
