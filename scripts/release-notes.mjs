// What is new in a release, cut out of the changelog: `node scripts/release-notes.mjs v1.2.3`. Exit code 1, and a line that
// says why, when the tag is not the version of the package or the changelog does not tell of it.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The text below the heading of a version, without its links to comparisons. Throws when there is none. */
function notesOf(changelog, version) {
  const sections = changelog.split(/^## /m).slice(1);
  const section = sections.find((text) => text.startsWith(`[${version}]`));
  if (section === undefined) throw new Error(`CHANGELOG.md has no section [${version}]`);
  const [heading = '', ...lines] = section.split('\n');
  if (!/\] - \d{4}-\d{2}-\d{2}$/.test(heading.trimEnd())) {
    throw new Error(`CHANGELOG.md: [${version}] needs its date: ## [${version}] - YYYY-MM-DD`);
  }
  const notes = lines
    .filter((line) => !/^\[[^\]]+\]: \S+$/.test(line))
    .join('\n')
    .trim();
  if (notes === '') throw new Error(`CHANGELOG.md: [${version}] is empty`);
  return notes;
}

try {
  process.chdir(fileURLToPath(new URL('..', import.meta.url)));
  const [tag = ''] = process.argv.slice(2);
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  if (tag !== `v${version}`) throw new Error(`the tag is ${tag || 'not given'}, and the package is v${version}`);
  process.stdout.write(`${notesOf(readFileSync('CHANGELOG.md', 'utf8'), version)}\n`);
} catch (error) {
  process.stderr.write(`release-notes: ${error.message}\n`);
  process.exitCode = 1;
}
