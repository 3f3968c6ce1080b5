/** `oneflight init`: a configuration to begin with, and beside it the schema that its first line names for editors. */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { editorSchemaText, SCHEMA_FILE } from '../config/editor-schema.js';
import { DONE, FAILED } from './exit-code.js';

export type InitOptions = {
  /** Where the configuration is to stand; `-`: on standard output, alone. */
  readonly file: string;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
};

/** The example of the repository, put beside this file by the build. */
const EXAMPLE = new URL('./gateway.yaml', import.meta.url);

/** Writes what is not there yet: 0 done, 1 when the file is there already or cannot be written. Nothing is ever overwritten. */
export async function init({ file, write, writeError }: InitOptions): Promise<number> {
  const text = readFileSync(EXAMPLE, 'utf8');
  if (file === '-') {
    write(text);
    return DONE;
  }
  const failed = created(file, text);
  if (failed !== null) {
    writeError(`oneflight init: ${file}: ${failed}\n`);
    return FAILED;
  }
  const schema = join(dirname(file), SCHEMA_FILE);
  // One that is there is of no less use: another version's has most of the same options.
  const kept = created(schema, editorSchemaText());
  const told =
    kept === null ? `and ${schema}, by which editors complete, explain and check it` : `(${schema}: ${kept})`;
  write(`wrote ${file} ${told}\nnext: oneflight validate -c ${file}\n`);
  return DONE;
}

/** Makes a file, and the folders that lead to it. Answers why not; null: it is made. */
function created(file: string, text: string): string | null {
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text, { flag: 'wx' });
    return null;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === 'EEXIST' ? 'it is there already, and is left as it is' : message;
  }
}
