'use strict';
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const { mkdtempSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { createInterface } = require('node:readline');
const test = require('node:test');
const assert = require('node:assert');
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

let broker, endpoints, store;

test.before(async () => {
  store = mkdtempSync(join(tmpdir(), 'broker-'));
  broker = spawn('mqtool', [ 'serve', store, '--port', '0', '--namesrv-port', '0', '--create-topic', 'Orders' ]);
  for await (const line of createInterface({ input: broker.stdout })) {
    endpoints = JSON.parse(line).broker;
    break;
  }
});

test.after(async () => {
  setTimeout(() => process.exit(), 10000); // timers of the client would keep the process alive
  broker.kill();
  await once(broker, 'exit'); // it writes into the store until then
  rmSync(store, { recursive: true, force: true });
  setTimeout(() => process.exit(), 500);
});

test('an order arrives', async () => {
  const logger = { info() {}, warn() {}, error() {}, debug() {} };
  const base = { endpoints, namespace: '', requestTimeout: 15000, logger };
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
