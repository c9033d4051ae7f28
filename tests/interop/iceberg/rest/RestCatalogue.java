import com.fasterxml.jackson.annotation.JsonAutoDetect.Visibility;
import com.fasterxml.jackson.annotation.PropertyAccessor;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;

/** A REST catalogue in memory: Iceberg's own handlers of the requests behind the JDK's HTTP server. Prints its port. */
public class RestCatalogue {
  private final InMemoryCatalog catalog = new InMemoryCatalog();
  private final ObjectMapper mapper =
      new ObjectMapper()
          .setVisibility(PropertyAccessor.FIELD, Visibility.ANY)
          .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false)
          .setPropertyNamingStrategy(PropertyNamingStrategies.KEBAB_CASE);

  public static void main(String[] arguments) throws IOException {
    new RestCatalogue().serve();
  }

  private void serve() throws IOException {
    RESTSerializers.registerAll(mapper);
    catalog.initialize("memory", Map.of("warehouse", "file:///warehouse"));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.createContext("/", this::handle);
    server.start();
    System.out.println(server.getAddress().getPort());
  }

  private void handle(HttpExchange exchange) throws IOException {
    int status = 200;
    Object answer;
    try {
      String[] path =
          Arrays.stream(exchange.getRequestURI().getRawPath().split("/"))
              .filter(part -> !part.isEmpty())
              .map(part -> URLDecoder.decode(part, StandardCharsets.UTF_8))
              .toArray(String[]::new);
      answer = answer(exchange.getRequestMethod(), path, exchange.getRequestBody().readAllBytes());
    } catch (RuntimeException error) {
      status = statusOf(error);
      answer =
          ErrorResponse.builder()
              .responseCode(status)
              .withType(error.getClass().getSimpleName())
              .withMessage(String.valueOf(error.getMessage()))
              .build();
    }
    boolean isBare = answer == null || exchange.getRequestMethod().equals("HEAD");
    byte[] body = isBare ? new byte[0] : mapper.writeValueAsBytes(answer);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(isBare && status == 200 ? 204 : status, body.length == 0 ? -1 : body.length);
    exchange.getResponseBody().write(body);
    exchange.close();
  }

  /** Answers METHOD /v1/config, /v1/namespaces[/NAME[/tables[/NAME]]]. */
  private Object answer(String method, String[] path, byte[] body) throws IOException {
    if (path[1].equals("config")) {
      return ConfigResponse.builder().build();
    }
    if (path.length == 2) {
      return CatalogHandlers.createNamespace(catalog, mapper.readValue(body, CreateNamespaceRequest.class));
    }
    Namespace namespace = Namespace.of(path[2].split("\u001f"));
    if (path.length == 3) {
      return CatalogHandlers.loadNamespace(catalog, namespace);
    }
    if (path.length == 4) {
      return CatalogHandlers.createTable(catalog, namespace, mapper.readValue(body, CreateTableRequest.class));
    }
    TableIdentifier table = TableIdentifier.of(namespace, path[4]);
    if (method.equals("POST")) {
      return CatalogHandlers.updateTable(catalog, table, mapper.readValue(body, UpdateTableRequest.class));
    }
    return CatalogHandlers.loadTable(catalog, table);
  }

  private static int statusOf(RuntimeException error) {
    if (error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException) {
      return 404;
    }
    return error instanceof AlreadyExistsException || error instanceof CommitFailedException ? 409 : 500;
  }
}
