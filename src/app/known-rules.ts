/**
 * What is known of rules by their names, for operators: of those in use, and of those that a reload has taken away, whose
 * keys may still be in the store.
 */

import { keepMsOf as keepOf, type Rule } from '../core/rule.js';

/** Of so many rules that are gone it is remembered how long they kept. */
const MOST_FORMER = 10_000;

export class KnownRules {
  #rules: readonly Rule[];
  /** How long rules that are gone kept responses, ms. */
  readonly #former = new Map<string, number | null>();

  constructor(rules: readonly Rule[]) {
    this.#rules = rules;
  }

  /** These are in use from now on. */
  replace(rules: readonly Rule[]): void {
    for (const rule of this.#rules) this.#former.set(rule.name, keepMsOfRule(rule));
    for (const { name } of rules) this.#former.delete(name);
    this.#rules = rules;
    for (const name of this.#former.keys()) {
      if (this.#former.size <= MOST_FORMER) return;
      this.#former.delete(name);
    }
  }

  /** How long the rule of that name keeps a response, ms, or did while there was one; null: it keeps none. */
  keepMsOf(route: string): number | null {
    const rule = this.#rules.find(({ name }) => name === route);
    return rule === undefined ? (this.#former.get(route) ?? null) : keepMsOfRule(rule);
  }

  isRule(name: string): boolean {
    return this.#rules.some((rule) => rule.name === name);
  }
}

/** How long a rule keeps a response that an operator gives for it, ms; null when it keeps none. */
function keepMsOfRule({ policy, match }: Rule): number | null {
  if (policy.kind === 'replay') return policy.keepMs;
  if (policy.kind !== 'coalesce') return null;
  // All methods are not safe ones.
  const keepMs = Math.max(...(match.methods.length === 0 ? ['POST'] : match.methods).map((one) => keepOf(policy, one)));
  return keepMs > 0 ? keepMs : null;
}
