'use strict';
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const test = require('node:test');
const assert = require('node:assert');
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

let broker, addresses; // broker for gRPC clients, namesrv for all others, admin for test endpoints

test.before(async () => {
  broker = spawn('mqtool', [ 'serve', '--temporary', '--test', '--port', '0', '--namesrv-port', '0', '--create-topic', 'Orders' ]);
  addresses = JSON.parse((await once(broker.stdout, 'data'))[0]);
});

test.beforeEach(() => fetch(`http://${addresses.admin}/reset`, { method: 'POST' }));

test.after(() => {
  broker.kill();
  setTimeout(() => process.exit(), 500); // timers of the client would keep the process alive
});

test('an order arrives', async () => {
  const logger = { info() {}, warn() {}, error() {}, debug() {} };
  const base = { endpoints: addresses.broker, namespace: '', requestTimeout: 15000, logger };
  const producer = new Producer({ ...base, topics: [ 'Orders' ] });
  await producer.startup();
  await producer.send({ topic: 'Orders', body: Buffer.from('paid') });
  const subscriptions = new Map([[ 'Orders', '*' ]]);
  const consumer = new SimpleConsumer({ ...base, consumerGroup: 'Shipping', subscriptions, awaitDuration: 10000 });
  await consumer.startup();
  const [ message ] = await consumer.receive(1, 30000);
  await consumer.ack(message);
  assert.strictEqual(message.body.toString(), 'paid');
});
