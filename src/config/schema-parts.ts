/**
 * What the schema is made of: kinds of values, each with one message for all that can be wrong with it.
 *
 * Invariant: the message is a noun phrase, what was expected; of an object's unknown fields it is the list of the known ones.
 */

import { z } from 'zod';
import { NAME } from './forms.js';
import { repeatedStatuses, STATUS_CLASS } from './statuses.js';
import { DURATION, durationMs, SIZE, sizeBytes } from './units.js';

export function fields<const Shape extends z.ZodRawShape>(shape: Shape) {
  return z.strictObject(shape, {
    error: (issue) => (issue.code === 'unrecognized_keys' ? Object.keys(shape).join(', ') : undefined),
  });
}

export function text(expected: string, form: RegExp | ((text: string) => boolean)) {
  const string = z.string({ error: expected });
  return form instanceof RegExp ? string.regex(form, { error: expected }) : string.refine(form, { error: expected });
}

/** A whole number; with one message for all that can be wrong with it. */
export function wholeNumber(what: string, min: number, max: number, error = `${what} from ${min} to ${max}`) {
  return z.int({ error }).min(min, { error }).max(max, { error });
}

export function duration(min: string, max: string) {
  const error = `a duration from ${min} to ${max}, such as 250ms, 3s or 5m`;
  return z
    .union([z.string().regex(DURATION, { error }), z.literal(0)], { error })
    .refine((value) => durationMs(value) >= durationMs(min) && durationMs(value) <= durationMs(max), { error });
}

export function size(min: string, max: string) {
  const error = `a size from ${min} to ${max}, such as 64KiB or 8MiB`;
  return z
    .union([z.string().regex(SIZE, { error }), z.int({ error }).min(0, { error })], { error })
    .refine((value) => sizeBytes(value) >= sizeBytes(min) && sizeBytes(value) <= sizeBytes(max), { error });
}

export function secret(what: string) {
  const error = `${what} of 16 to 1024 characters`;
  return z.string({ error }).min(16, { error }).max(1024, { error });
}

export const name = text(
  'a name of up to 64 letters, digits, ".", "_" and "-", beginning with a letter or digit',
  NAME,
);

const statusOrClass = 'a status from 200 to 999 or a class such as 2xx';
const listedStatus = z.union([wholeNumber('a status', 200, 999, statusOrClass), text(statusOrClass, STATUS_CLASS)], {
  error: statusOrClass,
});

/** A list of statuses and classes, none of them twice. `atLeastOne`: what an empty list is told; null: it may be empty. */
export function statusList(atLeastOne: string | null) {
  const list = z.array(listedStatus);
  return (atLeastOne === null ? list : list.min(1, { error: atLeastOne })).check((context) => {
    for (const index of repeatedStatuses(context.value)) {
      const input = context.value[index];
      const message = 'a status that the list does not have yet';
      context.issues.push({ code: 'custom', message, input, path: [index] });
    }
  });
}
