'use strict';
// Sends and consumes by ali-ons, a client for Node.js: NAMESRV. One JSON object per message, when it was sent and when it came.
// Topics must be there: Tags with four queues, Ordered and Delay with one.

const { Consumer, Producer, Message } = require('ali-ons');

const options = {
  nameSrv: process.argv[2],
  logger: { info() {}, warn() {}, debug() {}, error() {} },
  consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  pollNameServerInteval: 2000,
  sendMsgTimeout: 20000,
  responseTimeout: 20000,
  httpclient: { request() { throw new Error('no HTTP here'); } },
};
const expected = { Tags: 10, Ordered: 30, Delay: 1 };
const got = { Tags: 0, Ordered: 0, Delay: 0 };

const say = fields => console.log(JSON.stringify({ ...fields, at: Date.now() }));

async function send(producer, topic, number, tag, delay) {
  const message = new Message(topic, tag, `${topic} ${number}`);
  message.keys = [ `k${number}` ];
  if (delay) message.delayTimeLevel = delay;
  const result = await producer.send(message);
  say({ what: 'sent', topic, body: message.body.toString(), tag, keys: `k${number}`, queue: Number(result.messageQueue.queueId),
    offset: Number(result.queueOffset) });
}

async function main() {
  const producer = new Producer({ ...options, producerGroup: 'JsP' });
  await producer.ready();
  for (let i = 0; i < 20; i++) await send(producer, 'Tags', i, [ 'even', 'odd' ][i % 2]);
  for (let i = 0; i < 30; i++) await send(producer, 'Ordered', i, 't');
  await send(producer, 'Delay', 0, 't', 2);
  for (const [ topic, tags ] of [ [ 'Tags', 'even' ], [ 'Ordered', '*' ], [ 'Delay', '*' ] ]) {
    const consumer = new Consumer({ ...options, consumerGroup: 'Js' + topic });
    consumer.on('error', () => {});
    consumer.subscribe(topic, tags, async message => {
      say({ what: 'got', topic, body: message.body.toString(), tag: message.tags, keys: message.keys, queue: message.queueId,
        offset: Number(message.queueOffset) });
      got[topic] += 1;
      if (Object.keys(expected).every(one => got[one] >= expected[one])) setTimeout(() => process.exit(0), 100);
    });
    await consumer.ready();
  }
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
