/** `oneflight explain` as users run it: curl's spellings, exit codes, files, and a long log in a small process. */

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { linesOf } from '../../src/cli/lines.js';
import { ArgumentError, type DataArgument, toldByArguments } from '../../src/cli/told-arguments.js';
import type { Explanation } from '../../src/explain/explaining.js';
import type { LogReport } from '../../src/explain/log-replay.js';

t.setTimeout(170_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const MAIN = join(ROOT, 'dist/bin/main.js');

const CONFIG = `
listen: { host: 127.0.0.1, port: 8080 }
admin: false
store: { kind: memory }
upstreams: { api: { url: "http://127.0.0.1:1" } }
routes:
  - name: forms
    match: { methods: [POST], path: /forms, host: api.example.com }
    policy: coalesce
    key: [ { form: id } ]
    identity: public
  - name: orders
    match: { methods: [POST], path: /orders/:id, headers: { x-kind: order } }
    policy: replay
  - name: json
    match: { path: /json }
    policy: reject
    key: [ { body: /id } ]
    onMissingKey: reject
  - name: watched
    match: { path: /watched }
    policy: coalesce
    observe: true
    key: [ { query: id } ]
    maxKeyBody: 1B
    onMissingKey: reject
`;

type Result = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

function commands(t: Test, config = CONFIG) {
  const folder = t.testdir({ 'gateway.yaml': config });
  const run = (
    args: readonly string[],
    input: Iterable<string> = [],
    node: readonly string[] = [],
  ): Promise<Result> => {
    const child = spawn(process.execPath, [...node, MAIN, 'explain', '-c', join(folder, 'gateway.yaml'), ...args]);
    let [stdout, stderr] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    // A process that ends early does not read to the end.
    child.stdin.on('error', () => {});
    void feed(child.stdin, input);
    return new Promise((done) => child.once('close', (code) => done({ code, stdout, stderr })));
  };
  return { folder, run };
}

async function feed(stdin: NodeJS.WritableStream, input: Iterable<string>): Promise<void> {
  for (const text of input) if (!stdin.write(text)) await new Promise((resolve) => stdin.once('drain', resolve));
  stdin.end();
}

t.test('a request on the command line, as curl spells it', async (t) => {
  const words = (...words: string[]) => ({ words, method: undefined, headers: [], data: [], host: undefined });
  const data = (kind: DataArgument['kind'], text: string): DataArgument => ({ kind, text });
  const folder = t.testdir({ 'data.json': '{\r\n"id":1}\n' });
  const told = (change: Partial<Parameters<typeof toldByArguments>[0]>) =>
    toldByArguments({ ...words('/a'), ...change });
  t.match(told({}), { method: 'GET', target: '/a', fields: [] });
  t.match(told({ method: 'PUT' }), { method: 'PUT' });
  t.match(told({ words: ['PATCH', '/a'] }), { method: 'PATCH' });
  const form = told({ data: [data('data', 'a=1'), data('data', 'b=2')] });
  t.match(form, { method: 'POST', fields: ['Content-Type', 'application/x-www-form-urlencoded'] });
  t.equal(form.content.toString(), 'a=1&b=2');
  t.equal(told({ data: [data('data', `@${folder}/data.json`)] }).content.toString(), '{"id":1}');
  t.equal(told({ data: [data('binary', `@${folder}/data.json`)] }).content.toString(), '{\r\n"id":1}\n');
  t.equal(told({ data: [data('raw', '@x')] }).content.toString(), '@x');
  t.strictSame(told({ data: [data('json', '{}')] }).fields, ['Content-Type', 'application/json']);
  t.strictSame(told({ data: [data('data', '{}')], headers: ['content-type: text/x'] }).fields, [
    'content-type',
    'text/x',
  ]);
  t.strictSame(told({ headers: ['A: b: c', 'E;', 'Gone:'] }).fields, ['A', 'b: c', 'E', '']);
  t.match(told({ words: ['http://x.example/p?q#f'] }), { target: '/p?q', fields: ['Host', 'x.example'] });
  t.strictSame(told({ headers: ['Host: y'], host: 'z' }).fields, ['Host', 'z']);
  t.equal(told({ words: ['/\u00e9'] }).target, '/\u00c3\u00a9', 'bytes of UTF-8');
  for (const bad of [
    { words: [] },
    { words: ['GET', '/a', '/b'] },
    { words: ['localhost/a'] },
    { words: ['/a b'] },
    { words: ['NO GOOD', '/a'] },
    { words: ['GET', '/a'], method: 'PUT' },
    { headers: ['no colon'] },
    { headers: ['a: b\r\nc: d'] },
    { data: [data('data', '@/nowhere')] },
  ]) {
    t.throws(() => told(bad), ArgumentError, JSON.stringify(bad));
  }
});

t.test('the command: what it prints, and its exit codes', async (t) => {
  const { folder, run } = commands(t);
  const text = await run(['/orders/7?x=secret', '-d', 'a', '-H', 'Idempotency-Key: secret-key', '-H', 'X-Kind: order']);
  t.strictSame([text.code, text.stderr], [0, '']);
  t.match(text.stdout, /^POST \/orders\/7\?x=\.\.\.$/m);
  t.match(text.stdout, /^ {2}forms +no: path: \/forms is wanted; host: api\.example\.com is wanted$/m);
  t.match(text.stdout, /^ {2}orders +yes: policy replay, to upstream api$/m);
  t.match(text.stdout, /^ {2}header: idempotency-key +present: text, 10 characters$/m);
  t.match(text.stdout, /^ {2}digest +[\w-]{43} \(no secret\)$/m);
  t.match(text.stdout, /^ {2}fingerprint +[\w-]{43} /m);
  t.match(text.stdout, /^ {2}other request +422 key-reused$/m);
  t.notMatch(text.stdout, 'secret-key');
  const shown = await run([
    '/orders/7',
    '-X',
    'POST',
    '-H',
    'Idempotency-Key: k-1',
    '-H',
    'X-Kind: order',
    '--show-values',
  ]);
  t.match(shown.stdout, /present: "k-1"$/m);

  const json = async (...args: string[]): Promise<Explanation> => {
    const { code, stdout, stderr } = await run([...args, '--format', 'json']);
    t.equal(code, 0, stderr);
    return JSON.parse(stdout) as Explanation;
  };
  t.match(await json('/forms', '-d', 'id=1', '--host', 'api.example.com'), {
    route: 'forms',
    becomes: { kind: 'claims' },
  });
  const missing = await json('/json', '--json', '{"id');
  t.match(missing.becomes, { kind: 'refused', code: 'key-malformed', status: 400 });
  t.match(missing.key, { digests: [], parts: [{ state: 'malformed', why: /JSON of one reading/ }] });
  t.match((await json('/json')).key?.parts, [{ state: 'absent', why: /there is no content, and it is not optional/ }]);
  const unmet = (await json('/orders/1', '-X', 'POST')).passedOver.find(({ route }) => route === 'orders')?.unmet;
  t.strictSame(unmet, ['header: x-kind has not the value that is wanted']);

  const watched = await run(['/watched?id=1']);
  t.match(watched.stdout, /^ {2}becomes +forwarded as it is: the rule only observes; if it did not:$/m);
  t.match(watched.stdout, /^ {2}in flight +waits for the response of its leader/m);
  const keyless = await run(['/watched']);
  t.match(keyless.stdout, /^ {2}would be +400 key-missing/m);
  t.match((await json('/watched?id=1')).becomes, { kind: 'observed', would: { kind: 'claims' } });

  const input = await run(
    ['--request', '-'],
    ['POST /json\nContent-Type: application/json\n\n{"id":5}\n\n###\nGET /x\n'],
  );
  t.match(input.stdout, /body: \/id +present: number, 1 character$/m);
  t.match(input.stdout, /^GET \/x$/m, 'each of several');
  const stdin = await run(['/json', '-d', '@-', '--show-values'], ['{"id":', '"abc"}']);
  t.match(stdin.stdout, /present: "abc"$/m);

  const codes: readonly [number, RegExp, ...string[]][] = [
    [2, /expected a target/],
    [2, /expected METHOD TARGET/, 'GET', '/a', '/b'],
    [2, /nothing of it on the command line/, '--request', 'x', '/a'],
    [2, /ENOENT/, '--request', '/nowhere'],
    [2, /ENOENT/, '--log', '/nowhere'],
    [2, /in the log/, '--log', 'x', '/a'],
    [2, /Allowed choices/, '/a', '--format', 'yaml'],
    [1, /switched off/, '/json', '--json', '{"id":1}', '--live'],
    [78, /ENOENT|no such file|cannot/i, '/a', '-c', join(folder, 'nothing.yaml')],
  ];
  for (const [code, what, ...args] of codes) {
    const result = await run(args);
    t.equal(result.code, code, args.join(' '));
    t.match(result.stderr, what);
  }
});

t.test('the page shows what the command prints', async (t) => {
  const page = readFileSync(join(ROOT, 'docs/explain.md'), 'utf8');
  const args = [
    'POST',
    '/auth/sessions/refresh',
    '-H',
    'Authorization: Bearer abc',
    '--json',
    '{"refreshToken":"0123456789"}',
  ];
  const { run } = commands(t, readFileSync(join(ROOT, 'config/gateway.yaml'), 'utf8'));
  const { stdout } = await run(args);
  t.ok(page.includes(`\`\`\`\n${stdout}\`\`\`\n`), stdout);
});

t.test('a log, in text and in JSON', async (t) => {
  const { run } = commands(t);
  const line = (at: number, id: number) =>
    `${JSON.stringify({ time: 1_700_000_000 + at, method: 'POST', target: '/json', content: `{"id":${id}}`, durationMs: 1500 })}\n`;
  const input = [line(0, 1), line(1, 1), line(1, 2), 'no line\n', line(9, 1)];
  const text = await run(['--log', '-'], input);
  t.equal(text.code, 0, text.stderr);
  t.match(text.stdout, /^route +policy +requests +led +rejected +calls saved +seconds saved$/m);
  t.match(text.stdout, /^json +reject +4 +3 +1 +1 +1\.5$/m);
  t.match(text.stdout, /^4 requests, 1 lines that cannot be read\n {2}line 4: not JSON$/m);
  const json = JSON.parse((await run(['--log', '-', '--format', 'json'], input)).stdout) as LogReport;
  t.match(json, { requests: 4, badLines: 1, routes: [{ route: 'json', fates: { led: 3, rejected: 1 } }] });
});

t.test('100,000 lines pass through a process with little memory', async (t) => {
  const { run } = commands(t);
  const pad = 'x'.repeat(1_500);
  function* lines(): Generator<string> {
    for (let i = 0; i < 100_000; i += 1) {
      const content = `{"id":${Math.floor(i / 2)},"pad":"${pad}${i}"}`;
      yield `${JSON.stringify({ time: 1_700_000_000_000 + i, method: 'POST', target: '/json', content, durationMs: 5 })}\n`;
    }
  }
  const { code, stdout, stderr } = await run(['--log', '-', '--format', 'json'], lines(), ['--max-old-space-size=144']);
  t.equal(code, 0, stderr.slice(-500));
  t.match(JSON.parse(stdout), {
    requests: 100_000,
    badLines: 0,
    routes: [
      { fates: { led: 50_000, rejected: 50_000 }, tooCoarse: { pairs: 50_000, differing: [{ name: 'body: /pad' }] } },
    ],
  });
});

t.test('lines of a stream, in whatever pieces it comes', async (t) => {
  async function* pieces(...texts: (string | Buffer)[]) {
    for (const text of texts) yield Buffer.from(text);
  }
  const all = async (limit: number, ...texts: (string | Buffer)[]) => {
    const found: string[] = [];
    for await (const line of linesOf(pieces(...texts), limit)) {
      found.push(`${line.number} ${line.kind === 'line' ? line.text : 'too long'}`);
    }
    return found;
  };
  const euro = Buffer.from('\u20ac\n');
  t.strictSame(await all(10, 'a', 'b\nc\n', euro.subarray(0, 1), euro.subarray(1), 'end'), [
    '1 ab',
    '2 c',
    '3 \u20ac',
    '4 end',
  ]);
  t.strictSame(await all(3, 'abcdef', 'gh\nok\n', 'abcd'), ['1 too long', '2 ok', '3 too long']);
  t.strictSame(await all(3), []);
});
