/**
 * A configuration on its way to another process: workers are given what the parent has found good, whatever has become of
 * the file since.
 *
 * Invariant: what comes out equals what went in. Maps, numbers without end and bytes pass as they are ('advanced'
 * serialization); a URL would arrive as an empty object, and goes as its text.
 */

import type { Config } from '../config/config.js';

/** Not a name that a field of the configuration has. */
const URL_FIELD = '\0url';

export type PortableConfig = { readonly portable: unknown };

export function toPortable(config: Config): PortableConfig {
  return { portable: packed(config) };
}

export function fromPortable({ portable }: PortableConfig): Config {
  return unpacked(portable) as Config;
}

function packed(value: unknown): unknown {
  return value instanceof URL ? { [URL_FIELD]: value.href } : mapped(value, packed);
}

function unpacked(value: unknown): unknown {
  if (typeof value === 'object' && value !== null && URL_FIELD in value) return new URL(String(value[URL_FIELD]));
  return mapped(value, unpacked);
}

function mapped(value: unknown, change: (value: unknown) => unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(change);
  if (value instanceof Map) return new Map([...value].map(([name, one]) => [name, change(one)]));
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, change(one)]));
}
