/**
 * The schema for editors: what they complete, explain and check with.
 *
 * Invariants: whatever `validate` accepts is valid by it, a reference such as `${VAR}` in the place of any value as well;
 * what takes two fields, or more than a pattern, is left to `validate`.
 */

// biome-ignore-all lint/suspicious/noThenProperty: a keyword of JSON Schema.

import { describedSchema, type JsonSchema, writtenValue } from './json-schema.js';
import { POLICY_MEANING } from './route-schema.js';
import { STORE_KIND_MEANING } from './schema.js';
import { withDefinitions } from './schema-definitions.js';

/** Beside the file that it is for. */
export const SCHEMA_FILE = 'oneflight.schema.json';

const REFERENCE = '\\$\\{';

/** The schema for editors: references are allowed everywhere, and a union with a tag is checked by its tag alone. */
export function editorSchema(): JsonSchema {
  // An included file, or one that includes, need not have everything.
  const { $schema, properties = {}, required: _, ...root } = describedSchema();
  const { routes, store, ...others } = properties;
  const tagged = (schema: JsonSchema, tag: string, meaning: string, byDefault: string): JsonSchema => {
    const { oneOf = [], ...about } = schema;
    return { ...about, ...byTag(oneOf, tag, meaning, byDefault) };
  };
  const { items = {}, ...list } = routes ?? {};
  const whole = forEditors({
    ...root,
    properties: {
      ...others,
      store: tagged(store ?? {}, 'kind', STORE_KIND_MEANING, 'memory'),
      routes: { ...list, items: tagged(items, 'policy', POLICY_MEANING, 'pass') },
    },
  });
  return { ...($schema === undefined ? {} : { $schema }), ...withDefinitions(whole) };
}

/** What `oneflight schema` prints. */
export function editorSchemaText(): string {
  return `${JSON.stringify(editorSchema(), null, 1)}\n`;
}

/**
 * A union as conditions on its tag. Of a `oneOf` an editor guesses which branch was meant, and offers the fields of all.
 * Without the tag the fields of every variant are offered, and each says that it needs the tag.
 */
function byTag(variants: readonly JsonSchema[], tag: string, meaning: string, byDefault: string): JsonSchema {
  const kindOf = (variant: JsonSchema) => String(variant.properties?.[tag]?.const);
  const kinds = variants.map(kindOf);
  const fieldsOf = (variant: JsonSchema) => ({ ...variant.properties, [tag]: {} });
  const implied = variants.find((variant) => kindOf(variant) === byDefault) ?? {};
  const all = Object.assign({}, ...variants.toReversed().map(fieldsOf), fieldsOf(implied)) as Record<
    string,
    JsonSchema
  >;
  const others = Object.keys(all).filter((field) => !(field in (implied.properties ?? {})));
  const strict = { additionalProperties: false };
  return {
    type: 'object',
    properties: {
      [tag]: {
        description: meaning,
        default: byDefault,
        enum: kinds,
        enumDescriptions: variants.map((variant) => variant.properties?.[tag]?.description ?? ''),
      },
    },
    allOf: [
      {
        if: { required: [tag] },
        else: {
          properties: all,
          required: implied.required ?? [],
          dependencies: Object.fromEntries(others.map((field) => [field, [tag]])),
          ...strict,
        },
      },
      ...variants.map((variant) => ({
        if: { properties: { [tag]: { const: kindOf(variant) } }, required: [tag] },
        then: { properties: fieldsOf(variant), required: variant.required ?? [], ...strict },
      })),
    ],
  };
}

/** Turns every schema inside into one that takes references too. */
function forEditors(schema: JsonSchema): JsonSchema {
  if (schema.if !== undefined) return { ...schema, ...parts(schema, ['then', 'else']) };
  const { expected, ...bare } = described(merged(schema));
  const message = expected === undefined ? {} : { errorMessage: `Expected ${expected}` };
  if (bare.enum !== undefined || bare.const !== undefined) return orReference(bare);
  if (bare.anyOf !== undefined) return union(bare, message);
  if (scalarTypes(bare).length > 0) return scalar(bare, message);
  const { properties, allOf, ...about } = {
    ...bare,
    ...parts(bare, ['items', 'additionalProperties', 'propertyNames']),
  };
  return {
    ...about,
    ...(properties === undefined ? {} : { properties: mapped(properties, forEditors) }),
    ...(allOf === undefined ? {} : { allOf: allOf.map(forEditors) }),
  };
}

function parts(
  schema: JsonSchema,
  keywords: readonly ('items' | 'additionalProperties' | 'propertyNames' | 'then' | 'else')[],
) {
  return Object.fromEntries(
    keywords.flatMap((keyword) => {
      const part = schema[keyword];
      return typeof part === 'object' ? [[keyword, forEditors(part)]] : [];
    }),
  );
}

function mapped(
  properties: NonNullable<JsonSchema['properties']>,
  change: (schema: JsonSchema, name: string) => JsonSchema,
) {
  return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, change(schema, name)]));
}

/** With all that there is to say in one text: editors show no default, and no limits. */
function described(schema: JsonSchema): JsonSchema {
  const { description, default: byDefault, expected } = schema;
  // An empty section is what an editor would write out.
  const isEmpty = typeof byDefault === 'object' && byDefault !== null && Object.keys(byDefault).length === 0;
  const { default: _, ...rest } = schema;
  const kept = isEmpty ? rest : schema;
  if (description === undefined) return kept;
  const limits = expected === undefined ? [] : [`Expected: ${expected}.`];
  const fallback = byDefault === undefined || isEmpty ? [] : [`Default: ${writtenValue(byDefault)}.`];
  return { ...kept, description: [description, ...limits, ...fallback].join(' ') };
}

/** A text or a number, such as a duration, as one schema of two types: their keywords do not meet. */
function merged(schema: JsonSchema): JsonSchema {
  const { anyOf, ...about } = schema;
  if (anyOf === undefined) return schema;
  const flat = anyOf.flatMap((branch) => branch.anyOf ?? [branch]);
  const isWord = ({ enum: words, const: only }: JsonSchema) =>
    words !== undefined || typeof only === 'string' || typeof only === 'boolean';
  if (flat.some((one) => scalarTypes(one).length !== 1 || isWord(one))) return schema;
  const only = flat.find((one) => one.const !== undefined)?.const;
  const branches = flat.map(({ const: _, ...one }) => one);
  return {
    ...(Object.assign({}, ...branches, about) as JsonSchema),
    type: flat.flatMap(scalarTypes),
    ...(only === undefined ? {} : { if: { type: 'number' }, then: { const: only } }),
  };
}

function scalarTypes({ type = [] }: JsonSchema): string[] {
  return [type].flat().filter((one) => one !== 'object' && one !== 'array');
}

/** Its mappings and lists first: of branches that fit equally badly an editor takes the first. */
function union({ anyOf = [], ...about }: JsonSchema, { errorMessage }: JsonSchema): JsonSchema {
  const told = errorMessage === undefined ? {} : { expected: errorMessage.replace(/^Expected /, '') };
  const message = `Expected ${[...new Set(anyOf.map(nounOf))].join(', or ')}`;
  const scalars = anyOf.filter(isScalar).map((branch) => forEditors({ ...branch, ...told }));
  const others = anyOf.filter((branch) => !isScalar(branch)).map((branch) => ofType(forEditors(branch), message));
  const flat = [...others, ...scalars].flatMap((branch) => branch.anyOf ?? [branch]);
  const texts = flat.map((branch) => JSON.stringify(branch));
  return { ...about, anyOf: flat.filter((_, index) => texts.indexOf(texts[index] as string) === index) };
}

function isScalar(branch: JsonSchema): boolean {
  return scalarTypes(branch).length > 0 || branch.anyOf !== undefined;
}

function nounOf({ expected, type, const: only, enum: words }: JsonSchema): string {
  if (only !== undefined || words !== undefined) return [only ?? words].flat().join(' or ');
  return expected ?? (type === 'array' ? 'a list' : 'a mapping');
}

/** A message of its own for a value of another type: with one beside it, what is wrong inside would be told so too. */
function ofType({ type, ...schema }: JsonSchema, errorMessage: string): JsonSchema {
  return { allOf: [{ type: type ?? 'object', errorMessage }, schema] };
}

/** A text, a number or a truth value: or a reference to what is one. */
function scalar({ minLength, maxLength, ...schema }: JsonSchema, message: JsonSchema): JsonSchema {
  const types = scalarTypes(schema);
  const said = types.includes('boolean') && types.length === 1 ? { errorMessage: 'Expected true or false' } : message;
  const then = schema.then === undefined ? {} : { then: { ...schema.then, ...said } };
  if (!types.includes('string')) return { ...schema, ...then, type: [...types, 'string'], pattern: REFERENCE, ...said };
  const pattern =
    schema.pattern ?? (minLength === undefined ? undefined : `^[\\s\\S]{${minLength},${maxLength ?? ''}}$`);
  return { ...schema, ...then, ...(pattern === undefined ? {} : { pattern: `(?:${pattern})|${REFERENCE}` }), ...said };
}

/** Words to choose from, or a reference to one. */
function orReference({ description, default: byDefault, type: _, ...words }: JsonSchema): JsonSchema {
  return {
    ...(description === undefined ? {} : { description }),
    ...(byDefault === undefined ? {} : { default: byDefault }),
    anyOf: [words, { type: 'string', pattern: REFERENCE }],
  };
}
