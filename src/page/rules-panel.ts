/** The rules as they are in use, in the order in which they are tried, and the whole configuration. Secrets are masked by the gateway. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Answer, GatewayClient } from './gateway-client.js';
import { Panel } from './panel.js';
import type { Health } from './snapshot.js';
import { type Column, Table } from './table.js';
import { yamlText } from './yaml-text.js';

type Times = 'lease' | 'wait' | 'keep';
type Rule = {
  readonly [name in 'name' | 'match' | 'policy' | 'key' | 'identity' | 'upstream' | Times]?: unknown;
};
type Shown = {
  readonly file: string;
  readonly config: { readonly routes?: readonly Rule[] };
  /** Defaults that no configuration can spell are told in words. */
  readonly sources: Readonly<Record<string, { readonly words?: string }>>;
};
type Numbered = { readonly number: number; readonly rule: Rule; readonly keyWords: string | undefined };

const COLUMNS: readonly Column<Numbered>[] = [
  { title: '#', hint: 'The first one that matches wins.', kind: 'number', cell: ({ number }) => number },
  { title: 'Rule', kind: 'text', cell: ({ rule }) => plainText(rule.name) },
  { title: 'Match', kind: 'text', cell: ({ rule }) => html`<code>${matchText(rule.match)}</code>` },
  { title: 'Policy', kind: 'text', cell: ({ rule }) => plainText(rule.policy) },
  { title: 'Key', kind: 'text', cell: ({ rule, keyWords }) => keyWords ?? keyText(rule.key) },
  { title: 'Identity', kind: 'text', cell: ({ rule }) => keyText(rule.identity, 'optional') },
  ...(['lease', 'wait', 'keep'] as const).map((name): Column<Numbered> => {
    return {
      title: name.charAt(0).toUpperCase() + name.slice(1),
      kind: 'number',
      cell: ({ rule }) => timeText(rule[name]),
    };
  }),
  { title: 'Upstream', kind: 'text', cell: ({ rule }) => plainText(rule.upstream) },
];

export type RulesPanelProps = { readonly client: GatewayClient; readonly config: Health['config'] };

export function RulesPanel({ client, config }: RulesPanelProps): VNode {
  const [answer, setAnswer] = useState<Answer | null>(null);
  // Read again when another configuration is in use.
  useEffect(() => {
    let isWanted = true;
    void client.get('config').then((next) => {
      if (isWanted) setAnswer(next);
    });
    return () => {
      isWanted = false;
    };
  }, [client, config?.goodAt]);
  const shown = answer?.kind === 'ok' ? (answer.content as Shown) : null;
  const rows = (shown?.config.routes ?? []).map((rule, i) => {
    return { number: i + 1, rule, keyWords: shown?.sources[`routes[${i}].key`]?.words };
  });
  const note = shown === null ? unshownText(answer) : `From ${shown.file}; the first rule that matches wins.`;
  return html`<${Panel} id="rules" title="Rules as loaded" note=${note}>
    <${Table}
      label="Rules as loaded"
      columns=${COLUMNS}
      rows=${rows}
      keyOf=${({ rule }: Numbered) => plainText(rule.name)}
      empty="No rules."
    />
    ${
      shown === null
        ? null
        : html`<details>
            <summary>The whole configuration, with its defaults</summary>
            <pre tabindex="0" aria-label="The whole configuration">${yamlText(shown.config)}</pre>
          </details>`
    }
  <//>`;
}

function unshownText(answer: Answer | null): string {
  if (answer === null) return 'Asking for them.';
  return answer.kind === 'refused' ? `Not shown: ${answer.error}.` : 'The gateway did not answer.';
}

function plainText(value: unknown): string {
  return value === undefined || value === null ? '–' : String(value);
}

function matchText(match: unknown): string {
  const { methods, path, host } = (match ?? {}) as { methods?: readonly string[]; path?: string; host?: string };
  return [methods?.join(' '), `${host ?? ''}${path ?? ''}`].filter((part) => part !== undefined).join(' ');
}

/** `[{ header: a }, { body: /b, optional: true }]` as `header a, body /b (optional)`; `usual` goes without saying. */
function keyText(parts: unknown, usual: 'required' | 'optional' = 'required'): string {
  if (!Array.isArray(parts)) return plainText(parts);
  return parts
    .map(({ optional, ...rest }: { readonly optional?: boolean }) => {
      const [[from, name] = ['', '']] = Object.entries(rest);
      return `${from} ${String(name)}${optional === true && usual === 'required' ? ' (optional)' : ''}`;
    })
    .join(', ');
}

/** A duration, or the longest of `{ max, poll }`. */
function timeText(value: unknown): string {
  return plainText(typeof value === 'object' && value !== null ? (value as { max?: unknown }).max : value);
}
