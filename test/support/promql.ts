/**
 * What an expression of Prometheus' query language names: metrics, their labels and values, and the labels of its result.
 * Good enough for expressions without comments and without `{` in texts; that they can be read at all is promtool's to say.
 */

export type Matcher = { readonly label: string; readonly values: readonly string[] };
export type Selected = { readonly metric: string; readonly matchers: readonly Matcher[] };
export type Named = {
  readonly selected: readonly Selected[];
  /** What is grouped by; empty: nothing is. */
  readonly grouped: readonly string[];
};

const METRIC = /\b((?:oneflight|process|nodejs)_\w+)(?:\{([^}]*)\})?/g;
const MATCHER = /(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"/g;

export function namedIn(expr: string): Named {
  const selected = [...expr.matchAll(METRIC)].map(([, metric = '', inside = '']) => ({
    metric,
    matchers: [...inside.matchAll(MATCHER)].map(([, label = '', , value = '']) => ({
      label,
      // What a dashboard puts in place of a variable is nothing that is written.
      values: value.includes('$') ? [] : value.split('|'),
    })),
  }));
  const grouped = [...expr.matchAll(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g)];
  return { selected, grouped: grouped.flatMap(([, list = '']) => list.split(',').map((name) => name.trim())) };
}

/** The metrics of a gateway, by name: each label with the values that it has. */
export type Exposed = ReadonlyMap<string, ReadonlyMap<string, ReadonlySet<string>>>;

export function exposedIn(text: string): Exposed {
  const exposed = new Map<string, Map<string, Set<string>>>();
  for (const line of text.split('\n')) {
    const [, name, inside = ''] = /^([a-z_]\w*)(?:\{(.*)\})? /.exec(line) ?? [];
    if (name === undefined) continue;
    const labels = exposed.get(name) ?? new Map<string, Set<string>>();
    exposed.set(name, labels);
    for (const [, label = '', , value = ''] of inside.matchAll(MATCHER)) {
      labels.set(label, (labels.get(label) ?? new Set()).add(value));
    }
  }
  return exposed;
}

/** Labels that Prometheus adds to whatever it reads. */
const OWN_OF_PROMETHEUS = ['job', 'instance'];

/** What an expression, and what is said of its result, names and a gateway has not, a sentence each. */
export function missingIn(exposed: Exposed, expr: string, told: readonly string[] = []): string[] {
  const { selected, grouped } = namedIn(expr);
  const missing: string[] = [];
  const known = new Set(OWN_OF_PROMETHEUS);
  for (const { metric, matchers } of selected) {
    const labels = exposed.get(metric);
    if (labels === undefined) missing.push(`no metric ${metric}`);
    for (const label of labels?.keys() ?? []) known.add(label);
    for (const { label, values } of matchers) {
      if (OWN_OF_PROMETHEUS.includes(label) || labels === undefined) continue;
      if (!labels.has(label)) missing.push(`${metric} has no label ${label}`);
      for (const value of values) if (!labels.get(label)?.has(value)) missing.push(`no ${metric}{${label}="${value}"}`);
    }
  }
  for (const label of grouped) if (!known.has(label)) missing.push(`nothing has the label ${label}`);
  const left = grouped.length > 0 ? new Set(grouped) : known;
  for (const label of told) if (!left.has(label)) missing.push(`the result has no label ${label}: ${expr}`);
  return selected.length === 0 ? [`no metric at all: ${expr}`] : missing;
}
