/** What is valid but probably not meant. Each says what would happen and what to write instead. */

import type { Rule } from '../core/rule.js';
import { boundDoubts, keepDoubts } from './bound-doubts.js';
import type { Config } from './config.js';
import { type ConfigWarning, type Doubt, type FieldPath, pathText } from './fault.js';
import { keyDoubts, scopeDoubts } from './key-doubts.js';
import { namePosition, valueAt, writtenPath } from './locate.js';
import { loopDoubts } from './loop.js';
import { replayDoubts } from './replay-doubts.js';
import { covering } from './shadowing.js';
import type { Located } from './source.js';
import { storeDoubts } from './store-doubts.js';

/** Finds the doubtful fields of a valid configuration. */
export function warningsOf(config: Config, root: Located): ConfigWarning[] {
  return doubtsOf(config, root).map(({ code, path, message }) => {
    const position = valueAt(root, path)?.position ?? namePosition(root, path.slice(0, -1));
    return { ...position, code, path: pathText(writtenPath(root, path)), message };
  });
}

function doubtsOf(config: Config, root: Located): Doubt[] {
  const covers = covering(config.rules.map((rule) => rule.match));
  const ofRules = config.rules.flatMap((rule, index) => {
    const path = ['routes', index];
    const cover = covers[index] ?? null;
    return [
      ...(cover === null ? [] : [shadowed(rule, config.rules[cover]!, path)]),
      ...literalParam(rule, path),
      ...keyDoubts(rule, path),
      ...(rule.policy.kind === 'replay' ? replayDoubts(rule.policy, path, root) : []),
      ...boundDoubts(config, rule, path, root),
    ];
  });
  return [
    ...loopDoubts(config, root),
    ...listenDoubts(config),
    ...storeDoubts(config),
    ...keepDoubts(config, root),
    ...ofRules,
    ...scopeDoubts(config.rules, root),
  ];
}

function listenDoubts({ listen, trustedProxies }: Config): Doubt[] {
  if (!listen.proxyProtocol || trustedProxies.length > 0) return [];
  const message = 'whoever can connect may say who it is: name the proxies in front in trustedProxies';
  return [{ code: 'open-proxy-protocol', path: ['listen', 'proxyProtocol'], message }];
}

function shadowed(rule: Rule, cover: Rule, path: FieldPath): Doubt {
  const message = `route ${rule.name} can never match: route ${cover.name} comes first and matches all of its requests`;
  return { code: 'route-shadowed', path: [...path, 'match'], message };
}

/**
 * `:name` further on in a segment, where a parameter was probably meant: behind a sign that joins words (`/order-:id`),
 * or with the name of an identifier (`/orders:id`). `/orders:cancel` and `/urn:isbn:1` are literals that people mean.
 */
const INNER_PARAM = /(?<=[^/])(?:(?<=[-_.~@+=,;!$&'(|]):[A-Za-z_][\w-]*|:(?:id|uuid|\w*(?:Id|ID|[_-]id))(?![\w-]))/;

function literalParam(rule: Rule, path: FieldPath): Doubt[] {
  const [inner] = INNER_PARAM.exec(rule.match.path) ?? [];
  if (inner === undefined) return [];
  const message = `${inner} is taken literally; a parameter is a whole segment`;
  return [{ code: 'literal-param', path: [...path, 'match', 'path'], message }];
}
