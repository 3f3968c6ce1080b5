/** The folders that are watched: which, how long, and what is told of them. */

import fs, { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import t from 'tap';
import { delay, eventually } from '../support/gate.js';

/** Watches that are open: of one folder the system counts but one, however many there are. */
let open = 0;
const real = fs.watch;
fs.watch = ((...options: Parameters<typeof real>) => {
  const watcher = real(...options);
  open += 1;
  const close = watcher.close.bind(watcher);
  let isOpen = true;
  watcher.close = () => {
    if (isOpen) open -= 1;
    isOpen = false;
    close();
  };
  return watcher;
}) as typeof real;
syncBuiltinESMExports();
const { FileWatch } = await import('../../src/config/file-watch.js');

t.test('of many paths each folder is watched once, and only as long as it is asked for', async (t) => {
  const folder = t.testdir({ a: { one: '', two: '' }, b: { three: '' } });
  const watch = new FileWatch(() => {});
  const paths = ['a/one', 'a/two', 'b/three', 'a/none', 'c/not/there'].map((name) => join(folder, name));
  for (let i = 0; i < 100; i += 1) watch.watch(paths);
  t.equal(open, 3, 'a, b, and where c would be');
  for (let i = 0; i < 100; i += 1) {
    rmSync(join(folder, 'a'), { recursive: true });
    mkdirSync(join(folder, 'a'));
    watch.watch(paths);
  }
  t.equal(open, 3, 'folders that were made anew are watched anew, and the old ones no more');
  watch.watch([join(folder, 'b/three')]);
  t.equal(open, 1);
  watch.close();
  t.equal(open, 0);
  watch.watch(paths);
  t.equal(open, 0, 'not after the end');
});

t.test('links that lead in a circle end somewhere', async (t) => {
  const folder = t.testdir();
  symlinkSync('two', join(folder, 'one'));
  symlinkSync('one', join(folder, 'two'));
  const watch = new FileWatch(() => {});
  watch.watch([join(folder, 'one'), join(folder, 'one', 'file')]);
  t.equal(open, 1);
  watch.close();
});

t.test('several changes in a moment are told once; a folder without rest is told of all the same', async (t) => {
  const folder = t.testdir();
  const file = join(folder, 'file');
  let told = 0;
  const watch = new FileWatch(() => (told += 1));
  watch.watch([file]);
  for (let i = 0; i < 5; i += 1) {
    writeFileSync(join(folder, 'new'), String(i));
    renameSync(join(folder, 'new'), file);
  }
  await eventually('told', () => told > 0);
  t.equal(told, 1);
  let isOver = false;
  const restless = (async () => {
    while (!isOver) {
      writeFileSync(join(folder, 'log'), 'x');
      await delay(20);
    }
  })();
  await eventually('told again', () => told > 1);
  isOver = true;
  await restless;
  watch.close();
});
