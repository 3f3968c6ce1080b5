/** The one way to a new configuration: what is swapped, what is told, and what goes on when something is wrong with it. */

import { execFileSync, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Config } from '../../src/config/config.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { Reloading, type ReloadNews } from '../../src/config/reloading.js';

const API = 'upstreams: { api: { url: "http://127.0.0.1:3000" } }\n';

type Rig = {
  readonly reloading: Reloading;
  readonly swapped: Config[];
  readonly told: ReloadNews[];
  put(text: string): void;
};

function rig(t: Test, change: { load?: () => LoadResult; swap?: (config: Config) => Promise<void> } = {}): Rig {
  const file = join(t.testdir(), 'gateway.yaml');
  const put = (text: string) => writeFileSync(file, text);
  put(API);
  const load = () => loadConfig(file, {});
  const first = load();
  if (first.kind === 'invalid') throw new Error('the first file is bad');
  const [swapped, told] = [[] as Config[], [] as ReloadNews[]];
  const reloading = new Reloading({
    source: { first, load: change.load ?? load },
    swap: async (config) => {
      await change.swap?.(config);
      swapped.push(config);
    },
    tell: (news) => told.push(news),
  });
  t.teardown(() => reloading.stop());
  return { reloading, swapped, told, put };
}

t.test('what came of it are plain values, which another process can be sent', async (t) => {
  const { reloading, put, swapped, told } = rig(t);
  put(`${API}drain: 1s\nlisten: { port: 1 }\n`);
  const results = [await reloading.reload()];
  put(`${API}drain: soon\n`);
  results.push(await reloading.reload());
  put(API);
  results.push(await reloading.reload(), await reloading.reload());
  t.same(JSON.parse(JSON.stringify(results)), results);
  t.same(
    results.map(({ kind }) => kind),
    ['reloaded', 'refused', 'reloaded', 'unchanged'],
  );
  t.same(
    swapped.map(({ drainMs, listen }) => [drainMs, listen.port]),
    [
      [1_000, 8080],
      [30_000, 8080],
    ],
  );
  t.same(
    told.map(({ isGoodAgain }) => isGoodAgain),
    [false, false, true, false],
  );
});

t.test('warnings are told with what they are warnings of, once', async (t) => {
  const { reloading, put, told } = rig(t);
  put(`${API}include: [none/*.yaml]\ndrain: 1s\n`);
  await reloading.reload();
  await reloading.reload();
  t.same(
    told.map(({ warnings }) => warnings.length),
    [1, 0],
  );
});

t.test('what cannot be swapped is refused, and the next one is not held up', async (t) => {
  let isBroken = true;
  const { reloading, put, swapped } = rig(t, {
    swap: async () => {
      if (isBroken) throw new Error('no memory for it');
    },
  });
  put(`${API}drain: 1s\n`);
  t.match(await reloading.reload(), { kind: 'refused', errors: [{ got: 'no memory for it' }] });
  t.equal(reloading.state.errors.length, 1);
  isBroken = false;
  t.match(await reloading.reload(), { kind: 'reloaded', changed: ['drain'] });
  t.equal(swapped.length, 1);
  t.same(reloading.state.errors, []);
});

t.test('a loader that fails in a way of its own refuses, and is asked again', async (t) => {
  let count = 0;
  const { reloading } = rig(t, {
    load: () => {
      count += 1;
      throw new Error('a fault of the loader');
    },
  });
  for (let i = 0; i < 2; i += 1) {
    t.match(await reloading.reload(), { kind: 'refused', errors: [{ got: 'a fault of the loader' }] });
  }
  t.equal(count, 2);
});

t.test('reloads that are asked for at once come one after the other', async (t) => {
  let running = 0;
  const { reloading, put, swapped } = rig(t, {
    swap: async () => {
      running += 1;
      t.equal(running, 1);
      await new Promise((resolve) => setImmediate(resolve));
      running -= 1;
    },
  });
  put(`${API}drain: 1s\n`);
  const results = await Promise.all([reloading.reload(), reloading.reload(), reloading.reload()]);
  t.same(
    results.map(({ kind }) => kind),
    ['reloaded', 'unchanged', 'unchanged'],
  );
  t.equal(swapped.length, 1);
});

t.test('a pipe is read once, and never waited for again', async (t) => {
  const pipe = join(t.testdir(), 'pipe');
  execFileSync('mkfifo', [pipe]);
  // Another process: this one waits for what it reads.
  spawn('/bin/sh', ['-c', 'printf %s "$1" > "$2"', 'sh', API, pipe]);
  const first = loadConfig(pipe, {});
  if (first.kind === 'invalid') throw new Error(JSON.stringify(first.errors));
  const load = () => {
    throw new Error('it would block');
  };
  const reloading = new Reloading({ source: { first, load }, swap: async () => {}, tell: () => {} });
  t.teardown(() => reloading.stop());
  t.equal(first.files.haveChanged(), false);
  t.match(await reloading.reload(), { kind: 'refused', errors: [{ got: 'a pipe' }] });
});
