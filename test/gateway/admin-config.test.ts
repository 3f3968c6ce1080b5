/** `GET /config` on the admin listener: what is in use, for operators, without secrets. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import t, { type Test } from 'tap';
import { request } from '../support/client.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';
import { configFor, startSite } from './reloading.js';

t.setTimeout(120_000);

type Shown = {
  readonly file: string;
  readonly config: {
    readonly routes: readonly { readonly name: string }[];
    readonly limits: { readonly maxRequests: number; readonly maxFields: string };
    readonly log: { readonly level: string };
  };
  readonly sources: Readonly<Record<string, { readonly kind: string; readonly line?: number }>>;
};

async function shownBy(t: Test, gateway: Gateway): Promise<Shown> {
  const answer = await gateway.admin('/config');
  t.equal(answer.status, 200);
  t.match(answer.header('content-type'), /^application\/json/);
  return answer.json() as Shown;
}

const route = (name: string) => `
  - name: ${name}
    match: { path: /${name} }
    policy: coalesce
    key: [ { request: path } ]`;

for (const workers of [1, 2]) {
  t.test(`what is in use is shown, before a reload and after it, by ${workers} workers`, async (t) => {
    const upstream = await startUpstream(t);
    const config = (routes: string, more = '') => configFor(upstream, routes, `workers: ${workers}\n${more}`);
    const site = await startSite(t, config(route('first')));
    const before = await shownBy(t, site.gateway);
    t.match(before.file, /gateway\.yaml$/);
    t.same(
      before.config.routes.map(({ name }) => name),
      ['caught-up', 'first'],
    );
    t.match(before.config, { workers, listen: { port: 0, http2: false }, drain: { timeout: '30s' } });
    t.match(before.sources['routes[1].name'], { kind: 'file', file: before.file });
    t.match(before.sources['routes[1].lease'], { kind: 'default' });

    const later = 'limits: { maxFields: 32KiB, maxRequests: 70 }\nlog: { level: debug }\n';
    await site.change(config(`${route('second')}${route('first')}`, later));
    const after = await shownBy(t, site.gateway);
    t.same(
      after.config.routes.map(({ name }) => name),
      ['caught-up', 'second', 'first'],
    );
    t.equal(after.config.log.level, 'debug');
    t.equal(after.config.limits.maxRequests, 70);
    t.equal(after.config.limits.maxFields, '64KiB', 'what needs a restart is still what it was');
    t.match(after.sources['limits.maxFields'], { kind: 'default' });
    t.match(after.sources['limits.maxRequests'], { kind: 'file' });

    site.put('gateway.yaml', 'routes: 1\n');
    t.equal((await site.reload()).status, 422);
    t.same(await shownBy(t, site.gateway), after, 'a bad file changes nothing');
  });
}

t.test('secrets are not shown, wherever they stand, and operators alone are told', async (t) => {
  const upstream = await startUpstream(t);
  const folder = t.testdir({ 'secret.txt': 'hidden-value-in-a-file\n' });
  const routes = `
  - name: kept
    match: { path: /kept, headers: { x-api-key: hidden-value-matched, x-plain: seen-value } }
    policy: replay
    reconcile: { url: "/orders/{key}?token=hidden-value-queried&plain=seen-value", headers: { X-Any: hidden-value-asked } }`;
  const upstreams = `
  other:
    url: "${upstream.url}"
    health: { path: /health?key=hidden-value-checked, headers: { X-Any: hidden-value-checking } }
    headers:
      request: { set: { Authorization: Bearer hidden-value-sent }, add: { X-Any: [hidden-value-added] } }
      response: { set: { X-Plain: seen-value, Set-Cookie: hidden-value-cookie } }`;
  const config = configOf({
    upstream: upstream.url,
    routes,
    upstreams,
    store: '{ secret: ["${S}", "${file:secret.txt}"] }',
  })
    .replace('- name: kept', '- name: kept\n    upstream: api')
    .replace('admin: { host', 'admin: { token: hidden-value-of-operators, host')
    .replace('${file:secret.txt}', `\${file:${folder}/secret.txt}`);
  const gateway = await startGateway(t, { config, env: { S: 'hidden-value-of-the-environment' } });
  const ask = (headers: readonly string[]) => request(gateway.adminUrl, { path: '/config', headers });
  const { text, status } = await ask(['Authorization', 'Bearer hidden-value-of-operators']);
  t.equal(status, 200);
  t.notMatch(text, /hidden-value/);
  t.equal(text.match(/seen-value/g)?.length, 3, 'what is none is shown');
  t.equal(text.match(/"\*\*\*"/g)?.length, 9);
  const nobody = await ask([]);
  t.equal(nobody.status, 401);
  t.notMatch(nobody.text, 'routes');
});
