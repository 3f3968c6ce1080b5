/** Configuration files with one error, in which the sign ▶ stands before the place that the error must name. */

import type { Test } from 'tap';
import type { Fault } from '../../src/config/fault.js';
import type { LoadResult } from '../../src/config/load.js';

/** A file: its text, the field's path, what was expected (beginning), what came, what was meant. */
export type Marked = readonly [text: string, path: string, expected: string, got: string, suggestion?: string];

export function errorsOf(result: LoadResult): readonly Fault[] {
  return result.kind === 'invalid' ? result.errors : [];
}

/** Each of them has that error, at its mark, and no other. The mark is taken out before loading. */
export function haveErrorsAtMarks(t: Test, files: readonly Marked[], load: (text: string) => LoadResult): void {
  for (const [marked, path, expected, got, suggestion] of files) {
    const before = marked.slice(0, marked.indexOf('▶')).split('\n');
    const place = { line: before.length, column: before.at(-1)!.length + 1 };
    const errors = errorsOf(load(marked.replace('▶', '')));
    const said = errors.map(({ code: _, ...error }) => ({
      ...error,
      file: '',
      expected: error.expected.slice(0, expected.length),
    }));
    t.same(said, [{ file: '', path, expected, got, suggestion: suggestion ?? null, ...place }], marked);
  }
}
