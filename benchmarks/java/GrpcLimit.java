import apache.rocketmq.v2.*;
import java.util.zip.CRC32;
import org.apache.rocketmq.shaded.com.google.protobuf.ByteString;
import org.apache.rocketmq.shaded.com.google.protobuf.Duration;
import org.apache.rocketmq.shaded.com.google.protobuf.Timestamp;
import org.apache.rocketmq.shaded.grpc.netty.NettyServerBuilder;
import org.apache.rocketmq.shaded.io.grpc.Server;
import org.apache.rocketmq.shaded.io.grpc.stub.StreamObserver;

/**
 * A server for gRPC clients that does nothing: each call is answered at once, nothing is stored, and every receive gets
 * the same messages of 1 KiB. What a client reaches here is the most that the client and the machine allow.
 *
 * <p>Prints the port that it listens on, and ends with its standard input.
 */
public final class GrpcLimit extends MessagingServiceGrpc.MessagingServiceImplBase {
    private static final int QUEUES = 8;
    private static final String ID = "01" + "0".repeat(32);
    private static final Status OK = Status.newBuilder().setCode(Code.OK).setMessage("OK").build();
    private final ByteString body = ByteString.copyFrom("a".repeat(1024).getBytes(java.nio.charset.StandardCharsets.US_ASCII));
    private final String digest;
    private Broker broker;

    private GrpcLimit() {
        CRC32 crc = new CRC32();
        crc.update(body.toByteArray());
        digest = Long.toHexString(crc.getValue()).toUpperCase();
    }

    public static void main(String[] args) throws Exception {
        GrpcLimit service = new GrpcLimit();
        Server server = NettyServerBuilder.forPort(0).directExecutor().addService(service).build().start();
        Address address = Address.newBuilder().setHost("127.0.0.1").setPort(server.getPort()).build();
        Endpoints endpoints = Endpoints.newBuilder().setScheme(AddressScheme.IPv4).addAddresses(address).build();
        service.broker = Broker.newBuilder().setName("nothing").setId(0).setEndpoints(endpoints).build();
        System.out.println(server.getPort());
        while (System.in.read() >= 0) { }
        Runtime.getRuntime().halt(0);
    }

    private static <T> void answer(StreamObserver<T> to, T answer) {
        to.onNext(answer);
        to.onCompleted();
    }

    private MessageQueue queue(Resource topic, int id) {
        return MessageQueue.newBuilder().setTopic(topic).setId(id).setPermission(Permission.READ_WRITE).setBroker(broker)
            .addAcceptMessageTypes(MessageType.NORMAL).build();
    }

    @Override
    public void queryRoute(QueryRouteRequest request, StreamObserver<QueryRouteResponse> to) {
        QueryRouteResponse.Builder found = QueryRouteResponse.newBuilder().setStatus(OK);
        for (int id = 0; id < QUEUES; id++) {
            found.addMessageQueues(queue(request.getTopic(), id));
        }
        answer(to, found.build());
    }

    @Override
    public void queryAssignment(QueryAssignmentRequest request, StreamObserver<QueryAssignmentResponse> to) {
        QueryAssignmentResponse.Builder found = QueryAssignmentResponse.newBuilder().setStatus(OK);
        for (int id = 0; id < QUEUES; id++) {
            found.addAssignments(Assignment.newBuilder().setMessageQueue(queue(request.getTopic(), id)));
        }
        answer(to, found.build());
    }

    @Override
    public void heartbeat(HeartbeatRequest request, StreamObserver<HeartbeatResponse> to) {
        answer(to, HeartbeatResponse.newBuilder().setStatus(OK).build());
    }

    @Override
    public void sendMessage(SendMessageRequest request, StreamObserver<SendMessageResponse> to) {
        SendMessageResponse.Builder found = SendMessageResponse.newBuilder().setStatus(OK);
        for (Message one : request.getMessagesList()) {
            found.addEntries(SendResultEntry.newBuilder().setStatus(OK)
                .setMessageId(one.getSystemProperties().getMessageId()));
        }
        answer(to, found.build());
    }

    @Override
    public void receiveMessage(ReceiveMessageRequest request, StreamObserver<ReceiveMessageResponse> to) {
        Timestamp now = Timestamp.newBuilder().setSeconds(System.currentTimeMillis() / 1000).build();
        MessageQueue queue = request.getMessageQueue();
        SystemProperties properties = SystemProperties.newBuilder().setMessageId(ID).setMessageType(MessageType.NORMAL)
            .setBodyDigest(Digest.newBuilder().setType(DigestType.CRC32).setChecksum(digest)).setBornTimestamp(now)
            .setBornHost("127.0.0.1:1").setStoreTimestamp(now).setStoreHost("127.0.0.1:2").setQueueId(queue.getId())
            .setReceiptHandle(ID).setInvisibleDuration(request.getInvisibleDuration()).setDeliveryAttempt(1)
            .setBodyEncoding(Encoding.IDENTITY).build();
        Message message = Message.newBuilder().setTopic(queue.getTopic()).setSystemProperties(properties).setBody(body).build();
        ReceiveMessageResponse answer = ReceiveMessageResponse.newBuilder().setMessage(message).build();
        to.onNext(ReceiveMessageResponse.newBuilder().setStatus(OK).build());
        for (int i = 0; i < request.getBatchSize(); i++) {
            to.onNext(answer);
        }
        to.onCompleted();
    }

    @Override
    public void ackMessage(AckMessageRequest request, StreamObserver<AckMessageResponse> to) {
        AckMessageResponse.Builder found = AckMessageResponse.newBuilder().setStatus(OK);
        for (AckMessageEntry one : request.getEntriesList()) {
            found.addEntries(AckMessageResultEntry.newBuilder().setStatus(OK).setMessageId(one.getMessageId())
                .setReceiptHandle(one.getReceiptHandle()));
        }
        answer(to, found.build());
    }

    @Override
    public void notifyClientTermination(
        NotifyClientTerminationRequest request, StreamObserver<NotifyClientTerminationResponse> to) {
        answer(to, NotifyClientTerminationResponse.newBuilder().setStatus(OK).build());
    }

    @Override
    public StreamObserver<TelemetryCommand> telemetry(StreamObserver<TelemetryCommand> to) {
        return new StreamObserver<>() {
            @Override
            public void onNext(TelemetryCommand command) {
                if (command.hasSettings()) {
                    to.onNext(TelemetryCommand.newBuilder().setStatus(OK).setSettings(settings(command.getSettings())).build());
                }
            }

            @Override
            public void onError(Throwable error) { }

            @Override
            public void onCompleted() {
                to.onCompleted();
            }
        };
    }

    /** Returns a client's settings with what a server adds to them. */
    private static Settings settings(Settings asked) {
        ExponentialBackoff backoff = ExponentialBackoff.newBuilder().setInitial(Duration.newBuilder().setSeconds(1))
            .setMax(Duration.newBuilder().setSeconds(10)).setMultiplier(2).build();
        Settings.Builder found = asked.toBuilder()
            .setBackoffPolicy(RetryPolicy.newBuilder().setMaxAttempts(3).setExponentialBackoff(backoff));
        if (asked.hasPublishing()) {
            found.setPublishing(asked.getPublishing().toBuilder().setMaxBodySize(4 << 20).setValidateMessageType(false));
        }
        if (asked.hasSubscription()) {
            found.setSubscription(asked.getSubscription().toBuilder().setReceiveBatchSize(32)
                .setLongPollingTimeout(Duration.newBuilder().setSeconds(20)));
        }
        return found.build();
    }
}
