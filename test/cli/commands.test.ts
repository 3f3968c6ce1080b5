/** The commands as users run them: real processes, real sockets, exit codes and output. */

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { demoConfig } from '../../src/cli/demo-config.js';
import { loadConfig } from '../../src/config/load.js';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const MAIN = resolve(ROOT, 'dist/bin/main.js');

type Result = { readonly code: number | null; readonly stdout: string; readonly stderr: string };
type Running = {
  /** The first match of `pattern` in what the process writes to standard output. */
  seen(pattern: RegExp): Promise<RegExpExecArray>;
  kill(signal: NodeJS.Signals): void;
  readonly ended: Promise<Result>;
};

function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Running {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const ended = new Promise<Result>((done) => child.once('close', (code) => done({ code, stdout, stderr })));
  const seen = (pattern: RegExp): Promise<RegExpExecArray> =>
    new Promise((done, fail) => {
      const look = (): void => {
        const found = pattern.exec(stdout);
        if (found !== null) done(found);
      };
      child.stdout.on('data', look);
      look();
      void ended.then(() => fail(new Error(`ended without ${pattern}: ${stdout}${stderr}`)));
    });
  return { seen, kill: (signal) => void child.kill(signal), ended };
}

function listening(gateway: Running, listener: 'http' | 'admin'): Promise<string> {
  const line = new RegExp(`^\\{.*"listener":"${listener}","url":"([^"]+)".*"msg":"listening"\\}$`, 'm');
  return gateway.seen(line).then(([, url = '']) => url);
}

t.test('the command line', async (t) => {
  const code = async (...args: string[]): Promise<number | null> => (await run(args).ended).code;
  const { version } = JSON.parse(readFileSync(resolve(ROOT, 'package.json'), 'utf8')) as { version: string };
  t.strictSame(await run(['--version']).ended, { code: 0, stdout: `${version}\n`, stderr: '' });
  const help = await run(['--help']).ended;
  t.equal(help.code, 0);
  for (const command of ['start', 'validate', 'demo', 'smoke', 'explain', 'health']) t.match(help.stdout, command);

  t.match((await run(['strat']).ended).stderr, `unknown command 'strat'`);
  const nowhere = '/nowhere/gateway.yaml';
  const cases: readonly [number, string, ...string[]][] = [
    [2, 'an unknown command', 'strat'],
    [2, 'an unknown option of the default command', '--nope'],
    [2, 'an argument too many', 'start', 'extra'],
    [2, 'a required option is missing', 'smoke'],
    [2, 'a port out of range', 'demo', '--port', '70000'],
    [2, 'nothing to explain', 'explain', '-c', 'config/gateway.yaml'],
    [
      0,
      'the request of the README',
      'explain',
      '-c',
      'config/gateway.yaml',
      '/auth/sessions/refresh',
      '--json',
      '{"refreshToken":"abc"}',
    ],
    [78, 'start without a configuration', 'start', '-c', nowhere],
    [78, 'smoke without a configuration', 'smoke', '-c', nowhere, '--route', 'a', '--request', 'b'],
    [0, 'the example is good', 'validate', '-c', 'config/gateway.yaml'],
    [0, 'the configuration of the compose file is good', 'validate', '-c', 'config/gateway.compose.yaml'],
    [1, 'nobody to ask for health', 'health', '--url', 'http://127.0.0.1:1'],
  ];
  for (const [expected, title, ...args] of cases) t.equal(await code(...args), expected, title);
});

t.test('the demo has the first two rules of the example configuration', async (t) => {
  const example = loadConfig(resolve(ROOT, 'config/gateway.yaml'), {});
  if (example.kind === 'invalid') throw new Error('the example is not good');
  const { rules } = demoConfig({ host: '127.0.0.1', port: 0, upstream: new URL('http://127.0.0.1:1') });
  t.strictSame(rules, example.config.rules.slice(0, 2));
});

t.test('the demo proves its point and ends', async (t) => {
  const { code, stdout, stderr } = await run(['demo', '--once']).ended;
  t.equal(code, 0, stderr);
  t.match(stdout, /straight at the API +20 +20 +0 +0 +1 /);
  t.match(stdout, /through Oneflight +20 +1 +1 +20 +0 /);
  t.match(stdout, /straight at the API +2 +2 +2 +0 /);
  t.match(stdout, /through Oneflight +2 +1 +1 +1 /);
  t.notMatch(stdout, /[^\n -~]/, 'plain ASCII, no escape sequences');
});

t.test('the demo stays up until it is told to end', async (t) => {
  const demo = run(['demo']);
  const [, url = ''] = await demo.seen(/Oneflight in front of it at (\S+)/);
  await demo.seen(/Ctrl-C ends it/);
  const session = await fetch(`${url}/auth/sessions`, { method: 'POST' });
  t.equal(session.status, 201);
  demo.kill('SIGINT');
  t.equal((await demo.ended).code, 0);
});

t.test('smoke', async (t) => {
  // Most of the time is the slow API's: several checks may wait at once.
  t.jobs = 3;
  const api = run(['demo', '--api', '--port', '0']);
  t.teardown(() => api.kill('SIGTERM'));
  const [, apiUrl = ''] = await api.seen(/at (http:\S+)\. Ctrl-C/);
  const match = (path: string): string => `match: { methods: [POST], path: "${path}" }`;
  const directory = t.testdir({
    'gateway.yaml': [
      'listen: { host: 127.0.0.1, port: 0 }',
      'admin: { port: 0 }',
      'store: { kind: memory }',
      `upstreams: { api: { url: "${apiUrl}" } }`,
      'routes:',
      `  - { name: right, ${match('/auth/sessions/refresh')}, policy: coalesce, key: [{ body: /refreshToken }] }`,
      `  - { name: locked, ${match('/sessions/:session/steps/a/proceed')}, policy: reject, key: [{ param: session }] }`,
      `  - { name: coarse, ${match('/sessions/:session/steps/:step/proceed')}, policy: coalesce, key: [{ param: session }] }`,
      `  - { name: fine, ${match('/sessions/:session/stepz/b/proceed')}, policy: coalesce, key: [{ param: session }, { header: x-request-id }] }`,
      `  - { name: watched, ${match('/watched')}, policy: coalesce, observe: true, key: [{ body: /user }] }`,
      `  - { name: instant, ${match('/auth/sessions')}, policy: coalesce, keep: 0, key: [{ body: /user }] }`,
    ].join('\n'),
    'right.http':
      '# alone\nPOST /auth/sessions/refresh\nX-Request-Id: one\n\n{"refreshToken": "rt-aaaaaaaaaaaaaaaaaaaa", "n": 1}\n',
    'locked.http': 'POST /sessions/s-1/steps/a/proceed HTTP/1.1\n\n{}\n',
    'coarse.http': 'POST /sessions/s-1/steps/c/proceed HTTP/1.1\n\n{}\n',
    'fine.http': 'POST /sessions/s-1/stepz/b/proceed\nX-Request-Id: one\n\n{}\n',
    'instant.http': 'POST /auth/sessions\n\n{"user": "u-1"}\n',
    'nothing.http': 'POST /auth/sessions/refresh\n\n{"token": "a"}\n',
    'broken.http': 'POST\n',
  });
  const config = resolve(directory, 'gateway.yaml');
  const gateway = run(['start', '-c', config], { ONEFLIGHT_CONFIG: '' });
  t.teardown(() => gateway.kill('SIGKILL'));
  const url = await listening(gateway, 'http');
  const adminUrl = await listening(gateway, 'admin');
  const smoke = (route: string, file: string, ...more: string[]): Promise<Result> =>
    run(['smoke', '-c', config, '--url', url, '--route', route, '--request', resolve(directory, file), ...more]).ended;

  t.test('passes a rule that coalesces what it should', async (t) => {
    const { code, stdout, stderr } = await smoke('right', 'right.http');
    t.equal(code, 0, stdout + stderr);
    t.equal(stdout.match(/^ok /gm)?.length, 3);
  });

  t.test('passes a rule that rejects what it should', async (t) => {
    const { code, stdout, stderr } = await smoke('locked', 'locked.http');
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, 'one passed, one got 409');
  });

  t.test('fails a key that is too coarse and names the part', async (t) => {
    const { code, stdout } = await smoke('coarse', 'coarse.http', '--vary', 'param: step');
    t.equal(code, 1);
    t.match(stdout, /^FAIL +two with different keys +the key is too coarse.*add \{ param: step \} to the key$/m);
  });

  t.test('fails a key that is too fine and names the part', async (t) => {
    const { code, stdout } = await smoke('fine', 'fine.http');
    t.equal(code, 1);
    t.match(stdout, /^FAIL +two with one key +the key is too fine.*`header: x-request-id`/m);
  });

  t.test('does not call it a pass when two requests cannot meet', async (t) => {
    const { code, stdout } = await smoke('instant', 'instant.http');
    if (/one leader, one collapsed/.test(stdout)) return t.equal(code, 0, 'they met after all');
    t.equal(code, 1);
    return t.match(stdout, /^\?\? +two with one key +inconclusive/m);
  });

  t.test('says what keeps a request from its rule', async (t) => {
    const missing = await smoke('right', 'nothing.http', '--vary', 'body: /token');
    t.equal(missing.code, 1);
    t.match(missing.stdout, 'forwarded unprotected (key-missing): does the request have `body: /refreshToken`?');
    const other = await smoke('coarse', 'locked.http');
    t.equal(other.code, 2);
    t.match(other.stderr, 'meets the rule `locked`, not `coarse`');
  });

  t.test('refuses what it cannot check', async (t) => {
    t.match(await smoke('nope', 'right.http'), { code: 2, stderr: 'there are: right, locked' });
    t.match(await smoke('watched', 'instant.http'), { code: 2, stderr: '`watched` only observes' });
    t.match(await smoke('right', 'broken.http'), { code: 2, stderr: 'line 1: expected a request line' });
    t.match(await smoke('right', 'absent.http'), { code: 2, stderr: 'absent.http' });
    t.match(await smoke('right', 'right.http', '--vary', 'token'), { code: 2, stderr: 'expected a key part' });
    t.match(await smoke('right', 'right.http', '--vary', 'body: /none'), { code: 2, stderr: 'no `body: /none`' });
    t.match(await smoke('right', 'right.http', '--url', 'gateway'), { code: 2, stderr: 'expected an http(s) URL' });
  });

  t.test('health is told by an exit code', async (t) => {
    t.strictSame(await run(['health', '--url', adminUrl]).ended, { code: 0, stdout: 'ready\n', stderr: '' });
  });
});

t.test('start', async (t) => {
  const env = {
    ONEFLIGHT_HOST: '127.0.0.1',
    ONEFLIGHT_PORT: '0',
    ONEFLIGHT_ADMIN_PORT: '0',
    UPSTREAM_URL: 'http://127.0.0.1:1',
  };

  async function beforeSlowApi(test: typeof t): Promise<{ gateway: Running; url: string }> {
    const api = run(['demo', '--api']);
    test.teardown(() => api.kill('SIGKILL'));
    const [, apiUrl = ''] = await api.seen(/at (http:\S+)\. Ctrl-C/);
    const gateway = run(['start', '-c', 'config/gateway.yaml'], { ...env, UPSTREAM_URL: apiUrl });
    test.teardown(() => gateway.kill('SIGKILL'));
    return { gateway, url: await listening(gateway, 'http') };
  }

  t.test('runs the example, says where it listens, and ends on SIGTERM', async (t) => {
    const gateway = run(['start', '-c', 'config/gateway.yaml'], env);
    const url = await listening(gateway, 'http');
    t.match(url, /^http:\/\/127\.0\.0\.1:\d+$/);
    const adminUrl = await listening(gateway, 'admin');
    t.equal((await run(['health', '--url', adminUrl]).ended).code, 1, 'not ready: the upstream is not there');
    gateway.kill('SIGTERM');
    const { code, stdout } = await gateway.ended;
    t.equal(code, 0);
    t.match(stdout, '"file":"config/gateway.yaml"');
  });

  t.test('passes the check of its own example request', async (t) => {
    const { gateway, url } = await beforeSlowApi(t);
    const args = [
      '-c',
      'config/gateway.yaml',
      '--route',
      'session-refresh',
      '--request',
      'config/session-refresh.http',
    ];
    const { code, stdout, stderr } = await run(['smoke', ...args, '--url', url]).ended;
    t.equal(code, 0, stdout + stderr);
    const adminUrl = await listening(gateway, 'admin');
    t.equal((await run(['health', '--url', adminUrl]).ended).code, 0, 'ready');
  });

  t.test('lets requests end at the first signal', async (t) => {
    const { gateway, url } = await beforeSlowApi(t);
    const answer = fetch(`${url}/sessions/s/steps/1/proceed`, { method: 'POST' });
    await gateway.seen(/"listener":"admin"/);
    await sleep(300);
    gateway.kill('SIGTERM');
    t.equal((await answer).status, 200);
    t.equal((await gateway.ended).code, 0);
  });

  t.test('ends at once at the second signal', async (t) => {
    const { gateway, url } = await beforeSlowApi(t);
    const answer = fetch(`${url}/sessions/s/steps/1/proceed`, { method: 'POST' });
    await sleep(300);
    gateway.kill('SIGTERM');
    await gateway.seen(/"msg":"stopping"/);
    gateway.kill('SIGTERM');
    await t.rejects(answer);
    t.equal((await gateway.ended).code, 1);
  });

  t.test('is the default command and finds the configuration by the environment', async (t) => {
    const gateway = run([], { ...env, ONEFLIGHT_CONFIG: resolve(ROOT, 'config/gateway.yaml') });
    await listening(gateway, 'http');
    gateway.kill('SIGINT');
    t.equal((await gateway.ended).code, 0);
  });

  t.test('says in one line that the port is taken', async (t) => {
    const taken = createServer().listen(0, '127.0.0.1');
    t.teardown(() => void taken.close());
    await new Promise((done) => taken.once('listening', done));
    const { port } = taken.address() as { port: number };
    const { code, stderr } = await run(['start', '-c', 'config/gateway.yaml'], { ...env, ONEFLIGHT_PORT: String(port) })
      .ended;
    t.equal(code, 1);
    t.match(stderr, /^oneflight: .*EADDRINUSE.*\n$/);
  });
});
