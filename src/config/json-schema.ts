/** The configuration as a JSON Schema (draft-07), made from the schema, so that no option is written twice. */

import { z } from 'zod';
import { configSchema } from './schema.js';

/** The keywords of draft-07 that are used, and what editors know beside them. */
export type JsonSchema = {
  readonly $schema?: string;
  readonly $ref?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly enumDescriptions?: readonly string[];
  readonly const?: unknown;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly items?: JsonSchema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | JsonSchema;
  readonly propertyNames?: JsonSchema;
  readonly dependencies?: Readonly<Record<string, readonly string[]>>;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly not?: JsonSchema;
  readonly if?: JsonSchema;
  readonly then?: JsonSchema;
  readonly else?: JsonSchema;
  readonly definitions?: Readonly<Record<string, JsonSchema>>;
  /** What an editor says of a value that is none. */
  readonly errorMessage?: string;
  /** What a value must be, in the words of errors; in `describedSchema` only. */
  readonly expected?: string;
};

/** Every option as the schema has it: unions with a tag as `oneOf`, values with what was `expected`. */
export function describedSchema(): JsonSchema {
  return z.toJSONSchema(configSchema, {
    io: 'input',
    target: 'draft-07',
    override: ({ zodSchema, jsonSchema }) => {
      // A message is what was expected (schema-parts.ts). Those of objects are lists of fields, and made of the issue.
      const told = (zodSchema._zod.def as { error?: (issue: object) => unknown }).error?.({ code: 'custom' });
      if (typeof told === 'string') (jsonSchema as { expected?: string }).expected = told;
    },
  }) as JsonSchema;
}

/** A value as YAML has it on one line. */
export function writtenValue(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(writtenValue).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return String(value);
  const fields = Object.entries(value).map(([name, one]) => `${name}: ${writtenValue(one)}`);
  return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`;
}
