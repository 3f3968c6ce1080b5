/** Figures of several runs: their middle, their range, and how they compare with a goal. */

/** What a goal asks for, and what was measured. */
export type Verdict = {
  readonly what: string;
  readonly goal: string;
  readonly measured: string;
  readonly holds: boolean;
};

export type Table = {
  readonly title: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** How it was measured, one sentence or two. */
  readonly note: string;
};

export type Findings = { readonly tables: readonly Table[]; readonly verdicts: readonly Verdict[] };

export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** `1.23 (1.10–1.41)`: median and range. */
export function spread(values: readonly number[], digits: number): string {
  if (values.length === 0) return '–';
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const middle = median(values).toFixed(digits);
  return values.length === 1 ? middle : `${middle} (${least.toFixed(digits)}–${most.toFixed(digits)})`;
}

/** Ratios of what was measured side by side: the first with the first, the second with the second. */
export function ratios(of: readonly number[], to: readonly number[]): number[] {
  return of.slice(0, to.length).map((value, index) => value / (to[index] as number));
}

export function atMost(what: string, values: readonly number[], bound: number, unit = ' ×', digits = 2): Verdict {
  const holds = median(values) <= bound;
  return { what, goal: `≤ ${bound}${unit}`, measured: `${spread(values, digits)}${unit}`, holds };
}

export function atLeast(what: string, values: readonly number[], bound: number, unit = ' ×', digits = 2): Verdict {
  const holds = median(values) >= bound;
  return { what, goal: `≥ ${bound}${unit}`, measured: `${spread(values, digits)}${unit}`, holds };
}

/** As Markdown. */
export function tableText({ title, head, rows, note }: Table): string {
  return `## ${title}\n\n${note}\n\n${linesOf(head, rows)}\n`;
}

export function verdictsText(verdicts: readonly Verdict[]): string {
  const rows = verdicts.map(({ what, goal, measured, holds }) => [what, goal, measured, holds ? 'yes' : '**no**']);
  return `## Goals\n\n${linesOf(['what', 'goal', 'measured: median (range)', 'holds'], rows)}\n`;
}

function linesOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, at) => Math.max(title.length, ...rows.map((row) => (row[at] ?? '').length)));
  const line = (cells: readonly string[]) =>
    `| ${widths.map((width, at) => (cells[at] ?? '').padEnd(width)).join(' | ')} |`;
  return [line(head), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...rows.map(line)].join('\n');
}
