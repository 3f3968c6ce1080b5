/**
 * Line plots as SVG, for pages: both axes by powers of ten or two where the figures span them, every point marked, every
 * line named at its end. Colours follow the reader's light or dark setting.
 */

export type Line = { readonly name: string; readonly points: readonly (readonly [x: number, y: number])[] };

export type Plot = {
  readonly title: string;
  readonly x: string;
  readonly y: string;
  readonly lines: readonly Line[];
  /** `log`: every doubling is as far as the one before. */
  readonly xScale: 'linear' | 'log';
  readonly yScale: 'linear' | 'log';
  /** How a number on the horizontal axis is written. */
  readonly xText?: (value: number) => string;
};

const WIDTH = 720;
const HEIGHT = 380;
const LEFT = 76;
const RIGHT = 150;
const TOP = 44;
const BOTTOM = 54;
const COLOURS = ['#2563eb', '#d97706', '#059669', '#db2777'];

/** The text of an SVG file. */
export function plotText(plot: Plot): string {
  const all = plot.lines.flatMap(({ points }) => points);
  const xs = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b);
  const yRange = rangeOf(
    all.map(([, y]) => y),
    plot.yScale,
  );
  const xAt = along(plot.xScale, [xs[0] as number, xs.at(-1) as number], [LEFT, WIDTH - RIGHT]);
  const yAt = along(plot.yScale, yRange, [HEIGHT - BOTTOM, TOP]);
  const xText = plot.xText ?? shortNumber;
  const parts = [
    `<text x="${LEFT}" y="24" class="title">${escaped(plot.title)}</text>`,
    ...ticksOf(yRange, plot.yScale).map(
      (tick) =>
        `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${at(yAt(tick))}" y2="${at(yAt(tick))}" class="grid"/>` +
        `<text x="${LEFT - 8}" y="${at(yAt(tick) + 4)}" text-anchor="end">${shortNumber(tick)}</text>`,
    ),
    ...xs.map(
      (x) => `<text x="${at(xAt(x))}" y="${HEIGHT - BOTTOM + 20}" text-anchor="middle">${escaped(xText(x))}</text>`,
    ),
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 10}" text-anchor="middle">${escaped(plot.x)}</text>`,
    `<text transform="translate(16 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">${escaped(plot.y)}</text>`,
    ...plot.lines.map((line, index) => lineText(line, COLOURS[index % COLOURS.length] as string, xAt, yAt)),
    ...namesText(plot.lines, yAt),
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(plot.title)}">
<style>
  text { font: 12px system-ui, sans-serif; fill: #334155 }
  .title { font-size: 15px; font-weight: 600 }
  .grid { stroke: #94a3b8; stroke-opacity: .35 }
  .back { fill: #ffffff }
  @media (prefers-color-scheme: dark) { text { fill: #cbd5e1 } .back { fill: #0f172a } }
</style>
<rect width="${WIDTH}" height="${HEIGHT}" class="back"/>
${parts.join('\n')}
</svg>
`;
}

function lineText({ points }: Line, colour: string, xAt: Scale, yAt: Scale): string {
  const path = points.map(([x, y]) => `${at(xAt(x))},${at(yAt(y))}`).join(' ');
  const marks = points.map(([x, y]) => `<circle cx="${at(xAt(x))}" cy="${at(yAt(y))}" r="3.5" fill="${colour}"/>`);
  return `<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"/>\n${marks.join('')}`;
}

/** Names stand where their lines end, pushed apart where those are close together. */
function namesText(lines: readonly Line[], yAt: Scale): string[] {
  const ends = lines
    .map(({ name, points }, index) => ({ name, index, y: yAt(points.at(-1)?.[1] ?? 0) }))
    .sort((a, b) => a.y - b.y);
  let last = Number.NEGATIVE_INFINITY;
  return ends.map(({ name, index, y }) => {
    last = Math.max(y, last + 16);
    const colour = COLOURS[index % COLOURS.length] as string;
    return `<text x="${WIDTH - RIGHT + 10}" y="${at(last + 4)}" style="fill: ${colour}">${escaped(name)}</text>`;
  });
}

type Scale = (value: number) => number;

function along(
  kind: Plot['xScale'],
  [from, to]: readonly [number, number],
  [start, end]: readonly [number, number],
): Scale {
  const of = kind === 'log' ? Math.log2 : (value: number) => value;
  const span = of(to) - of(from) || 1;
  return (value) => start + ((of(value) - of(from)) / span) * (end - start);
}

function rangeOf(values: readonly number[], kind: Plot['yScale']): readonly [number, number] {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (kind === 'log') return [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(most))];
  const step = stepOf(most);
  return [0, Math.ceil(most / step) * step];
}

function ticksOf([from, to]: readonly [number, number], kind: Plot['yScale']): number[] {
  const ticks: number[] = [];
  if (kind === 'log') for (let tick = from; tick <= to * 1.001; tick *= 10) ticks.push(tick);
  else for (let tick = 0; tick <= to * 1.001; tick += stepOf(to)) ticks.push(tick);
  return ticks;
}

/** 1, 2 or 5 times a power of ten, so that some five of them make the range. */
function stepOf(most: number): number {
  const raw = most / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 5, 10].find((factor) => factor * power >= raw) as number) * power;
}

/** `1500` → `1.5k`. */
export function shortNumber(value: number): string {
  if (value >= 1e6) return `${trimmed(value / 1e6)}M`;
  return value >= 1e3 ? `${trimmed(value / 1e3)}k` : trimmed(value);
}

function trimmed(value: number): string {
  return String(Number(value.toPrecision(3)));
}

function at(value: number): string {
  return value.toFixed(1);
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
