/** `tracing`, and what the environment says in its place. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import t from 'tap';
import { configYaml } from '../../src/cli/config-yaml.js';
import { effectiveOf } from '../../src/config/effective.js';
import { formatError } from '../../src/config/fault.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';

const API = 'upstreams: { api: { url: http://127.0.0.1:3000 } }\nroutes: []\n';

function load(tracing: string, env: NodeJS.ProcessEnv = {}): LoadResult {
  const text = tracing === '' ? API : `${API}tracing: ${tracing}\n`;
  return loadConfig('gateway.yaml', env, Buffer.from(text));
}

function loaded(tracing: string, env: NodeJS.ProcessEnv = {}) {
  const result = load(tracing, env);
  if (result.kind === 'invalid') throw new Error(result.errors.map(formatError).join('\n'));
  return result;
}

const tracingOf = (tracing: string, env: NodeJS.ProcessEnv = {}) => loaded(tracing, env).config.tracing;
const errorsOf = (tracing: string): string[] => {
  const result = load(tracing);
  return result.kind === 'invalid' ? result.errors.map(formatError) : [];
};

const OFF = { kind: 'off' } as const;
const TRACES = 'http://127.0.0.1:4318/v1/traces';

t.test('without it, and without a word in the environment, nothing is traced', async (t) => {
  t.same(tracingOf(''), OFF);
  t.same(tracingOf('false', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://a' }), OFF, 'the file outranks the environment');
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://a' };
  for (const more of [{ OTEL_SDK_DISABLED: 'TRUE' }, { OTEL_TRACES_EXPORTER: 'none' }]) {
    t.same(tracingOf('', { ...env, ...more }), OFF);
    t.same(tracingOf('{ endpoint: "http://b" }', more), OFF, 'that outranks the file');
  }
});

t.test('an endpoint is enough', async (t) => {
  t.same(tracingOf('{ endpoint: "http://127.0.0.1:4318" }'), {
    kind: 'otlp',
    url: new URL(TRACES),
    sampler: { parent: 'followed', ratio: 1 },
    fields: [],
    resource: [['service.name', 'oneflight']],
  });
  for (const endpoint of [
    'http://127.0.0.1:4318/',
    'http://127.0.0.1:4318/v1/traces',
    'http://127.0.0.1:4318/v1/traces/',
  ]) {
    const tracing = tracingOf(`{ endpoint: "${endpoint}" }`);
    t.equal(tracing.kind === 'otlp' && tracing.url.href, TRACES, endpoint);
  }
  const behind = tracingOf('{ endpoint: "https://h/otlp" }');
  t.equal(behind.kind === 'otlp' && behind.url.href, 'https://h/otlp/v1/traces');
});

t.test('everything that can be written; resource attributes are the environment’s to add', async (t) => {
  const env = {
    TOKEN: 't',
    OTEL_RESOURCE_ATTRIBUTES: 'service.name=x, deployment.environment.name=a%2Cb',
    OTEL_SERVICE_NAME: 'y',
  };
  const written =
    '{ endpoint: "http://h:1", sample: 2.5%, serviceName: edge, headers: { Authorization: "Bearer ${TOKEN}" } }';
  t.same(tracingOf(written, env), {
    kind: 'otlp',
    url: new URL('http://h:1/v1/traces'),
    sampler: { parent: 'followed', ratio: 0.025 },
    fields: ['Authorization', 'Bearer t'],
    resource: [
      ['service.name', 'x'],
      ['deployment.environment.name', 'a,b'],
      ['service.name', 'edge'],
    ],
  });
  const shown = configYaml(effectiveOf(loaded(written, env).written));
  t.match(shown, /Authorization: "?\*\*\*/, 'its credentials are not shown');
  t.match(configYaml(effectiveOf(loaded('').written)), /OTEL_EXPORTER_OTLP_ENDPOINT/);
});

t.test('what is wrong is named at its place, and no credential is quoted', async (t) => {
  const wrong: readonly (readonly [string, RegExp])[] = [
    ['{ sample: 1 }', /^gateway.yaml:3:1: tracing.endpoint: expected an http or https URL .*, got nothing$/],
    ['{ endpoint: "grpc://h" }', /tracing.endpoint: expected an http or https URL/],
    [
      '{ endpoint: "http://h", sample: 1.5 }',
      /tracing.sample: expected a share from 0 to 1, or a percentage such as 5%, got 1.5$/,
    ],
    ['{ endpoint: "http://h", sample: 101% }', /tracing.sample: expected a share/],
    ['{ endpoint: "http://h", sample: all }', /tracing.sample: expected a share/],
    ['{ endpoint: "http://h", smaple: 1 }', /did you mean sample\?$/],
    ['{ endpoint: "http://h", headers: { Host: a } }', /tracing.headers.Host: expected a field name that the exporter/],
    [
      '{ endpoint: "http://h", headers: { X-Key: "s3cret\\n" } }',
      /tracing.headers.X-Key: expected visible ASCII, got a text of 7 characters$/,
    ],
    ['true', /tracing: expected false or a mapping, got true$/],
  ];
  for (const [text, message] of wrong) {
    const errors = errorsOf(text);
    t.equal(errors.length, 1, text);
    t.match(errors[0], message);
  }
  t.notMatch(errorsOf('{ endpoint: "http://u:s3cret@h" }').join(), 's3cret');
});

t.test('the environment, by its own names', async (t) => {
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318/',
    OTEL_SERVICE_NAME: 'edge',
    OTEL_RESOURCE_ATTRIBUTES: 'service.name=other,team=a',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20a=b, x-tenant = blue,host=h',
    OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
    OTEL_TRACES_SAMPLER_ARG: '0.25',
  };
  const { config, warnings } = loaded('', env);
  t.same(config.tracing, {
    kind: 'otlp',
    url: new URL(TRACES),
    sampler: { parent: 'followed', ratio: 0.25 },
    fields: ['authorization', 'Bearer a=b', 'x-tenant', 'blue'],
    resource: [
      ['service.name', 'oneflight'],
      ['service.name', 'other'],
      ['team', 'a'],
      ['service.name', 'edge'],
    ],
  });
  t.same(warnings, []);
  const own = tracingOf('', { ...env, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://t/as/it/is' });
  t.equal(own.kind === 'otlp' && own.url.href, 'http://t/as/it/is');
  for (const [name, parent, ratio] of [
    ['always_on', 'ignored', 1],
    ['always_off', 'ignored', 0],
    ['traceidratio', 'ignored', 0.25],
    ['parentbased_always_on', 'followed', 1],
    ['parentbased_always_off', 'followed', 0],
    ['', 'followed', 1],
  ] as const) {
    const sampled = tracingOf('', { ...env, OTEL_TRACES_SAMPLER: name });
    t.same(sampled.kind === 'otlp' && sampled.sampler, { parent, ratio }, name);
  }
});

t.test('a variable that cannot be used is left out and told of, without its value', async (t) => {
  const names = (env: NodeJS.ProcessEnv) => {
    const { warnings } = loaded('', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://h', ...env });
    t.notMatch(JSON.stringify(warnings), 's3cret');
    t.ok(warnings.every(({ code }) => code === 'unusable-variable'));
    return warnings.map(({ message }) => message.split(' ')[0]);
  };
  for (const [name, value] of [
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'h:4317/s3cret'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 's3cret'],
    ['OTEL_RESOURCE_ATTRIBUTES', 'a=%ff'],
    ['OTEL_TRACES_SAMPLER', 'jaeger_remote'],
  ] as const) {
    t.same(names({ [name]: value }), [name]);
  }
  t.same(names({ OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '2' }), ['OTEL_TRACES_SAMPLER_ARG']);
  t.same(tracingOf('', { OTEL_EXPORTER_OTLP_ENDPOINT: 'nowhere' }), OFF);
});
