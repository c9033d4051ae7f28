package orders

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// broker has the addresses of a broker: Broker for gRPC clients, Namesrv for all others, Admin for test endpoints.
type broker struct{ Broker, Namesrv, Admin string }

// startBroker starts a broker for one test.
func startBroker(t *testing.T, topics ...string) (ready broker) {
	arguments := []string{"serve", "--temporary", "--port", "0", "--namesrv-port", "0", "--test"}
	for _, topic := range topics {
		arguments = append(arguments, "--create-topic", topic)
	}
	command := exec.Command("mqtool", arguments...)
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(os.Interrupt)
		command.Wait()
	})
	if err := json.NewDecoder(output).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	return ready
}

func TestAnOrderArrives(t *testing.T) {
	endpoints := startBroker(t, "Orders", "Payments=FIFO").Broker
	config := &rmq.Config{Endpoint: endpoints, Credentials: &credentials.SessionCredentials{}}
	producer, err := rmq.NewProducer(config, rmq.WithTopics("Orders"))
	if err == nil {
		err = producer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer producer.GracefulStop()
	sent, err := producer.Send(context.Background(), &rmq.Message{Topic: "Orders", Body: []byte("paid")})
	if err != nil {
		t.Fatal(err)
	}
	group := &rmq.Config{Endpoint: endpoints, ConsumerGroup: "Shipping", Credentials: &credentials.SessionCredentials{}}
	consumer, err := rmq.NewSimpleConsumer(group, rmq.WithSimpleAwaitDuration(10*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{"Orders": rmq.SUB_ALL}))
	if err == nil {
		err = consumer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.GracefulStop()
	received, err := consumer.Receive(context.Background(), 1, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if received[0].GetMessageId() != sent[0].MessageID {
		t.Errorf("received %s, sent %s", received[0].GetMessageId(), sent[0].MessageID)
	}
	if err := consumer.Ack(context.Background(), received[0]); err != nil {
		t.Error(err)
	}
}
