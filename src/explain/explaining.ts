/**
 * Why a request gets what it gets: the rule it meets and why not an earlier one, what its key is made of, what it would be
 * told now. What `explain` prints and `POST /explain` answers.
 *
 * Invariants: all of it is what judged-request.ts and `core/policy.ts` decide, said in words; no value of the request is in it
 * unless it was asked for, only kinds and lengths; nothing is claimed in the store and nothing is sent upstream.
 */

import type { Config } from '../config/config.js';
import { shapeOf, shownOf } from '../core/element-value.js';
import { type PartTrace, traceKey } from '../core/key.js';
import { passedOver } from '../core/match.js';
import type { Policy } from '../core/rule.js';
import type { ToldRequest } from '../http/told-request.js';
import { type AskedStore, type Becomes, becomesOf, type Standing } from './becoming.js';
import { type JudgedRequest, type JudgeOptions, RequestJudge } from './judged-request.js';
import { notesOf, unmetText, whyAbsent, withoutQueryValues } from './words.js';

export type PartExplained = {
  /** As the configuration writes it. */
  readonly part: string;
  readonly of: 'key' | 'identity';
  readonly state: 'present' | 'absent' | 'malformed';
  /** Kind and length, or the value where it was asked for; null where there is none. */
  readonly value: string | null;
  /** Why it is absent or malformed, and what that means. */
  readonly why: string | null;
};

/** A name under which gateways have the key: one for each secret. */
export type DigestExplained = {
  /** `current` is used for new keys; `other` ones were, or will be (rotation); `none`: there is no secret. */
  readonly secret: 'current' | 'other' | 'none';
  readonly digest: string;
  /** Of policies that compare requests; null of others. */
  readonly fingerprint: string | null;
};

export type KeyExplained = {
  readonly scope: string;
  /** Null: the key is the same whatever the method. */
  readonly method: string | null;
  /** `Range` and `If-*` fields that are part of the key. */
  readonly selecting: readonly string[];
  readonly parts: readonly PartExplained[];
  /** Empty where the key cannot be had. */
  readonly digests: readonly DigestExplained[];
};

export type RuleExplained = { readonly route: string; readonly unmet: readonly string[] };

export type Explanation = {
  readonly method: string;
  /** As it came; values of the query only where they were asked for. */
  readonly target: string;
  /** What rules are matched against. */
  readonly path: string;
  readonly host: string;
  /** Rules before the one that it meets, and what of each is not met. */
  readonly passedOver: readonly RuleExplained[];
  /** Null: no rule is met. */
  readonly route: string | null;
  readonly policy: Policy['kind'] | null;
  readonly upstream: string | null;
  readonly key: KeyExplained | null;
  /** Null: the store was not asked. */
  readonly store: Standing | null;
  readonly becomes: Becomes;
  readonly notes: readonly string[];
};

export type ExplainOptions = {
  readonly values: 'masked' | 'shown';
  /** Whom to ask what has the key; null: nobody. */
  readonly store: AskedStore | null;
};

/** Explains requests by one configuration. */
export class Explainer {
  readonly #judge: RequestJudge;

  constructor(config: Config, options: JudgeOptions = {}) {
    this.#judge = new RequestJudge(config, options);
  }

  async explain(request: ToldRequest, { values, store }: ExplainOptions): Promise<Explanation> {
    const judged = this.#judge.judge(request);
    const { view, rule } = judged;
    const { method, target, host } = view;
    const match = { method, path: target.path, host, fields: view.fields };
    const { becomes, standing } = await becomesOf(judged, store);
    return {
      method,
      target: values === 'shown' ? target.raw : withoutQueryValues(target.raw),
      path: target.path,
      host,
      passedOver: passedOver(this.#judge.rules, match).map((one) => ({
        route: one.rule.name,
        unmet: one.unmet.map((unmet) => unmetText(unmet, one.rule.match)),
      })),
      route: rule?.name ?? null,
      policy: rule?.policy.kind ?? null,
      upstream: judged.upstream,
      key: this.#key(judged, values),
      store: standing,
      becomes,
      notes: notesOf(judged),
    };
  }

  #key(judged: JudgedRequest, values: ExplainOptions['values']): KeyExplained | null {
    const { view, rule, step } = judged;
    const policy = rule?.policy;
    if (policy === undefined || policy.kind === 'pass') return null;
    const { parts, method, selecting } = traceKey(policy, view);
    return {
      scope: policy.scope,
      method,
      selecting,
      parts: parts.map((part) => explainedPart(part, judged, values)),
      digests: step.kind === 'keyed' ? digestsOf(step, this.#judge.config.store.secrets) : [],
    };
  }
}

type Keyed = JudgedRequest['step'] & { readonly kind: 'keyed' };

/** Every name that gateways of these secrets have for the key: the first is in use. */
function digestsOf({ policy, key, fingerprint, others }: Keyed, secrets: readonly string[]): DigestExplained[] {
  const compares = policy.kind === 'replay';
  return [
    {
      secret: secrets.length === 0 ? 'none' : 'current',
      digest: key.digest,
      fingerprint: compares ? fingerprint : null,
    },
    ...others.map((other): DigestExplained => {
      return { secret: 'other', digest: other.key, fingerprint: compares ? other.fingerprint : null };
    }),
  ];
}

function explainedPart(
  { label, of, part, value }: PartTrace,
  judged: JudgedRequest,
  values: ExplainOptions['values'],
): PartExplained {
  switch (value.kind) {
    case 'element': {
      const shown = values === 'shown' ? shownOf(value.element) : shapeOf(value.element);
      return { part: label, of, state: 'present', value: shown, why: null };
    }
    case 'absent': {
      const counts = part.optional ? 'which counts as a value of its own' : 'and it is not optional';
      return { part: label, of, state: 'absent', value: null, why: `${whyAbsent(part, judged)}, ${counts}` };
    }
    case 'malformed':
      return { part: label, of, state: 'malformed', value: null, why: value.why };
  }
}
