/**
 * `oneflight smoke`: is the key of a rule right? Three scenarios against the running gateway: one request alone, two with
 * one key, two with different keys.
 *
 * Invariants: the requests are real and reach the upstream (up to five times); every one has a connection of its own;
 * the parts that clients make anew for each attempt are new in each request, so that a key made of them is found out.
 */

import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Config } from '../config/config.js';
import { fieldLines } from '../core/field-lines.js';
import { compileRules, matchRule, type RuleTable } from '../core/match.js';
import type { KeyPart } from '../core/rule.js';
import { parseTarget } from '../core/target.js';
import { PER_ATTEMPT_FIELDS } from '../http/fields.js';
import { BAD_CONFIG, DONE, FAILED, USAGE } from './exit-code.js';
import { HttpFileError, parseHttpFile } from './http-file.js';
import { listenerUrl } from './listener-address.js';
import { openConfig } from './open-config.js';
import { changePart, PartError, parsePart, partText, readPart } from './request-parts.js';
import { type Answer, type Outgoing, send } from './send.js';
import { judgeAlone, judgeDifferent, judgeSame, type KeyedRule, partsOf, type Verdict } from './smoke-verdict.js';

export type SmokeOptions = {
  /** Name of the rule. */
  readonly route: string;
  /** Path of a file in `.http` form: one request, or one for each scenario. */
  readonly request: string;
  /** Base URL of the gateway; by default the one that the configuration names. */
  readonly url: string | undefined;
  /** The part to change for the third scenario, such as `body: /refreshToken`; by default the first of the rule's key. */
  readonly vary: string | undefined;
  /** Parts that a client makes anew for each attempt, beside the usual fields. */
  readonly fresh: readonly string[];
  readonly config: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
};

type Plan = {
  readonly rule: KeyedRule;
  readonly table: RuleTable;
  readonly origin: URL;
  readonly vary: KeyPart;
  readonly fresh: readonly KeyPart[];
  readonly file: Buffer;
};

/** The command line or the request file is wrong: exit code 2. */
class UsageError extends Error {
  override readonly name = 'UsageError';
}

const TIMEOUT_MS = 120_000;

/** Runs the check; 0 passed, 1 failed or inconclusive, 2 usage, 78 bad configuration. */
export async function smoke(options: SmokeOptions): Promise<number> {
  const opened = openConfig(options.config, options.env);
  if (opened.kind === 'bad') {
    options.writeError(opened.report);
    return BAD_CONFIG;
  }
  try {
    return await runScenarios(planOf(options, opened.config), options.write);
  } catch (error) {
    if (error instanceof UsageError || error instanceof HttpFileError || error instanceof PartError) {
      options.writeError(`oneflight smoke: ${error.message}\n`);
      return USAGE;
    }
    options.writeError(`oneflight smoke: ${reasonOf(error)}\n`);
    return FAILED;
  }
}

async function runScenarios(plan: Plan, write: (text: string) => void): Promise<number> {
  const { rule, origin } = plan;
  const deliver = (request: Outgoing): Promise<Answer> => send(origin, request, TIMEOUT_MS);
  const verdicts: Verdict[] = [];
  const report = (title: string, verdict: Verdict): void => {
    verdicts.push(verdict);
    const mark = { ok: 'ok  ', fail: 'FAIL', inconclusive: '??  ' }[verdict.kind];
    const prefix = verdict.kind === 'inconclusive' ? 'inconclusive: ' : '';
    write(`${mark}  ${title}  ${prefix}${verdict.reason}\n`);
  };
  write(`rule ${rule.name} (${rule.policy.kind}) at ${origin.origin}, varied: ${partText(plan.vary)}\n`);

  // Everything is built before anything is sent: a mistake in the file must not leave half a run behind.
  const alone = attempt(plan, 0);
  const same = [attempt(plan, 1), attempt(plan, 1)] as const;
  const first = attempt(plan, 2);
  const second = changePart(attempt(plan, 2), plan.vary, rule.match.path, newSalt());
  for (const request of [alone, first, second]) checkMatch(plan, request);
  const differing = partsOf(rule).filter(
    (part) => readPart(same[0], part, rule.match.path) !== readPart(same[1], part, rule.match.path),
  );

  report('one request alone      ', judgeAlone(rule, await deliver(alone)));
  report(
    'two with one key       ',
    judgeSame(rule, await Promise.all([deliver(same[0]), deliver(same[1])]), differing),
  );
  report(
    'two with different keys',
    judgeDifferent(rule, await Promise.all([deliver(first), deliver(second)]), plan.vary),
  );
  return verdicts.every(({ kind }) => kind === 'ok') ? DONE : FAILED;
}

/** The rule must be the one that the request meets, or the run would judge another. */
function checkMatch({ rule, table, origin }: Plan, { method, target, fields }: Outgoing): void {
  const { path } = parseTarget(target);
  const host = fieldLines(fields, 'host')[0] ?? origin.host;
  const met = matchRule(table, { method, path, host, fields })?.rule.name;
  if (met === rule.name) return;
  const instead = met === undefined ? 'no rule' : `the rule \`${met}\``;
  throw new UsageError(`--request: \`${method} ${path}\` meets ${instead}, not \`${rule.name}\` (${rule.match.path})`);
}

function planOf(options: SmokeOptions, config: Config): Plan {
  const rule = config.rules.find(({ name }) => name === options.route);
  if (rule === undefined) {
    const names = config.rules.map(({ name }) => name).join(', ') || 'none';
    throw new UsageError(`--route: no rule is named \`${options.route}\`; there are: ${names}`);
  }
  const { policy } = rule;
  if (policy.kind === 'pass')
    throw new UsageError(`--route: \`${rule.name}\` has policy pass: there is nothing to check`);
  if (policy.mode === 'observes') {
    const why = 'only observes (`observe: true`): every request is forwarded';
    throw new UsageError(`--route: \`${rule.name}\` ${why}`);
  }
  const keyed: KeyedRule = { ...rule, policy };
  const vary = options.vary === undefined ? policy.key[0] : partOption('--vary', options.vary);
  if (vary === undefined) throw new UsageError('--vary: the rule has no key part, name the part to change');
  const usual = PER_ATTEMPT_FIELDS.map((name): KeyPart => ({ from: 'header', name, optional: true }));
  return {
    rule: keyed,
    table: compileRules(config.rules),
    origin: originOf(options.url, config),
    vary,
    fresh: [...usual, ...options.fresh.map((text) => partOption('--fresh', text))],
    file: fileOf(options.request),
  };
}

/** One rendering of the request for a scenario, with new values where a client would make new ones. */
function attempt({ file, fresh, rule, vary }: Plan, scenario: number): Outgoing {
  const requests = parseHttpFile(file);
  const written = requests[Math.min(scenario, requests.length - 1)];
  if (written === undefined) throw new UsageError('--request: the file has no request');
  const pattern = rule.match.path;
  const isVaried = (part: KeyPart): boolean => partText(part) === partText(vary);
  const matters = (part: KeyPart): boolean =>
    readPart(written, part, pattern) !== null || partsOf(rule).some((each) => partText(each) === partText(part));
  return fresh
    .filter((part) => matters(part) && !isVaried(part))
    .reduce((request, part) => changePart(request, part, pattern, newSalt()), written);
}

function partOption(option: string, text: string): KeyPart {
  const part = parsePart(text);
  if (part !== null) return part;
  throw new UsageError(
    `${option}: expected a key part such as \`body: /refreshToken\` or \`param: id\`, got \`${text}\``,
  );
}

function fileOf(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new UsageError(`--request: ${reasonOf(error)}`);
  }
}

function originOf(url: string | undefined, config: Config): URL {
  if (url === undefined)
    return listenerUrl(config.listen.host, config.listen.port, config.listen.tls === null ? 'http' : 'https');
  if (!/^https?:\/\//.test(url) || !URL.canParse(url))
    throw new UsageError(`--url: expected an http(s) URL, got \`${url}\``);
  return new URL(url);
}

function newSalt(): string {
  return randomInt(36 ** 5, 36 ** 6).toString(36);
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}
