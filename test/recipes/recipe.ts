/**
 * A page of docs/recipes, read as a person would copy from it: each fenced block whose first line is `# name` is that file.
 *
 * Invariant: what is run is what the page shows. Only what differs on any machine is another one here: ports, addresses
 * of upstream and Redis, and the time that a busy machine gives Redis to answer.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse, stringify } from 'yaml';
import { type Gateway, type Scope, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { type StubUpstream, startUpstream } from '../support/upstream.js';

export const RECIPES = resolve(fileURLToPath(new URL('../../..', import.meta.url)), 'docs/recipes');
export const INDEX = 'README.md';

/** What the configurations of the pages take from the environment. */
export const RECIPE_ENV = { ONEFLIGHT_SECRET: 'of-the-tests-of-the-recipes' } as const;

/** A rule of a page's configuration; tests change some to show what would happen then. */
export type WrittenRoute = { readonly name: string; [field: string]: unknown };
type Written = {
  listen: object;
  admin: object;
  store?: { kind: string };
  upstreams: Record<string, object>;
  routes: WrittenRoute[];
};

export type Recipe = {
  /** Name of the page, such as `auth.md`. */
  readonly page: string;
  readonly text: string;
  /** Text of the files that the page shows, by name. */
  readonly files: ReadonlyMap<string, string>;
  /** Lines of its `sh` blocks. */
  readonly commands: readonly string[];
};

/** Names of all pages but the index. */
export function pages(): string[] {
  return readdirSync(RECIPES)
    .filter((name) => name.endsWith('.md') && name !== INDEX)
    .sort();
}

export function readRecipe(page: string): Recipe {
  const text = readFileSync(resolve(RECIPES, page), 'utf8');
  const blocks = [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(([, kind = '', content = '']) => ({
    kind,
    content,
    name: /^# ([\w.-]+)$/m.exec(content.split('\n', 1)[0]!)?.[1],
  }));
  const files = blocks.flatMap(({ name, content }) => (name === undefined ? [] : [[name, content] as const]));
  const commands = blocks
    .filter(({ kind }) => kind === 'sh')
    .flatMap(({ content }) => content.trim().split('\n'))
    .filter((line) => line !== '');
  return { page, text, files: new Map(files), commands };
}

/** The page's configuration as it stands. */
export function configOfRecipe({ page, files }: Recipe): string {
  const config = files.get('gateway.yaml');
  if (config === undefined) throw new Error(`${page} shows no gateway.yaml`);
  return config;
}

export function routesOf(recipe: Recipe): readonly WrittenRoute[] {
  return (parse(configOfRecipe(recipe)) as Written).routes;
}

/** The rule by which `Gateway.caughtUp` knows that earlier requests have been read. */
const CAUGHT_UP = {
  name: 'caught-up',
  match: { methods: ['POST'], path: '/caught-up' },
  upstream: 'stub',
  policy: 'coalesce',
  key: [{ body: '/turn' }],
};

export type Running = {
  readonly upstream: StubUpstream;
  readonly gateways: readonly Gateway[];
  readonly first: Gateway;
  /** Another one than the first, where the page has a store that several share. */
  readonly last: Gateway;
};

/**
 * Starts what a page describes before a stub of its API: two gateways where the configuration has Redis, else one.
 * `change` makes another rule of each, to show what the page warns of.
 */
export async function startRecipe(
  t: Scope,
  page: string,
  change: (route: WrittenRoute) => WrittenRoute = (route) => route,
): Promise<Running> {
  const written = parse(configOfRecipe(readRecipe(page))) as Written;
  const upstream = await startUpstream(t);
  const names = Object.keys(written.upstreams);
  const [only = ''] = names;
  if (names.length !== 1) throw new Error(`${page}: one upstream was expected`);
  written.listen = { ...written.listen, host: '127.0.0.1', port: 0 };
  written.admin = { ...written.admin, port: 0 };
  written.upstreams = { [only]: { ...written.upstreams[only], url: upstream.url } };
  written.routes = [{ ...CAUGHT_UP, upstream: only }, ...written.routes.map(change)];
  const isShared = written.store?.kind === 'redis';
  if (isShared) {
    const redis = await startRedis();
    t.teardown(() => redis.stop());
    Object.assign(written.store!, { url: redis.url, commandTimeout: '2s' });
  }
  const gateways = await startGateways(t, isShared ? 2 : 1, { config: stringify(written), env: RECIPE_ENV });
  return { upstream, gateways, first: gateways[0]!, last: gateways.at(-1)! };
}
