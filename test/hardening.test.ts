/**
 * What is shipped is as closed as the documents say: containers without rights and with a root that nothing can write to,
 * dependencies that run nothing when they are installed, and a process that writes nothing.
 */

import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { parse } from 'yaml';
import { burst, request } from './support/client.js';
import { tlsYaml } from './support/dial.js';
import { delay, eventually, within } from './support/gate.js';
import { configOf, startGateway } from './support/gateway.js';
import { startRedis } from './support/redis.js';
import { startUpstream } from './support/upstream.js';

t.setTimeout(100_000);

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string) => readFileSync(resolve(ROOT, path), 'utf8');

type Services = { readonly gateway: Service; readonly redis: Service; readonly api: Service };
type Service = {
  readonly user?: string;
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly cap_add?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly privileged?: boolean;
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly network_mode?: string;
};

/** What a service may that it need not; a sentence each. */
function serviceFaults(name: string, service: Service): string[] {
  const wants: readonly (readonly [boolean, string])[] = [
    [service.read_only === true, 'its root can be written to'],
    [service.cap_drop?.join() === 'ALL' && service.cap_add === undefined, 'it has capabilities'],
    [service.security_opt?.includes('no-new-privileges:true') === true, 'it may gain privileges'],
    [service.privileged === undefined && service.network_mode === undefined, 'it shares what is the host’s'],
    [(service.volumes ?? []).every((volume) => volume.endsWith(':ro')), 'it has a volume that can be written to'],
    [!(service.ports ?? []).some((port) => /\b9090\b/.test(port)), 'its admin listener is published'],
  ];
  return wants.flatMap(([holds, fault]) => (holds ? [] : [`${name}: ${fault}`]));
}

t.test('every service of the compose file is without rights, and cannot write to its root', async (t) => {
  const { services } = parse(read('docker-compose.yml')) as { services: Services };
  t.strictSame(
    Object.entries<Service>(services).flatMap(([name, service]) => serviceFaults(name, service)),
    [],
  );
  t.equal(services.redis?.user, 'redis', 'an image that would begin as root does not');
  t.equal(serviceFaults('planted', {}).length, 3);
  t.equal(serviceFaults('planted', { ports: ['9090:9090'], volumes: ['./a:/a'], privileged: true }).length, 6);
});

t.test('the image runs as nobody who owns anything in it', async (t) => {
  const stages = read('Dockerfile').split(/^FROM .*$/m);
  const last = stages.at(-1) ?? '';
  const lines = last.split('\n').filter((line) => /^[A-Z]+ /.test(line));
  const at = (word: string) => lines.findIndex((line) => line.startsWith(`${word} `));
  t.ok(at('USER') > lines.findLastIndex((line) => line.startsWith('COPY ')), 'what is copied is root’s');
  t.ok(at('USER') < at('ENTRYPOINT'));
  t.notMatch(last, /^(?:RUN|VOLUME|ADD) |--chown|--chmod/m, 'nothing is made writable, and nothing is run');
  t.notMatch(read('Dockerfile'), /npm (?:ci|install)(?!.*--ignore-scripts)/, 'no script of a dependency runs');
});

t.test(
  'no package inside the bundle runs a script when it is installed, and each that is ours to choose is reviewed',
  async (t) => {
    const lock = JSON.parse(read('package-lock.json')) as {
      packages: Record<string, { devDependencies?: object; dependencies?: object; hasInstallScript?: boolean }>;
    };
    const licences = read('dist/bin/THIRD-PARTY-LICENSES.txt');
    const inside = [...licences.matchAll(/^(@?[a-z][\w./-]*) \d+\.\d+\.\d+\S* \(.*\)$/gm)].map(([, name = '']) => name);
    t.ok(inside.length > 10, 'they are named');
    t.strictSame(
      Object.entries(lock.packages)
        .filter(([path, { hasInstallScript }]) => hasInstallScript && inside.some((name) => path.endsWith(`/${name}`)))
        .map(([path]) => path),
      [],
    );
    const review = read('docs/dependencies.md');
    const { dependencies, devDependencies = {} } = lock.packages[''] ?? {};
    t.equal(dependencies, undefined, 'nothing is installed beside the bundle');
    for (const name of Object.keys(devDependencies).filter((name) => inside.includes(name)))
      t.match(review, new RegExp(`^\\| \\[?${name}\\b`, 'm'), `${name} has a line`);
    t.match(review, `${inside.length} packages`, `and their number is right: ${inside.length}`);
  },
);

t.test('the process writes no file, runs no program and loads no binary', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const stub = await startUpstream(t);
  const routes = `
  - { name: shared, match: { path: "/shared/*" }, upstream: api, policy: coalesce, key: [ { request: path } ] }
  - { name: once, match: { path: /once }, upstream: api, policy: replay }
  - { name: turns, match: { path: "/turns/*" }, upstream: api, policy: queue, key: [ { request: path } ] }`;
  const store = `{ kind: redis, url: "${redis.url}", secret: "sixteen-characters-of-it" }`;
  const config = configOf({ upstream: stub.url, store, routes, listen: `tls: ${tlsYaml()}, http2: true` });
  // Node itself forbids everything else then (its permission model).
  const alone = ['--experimental-permission', '--allow-fs-read=*'];
  const gateway = await startGateway(t, { config, alone });
  const answers = [
    ...(await burst(10, () => gateway.request({ path: '/shared/a' }))),
    ...(await burst(3, () => gateway.request({ method: 'POST', path: '/turns/a' }))),
    await gateway.request({ method: 'POST', path: '/once', headers: ['Idempotency-Key', 'a'] }),
    await gateway.request({ method: 'POST', path: '/once', headers: ['Idempotency-Key', 'a'] }),
    await request(gateway.url, { method: 'PUT', path: '/passed', body: Buffer.alloc(2_000_000) }),
    await gateway.admin('/metrics'),
    await gateway.admin('/flights'),
    await gateway.admin('/readyz'),
  ];
  t.same([...new Set(answers.map(({ status }) => status))], [200]);
  gateway.signal('SIGHUP');
  await eventually('a look at the certificate', () => gateway.logs.some(({ msg }) => msg === 'reloading'));
  gateway.signal('SIGTERM');
  t.equal((await within(20_000, 'its end', gateway.exited)).code, 0);
  t.notMatch(gateway.output, /ERR_ACCESS_DENIED|EROFS/);
  t.same(
    gateway.logs.filter(({ level }) => typeof level === 'number' && level >= 50),
    [],
  );
});

t.test('no signal opens a port for debuggers, neither in the gateway nor in its workers', async (t) => {
  const stub = await startUpstream(t);
  const config = configOf({ upstream: stub.url, routes: '', more: 'workers: 2' });
  const gateway = await startGateway(t, { config, alone: [] });
  const workers = gateway.logs.filter(({ msg }) => msg === 'worker started') as { workerPid?: number }[];
  t.equal(workers.length, 2);
  for (const pid of [gateway.pid, ...workers.map(({ workerPid }) => workerPid!)]) process.kill(pid, 'SIGUSR1');
  // Node would say on standard error that it listens, at some moment.
  await delay(500);
  t.equal((await gateway.request({ path: '/alive' })).status, 200);
  t.equal(gateway.stderr, '');
});
