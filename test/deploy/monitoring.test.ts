/**
 * The dashboard and the alert rules: Prometheus can read every expression, the alerts are raised when they should be, and
 * every metric, label and value that they name is in the metrics of a gateway.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { parse } from 'yaml';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { freePort } from '../support/ports.js';
import { type Exposed, exposedIn, missingIn, namedIn } from '../support/promql.js';
import { promtool } from '../support/promtool.js';
import { startUpstream } from '../support/upstream.js';
import { type AlertCase, CASES, type Series, WELL } from './alert-cases.js';

t.setTimeout(150_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const ALERTS = resolve(ROOT, 'deploy/prometheus/alerts.yml');
const PAGE = resolve(ROOT, 'docs/telemetry.md');
const dashboard = JSON.parse(readFileSync(resolve(ROOT, 'deploy/grafana/oneflight.json'), 'utf8')) as Dashboard;
const alerts = (parse(readFileSync(ALERTS, 'utf8')) as { groups: { rules: Alert[] }[] }).groups.flatMap(
  ({ rules }) => rules,
);

type Alert = {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook: string };
};
type Target = { readonly expr: string; readonly legendFormat: string };
type Panel = {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly Target[];
};
type Dashboard = {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly type: string; readonly definition?: string }[] };
  readonly annotations: { readonly list: readonly { readonly expr: string; readonly textFormat: string }[] };
};

const targets: Target[] = [
  ...dashboard.panels.flatMap((panel) => panel.targets ?? []),
  ...dashboard.annotations.list.map(({ expr, textFormat }) => ({ expr, legendFormat: textFormat })),
];

/** What promtool is to expect of an alert, its texts with the labels and the value in them. */
function expected({ alert, labels, value = '' }: AlertCase): object {
  const rule = alerts.find((one) => one.alert === alert);
  const written = (text: string): string =>
    text
      .replace(/\{\{ \$labels\.(\w+) \}\}/g, (_, label: string) => labels[label] ?? '')
      .replace(/\{\{ \$value[^}]*\}\}/, value);
  const annotations = Object.entries(rule?.annotations ?? {}).map(([name, text]) => [name, written(text)]);
  return { exp_labels: { ...rule?.labels, ...labels }, exp_annotations: Object.fromEntries(annotations) };
}

/** A file for `promtool test rules`. */
function testFileOf(cases: readonly AlertCase[]): string {
  const inputOf = (series: Series) =>
    Object.entries({ ...WELL, ...series }).map(([name, values]) => ({ series: name, values }));
  const at = (minute: number, alertname: string, exp_alerts: object[] = []) => ({
    eval_time: `${minute}m`,
    alertname,
    exp_alerts,
  });
  const well = { interval: '1m', input_series: inputOf({}), alert_rule_test: alerts.map(({ alert }) => at(59, alert)) };
  const raised = cases.map((one) => ({
    interval: '1m',
    input_series: inputOf(one.series),
    alert_rule_test: [
      at(one.quiet, one.alert),
      at(one.raised, one.alert, [expected(one)]),
      ...(one.over === undefined ? [] : [at(one.over, one.alert)]),
    ],
  }));
  return JSON.stringify({ rule_files: [ALERTS], evaluation_interval: '1m', tests: [well, ...raised] });
}

t.test('Prometheus reads the alert rules, and raises each when it should and not before', async (t) => {
  t.match(await promtool(['check', 'rules', ALERTS]), { code: 0 });
  const file = join(t.testdir({}), 'tests.yml');
  writeFileSync(file, testFileOf(CASES));
  t.match(await promtool(['test', 'rules', file]), { code: 0 });
  const tried = new Set(CASES.map(({ alert }) => alert));
  t.same(
    alerts.filter(({ alert }) => !tried.has(alert)),
    [],
    'each is tried',
  );
  const [first, ...others] = CASES as [AlertCase, ...AlertCase[]];
  writeFileSync(file, testFileOf([{ ...first, series: {} }, ...others]));
  t.match(await promtool(['test', 'rules', file]), { code: 1, said: /OneflightAbsent/ }, 'a planted fault');
});

t.test('every alert says what is the matter and what to do', async (t) => {
  for (const { alert, labels, annotations } of alerts) {
    t.match(labels.severity, /^(warning|critical)$/, alert);
    t.ok(annotations.summary.length > 10, alert);
    t.match(annotations.runbook, /.{40,}\.$/, alert);
  }
  const page = readFileSync(PAGE, 'utf8');
  t.same(
    alerts.map(({ alert }) => alert).filter((name) => !page.includes(`\`${name}\``)),
    [],
    'in the documents',
  );
});

t.test('Prometheus reads every expression of the dashboard', async (t) => {
  const rules = targets.map(({ expr }, index) => ({
    record: `panel:${index}`,
    expr: expr.replace(/\$__(rate_)?interval/g, '5m').replace(/\$\w+/g, '.+'),
  }));
  const folder = t.testdir({});
  writeFileSync(join(folder, 'rules.yml'), JSON.stringify({ groups: [{ name: 'dashboard', rules }] }));
  t.match(await promtool(['check', 'rules', join(folder, 'rules.yml')]), { code: 0 });
});

t.test('no panel lies over another, and each has a number of its own', async (t) => {
  const { panels } = dashboard;
  t.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  const overlaps = panels.flatMap((one, index) =>
    panels.slice(index + 1).filter(({ gridPos: { x, y, w, h } }) => {
      const { gridPos: other } = one;
      return x < other.x + other.w && other.x < x + w && y < other.y + other.h && other.y < y + h;
    }),
  );
  t.same(overlaps, []);
  t.ok(panels.every(({ gridPos: { x, w } }) => x + w <= 24));
});

/** Two workers, and whatever can happen to a request. */
async function busyGateway(t: Test): Promise<Gateway> {
  const upstream = await startUpstream(t);
  const dead = await freePort();
  upstream.on('/cookie', (call) => call.answer({ fields: ['Set-Cookie', 'a=b'] }));
  upstream.on('/open/cut', (call) => {
    call.head(200, 'OK', ['Content-Length', '10']);
    call.raw('x');
    call.hangUp();
  });
  upstream.on('/open/socket', (call) =>
    call.head(101, 'Switching Protocols', ['Upgrade', 'x', 'Connection', 'Upgrade']),
  );
  const gateway = await startGateway(t, {
    config: configOf({
      upstream: upstream.url,
      upstreams: `
  half: { urls: ["http://127.0.0.1:${dead}", "${upstream.url}"], eject: { failures: 1, for: 1h } }
  dead: { url: "http://127.0.0.1:${dead}", retries: 0, breaker: { failures: 1, for: 1h } }`,
      routes: `
  - { name: calm, match: { path: /calm }, upstream: api, policy: coalesce, key: [ { query: id } ], keep: 1m }
  - { name: cookie, match: { path: /cookie }, upstream: api, policy: coalesce, identity: public, key: [ { request: path } ] }
  - { name: stock, match: { path: /stock }, upstream: api, policy: queue, key: [ { request: path } ] }
  - { name: coarse, match: { methods: [GET], path: /coarse }, upstream: api, policy: coalesce, key: [ { request: path } ], keep: 1m, verify: 100% }
  - { name: fine, match: { path: /fine }, upstream: api, policy: coalesce, key: [ { header: x-attempt } ] }
  - { name: watched, match: { path: /watched }, upstream: api, policy: coalesce, key: [ { request: path } ], keep: 1m, observe: true }
  - { name: few, match: { path: /few }, upstream: api, maxRequests: 2 }
  - { name: half, match: { path: /half }, upstream: half }
  - { name: dead, match: { path: /dead }, upstream: dead }
  - { name: open, match: { path: /open/* }, upstream: api }`,
      more: 'workers: 2',
    }),
  });
  const calm = upstream.holds('/calm');
  const [first, second] = [gateway.send({ path: '/calm?id=1' }), gateway.send({ path: '/calm?id=1' })];
  await calm.arrived(1);
  await gateway.caughtUp();
  calm.release();
  await Promise.all([first.answer, second.answer]);
  for (const path of ['/calm?id=1', '/calm', '/cookie', '/half', '/half', '/half', '/dead'])
    await gateway.request({ path });
  // Workers compare each what they have: of so many requests one of them has two.
  const similar = [1, 2, 3, 4, 5, 6];
  const coarse = upstream.holds('/coarse');
  const differing = similar.map((id) => gateway.send({ path: `/coarse?id=${id}` }));
  await coarse.arrived(1);
  await gateway.caughtUp();
  coarse.release();
  await Promise.all(differing.map(({ answer }) => answer));
  for (const attempt of similar) await gateway.request({ path: '/fine', headers: ['X-Attempt', `${attempt}`] });
  const watched = upstream.holds('/watched');
  const observed = similar.map(() => gateway.send({ path: '/watched' }));
  await watched.arrived(similar.length);
  watched.release();
  await Promise.all(observed.map(({ answer }) => answer));
  const turns = upstream.holds('/stock');
  const queued = [1, 2].map(() => gateway.send({ path: '/stock' }));
  await turns.arrived(1);
  turns.release();
  await Promise.all(queued.map(({ answer }) => answer));
  // Of three one at least is one too many for a worker.
  const held = upstream.holds('/few');
  const few = [1, 2, 3].map(() => gateway.send({ path: '/few' }));
  await Promise.race(few.map(({ answer }) => answer));
  held.release();
  await Promise.all(few.map(({ answer }) => answer));
  await gateway.request({ path: '/open/cut' }).catch(() => {});
  upstream.holds('/open/left');
  const leaving = gateway.send({ path: '/open/left' });
  leaving.answer.catch(() => {});
  await upstream.arrived(1, '/open/left');
  leaving.leave();
  const options = { headers: { connection: 'upgrade', upgrade: 'x' }, agent: false as const };
  await new Promise<void>((resolve, reject) => {
    http
      .get(`${gateway.url}/open/socket`, options)
      .once('error', reject)
      .once('upgrade', (_response, socket) => {
        socket.destroy();
        resolve();
      });
  });
  const over = ['led', 'collapsed', 'hit', 'passed', 'upgraded', 'bypassed', 'left', 'cut'];
  await eventually('everything is counted', async () => {
    const { text } = await gateway.admin('/metrics');
    const beside = ['verified_responses_total{', 'observed_saved_seconds_total{', 'keys_too_fine_total{'];
    return (
      over.every((outcome) => text.includes(`outcome="${outcome}"`)) && beside.every((name) => text.includes(name))
    );
  });
  return gateway;
}

/** `label_values(metric{…}, label)` as an expression. */
function asExpression(definition: string): string {
  const [, selector = '', label = ''] = /^label_values\((.*), (\w+)\)$/.exec(definition) ?? [];
  return `count by (${label}) (${selector})`;
}

/** What this gateway tells and neither shows, on purpose. */
const NOT_SHOWN: readonly string[] = [];

const labelsToldIn = (text: string, form: RegExp) => [...text.matchAll(form)].map(([, label = '']) => label);

t.test('every metric, label and value that they name is there', async (t) => {
  const gateway = await busyGateway(t);
  const exposed: Exposed = exposedIn((await gateway.admin('/metrics')).text);
  const inTarget = ({ expr, legendFormat }: Target) =>
    missingIn(exposed, expr, labelsToldIn(legendFormat, /\{\{(\w+)\}\}/g));
  const inAlert = ({ expr, annotations }: Alert) =>
    missingIn(exposed, expr, labelsToldIn(Object.values(annotations).join(' '), /\$labels\.(\w+)/g));
  t.ok(targets.length > 40 && alerts.length > 10);
  t.same(targets.flatMap(inTarget), []);
  t.same(alerts.flatMap(inAlert), []);
  const definitions = dashboard.templating.list.flatMap(({ definition }) => definition ?? []);
  t.same(
    definitions.flatMap((definition) => missingIn(exposed, asExpression(definition))),
    [],
  );
  const plant = (expr: string, told: string[] = []) => missingIn(exposed, expr, told).length;
  t.equal(plant('sum(oneflight_request_total)'), 1, 'a misspelled metric');
  t.equal(plant('sum by (rute) (oneflight_requests_total)'), 1, 'a misspelled label');
  t.equal(plant('oneflight_requests_total{rote="x"}'), 2, 'the same in a selector');
  t.equal(plant('oneflight_requests_total{outcome=~"hit|colapsed"}'), 1, 'a misspelled value');
  t.equal(plant('sum by (route) (oneflight_requests_total)', ['outcome']), 1, 'a label that the result has not');
  t.equal(plant('vector(0)'), 1, 'nothing at all');
  const shown = new Set(
    [...targets, ...alerts].flatMap(({ expr }) =>
      namedIn(expr).selected.map(({ metric }) => metric.replace(/_(bucket|count|sum)$/, '')),
    ),
  );
  const own = [...exposed.keys()].filter((name) => name.startsWith('oneflight_'));
  const unshown = own.map((name) => name.replace(/_(bucket|count|sum)$/, '')).filter((name) => !shown.has(name));
  t.same(new Set(unshown), new Set(NOT_SHOWN), 'and what the gateway tells is shown');
  const page = readFileSync(PAGE, 'utf8');
  const untold = own.filter((name) => !page.includes(`\`${name.slice(10).replace(/_(bucket|count|sum)$/, '')}\``));
  t.same([...new Set(untold)], [], 'and documented');
});
