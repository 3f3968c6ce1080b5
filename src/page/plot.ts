/** A plot of the last minutes that moves, with the numbers of now, or of where the pointer is, beside the names of its lines. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { PLOTTED_S, type Point } from './history.js';
import { rateText } from './wording.js';

export type Line = {
  readonly name: string;
  readonly value: (point: Point) => number;
  /** Which of the colours of page.css. */
  readonly colour: 'blue' | 'green' | 'amber' | 'red' | 'violet';
  /** Lines differ by more than their colour. */
  readonly dash: readonly number[];
  readonly fill: 'filled' | 'plain';
};

export type PlotProps = {
  readonly label: string;
  readonly lines: readonly Line[];
  readonly points: readonly Point[];
  /** Seconds since 1970 of the right edge. */
  readonly untilS: number;
};

const HEIGHT_PX = 168;
const LEAST_SPAN_S = 60;
/** An empty scale has a height all the same. */
const LEAST_TOP = 1;

export function Plot({ label, lines, points, untilS }: PlotProps): VNode {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef({ data: dataOf(lines, points), untilS });
  latest.current = { data: dataOf(lines, points), untilS };
  const [pointed, setPointed] = useState<number | null>(null);

  useEffect(() => {
    const { current: element } = place;
    if (element === null) return;
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const draw = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(lines, element, setPointed), latest.current.data, element);
      show(plot.current, latest.current);
    };
    const resized = new ResizeObserver(() => {
      plot.current?.setSize({ width: element.clientWidth, height: HEIGHT_PX });
    });
    draw();
    resized.observe(element);
    dark.addEventListener('change', draw);
    return () => {
      resized.disconnect();
      dark.removeEventListener('change', draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [lines]);
  useEffect(() => {
    if (plot.current !== null) show(plot.current, latest.current);
  }, [points.length, untilS]);

  const shown = (pointed === null ? undefined : points[pointed]) ?? points.at(-1);
  const values = lines.map((line) => ({ line, text: shown === undefined ? '–' : rateText(line.value(shown)) }));
  return html`<figure class="plot">
    <figcaption>
      <span class="plot-title">${label}</span>
      <ul>
        ${values.map(
          ({ line, text }) =>
            html`<li key=${line.name}>
              <svg class=${`swatch ${line.colour}`} viewBox="0 0 18 4" aria-hidden="true">
                <line x1="0" y1="2" x2="18" y2="2" stroke-dasharray=${line.dash.join(' ')} />
              </svg>
              ${line.name} <b>${text}</b>
            </li>`,
        )}
      </ul>
    </figcaption>
    <div
      ref=${place}
      role="img"
      aria-label=${`${label}, last five minutes: ${values.map(({ line, text }) => `${line.name} ${text}`).join(', ')}`}
    ></div>
  </figure>`;
}

function show(plot: uPlot, { data, untilS }: { readonly data: uPlot.AlignedData; readonly untilS: number }): void {
  plot.setData(data, false);
  const [first = untilS] = data[0];
  // It fills the width from the beginning, and moves when it is full.
  plot.setScale('x', { min: Math.min(untilS - LEAST_SPAN_S, Math.max(first, untilS - PLOTTED_S)), max: untilS });
}

function dataOf(lines: readonly Line[], points: readonly Point[]): uPlot.AlignedData {
  return [points.map(({ atS }) => atS), ...lines.map(({ value }) => points.map(value))];
}

function optionsOf(
  lines: readonly Line[],
  element: HTMLElement,
  onPointed: (at: number | null) => void,
): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: colour('muted'),
    font: `11px ${style.fontFamily}`,
    ticks: { show: false },
    grid: { stroke: colour('rule'), width: 1 },
  };
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { y: { range: (_plot, _min, max) => [0, Math.max(LEAST_TOP, max * 1.1)] } },
    axes: [
      { ...axis, size: 26, space: 80, values: (_plot, ticks) => ticks.map(clockTick) },
      { ...axis, size: 44, values: (_plot, ticks) => ticks.map(rateTick) },
    ],
    series: [
      {},
      ...lines.map(({ name, colour: own, dash, fill }) => ({
        label: name,
        stroke: colour(own),
        width: 1.75,
        dash: [...dash],
        points: { show: false },
        ...(fill === 'filled' ? { fill: `${colour(own)}22` } : {}),
      })),
    ],
    hooks: { setCursor: [({ cursor }) => onPointed(cursor.idx ?? null)] },
  };
}

const CLOCK = new Intl.DateTimeFormat('en', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
});

function clockTick(atS: number): string {
  return CLOCK.format(atS * 1_000);
}

function rateTick(value: number): string {
  return value >= 1_000 ? `${value / 1_000}k` : String(value);
}
