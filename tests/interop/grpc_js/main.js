'use strict';
// Sends and receives by the official gRPC client for Node.js: ENDPOINTS. One JSON object per message.
// Topics must be there: Normal with two queues, Fifo with two, Delay; the group Ordered consumes in order.

const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const endpoints = process.argv[2];
const logger = { info() {}, warn() {}, error() {}, debug() {} };
const base = { endpoints, namespace: '', requestTimeout: 15000, logger };
const say = fields => console.log(JSON.stringify(fields));

async function send(topic, count, more) {
  const producer = new Producer({ ...base, topics: [ topic ] });
  await producer.startup();
  for (let i = 0; i < count; i++) {
    const receipt = await producer.send({ topic, body: Buffer.from(`${topic} ${i}`), tag: 't', keys: [ `k${i}` ],
      properties: new Map([[ 'p', 'ü' ]]), ...more() });
    say({ what: 'sent', topic, body: `${topic} ${i}`, id: receipt.messageId });
  }
}

async function receive(topic, group, count) {
  const consumer = new SimpleConsumer({ ...base, consumerGroup: group, subscriptions: new Map([[ topic, '*' ]]), awaitDuration: 10000 });
  await consumer.startup();
  for (let got = 0; got < count;) {
    for (const one of await consumer.receive(16, 30000)) {
      await consumer.ack(one);
      say({ what: 'got', topic, body: one.body.toString(), id: one.messageId, tag: one.tag, keys: one.keys, p: one.properties.get('p') });
      got += 1;
    }
  }
}

async function main() {
  await send('Normal', 10, () => ({}));
  await send('Fifo', 10, () => ({ messageGroup: 'g' }));
  await send('Delay', 1, () => ({ deliveryTimestamp: new Date(Date.now() + 2000) }));
  await receive('Normal', 'Any', 10);
  await receive('Fifo', 'Ordered', 10);
  await receive('Delay', 'Any2', 1);
  process.exit(0);
}

main().catch(error => { console.error(error); process.exit(1); });
