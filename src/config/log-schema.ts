/** Options of the log. See schema.ts. */

import { z } from 'zod';
import { ACCESS_FORMATS, LOG_LEVELS } from './config.js';
import { fields, text } from './schema-parts.js';

const accessFormat = z.enum(ACCESS_FORMATS);

const access = z.union([
  accessFormat,
  fields({
    format: accessFormat
      .default('json')
      .describe(
        'json: a line of the log; clf: the Common Log Format; combined: the same with Referer and User-Agent; off: no line.',
      ),
    sample: text('a percentage such as 10% or 0.5%', /^(?:100|[0-9]{1,2}(?:\.[0-9]{1,3})?)%$/)
      .default('100%')
      .describe(
        'How many of the requests that ended well have a line. All others have one: statuses from 400 on, refusals, requests that were cut, left or unprotected.',
      ),
    target: z
      .enum(['none', 'pattern', 'path', 'full'])
      .optional()
      .describe(
        'What is shown of the target: pattern, the path of the rule where the rule has a key, else that of the request; path; full, with the query. When left out: pattern, in json none.',
      ),
    client: z
      .enum(['none', 'truncated', 'full'])
      .optional()
      .describe(
        "What is shown of the client's address; truncated: its first 24 bits, or 48 of IPv6. When left out: full, in json none.",
      ),
  }),
]);

export const log = fields({
  level: z.enum(LOG_LEVELS).default('info').describe('Least level that is logged.'),
  format: z.enum(['json', 'text']).default('json').describe('json: an object a line; text: for people who look at it.'),
  access: access.default('json').describe('The line of each request that is over, at level info: a format, or fields.'),
}).describe('Logging to standard output.');
