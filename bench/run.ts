/**
 * `npm run bench`: Oneflight and its peers on the same work in the same run, the goals, and which of them hold.
 *
 *     npm run bench -- [--quick] [name ...]
 *
 * Names choose measurements by any part of theirs. Markdown goes to standard output, progress to standard error. It ends
 * with 0 whether goals hold or not, which is for people to judge on the machine at hand, and with 1 when something could not
 * be measured.
 */

import { cpus, loadavg, release, totalmem } from 'node:os';
import type { BenchOptions } from './bench-options.js';
import { burst } from './burst.js';
import { pin, pins } from './cores.js';
import { distinct } from './distinct.js';
import { type Findings, tableText, type Verdict, verdictsText } from './figures.js';
import { followers } from './followers.js';
import { jsonKey } from './json-key.js';
import { largeResponse } from './large-response.js';
import { pass } from './pass.js';
import { peers } from './peers.js';
import { startUp } from './start.js';
import { startUpstreamProgram } from './upstream.js';
import { volume } from './volume.js';
import { wakeUp } from './wake-up.js';

const MEASUREMENTS: Readonly<Record<string, (options: BenchOptions) => Promise<Findings>>> = {
  pass,
  distinct,
  'json-key': jsonKey,
  'large-response': largeResponse,
  volume,
  followers,
  'wake-up': wakeUp,
  burst,
  start: startUp,
};

const words = process.argv.slice(2);
const quick = words.includes('--quick');
const filters = words.filter((word) => !word.startsWith('--'));
const chosen = Object.entries(MEASUREMENTS).filter(
  ([name]) => filters.length === 0 || filters.some((filter) => name.includes(filter)),
);
const tell = (line: string): void => void process.stderr.write(`${line}\n`);

if (!pins) tell('not pinned: that takes two cores and taskset');
pin(process.pid, 'load');
const upstream = await startUpstreamProgram();
try {
  const found = await peers(tell);
  const [{ model = '' } = {}] = cpus();
  const machine = `${cpus().length} cores of ${model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}`;
  const versions = found.map(({ name, version }) => `${name} ${version}`).join(', ');
  const load = loadavg().map((load) => load.toFixed(1));
  console.log(
    `Machine: ${machine}; Node ${process.version}; ${versions}. Load average at the start: ${load.join(', ')}.\n`,
  );
  const verdicts: Verdict[] = [];
  for (const [name, measure] of chosen) {
    tell(`${name} …`);
    try {
      const findings = await measure({ quick, upstream, peers: found, tell });
      for (const table of findings.tables) console.log(tableText(table));
      verdicts.push(...findings.verdicts);
    } catch (error) {
      tell(`${name} could not be measured: ${error instanceof Error ? error.message : String(error)}`);
      process.exitCode = 1;
    }
  }
  console.log(verdictsText(verdicts));
} finally {
  await upstream.stop();
}
