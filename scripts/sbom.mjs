// The bill of materials of a bundle: CycloneDX 1.6 in JSON.
import { createHash } from 'node:crypto';

/**
 * `own`: the manifest of what is built; `packages`: those inside (packages.mjs); `direct`: the folders of those that our
 * own files import; `tools`: names and versions of what built it.
 *
 * Neither a time nor a random number is in it: two builds of one commit are the same bytes, and have the same serial number.
 */
export function sbomOf({ own, packages, direct, tools }) {
  const refs = new Map(packages.map((one) => [one.folder, purlOf(one)]));
  const refsOf = (folders) => folders.map((folder) => refs.get(folder)).sort();
  const bom = {
    metadata: {
      lifecycles: [{ phase: 'build' }],
      tools: { components: tools.map(({ name, version }) => ({ type: 'application', name, version })) },
      component: { ...componentOf(own), type: 'application' },
    },
    components: packages.map(componentOf),
    dependencies: [
      { ref: purlOf(own), dependsOn: refsOf(direct) },
      ...packages.map((one) => ({ ref: purlOf(one), dependsOn: refsOf(one.needs) })),
    ],
  };
  const head = { bomFormat: 'CycloneDX', specVersion: '1.6', serialNumber: `urn:uuid:${uuidOf(bom)}`, version: 1 };
  return `${JSON.stringify({ ...head, ...bom }, null, 2)}\n`;
}

function componentOf({ name, version, license }) {
  const [, group, rest] = /^(@[^/]+)\/(.+)$/.exec(name) ?? [];
  return {
    type: 'library',
    'bom-ref': purlOf({ name, version }),
    ...(group === undefined ? { name } : { group, name: rest }),
    version,
    licenses: [licenceOf(license)],
    purl: purlOf({ name, version }),
  };
}

/** An expression of several licences has another place than the identifier of one. */
function licenceOf(license) {
  if (typeof license !== 'string') throw new Error(`no SPDX licence: ${JSON.stringify(license)}`);
  return /\s/.test(license) ? { expression: license } : { license: { id: license } };
}

/** The package URL; a scope is part of it with its `@` encoded. */
function purlOf({ name, version }) {
  return `pkg:npm/${name.replace('@', '%40')}@${version}`;
}

/** A UUID of version 8 (RFC 9562): its bits are those of a digest of the content. */
function uuidOf(content) {
  const hex = createHash('sha256').update(JSON.stringify(content)).digest('hex');
  const parts = [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `8${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ];
  return parts.join('-');
}
