/** The unit: systemd itself reads it, finds nothing wrong and little exposed, and it says what the program does. */

import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { type Program, programOf } from '../support/debian-package.js';

t.setTimeout(100_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const UNIT = readFileSync(resolve(ROOT, 'deploy/systemd/oneflight.service'), 'utf8');
/** By `systemd-analyze security`, in tenths: what a gateway must have (network, sockets, compiled code) is 1.1 of 10. */
const MOST_EXPOSED = 13;

async function analyze(): Promise<Program> {
  try {
    return await programOf({
      name: 'systemd',
      programs: ['systemd-analyze'],
      packages: ['systemd'],
      path: 'usr/bin/systemd-analyze',
    });
  } catch (cause) {
    throw new Error('no systemd-analyze on PATH, and none could be fetched: install systemd 252 or later', { cause });
  }
}

type Said = { readonly code: number; readonly text: string };

async function said(program: Program, args: readonly string[]): Promise<Said> {
  const result = await promisify(execFile)(program.path, args, { env: program.env }).then(
    (output) => ({ ...output, code: 0 }),
    (error: { stdout: string; stderr: string; code: number }) => error,
  );
  return { code: result.code, text: `${result.stdout}${result.stderr}` };
}

/** A unit in a folder of its own. Nothing is installed here, so that its program is the one that was built. */
function unitFile(t: Test, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-unit-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'oneflight.service');
  writeFileSync(file, text.replace('ExecStart=oneflight ', `ExecStart=${join(ROOT, 'dist/bin/main.js')} `));
  return file;
}

/** The values of a setting, in their order. */
function valuesOf(setting: string): string[] {
  return UNIT.split('\n').flatMap((line) => (line.startsWith(`${setting}=`) ? [line.slice(setting.length + 1)] : []));
}

t.test('systemd finds nothing wrong with it', async (t) => {
  const program = await analyze();
  const { code, text } = await said(program, ['verify', unitFile(t, UNIT)]);
  t.equal(code, 0, text);
  t.equal(text, '', 'and nothing doubtful');
  const planted = await said(program, ['verify', unitFile(t, UNIT.replace('DynamicUser=', 'DynamicUsers='))]);
  t.match(planted.text, /DynamicUsers/, 'a planted fault is seen');
});

t.test('it may do next to nothing', async (t) => {
  const program = await analyze();
  const security = (text: string) =>
    said(program, ['security', '--offline=true', `--threshold=${MOST_EXPOSED}`, unitFile(t, text)]);
  const { code, text } = await security(UNIT);
  t.equal(code, 0, text.trim().split('\n').at(-1) ?? '');
  const planted = await security(UNIT.replace(/^(?:ProtectSystem|PrivateUsers|CapabilityBoundingSet)=.*$/gm, ''));
  t.not(planted.code, 0, 'a unit that may more is over the threshold');
});

t.test('it says what the program does', async (t) => {
  t.strictSame(valuesOf('ExecStart'), ['oneflight start --config /etc/oneflight/gateway.yaml']);
  t.strictSame(valuesOf('ExecReload'), ['kill -HUP $MAINPID']);
  const codes = await import('../../src/cli/exit-code.js');
  t.strictSame(valuesOf('RestartPreventExitStatus'), [`${codes.USAGE} ${codes.BAD_CONFIG}`]);
  t.ok(seconds(valuesOf('TimeoutStopSec')[0]) > 30, 'it waits for longer than the default of drain');
  t.strictSame(valuesOf('KillMode'), ['mixed'], 'workers do not get the signal');
  t.strictSame(valuesOf('MemoryDenyWriteExecute'), [], 'what would end Node');
  for (const credential of valuesOf('LoadCredential')) {
    t.notMatch(credential, ':', `${credential}: one that is missing does not keep it from starting`);
  }
});

function seconds(text = ''): number {
  return Number(/^(\d+)s$/.exec(text)?.[1] ?? Number.NaN);
}
