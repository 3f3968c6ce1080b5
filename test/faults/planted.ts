/**
 * Faults that a gateway of this kind is known to have had, each planted in a copy of the built program: what shows
 * that the harness finds them.
 *
 * Invariants: the product has no switch for any of them; a text that is to be replaced and is no longer there, or is
 * there twice, is an error, so that no fault is planted in vain.
 */

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  DIES,
  LONG_CALLS,
  LOSES_REPLY,
  OTHER_BODY,
  RENEWS_LATE,
  REPEATS_UNKNOWN,
  SECOND_FLIGHT,
  SETTLES_LATE_LOCK,
  SETTLES_LATE_SHARED,
  WAITS_FOR_PUSH,
  WAITS_LONG,
} from './aimed.js';
import type { Schedule } from './schedule.js';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

type Patch = {
  /** Below `dist/src`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
};

export type PlantedBug = {
  readonly name: string;
  /** In which it shows. */
  readonly schedule: Schedule;
  /** What the checker says then. */
  readonly finds: RegExp;
  readonly patches: readonly Patch[];
};

export const PLANTED: readonly PlantedBug[] = [
  {
    name: 'release does not compare the token',
    schedule: SETTLES_LATE_LOCK,
    finds: /lock.* while .* was running/,
    patches: [
      {
        file: 'store/lua/release.lua',
        from: "local held = record[1] == 'f' and record[2] == ARGV[1]",
        to: "local held = record[1] == 'f'",
      },
      { file: 'store/lua/release.lua', from: 'held = record[3] == ARGV[2] and tonumber', to: 'held = tonumber' },
    ],
  },
  {
    name: 'complete does not compare the token',
    schedule: SETTLES_LATE_SHARED,
    finds: /the answer of a flight that had lost the key|while .* was running/,
    patches: [
      {
        file: 'store/lua/complete.lua',
        from: 'if record[2] ~= ARGV[1] or record[3] ~= ARGV[2] then',
        to: 'if not record[2] then',
      },
    ],
  },
  {
    name: 'renew does not compare the token',
    schedule: RENEWS_LATE,
    finds: /the answer of a flight that had lost the key/,
    patches: [{ file: 'store/lua/renew.lua', from: 'record[2] ~= ARGV[1] or record[3] ~= ARGV[2] or ', to: '' }],
  },
  {
    name: 'the wake-up is lost',
    schedule: WAITS_FOR_PUSH,
    finds: /no push can have told it/,
    patches: [{ file: 'store/lua/complete.lua', from: "redis.pcall('PUBLISH', ARGV[5] .. process, push)", to: '' }],
  },
  {
    name: 'a result has no flight id',
    schedule: SECOND_FLIGHT,
    finds: /an answer from before its time/,
    patches: [
      { file: 'store/redis-names.js', from: ':r:$' + '{flight}', to: ':r' },
      // Every later question would be turned away, which nobody could overlook.
      { file: 'store/lua/claim.lua', from: "redis.call('EXISTS', KEYS[2]) == 1", to: 'false' },
      { file: 'store/lua/queue.lua', from: "if redis.call('EXISTS', KEYS[3]) == 1 then", to: 'if false then' },
    ],
  },
  {
    name: 'an unknown outcome is taken for a free key',
    schedule: REPEATS_UNKNOWN,
    finds: /sent again while the outcome was held/,
    patches: [
      { file: 'store/lua/claim.lua', from: "state = tonumber(record[8]) > 0 and 'u'", to: 'state = false' },
      { file: 'store/lua/claim.lua', from: "if state == 'u' then", to: 'if false then' },
    ],
  },
  {
    name: 'the lease is not renewed',
    schedule: LONG_CALLS,
    finds: /while .* was running/,
    patches: [
      {
        file: 'exchange/lease-keeper.js',
        from: 'await this.#store.renew(this.#lease)',
        to: "await Promise.resolve('held')",
      },
    ],
  },
  {
    name: 'retention is used as the lease',
    schedule: DIES,
    finds: /a flight of freed goes on/,
    patches: [
      {
        file: 'exchange/flights.js',
        from: 'leaseMs: policy.leaseMs',
        to: "leaseMs: policy.kind === 'replay' ? policy.keepMs : policy.leaseMs",
      },
    ],
  },
  {
    name: 'a lost reply locks its own claim out',
    schedule: LOSES_REPLY,
    finds: /nothing was sent whose outcome is unknown/,
    patches: [{ file: 'store/lua/claim.lua', from: '  if own then', to: '  if false then' }],
  },
  {
    name: 'the local shortcut skips the fingerprint',
    schedule: OTHER_BODY,
    finds: /the answer of another body/,
    patches: [
      {
        file: 'exchange/flights.js',
        from: 'const same = flight.fingerprint === caller.fingerprint;',
        to: 'const same = true;',
      },
    ],
  },
  {
    name: 'a wait has no end',
    schedule: WAITS_LONG,
    finds: /after its bound/,
    patches: [
      {
        file: 'exchange/flight.js',
        from: 'caller.waitingSinceMs + wait.waitMs',
        to: 'Number.POSITIVE_INFINITY',
      },
    ],
  },
];

export type PlantedProgram = {
  /** Of the copy's `main.js`. */
  readonly path: string;
  remove(): void;
};

/** Copies the built program and plants the bug in the copy. Throws when the text is not there exactly once. */
export function plant({ name, patches }: PlantedBug): PlantedProgram {
  const root = mkdtempSync(join(tmpdir(), 'oneflight-planted-'));
  mkdirSync(join(root, 'dist'));
  cpSync(resolve(ROOT, 'dist/src'), join(root, 'dist/src'), { recursive: true });
  cpSync(resolve(ROOT, 'package.json'), join(root, 'package.json'));
  symlinkSync(resolve(ROOT, 'node_modules'), join(root, 'node_modules'));
  for (const { file, from, to } of patches) {
    const path = join(root, 'dist/src', file);
    const parts = readFileSync(path, 'utf8').split(from);
    if (parts.length !== 2) {
      throw new Error(`"${name}" cannot be planted: ${file} has ${parts.length - 1} times: ${from}`);
    }
    writeFileSync(path, parts.join(to));
  }
  return { path: join(root, 'dist/src/main.js'), remove: () => rmSync(root, { recursive: true, force: true }) };
}
