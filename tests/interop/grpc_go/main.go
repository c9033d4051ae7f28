// Uses features of the official gRPC client for Go: ENDPOINTS USER PASSWORD FEATURE...; a user of "-" is none.
//
// Prints one JSON object per feature, with what was seen or the error. tests/interop/test_grpc_clients.py says which
// topics and groups there must be, and what is to be seen.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const notFound = 40401 // the status of a poll without messages

var background = context.Background()

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func config(group string) *rmq.Config {
	session := &credentials.SessionCredentials{}
	if os.Args[2] != "-" {
		session.AccessKey, session.AccessSecret = os.Args[2], os.Args[3]
	}
	return &rmq.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: session}
}

func producer(topic string, options ...rmq.ProducerOption) rmq.Producer {
	made, err := rmq.NewProducer(config(""), append(options, rmq.WithTopics(topic))...)
	must(err)
	must(made.Start())
	return made
}

func simple(topic, group string, filter *rmq.FilterExpression) rmq.SimpleConsumer {
	made, err := rmq.NewSimpleConsumer(config(group), rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}))
	must(err)
	must(made.Start())
	return made
}

func message(topic, body string) *rmq.Message { return &rmq.Message{Topic: topic, Body: []byte(body)} }

func send(sender rmq.Producer, one *rmq.Message) string {
	receipts, err := sender.Send(background, one)
	must(err)
	return receipts[0].MessageID
}

func receive(consumer rmq.SimpleConsumer, count int32) []*rmq.MessageView {
	batch, err := consumer.Receive(background, count, 30*time.Second)
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == notFound {
		return nil
	}
	must(err)
	return batch
}

// take acknowledges messages until there are so many, or the time is over.
func take(consumer rmq.SimpleConsumer, count int, seconds time.Duration) []*rmq.MessageView {
	found := []*rmq.MessageView{}
	for end := time.Now().Add(seconds * time.Second); len(found) < count && time.Now().Before(end); {
		for _, one := range receive(consumer, 16) {
			must(consumer.Ack(background, one))
			found = append(found, one)
		}
	}
	return found
}

func bodies(messages []*rmq.MessageView) []string {
	found := []string{}
	for _, one := range messages {
		found = append(found, string(one.GetBody()))
	}
	return found
}

func sorted(texts []string) []string {
	sort.Strings(texts)
	return texts
}

func roundTrip(topic, group string, count int, more func(*rmq.Message)) map[string]any {
	sender, sent, got := producer(topic), []any{}, []any{}
	for i := 0; i < count; i++ {
		made := message(topic, fmt.Sprint("m", i))
		made.SetTag("t")
		made.SetKeys(fmt.Sprint("k", i))
		made.AddProperty("p", "ü")
		more(made)
		sent = append(sent, []any{fmt.Sprint("m", i), send(sender, made)})
	}
	for _, one := range take(simple(topic, group, rmq.SUB_ALL), count, 30) {
		got = append(got, []any{string(one.GetBody()), one.GetMessageId(), *one.GetTag(), one.GetKeys(), one.GetProperties()["p"]})
	}
	return map[string]any{"sent": sent, "got": got}
}

func checker(asked func(string)) rmq.ProducerOption {
	return rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: func(one *rmq.MessageView) rmq.TransactionResolution {
		asked(string(one.GetBody()))
		return rmq.COMMIT
	}})
}

var features = map[string]func() any{
	"normal": func() any { return roundTrip("Normal", "GNormal", 10, func(*rmq.Message) {}) },
	"fifo": func() any {
		return roundTrip("Fifo", "GFifo", 10, func(one *rmq.Message) { one.SetMessageGroup("g") })
	},
	"delay": func() any {
		due := time.Now().Add(3 * time.Second)
		seen := roundTrip("Delay", "GDelay", 1, func(one *rmq.Message) { one.SetDelayTimestamp(due) })
		seen["late_s"] = time.Since(due).Seconds()
		return seen
	},
	"transactions": func() any {
		sender := producer("Transactions", checker(func(string) {}))
		dropped, kept := sender.BeginTransaction(), sender.BeginTransaction()
		_, err := sender.SendWithTransaction(background, message("Transactions", "dropped"), dropped)
		must(err)
		_, err = sender.SendWithTransaction(background, message("Transactions", "kept"), kept)
		must(err)
		must(dropped.RollBack())
		must(kept.Commit())
		return bodies(take(simple("Transactions", "GTransactions", rmq.SUB_ALL), 2, 7))
	},
	"checks": func() any {
		var lock sync.Mutex
		asked := map[string]bool{}
		sender := producer("Checks", checker(func(body string) {
			lock.Lock()
			defer lock.Unlock()
			asked[body] = true
		}))
		_, err := sender.SendWithTransaction(background, message("Checks", "orphan"), sender.BeginTransaction())
		must(err)
		got := bodies(take(simple("Checks", "GChecks", rmq.SUB_ALL), 1, 30))
		lock.Lock()
		defer lock.Unlock()
		names := []string{}
		for name := range asked {
			names = append(names, name)
		}
		return map[string]any{"got": got, "asked": names}
	},
	"redelivery": func() any {
		send(producer("Redelivery"), message("Redelivery", "again"))
		consumer, attempts := simple("Redelivery", "GRedelivery", rmq.SUB_ALL), []int32{}
		for i := 0; i < 6 && len(attempts) < 2; i++ {
			for _, one := range receive(consumer, 1) {
				attempts = append(attempts, one.GetDeliveryAttempt())
				if len(attempts) == 1 {
					must(consumer.ChangeInvisibleDuration(one, 2*time.Second))
				} else {
					must(consumer.Ack(background, one))
				}
			}
		}
		return attempts
	},
	"push": func() any {
		var lock sync.Mutex
		found := map[string][]int32{}
		count := 0
		consumer, err := rmq.NewPushConsumer(config("GPush"), rmq.WithPushAwaitDuration(5*time.Second),
			rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{"Push": rmq.SUB_ALL}),
			rmq.WithPushConsumptionThreadCount(4), rmq.WithPushMaxCacheMessageCount(1024),
			rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(one *rmq.MessageView) rmq.ConsumerResult {
				lock.Lock()
				defer lock.Unlock()
				count++
				body := string(one.GetBody())
				found[body] = append(found[body], one.GetDeliveryAttempt())
				if body == "m3" && len(found[body]) == 1 {
					return rmq.FAILURE
				}
				return rmq.SUCCESS
			}}))
		must(err)
		must(consumer.Start())
		sender := producer("Push")
		for i := 0; i < 10; i++ {
			send(sender, message("Push", fmt.Sprint("m", i)))
		}
		for i := 0; i < 600; i++ {
			lock.Lock()
			done := count >= 11
			lock.Unlock()
			if done {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second) // for what must not come
		lock.Lock()
		defer lock.Unlock()
		seen := []any{}
		for i := 0; i < 10; i++ {
			for _, attempt := range found[fmt.Sprint("m", i)] {
				seen = append(seen, []any{fmt.Sprint("m", i), attempt})
			}
		}
		return seen
	},
	"filters": func() any {
		sender := producer("Filters")
		for i, tag := range []string{"a", "b", "c"} {
			made := message("Filters", tag)
			made.SetTag(tag)
			made.AddProperty("n", fmt.Sprint(i))
			send(sender, made)
		}
		tags := take(simple("Filters", "GTags", rmq.NewFilterExpression("a || c")), 3, 7)
		sql := take(simple("Filters", "GSql", rmq.NewFilterExpressionWithType("n > 0", rmq.SQL92)), 3, 7)
		return map[string]any{"tags": sorted(bodies(tags)), "sql": sorted(bodies(sql))}
	},
}

func run(name string, output *json.Encoder, lock *sync.Mutex) {
	seen := map[string]any{"feature": name}
	defer func() {
		if problem := recover(); problem != nil {
			seen["error"] = fmt.Sprint(problem)
		}
		lock.Lock()
		defer lock.Unlock()
		must(output.Encode(seen))
	}()
	seen["seen"] = features[name]()
}

func main() {
	os.Setenv(rmq.CLIENT_LOG_ROOT, os.TempDir()+"/rocketmq-go-logs")
	rmq.ResetLogger()
	rmq.EnableSsl = false
	var all sync.WaitGroup
	var lock sync.Mutex
	output := json.NewEncoder(os.Stdout)
	for _, name := range os.Args[4:] {
		all.Add(1)
		go func(name string) {
			defer all.Done()
			run(name, output, &lock)
		}(name)
	}
	all.Wait()
	os.Exit(0)
}
