/**
 * The line of each request that is over.
 *
 * Invariants: what ended in an error or a refusal, or without its protection, has a line, whatever part of the others is
 * logged; no content is in it, of fields no more than the format has (the request id, Referer, User-Agent), and of what a key
 * may be made of (the path, the query) only what the configuration says.
 */

import type { Logger } from 'pino';
import type { AccessLogConfig } from '../config/config.js';
import { fieldLines } from '../core/field-lines.js';
import { labelOf, type Outcome, roleOf } from '../core/outcome.js';
import type { ExchangeObserver } from '../exchange/observer.js';
import { clientAddress, truncatedAddress } from '../http/client-address.js';
import { commonLine } from './common-log.js';
import { outputOf } from './log-output.js';

type Report = Parameters<ExchangeObserver['over']>[0];

export type AccessLogOptions = {
  readonly log: Logger;
  readonly config: AccessLogConfig;
  /** Whether the peer of that address is believed when it says who stands behind it. */
  readonly trusts: (address: string) => boolean;
};

/** Ends that nobody needs to look into. */
const WELL: ReadonlySet<Outcome['kind']> = new Set(['passed', 'observed', 'upgraded', 'led', 'collapsed', 'hit']);
const FIRST_ERROR = 400;
/** In place of a query. */
const HIDDEN = 'redacted';

export class AccessLog {
  readonly #log: Logger;
  readonly #trusts: (address: string) => boolean;
  #config: AccessLogConfig;

  constructor({ log, config, trusts }: AccessLogOptions) {
    this.#log = log;
    this.#config = config;
    this.#trusts = trusts;
  }

  /** From now on lines are as this says. */
  use(config: AccessLogConfig): void {
    this.#config = config;
  }

  over(report: Report): void {
    const { format, share } = this.#config;
    if (format === 'off' || !this.#log.isLevelEnabled('info')) return;
    const isSampled = share < 1 && WELL.has(report.outcome.kind) && report.status < FIRST_ERROR;
    if (isSampled && Math.random() >= share) return;
    if (format === 'json') this.#tell(report, isSampled);
    else this.#write(report, format);
  }

  #tell(report: Report, isSampled: boolean): void {
    const { target, client, share } = this.#config;
    this.#log.info(
      {
        route: report.route,
        policy: report.policy,
        method: report.method,
        outcome: labelOf(report.outcome),
        role: roleOf(report.outcome),
        status: report.status,
        requestId: report.requestId,
        durationMs: Math.round(report.durationMs * 10) / 10,
        ...(report.waitedMs === null ? {} : { waitedMs: Math.round(report.waitedMs * 10) / 10 }),
        ...(report.trace === null ? {} : { traceId: report.trace.context.traceId }),
        ...(report.outcome.kind === 'bypassed' ? { reason: report.outcome.reason } : {}),
        ...(target === 'none' ? {} : { target: this.#targetOf(report) }),
        ...(client === 'none' ? {} : { client: this.#clientOf(report) }),
        // So that whoever counts lines can count requests.
        ...(isSampled ? { sample: share } : {}),
      },
      'exchange',
    );
  }

  #write(report: Report, format: 'clf' | 'combined'): void {
    const { fields, req } = report.request;
    const line = {
      client: this.#clientOf(report),
      method: report.method,
      target: this.#targetOf(report),
      httpVersion: req.httpVersion,
      status: report.status,
      contentBytes: report.request.sentBytes,
    };
    const more = format === 'clf' ? null : [this.#refererOf(fields), fieldLines(fields, 'user-agent')[0]];
    outputOf(this.#log)?.writeLine(commonLine(line, more, new Date()));
  }

  #targetOf({ request }: Report): string {
    const { target, rule } = request;
    switch (this.#config.target) {
      case 'full':
        return target;
      case 'path':
        return withoutQuery(target);
      case 'pattern':
        // Parts of the path may be what the key is made of.
        return rule === null || rule.policy.kind === 'pass' ? withoutQuery(target) : rule.match.path;
      case 'none':
        return '-';
    }
  }

  #clientOf({ request }: Report): string {
    const { client } = this.#config;
    if (client === 'none') return '-';
    const address = clientAddress(request.peer, request.fields, this.#trusts);
    return client === 'full' ? address : truncatedAddress(address);
  }

  /** A URL as well, and of this API where somebody has followed a link. */
  #refererOf(fields: readonly string[]): string | undefined {
    const [referer] = fieldLines(fields, 'referer');
    if (referer === undefined || this.#config.target === 'full') return referer;
    return this.#config.target === 'path' ? withoutQuery(referer) : (/^[\w+.-]+:\/\/[^/?#]*/.exec(referer)?.[0] ?? '-');
  }
}

function withoutQuery(target: string): string {
  const at = target.search(/[?#]/);
  return at === -1 ? target : `${target.slice(0, at)}?${HIDDEN}`;
}
