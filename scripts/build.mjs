// Builds dist/ from nothing: the compiler's output for tests and benchmarks, and in dist/bin/ what is published and run:
// the same as a bundle, with the Lua scripts, the live page, and the licences and the bill of materials (SBOM) of what is inside. Nothing
// else needs to be installed.
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build, version as esbuildVersion } from 'esbuild';
import { licencesOf } from './licences.mjs';
import { directOf, packagesOf } from './packages.mjs';
import { sbomOf } from './sbom.mjs';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));
rmSync('dist', { recursive: true, force: true });
for (const project of ['tsconfig.json', 'src/page/tsconfig.json']) {
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', project], { stdio: 'inherit' });
}
cpSync('src/store/lua', 'dist/src/store/lua', { recursive: true });
// What `oneflight init` writes.
cpSync('config/gateway.yaml', 'dist/src/cli/gateway.yaml');

const { metafile } = await build({
  // A worker is a program of its own, beside the one that starts it.
  entryPoints: { main: 'dist/src/main.js', 'worker-process': 'dist/src/workers/worker-process.js' },
  outdir: 'dist/bin',
  bundle: true,
  // What a command does not need is not loaded: each import() is a file of its own.
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  // Names stay, so that a stack trace and a CPU profile can be read.
  keepNames: true,
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
  // Packages in CommonJS ask for Node's own modules by require.
  banner: {
    js: "import { createRequire as requireFrom } from 'node:module';\nconst require = requireFrom(import.meta.url);",
  },
});
cpSync('src/store/lua', 'dist/bin/lua', { recursive: true });
cpSync('config/gateway.yaml', 'dist/bin/gateway.yaml');
chmodSync('dist/bin/main.js', 0o755);

// The live page, for browsers: its types are checked above, and every package that it is made of is inside.
const page = await build({
  entryPoints: ['src/page/page.ts', 'src/page/page.css'],
  outdir: 'dist/bin/page',
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
});
for (const file of ['index.html', 'page.svg']) cpSync(`src/page/${file}`, `dist/bin/page/${file}`);
cpSync('dist/bin/page', 'dist/src/server/page', { recursive: true });

const inputs = { ...metafile.inputs, ...page.metafile.inputs };
const packages = packagesOf(inputs);
writeFileSync('dist/bin/THIRD-PARTY-LICENSES.txt', licencesOf(packages));
const own = JSON.parse(readFileSync('package.json', 'utf8'));
const tools = [{ name: 'esbuild', version: esbuildVersion }];
writeFileSync('dist/bin/sbom.cdx.json', sbomOf({ own, packages, direct: directOf(inputs), tools }));
