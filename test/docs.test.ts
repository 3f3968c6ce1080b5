/** What is made from the options is what it would be made anew: the reference page, and the schema beside the examples. */

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { describedSchema, type JsonSchema } from '../src/config/json-schema.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const run = promisify(execFile);

t.test('the reference page and the schema are not out of date', async () => {
  await run(process.execPath, [resolve(ROOT, 'scripts/docs.mjs'), '--check']);
});

/** Every option with a sentence, and those that have none. */
function optionsOf(schema: JsonSchema, path = ''): [path: string, description: string][] {
  const below = [schema.items, ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].filter((one) => one !== undefined);
  const more = typeof schema.additionalProperties === 'object' ? [schema.additionalProperties] : [];
  return [
    ...Object.entries(schema.properties ?? {}).flatMap(([name, one]): [string, string][] => [
      [`${path}${name}`, one.description ?? ''],
      ...optionsOf(one, `${path}${name}.`),
    ]),
    ...[...below, ...more].flatMap((one) => optionsOf(one, path)),
  ];
}

t.test('every option has a sentence, and stands in the reference', async (t) => {
  const options = optionsOf(describedSchema());
  t.ok(options.length > 150, `${options.length} options`);
  t.same(
    options.filter(([, description]) => !/[.]$/.test(description)).map(([path]) => path),
    [],
  );
  const page = readFileSync(resolve(ROOT, 'docs/reference.md'), 'utf8');
  const missing = options.filter(
    ([, description]) => !page.toLowerCase().includes(description.toLowerCase().replaceAll('|', '\\|')),
  );
  t.same(
    missing.map(([path]) => path),
    [],
  );
});
