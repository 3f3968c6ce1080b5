/** How a gateway gets at its Redis: TLS, users, passwords from files; and what it says of the servers it finds. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import { execFile } from 'node:child_process';
import type { EventEmitter } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { validate } from '../../src/cli/validate.js';
import { loadConfig } from '../../src/config/load.js';
import { RedisStore } from '../../src/store/redis.js';
import { auditOf, look } from '../../src/store/redis-audit.js';
import { newClient, type ScriptedRedis } from '../../src/store/redis-client.js';
import { RedisLink } from '../../src/store/redis-link.js';
import { CHECK_ONLY } from '../support/check-only.js';
import { tlsFile } from '../support/dial.js';
import { eventually } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { freePort } from '../support/ports.js';
import { accessTo, type RedisServer, startRedis } from '../support/redis.js';
import { RedisCluster, startWatched } from '../support/redis-fleet.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { claim, follow, lead, newKey, responseWith, settled } from './contract.js';
import { giveBack, placeIn, turnAtOnce, turnOf } from './queue-contract.js';

t.setTimeout(120_000);

const PASSWORD = 'se/cret:p@ss#word';

async function started(t: Test, ...args: Parameters<typeof startRedis>): Promise<RedisServer> {
  const server = await startRedis(...args);
  t.teardown(() => server.stop());
  return server;
}

const isOfPushes = (fields: object): boolean => (fields as { connection?: string }).connection === 'pushes';
const statsOf = async (server: RedisServer): Promise<string> => String(await server.command('INFO', 'commandstats'));

let files = 0;
const directory = t.testdir({ password: `${PASSWORD}\n`, wrong: 'se/cret:wr0ng' });

function fileOf(store: string): string {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, `upstreams: { api: { url: http://127.0.0.1:1 } }\nstore: { kind: redis, ${store} }\n`);
  return file;
}

type Told = { readonly level: string; readonly message: string; readonly fields: { readonly error?: unknown } };
type Opened = { readonly store: RedisStore; readonly told: readonly Told[] };

/** The store of such a configuration, and what it logs. */
async function opened(t: Test, written: string): Promise<Opened> {
  const loaded = loadConfig(fileOf(written), {});
  if (loaded.kind !== 'loaded' || loaded.config.store.kind !== 'redis') throw new Error(JSON.stringify(loaded));
  const { access, commandTimeoutMs } = loaded.config.store;
  const told: Told[] = [];
  const store = new RedisStore({
    access,
    commandTimeoutMs,
    log: (level, message, fields) => told.push({ level, message, fields }),
  });
  t.teardown(() => store.close());
  await store.open();
  return { store, told };
}

async function works(t: Test, { store, told }: Opened): Promise<void> {
  const lease = await lead(store, { key: newKey() });
  t.equal(await store.release(lease, { unlessAwaited: false }), 'held');
  await eventually('the audit', () => told.some(({ message }) => message === 'store audited'));
}

async function fails(t: Test, written: string, why: RegExp): Promise<void> {
  const { store, told } = await opened(t, written);
  await eventually(`${why} is told`, () => told.some(({ fields }) => why.test(String(fields.error))));
  await t.rejects(store.ping(), { name: 'StoreUnavailable' });
}

type Validated = { readonly code: number; readonly stdout: string; readonly stderr: string };

/** `oneflight validate --connect` with such a store. */
async function validated(written: string): Promise<Validated> {
  const said = { stdout: '', stderr: '' };
  const into = (stream: keyof typeof said) => ({
    write: (text: string) => {
      said[stream] += text;
    },
  });
  const config = fileOf(written);
  const code = await validate({
    ...CHECK_ONLY,
    config,
    connect: true,
    env: {},
    stdout: into('stdout'),
    stderr: into('stderr'),
  });
  return { code, ...said };
}

t.test('TLS with an authority of its own: who is not known to it is not talked to', async (t) => {
  const tlsPort = await freePort();
  const one = { cert: tlsFile('one.pem'), key: tlsFile('one.key'), ca: tlsFile('ca.pem') };
  await started(t, {
    settings: [
      '--tls-port',
      String(tlsPort),
      '--tls-cert-file',
      one.cert,
      '--tls-key-file',
      one.key,
      '--tls-ca-cert-file',
      one.ca,
    ],
  });
  const url = `url: "rediss://localhost:${tlsPort}"`;
  const client = `cert: "${tlsFile('client.pem')}", key: "${tlsFile('client.key')}"`;
  await works(t, await opened(t, `${url}, tls: { ca: "${one.ca}", ${client} }`));
  const pem = JSON.stringify(readFileSync(one.ca, 'latin1'));
  const named = `url: "rediss://127.0.0.1:${tlsPort}", tls: { ca: ${pem}, serverName: localhost, ${client} }`;
  await works(t, await opened(t, named));
  await works(t, await opened(t, `${url}, tls: { verify: false, ${client} }`));
  await fails(t, `${url}, tls: { ${client} }`, /certificate/);
  await fails(t, `${url}, tls: { ca: "${one.ca}", serverName: redis.example, ${client} }`, /does not match/);
  await fails(t, `${url}, tls: { ca: "${one.ca}" }`, /certificate|closed|ECONNRESET|EPIPE/);
  await fails(t, `url: "redis://localhost:${tlsPort}"`, /closed|ECONNRESET|EPIPE|ended/i);
});

t.test('a user whose password is in a file, with no more rights than are needed', async (t) => {
  const server = await started(t, { settings: ['--requirepass', 'root'], password: 'root' });
  const rights = ['~oneflight:*', 'resetchannels', '&oneflight:*', '+@all', '-@admin', '-@dangerous', '+ping'];
  await server.command('ACL', 'SETUSER', 'gate', 'on', `>${PASSWORD}`, ...rights);
  const at = `url: "redis://127.0.0.1:${server.port}"`;
  const user = (file: string) => `${at}, username: gate, password: "\${file:${directory}/${file}}"`;
  const store = await opened(t, user('password'));
  await works(t, store);
  const unseen = 'version, eviction, persistence, replicas';
  const audit = store.told.find(({ message }) => message === 'store audited');
  t.match(audit, { fields: { unseen } }, 'INFO and CONFIG are forbidden: it is said, and no failure');
  t.notOk(store.told.some(({ level }) => level !== 'info'));
  await fails(t, user('wrong'), /WRONGPASS/);
  await fails(t, at, /NOAUTH/);

  const escaped = encodeURIComponent(PASSWORD);
  const good = await validated(`url: "redis://gate:${escaped}@127.0.0.1:${server.port}"`);
  t.match(good, { code: 0, stdout: /could not look at: version, eviction, persistence, replicas/, stderr: '' });
  const bad = await validated(`url: "redis://gate:${escaped}0@127.0.0.1:${server.port}"`);
  t.match(bad, { code: 1, stderr: /WRONGPASS/ });

  const config = configOf({ upstream: 'http://127.0.0.1:1', store: `{ kind: redis, ${user('wrong')} }`, routes: '' });
  const gateway = await startGateway(t, { config });
  await eventually('the log', () => /WRONGPASS/.test(gateway.output));
  t.equal((await gateway.post('/caught-up', { turn: 1 }).answer).status, 502, 'the upstream is not there either');
  const shown = [gateway.output, (await gateway.admin('/config')).text, (await gateway.admin('/readyz')).text];
  for (const text of [...shown, JSON.stringify([store.told, good, bad])]) {
    t.notMatch(text, /se.{1,3}cret/, 'no password is written anywhere');
  }
});

t.test('a user without its channels: it is told once, tried again ever later, and polls do for pushes', async (t) => {
  const server = await started(t);
  const rights = ['~oneflight:*', '+@all', '-@admin', '-@dangerous', '+info', '+config|get'];
  await server.command('ACL', 'SETUSER', 'gate', 'on', '>pw', 'resetchannels', ...rights);
  const at = `url: "redis://gate:pw@127.0.0.1:${server.port}"`;
  const { store, told } = await opened(t, at);
  await sleep(700);
  const connects = told.filter(({ message, fields }) => message === 'store connected' && isOfPushes(fields));
  t.equal(connects.length, 1, 'the connection is kept');
  const warned = () => told.filter(({ level, message }) => level === 'warn' && /channels/.test(message));
  t.match(warned(), [{ fields: { connection: 'pushes', channels: 'oneflight:p:*', error: /NOPERM/ } }]);
  t.equal(warned().length, 1);
  const refusals = Number(/cmdstat_subscribe:.*rejected_calls=(\d+)/.exec(await statsOf(server))?.[1]);
  t.ok(refusals >= 2 && refusals <= 6, `refused ${refusals} times`);

  const lease = await lead(store, { key: newKey() });
  const { store: other } = await opened(t, at);
  const wait = settled(other, await follow(other, { key: lease.key }), 5_000, 100);
  t.equal(
    await store.complete(lease, responseWith(Buffer.from('x')), 9_000),
    'held',
    'a wake-up that is refused is no failure',
  );
  t.equal((await wait).kind, 'response');
  const freed = await lead(store, { key: newKey() });
  const again = settled(other, await follow(other, { key: freed.key }), 5_000, 100);
  t.equal(await store.release(freed, { unlessAwaited: false }), 'held');
  t.equal((await again).kind, 'failed');
  const turn = await turnAtOnce(store, { key: newKey() });
  const place = await placeIn(other, { key: turn.lease.key });
  await giveBack(store, turn);
  t.ok(await turnOf(other, place, 5_000, 100));

  const looked = await validated(at);
  t.match(looked, { code: 0, stderr: '' });
  t.match(looked.stdout, /^store: warning: .*channels.*oneflight:p:\*/m);
  await server.command('ACL', 'SETUSER', 'gate', '&oneflight:p:*');
  await eventually('it is heard again', () => told.some(({ message }) => message === 'store pushes are heard'));
  const late = await lead(other, { key: newKey() });
  const pushed = settled(store, await follow(store, { key: late.key }), 5_000, 4_000);
  const began = performance.now();
  await other.complete(late, responseWith(Buffer.from('x')), 0);
  await pushed;
  t.ok(performance.now() - began < 2_000, 'by a push');
  t.equal(warned().length, 1);
  t.notMatch((await validated(at)).stdout, /channels/);
});

t.test('a right that is missed half-way: the claim may have been made, and is given back', async (t) => {
  const server = await started(t);
  await server.command('ACL', 'SETUSER', 'gate', 'on', '>pw', '~*', '&*', '+@all', '-pexpire', '-pexpireat');
  const { store } = await opened(t, `url: "redis://gate:pw@127.0.0.1:${server.port}"`);
  const key = newKey();
  await t.rejects(lead(store, { key }), {
    name: 'StoreUnavailable',
    message: /user executing the script|ACL failure in script/,
  });
  const { store: whole } = await opened(t, `url: "redis://127.0.0.1:${server.port}"`);
  await eventually('the key is free', async () => (await claim(whole, { key, join: false })).kind === 'leader');
});

t.test('the audit says what is guaranteed, and warns of what is not', async (t) => {
  const server = await started(t);
  const at = `url: "redis://127.0.0.1:${server.port}"`;
  const first = await validated(at);
  t.match(first, { code: 0, stderr: '' });
  t.match(
    first.stdout,
    /^store: (Redis|Valkey) \S+, one primary, 0 replicas: one leader a key .*; a restart forgets them all$/m,
  );
  t.match(first.stdout, /^store: warning: a restart of the store forgets every claim; set appendonly to yes/m);
  t.notMatch(first.stdout, /evict|min-replicas|full/);

  await server.command('CONFIG', 'SET', 'maxmemory', '1');
  t.match((await validated(at)).stdout, /^store: warning: the store is full: .*maxmemory$/m);

  await server.command('CONFIG', 'SET', 'appendonly', 'yes');
  await server.command('CONFIG', 'SET', 'maxmemory', '100mb');
  await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
  const replica = await started(t, { settings: ['--replicaof', '127.0.0.1', String(server.port)] });
  await eventually('the replica is there', async () =>
    String(await server.command('INFO', 'replication')).includes('connected_slaves:1'),
  );
  const second = await validated(at);
  t.equal(second.code, 0);
  t.match(
    second.stdout,
    /one primary, 1 replica: one leader a key until memory is full; a restart forgets those of the last second$/m,
  );
  t.match(second.stdout, /^store: warning: .*evicts keys.* \(policy: allkeys-lru\)$/m);
  t.match(second.stdout, /^store: warning: .*set min-replicas-to-write$/m);
  await server.command('CONFIG', 'SET', 'maxmemory', '0');
  await server.command('CONFIG', 'SET', 'min-replicas-to-write', '1');
  const { told } = await opened(t, at);
  await eventually('the audit', () => told.some(({ message }) => message === 'store audited'));
  t.notOk(
    told.some(({ level }) => level !== 'info'),
    'nothing to warn of',
  );

  t.match(await validated(`url: "redis://127.0.0.1:${replica.port}"`), { code: 1, stderr: /this is a replica/ });
  const away = await freePort();
  t.match(await validated(`url: "redis://127.0.0.1:${away}"`), { code: 1, stderr: /ECONNREFUSED/ });
  t.match(await validated(`cluster: ["127.0.0.1:${server.port}"]`), { code: 1, stderr: /cluster support disabled/ });
  const sentinel = await started(t, { sentinel: `sentinel monitor main 127.0.0.1 ${server.port} 1\n` });
  t.match(await validated(`url: "redis://127.0.0.1:${sentinel.port}"`), { code: 1, stderr: /store\.sentinel/ });
  t.match(await validated(`sentinel: { name: main, hosts: ["127.0.0.1:${sentinel.port}"] }`), {
    code: 0,
    stdout: /one primary behind sentinels/,
  });
});

t.test('sentinels have a password of their own', async (t) => {
  const server = await started(t, { settings: ['--requirepass', 'of the server'], password: 'of the server' });
  const sentinel = await started(t, {
    sentinel: `sentinel monitor main 127.0.0.1 ${server.port} 1
sentinel auth-pass main "of the server"
requirepass "of the sentinel"
`,
    password: 'of the sentinel',
  });
  const named = (password: string) =>
    `sentinel: { name: main, hosts: ["127.0.0.1:${sentinel.port}"], password: ${password} }, password: of the server`;
  await works(t, await opened(t, named('of the sentinel')));
  await fails(t, named('another one'), /WRONGPASS/);
  await fails(t, named('of the sentinel').replace('name: main', 'name: other'), /sentinel/i);
});

t.test('a server that is too old is told apart from one that only looks so', async (t) => {
  const server = (info: string) =>
    ({
      info: async () => info,
      publish: async () => 0,
      config: async (_get: string, name: string) => [name, name === 'save' ? '3600 1' : '0'],
    }) as unknown as ScriptedRedis;
  const replication = 'role:master\r\nconnected_slaves:0\r\nredis_mode:standalone\r\nmaxmemory:0\r\n';
  const errorOf = async (versions: string) =>
    auditOf([await look(server(`${versions}\r\n${replication}`), 'nobody')], 'single', 0).error;
  t.equal(await errorOf('redis_version:6.0.16'), 'Redis 6.0.16 is too old: 6.2 or newer is needed');
  t.equal(await errorOf('redis_version:5.9.1'), 'Redis 5.9.1 is too old: 6.2 or newer is needed');
  for (const version of ['redis_version:6.2.0', 'redis_version:7.0.15', 'redis_version:10.0.0']) {
    t.equal(await errorOf(version), null, version);
  }
  t.equal(await errorOf('redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1'), null);
  t.match(await errorOf('redis_version:7.0.0\r\nredis_mode:cluster'), /name it in store\.cluster/);
});

t.test('a second error of a connection does not end the process', async (t) => {
  const { port } = await started(t);
  const at = { host: '127.0.0.1', port };
  const client = newClient({ access: accessTo(`redis://127.0.0.1:${port}`), next: () => at, commandTimeoutMs: 250 });
  t.teardown(() => client.disconnect());
  const told: string[] = [];
  client.on('error', (error: Error) => told.push(error.message));
  await client.connect();
  const { stream } = client as unknown as { stream: EventEmitter };
  for (const message of ['a reset', 'an alert behind it']) stream.emit('error', new Error(message));
  t.same(told, ['a reset']);
});

t.test('a fail-over that is told while the sentinels are asked for a place does not end the connection', async (t) => {
  const server = await started(t);
  const sentinel = await started(t, { sentinel: `sentinel monitor main 127.0.0.1 ${server.port} 1\n` });
  const way = await TcpProxy.start(t, sentinel.port);
  way.blackHole = true;
  const hosts = [{ host: '127.0.0.1', port: way.port }];
  const servers = { kind: 'sentinel', name: 'main', hosts, username: null, password: null, tls: null } as const;
  const access = { servers, username: null, password: null, tls: null, db: 0 } as const;
  const nothing = () => {};
  const options = { access, next: () => null, commandTimeoutMs: 250, log: nothing };
  const link = new RedisLink('commands', options, nothing, nothing);
  t.teardown(() => link.close());
  const opened = link.open();
  // As the client does itself on word of a sentinel.
  (link.client as unknown as { connector: { disconnect(): void } }).connector.disconnect();
  await opened;
  way.blackHole = false;
  way.cut();
  await eventually('the connection is there', () => link.ready);
});

t.test(
  'sentinels and servers that talk TLS with an authority of their own: a fail-over, and nobody without it',
  async (t) => {
    const watched = await startWatched(t, { tls: true });
    const ca = `{ ca: "${tlsFile('ca.pem')}" }`;
    const named = (ofServers: string, ofSentinels: string) =>
      `sentinel: ${watched.yaml.replace(/ }$/, `, tls: ${ofSentinels} }`)}, tls: ${ofServers}`;
    await fails(t, named(ca, '{}'), /certificate/);
    await fails(t, named('{}', ca), /certificate/);
    const [leader, follower] = [await opened(t, named(ca, ca)), await opened(t, named(ca, ca))];
    await works(t, leader);
    const lease = await lead(leader.store, { key: newKey() });
    const wait = settled(follower.store, await follow(follower.store, { key: lease.key }), 25_000, 500);
    await watched.replicated();
    await watched.primary.kill();
    watched.link.blackHole = true;
    watched.link.cut();
    const held = () =>
      leader.store.renew(lease).then(
        (answer) => answer === 'held',
        () => false,
      );
    await eventually('the new primary has the flight', held, 20_000);
    t.equal(await leader.store.complete(lease, responseWith(Buffer.from('x')), 9_000), 'held');
    t.equal((await wait).kind, 'response');
  },
);

t.test('a cluster that talks TLS, and a user with no more rights than are needed', async (t) => {
  const cluster = await RedisCluster.start(t, { tls: true });
  const rights = [
    '~oneflight:*',
    'resetchannels',
    '&oneflight:*',
    '+@all',
    '-@admin',
    '-@dangerous',
    '+info',
    '+config|get',
  ];
  for (const node of cluster.all) {
    await node.command('ACL', 'SETUSER', 'gate', 'on', '>pw', ...rights, '+cluster|slots', '+cluster|nodes');
  }
  const named = (tls: string, password = 'pw') =>
    `cluster: ${cluster.yaml}, tls: ${tls}, username: gate, password: ${password}`;
  const ca = `{ ca: "${tlsFile('ca.pem')}" }`;
  const [leader, follower] = [await opened(t, named(ca)), await opened(t, named(ca))];
  await works(t, leader);
  for (let i = 0; i < 6; i += 1) {
    const lease = await lead(leader.store, { key: newKey() });
    const wait = settled(follower.store, await follow(follower.store, { key: lease.key }));
    t.equal(await leader.store.complete(lease, responseWith(Buffer.from('x')), 0), 'held');
    t.equal((await wait).kind, 'response');
  }
  t.notOk([...leader.told, ...follower.told].some(({ message }) => /refuse|failed/.test(message)));
  await fails(t, named('{}'), /certificate/);
  await fails(t, named(ca, 'wrong'), /WRONGPASS/);
});

t.test(
  "the README's `validate --connect`, as a process: a good store, and an authority that is not the server's",
  async (t) => {
    const root = fileURLToPath(new URL('../../..', import.meta.url));
    const readme = readFileSync(join(root, 'README.md'), 'utf8');
    const [, words = ''] = /^node (dist\/bin\/main\.js validate --connect)$/m.exec(readme) ?? [];
    const server = await started(t, { tls: true });
    const validateBy = (file: string) =>
      new Promise<Validated>((resolve) => {
        execFile(process.execPath, [...words.split(' '), '-c', file], { cwd: root }, (error, stdout, stderr) =>
          resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
        );
      });
    const at = `url: "rediss://127.0.0.1:${server.tlsPort}"`;
    const good = await validateBy(fileOf(`${at}, tls: { ca: "${tlsFile('ca.pem')}" }`));
    t.match(good, { code: 0, stdout: /^store: (Redis|Valkey) \S+, one primary, 0 replicas: /m, stderr: '' });
    const wrong = await validateBy(fileOf(`${at}, tls: { ca: "${tlsFile('one.pem')}" }`));
    t.match(wrong, { code: 1, stderr: /^store: .*certificate/m });
  },
);
