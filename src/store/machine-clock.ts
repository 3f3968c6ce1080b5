/**
 * Times that mean the same in every process of this machine. `performance.now()` counts from the start of its process;
 * the clock behind it is the machine's.
 */

import { performance } from 'node:perf_hooks';

/** The machine's clock where that of this process was 0, milliseconds. */
const ORIGIN_MS = Number(process.hrtime.bigint()) / 1e6 - performance.now();
/** Between two looks at the clock some time passes, which is not to make a moment later than it was. */
const MARGIN_MS = 1;

/** From a time of this process (`performance.now()`). */
export function toMachineMs(ms: number): number {
  return ms + ORIGIN_MS;
}

/** To a time of this process, a little early. */
export function fromMachineMs(ms: number): number {
  return ms - ORIGIN_MS - MARGIN_MS;
}
