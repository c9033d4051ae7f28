'use strict';
// Uses features of the official gRPC client for Node.js: ENDPOINTS USER PASSWORD FEATURE...; a user of "-" is none.
// Prints one JSON object per feature, with what was seen or the error. tests/interop/test_grpc_clients.py says which
// topics and groups there must be, and what is to be seen.

const { setTimeout: sleep } = require('node:timers/promises');
const { Producer, SimpleConsumer, PushConsumer, LitePushConsumerImpl, ConsumeResult, FilterExpression } =
  require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [ endpoints, accessKey, accessSecret, ...features ] = process.argv.slice(2);
const logger = { info() {}, warn() {}, error() {}, debug() {} };
const base = { endpoints, namespace: '', requestTimeout: 15000, logger };
if (accessKey !== '-') base.sessionCredentials = { accessKey, accessSecret };

const message = (topic, body, more = {}) => ({ topic, body: Buffer.from(body), ...more });
const bodies = messages => messages.map(one => one.body.toString());

async function producer(topic, more = {}) {
  const made = new Producer({ ...base, topics: [ topic ], ...more });
  await made.startup();
  return made;
}

async function simple(topic, consumerGroup, filter = '*') {
  const made = new SimpleConsumer({ ...base, consumerGroup, subscriptions: new Map([[ topic, filter ]]), awaitDuration: 5000 });
  await made.startup();
  return made;
}

// Acknowledges messages until there are so many, or the time is over.
async function take(consumer, count, seconds = 30) {
  const found = [], end = Date.now() + seconds * 1000;
  while (found.length < count && Date.now() < end) {
    for (const one of await consumer.receive(16, 30000)) {
      await consumer.ack(one);
      found.push(one);
    }
  }
  return found;
}

async function roundTrip(topic, group, count, more = {}) {
  const sender = await producer(topic), sent = [];
  for (let i = 0; i < count; i++) {
    const made = message(topic, `m${i}`, { tag: 't', keys: [ `k${i}` ], properties: new Map([[ 'p', 'ü' ]]), ...more });
    sent.push([ `m${i}`, (await sender.send(made)).messageId ]);
  }
  const found = await take(await simple(topic, group), count);
  const got = found.map(one => [ one.body.toString(), one.messageId, one.tag, one.keys, one.properties.get('p') ]);
  return { sent, got };
}

const checker = asked => ({ checker: { check: async one => {
  asked.push(one.body.toString());
  return TransactionResolution.COMMIT;
} } });

const FEATURES = {
  normal: () => roundTrip('Normal', 'GNormal', 10),
  fifo: () => roundTrip('Fifo', 'GFifo', 10, { messageGroup: 'g' }),
  async delay() {
    const due = Date.now() + 3000;
    const seen = await roundTrip('Delay', 'GDelay', 1, { deliveryTimestamp: new Date(due) });
    return { ...seen, late_s: (Date.now() - due) / 1000 };
  },
  async transactions() {
    const sender = await producer('Transactions', checker([]));
    const dropped = sender.beginTransaction();
    await sender.send(message('Transactions', 'dropped'), dropped);
    const kept = sender.beginTransaction();
    await sender.send(message('Transactions', 'kept'), kept);
    await dropped.rollback();
    await kept.commit();
    return bodies(await take(await simple('Transactions', 'GTransactions'), 2, 7));
  },
  async checks() {
    const asked = [];
    const sender = await producer('Checks', checker(asked));
    await sender.send(message('Checks', 'orphan'), sender.beginTransaction());
    const got = bodies(await take(await simple('Checks', 'GChecks'), 1));
    return { got, asked: [ ...new Set(asked) ] };
  },
  async lite() {
    const found = [];
    const consume = async one => {
      found.push([ one.getLiteTopic(), one.body.toString() ]);
      return ConsumeResult.SUCCESS;
    };
    const consumer = new LitePushConsumerImpl({ ...base, consumerGroup: 'GLite', bindTopic: 'Lite', messageListener: { consume } });
    await consumer.startup();
    await consumer.subscribeLite('first');
    await consumer.subscribeLite('second');
    await sleep(2000); // a subscription does not begin at the end that its call finds
    const sender = await producer('Lite');
    for (const liteTopic of [ 'first', 'second', 'third' ]) await sender.send(message('Lite', `to ${liteTopic}`, { liteTopic }));
    for (const end = Date.now() + 20000; found.length < 2 && Date.now() < end;) await sleep(100);
    await sleep(1000); // for what must not come
    return found.sort();
  },
  async priority() {
    await (await producer('Priority')).send(message('Priority', 'urgent', { priority: 3 }));
    return (await take(await simple('Priority', 'GPriority'), 1)).map(one => one.priority);
  },
  async recall() {
    const sender = await producer('Recall'), deliveryTimestamp = new Date(Date.now() + 5000);
    const recalled = await sender.send(message('Recall', 'recalled', { deliveryTimestamp }));
    await sender.send(message('Recall', 'kept', { deliveryTimestamp }));
    await sender.recallMessage('Recall', recalled.recallHandle);
    return bodies(await take(await simple('Recall', 'GRecall'), 2, 12));
  },
  async redelivery() {
    await (await producer('Redelivery')).send(message('Redelivery', 'again'));
    const consumer = await simple('Redelivery', 'GRedelivery'), attempts = [];
    for (const end = Date.now() + 30000; attempts.length < 2 && Date.now() < end;) {
      for (const one of await consumer.receive(1, 30000)) {
        attempts.push(one.deliveryAttempt);
        if (attempts.length === 1) await consumer.changeInvisibleDuration(one, 2000);
        else await consumer.ack(one);
      }
    }
    return attempts;
  },
  async push() {
    const found = [];
    let failed = false;
    const consume = async one => {
      found.push([ one.body.toString(), one.deliveryAttempt ]);
      if (one.body.toString() !== 'm3' || failed) return ConsumeResult.SUCCESS;
      failed = true;
      return ConsumeResult.FAILURE;
    };
    const consumer = new PushConsumer({ ...base, consumerGroup: 'GPush', subscriptions: new Map([[ 'Push', '*' ]]),
      messageListener: { consume } });
    await consumer.startup();
    const sender = await producer('Push');
    for (let i = 0; i < 10; i++) await sender.send(message('Push', `m${i}`));
    for (const end = Date.now() + 60000; found.length < 11 && Date.now() < end;) await sleep(100);
    await sleep(1000); // for what must not come
    return found.sort();
  },
  async filters() {
    const sender = await producer('Filters');
    for (const [ i, tag ] of [ 'a', 'b', 'c' ].entries()) {
      await sender.send(message('Filters', tag, { tag, properties: new Map([[ 'n', `${i}` ]]) }));
    }
    const tags = await take(await simple('Filters', 'GTags', 'a || c'), 3, 7);
    const sql = await take(await simple('Filters', 'GSql', new FilterExpression('n > 0', FilterType.SQL)), 3, 7);
    return { tags: bodies(tags).sort(), sql: bodies(sql).sort() };
  },
};

async function run(feature) {
  let seen;
  try {
    seen = { feature, seen: await FEATURES[feature]() };
  } catch (error) {
    seen = { feature, error: `${error && error.stack || error}` };
  }
  process.stdout.write(JSON.stringify(seen) + '\n');
}

Promise.all(features.map(run)).then(() => process.stdout.write('', () => process.exit(0)));
