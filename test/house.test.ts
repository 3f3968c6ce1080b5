/**
 * The house rules that no compiler checks: which folder may import which, what `core` may not touch, names that say
 * nothing, what the package ships, and that what README and the container files name is there.
 *
 * The checkers are pure functions of source text, so that planted faults show that they can fail.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { parse } from 'yaml';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

const STORE_PORT = ['store/store.ts', 'store/leases.ts', 'store/queue.ts', 'store/relay.ts'];

/**
 * Folder → folders (or single files) it may import from, beside its own. `main` is a file, `app` a file and a folder. The
 * port of the store is open to whoever is above it; the adapters are constructed by `app` alone.
 */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  main: ['app', 'cli', 'config', 'core', 'observe'],
  cli: ['app', 'config', 'core', 'explain', 'http', 'observe', 'workers/parent.ts'],
  // Its parent is a second composition root, and its worker has a gateway made by the first one.
  workers: ['app', 'cli/young-objects.ts', 'config', 'core', 'explain', 'observe', 'server', 'store'],
  app: ['config', 'core', 'exchange', 'explain', 'http', 'observe', 'server', 'store', 'upstream'],
  // What a gateway would do, by the code of the gateway itself.
  explain: [
    'config',
    'core',
    'exchange/judging.ts',
    'http',
    'server/peers.ts',
    'server/request-id.ts',
    'store/store.ts',
  ],
  server: ['config', 'core', 'exchange', 'http', 'page/snapshot.ts', 'store/store.ts', 'upstream/upstream.ts'],
  // It runs in browsers, and knows of the gateway what it is sent.
  page: [],
  exchange: ['core', 'http', ...STORE_PORT, 'upstream/upstream.ts', 'upstream/failure.ts'],
  store: ['config/config.ts', 'core', 'http'],
  upstream: ['config/config.ts', 'core', 'http'],
  observe: ['config/config.ts', 'core', 'exchange/observer.ts', 'exchange/trace.ts', 'http', 'store/store.ts'],
  config: ['core', 'http'],
  http: ['core'],
  core: [],
};

/** What would give the pure part of the house a clock, a socket or a framework. `node:crypto` hashes, `node:buffer` holds. */
const PURE_FOLDERS: ReadonlySet<string> = new Set(['core', 'http']);
const PURE_IMPORTS: ReadonlySet<string> = new Set(['node:crypto', 'node:buffer', 'node:querystring', 'node:util']);

const EMPTY_NAMES =
  /^(index|utils?|helpers?|types|gateway|manager|process|data|common|misc)$|-(utils?|helpers?|manager)$/;

type Source = { readonly path: string; readonly text: string };

/** Folder of a file below `src`, or its name for a file that stands there directly. */
function areaOf(path: string): string {
  const [first = ''] = path.split('/');
  return first.replace(/\.ts$/, '');
}

function importsOf(text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '');
  const statements = code.matchAll(
    /\b(?:import|export)\b[^;'"`]*?\bfrom\s*['"]([^'"]+)['"]|\bimport\s*\(?\s*['"]([^'"]+)['"]/g,
  );
  return [...statements].map(([, from, bare]) => from ?? bare ?? '');
}

function importFaults({ path, text }: Source): string[] {
  const area = areaOf(path);
  const allowed = MAY_IMPORT[area];
  if (allowed === undefined) return [`${path}: ${area} is not a folder of the house`];
  return importsOf(text).flatMap((specifier) => {
    if (!specifier.startsWith('.')) {
      const isFault = PURE_FOLDERS.has(area) && !PURE_IMPORTS.has(specifier);
      return isFault ? [`${path}: ${area} is pure and may not import ${specifier}`] : [];
    }
    const target = normalize(join(dirname(path), specifier)).replace(/\.js$/, '.ts');
    if (target.startsWith('..')) return [`${path}: ${specifier} leads out of src`];
    if (areaOf(target) === area || allowed.includes(areaOf(target)) || allowed.includes(target)) return [];
    return [`${path}: ${area} may not import ${target}`];
  });
}

function nameOf(path: string): string {
  return path.split('/').at(-1)?.replace(/\.ts$/, '') ?? '';
}

function spellingFaults(path: string): string[] {
  return /^[a-z0-9]+([-.][a-z0-9]+)*$/.test(nameOf(path)) ? [] : [`${path}: file names are in kebab-case`];
}

function nameFaults(path: string): string[] {
  return EMPTY_NAMES.test(nameOf(path)) ? [`${path}: the name says nothing`] : spellingFaults(path);
}

function exportFaults({ path, text }: Source): string[] {
  return /^export default\b/m.test(text) ? [`${path}: exports have names`] : [];
}

function filesBelow(folder: string, suffix: string): string[] {
  return readdirSync(resolve(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(suffix))
    .map((entry) => relative(resolve(ROOT, folder), resolve(entry.parentPath, entry.name)))
    .sort();
}

function read(path: string): string {
  return readFileSync(resolve(ROOT, path), 'utf8');
}

const sources: Source[] = filesBelow('src', '.ts').map((path) => ({ path, text: read(`src/${path}`) }));

t.test('imports point one way', async (t) => {
  t.ok(sources.length > 10, 'the sources were found');
  t.strictSame(sources.flatMap(importFaults), []);
});

t.test('file names say something, exports have names', async (t) => {
  t.strictSame(
    sources.flatMap(({ path }) => nameFaults(path)),
    [],
  );
  t.strictSame(filesBelow('test', '.ts').flatMap(spellingFaults), []);
  t.strictSame(sources.flatMap(exportFaults), []);
});

t.test('the checkers find planted faults', async (t) => {
  const faults = (path: string, text: string): number => importFaults({ path, text }).length;
  t.equal(faults('core/key.ts', `import { connect } from 'node:net';`), 1, 'I/O in core');
  t.equal(faults('core/key.ts', `import fastify from "fastify";`), 1, 'a framework in core');
  t.equal(faults('core/key.ts', `import type { Store } from '../store/store.js';`), 1, 'core knows the port');
  t.equal(faults('core/key.ts', `import { createHash } from 'node:crypto';\nimport { a } from './claim.js';`), 0);
  t.equal(
    faults('exchange/handle.ts', `import { RedisStore } from '../store/redis.js';`),
    1,
    'an adapter in the exchange',
  );
  t.equal(
    faults('exchange/handle.ts', `import type { Store } from '../store/store.js';`),
    0,
    'the port in the exchange',
  );
  t.equal(faults('store/redis.ts', `export { a } from '../upstream/pool.js';`), 1, 'an adapter knows another');
  t.equal(faults('store/redis.ts', `const a = await import('../observe/metrics.js');`), 1, 'a dynamic import');
  t.equal(
    faults('store/redis.ts', `import {\n  a,\n  b,\n} from '../observe/metrics.js';`),
    1,
    'an import over several lines',
  );
  t.equal(faults('store/redis.ts', `import '../observe/metrics.js';`), 1, 'an import for its effect');
  t.equal(faults('store/redis.ts', `// import { a } from '../observe/metrics.js';`), 0, 'a comment');
  t.equal(faults('plumbing/pipe.ts', ''), 1, 'an unknown folder');
  t.equal(faults('cli/demo.ts', `import { a } from '../../test/support/redis.js';`), 1, 'out of src');
  t.equal(nameFaults('core/index.ts').length, 1);
  t.equal(nameFaults('core/types.ts').length, 1);
  t.equal(nameFaults('store/key-helpers.ts').length, 1);
  t.equal(nameFaults('store/keyCodec.ts').length, 1);
  t.equal(nameFaults('store/key-codec.ts').length, 0);
  t.equal(exportFaults({ path: 'core/key.ts', text: 'export default 1;' }).length, 1);
});

t.test('the lock file names no registry', async (t) => {
  t.notMatch(read('package-lock.json'), /"resolved":/);
});

t.test('the build ships the Lua scripts', async (t) => {
  const written = filesBelow('src/store/lua', '.lua');
  t.ok(written.length > 0, 'there are scripts');
  t.strictSame(filesBelow('dist/src/store/lua', '.lua'), written);
  t.strictSame(filesBelow('dist/bin/lua', '.lua'), written);
});

/** Lines of the fenced `sh` blocks. */
function commandsOf(markdown: string): string[] {
  return [...markdown.matchAll(/^```sh\n([\s\S]*?)^```/gm)]
    .flatMap(([, block = '']) => block.split('\n'))
    .map((line) => line.replace(/\s+#.*$/, '').trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
}

/** What is wrong with a command line: an npm script, a command of ours or a file that does not exist. */
function commandFaults(line: string, names: { scripts: readonly string[]; commands: readonly string[] }): string[] {
  return line.split(/\s*&&\s*/).flatMap((command) => {
    const script = /^npm (?:run )?(\S+)/.exec(command)?.[1];
    if (script !== undefined)
      return script === 'ci' || names.scripts.includes(script) ? [] : [`${command}: no such script`];
    const ours = /^(?:node dist\/bin\/main\.js|oneflight) (\S+)/.exec(command)?.[1];
    const files = [...command.matchAll(/(?:^|\s)((?:config|dist|docs)\/\S+)/g)].map(([, file = '']) => file);
    const missing = files.filter((file) => !existsSync(resolve(ROOT, file))).map((file) => `${command}: no ${file}`);
    return ours === undefined || names.commands.includes(ours) ? missing : [`${command}: no such command`, ...missing];
  });
}

const manifest = JSON.parse(read('package.json')) as { scripts: Record<string, string>; bin: { oneflight: string } };
const names = {
  scripts: Object.keys(manifest.scripts),
  commands: [...read('src/main.ts').matchAll(/\.command\('(\w+)'/g)].map(([, name = '']) => name),
};

t.test('every command that the documents show exists', async (t) => {
  const shown = ['README.md', 'CONTRIBUTING.md', 'docs/getting-started.md'].flatMap((file) => commandsOf(read(file)));
  t.ok(shown.includes('npm ci && npm run demo') && shown.includes('npm ci && npm test'), 'the two commands are there');
  t.strictSame(
    shown.flatMap((line) => commandFaults(line, names)),
    [],
  );
  t.equal(commandFaults('npm run tset', names).length, 1, 'a planted script');
  t.equal(commandFaults('node dist/bin/main.js strat -c config/gateway.yaml', names).length, 1, 'a planted command');
  t.equal(commandFaults('node dist/bin/main.js start -c config/nothing.yaml', names).length, 1, 'a planted file');
});

t.test('the container files name what exists', async (t) => {
  const dockerfile = read('Dockerfile');
  const compose = parse(read('docker-compose.yml')) as {
    services: Record<string, { command?: string[]; volumes?: string[]; depends_on?: Record<string, unknown> }>;
  };
  const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, files = '']) => files.split(' '));
  t.ok(copied.length > 0);
  t.strictSame(
    copied.filter((file) => !existsSync(resolve(ROOT, file))),
    [],
  );
  t.match(dockerfile, /^FROM (?:--platform=\$BUILDPLATFORM )?node:24-slim AS build$/m);
  t.match(dockerfile, /^USER node$/m, 'it does not run as root');
  t.match(dockerfile, /^HEALTHCHECK .*\\\n\s*CMD \["node", "dist\/bin\/main\.js", "health"/m);
  for (const [, json = '[]'] of dockerfile.matchAll(/^(?:ENTRYPOINT|CMD) (\[.+\])$/gm)) {
    for (const word of JSON.parse(json) as string[]) {
      if (word.endsWith('.js')) t.ok(existsSync(resolve(ROOT, word)), `${word} is built`);
    }
  }
  t.ok(`./${manifest.bin.oneflight}`.includes('dist/bin/main.js'));
  for (const [name, service] of Object.entries(compose.services)) {
    for (const volume of service.volumes ?? []) {
      const [from = ''] = volume.split(':');
      if (from.startsWith('.')) t.ok(existsSync(resolve(ROOT, from)), `${name} mounts ${from}`);
    }
    for (const needed of Object.keys(service.depends_on ?? {})) {
      t.ok(needed in compose.services, `${name} depends on ${needed}`);
    }
    const [command] = service.command ?? [];
    if (command !== undefined && name !== 'redis') t.ok(names.commands.includes(command), `${name} runs ${command}`);
  }
});
