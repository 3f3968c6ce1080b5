/** `workers`: what may be written, and what each of them gets of what the file says. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import type { Config } from '../../src/config/config.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { memoryShares, workerCountOf, workerShare } from '../../src/config/worker-shares.js';

const MIB = 1_048_576;

function load(yaml: string): LoadResult {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-'));
  const file = join(folder, 'gateway.yaml');
  writeFileSync(file, yaml);
  try {
    return loadConfig(file, {});
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function config(yaml: string): Config {
  const result = load(yaml);
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors));
  return result.config;
}

const UPSTREAM = (more = '') => `upstreams: { api: { url: "http://127.0.0.1:1"${more} } }\n`;
const ROUTE = (more = '') => `routes:
  - { name: a, match: { path: /a }, policy: replay${more} }
`;

t.test('one process unless it is written; a number or auto', async (t) => {
  const plain = `${UPSTREAM()}routes: []\n`;
  t.equal(config(plain).workers, 1);
  t.equal(config(`workers: 4\n${plain}`).workers, 4);
  t.equal(config(`workers: auto\n${plain}`).workers, 'auto');
  for (const wrong of ['0', '257', '1.5', 'all', 'true']) {
    const result = load(`${plain}workers: ${wrong}\n`);
    if (result.kind !== 'invalid') throw new Error(wrong);
    t.match(result.errors, [{ path: 'workers', line: 3, expected: 'a number of processes from 1 to 256, or auto' }]);
  }
});

t.test('a limit that has not one for each worker is an error; auto means fewer of them', async (t) => {
  const file = (workers: string) =>
    `workers: ${workers}\nlimits: { maxConnections: 3, maxRequests: 3 }\n${UPSTREAM(', connections: { max: 2 }')}${ROUTE(', maxRequests: 3')}`;
  const result = load(file('4'));
  if (result.kind !== 'invalid') throw new Error('expected errors');
  t.same(
    result.errors.map(({ line, path, got }) => `${line} ${path} ${got}`),
    [
      '2 limits.maxConnections 3',
      '2 limits.maxRequests 3',
      '3 upstreams.api.connections.max 2',
      '5 routes[0].maxRequests 3',
    ],
  );
  t.equal(workerCountOf(config(file('2')), 16), 2);
  t.equal(workerCountOf(config(file('auto')), 16), 2);
  t.equal(workerCountOf(config(file('auto')), 1), 1);
  t.equal(workerCountOf(config(`workers: auto\n${UPSTREAM()}routes: []\n`), 16), 16);
});

t.test('the shares add up to what is written, and nobody has the admin listener', async (t) => {
  const whole = config(
    `limits: { maxConnections: 11, maxRequests: 9 }\n${UPSTREAM(', connections: { max: 8, queue: 2 }')}${ROUTE(', maxRequests: 4')}`,
  );
  const shares = [0, 1, 2].map((index) => workerShare(whole, index, 3));
  t.same(
    shares.map(({ limits, rules }) => [limits.maxRequests, rules[0]?.maxRequests]),
    [
      [3, 2],
      [3, 1],
      [3, 1],
    ],
  );
  const ofUpstream = shares.map(({ upstreams }) => upstreams.get('api')?.connections);
  t.same(
    shares.map(({ limits }) => limits.maxConnections),
    [4, 4, 3],
  );
  t.same(
    ofUpstream.map((connections) => connections?.max),
    [3, 3, 2],
  );
  t.same(
    ofUpstream.map((connections) => connections?.queue),
    [1, 1, 0],
  );
  t.ok(shares.every(({ admin, workers }) => admin.kind === 'off' && workers === 1));
  const free = workerShare(config(`${UPSTREAM()}routes: []\n`), 0, 3);
  t.equal(free.limits.maxConnections, Number.POSITIVE_INFINITY);
  t.equal(free.upstreams.get('api')?.connections, null);
});

t.test('memory: half of it for what is kept in the parent, half for what passes through the workers', async (t) => {
  const memory = config(`store: { maxMemory: 64MiB }\n${UPSTREAM()}routes: []\n`);
  t.same(memoryShares(memory, 1), { storeBytes: 64 * MIB, workerBytes: 64 * MIB });
  t.same(memoryShares(memory, 4), { storeBytes: 32 * MIB, workerBytes: 8 * MIB });
  t.equal(workerShare(memory, 2, 4).store.maxMemoryBytes, 8 * MIB);
  const redis = config(`store: { kind: redis, url: "redis://r", maxMemory: 64MiB }\n${UPSTREAM()}routes: []\n`);
  t.same(memoryShares(redis, 4), { storeBytes: 0, workerBytes: 16 * MIB });
});

t.test('a rule whose responses would not fit into a share is doubted', async (t) => {
  const warnings = (head: string, more = '') => {
    const result = load(`${head}\n${UPSTREAM()}${ROUTE(more)}`);
    if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors));
    return result.warnings.map(({ path, message }) => `${path}: ${message}`);
  };
  t.same(warnings('store: { maxMemory: 64MiB }\nworkers: 4'), []);
  t.match(warnings('store: { maxMemory: 64MiB }\nworkers: 5'), [
    /^store.maxMemory: what a worker may use of it \(6710886 bytes\)/,
  ]);
  t.match(warnings('store: { maxMemory: 64MiB }\nworkers: 2', ', maxShared: 20MiB'), [
    /^routes\[0\].maxShared: larger than what a worker may use of store.maxMemory \(16777216 bytes\)/,
  ]);
});

t.test('a duplicate that is late may reach another worker, as it may another gateway', async (t) => {
  const warnings = (head: string) => {
    const route = 'routes:\n  - { name: a, match: { path: /a }, policy: coalesce, key: [ { body: /id } ], keep: 0 }\n';
    const result = load(`${head}${UPSTREAM()}${route}`);
    if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors));
    return result.warnings.map(({ path }) => path);
  };
  t.same(warnings(''), []);
  t.same(warnings('workers: 2\n'), ['routes[0].keep']);
});
