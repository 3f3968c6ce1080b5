/** The sentences of an explanation. Invariant: what is said is about names and kinds, never about values. */

import { fieldLines } from '../core/field-lines.js';
import type { Unmet } from '../core/match.js';
import type { KeyPart, Match } from '../core/rule.js';
import { goesUpstream } from '../http/fields.js';
import { offerOf } from '../http/upgrade.js';
import type { JudgedRequest } from './judged-request.js';

/** What a rule wants that a request is not. */
export function unmetText(unmet: Unmet, { methods, path, host }: Match): string {
  switch (unmet.kind) {
    case 'method':
      return `method: ${methods.join(', ')} is wanted`;
    case 'path':
      return `path: ${path} is wanted`;
    case 'host':
      return `host: ${host} is wanted`;
    case 'header':
      return `header: ${unmet.name} has not the value that is wanted`;
  }
}

/** Why a request has not the part of a key. */
export function whyAbsent(part: KeyPart, { view, sentFields }: JudgedRequest): string {
  const { target, content, fields } = view;
  switch (part.from) {
    case 'header':
    case 'idempotency-key': {
      const isSent = fieldLines(sentFields, part.name).length > 0;
      return isSent ? whyNotForwarded(part.name) : 'there is no such field';
    }
    case 'query':
      return target.query === null ? 'the target has no query' : 'the query has no such name';
    case 'param':
      return 'match.path has no such parameter';
    case 'cookie':
      return fieldLines(fields, 'cookie').length === 0 ? 'there is no Cookie field' : 'there is no such cookie';
    case 'body':
      return isEmpty(content) ? 'there is no content' : 'the content has no such value';
    case 'form':
      return isEmpty(content) ? 'there is no content' : 'the form has no such name';
    case 'request':
      return 'the request has no such property';
  }
}

/** Keys read what the upstream will see. */
function whyNotForwarded(name: string): string {
  if (!goesUpstream(name)) return 'the field is sent, but is never forwarded';
  if (name === 'x-request-id') return 'the field is sent, but not believed (requestId.trust, or its form)';
  return 'the field is sent, but Connection names it: it is not forwarded';
}

function isEmpty(content: Buffer | null): boolean {
  return content === null || content.length === 0;
}

/** The target with what follows each `=` of its query left out. */
export function withoutQueryValues(target: string): string {
  const mark = target.indexOf('?');
  if (mark === -1) return target;
  const pairs = target.slice(mark + 1).split('&');
  const names = pairs.map((pair) => (pair.includes('=') ? `${pair.slice(0, pair.indexOf('='))}=...` : pair));
  return `${target.slice(0, mark)}?${names.join('&')}`;
}

/** What else is worth knowing about it. */
export function notesOf({ mode, view, sentFields, step, rule }: JudgedRequest): string[] {
  const notes: string[] = [];
  const offers = offerOf(sentFields) !== null;
  if (offers && (step.kind === 'passed' || mode === 'observed'))
    notes.push('It offers to switch protocols: the offer is passed on.');
  if (offers && step.kind === 'keyed' && mode === 'acted')
    notes.push('It offers to switch protocols: the rule has a key, so it is forwarded as an ordinary request.');
  if (view.target.path === '*') notes.push('The asterisk form is no path, and meets no rule.');
  if (rule !== null && rule.maxRequests !== Number.POSITIVE_INFINITY) {
    notes.push(`With more than ${rule.maxRequests} upstream calls under way in a process it is refused (maxRequests).`);
  }
  return notes;
}
