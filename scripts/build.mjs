// Builds dist/ from nothing: the compiler's output, and beside it the Lua scripts, which the compiler does not copy.
import { execFileSync } from 'node:child_process';
import { cpSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));
rmSync('dist', { recursive: true, force: true });
execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.json'], { stdio: 'inherit' });
cpSync('src/store/lua', 'dist/src/store/lua', { recursive: true });
