/** The bill of materials: valid by the schema of CycloneDX, and of the very packages that are in the bundle. */

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import t from 'tap';
import { schemaFaults } from '../support/json-schema.js';
import { npmPackage } from '../support/npm-package.js';

t.setTimeout(100_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const read = (path: string) => readFileSync(resolve(ROOT, path), 'utf8');

type Component = {
  readonly 'bom-ref': string;
  readonly group?: string;
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly licenses: readonly { readonly license?: { readonly id: string }; readonly expression?: string }[];
};
type Sbom = {
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
};

const sbom = JSON.parse(read('dist/bin/sbom.cdx.json')) as Sbom;
const nameOf = ({ group, name }: Component) => (group === undefined ? name : `${group}/${name}`);

t.test('it is valid by the schema of CycloneDX', async (t) => {
  const library = await npmPackage({
    name: '@cyclonedx/cyclonedx-library',
    version: '10.3.0',
    integrity: 'sha512-RIT28sp1U0PCHaaeF3yNRwk6Jig/XJ8UsYAVOMYaHQ+0VVOvsjcp0PTWQFLUqJFF8XMud+Kdq6G+wtDAh+QJFA==',
  });
  // Copies of the published schemas, which refer to each other by their file names here.
  const schemaOf = (name: string) => ({
    ...(JSON.parse(readFileSync(join(library, 'res/schema', name), 'utf8')) as object),
    $id: `http://cyclonedx.org/schema/${name}`,
  });
  const schemas = ['bom-1.6', 'spdx', 'jsf-0.82'].map((name) => schemaOf(`${name}.SNAPSHOT.schema.json`));
  t.strictSame(await schemaFaults(schemas, sbom), []);
  const [first, ...others] = sbom.components;
  const planted = { ...sbom, components: [{ ...first, licenses: [{ license: { id: 'MIT-ish' } }] }, ...others] };
  t.match(await schemaFaults(schemas, planted), [/licenses/], 'a licence that is none');
  t.match(await schemaFaults(schemas, { ...sbom, timestamp: 1 }), [/additional properties/], 'a field that is none');
});

t.test(
  'it names the packages of the licences, in the versions of the lock file, and the licences they say',
  async (t) => {
    const named = sbom.components.map((one) => `${nameOf(one)} ${one.version} (${licenceOf(one)})`);
    const licences = read('dist/bin/THIRD-PARTY-LICENSES.txt');
    t.ok(named.length > 10);
    t.strictSame(
      named,
      [...licences.matchAll(/^@?[a-z][\w./-]* \d+\.\d+\.\d+\S* \(.*\)$/gm)].map(([line]) => line),
    );

    const lock = JSON.parse(read('package-lock.json')) as {
      packages: Record<string, { readonly version: string; readonly license?: string }>;
    };
    const locked = new Set(
      Object.entries(lock.packages).map(([path, { version, license }]) => {
        return `${path.replace(/^.*node_modules\//, '')} ${version} (${license})`;
      }),
    );
    t.strictSame(
      named.filter((name) => !locked.has(name)),
      [],
    );
    const { name, version } = JSON.parse(read('package.json')) as { name: string; version: string };
    t.match(sbom.metadata.component, { name, version, purl: `pkg:npm/${name}@${version}` });
  },
);

t.test('every package is reached from the gateway over what it asks for', async (t) => {
  const needs = new Map(sbom.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]));
  const reached = new Set<string>([sbom.metadata.component['bom-ref']]);
  for (const ref of reached) for (const needed of needs.get(ref) ?? []) reached.add(needed);
  t.strictSame(
    sbom.components.map((one) => one['bom-ref']).filter((ref) => !reached.has(ref)),
    [],
  );
  const { devDependencies } = JSON.parse(read('package.json')) as { devDependencies: object };
  const direct = (needs.get(sbom.metadata.component['bom-ref']) ?? []).map((purl) =>
    purl.replace(/^pkg:npm\/|@[^@]+$/g, ''),
  );
  t.ok(direct.length > 5);
  t.strictSame(
    direct.filter((name) => !(name in devDependencies)),
    [],
    'what our own files import is ours to choose',
  );
});

t.test('the same packages give the same bytes', async (t) => {
  const program = `
    import { sbomOf } from ${JSON.stringify(pathToFileURL(join(ROOT, 'scripts/sbom.mjs')).href)};
    const own = { name: 'a', version: '1.0.0', license: 'MIT' };
    const scoped = { name: '@b/c', version: '2.0.0', license: '(MIT OR Apache-2.0)', folder: 'c', needs: [] };
    process.stdout.write(sbomOf({ own, packages: [scoped], direct: ['c'], tools: [] }));`;
  const build = () => execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
  const text = build();
  t.equal(build(), text);
  t.match(JSON.parse(text), {
    serialNumber: /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/,
    components: [
      { group: '@b', name: 'c', purl: 'pkg:npm/%40b/c@2.0.0', licenses: [{ expression: '(MIT OR Apache-2.0)' }] },
    ],
  });
});

function licenceOf({ licenses: [first] }: Component): string | undefined {
  return first?.license?.id ?? first?.expression;
}
