// The packages that a bundle is made of, and which of them asks for which.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * `inputs`: those of esbuild's metafile. Answers name, version, licence and folder of each package, by name and version,
 * and the folders of those that its files import.
 */
export function packagesOf(inputs) {
  const needed = new Map();
  for (const [file, { imports }] of Object.entries(inputs)) {
    const folder = packageFolderOf(file);
    if (folder === null) continue;
    const of = needed.get(folder) ?? new Set();
    needed.set(folder, of);
    for (const { path, external } of imports) {
      const other = external ? null : packageFolderOf(path);
      if (other !== null && other !== folder) of.add(other);
    }
  }
  return [...needed].map(([folder, needs]) => manifestOf(folder, [...needs])).sort(byNameAndVersion);
}

/** What our own files import themselves. */
export function directOf(inputs) {
  const own = Object.entries(inputs).filter(([file]) => packageFolderOf(file) === null);
  const folders = own.flatMap(([, { imports }]) =>
    imports.map(({ path, external }) => (external ? null : packageFolderOf(path))),
  );
  return [...new Set(folders)].filter((folder) => folder !== null);
}

function manifestOf(folder, needs) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  return { name, version, license, folder, needs };
}

/** The folder of the package a file belongs to; null: one of our own. */
function packageFolderOf(file) {
  return /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? null;
}

function byNameAndVersion(a, b) {
  if (a.name !== b.name) return a.name < b.name ? -1 : 1;
  return a.version < b.version ? -1 : 1;
}
