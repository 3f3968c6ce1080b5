// The licences of the packages that a bundle is made of.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** `packages`: those inside (packages.mjs). Throws for one that comes without the text of its licence. */
export function licencesOf(packages) {
  const texts = packages.map(
    ({ name, version, license, folder }) =>
      `${name} ${version} (${license})\n\n${licenceTextOf(folder, name).trim()}\n`,
  );
  return `Oneflight holds these packages, under their licences.\n\n${texts.join(`\n${'-'.repeat(80)}\n\n`)}`;
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
