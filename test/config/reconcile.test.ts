/** `reconcile`: what a valid one becomes, and every error at its exact place (marked by ▶). */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { formatError } from '../../src/config/fault.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import type { Rule } from '../../src/core/rule.js';
import { errorsOf, haveErrorsAtMarks, type Marked } from '../support/marked.js';

const API = 'upstreams: { api: { url: http://127.0.0.1:3000 } }\n';
const HOLD = 'onUnknown: hold, key: [{ param: id }]';

const directory = t.testdir();
let files = 0;
function load(text: string, env: NodeJS.ProcessEnv = {}): LoadResult {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, text);
  return loadConfig(file, env);
}

function route(fields: string): string {
  return `${API}routes:\n  - { name: a, match: { path: "/a/:id" }, ${fields} }\n`;
}

function reconcileOf(fields: string, env: NodeJS.ProcessEnv = {}) {
  const result = load(route(fields), env);
  if (result.kind === 'invalid') throw new Error(result.errors.map(formatError).join('\n'));
  const policy = result.config.rules[0]?.policy;
  return policy?.kind === 'pass' ? undefined : policy?.reconcile;
}

t.test('a path is enough; the rest has defaults', async (t) => {
  const url = { origin: null, target: '/operations/{key}', placeholder: 'key' };
  const plain = { url, everyMs: 5_000, fields: [], done: [] };
  t.same(reconcileOf('policy: replay, reconcile: { url: "/operations/{key}" }'), plain);
  for (const kind of ['coalesce', 'reject', 'replay']) {
    t.same(reconcileOf(`policy: ${kind}, ${HOLD}, reconcile: { url: "/operations/{key}" }`), plain, kind);
    t.equal(reconcileOf(`policy: ${kind}, ${HOLD}`), null, `${kind} without it`);
  }
});

t.test('everything that can be written', async (t) => {
  const written = reconcileOf(
    `policy: reject, onUnknown: hold, key: [{ param: id }, { query: x }], forward: { idempotencyKey: X-Key },
      reconcile: {
        url: "https://h:1/op?k={idempotencyKey}", every: 500ms,
        headers: { Authorization: "Bearer \${API_TOKEN}", X-Tenant: a },
        done: { /status: [succeeded, failed], /n: 1, /ok: true, /error: null } }`,
    { API_TOKEN: 'secret' },
  );
  t.same(written, {
    url: { origin: 'https://h:1', target: '/op?k={idempotencyKey}', placeholder: 'idempotencyKey' },
    everyMs: 500,
    fields: ['Authorization', 'Bearer secret', 'X-Tenant', 'a'],
    done: [
      { pointer: '/status', values: ['succeeded', 'failed'] },
      { pointer: '/n', values: [1] },
      { pointer: '/ok', values: [true] },
      { pointer: '/error', values: [null] },
    ],
  });
});

t.test('{key} of every part that is one text', async (t) => {
  for (const part of ['header: x', 'query: x', 'param: id', 'cookie: x', 'form: x', 'body: /x']) {
    t.ok(reconcileOf(`policy: replay, key: [{ ${part} }], reconcile: { url: "/{key}" }`), part);
  }
});

const KEY = 'a key of exactly one part that is a text';
const FORM = '{key} or {idempotencyKey} in it, one of them';
const replay = (reconcile: string) => `policy: replay, reconcile: ${reconcile}`;
/** The route's fields, and the path below `routes[0].`; the rest as everywhere. */
const CASES: readonly Marked[] = [
  [
    'policy: coalesce, key: [{ param: id }], reconcile: ▶{ url: "/{key}" }',
    'reconcile',
    'no reconcile without onUnknown: hold',
    'a mapping',
  ],
  [
    'policy: replay, onUnknown: release, reconcile: ▶{ url: "/{key}" }',
    'reconcile',
    'no reconcile without onUnknown: hold',
    'a mapping',
  ],
  ['▶reconcile: { url: "/{key}" }', 'reconcile', 'no reconcile with policy pass', '"reconcile"'],
  [replay('▶"/{key}"'), 'reconcile', 'a mapping', '"/{key}"'],
  [replay('▶{ every: 1s }').replace('reconcile: ▶', '▶reconcile: '), 'reconcile.url', 'a path such as', 'nothing'],
  [replay('{ url: "/{key}", ▶evry: 1s }'), 'reconcile.evry', 'one of url, every, headers, done', '"evry"', 'every'],
  [replay('{ url: ▶"operations/{key}" }'), 'reconcile.url', 'a path such as', '"operations/{key}"'],
  [replay('{ url: ▶"/operations" }'), 'reconcile.url', FORM, '"/operations"'],
  [replay('{ url: ▶"/{id}" }'), 'reconcile.url', FORM, '"/{id}"'],
  [replay('{ url: ▶"/{key}/{idempotencyKey}" }'), 'reconcile.url', FORM, '"/{key}/{idempotencyKey}"'],
  [replay('{ url: ▶"http://u:pass@h/{key}" }'), 'reconcile.url', 'an http:// or https:// URL', '"http://***@h/{key}"'],
  [replay('{ url: ▶"/{key}#a" }'), 'reconcile.url', 'a URL of visible ASCII', '"/{key}#a"'],
  [
    replay('{ url: ▶"/{idempotencyKey}" }'),
    'reconcile.url',
    'forward.idempotencyKey to be set for {idempotencyKey}',
    '"/{idempotencyKey}"',
  ],
  [
    `forward: { fence: X-F }, ${replay('{ url: ▶"/{idempotencyKey}" }')}`,
    'reconcile.url',
    'forward.idempotencyKey to be set for {idempotencyKey}',
    '"/{idempotencyKey}"',
  ],
  [`key: [{ param: id }, { query: x }], ${replay('{ url: ▶"/{key}" }')}`, 'reconcile.url', KEY, '"/{key}"'],
  [`key: [{ request: path }], ${replay('{ url: ▶"/{key}" }')}`, 'reconcile.url', KEY, '"/{key}"'],
  [`key: [{ header: x, optional: true }], ${replay('{ url: ▶"/{key}" }')}`, 'reconcile.url', KEY, '"/{key}"'],
  [replay('{ url: "/{key}", every: ▶499ms }'), 'reconcile.every', 'a duration from 500ms to 1h', '"499ms"'],
  [replay('{ url: "/{key}", every: ▶2h }'), 'reconcile.every', 'a duration from 500ms to 1h', '"2h"'],
  [replay('{ url: "/{key}", headers: ▶[] }'), 'reconcile.headers', 'a mapping', 'an empty list'],
  [
    replay('{ url: "/{key}", headers: { ▶Host: a } }'),
    'reconcile.headers.Host',
    'a field name that a question may carry',
    '"Host"',
  ],
  [
    replay('{ url: "/{key}", headers: { ▶accept-encoding: gzip } }'),
    'reconcile.headers.accept-encoding',
    'a field name that a question may carry',
    '"accept-encoding"',
  ],
  [
    replay('{ url: "/{key}", headers: { Authorization: ▶"" } }'),
    'reconcile.headers.Authorization',
    'a text of visible ASCII',
    'a text of 0 characters',
  ],
  [
    replay('{ url: "/{key}", headers: { X-A: a, x-a: ▶b } }'),
    'reconcile.headers.x-a',
    'x-a once',
    'it in two spellings',
  ],
  [replay('{ url: "/{key}", done: ▶{} }'), 'reconcile.done', 'at least one JSON pointer', 'an empty mapping'],
  [replay('{ url: "/{key}", done: ▶[/a] }'), 'reconcile.done', 'a mapping', 'a list'],
  [replay('{ url: "/{key}", done: { ▶status: a } }'), 'reconcile.done.status', 'a JSON pointer such as', '"status"'],
  [replay('{ url: "/{key}", done: { /a: ▶[] } }'), 'reconcile.done["/a"]', 'at least one value', 'an empty list'],
  [replay('{ url: "/{key}", done: { /a: ▶{ b: c } } }'), 'reconcile.done["/a"]', 'a text, a number,', 'a mapping'],
  [replay('{ url: "/{key}", done: { /a: [b, ▶[c]] } }'), 'reconcile.done["/a"][1]', 'a text, a number,', 'a list'],
];

t.test('errors, each at its place', async (t) => {
  const files = CASES.map(([fields, path, ...said]): Marked => [route(fields), `routes[0].${path}`, ...said]);
  haveErrorsAtMarks(t, files, load);
});

t.test('no credential is quoted, wherever it came from', async (t) => {
  const written = replay('{ url: "/{key}", headers: { Authorization: "Bearer ${API_TOKEN}" } }');
  const said = errorsOf(load(route(written), { API_TOKEN: 'very\nsecret' }))
    .map(formatError)
    .join('\n');
  t.match(said, /routes\[0\]\.reconcile\.headers\.Authorization: expected a text of visible ASCII, got a text of 18/);
  t.notMatch(said, 'secret');
});

t.test('what the documents show of it is valid and free of warnings', async (t) => {
  const blocks = [...readFileSync('docs/replay.md', 'utf8').matchAll(/^```yaml\n([\s\S]*?)^```/gm)];
  const shown = blocks.map(([, yaml = '']) => `${API}${yaml}`);
  const example = readFileSync('config/gateway.yaml', 'utf8');
  const commented = /^ {4}# (?=(?:reconcile| {2}(?:url|every|headers|done)):)/gm;
  t.equal([...example.matchAll(commented)].length, 5);
  for (const text of [...shown, example.replace(commented, '    ')]) {
    const result = load(text, { API_TOKEN: 'token' });
    t.match(result, { kind: 'loaded', warnings: [] }, text.slice(0, 200));
    t.equal(
      text.includes('reconcile:'),
      result.kind === 'loaded' && result.config.rules.some(asks),
      text.slice(0, 200),
    );
  }
  t.equal(shown.filter((text) => text.includes('reconcile:')).length, 1);
});

function asks({ policy }: Rule): boolean {
  return policy.kind !== 'pass' && policy.reconcile !== null;
}
