/** Durations and sizes as the configuration writes them. A text that matches the pattern always has a value. */

/** `250ms`, `3s`, `5m`, `24h`, and a bare `0`. Nine digits keep every value an exact integer. */
export const DURATION = /^(?:0|([0-9]{1,9})(ms|s|m|h))$/;
/** `512`, `512B`, `64KiB`, `8MiB`, `2GiB`. */
export const SIZE = /^([0-9]{1,12})(B|KiB|MiB|GiB)?$/;

/** `1%`, `0.05%`, `100%`. */
export const PERCENTAGE = /^(100|[0-9]{1,2}(?:\.[0-9]{1,3})?)%$/;

const MILLISECONDS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
const BYTES: Readonly<Record<string, number>> = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

/** Milliseconds of a duration; NaN for what is none, so that every comparison with a limit fails. */
export function durationMs(value: string | number): number {
  if (value === 0 || value === '0') return 0;
  const [, digits, unit] = DURATION.exec(String(value)) ?? [];
  return Number(digits) * (MILLISECONDS[unit ?? ''] ?? Number.NaN);
}

/** Bytes of a size, a bare number being bytes; NaN for what is none. */
export function sizeBytes(value: string | number): number {
  const [, digits, unit] = SIZE.exec(String(value)) ?? [];
  return Number(digits) * (BYTES[unit ?? 'B'] ?? Number.NaN);
}

/** A percentage as a part of 1; NaN for what is none. */
export function shareOf(value: string): number {
  const [, digits] = PERCENTAGE.exec(value) ?? [];
  return Number(digits) / 100;
}
