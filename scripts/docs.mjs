// Writes what is made from the options: the reference page, and the schema that editors load beside the examples. With
// `--check` nothing is written, and the exit code is 1 when one of them is not what it would be. Needs a build.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { editorSchemaText, SCHEMA_FILE } from '../dist/src/config/editor-schema.js';
import { describedSchema, writtenValue } from '../dist/src/config/json-schema.js';
import { referencePage } from './reference.mjs';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));
const files = {
  'docs/reference.md': referencePage(describedSchema(), writtenValue),
  [`config/${SCHEMA_FILE}`]: editorSchemaText(),
};
for (const [file, text] of Object.entries(files)) {
  if (!process.argv.includes('--check')) writeFileSync(file, text);
  else if (readFileSync(file, 'utf8') !== text) {
    console.error(`${file} is out of date: npm run docs`);
    process.exitCode = 1;
  }
}
