/** What holds for every page of docs/recipes: its configuration is good, its keys pass their own check, and it can be found. */

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import t from 'tap';
import { runProgram } from '../support/program.js';
import { answersAfter } from '../support/upstream.js';
import { configOfRecipe, INDEX, pages, RECIPE_ENV, RECIPES, readRecipe, routesOf, startRecipe } from './recipe.js';

t.setTimeout(180_000);
// Most of the time is that of the API behind the gateways.
t.jobs = 3;

const SECTIONS = ['Configuration', 'What a duplicate gets', 'What to watch out for', 'Check it'];
/** Long enough for two requests of `smoke` to meet on a busy machine. */
const UPSTREAM_MS = 500;

const ALL = pages();

t.test('there are as many as were promised', async (t) => {
  t.equal(ALL.length, 8);
});

for (const page of ALL) {
  t.test(page, async (t) => {
    const recipe = readRecipe(page);
    const folder = mkdtempSync(join(tmpdir(), 'oneflight-recipe-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    for (const [name, text] of recipe.files) writeFileSync(join(folder, name), text);
    const run = (...args: readonly string[]) => runProgram(args, { cwd: folder, env: RECIPE_ENV });

    t.test('has every part', async (t) => {
      const titles = [...recipe.text.matchAll(/^## (.*)$/gm)].map(([, title]) => title);
      t.same(titles, SECTIONS);
    });

    t.test('its configuration is good, and nothing in it is doubtful', async (t) => {
      t.ok(configOfRecipe(recipe).includes('routes:'));
      const { code, stdout, stderr } = await run('validate', '-c', 'gateway.yaml');
      t.equal(code, 0, stderr);
      t.match(stdout, /^gateway\.yaml: ok \(\d+ routes?, 1 upstream, \w+ store\)\n$/);
    });

    t.test('each of its keys passes the check that it shows', async (t) => {
      const { upstream, first } = await startRecipe(t, page);
      for (const [name, text] of recipe.files) {
        if (!name.endsWith('.http')) continue;
        const [, path = ''] = /^[A-Z]+ ([^?\s]+)/m.exec(text) ?? [];
        upstream.on(path, answersAfter(UPSTREAM_MS));
      }
      const checked = new Set<string>();
      for (const command of recipe.commands) {
        const [program, ...words] = command.match(/"[^"]*"|\S+/g) ?? [];
        const args = words.map((word) => word.replace(/^"(.*)"$/, '$1'));
        t.same([program, args[0]], ['oneflight', 'smoke'], command);
        const { code, stdout, stderr } = await run(...args, '--url', first.url);
        t.equal(code, 0, `${command}\n${stdout}${stderr}`);
        checked.add(args[args.indexOf('--route') + 1]!);
      }
      t.same(
        [...checked].sort(),
        routesOf(recipe)
          .map(({ name }) => name)
          .sort(),
        'every rule is checked',
      );
    });
  });
}

/** Targets of the links of a page that are files, without what they name in it. */
function linked(file: string): string[] {
  return [...readFileSync(file, 'utf8').matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !target.includes(':'));
}

t.test(
  'every page is linked from the index, has a way back and to a neighbour, and leads nowhere else than to files',
  async (t) => {
    const index = resolve(RECIPES, INDEX);
    t.same(
      ALL.filter((page) => !linked(index).includes(page)),
      [],
    );
    for (const page of [INDEX, ...ALL]) {
      const file = resolve(RECIPES, page);
      t.same(
        linked(file).filter((target) => !existsSync(resolve(dirname(file), target))),
        [],
        page,
      );
      if (page === INDEX) continue;
      t.ok(linked(file).includes(INDEX), `${page} leads to the index`);
      t.ok(
        linked(file).some((target) => target !== page && ALL.includes(target)),
        `${page} leads to a neighbour`,
      );
    }
    t.ok(linked(resolve(RECIPES, '../../README.md')).includes(`docs/recipes/${INDEX}`), 'README leads to the index');
  },
);
