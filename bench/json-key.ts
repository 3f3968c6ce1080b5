/** The time of a key from JSON content, in processes of their own (json-key-program.ts). */

import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { BenchOptions } from './bench-options.js';
import { onMeasuredCore } from './cores.js';
import { atMost, type Findings, spread } from './figures.js';

type Timing = { readonly kib: number; readonly keyUs: number; readonly parseUs: number };

export async function jsonKey({ quick }: BenchOptions): Promise<Findings> {
  const program = fileURLToPath(new URL('json-key-program.js', import.meta.url));
  const runs: Timing[][] = [];
  for (let i = 0; i < (quick ? 1 : 5); i += 1) {
    const [first = '', ...args] = onMeasuredCore([process.execPath, program]);
    runs.push(JSON.parse((await promisify(execFile)(first, args)).stdout) as Timing[]);
  }
  const bySize = (runs[0] as Timing[]).map(({ kib }, at) => ({ kib, timings: runs.map((run) => run[at] as Timing) }));
  const ratio = ({ keyUs, parseUs }: Timing) => keyUs / parseUs;
  return {
    tables: [
      {
        title: 'A key from four paths of JSON content',
        head: ['content', 'key, µs', 'decode and parse, µs', 'ratio'],
        rows: bySize.map(({ kib, timings }) => [
          `${kib} KiB`,
          spread(
            timings.map(({ keyUs }) => keyUs),
            1,
          ),
          spread(
            timings.map(({ parseUs }) => parseUs),
            1,
          ),
          spread(timings.map(ratio), 2),
        ]),
        note: 'The whole key, digest and all, beside `JSON.parse(content.toString())`; median and range over processes.',
      },
    ],
    verdicts: bySize.map(({ kib, timings }) =>
      atMost(`key from JSON, ${kib} KiB, to decode and parse`, timings.map(ratio), 1.3),
    ),
  };
}
