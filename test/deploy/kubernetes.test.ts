/**
 * The manifests and the chart, written out by kubectl and Helm themselves: equal to the golden files, made of fields that
 * Kubernetes has, closed as the documents say, with a configuration that is valid and whose times and ports are the pod's.
 *
 * After a change on purpose: UPDATE_GOLDEN=1 node dist/test/run.js deploy/kubernetes, and read what has changed.
 */

import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { parse, parseAllDocuments } from 'yaml';
import { type KubernetesObject, objectJudge } from '../support/kubernetes-objects.js';
import { kubernetesTool, type Said } from '../support/kubernetes-tools.js';

t.setTimeout(170_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const at = (path: string) => resolve(ROOT, path);
const CHART = at('deploy/helm/oneflight');
const { UPDATE_GOLDEN } = process.env;
const CASES = ['least', 'all', 'elsewhere'] as const;

type Container = {
  readonly image: string;
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly securityContext: object;
  readonly volumeMounts: readonly { readonly mountPath: string; readonly subPath?: string }[];
  readonly livenessProbe: { readonly httpGet: object };
  readonly readinessProbe: { readonly httpGet: object };
};
type Pod = {
  readonly terminationGracePeriodSeconds: number;
  readonly automountServiceAccountToken: boolean;
  readonly securityContext: object;
  readonly containers: readonly Container[];
};
type Labels = Readonly<Record<string, string>>;
type Deployment = KubernetesObject & {
  readonly spec: {
    readonly selector: { readonly matchLabels: Labels };
    readonly template: { readonly metadata: { readonly labels: Labels }; readonly spec: Pod };
  };
};
type Selecting = KubernetesObject & {
  readonly spec: {
    readonly selector?: Labels | { matchLabels: Labels };
    readonly podSelector?: { matchLabels: Labels };
  };
};
type ConfigMap = KubernetesObject & { readonly data: Readonly<Record<string, string>> };
type Config = {
  readonly listen?: { readonly port?: number };
  readonly admin: { readonly port?: number };
  readonly drain: { readonly delay: string; readonly timeout: string };
};

async function helm(args: readonly string[]): Promise<Said> {
  return (await kubernetesTool('helm'))(args);
}

async function written(name: string): Promise<string> {
  const said =
    name === 'kubernetes'
      ? await (await kubernetesTool('kubectl'))(['kustomize', at('deploy/kubernetes')])
      : await helm(['template', 'gw', CHART, '--namespace', 'edge', '--values', at(`test/deploy/values/${name}.yaml`)]);
  if (said.code !== 0) throw new Error(said.stderr);
  return said.stdout;
}

function objectsOf(text: string): KubernetesObject[] {
  const documents = parseAllDocuments(text);
  if (!Array.isArray(documents)) return [];
  return documents.map((document) => document.toJS() as KubernetesObject | null).filter((object) => object !== null);
}

function only<One extends KubernetesObject>(objects: readonly KubernetesObject[], kind: string): One {
  const [found, ...more] = objects.filter((object) => object.kind === kind);
  if (found === undefined || more.length > 0) throw new Error(`not one ${kind}`);
  return found as One;
}

for (const name of ['kubernetes', ...CASES]) {
  t.test(`${name}: as the golden file says, and as Kubernetes has it`, async (t) => {
    const text = await written(name);
    const golden = at(`test/deploy/golden/${name}.yaml`);
    if (UPDATE_GOLDEN === '1') writeFileSync(golden, text);
    t.equal(text, readFileSync(golden, 'utf8'));
    const judge = await objectJudge();
    const objects = objectsOf(text);
    t.ok(objects.length >= 2);
    t.strictSame(objects.flatMap(judge), []);
    checkPods(t, objects);
  });
}

/** What is true of every gateway, however it came there. */
function checkPods(t: Test, objects: readonly KubernetesObject[]): void {
  const { spec } = only<Deployment>(objects, 'Deployment');
  const pod = spec.template.spec;
  const [container] = pod.containers;
  t.match(pod, {
    automountServiceAccountToken: false,
    securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
  });
  t.strictSame(container?.securityContext, {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  });
  t.strictSame(container?.livenessProbe.httpGet, { path: '/livez', port: 'admin' });
  t.match(container?.readinessProbe.httpGet, { path: /^\/(?:readyz|livez)$/, port: 'admin' });
  t.ok(
    container?.volumeMounts.every(({ subPath }) => subPath === undefined),
    'folders, so that changes are seen',
  );
  t.notMatch(container?.image, /:latest$/);

  const { labels } = spec.template.metadata;
  for (const object of objects as readonly Selecting[]) {
    const { selector, podSelector } = object.spec ?? {};
    for (const one of [selector, podSelector]) {
      if (one === undefined) continue;
      const wanted = Object.entries((one as { matchLabels?: Labels }).matchLabels ?? (one as Labels));
      t.ok(wanted.length > 0, `${object.kind}: it is not for every pod of the namespace`);
      t.ok(
        wanted.every(([label, value]) => labels[label] === value),
        `${object.kind}: it is for these pods`,
      );
    }
  }
}

for (const name of ['kubernetes', 'least', 'all']) {
  t.test(`${name}: its configuration is valid, and fits the pod`, async (t) => {
    const objects = objectsOf(await written(name));
    const { data } = only<ConfigMap>(objects, 'ConfigMap');
    const { spec } = only<Deployment>(objects, 'Deployment');
    t.match(await validated(t, data), /gateway\.yaml: ok \([^)]*redis store[^)]*\)\n$/, 'valid, and nothing doubtful');

    const config = parse(data['gateway.yaml'] ?? '') as Config;
    const { terminationGracePeriodSeconds, containers } = spec.template.spec;
    const drainSeconds = seconds(config.drain.delay) + seconds(config.drain.timeout);
    t.ok(terminationGracePeriodSeconds >= drainSeconds + 10, 'it may drain to the end');
    t.ok(seconds(config.drain.delay) >= 5, 'others have a moment to notice');
    const ports = containers[0]?.ports.map(({ name, containerPort }) => [name, containerPort]);
    t.strictSame(ports, [
      ['http', config.listen?.port],
      ['admin', config.admin.port],
    ]);
  });
}

/** What `oneflight validate` says of the files of a ConfigMap, mounted as the pod has them. */
async function validated(t: Test, files: Readonly<Record<string, string>>): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-pod-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const secrets = join(folder, 'secrets');
  mkdirSync(secrets);
  for (const name of ['admin-token', 'store-secret'])
    writeFileSync(join(secrets, name), 'thirty-two-characters-of-a-test!');
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(folder, name), text.replaceAll('/run/secrets/oneflight', secrets));
  }
  const args = [at('dist/bin/main.js'), 'validate', '-c', join(folder, 'gateway.yaml')];
  return (await promisify(execFile)(process.execPath, args)).stdout;
}

function seconds(text: string): number {
  return Number(/^(\d+)s$/.exec(text)?.[1] ?? Number.NaN);
}

t.test('Helm finds nothing wrong with the chart', async (t) => {
  const { code, stdout } = await helm(['lint', '--strict', CHART, '--values', at('test/deploy/values/least.yaml')]);
  t.equal(code, 0, stdout);
  const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as { version: string; appVersion: string };
  const { version } = JSON.parse(readFileSync(at('package.json'), 'utf8')) as { version: string };
  t.match(chart, { version, appVersion: version });
  const [, tag] = /newTag: (\S+)/.exec(readFileSync(at('deploy/kubernetes/kustomization.yaml'), 'utf8')) ?? [];
  t.equal(tag, version, 'the manifests have the image of this version');
});

t.test('what would let every pod start badly is refused before there is one', async (t) => {
  const faults: readonly (readonly [string, RegExp])[] = [
    ['', /set secrets\.existing to a Secret/],
    ['{ image: { tags: 1 } }', /additional properties 'tags' not allowed/],
    ['{ replicas: two }', /got string, want integer/],
    ['{ podDisruptionBudget: { maxUnavailable: some } }', /podDisruptionBudget/],
    ['{ existingConfigMap: theirs, files: { gateway.yaml: a } }', /invalid propertyName 'gateway\.yaml'/],
    [valuesOf('admin: { host: 127.0.0.1 }'), /admin\.host must be 0\.0\.0\.0/],
    [valuesOf('admin: false'), /admin\.host must be 0\.0\.0\.0/],
    [valuesOf('admin: { host: 0.0.0.0, port: 9091 }'), /admin\.port is 9091, and ports has 9090/],
    [valuesOf('{ listen: { port: 80 }, admin: { host: 0.0.0.0 } }'), /listen\.port is 80, and ports has 8080/],
    [valuesOf('admin: { host: 0.0.0.0 }'), /several replicas share their claims in Redis/],
    [valuesOf('admin: ['), /config is no YAML/],
  ];
  for (const [values, wanted] of faults) {
    const { code, stderr } = await withValues(t, values);
    t.not(code, 0, values);
    t.match(stderr, wanted, values);
  }
  t.equal((await withValues(t, `${valuesOf('admin: { host: 0.0.0.0 }')}\nreplicas: 1`)).code, 0);
});

const valuesOf = (config: string) => `config: ${JSON.stringify(config)}`;

async function withValues(t: Test, values: string): Promise<Said> {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-values-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'values.yaml');
  writeFileSync(file, values);
  return helm(['template', 'gw', CHART, '--values', file]);
}

t.test('the judge of objects finds planted faults', async (t) => {
  const judge = await objectJudge();
  const service = (spec: object) => judge({ apiVersion: 'v1', kind: 'Service', metadata: { name: 'a' }, ...{ spec } });
  t.strictSame(service({ ports: [{ port: 80, targetPort: 'http' }] }), []);
  t.strictSame(service({ ports: [{ prot: 80 }] }), ['Service.spec.ports[0].prot: no such field']);
  t.strictSame(service({ ports: [{ port: '80' }] }), ['Service.spec.ports[0].port: no number']);
  t.strictSame(service({ selector: { a: true } }), ['Service.spec.selector.a: no string']);
  t.strictSame(judge({ apiVersion: 'v2', kind: 'Service', metadata: { name: 'a' } }), ['v2 Service: no such kind']);
});
