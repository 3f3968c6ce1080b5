/**
 * Where traces go, by the file or else by the environment, as OpenTelemetry names its variables.
 *
 * Invariants: what the file says is not mixed with the environment, but that OTEL_SDK_DISABLED outranks it and
 * OTEL_RESOURCE_ATTRIBUTES adds to it; a variable that cannot be used is left out and told of, as that specification wants.
 */

import type { Sampler, TracingConfig } from './config.js';
import { FIELD_VALUE, isCollectorUrl, isFreeCollectorField } from './forms.js';
import { DEFAULT_SERVICE_NAME, shareOf, type TracingOutput } from './tracing-schema.js';

type Environment = Readonly<Record<string, string | undefined>>;
type Pairs = readonly (readonly [string, string])[];

/** A variable that is set to something that cannot be used. Its value may be a secret. */
export type UnusableVariable = { readonly name: string; readonly expected: string };

export type ResolvedTracing = { readonly config: TracingConfig; readonly unusable: readonly UnusableVariable[] };

const OFF: TracingConfig = { kind: 'off' };
const TRACES_PATH = '/v1/traces';
const ALL: Sampler = { parent: 'followed', ratio: 1 };

export function tracingOf(output: TracingOutput, env: Environment): ResolvedTracing {
  if (output === false || isDisabled(env)) return { config: OFF, unusable: [] };
  return output === undefined ? byEnvironment(env) : byFile(output, env);
}

function isDisabled(env: Environment): boolean {
  const { OTEL_SDK_DISABLED: disabled = '', OTEL_TRACES_EXPORTER: exporter = '' } = env;
  return disabled.trim().toLowerCase() === 'true' || exporter.trim() === 'none';
}

function byFile(output: Exclude<TracingOutput, false | undefined>, env: Environment): ResolvedTracing {
  const variables = new Variables(env);
  const { endpoint, sample, serviceName, headers } = output;
  return {
    config: {
      kind: 'otlp',
      url: withTracesPath(endpoint),
      sampler: { parent: 'followed', ratio: shareOf(sample) },
      fields: Object.entries(headers).flat(),
      resource: [...variables.resource(), ['service.name', serviceName]],
    },
    unusable: variables.unusable,
  };
}

function byEnvironment(env: Environment): ResolvedTracing {
  const variables = new Variables(env);
  const url = variables.url();
  if (url === null) return { config: OFF, unusable: variables.unusable };
  variables.checkProtocol();
  const serviceName = variables.valueOf('OTEL_SERVICE_NAME');
  const named: Pairs = serviceName === null ? [] : [['service.name', serviceName]];
  return {
    config: {
      kind: 'otlp',
      url,
      sampler: variables.sampler(),
      fields: variables.fields(),
      resource: [['service.name', DEFAULT_SERVICE_NAME], ...variables.resource(), ...named],
    },
    unusable: variables.unusable,
  };
}

/** Collectors are named by their origin, or a path before that of the signal. */
function withTracesPath(endpoint: string): URL {
  const base = endpoint.replace(/\/+$/, '');
  return new URL(base.endsWith(TRACES_PATH) ? base : `${base}${TRACES_PATH}`);
}

class Variables {
  readonly unusable: UnusableVariable[] = [];
  readonly #env: Environment;

  constructor(env: Environment) {
    this.#env = env;
  }

  /** An empty one is one that is not set. */
  valueOf(name: string): string | null {
    const value = this.#env[name]?.trim();
    return value === undefined || value === '' ? null : value;
  }

  /** That of traces as it is, that of all signals with the path of traces. */
  url(): URL | null {
    for (const name of ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT'] as const) {
      const value = this.valueOf(name);
      if (value === null) continue;
      if (isCollectorUrl(value)) {
        return name === 'OTEL_EXPORTER_OTLP_ENDPOINT' ? withTracesPath(value) : new URL(value);
      }
      this.#isUnusable(name, 'an http or https URL without user, query and fragment');
    }
    return null;
  }

  /** Collectors take both encodings of OTLP over HTTP at one port; gRPC has another. */
  checkProtocol(): void {
    for (const name of ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL']) {
      const value = this.valueOf(name);
      if (value !== null && value !== 'http/json') this.#isUnusable(name, 'http/json, which is what is spoken');
    }
  }

  sampler(): Sampler {
    const name = this.valueOf('OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on';
    const [, based, kind] = /^(parentbased_)?(always_on|always_off|traceidratio)$/.exec(name) ?? [];
    if (kind === undefined) {
      this.#isUnusable('OTEL_TRACES_SAMPLER', 'always_on, always_off, traceidratio, or one of them after parentbased_');
      return ALL;
    }
    const parent = based === undefined ? 'ignored' : 'followed';
    if (kind === 'traceidratio') return { parent, ratio: this.#ratio() };
    return { parent, ratio: kind === 'always_on' ? 1 : 0 };
  }

  fields(): readonly string[] {
    const name = ['OTEL_EXPORTER_OTLP_TRACES_HEADERS', 'OTEL_EXPORTER_OTLP_HEADERS'].find((one) => this.valueOf(one));
    if (name === undefined) return [];
    const pairs = this.#pairs(name).filter(([field, value]) => isFreeCollectorField(field) && FIELD_VALUE.test(value));
    return pairs.flat();
  }

  resource(): Pairs {
    return this.valueOf('OTEL_RESOURCE_ATTRIBUTES') === null ? [] : this.#pairs('OTEL_RESOURCE_ATTRIBUTES');
  }

  #ratio(): number {
    const value = this.valueOf('OTEL_TRACES_SAMPLER_ARG');
    if (value === null) return 1;
    const ratio = Number(value);
    if (ratio >= 0 && ratio <= 1) return ratio;
    this.#isUnusable('OTEL_TRACES_SAMPLER_ARG', 'a number from 0 to 1');
    return 1;
  }

  /** `name=value,name=value`, values percent-encoded. */
  #pairs(name: string): Pairs {
    const pairs: [string, string][] = [];
    for (const part of (this.valueOf(name) ?? '').split(',')) {
      const [, one = '', written = ''] = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(part) ?? [];
      const value = decoded(written);
      if (one === '' || value === null) this.#isUnusable(name, 'name=value, and commas between several');
      else pairs.push([one, value]);
    }
    return pairs;
  }

  #isUnusable(name: string, expected: string): void {
    if (!this.unusable.some((one) => one.name === name)) this.unusable.push({ name, expected });
  }
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
