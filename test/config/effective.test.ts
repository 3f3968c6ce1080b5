/** What is in effect, as it is printed: it is the same configuration, whatever texts are in it, and no secret is shown. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import fc from 'fast-check';
import t from 'tap';
import { configYaml } from '../../src/cli/config-yaml.js';
import { effectiveJson, effectiveOf } from '../../src/config/effective.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { shownText } from '../../src/config/masking.js';

function loaded(text: string, env: NodeJS.ProcessEnv = {}) {
  const result: LoadResult = loadConfig('gateway.yaml', env, Buffer.from(text));
  if (result.kind === 'invalid') throw new Error(`${text}\n${JSON.stringify(result.errors)}`);
  return result;
}

/** A text as YAML, in which nothing is a reference. */
function quoted(text: string): string {
  return JSON.stringify(text).replaceAll('${', () => '$${');
}

function printedOf(text: string): string {
  return configYaml(effectiveOf(loaded(text).written));
}

const UPSTREAMS = 'upstreams: { api: { url: http://a } }\n';
const withKey = (part: string, more = '') =>
  `${UPSTREAMS}routes: [{ name: a, match: { path: /a }, policy: replay, key: [{ ${part} }]${more} }]\n`;

t.test('any text is printed so that it is read as the same text', async (t) => {
  const words = [
    'true',
    'null',
    '~',
    '1',
    '0x1',
    '1e3',
    '- a',
    '# a',
    'a # b',
    'a: b',
    '{',
    ']',
    ',',
    '*',
    '&a',
    '!a',
    '"',
    "'",
    '\n',
    ' a ',
    '${',
    '$${',
    '$',
    '%',
    '@',
    '`',
    '|',
    '>',
    '---',
    '',
  ];
  const anyText = fc.oneof(
    fc.string({ unit: 'grapheme' }),
    fc.array(fc.constantFrom(...words)).map((parts) => parts.join('')),
  );
  fc.assert(
    fc.property(
      anyText.filter((text) => /[^\0]/.test(text)),
      anyText,
      (name, done) => {
        const text = withKey(
          `query: ${quoted(name)}`,
          `, reconcile: { url: "/a/{key}", done: { ${quoted('/a')}: [${quoted(done)}, 1, true, null, "1"] } }`,
        );
        const { config } = loaded(text);
        t.strictSame(loaded(printedOf(text)).config, config);
      },
    ),
    { numRuns: 300 },
  );
});

t.test('defaults that depend on other fields are shown as what they are', async (t) => {
  const at = (text: string, path: string): unknown => {
    const { config, sources } = effectiveJson(effectiveOf(loaded(text).written));
    const value = path.split('.').reduce<unknown>((node, step) => (node as Record<string, unknown>)[step], config);
    return value ?? sources[path.replace(/\.(\d+)/g, '[$1]')];
  };
  const held = withKey('header: a', ', onUnknown: hold');
  const several = 'upstreams: { a: { urls: [http://a, http://b] }, b: { url: http://b } }\n';
  for (const [text, path, expected] of [
    [UPSTREAMS, 'unmatched', 'api'],
    [several, 'unmatched', false],
    [several, 'upstreams.a.eject', { failures: 3, for: '10s' }],
    [several, 'upstreams.b.eject', false],
    [UPSTREAMS, 'store.kind', 'memory'],
    [UPSTREAMS, 'drain', { delay: '0s', timeout: '30s' }],
    [`${UPSTREAMS}drain: 5s\n`, 'drain', { delay: '0s', timeout: '5s' }],
    [UPSTREAMS, 'limits.maxConnections', { kind: 'default', words: 'any number' }],
    [held, 'routes.0.unknownFor', '24h'],
    [withKey('header: a', ', onUnknown: release'), 'routes.0.unknownFor', undefined],
    [withKey('header: a', ', wait: 3s'), 'routes.0.wait', { max: '3s', poll: '500ms' }],
    [held, 'routes.0.wait', { kind: 'default', words: 'not at all: a repeat gets 409 at once' }],
    [held, 'routes.0.scope', 'a'],
    [held, 'routes.0.upstream', 'api'],
    [held.replace('replay', 'coalesce, onLeaderFailure: elect'), 'routes.0.elections', 1],
    [held.replace('replay', 'coalesce'), 'routes.0.elections', undefined],
    [`${UPSTREAMS}routes: [{ name: a, match: { path: /a } }]\n`, 'routes.0.policy', 'pass'],
  ] as const) {
    t.same(at(text, path), expected, `${path} of ${text}`);
  }
});

t.test('secrets are masked, and nothing else', async (t) => {
  const cases: readonly (readonly [path: string, text: string, shown: string])[] = [
    ['store.secret', 'abc', '***'],
    ['store.secret.0', 'abc', '***'],
    ['store.password', 'abc', '***'],
    ['store.sentinel.password', 'abc', '***'],
    ['store.username', 'abc', 'abc'],
    ['admin.token', 'abc', '***'],
    ['store.url', 'redis://user:a%40b@host:1/2', 'redis://***@host:1/2'],
    ['store.url', 'redis://:pw@host', 'redis://***@host'],
    ['store.url', 'redis://host', 'redis://host'],
    ['upstreams.a.url', 'http://host', 'http://host'],
    ['upstreams.a.headers.request.set.X-Any', 'abc', '***'],
    ['upstreams.a.headers.request.add.X-Any.0', 'abc', '***'],
    ['upstreams.a.headers.request.remove.0', 'X-Any', 'X-Any'],
    ['upstreams.a.headers.response.set.X-Any', 'abc', 'abc'],
    ['upstreams.a.headers.response.set.Set-Cookie', 'abc', '***'],
    ['upstreams.a.health.headers.Host', 'abc', '***'],
    ['upstreams.a.health.path', '/a?b=c&api_key=d', '/a?b=c&api_key=***'],
    ['upstreams.a.tls.key', '-----BEGIN PRIVATE KEY-----\nabc', '***'],
    ['upstreams.a.tls.key', 'certs/a.key', 'certs/a.key'],
    ['upstreams.a.tls.cert', '-----BEGIN CERTIFICATE-----\nabc', '-----BEGIN CERTIFICATE-----\nabc'],
    ['routes.0.reconcile.headers.X-Any', 'abc', '***'],
    ['routes.0.reconcile.url', '/a?key={key}&token=abc', '/a?key={key}&token=***'],
    ['routes.0.match.headers.authorization', 'abc', '***'],
    ['routes.0.match.headers.x-tenant', 'abc', 'abc'],
    ['routes.0.match.path', '/token/:id', '/token/:id'],
    ['routes.0.key.0.header', 'authorization', 'authorization'],
    // Options that there may be one day.
    ['telemetry.headers.x-team', 'abc', '***'],
    ['telemetry.endpoint', 'https://user:pw@host/v1?api_key=a', 'https://***@host/v1?api_key=***'],
    // An upstream may be called as it likes.
    ['upstreams.secret.balance', 'round-robin', 'round-robin'],
  ];
  for (const [path, text, shown] of cases) {
    const steps = path.split('.').map((step) => (/^\d+$/.test(step) ? Number(step) : step));
    t.equal(shownText(steps, text, 'written'), shown, `${path}: ${text}`);
    t.equal(shownText(steps, text, 'file'), '***', `${path} from a file`);
  }
});
