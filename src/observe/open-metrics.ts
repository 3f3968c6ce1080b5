/**
 * Metrics in the text format of OpenMetrics 1.0, which has exemplars: for scrapers that ask for it. Names, labels and
 * values are those of the other format, so that both make the same series.
 */

import type { Figures } from './metrics.js';

/** A trace in which a value was observed. */
export type Exemplar = {
  readonly labelSet: Readonly<Record<string, string>>;
  readonly value: number;
  /** Seconds since 1970. */
  readonly timestamp: number;
};

type Family = Figures[number];
type Labels = Readonly<Record<string, string | number | undefined>>;
type Value = {
  readonly labels?: Labels;
  readonly value: number;
  readonly metricName?: string;
  readonly exemplar?: Exemplar | null;
};

const TOTAL = '_total';

/** All families, and the end that the format wants. */
export function openMetricsText(figures: Figures): string {
  return `${figures.map(familyText).join('')}# EOF\n`;
}

function familyText({ name, help, type, values }: Family): string {
  const isCounter = String(type) === 'counter';
  // A counter's family is named without what its samples end in.
  const family = isCounter && name.endsWith(TOTAL) ? name.slice(0, -TOTAL.length) : name;
  const lines = [`# TYPE ${family} ${type}`, `# HELP ${family} ${escaped(help)}`];
  for (const { labels = {}, value, metricName, exemplar } of values as readonly Value[]) {
    const sample = metricName ?? (isCounter ? `${family}${TOTAL}` : name);
    lines.push(`${sample}${labelsText(labels)} ${numberText(value)}${exemplarText(exemplar)}`);
  }
  return `${lines.join('\n')}\n`;
}

function exemplarText(exemplar: Exemplar | null | undefined): string {
  if (exemplar === null || exemplar === undefined) return '';
  const { labelSet, value, timestamp } = exemplar;
  return ` # {${pairsOf(labelSet).join(',')}} ${numberText(value)} ${timestamp.toFixed(3)}`;
}

function labelsText(labels: Labels): string {
  const pairs = pairsOf(labels);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function pairsOf(labels: Labels): string[] {
  return Object.entries(labels).flatMap(([name, value]) => {
    return value === undefined ? [] : [`${name}="${escaped(String(value))}"`];
  });
}

function escaped(text: string): string {
  return text.replace(/\\/g, '\\\\').replace(/\n/g, '\\n').replace(/"/g, '\\"');
}

function numberText(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
}

/** Puts the newest exemplars of several processes beside what their figures add up to. */
export function withExemplars(sum: Figures, parts: readonly Figures[]): Figures {
  const newest = new Map<string, Exemplar>();
  for (const { name, values } of parts.flat()) {
    for (const { exemplar, ...value } of values as readonly Value[]) {
      if (exemplar === null || exemplar === undefined) continue;
      const known = newest.get(idOf(name, value));
      if (known === undefined || known.timestamp < exemplar.timestamp) newest.set(idOf(name, value), exemplar);
    }
  }
  if (newest.size === 0) return sum;
  return sum.map((family) => {
    const values = (family.values as readonly Value[]).map((value) => {
      return { ...value, exemplar: newest.get(idOf(family.name, value)) ?? null };
    });
    return { ...family, values } as Family;
  });
}

function idOf(family: string, { metricName = family, labels = {} }: Omit<Value, 'exemplar'>): string {
  return JSON.stringify([metricName, Object.entries(labels).sort(([one], [other]) => (one < other ? -1 : 1))]);
}
