import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/** Loads the classes of RocketMQ and of what it uses most, for the archive that {@code -XX:ArchiveClassesAtExit} names. */
public final class Classes {
    private static final String JARS = ".*/(drivers|rocketmq|netty|fastjson|guava|commons|slf4j|opentelemetry)[^/]*";

    private Classes() { }

    public static void main(String[] arguments) throws Exception {
        for (String path : System.getProperty("java.class.path").split(":")) {
            if (path.matches(JARS)) {
                try (JarFile jar = new JarFile(path)) {
                    jar.stream().map(JarEntry::getName).filter(name -> name.matches("(?!META-INF|module-info).*\\.class")).forEach(Classes::load);
                }
            }
        }
    }

    private static void load(String file) {
        try {
            Class.forName(file.replaceAll("\\.class$", "").replace('/', '.'), false, Classes.class.getClassLoader());
        } catch (LinkageError | ClassNotFoundException problem) {
            // a class for another platform, or of a library that is not there: no broker needs it
        }
    }
}
