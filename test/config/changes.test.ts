/** What of a new configuration is taken into use at once, and what is said to have changed. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { changesBetween, isSame, takenNow } from '../../src/config/changes.js';
import type { Config } from '../../src/config/config.js';
import { loadConfig } from '../../src/config/load.js';

const folder = t.testdir();
let files = 0;
function config(text: string, upstream = 'url: "http://127.0.0.1:3000"'): Config {
  const file = join(folder, `${files++}.yaml`);
  writeFileSync(file, `upstreams: { api: { ${upstream} } }\n${text}`);
  const result = loadConfig(file, {});
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors));
  return result.config;
}

t.test('nothing has changed between two readings of one text', async (t) => {
  const text = 'routes: [ { name: a, match: { path: /a }, policy: coalesce, key: [ { query: q } ] } ]\n';
  t.same(changesBetween(config(text), config(`# with a comment\n${text}drain: { timeout: 30s }\n`)), []);
});

t.test('each field is named as it is written', async (t) => {
  const rows: readonly (readonly [before: string, after: string, changed: readonly string[]])[] = [
    ['', 'routes: [ { name: a, match: { path: /a } } ]', ['routes.a']],
    ['routes: [ { name: a, match: { path: /a } } ]', 'routes: [ { name: a, match: { path: /b } } ]', ['routes.a']],
    [
      'routes: [ { name: a, match: { path: /a } }, { name: b, match: { path: /b } } ]',
      'routes: [ { name: b, match: { path: /b } }, { name: a, match: { path: /a } } ]',
      ['routes'],
    ],
    [
      'routes: [ { name: a, match: { path: /a } }, { name: b, match: { path: /b } } ]',
      'routes: [ { name: new.one, match: { path: /c } }, { name: b, match: { path: /b } } ]',
      ['routes.a', 'routes["new.one"]'],
    ],
    ['', 'drain: 1s', ['drain']],
    ['drain: 1s', 'drain: { timeout: 1s, delay: 1s }', ['drain']],
    ['', 'unmatched: false', ['unmatched']],
    ['', 'limits: { maxContent: 1MiB, stallTimeout: 1s }', ['limits.maxContent', 'limits.stallTimeout']],
    ['limits: { maxConnections: 5 }', '', ['limits.maxConnections']],
    ['', 'log: { level: warn }\nrequestId: { trust: never }', ['requestId', 'log']],
  ];
  for (const [before, after, changed] of rows) t.same(changesBetween(config(before), config(after)), changed, after);
});

t.test('upstreams are told apart by everything that they say', async (t) => {
  const one = 'url: "http://127.0.0.1:3000"';
  for (const other of [
    'url: "https://127.0.0.1:3000"',
    'urls: ["http://127.0.0.1:3000", "http://127.0.0.1:3001"]',
    `${one}, headers: { request: { remove: [X-A] } }`,
    `${one}, timeouts: { headers: 1s }`,
  ]) {
    t.same(changesBetween(config('', one), config('', other)), ['upstreams.api'], other);
    t.equal(isSame(config('', one).upstreams.get('api'), config('', one).upstreams.get('api')), true);
  }
});

t.test(
  'what needs a restart keeps its value, is named as long as it differs, and nothing else waits for it',
  async (t) => {
    const started = config('listen: { port: 1 }\nlimits: { maxFields: 1KiB }\n');
    const next = config(
      'listen: { port: 2 }\nadmin: false\nstore: { maxMemory: 1MiB }\ndrain: 1s\nlimits: { maxFields: 2KiB, keepAliveTimeout: 1s }\n',
    );
    const taken = takenNow(next, started);
    t.same(taken.needsRestart, ['listen', 'admin', 'store', 'limits.maxFields']);
    t.same(changesBetween(started, taken.config), ['drain', 'limits.keepAliveTimeout']);
    t.equal(taken.config.listen.port, 1);
    t.equal(taken.config.limits.maxFieldBytes, 1024);
    t.same(takenNow(started, started), { config: started, needsRestart: [] });
  },
);
