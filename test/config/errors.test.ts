/** Every kind of error, at its exact place: the one that ▶ marks. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { formatError } from '../../src/config/fault.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { errorsOf, haveErrorsAtMarks, type Marked } from '../support/marked.js';

const API = 'upstreams: { api: { url: http://127.0.0.1:3000 } }\n';
const TWO = 'upstreams: { api: { url: http://127.0.0.1:3000 }, billing: { url: http://b } }\n';

const directory = t.testdir();
let files = 0;
function load(text: string | Buffer, env: NodeJS.ProcessEnv = {}): LoadResult {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, text);
  return loadConfig(file, env);
}

function route(fields: string): string {
  return `${API}routes:\n  - { name: a, match: { path: "/a/:id" }, ${fields} }\n`;
}

function testCases(name: string, cases: readonly Marked[]): void {
  t.test(name, async (t) => haveErrorsAtMarks(t, cases, load));
}

testCases('unknown fields, with the known ones and the one that was meant', [
  [
    `${API}▶observe: true\n`,
    'observe',
    'one of listen, admin, workers, store, upstreams, routes, unmatched,',
    '"observe"',
  ],
  [`${API}▶rotues: []\n`, 'rotues', 'one of ', '"rotues"', 'routes'],
  [
    `${API}listen:\n  host: 0.0.0.0\n  ▶prot: 80\n`,
    'listen.prot',
    'one of host, port, tls, http2, proxyProtocol',
    '"prot"',
    'port',
  ],
  [`${API}▶plugins: []\n`, 'plugins', 'one of ', '"plugins"'],
  [`${API}log: { ▶file: gateway.log }\n`, 'log.file', 'one of level, format, access', '"file"'],
  [`${API}log: { format: ▶jsn }\n`, 'log.format', 'json or text', '"jsn"', 'json'],
  [`${API}log: { access: ▶combind }\n`, 'log.access', 'json, clf, combined or off', '"combind"', 'combined'],
  [`${API}log: { access: { sample: ▶0.1 } }\n`, 'log.access.sample', 'a percentage such as 10% or 0.5%', '0.1'],
  [`${API}log: { access: { sample: ▶101% } }\n`, 'log.access.sample', 'a percentage such as 10% or 0.5%', '"101%"'],
  [`${API}log: { access: { target: ▶paht } }\n`, 'log.access.target', 'none, pattern, path or full', '"paht"', 'path'],
  [
    `${API}log: { access: { ▶samples: 10% } }\n`,
    'log.access.samples',
    'one of format, sample, target, client',
    '"samples"',
    'sample',
  ],
  [
    'upstreams: { api: { ▶urll: http://a, url: http://a } }\n',
    'upstreams.api.urll',
    'one of url, urls, balance, http2, timeouts',
    '"urll"',
    'url',
  ],
  [
    route('▶on_missing_key: pass, policy: reject, key: [{ param: id }]'),
    'routes[0].on_missing_key',
    'one of ',
    '"on_missing_key"',
    'onMissingKey',
  ],
  [route('policy: coalesce, key: [{ param: id }], ▶maxQue: 3'), 'routes[0].maxQue', 'one of ', '"maxQue"'],
  [
    route('policy: replay, forward: { ▶fense: x-fence }'),
    'routes[0].forward.fense',
    'one of fence, idempotencyKey',
    '"fense"',
    'fence',
  ],
  [route('policy: replay, wait: { ▶pol: 1s }'), 'routes[0].wait.pol', 'one of max, poll', '"pol"', 'poll'],
  [
    route('policy: reject, key: [{ param: id, ▶heder: x }]'),
    'routes[0].key[0].heder',
    'one of header, query, param,',
    '"heder"',
    'header',
  ],
  [`${API}▶constructor: 1\n`, 'constructor', 'one of ', '"constructor"'],
  [`${API}▶<<: 1\n`, '["<<"]', 'one of ', '"<<"'],
]);

testCases('fields of another policy or kind of store, with the policies that have them', [
  [
    route('policy: coalesce, key: [{ param: id }], ▶conflict: { status: 429 }'),
    'routes[0].conflict',
    'no conflict with policy coalesce (reject only)',
    '"conflict"',
  ],
  [
    route('▶key: [{ param: id }]'),
    'routes[0].key',
    'no key with policy pass (coalesce, reject, replay, queue only)',
    '"key"',
  ],
  [
    route('policy: pass, ▶lease: 3s'),
    'routes[0].lease',
    'no lease with policy pass (coalesce, reject, replay, queue only)',
    '"lease"',
  ],
  [
    route('policy: reject, key: [{ param: id }], ▶keep: 5s'),
    'routes[0].keep',
    'no keep with policy reject (coalesce, replay only)',
    '"keep"',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], ▶fingerprint: none'),
    'routes[0].fingerprint',
    'no fingerprint with policy coalesce (replay only)',
    '"fingerprint"',
  ],
  [
    route('policy: reject, key: [{ param: id }], ▶release: [503]'),
    'routes[0].release',
    'no release with policy reject (replay only)',
    '"release"',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], ▶keepContent: none'),
    'routes[0].keepContent',
    'no keepContent with policy coalesce (replay only)',
    '"keepContent"',
  ],
  [
    route('▶forward: { fence: x-fence }'),
    'routes[0].forward',
    'no forward with policy pass (coalesce, reject, replay, queue only)',
    '"forward"',
  ],
  [
    route('▶onUnknown: hold'),
    'routes[0].onUnknown',
    'no onUnknown with policy pass (coalesce, reject, replay, queue only)',
    '"onUnknown"',
  ],
  [
    route('policy: replay, ▶conflict: { status: 429 }'),
    'routes[0].conflict',
    'no conflict with policy replay (reject only)',
    '"conflict"',
  ],
  [
    route('policy: replay, ▶onUnshareable: fail'),
    'routes[0].onUnshareable',
    'no onUnshareable with policy replay (coalesce only)',
    '"onUnshareable"',
  ],
  [
    route('policy: replay, onUnknown: release, unknownFor: ▶1h'),
    'routes[0].unknownFor',
    'no unknownFor without onUnknown: hold',
    '"1h"',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], unknownFor: ▶1h'),
    'routes[0].unknownFor',
    'no unknownFor without onUnknown: hold',
    '"1h"',
  ],
  [
    route('policy: reject, unknownFor: ▶1h, key: [{ param: id }], onUnknown: release'),
    'routes[0].unknownFor',
    'no unknownFor without onUnknown: hold',
    '"1h"',
  ],
  [
    route('policy: reject, key: [{ param: id }], ▶elections: 1'),
    'routes[0].elections',
    'no elections with policy reject (coalesce only)',
    '"elections"',
  ],
  [
    route('▶observe: true'),
    'routes[0].observe',
    'no observe with policy pass (coalesce, reject, replay, queue only)',
    '"observe"',
  ],
  [route('policy: queue, key: [{ param: id }], observe: ▶log'), 'routes[0].observe', 'true or false', '"log"'],
  [
    route('policy: coalesce, key: [{ param: id }], verify: ▶1%'),
    'routes[0].verify',
    'match.methods to be safe ones such as GET, or verify.unsafeMethods: execute-twice',
    'all methods',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], verify: { share: ▶0% }'),
    'routes[0].verify.share',
    'a percentage above 0% and up to 100%, such as 1%',
    '"0%"',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], elections: ▶2'),
    'routes[0].elections',
    'no elections without onLeaderFailure: elect',
    '2',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], onLeaderFailure: fail, elections: ▶2'),
    'routes[0].elections',
    'no elections without onLeaderFailure: elect',
    '2',
  ],
  [`${API}store: { ▶url: "redis://x" }\n`, 'store.url', 'no url with store memory (redis only)', '"url"'],
  [
    `${API}store: { kind: memory, ▶prefix: x }\n`,
    'store.prefix',
    'no prefix with store memory (redis only)',
    '"prefix"',
  ],
]);

testCases('values that are none of the possible ones', [
  [
    route('policy: ▶coalesc, key: [{ param: id }]'),
    'routes[0].policy',
    'pass, coalesce, reject, replay or queue',
    '"coalesc"',
    'coalesce',
  ],
  [
    route('policy: ▶reply, keep: 24h'),
    'routes[0].policy',
    'pass, coalesce, reject, replay or queue',
    '"reply"',
    'replay',
  ],
  [route('policy: ▶qeue'), 'routes[0].policy', 'pass, coalesce, reject, replay or queue', '"qeue"', 'queue'],
  [
    route('policy: ▶, key: []').replace('key: []', 'key: [{ param: id }]'),
    'routes[0].policy',
    'pass, coalesce, reject, replay or queue',
    'nothing',
  ],
  [`${API}store: { kind: ▶postgres, url: x }\n`, 'store.kind', 'memory or redis', '"postgres"'],
  [`${API}store: { kind: ▶Redis }\n`, 'store.kind', 'memory or redis', '"Redis"', 'redis'],
  [`${API}log: { level: ▶wran }\n`, 'log.level', 'trace, debug, info, warn, error, fatal or silent', '"wran"', 'warn'],
  [
    route('policy: reject, key: [{ param: id }], onStoreDown: ▶rejct'),
    'routes[0].onStoreDown',
    'local, pass or reject',
    '"rejct"',
    'reject',
  ],
  [
    route('policy: reject, key: [{ param: id }], identity: ▶pubilc'),
    'routes[0].identity',
    'public or a list',
    '"pubilc"',
    'public',
  ],
  [
    route('policy: reject, key: [{ param: id }], conflict: { status: ▶418 }'),
    'routes[0].conflict.status',
    '409 or 429',
    '418',
  ],
  [
    route('policy: reject, key: [{ request: ▶url }]'),
    'routes[0].key[0].request',
    'host, path, target or content',
    '"url"',
  ],
  [`${API}admin: ▶true\n`, 'admin', 'false or a mapping', 'true'],
  [`${API}unmatched: ▶true\n`, 'unmatched', 'a name of up to 64 letters', 'true'],
]);

testCases('wrong types and missing fields: a missing one is reported where the mapping begins', [
  ['▶listen: { port: 1 }\n', 'upstreams', 'a mapping', 'nothing'],
  ['upstreams: ▶{}\n', 'upstreams', 'at least one upstream', 'an empty mapping'],
  ['upstreams: { ▶api: {} }\n', 'upstreams.api.url', 'url or urls', 'nothing'],
  [`${API}listen: ▶8080\n`, 'listen', 'a mapping', '8080'],
  [`${API}listen:▶\n`, 'listen', 'a mapping', 'nothing'],
  [`${API}routes: ▶{ name: a }\n`, 'routes', 'a list', 'a mapping'],
  [`${API}routes:\n  - ▶match: { path: /a }\n`, 'routes[0].name', 'a name of up to 64', 'nothing'],
  [`${API}routes:\n  - ▶name: a\n`, 'routes[0].match', 'a mapping', 'nothing'],
  [`${API}routes:\n  - name: a\n    ▶match: { methods: [GET] }\n`, 'routes[0].match.path', 'a path such as', 'nothing'],
  [route('policy: coalesce').replace('{ name', '▶{ name'), 'routes[0].key', 'a list', 'nothing'],
  [route('policy: coalesce, key: ▶[]'), 'routes[0].key', 'at least one key part', 'an empty list'],
  [
    route('policy: coalesce, key: [{ param: id }], identity: ▶[]'),
    'routes[0].identity',
    'at least one part, or public',
    'an empty list',
  ],
  [
    `${API}store: ▶{ kind: redis }\n`.replace('store: ▶', '▶store: '),
    'store.url',
    'url, sentinel or cluster',
    'none of them',
  ],
  [
    'upstreams: { api: { url: http://a, preserveHost: ▶"yes" } }\n',
    'upstreams.api.preserveHost',
    'true or false',
    '"yes"',
  ],
  ['▶- a\n', '', 'a mapping', 'a list'],
  ['▶just a text\n', '', 'a mapping', '"just a text"'],
]);

testCases('queue: limits and forms', [
  [
    route('policy: queue, key: [{ param: id }], onUnknown: hold, ▶reconcile: { url: "/{key}" }'),
    'routes[0].reconcile',
    'no reconcile with policy queue (coalesce, reject, replay only)',
    '"reconcile"',
  ],
  [route('policy: queue').replace('{ name', '▶{ name'), 'routes[0].key', 'a list', 'nothing'],
  [
    route(`policy: queue, key: [{ param: id }], concurrency: ▶0`),
    'routes[0].concurrency',
    'a number of requests from 1 to 1000',
    '0',
  ],
  [
    route(`policy: queue, key: [{ param: id }], concurrency: ▶1.5`),
    'routes[0].concurrency',
    'a number of requests from 1',
    '1.5',
  ],
  [
    route(`policy: queue, key: [{ param: id }], maxQueue: ▶0`),
    'routes[0].maxQueue',
    'a number of requests from 1 to 10000',
    '0',
  ],
  [
    route(`policy: queue, key: [{ param: id }], maxQueue: ▶10001`),
    'routes[0].maxQueue',
    'a number of requests from 1',
    '10001',
  ],
  [route(`policy: queue, key: [{ param: id }], wait: ▶0`), 'routes[0].wait', 'a duration from 1ms to 1h', '0'],
  [
    route(`policy: queue, key: [{ param: id }], ▶keep: 1s`),
    'routes[0].keep',
    'no keep with policy queue (coalesce, replay only)',
    '"keep"',
  ],
  [
    route(`policy: reject, key: [{ param: id }], ▶maxQueue: 5`),
    'routes[0].maxQueue',
    'no maxQueue with policy reject (queue only)',
    '"maxQueue"',
  ],
  [
    route(`policy: coalesce, key: [{ param: id }], ▶concurrency: 5`),
    'routes[0].concurrency',
    'no concurrency with policy coalesce (queue only)',
    '"concurrency"',
  ],
  [
    route(`policy: queue, key: [{ param: id }], unknownFor: ▶1h`),
    'routes[0].unknownFor',
    'no unknownFor without onUnknown: hold',
    '"1h"',
  ],
]);

const KEPT = 'a status from 200 to 999 or a class such as 2xx';
const coalesce = (fields: string) => route(`policy: coalesce, key: [{ param: id }], ${fields}`);

testCases('coalesce: what is kept, and for how long a response that is for one client alone is remembered', [
  [coalesce('keepStatuses: ▶200'), 'routes[0].keepStatuses', 'a list', '200'],
  [coalesce('keepStatuses: ▶[]'), 'routes[0].keepStatuses', 'at least one status or class', 'an empty list'],
  [coalesce('keepStatuses: [200, ▶199]'), 'routes[0].keepStatuses[1]', KEPT, '199'],
  [coalesce('keepStatuses: [▶1000]'), 'routes[0].keepStatuses[0]', KEPT, '1000'],
  [coalesce('keepStatuses: [▶200.5]'), 'routes[0].keepStatuses[0]', KEPT, '200.5'],
  [coalesce('keepStatuses: [▶"404"]'), 'routes[0].keepStatuses[0]', KEPT, '"404"'],
  [coalesce('keepStatuses: [2xx, ▶1xx]'), 'routes[0].keepStatuses[1]', KEPT, '"1xx"'],
  [coalesce('keepStatuses: [▶4XX]'), 'routes[0].keepStatuses[0]', KEPT, '"4XX"'],
  [coalesce('keepStatuses: [▶[200]]'), 'routes[0].keepStatuses[0]', KEPT, 'a list'],
  ...['404, 200, ▶404', '2xx, ▶200', '200, ▶2xx', '2xx, 4xx, ▶2xx'].map((list): Marked => {
    const index = list.split(',').length - 1;
    const got = list.slice(list.indexOf('▶') + 1);
    return [
      coalesce(`keepStatuses: [${list}]`),
      `routes[0].keepStatuses[${index}]`,
      'a status that the list does not have yet',
      /x/.test(got) ? `"${got}"` : got,
    ];
  }),
  [coalesce('unshareableFor: ▶61m'), 'routes[0].unshareableFor', 'a duration from 0s to 1h', '"61m"'],
  [coalesce('unshareableFor: ▶60'), 'routes[0].unshareableFor', 'a duration from 0s to 1h', '60'],
  [
    route('policy: reject, key: [{ param: id }], ▶keepStatuses: [200]'),
    'routes[0].keepStatuses',
    'no keepStatuses with policy reject (coalesce only)',
    '"keepStatuses"',
  ],
  [
    route('policy: replay, ▶unshareableFor: 1s'),
    'routes[0].unshareableFor',
    'no unshareableFor with policy replay (coalesce only)',
    '"unshareableFor"',
  ],
]);

testCases('replay: limits and forms', [
  [route('policy: replay, keep: ▶0'), 'routes[0].keep', 'a duration from 1s to 168h', '0'],
  [route('policy: replay, keep: ▶999ms'), 'routes[0].keep', 'a duration from 1s to 168h', '"999ms"'],
  [route('policy: replay, keep: ▶169h'), 'routes[0].keep', 'a duration from 1s to 168h', '"169h"'],
  [route('policy: replay, key: ▶[]'), 'routes[0].key', 'at least one key part', 'an empty list'],
  [
    route('policy: replay, key: [{ ▶idempotency-key: x, header: x }]'),
    'routes[0].key[0].idempotency-key',
    'one of header, query,',
    '"idempotency-key"',
  ],
  [route('policy: replay, wait: ▶0'), 'routes[0].wait', 'a duration from 1ms to 1h', '0'],
  [route('policy: replay, wait: { max: ▶2h }'), 'routes[0].wait.max', 'a duration from 1ms to 1h', '"2h"'],
  [
    route('policy: replay, fingerprint: ▶cannonical'),
    'routes[0].fingerprint',
    'exact, canonical or none',
    '"cannonical"',
    'canonical',
  ],
  [route('policy: replay, release: ▶503'), 'routes[0].release', 'a list', '503'],
  [route('policy: replay, release: [503, ▶101]'), 'routes[0].release[1]', 'a status from 200 to 999', '101'],
  [route('policy: replay, release: [▶"5xx"]'), 'routes[0].release[0]', 'a status from 200 to 999', '"5xx"'],
  [route('policy: replay, keepContent: ▶ful'), 'routes[0].keepContent', 'full or none or a list', '"ful"', 'full'],
  [
    route('policy: replay, keepContent: ▶[]'),
    'routes[0].keepContent',
    'at least one JSON pointer, or none',
    'an empty list',
  ],
  [route('policy: replay, keepContent: [/id, ▶id]'), 'routes[0].keepContent[1]', 'a JSON pointer such as /id', '"id"'],
  [route('policy: replay, keepContent: [▶""]'), 'routes[0].keepContent[0]', 'a JSON pointer such as /id', '""'],
  [route('policy: replay, onUnknown: ▶held'), 'routes[0].onUnknown', 'hold or release', '"held"', 'hold'],
  [route('policy: replay, unknownFor: ▶0'), 'routes[0].unknownFor', 'a duration from 1s to 168h', '0'],
  [route('policy: replay, onUnknown: ▶no, unknownFor: 1h'), 'routes[0].onUnknown', 'hold or release', '"no"'],
  [route('policy: replay, forward: ▶x-fence'), 'routes[0].forward', 'a mapping', '"x-fence"'],
  ...[
    'Host',
    'content-length',
    'Connection',
    'Keep-Alive',
    'TE',
    'Transfer-Encoding',
    'upgrade',
    'Authorization',
    '"x fence"',
    '""',
  ].map(
    (name): Marked => [
      route(`policy: replay, forward: { fence: ▶${name} }`),
      'routes[0].forward.fence',
      'the name of a field that is free',
      `"${name.replaceAll('"', '')}"`,
    ],
  ),
  [
    route('policy: reject, key: [{ param: id }], forward: { idempotencyKey: ▶Via }'),
    'routes[0].forward.idempotencyKey',
    'the name of a field that is free',
    '"Via"',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], forward: { fence: X-Flight, idempotencyKey: ▶x-flight }'),
    'routes[0].forward.idempotencyKey',
    'another field than that of forward.fence',
    '"x-flight"',
  ],
  [
    route('policy: replay, key: [{ param: ▶di }]'),
    'routes[0].key[0].param',
    'a :param of match.path (id)',
    '"di"',
    'id',
  ],
]);

testCases('limits and forms', [
  [`${API}listen: { port: ▶65536 }\n`, 'listen.port', 'a port from 0 to 65535', '65536'],
  [`${API}listen: { port: ▶80.5 }\n`, 'listen.port', 'a port from 0 to 65535', '80.5'],
  [`${API}listen: { port: ▶"8080" }\n`, 'listen.port', 'a port from 0 to 65535', '"8080"'],
  [`${API}listen: { host: ▶"a b" }\n`, 'listen.host', 'an address or host name', '"a b"'],
  [`${API}drain: ▶30\n`, 'drain', 'a duration from 0s to 1h, such as', '30'],
  [`${API}drain: ▶3 s\n`, 'drain', 'a duration from 0s to 1h', '"3 s"'],
  [`${API}drain: ▶1d\n`, 'drain', 'a duration from 0s to 1h', '"1d"'],
  [`${API}drain: ▶-1s\n`, 'drain', 'a duration from 0s to 1h', '"-1s"'],
  [`${API}drain: ▶61m\n`, 'drain', 'a duration from 0s to 1h', '"61m"'],
  [
    route('policy: reject, key: [{ param: id }], lease: ▶99ms'),
    'routes[0].lease',
    'a duration from 100ms to 1h',
    '"99ms"',
  ],
  [route('policy: reject, key: [{ param: id }], lease: ▶0'), 'routes[0].lease', 'a duration from 100ms to 1h', '0'],
  [
    route('policy: coalesce, key: [{ param: id }], wait: ▶soon'),
    'routes[0].wait',
    'a duration from 1ms to 1h',
    '"soon"',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], wait: ▶3'),
    'routes[0].wait',
    'a duration from 1ms to 1h, such as 250ms, 3s or 5m or a mapping',
    '3',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], wait: { max: 1s, poll: ▶1h }'),
    'routes[0].wait.poll',
    'a duration from 10ms to 1m',
    '"1h"',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], elections: ▶0, onLeaderFailure: elect'),
    'routes[0].elections',
    'a number of elections from 1 to 10',
    '0',
  ],
  [
    route('policy: coalesce, key: [{ param: id }], maxShared: ▶8MB'),
    'routes[0].maxShared',
    'a size from 1B to 1GiB',
    '"8MB"',
  ],
  [`${API}store: { maxMemory: ▶1000 }\n`, 'store.maxMemory', 'a size from 1MiB to 64GiB', '1000'],
  [
    `${API}store: { kind: redis, url: "redis://h", commandTimeout: ▶6s }\n`,
    'store.commandTimeout',
    'a duration from 20ms to 5s',
    '"6s"',
  ],
  [`${API}store: { kind: redis, url: "redis://h", prefix: ▶"{a}" }\n`, 'store.prefix', 'a prefix of', '"{a}"'],
  [`${API}store: { kind: redis, url: ▶"http://h" }\n`, 'store.url', 'a URL such as redis://', '"http://h"'],
  [
    `${API}store: { kind: redis, url: ▶"redis://u:se/cret@h?family=6" }\n`,
    'store.url',
    'a URL such as redis://',
    '"redis://***@h?family=6"',
  ],
  [`${API}store: { secret: ▶short }\n`, 'store.secret', 'a secret of 16 to 1024 characters', 'a text of 5 characters'],
  [
    `${API}store: { secret: [0123456789abcdefg, ▶short] }\n`,
    'store.secret[1]',
    'a secret of 16 to 1024 characters',
    'a text of 5 characters',
  ],
  [`${API}store: { secret: ▶[] }\n`, 'store.secret', 'one to four secrets', 'an empty list'],
  [
    `${API}store: { secret: ▶[${'abcde'
      .split('')
      .map((letter) => letter.repeat(16))
      .join(', ')}] }\n`,
    'store.secret',
    'one to four secrets',
    'a list',
  ],
  [
    `${API}store: { secret: [0123456789abcdefg, abcdefghijklmnopq, ▶0123456789abcdefg] }\n`,
    'store.secret[2]',
    'another secret than those before',
    'that of secret[0]',
  ],
  [
    'upstreams: { api: { url: ▶"http://h/base" } }\n',
    'upstreams.api.url',
    'an http:// or https:// URL',
    '"http://h/base"',
  ],
  ['upstreams: { api: { url: ▶"http://h?q" } }\n', 'upstreams.api.url', 'an http:// or https:// URL', '"http://h?q"'],
  [
    'upstreams: { api: { url: ▶"http://u:pass@h" } }\n',
    'upstreams.api.url',
    'an http:// or https:// URL',
    '"http://***@h"',
  ],
  [
    'upstreams: { api: { url: ▶"localhost:3000" } }\n',
    'upstreams.api.url',
    'an http:// or https:// URL',
    '"localhost:3000"',
  ],
  ['upstreams: { ▶a b: { url: http://h } }\n', 'upstreams["a b"]', 'a name of up to 64', '"a b"'],
  [`${API}trustedProxies: [10.0.0.0/8, ▶10.0.0.0/33]\n`, 'trustedProxies[1]', 'an address or a range', '"10.0.0.0/33"'],
  [`${API}trustedProxies: [▶localhost]\n`, 'trustedProxies[0]', 'an address or a range', '"localhost"'],
  [
    route('policy: reject, key: [▶{ optional: true }]'),
    'routes[0].key[0]',
    'exactly one of header, query, param',
    'a mapping',
  ],
  [
    route('policy: reject, key: [▶{ header: a, cookie: b }]'),
    'routes[0].key[0]',
    'exactly one of header, query, param',
    'a mapping',
  ],
  [route('policy: reject, key: [▶authorization]'), 'routes[0].key[0]', 'a mapping', '"authorization"'],
  [route('policy: reject, key: [{ header: ▶"a b" }]'), 'routes[0].key[0].header', 'a field name', '"a b"'],
  [route('policy: reject, key: [{ body: ▶orderId }]'), 'routes[0].key[0].body', 'a JSON pointer', '"orderId"'],
  [route('policy: reject, key: [{ body: ▶/a~2 }]'), 'routes[0].key[0].body', 'a JSON pointer', '"/a~2"'],
  [
    route('policy: reject, key: [{ param: ▶di }]'),
    'routes[0].key[0].param',
    'a :param of match.path (id)',
    '"di"',
    'id',
  ],
  [
    route('policy: reject, key: [{ query: id }], identity: [{ param: ▶user }]'),
    'routes[0].identity[0].param',
    'a :param of match.path (id)',
    '"user"',
  ],
  [
    route('policy: reject, key: [{ param: id }], conflict: { retryAfter: ▶1500ms }'),
    'routes[0].conflict.retryAfter',
    'whole seconds from 1s to 1h',
    '"1500ms"',
  ],
]);

function match(fields: string): string {
  return `${API}routes:\n  - { name: a, match: { ${fields} } }\n`;
}
testCases('what a route matches', [
  [match('path: ▶a'), 'routes[0].match.path', 'a path that begins with /', '"a"'],
  [match('path: ▶"//a"'), 'routes[0].match.path', 'a path without //', '"//a"'],
  [match('path: ▶"/a/../b"'), 'routes[0].match.path', 'a path without . and .. segments', '"/a/../b"'],
  [match('path: ▶"/a/%2e%2E/b"'), 'routes[0].match.path', 'a path without . and .. segments', '"/a/%2e%2E/b"'],
  [match('path: ▶"/*/b"'), 'routes[0].match.path', 'a path with * at its end only', '"/*/b"'],
  [match('path: ▶"/:"'), 'routes[0].match.path', 'a parameter such as :id', '"/:"'],
  [match('path: ▶"/:id.json"'), 'routes[0].match.path', 'a parameter such as :id', '"/:id.json"'],
  [match('path: ▶"/:a/:a"'), 'routes[0].match.path', 'a path in which every :param has a name of its own', '"/:a/:a"'],
  [match('path: ▶"/a?b"'), 'routes[0].match.path', 'a path without query or fragment', '"/a?b"'],
  [match('path: ▶/100%'), 'routes[0].match.path', 'a path in which % begins an escape', '"/100%"'],
  [match("path: ▶'/a\\b'"), 'routes[0].match.path', 'a path with / instead of', '"/a\\\\b"'],
  [match('path: ▶"/a/{id}"'), 'routes[0].match.path', 'a path with parameters such as :id', '"/a/{id}"'],
  [match('path: /a, methods: ▶GET'), 'routes[0].match.methods', 'a list', '"GET"'],
  [match('path: /a, methods: ▶[]'), 'routes[0].match.methods', 'at least one method', 'an empty list'],
  [match('path: /a, methods: [GET, ▶post]'), 'routes[0].match.methods[1]', 'a method such as GET', '"post"'],
  [match('path: /a, host: ▶"a.example:80"'), 'routes[0].match.host', 'a host name without port', '"a.example:80"'],
  [match('path: /a, host: ▶"a.*"'), 'routes[0].match.host', 'a host name without port', '"a.*"'],
  [match('path: /a, headers: { x-a: ▶2 }'), 'routes[0].match.headers.x-a', 'a text, exactly or as *.suffix', '2'],
  [match('path: /a, headers: { ▶x a: b }'), 'routes[0].match.headers["x a"]', 'a field name', '"x a"'],
  [match('path: /a, headers: { x-a: b, X-A: ▶c }'), 'routes[0].match.headers.X-A', 'x-a once', 'it in two spellings'],
]);

const never = 'a field that goes upstream (connection-specific ones, expect and trailer never do)';
testCases('fields that never go upstream, in keys, identities and matches', [
  ...['connection', 'Keep-Alive', 'proxy-connection', 'TE', 'transfer-encoding', 'upgrade', 'trailer', 'Expect'].map(
    (name): Marked => [
      route(`policy: reject, key: [{ param: id }, { header: ▶${name} }]`),
      'routes[0].key[1].header',
      never,
      `"${name}"`,
    ],
  ),
  [
    route('policy: coalesce, key: [{ param: id }], identity: [{ header: cookie }, { header: ▶te }]'),
    'routes[0].identity[1].header',
    never,
    '"te"',
  ],
  [match('path: /a, headers: { x-a: b, ▶Upgrade: websocket }'), 'routes[0].match.headers.Upgrade', never, '"Upgrade"'],
  [match('path: /a, headers: { ▶expect: 100-continue }'), 'routes[0].match.headers.expect', never, '"expect"'],
]);

testCases('fields that contradict each other', [
  [
    `${API}routes:\n  - { name: a, match: { path: /a } }\n  - { name: ▶a, match: { path: /b } }\n`,
    'routes[1].name',
    'a name that no other route has',
    '"a", which routes[0] has',
  ],
  [
    `${TWO}routes:\n  - { name: a, match: { path: /a }, upstream: ▶biling }\n`,
    'routes[0].upstream',
    'the name of an upstream (api, billing)',
    '"biling"',
    'billing',
  ],
  [
    `${TWO}routes:\n  - ▶{ name: a, match: { path: /a } }\n`,
    'routes[0].upstream',
    'the name of an upstream (api, billing)',
    'nothing',
  ],
  [`${TWO}unmatched: ▶apl\n`, 'unmatched', 'the name of an upstream (api, billing)', '"apl"', 'api'],
  [`${API}admin: { host: ▶0.0.0.0 }\n`, 'admin.host', 'a loopback host, or admin.token to be set', '"0.0.0.0"'],
  [
    `${API}admin: { host: 0.0.0.0, token: ▶short }\n`,
    'admin.token',
    'a bearer token of 16 to 1024 characters',
    'a text of 5 characters',
  ],
  [`${API}admin: { port: ▶8080 }\n`, 'admin.port', 'different ports for listen and admin', '8080 for both'],
  [`${API}listen: { port: ▶9090 }\n`, 'listen.port', 'different ports for listen and admin', '9090 for both'],
]);

testCases('files that are no configuration', [
  ['▶', '', 'a configuration', 'an empty file'],
  ['▶# only a comment\n', '', 'a configuration', 'an empty file'],
  ['▶---\n', '', 'a configuration', 'an empty file'],
  [`${API}▶---\n${API}`, '', 'one YAML document', 'another one'],
  [
    'a: [1, 2\n▶b: 3\n',
    '',
    'valid YAML',
    'Flow sequence in block collection must be sufficiently indented and end with a ]',
  ],
  ['▶\ta: 1\n', '', 'valid YAML', 'Tabs are not allowed as indentation'],
  [
    'listen: { port: $▶{PORT} }\n',
    '',
    'valid YAML',
    'Unexpected flow-map-start at node end (a value with ${…} needs quotes inside { } and [ ])',
  ],
  [`${API}drain: ▶!soon 3s\n`, '', 'valid YAML', 'Unresolved tag: !soon'],
  [`${API}listen: { port: 1 }\n▶listen: { port: 2 }\n`, 'listen', 'each field once', 'it again (first in line 2)'],
  [`${API}listen: { port: 1, host: h, ▶port: 2 }\n`, 'listen.port', 'each field once', 'it again (first in line 2)'],
  [`${API}listen: { ? ▶[a] : 2 }\n`, 'listen', 'a plain name as key', 'something else'],
  [
    'upstreams: { api: { url: http://a }, ▶__proto__: { url: http://b } }\n',
    'upstreams',
    'a plain name as key',
    '__proto__',
  ],
  [`${API}drain: ▶*later\n`, 'drain', 'an alias of an anchor &later further up', '*later'],
  [`${API}routes: &r [▶*r]\n`, 'routes[0]', 'an alias of an anchor &r further up', '*r, which contains itself'],
]);

testCases('references that cannot be expanded', [
  [`${API}drain: ▶\${DRAIN}\n`, 'drain', 'the variable DRAIN to be set, or a default: ${DRAIN:-…}', 'nothing'],
  [`${API}drain: ▶\${A:-\${B}}\n`, 'drain', 'the variable B to be set', 'nothing'],
  [`${API}listen:\n  port: ▶\${PORT}\n`, 'listen.port', 'the variable PORT to be set', 'nothing'],
  [`${API}store:\n  kind: ▶\${KIND}\n`, 'store.kind', 'the variable KIND to be set', 'nothing'],
  [`${API}drain: ▶a\${DRAIN\n`, 'drain', '${NAME}, ${NAME:-default} or ${file:/path}', '"${DRAIN"'],
  [`${API}drain: ▶\${DRAIN:-3s\n`, 'drain', '${NAME}, ${NAME:-default} or ${file:/path}', '""'],
  [`${API}drain: ▶"\${1A}"\n`, 'drain', '${NAME}, ${NAME:-default} or ${file:/path}', '"${1A}"'],
  [`${API}drain: ▶\${file:/no/such/file}\n`, 'drain', 'the text file /no/such/file', 'no such file'],
  [`${API}drain: ▶\${file:/dev/zero}\n`, 'drain', 'the text file /dev/zero', 'it is not a regular file'],
]);

t.test('files that cannot be read', async (t) => {
  const missing = loadConfig(join(directory, 'missing.yaml'), {});
  t.match(errorsOf(missing), [{ line: 1, column: 1, expected: 'a readable file', got: 'no such file' }]);
  mkdirSync(join(directory, 'folder'));
  t.match(errorsOf(loadConfig(join(directory, 'folder'), {})), [{ expected: 'a readable file', got: 'a directory' }]);
  const latin1 = load(Buffer.from(`${API}log: {}\n# Gr\xfc\xdfe\n`, 'latin1'));
  t.match(errorsOf(latin1), [{ line: 3, column: 5, expected: 'UTF-8', got: 'other bytes' }]);
  t.match(errorsOf(load(`# ${'x'.repeat(1024 * 1024)}\n`)), [
    { expected: 'a readable file', got: 'it is larger than 1MiB' },
  ]);
  writeFileSync(join(directory, 'binary'), Buffer.from([0xff, 0xfe]));
  t.match(errorsOf(load(`${API}drain: \${file:binary}\n`)), [{ path: 'drain', got: 'content that is not UTF-8' }]);
});

t.test('bombs end in one error, and soon', async (t) => {
  const laughs = ['a0: &a0 [x, x, x, x, x, x, x, x, x]'];
  for (let i = 1; i < 40; i++) laughs.push(`a${i}: &a${i} [${`*a${i - 1}, `.repeat(9)}]`);
  const bombs: readonly [string, string][] = [
    [`${laughs.join('\n')}\n`, 'at most 20000 values'],
    [`a: ${'['.repeat(50_000)}`, 'at most 64 levels of nesting'],
    [`${'- '.repeat(50_000)}a\n`, 'at most 64 levels of nesting'],
    [`drain: ${'${A:-'.repeat(50_000)}\n${API}`, '${NAME}, ${NAME:-default} or ${file:/path}, or $${ for a literal ${'],
  ];
  for (const [text, expected] of bombs) {
    const start = performance.now();
    t.match(errorsOf(load(text)), [{ expected }], text.slice(0, 20));
    t.ok(performance.now() - start < 5_000, 'in bounded time');
  }
});

t.test('all errors of a file are told at once, in the order of the file', async (t) => {
  const text = `
listen: { prot: 1 }
store: { kind: redis, commandTimeout: 6s }
upstreams: { api: { url: http://a/b }, b: { url: http://b } }
routes:
  - name: a
    match: { path: a, mehtods: [GET] }
    upstream: c
    policy: coalesce
    key: [{ param: x }, { body: y }]
    wait: { max: 0 }
    conflict: {}
    elections: 2
  - name: a
    match: { path: "/b/:id" }
    upstream: b
    policy: coalece
    key: [{ param: di }]
    lese: 3s
    conflict: { status: 1 }
unmatched: \${NO_SUCH}
drain: 1d
drain: 2d
`;
  t.same(
    errorsOf(load(text)).map(({ line, path }) => `${line} ${path}`),
    [
      '2 listen.prot',
      '3 store.url',
      '3 store.commandTimeout',
      '4 upstreams.api.url',
      '7 routes[0].match.path',
      '7 routes[0].match.mehtods',
      '8 routes[0].upstream',
      '10 routes[0].key[1].body',
      '11 routes[0].wait.max',
      '12 routes[0].conflict',
      '13 routes[0].elections',
      '14 routes[1].name',
      '17 routes[1].policy',
      '18 routes[1].key[0].param',
      '19 routes[1].lese',
      '20 routes[1].conflict.status',
      '21 unmatched',
      '22 drain',
      '23 drain',
    ],
  );
});

t.test('no error quotes a secret, wherever it came from', async (t) => {
  const secret = 'hunter2';
  writeFileSync(join(directory, 'password'), secret);
  const texts = [
    `${API}store: { secret: ${secret} }\n`,
    `${API}store:\n  secret: \${S}\n`,
    `${API}store: { secret: [${secret}] }\n`,
    `${API}store:\n  secret:\n    - 0123456789abcdefg\n    - \${S}\n`,
    `${API}store: { secret: "\${file:password}" }\n`,
    `${API}drain: \${file:password}\n`,
    `${API}admin: { token: ${secret} }\n`,
    `${API}store: { kind: redis, url: "redis://:${secret}@" }\n`,
    `${API}store: { kind: redis, url: "redis://:${secret}/@x@h/a" }\n`,
    `${API}store:\n  kind: redis\n  url: redis://:\${S}@\n`,
    `${API}store: { ${secret}: 1 }\n`.replace(secret, 'sekret'),
  ];
  for (const text of texts) {
    const lines = errorsOf(load(text, { S: secret })).map(formatError);
    t.equal(lines.length, 1);
    t.notOk(
      lines.some((line) => line.includes(secret)),
      lines.join(),
    );
  }
});

t.test('an error names the variable that a value came from', async (t) => {
  const [error] = errorsOf(load(`${API}listen:\n  port: \${PORT}\n`, { PORT: 'http' }));
  t.equal(
    formatError({ ...error!, file: 'g.yaml' }),
    'g.yaml:3:9: listen.port: expected a port from 0 to 65535, got "http" from "${PORT}"',
  );
});

t.test('whatever a file holds, loading ends with a result', async (t) => {
  const words = fc.constantFrom(
    ...['routes', 'upstreams', 'api', 'url', 'key', 'policy', 'coalesce', 'match', 'path', '/a/:b', 'http://a', '${A}'],
    ...[
      '${A:-',
      '}',
      '- ',
      ': ',
      '\n',
      '\n  ',
      '\n    ',
      '{',
      '[',
      ']',
      ', ',
      '&a ',
      '*a',
      '? ',
      '!!map ',
      '"',
      "'",
      '|',
      '#',
      '0',
    ],
  );
  const text = fc.array(words, { maxLength: 40 }).map((parts) => parts.join(''));
  fc.assert(
    fc.property(
      fc.oneof(
        text,
        text.map((tail) => `${API}${tail}`),
      ),
      (yaml) => {
        const result = load(yaml);
        return result.kind === 'loaded' || result.errors.every((error) => error.line >= 1 && error.column >= 1);
      },
    ),
    { numRuns: 300 },
  );
  t.pass();
});
