/** `oneflight explain --log`: a log of requests replayed against the rules, and what is told of it. */

import { createReadStream } from 'node:fs';
import type { Config } from '../config/config.js';
import { LogReplay, type LogReport, type MisfitReport, type RouteReport } from '../explain/log-replay.js';
import { linesOf } from './lines.js';
import { table } from './table.js';
import { ArgumentError } from './told-arguments.js';

/** Of one line: a request with as much content as a key reads, in base64. */
const LONGEST_LINE = 16 * 1_048_576;

/** Replays a file, or standard input (`-`). Rejects with `ArgumentError` when it cannot be read. */
export async function replayLog(path: string, config: Config): Promise<LogReport> {
  const replay = new LogReplay(config);
  const stream: AsyncIterable<Buffer> = path === '-' ? process.stdin : createReadStream(path);
  try {
    for await (const line of linesOf(stream, LONGEST_LINE)) {
      if (line.kind === 'line') replay.line(line.text, line.number);
      else replay.bad('longer than 16 MiB', line.number);
    }
  } catch (error) {
    // Nothing but the file has a system's error code.
    const { code, message } = error as NodeJS.ErrnoException;
    throw code === undefined ? error : new ArgumentError(`--log: ${message}`);
  }
  return replay.report();
}

const COLUMNS = [
  ['led', 'led'],
  ['coalesced', 'coalesced'],
  ['replayed', 'replayed'],
  ['rejected', 'rejected'],
  ['queued', 'queued'],
  ['keyReused', '422'],
  ['waitTimeout', 'wait over'],
  ['queueFull', 'queue full'],
  ['notShareable', 'not shareable'],
  ['keyMissing', 'key missing'],
  ['refused', 'refused'],
  ['passed', 'passed'],
  ['notJudged', 'not judged'],
] as const satisfies readonly (readonly [keyof RouteReport['fates'], string])[];

/** The report as text. */
export function logText(report: LogReport): string {
  const { routes } = report;
  const columns = COLUMNS.filter(([fate]) => routes.some((route) => route.fates[fate] > 0));
  const rows = routes.map((route) => [
    route.route,
    route.policy,
    String(route.requests),
    ...columns.map(([fate]) => String(route.fates[fate])),
    String(route.savedCalls),
    (route.savedMs / 1000).toFixed(1),
  ]);
  const head = ['route', 'policy', 'requests', ...columns.map(([, title]) => title), 'calls saved', 'seconds saved'];
  const lines = [
    ...table([head, ...rows]),
    ...routes.flatMap(misfitLines),
    '',
    `${report.requests} requests, ${report.badLines} lines that cannot be read`,
    ...report.firstBadLines.map(({ line, fault }) => `  line ${line}: ${fault}`),
    ...noteLines(report),
  ];
  return `${lines.join('\n')}\n`;
}

function misfitLines({ route, policy, tooFine, byCaller, tooCoarse }: RouteReport): string[] {
  const isLock = policy === 'reject' || policy === 'queue';
  return [
    ...misfitLine(route, 'too fine: equal requests had different keys', tooFine),
    ...misfitLine(route, 'equal requests of different callers had different keys', byCaller),
    ...misfitLine(
      route,
      isLock ? 'different requests have one lock' : 'too coarse: different requests had one key',
      tooCoarse,
    ),
  ];
}

function misfitLine(route: string, what: string, { pairs, differing }: MisfitReport): string[] {
  if (pairs === 0) return [];
  const names = differing.map(({ name, pairs: count }) => `${name} (${count})`).join(', ');
  return ['', `${route}: ${what}, ${pairs} times`, `  they differ in ${names}`];
}

function noteLines({ withoutDuration, late, forgotten, routes }: LogReport): string[] {
  const notJudged = routes.reduce((sum, { fates }) => sum + fates.notJudged, 0);
  const notes: [number, string][] = [
    [withoutDuration, 'lines have no durationMs: their flights end as they begin'],
    [notJudged, 'requests are not judged: their lines have not what the key is made of (headers, content)'],
    [late, 'lines came too late to be put in order'],
    [forgotten, 'keys or requests were forgotten for want of room: more may be equal than is told'],
  ];
  return notes.filter(([count]) => count > 0).map(([count, text]) => `note: ${count} ${text}`);
}
