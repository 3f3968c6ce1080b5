/** Clients reach the gateway over TLS, and its certificate is renewed under way. */

import { copyFileSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type SecureVersion, type TLSSocket } from 'node:tls';
import t, { type Test } from 'tap';
import { RawClient, request } from '../support/client.js';
import { dial, secured, TRUSTING, tlsFile, tlsYaml } from '../support/dial.js';
import { eventually, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const stub = await startUpstream(t);

function start(t: Test, tls: string, env: Readonly<Record<string, string>> = {}, more = ''): Promise<Gateway> {
  const config = configOf({ upstream: stub.url, routes: '', listen: `tls: ${tls}`, more });
  return startGateway(t, { config, env });
}

/** Name of the server that a new connection meets. */
async function certificateOf(url: string): Promise<string> {
  const socket = dial(url) as TLSSocket;
  await within(
    10_000,
    'a handshake',
    new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject)),
  );
  const { subject } = socket.getPeerCertificate();
  socket.destroy();
  return String(subject.CN);
}

function handshake(url: string, versions: { minVersion?: SecureVersion; maxVersion?: SecureVersion }): Promise<string> {
  const { port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connectTls({ ...TRUSTING, host: '127.0.0.1', port: Number(port), ...versions }, () => {
      resolve(socket.getProtocol() ?? '');
      socket.destroy();
    });
    socket.once('error', () => resolve('refused'));
  });
}

t.test('requests over TLS are answered, and the upstream is told', async (t) => {
  const gateway = await start(t, tlsYaml());
  t.match(gateway.url, /^https:\/\/127\.0\.0\.1:\d+$/, 'the log says https');
  const answer = await request(gateway.url, { path: '/tls' });
  t.equal(answer.status, 200);
  t.equal(stub.callsOf('/tls')[0]?.header('x-forwarded-proto'), 'https');
  t.equal(await handshake(gateway.url, {}), 'TLSv1.3');
  t.equal(await handshake(gateway.url, { maxVersion: 'TLSv1.2' }), 'TLSv1.2');
  await gateway.stop();
});

t.test('the material may be text, and the oldest version may be a newer one', async (t) => {
  const env = { CERT: readFileSync(tlsFile('one.pem'), 'latin1') };
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.
  const cert = '"${CERT}"';
  const gateway = await start(t, `{ cert: ${cert}, key: "\${file:${tlsFile('one.key')}}", minVersion: TLSv1.3 }`, env);
  t.equal((await request(gateway.url, { path: '/text' })).status, 200);
  t.equal(await handshake(gateway.url, { maxVersion: 'TLSv1.2' }), 'refused');
});

/** A folder as Kubernetes mounts a secret: what it holds is swapped by one rename of a link. */
class Secret {
  readonly #folder: string;
  #version = 0;

  constructor(folder: string) {
    this.#folder = folder;
    this.put('one.pem', 'one.key');
    for (const name of ['tls.crt', 'tls.key']) symlinkSync(join('..data', name), join(folder, name));
  }

  get yaml(): string {
    return `{ cert: "${join(this.#folder, 'tls.crt')}", key: "${join(this.#folder, 'tls.key')}" }`;
  }

  put(cert: string, key: string): void {
    const version = `..v${++this.#version}`;
    mkdirSync(join(this.#folder, version));
    copyFileSync(tlsFile(cert), join(this.#folder, version, 'tls.crt'));
    copyFileSync(tlsFile(key), join(this.#folder, version, 'tls.key'));
    symlinkSync(version, join(this.#folder, '..data_tmp'));
    renameSync(join(this.#folder, '..data_tmp'), join(this.#folder, '..data'));
  }
}

function logged(gateway: Gateway, message: string): number {
  return gateway.logs.filter(({ msg }) => msg === message).length;
}

t.test('new files are used for new connections, swap after swap, and running ones go on', async (t) => {
  const secret = new Secret(t.testdir());
  const gateway = await start(t, secret.yaml);
  const old = await RawClient.connect(gateway.url);
  const ask = async () => {
    old.write('GET /kept HTTP/1.1\r\nHost: a\r\n\r\n');
    return (await old.answer())?.status;
  };
  t.equal(await ask(), 200);
  t.equal(await certificateOf(gateway.url), 'server one');
  for (const name of ['two', 'one', 'two']) {
    secret.put(`${name}.pem`, `${name}.key`);
    await eventually(`server ${name}`, async () => (await certificateOf(gateway.url)) === `server ${name}`);
    t.equal(await ask(), 200, 'the connection from before goes on');
  }
  t.equal(logged(gateway, 'certificate renewed'), 3);
  old.close();
});

const REFUSED = 'certificate not renewed: the one in use stays';

t.test('a pair that cannot be used changes nothing and is told once', async (t) => {
  const secret = new Secret(t.testdir());
  const gateway = await start(t, secret.yaml);
  const pairs = [
    ['two.pem', 'one.key', 'that of another one'],
    ['broken.pem', 'two.key', 'a certificate in PEM'],
    ['two.pem', 'broken.key', 'a private key in PEM'],
  ] as const;
  for (const [at, [cert, key, why]] of pairs.entries()) {
    secret.put(cert, key);
    await eventually(`${cert} and ${key} refused`, () => logged(gateway, REFUSED) === at + 1);
    const line = gateway.logs.findLast(({ msg }) => msg === REFUSED);
    t.match(line, { level: 50, reason: new RegExp(why) });
    t.equal(await certificateOf(gateway.url), 'server one');
    gateway.signal('SIGHUP');
    await eventually('SIGHUP', () => logged(gateway, 'reloading') === at + 1);
    t.equal(logged(gateway, REFUSED), at + 1, 'what was refused is not refused again');
  }
  t.notMatch(gateway.output, /BEGIN|MIGH/, 'nothing of a key is logged');
  secret.put('two.pem', 'two.key');
  await eventually('server two', async () => (await certificateOf(gateway.url)) === 'server two');
});

t.test('a worker that takes the place of another shows what the others show, whatever is in the files', async (t) => {
  const secret = new Secret(t.testdir());
  const gateway = await start(t, secret.yaml, {}, 'workers: 2');
  secret.put('two.pem', 'one.key');
  await eventually('refused by both', () => logged(gateway, REFUSED) === 2);
  const [first] = gateway.logs.filter(({ msg }) => msg === 'worker started');
  process.kill((first as { workerPid: number }).workerPid, 'SIGKILL');
  await eventually('another one', () => logged(gateway, 'worker started') === 3, 20_000);
  await eventually('ready', async () => (await gateway.admin('/readyz')).status === 200);
  for (let i = 0; i < 8; i += 1) t.equal(await certificateOf(gateway.url), 'server one');
  t.equal(logged(gateway, 'worker started'), 3, 'it has stayed');
  secret.put('two.pem', 'two.key');
  await eventually('renewed by both', () => logged(gateway, 'certificate renewed') === 2);
  t.equal(await certificateOf(gateway.url), 'server two');
});

t.test('SIGHUP reads files of which nothing was heard, and ends no gateway', async (t) => {
  const folder = t.testdir({ far: {}, near: {}, between: {} });
  for (const name of ['one', 'two']) {
    copyFileSync(tlsFile(`${name}.pem`), join(folder, 'far', `${name}.pem`));
    copyFileSync(tlsFile(`${name}.key`), join(folder, 'far', `${name}.key`));
  }
  const swap = (name: string) => {
    for (const kind of ['pem', 'key']) {
      symlinkSync(join(folder, 'far', `${name}.${kind}`), join(folder, 'between', `new.${kind}`));
      renameSync(join(folder, 'between', `new.${kind}`), join(folder, 'between', `tls.${kind}`));
    }
  };
  swap('one');
  // A link to a link: neither folder that can be known is touched.
  for (const kind of ['pem', 'key'])
    symlinkSync(join(folder, 'between', `tls.${kind}`), join(folder, 'near', `tls.${kind}`));
  const near = (kind: string) => join(folder, 'near', `tls.${kind}`);
  const gateway = await start(t, `{ cert: "${near('pem')}", key: "${near('key')}" }`);
  t.equal(await certificateOf(gateway.url), 'server one');
  swap('two');
  gateway.signal('SIGHUP');
  await eventually('server two', async () => (await certificateOf(gateway.url)) === 'server two');
  await gateway.stop();

  const plain = await startGateway(t, { config: configOf({ upstream: stub.url, routes: '' }) });
  plain.signal('SIGHUP');
  await eventually('SIGHUP', () => logged(plain, 'reloading') === 1);
  t.equal((await request(plain.url)).status, 200, 'without TLS it ends nothing either');
});

t.test('handshakes that fail end their connection and nothing else', async (t) => {
  const gateway = await start(t, tlsYaml());
  const { port } = new URL(gateway.url);
  const fds = async () => (await gateway.metrics()).sum('process_open_fds');
  const before = await fds();
  const wrong = ['GET / HTTP/1.1\r\nHost: a\r\n\r\n', '\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00', '\x00'.repeat(100)];
  for (const bytes of Array.from({ length: 20 }, () => wrong).flat()) {
    const socket = connect(Number(port), '127.0.0.1');
    let came = 0;
    socket.on('error', () => {}).on('data', (piece: Buffer) => (came += piece.length));
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.write(Buffer.from(bytes, 'latin1'));
    await within(10_000, `the end after ${JSON.stringify(bytes.slice(0, 20))}`, closed);
    t.ok(came < 100, 'no answer but an alert');
  }
  for (let i = 0; i < 20; i += 1) {
    // In the middle of a handshake.
    const socket = connect(Number(port), '127.0.0.1');
    await new Promise((resolve) => socket.once('connect', resolve));
    secured(socket).on('error', () => {});
    socket.resetAndDestroy();
  }
  t.equal(stub.count('/'), 1, 'nothing was forwarded (but one of another test)');
  t.equal((await request(gateway.url, { path: '/after' })).status, 200);
  await eventually('no connection is left', async () => (await fds()) <= before + 2);
});

t.test('a broken pair ends the start, at its line', async (t) => {
  const folder = t.testdir();
  writeFileSync(
    join(folder, 'gateway.yaml'),
    configOf({ upstream: stub.url, routes: '', listen: `tls: { cert: "${tlsFile('one.pem')}", key: two.key }` }),
  );
  copyFileSync(tlsFile('two.key'), join(folder, 'two.key'));
  const gateway = startGateway(t, {
    config: configOf({
      upstream: stub.url,
      routes: '',
      listen: `tls: { cert: "${tlsFile('one.pem')}", key: "${join(folder, 'two.key')}" }`,
    }),
  });
  await t.rejects(gateway, {
    message:
      /ended at start \(78\)[\s\S]*gateway\.yaml:2:\d+: listen\.tls\.key: expected the private key of the certificate, got that of another one/,
  });
});
