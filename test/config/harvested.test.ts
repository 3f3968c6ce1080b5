/**
 * What holds for every good configuration that the tests of the configuration, the documents and the examples have: an
 * editor finds nothing wrong with it, and what is printed of it is the same configuration.
 */

import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { parse } from 'yaml';
import { editorSchema } from '../../src/config/editor-schema.js';
import { loadConfig } from '../../src/config/load.js';
import type { Harvested } from '../support/harvest.js';

t.setTimeout(120_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const HOOK = pathToFileURL(resolve(ROOT, 'dist/test/support/harvest-hook.js')).href;
const TESTS = ['include', 'listener', 'load', 'reconcile', 'redis', 'upstreams', 'warnings', 'workers'];
const run = promisify(execFile);

type Check = ((value: unknown) => boolean) & { readonly errors?: unknown };
const { default: Ajv } = createRequire(createRequire(import.meta.url).resolve('yaml-language-server'))('ajv') as {
  default: new (options: object) => { compile(schema: object): Check };
};
const accepts = new Ajv({ strict: false, allErrors: true }).compile(editorSchema());

/** What the editor reads: no reference is expanded. */
function readByEditor(text: string): unknown {
  return parse(text, { schema: 'core', maxAliasCount: -1, uniqueKeys: false, logLevel: 'silent' });
}

async function harvestOf(file: string, test: string): Promise<Harvested[]> {
  // The same tests may be run at the same time: here they have their folders in one of their own.
  const own = dirname(file);
  const env = { ...process.env, HARVEST: file, TAP: '1', TAP_CWD: own };
  await run(process.execPath, ['--import', HOOK, resolve(ROOT, `dist/test/config/${test}.test.js`)], {
    env,
    cwd: ROOT,
    maxBuffer: 2 ** 26,
  });
  return readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Harvested);
}

t.test('good configurations of the tests', async (t) => {
  const folder = t.testdir({});
  const all: Harvested[] = [];
  for (const test of TESTS) all.push(...(await harvestOf(join(folder, test), test)));
  t.ok(all.length > 250, `there are many: ${all.length}`);
  t.ok(all.filter(({ again }) => again === 'same').length > 200, 'few of them have secrets');
  const refused = all.filter(({ text }) => !accepts(readByEditor(text)));
  t.same(
    refused.map(({ text }) => text),
    [],
    'an editor accepts them',
  );
  const changed = all.filter(({ again }) => again !== 'same' && again !== 'masked');
  t.same(
    changed.map(({ again, printed }) => `${again}\n${printed}`),
    [],
    'printed, they say the same',
  );
});

t.test('configurations in documents and examples', async (t) => {
  const files = [
    'README.md',
    ...readdirSync(resolve(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.md'))
      .map((name) => `docs/${name}`),
  ];
  const blocks = files.flatMap((file) =>
    [...readFileSync(resolve(ROOT, file), 'utf8').matchAll(/^```yaml\n([\s\S]*?)^```/gm)].map(([, text = '']) => text),
  );
  const examples = readdirSync(resolve(ROOT, 'config'))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => readFileSync(resolve(ROOT, 'config', name), 'utf8'));
  // A part of a configuration shows no upstream.
  const texts = [...blocks, ...examples].flatMap((text) => [text, `upstreams: { api: { url: http://a } }\n${text}`]);
  const isGood = (text: string) => loadConfig('gateway.yaml', process.env, Buffer.from(text)).kind === 'loaded';
  const good = texts.filter(isGood);
  t.ok(good.length > 5, `there are some: ${good.length} of ${blocks.length + examples.length}`);
  t.same(
    good.filter((text) => !accepts(readByEditor(text))),
    [],
  );
});
