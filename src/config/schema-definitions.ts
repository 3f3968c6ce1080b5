/** A JSON Schema with what stands several times in it standing once, for those who read it and those who load it. */

// biome-ignore-all lint/suspicious/noThenProperty: a keyword of JSON Schema.

import type { JsonSchema } from './json-schema.js';

/** Characters of JSON from which on what stands several times stands once. */
const WORTH_A_DEFINITION = 160;

/** Puts what stands several times into `definitions`, under the name of the option that has it first. */
export function withDefinitions(whole: JsonSchema): JsonSchema {
  const counts = new Map<string, number>();
  const count = (schema: JsonSchema): void => {
    const text = JSON.stringify(schema);
    const before = counts.get(text) ?? 0;
    counts.set(text, before + 1);
    if (before === 0) countBelow(schema);
  };
  const countBelow = (schema: JsonSchema): void => {
    onProperties(schema, (one) => {
      count(one);
      return one;
    });
  };
  countBelow(whole);
  const definitions = new Map<string, JsonSchema>();
  const names = new Map<string, string>();
  const shared = (schema: JsonSchema, name: string): JsonSchema => {
    const text = JSON.stringify(schema);
    if (text.length < WORTH_A_DEFINITION || counts.get(text) === 1) return onProperties(schema, shared);
    let defined = names.get(text);
    if (defined === undefined) {
      const taken = [...names.values()].filter((one) => one.replace(/-\d+$/, '') === name).length;
      defined = taken === 0 ? name : `${name}-${taken + 1}`;
      names.set(text, defined);
      definitions.set(defined, onProperties(schema, shared));
    }
    return { $ref: `#/definitions/${defined}` };
  };
  const root = onProperties(whole, shared);
  return { ...root, definitions: Object.fromEntries(definitions) };
}

/** Changes the schemas of all options below one, however deep in its conditions and branches they are. */
function onProperties(schema: JsonSchema, change: (schema: JsonSchema, name: string) => JsonSchema): JsonSchema {
  const below = (one: JsonSchema): JsonSchema => onProperties(one, change);
  const { properties, items, additionalProperties: more, anyOf, allOf, else: otherwise } = schema;
  return {
    ...schema,
    ...(properties === undefined
      ? {}
      : { properties: Object.fromEntries(Object.entries(properties).map(([name, one]) => [name, change(one, name)])) }),
    ...(items === undefined ? {} : { items: below(items) }),
    ...(typeof more === 'object' ? { additionalProperties: below(more) } : {}),
    ...(anyOf === undefined ? {} : { anyOf: anyOf.map(below) }),
    ...(allOf === undefined ? {} : { allOf: allOf.map(below) }),
    ...(schema.then === undefined ? {} : { then: below(schema.then) }),
    ...(otherwise === undefined ? {} : { else: below(otherwise) }),
  };
}
