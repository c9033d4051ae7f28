// Sends and consumes by the Go client: NAMESRV. One JSON object per message on standard output, when it was sent and when it came.
//
// Topics must be there: Tags and Ordered with four queues, Batch, Delay and Pull with one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type event struct {
	What   string `json:"what"`
	Topic  string `json:"topic"`
	Body   string `json:"body"`
	Tag    string `json:"tag"`
	Keys   string `json:"keys"`
	Queue  int    `json:"queue"`
	Offset int64  `json:"offset"`
	At     int64  `json:"at"`
}

var (
	background = context.Background()
	writing    sync.Mutex
	servers    primitive.NamesrvAddr
	expected   = map[string]int64{"Tags": 10, "Ordered": 30, "Batch": 10, "Delay": 1}
	got        = map[string]*int64{}
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(one event) {
	writing.Lock()
	defer writing.Unlock()
	one.At = time.Now().UnixMilli()
	must(json.NewEncoder(os.Stdout).Encode(one))
}

func came(topic string, message *primitive.MessageExt) {
	say(event{What: "got", Topic: topic, Body: string(message.Body), Tag: message.GetTags(), Keys: strings.TrimSpace(message.GetKeys()),
		Queue: message.Queue.QueueId, Offset: message.QueueOffset})
}

func start(group string, selector producer.QueueSelector) rocketmq.Producer {
	made, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName(group), producer.WithInstanceName(group),
		producer.WithSendMsgTimeout(20*time.Second), producer.WithQueueSelector(selector))
	must(err)
	must(made.Start())
	return made
}

func send(p rocketmq.Producer, messages ...*primitive.Message) {
	result, err := p.SendSync(background, messages...)
	must(err)
	for i, one := range messages {
		say(event{What: "sent", Topic: one.Topic, Body: string(one.Body), Tag: one.GetTags(), Keys: strings.TrimSpace(one.GetKeys()),
			Queue: result.MessageQueue.QueueId, Offset: result.QueueOffset + int64(i)})
	}
}

func message(topic string, number int, tag string) *primitive.Message {
	made := primitive.NewMessage(topic, []byte(fmt.Sprintf("%s %d", topic, number)))
	return made.WithTag(tag).WithKeys([]string{"k" + strconv.Itoa(number)})
}

func subscribe(topic, tags string, orderly bool) {
	got[topic] = new(int64)
	made, err := rocketmq.NewPushConsumer(consumer.WithNameServer(servers), consumer.WithGroupName("Go"+topic),
		consumer.WithInstance("Go"+topic), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(orderly))
	must(err)
	must(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, one := range messages {
				came(topic, one)
				atomic.AddInt64(got[topic], 1)
			}
			return consumer.ConsumeSuccess, nil
		}))
	must(made.Start())
}

func pull(queue *primitive.MessageQueue) {
	made, err := rocketmq.NewPullConsumer(consumer.WithNameServer(servers), consumer.WithGroupName("GoPull"), consumer.WithInstance("GoPull"))
	must(err)
	must(made.Subscribe("Pull", consumer.MessageSelector{}))
	must(made.Start())
	for offset := int64(0); offset < 40; {
		found, err := made.PullFrom(background, queue, offset, 32)
		must(err)
		for _, one := range found.GetMessageExts() {
			came("Pull", one)
		}
		offset = found.NextBeginOffset
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	servers = primitive.NamesrvAddr{os.Args[1]}
	inTurn, byKey := start("GoP", producer.NewRoundRobinQueueSelector()), start("GoPKey", producer.NewHashQueueSelector())
	for i := 0; i < 20; i++ {
		send(inTurn, message("Tags", i, []string{"even", "odd"}[i%2]))
	}
	for i := 0; i < 30; i++ {
		send(byKey, message("Ordered", i, "t").WithShardingKey("key"+strconv.Itoa(i%3)))
	}
	var batch []*primitive.Message
	for i := 0; i < 10; i++ {
		batch = append(batch, message("Batch", i, "t"))
	}
	send(inTurn, batch...)
	var queue *primitive.MessageQueue
	for i := 0; i < 40; i++ {
		result, err := inTurn.SendSync(background, message("Pull", i, "t"))
		must(err)
		queue = result.MessageQueue
	}
	send(inTurn, message("Delay", 0, "t").WithDelayTimeLevel(2))
	subscribe("Tags", "even", false)
	subscribe("Ordered", "*", true)
	subscribe("Batch", "*", false)
	subscribe("Delay", "*", false)
	pull(queue)
	for topic, count := range expected {
		for atomic.LoadInt64(got[topic]) < count {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
