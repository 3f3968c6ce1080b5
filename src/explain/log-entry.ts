/**
 * One line of a log of requests: a JSON object with a time and a request (docs/explain.md). Members that are not known are
 * passed over, so that the lines of other programs need only what is wanted here.
 */

import { readTold, type ToldJson, type ToldRequest } from '../http/told-request.js';

export type LogEntry = {
  /** When the request arrived, ms since 1970. */
  readonly atMs: number;
  /** How long its answer took; 0 where the line does not say. */
  readonly durationMs: number;
  /** 200 where the line does not say. */
  readonly status: number;
  readonly request: ToldRequest;
  /** What the line tells of the request, beside method and target: what is not told cannot be judged by. */
  readonly tells: { readonly fields: 'yes' | 'no'; readonly content: 'yes' | 'no'; readonly duration: 'yes' | 'no' };
};

type LineJson = ToldJson & { readonly time?: unknown; readonly status?: unknown; readonly durationMs?: unknown };

/** Numbers below it are seconds: as milliseconds they would be of 1973 or earlier. */
const LEAST_MS = 1e11;

/** Reads a line; a sentence when it is no entry. */
export function readLogEntry(line: string): LogEntry | string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    return 'not JSON';
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return 'not a JSON object';
  const entry = parsed as LineJson;
  const atMs = timeOf(entry.time);
  if (atMs === null) return 'time must be a text of ISO 8601, or a number of seconds or milliseconds since 1970';
  const { durationMs = 0, status = 200 } = entry;
  if (typeof durationMs !== 'number' || !(durationMs >= 0)) return 'durationMs must be a number, 0 or more';
  if (typeof status !== 'number' || !Number.isInteger(status)) return 'status must be a whole number';
  if (entry.method === undefined) return 'method is missing';
  const request = readTold(entry);
  if (typeof request === 'string') return request;
  const hasContent = (entry.content ?? entry.contentBase64 ?? null) !== null;
  return {
    atMs,
    durationMs,
    status,
    request,
    tells: {
      fields: (entry.headers ?? null) === null ? 'no' : 'yes',
      content: hasContent ? 'yes' : 'no',
      duration: entry.durationMs === undefined ? 'no' : 'yes',
    },
  };
}

function timeOf(time: unknown): number | null {
  const ms = typeof time === 'string' ? Date.parse(time) : typeof time === 'number' ? time : Number.NaN;
  if (!Number.isFinite(ms)) return null;
  return typeof time === 'number' && ms < LEAST_MS ? ms * 1000 : ms;
}
