// The licences of the packages that a bundle is made of.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** `inputs`: paths of the files inside. Throws for a package that comes without the text of its licence. */
export function licencesOf(inputs) {
  const folders = new Set(inputs.map(packageFolderOf).filter((folder) => folder !== null));
  const texts = [...folders].map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    return { name, text: `${name} ${version} (${license})\n\n${licenceTextOf(folder, name).trim()}\n` };
  });
  const sorted = texts.sort((a, b) => (a.name < b.name ? -1 : 1)).map(({ text }) => text);
  return `Oneflight holds these packages, under their licences.\n\n${sorted.join(`\n${'-'.repeat(80)}\n\n`)}`;
}

/** The folder of the package a file belongs to; null: one of our own. */
function packageFolderOf(file) {
  return /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? null;
}

function licenceTextOf(folder, name) {
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (file !== undefined) return readFileSync(join(folder, file), 'utf8');
  // Some have it in their README only.
  const readme = readdirSync(folder).find((entry) => /^readme/i.test(entry));
  const text = readme === undefined ? '' : readFileSync(join(folder, readme), 'utf8');
  const from = text.search(/^#+ *licen[cs]e/im);
  if (from < 0) throw new Error(`${name} comes without its licence: ${folder}`);
  return text.slice(from);
}
