/** Numbers and times as they are read. Pure. */

import type { Quantile } from './quantile.js';

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** Exact up to a million. */
export function countText(count: number): string {
  return count < 1_000_000 ? WHOLE.format(count) : COMPACT.format(count);
}

export function rateText(perSecond: number): string {
  if (perSecond === 0) return '0';
  return perSecond < 100 ? TENTHS.format(perSecond) : countText(perSecond);
}

export function shareText(part: number, whole: number): string {
  if (part === 0) return whole === 0 ? '–' : '0 %';
  return `${TENTHS.format((100 * part) / whole)} %`;
}

export function durationText(ms: number): string {
  if (ms < 0) return '0 ms';
  if (ms < 10) return `${Number(ms.toPrecision(2))} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${TENTHS.format(ms / 1_000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1_000)} s`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / (24 * 60))} d ${Math.floor((minutes % (24 * 60)) / 60)} h`;
}

export function quantileText(quantile: Quantile | null): string {
  if (quantile === null) return '–';
  const text = durationText(quantile.seconds * 1_000);
  return quantile.kind === 'above' ? `> ${text}` : text;
}

export function bytesText(bytes: number): string {
  return `${WHOLE.format(bytes / 1_048_576)} MiB`;
}

/** Enough of a digest to tell it from others; the whole is in its title. */
export function shortDigest(digest: string): string {
  return digest.length > 16 ? `${digest.slice(0, 12)}…` : digest;
}
