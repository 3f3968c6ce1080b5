/** Stores in Redis as they are written: what is refused, where, and what is made of the rest. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { formatError } from '../../src/config/fault.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { tlsFile } from '../support/dial.js';
import { errorsOf, haveErrorsAtMarks, type Marked } from '../support/marked.js';

const directory = t.testdir({ password: 'p@ss/word:with#signs\n' });
let files = 0;
function load(text: string): LoadResult {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, text);
  return loadConfig(file, {});
}

const redis = (fields: string) => `upstreams: { api: { url: http://a } }\nstore: { kind: redis, ${fields} }\n`;

function accessOf(fields: string) {
  const loaded = load(redis(fields));
  if (loaded.kind !== 'loaded' || loaded.config.store.kind !== 'redis') throw new Error(JSON.stringify(loaded));
  return loaded.config.store.access;
}

const CASES: Marked[] = [
  [redis('url: redis://h, cluster: ▶[h]'), 'store.cluster', 'one of url, cluster', 'both'],
  [redis('sentinel: { name: m, hosts: [h] }, cluster: ▶[h]'), 'store.cluster', 'one of sentinel, cluster', 'both'],
  [redis('url: redis://h, tls: ▶{}'), 'store.tls', 'no tls without a rediss:// URL', 'it'],
  [redis('url: "redis://:a@h", password: ▶b'), 'store.password', 'password in the URL or here', 'both'],
  [redis('url: "redis://u:a@h", username: ▶u'), 'store.username', 'username in the URL or here', 'both'],
  [redis('url: redis://h/1, db: ▶1'), 'store.db', 'db in the URL or here', 'both'],
  [redis('url: ▶redis://u@h'), 'store.url', 'a password for the user of the URL', 'none'],
  [redis('url: ▶"redis://u:%zz@h"'), 'store.url', 'a URL such as redis://', '"redis://***@h"'],
  [redis('cluster: [h], db: ▶2'), 'store.db', 'no db with cluster, which has database 0 only', '2'],
  [redis('cluster: [h, ▶"h:0"]'), 'store.cluster[1]', 'a host, or host:port', '"h:0"'],
  [redis('cluster: [h, ▶"redis://h"]'), 'store.cluster[1]', 'a host, or host:port', '"redis://h"'],
  [redis('cluster: [h, ▶"::1"]'), 'store.cluster[1]', 'a host, or host:port', '"::1"'],
  [
    redis('cluster: ["a:1", "b:1", ▶"a:1"]'),
    'store.cluster[2]',
    'a server that the list does not have yet',
    'that of cluster[0]',
  ],
  [redis('cluster: ▶[]'), 'store.cluster', 'at least one server', 'an empty list'],
  [redis('▶sentinel: { hosts: [h] }'), 'store.sentinel.name', 'the name of a primary', 'nothing'],
  [redis('▶sentinel: { name: m }'), 'store.sentinel.hosts', 'a list', 'nothing'],
  [redis('sentinel: { name: m, hosts: [h, ▶h] }'), 'store.sentinel.hosts[1]', 'a server that', 'that of hosts[0]'],
  [
    redis('cluster: [h], username: u').replace('store: {', 'store: ▶{').replace('store: ▶', '▶store: '),
    'store.password',
    'the password of store.username',
    'nothing',
  ],
  [
    redis('cluster: [h], password: ▶""'),
    'store.password',
    'a password of 1 to 1024 characters',
    'a text of 0 characters',
  ],
  [
    redis('cluster: [h], ▶tls: { cert: "x" }').replace('"x"', `"${tlsFile('one.pem')}"`),
    'store.tls.key',
    'the key of tls.cert',
    'nothing',
  ],
  [
    redis(`cluster: [h], tls: { ca: ▶"${tlsFile('broken.pem')}" }`),
    'store.tls.ca',
    'certificates in PEM',
    'what OpenSSL refuses (asn1 parse error)',
  ],
];

t.test('a store that contradicts itself is refused at its line and column', async (t) => {
  const fits = CASES.filter(([text]) => !text.includes('broken'));
  haveErrorsAtMarks(t, fits, load);
  const [broken] = errorsOf(load(redis(`cluster: [h], tls: { ca: "${tlsFile('broken.pem')}" }`)));
  t.match(broken, { path: 'store.tls.ca', expected: 'certificates in PEM', got: /what OpenSSL refuses/ });
  const both = errorsOf(load(redis(`url: redis://h, cluster: [h], sentinel: { name: m, hosts: [h] }`)));
  t.match(both, [
    { path: 'store.cluster', got: 'all three' },
    { path: 'store.sentinel', got: 'all three' },
  ]);
});

t.test('no error quotes a password, wherever it stands', async (t) => {
  for (const fields of [
    'url: "redis://:hidden1@h", password: hidden2',
    'url: "redis://hidden1:hidden2@h?x", tls: { ca: none }',
    'cluster: [h], db: 3, password: hidden1, sentinel: { name: m, hosts: [h], password: hidden2 }',
    'url: "redis://u:%zzhidden1@h"',
    'cluster: [h], password: [hidden1]',
    'url: redis://h/1, db: 1, password: "${file:password}", passwort: hidden1',
  ]) {
    const errors = errorsOf(load(redis(fields)));
    t.ok(errors.length > 0, fields);
    t.notMatch(errors.map(formatError).join('\n'), /hidden|p@ss/, fields);
  }
});

t.test('one server, sentinels and a cluster', async (t) => {
  const none = { username: null, password: null, tls: null, db: 0 };
  const tls = { ca: null, cert: null, key: null, serverName: null, verify: true };
  t.same(accessOf('url: "redis://[::1]/"'), { ...none, servers: { kind: 'single', at: { host: '::1', port: 6379 } } });
  t.same(accessOf('url: "rediss://u%40v:%3a%2F@h:1/3"'), {
    servers: { kind: 'single', at: { host: 'h', port: 1 } },
    username: 'u@v',
    password: ':/',
    tls,
    db: 3,
  });
  t.match(accessOf('url: "redis://u@h", password: "${file:password}", db: 4'), {
    username: 'u',
    password: 'p@ss/word:with#signs',
    db: 4,
  });
  t.same(accessOf('sentinel: { name: m, hosts: [a, "b:1"], password: s, tls: {} }, password: x, db: 1'), {
    servers: {
      kind: 'sentinel',
      name: 'm',
      hosts: [
        { host: 'a', port: 26379 },
        { host: 'b', port: 1 },
      ],
      username: null,
      password: 's',
      tls,
    },
    ...none,
    password: 'x',
    db: 1,
  });
  const pem = readFileSync(tlsFile('ca.pem'), 'latin1');
  const text = accessOf(
    `cluster: ["[::1]:7000", h], username: u, password: p, tls: { ca: ${JSON.stringify(pem)}, verify: false }`,
  );
  const file = accessOf(`cluster: [h], tls: { ca: "${tlsFile('ca.pem')}", serverName: redis.example }`);
  t.same(text, {
    servers: {
      kind: 'cluster',
      hosts: [
        { host: '::1', port: 7000 },
        { host: 'h', port: 6379 },
      ],
    },
    username: 'u',
    password: 'p',
    tls: { ...tls, ca: pem, verify: false },
    db: 0,
  });
  t.same(file.tls, { ...tls, ca: pem, serverName: 'redis.example' });
});
