/** The checker: a clean log has no faults, and each kind of fault is found in a log that has just that one. */

import t from 'tap';
import { check } from './check.js';
import { type Execution, type Leftover, NOTHING, type Seen, type Trouble, type View } from './seen.js';

const LED = 'oneflight; fwd=miss; stored';
const COLLAPSED = 'oneflight; fwd=miss; collapsed';
const HIT = 'oneflight; hit; ttl=1';

let made = 0;

function call(route: string, request: string, changes: Partial<Execution> = {}): Execution {
  made += 1;
  return {
    route,
    path: `/${route}/1`,
    body: 'A',
    request,
    fence: made,
    startMs: 10,
    endMs: 50,
    how: 'answered',
    status: 200,
    answer: `200 ${request}`,
    content: request,
    announcedBytes: request.length,
    grew: [{ atMs: changes.endMs ?? 50, bytes: request.length }],
    ...changes,
  };
}

function view(route: string, request: string, changes: Partial<View> = {}): View {
  return {
    route,
    path: `/${route}/1`,
    body: 'A',
    request,
    gateway: 0,
    afterwards: false,
    startMs: 5,
    endMs: 60,
    how: 'answered',
    status: 200,
    answer: `200 ${request}`,
    content: request,
    firstMs: changes.endMs ?? 60,
    problem: null,
    cacheStatus: LED,
    replayed: false,
    ...changes,
  };
}

function problem(route: string, request: string, code: string, changes: Partial<View> = {}): View {
  return view(route, request, { status: 409, problem: code, cacheStatus: `oneflight; detail=${code}`, ...changes });
}

function unanswered(how: Execution['how'], changes: Partial<Execution> = {}): Partial<Execution> {
  return { how, status: 0, answer: '', ...changes };
}

const later = (startMs: number, endMs = startMs + 40) => ({ startMs, endMs });
const replayOf = (request: string, of: string, changes: Partial<View> = {}) =>
  view('once', request, { ...later(100), answer: `200 ${of}`, cacheStatus: HIT, replayed: true, ...changes });
const trouble = (gateway: Trouble['gateway'], fromMs: number, toMs: number): Trouble => ({
  what: 'stop',
  gateway,
  fromMs,
  toMs,
});

/** The log has exactly one fault, and this is what it says. */
function finds(what: string, seen: Partial<Seen>, words: RegExp): void {
  t.test(`found: ${what}`, async (t) => {
    const faults = check({ ...NOTHING, ...seen });
    t.equal(faults.length, 1, faults.join('\n'));
    t.match(faults[0], words);
  });
}

function passes(what: string, seen: Partial<Seen>): void {
  t.test(`fine: ${what}`, async (t) => t.same(check({ ...NOTHING, ...seen }), []));
}

/** Two calls of two requests of one key, each of which was told its call's answer unless it had none. */
function two(route: string, first: Partial<Execution>, second: Partial<Execution>): Partial<Seen> {
  const executions = [call(route, 'a', first), call(route, 'b', second)];
  const views = executions.map(({ request, answer, how, startMs, endMs }, gateway) =>
    how === 'answered'
      ? view(route, request, { gateway, answer, startMs: startMs - 5, endMs: endMs + 5 })
      : problem(route, request, 'outcome-unknown', { gateway, startMs: startMs - 5, endMs: endMs + 5 }),
  );
  return { executions, views };
}

passes('nothing', {});
passes('a leader and its replay', {
  executions: [call('once', 'a')],
  views: [view('once', 'a'), replayOf('b', 'a'), problem('once', 'c', 'key-reused', { body: 'B', ...later(20) })],
});
passes('one after the other', two('lock', {}, later(60)));
passes('a follower', {
  executions: [call('fresh', 'a')],
  views: [view('fresh', 'a'), view('fresh', 'b', { startMs: 20, answer: '200 a', cacheStatus: COLLAPSED })],
});
passes('a refused duplicate', {
  executions: [call('lock', 'a')],
  views: [view('lock', 'a'), problem('lock', 'b', 'in-flight', later(20))],
});

finds('a second send while the answer is kept', two('once', {}, later(500)), /while the answer was kept/);
finds('a second send while the outcome is held', two('once', unanswered('reset'), later(500)), /outcome was held/);
finds(
  'a second send while the outcome is held, whoever was stopped',
  { ...two('once', {}, later(3_000)), troubles: [trouble(0, 20, 1_500)] },
  /outcome was held/,
);
finds('a second send before the window is over', two('short', {}, later(900)), /answer was kept/);
passes('a second send after the window', two('short', {}, later(1_060)));
passes('a second send after a status that frees the key', two('once', { status: 503 }, later(60)));
passes('a second send after an outcome that is released', two('freed', unanswered('reset'), later(60)));
finds('a second send of an answer, though unknown ones are released', two('freed', {}, later(60)), /answer was kept/);
passes('a second send of a released key whose gateway was stopped', {
  ...two('freed', {}, later(1_500)),
  troubles: [trouble(0, 20, 1_400)],
});
passes('a second send after the store was emptied', {
  ...two('once', {}, later(500)),
  flushesMs: [100],
  troubles: [trouble('all', 100, 101)],
});
finds('a held outcome of a lock', two('lock-held', unanswered('hung-up'), later(500)), /outcome was held/);
finds('a kept answer of coalesce', two('kept', {}, later(300)), /answer was kept/);
passes('an error that coalesce keeps for nobody', two('kept', { status: 500 }, later(60)));

for (const route of ['lock', 'fresh', 'freed', 'streams', 'outgrown']) {
  finds(`two calls at a time of ${route}`, two(route, { endMs: 100 }, later(40)), /was running/);
}
passes('two at a time when the first one lost its lease', {
  ...two('lock', { endMs: 1_500 }, later(1_000)),
  troubles: [trouble(0, 20, 1_400)],
});
finds(
  'two at a time when only the second one was stopped',
  { ...two('lock', { endMs: 1_500 }, later(1_000)), troubles: [trouble(1, 20, 400)] },
  /was running/,
);
passes('two at a time without the store, where the rule says so', {
  ...two('fresh', { endMs: 1_500 }, later(1_000)),
  troubles: [trouble(1, 900, 1_100)],
});
finds(
  'two at a time without the store, where the rule does not say so',
  { ...two('strict', { endMs: 1_500 }, later(1_000)), troubles: [trouble(1, 900, 1_100)] },
  /was running/,
);
finds('a fence twice', two('lock', { fence: 7 }, { ...later(60), fence: 7 }), /fence did not grow/);
finds('a fence that shrinks', two('lock', { fence: 8 }, { ...later(60), fence: 7 }), /fence did not grow/);
finds(
  'a request that was sent twice',
  { executions: [call('lock', 'a'), call('lock', 'a', later(60))], views: [view('lock', 'a', { answer: '200 a' })] },
  /sent 2 times/,
);

const one = [call('once', 'a')];
const led = view('once', 'a');
const given = (changes: Partial<View>): Partial<Seen> => ({
  executions: one,
  views: [led, replayOf('b', 'a', changes)],
});
finds('a replay of no call', given({ answer: '200 z' }), /no call of its key gave/);
finds('a replay for another body', given({ body: 'B' }), /another body/);
finds('a replay that is not marked', given({ replayed: false }), /Idempotent-Replayed: false/);
finds('an answer without Cache-Status', given({ cacheStatus: '', replayed: false }), /neither led nor shared/);
finds(
  'an answer that bypassed the rule',
  given({ cacheStatus: 'oneflight; fwd=bypass; detail=x', replayed: false }),
  /led/,
);
finds('an answer of a call that was not made', given({ cacheStatus: LED, replayed: false }), /no call was made/);
finds(
  'a leader with a wrong answer',
  { executions: one, views: [{ ...led, answer: '200 z' }] },
  /not the answer of its/,
);
finds(
  'a cut answer given as a whole one',
  { executions: [call('lock', 'a', unanswered('cut'))], views: [view('lock', 'a')] },
  /not the answer of its call, cut/,
);
finds(
  'a follower with an answer from before',
  {
    executions: [call('fresh', 'a')],
    views: [view('fresh', 'a'), view('fresh', 'b', { ...later(600), answer: '200 a', cacheStatus: COLLAPSED })],
  },
  /before its time/,
);
finds(
  'an answer that is kept too long',
  {
    executions: [call('kept', 'a')],
    views: [view('kept', 'a'), view('kept', 'b', { ...later(1_000), answer: '200 a', cacheStatus: HIT })],
  },
  /before its time/,
);
finds(
  'a replay of a status that frees the key',
  { executions: [call('once', 'a', { status: 503 })], views: [led, replayOf('b', 'a')] },
  /though it freed the key/,
);
finds(
  'a request that is shared and forwarded',
  {
    executions: [...one, call('once', 'b', { ...later(60_200), answer: '200 a' })],
    views: [led, replayOf('b', 'a', later(60_100))],
  },
  /though it was forwarded/,
);

finds(
  'a follower of a flight that has lost the key',
  {
    executions: [call('strict', 'a', { endMs: 1_900 }), call('strict', 'b', later(1_000, 2_000))],
    views: [
      view('strict', 'a', { endMs: 1_910 }),
      view('strict', 'b', { gateway: 1, ...later(990, 2_010) }),
      view('strict', 'c', { ...later(1_500, 1_910), answer: '200 a', cacheStatus: COLLAPSED }),
    ],
    troubles: [trouble(0, 20, 1_400)],
  },
  /had lost the key/,
);
finds('a request that hangs', { views: [view('lock', 'a', { how: 'hung' })] }, /neither an answer nor an end/);
finds('a cut connection for nothing', { views: [view('lock', 'a', { how: 'cut', content: '' })] }, /no call failed/);
finds('no connection for nothing', { views: [view('lock', 'a', { how: 'refused' })] }, /no connection/);
passes('no connection to a gateway that is killed', {
  views: [view('lock', 'a', { how: 'refused' })],
  troubles: [trouble(0, 0, 100)],
});
finds('a refusal for nobody', { views: [problem('lock', 'a', 'in-flight')] }, /nobody had the key/);
finds(
  'a refusal for what is long over',
  { executions: [call('lock', 'a')], views: [view('lock', 'a'), problem('lock', 'b', 'in-flight', later(600))] },
  /nobody had the key/,
);
finds(
  'in flight for another body',
  { executions: one, views: [led, problem('once', 'b', 'in-flight', { body: 'B', ...later(20) })] },
  /nobody had the key/,
);
finds(
  'a key that nobody reused',
  { executions: one, views: [led, problem('once', 'b', 'key-reused')] },
  /no other body/,
);
finds('a wait that ended early', { views: [problem('fresh', 'a', 'wait-timeout')] }, /before its wait was over/);
finds('an unknown outcome of nothing', { views: [problem('once', 'a', 'outcome-unknown')] }, /no outcome is unknown/);
finds('a failed leader that did not fail', { views: [problem('fresh', 'a', 'leader-failed')] }, /no leader has failed/);
finds('a store that was there', { views: [problem('lock', 'a', 'store-unavailable')] }, /store was there/);
finds('an upstream that was there', { views: [problem('lock', 'a', 'upstream-unreachable')] }, /upstream was there/);
finds(
  'a problem of its own answered call',
  { executions: [call('lock', 'a')], views: [problem('lock', 'a', 'outcome-unknown')] },
  /its own call was answered/,
);
finds('an error of the gateway', { views: [problem('lock', 'a', 'internal-error')] }, /no answer of this policy/);
finds('a conflict where duplicates wait', { views: [problem('fresh', 'a', 'in-flight')] }, /no answer of this policy/);
finds(
  'a key that stays locked',
  {
    views: [problem('lock', 'a', 'in-flight', { afterwards: true, ...later(4_000) })],
    troubles: [trouble(0, 100, 200)],
  },
  /should be free/,
);

finds(
  'an outcome that is held of a claim that was only lost',
  {
    views: [
      problem('once', 'a', 'outcome-unknown', { afterwards: true, ...later(4_000) }),
      view('once', 'b', { how: 'left', content: '' }),
    ],
    troubles: [{ ...trouble(0, 5, 200), what: 'drop-reply' }],
  },
  /nothing was sent/,
);
passes('an outcome that is held of a gateway that was stopped', {
  views: [
    problem('once', 'a', 'outcome-unknown', { afterwards: true, ...later(4_000) }),
    view('once', 'b', { how: 'left', content: '' }),
  ],
  troubles: [trouble(0, 5, 200)],
});

finds(
  'a refusal that takes its time',
  {
    executions: [call('lock', 'a', { endMs: 1_900 })],
    views: [view('lock', 'a', { endMs: 1_905 }), problem('lock', 'b', 'in-flight', { startMs: 20, endMs: 2_100 })],
  },
  /80 ms after its bound/,
);
passes('a refusal of a gateway that stood still', {
  executions: [call('lock', 'a', { endMs: 1_900 })],
  views: [view('lock', 'a', { endMs: 1_905 }), problem('lock', 'b', 'in-flight', { startMs: 20, endMs: 2_100 })],
  troubles: [trouble(0, 100, 300)],
});
finds(
  'a refusal that takes its time while another gateway stands still',
  {
    executions: [call('lock', 'a', { endMs: 1_900 })],
    views: [view('lock', 'a', { endMs: 1_905 }), problem('lock', 'b', 'in-flight', { startMs: 20, endMs: 2_100 })],
    troubles: [trouble(1, 100, 1_300)],
  },
  /after its bound/,
);
finds(
  'a refusal that takes its time, for the gateway was stopped for a moment, which a probe has found too',
  {
    executions: [call('lock', 'a', { endMs: 1_900 })],
    views: [view('lock', 'a', { endMs: 1_905 }), problem('lock', 'b', 'in-flight', { startMs: 20, endMs: 2_600 })],
    troubles: [trouble(0, 100, 300), { ...trouble(0, 90, 310), what: 'slow' }],
  },
  /360 ms after its bound/,
);
for (const what of ['black-hole', 'pause-store', 'fail-over', 'slow-store', 'slow-path']) {
  finds(
    `a client that waits for a store that is gone (${what})`,
    {
      views: [problem('lock', 'a', 'store-unavailable', { endMs: 2_500 })],
      troubles: [{ ...trouble('all', 0, 2_500), what }],
    },
    /after its bound/,
  );
}
finds(
  'a wait that ends when it likes',
  { views: [problem('fresh', 'a', 'wait-timeout', { endMs: 5_100 })] },
  /95 ms after its bound/,
);
passes('a wait that ends in time', { views: [problem('fresh', 'a', 'wait-timeout', { endMs: 4_000 })] });
finds(
  'a cut connection that takes its time',
  {
    executions: [call('lock', 'a', unanswered('cut'))],
    views: [view('lock', 'a', { how: 'cut', content: '', endMs: 2_100 })],
  },
  /after its bound/,
);
finds(
  'an answer long after the end of its call',
  { executions: [call('lock', 'a')], views: [view('lock', 'a', { endMs: 2_200 })] },
  /150 ms after its bound/,
);
finds(
  'a call that is sent when nobody waits any more',
  { executions: [call('turns', 'a', later(5_100))], views: [view('turns', 'a', { endMs: 5_145 })] },
  /forwarded after its wait/,
);
finds(
  'a call of which the upstream says nothing for too long',
  {
    executions: [call('lock', 'a', { ...unanswered('abandoned'), endMs: 3_100, grew: [], content: '' })],
    views: [problem('lock', 'a', 'outcome-unknown', { endMs: 3_100 })],
  },
  /past the upstream's deadlines/,
);
const endless = (first: Partial<View>): Partial<Seen> => ({
  executions: [
    call('fresh', 'a', {
      endMs: 8_000,
      content: 'abcd',
      grew: [1_000, 1_900, 2_800, 3_700, 4_600, 5_500, 6_400, 7_300, 8_000].map((atMs) => ({ atMs, bytes: 4 })),
    }),
  ],
  views: [
    view('fresh', 'a', { endMs: 8_005, firstMs: 900 }),
    view('fresh', 'b', { ...later(20, 8_020), answer: '200 a', content: 'abcd', cacheStatus: COLLAPSED, ...first }),
  ],
});
passes('a reader that had begun in time', endless({ firstMs: 1_010 }));
finds(
  'a reader that waited for longer than anybody should',
  endless({ gateway: 1, firstMs: 8_010 }),
  /after its bound/,
);

type Shown = Pick<Seen, 'executions' | 'views'>;

/** A call whose answer came in pieces, and what its clients have of it: `has`, by request. The first one's is the call. */
function dripped(route: string, call_: Partial<Execution>, has: Record<string, Partial<View>>): Shown {
  const grew = [100, 800, 1_500].map((atMs, at) => ({ atMs, bytes: 2 * at + 2 }));
  const one = { ...later(20, 1_500), content: 'abcdef', announcedBytes: null, grew, answer: '200 abcdef', ...call_ };
  const views = Object.entries(has).map(([request, changes]) =>
    view(route, request, {
      ...later(request === 'a' ? 5 : 40, 1_510),
      gateway: request === 'a' ? 0 : 1,
      cacheStatus: request === 'a' ? LED : COLLAPSED,
      content: 'abcdef',
      answer: '200 abcdef',
      firstMs: 110,
      ...changes,
    }),
  );
  return { executions: [call(route, 'a', one)], views };
}
/** What a client has whose answer did not end. */
const partly = (content: string, how: View['how'] = 'cut'): Partial<View> => ({
  how,
  content,
  status: 200,
  answer: '',
});
const WHOLE = {};
const CUT: Partial<Execution> = { ...unanswered('cut'), content: 'abcd' };
const failedBefore = call('streams', 'z', { ...unanswered('reset'), ...later(1, 15), content: 'uv' });

passes(
  'pieces that reach followers in every gateway',
  dripped('streams', {}, { a: WHOLE, b: WHOLE, c: { gateway: 0 } }),
);
passes('a cut answer whose clients are cut, or told', {
  ...dripped('streams', CUT, { a: partly('abcd'), b: partly('ab'), c: partly('') }),
});
passes('who leaves in the middle', dripped('streams', {}, { a: partly('abc', 'left'), b: partly('ab', 'left') }));
for (const [what, content] of [
  ['a piece that is missing', 'abef'],
  ['a piece that comes twice', 'ababcd'],
  ['more than was written', 'abcdefg'],
] as const) {
  finds(
    what,
    dripped('streams', CUT, { a: partly('abcd'), b: partly(content) }),
    /bytes that no call of its began with/,
  );
  finds(
    `${what}, for one that leaves`,
    dripped('streams', CUT, { b: partly(content, 'left') }),
    /no call of its began/,
  );
  finds(
    `${what}, whatever was broken`,
    { ...dripped('streams', CUT, { a: partly('abcd'), b: partly(content) }), troubles: [trouble('all', 0, 3_000)] },
    /no call of its began with/,
  );
  const { views, executions } = dripped('streams', {}, { a: WHOLE, b: { answer: `200 ${content}`, content } });
  finds(`${what}, in an answer that ends`, { executions, views }, /no call of its key gave/);
}
finds(
  'a beginning of one call and an end of another',
  {
    executions: [
      ...dripped('streams', CUT, {}).executions,
      call('streams', 'z', { ...unanswered('cut'), ...later(1_600), content: 'uvwx' }),
    ],
    views: dripped('streams', {}, { a: partly('abcd'), b: { ...partly('abwx'), endMs: 1_650 } }).views,
  },
  /no call of its began with/,
);
finds(
  'a leader with the beginning of another call',
  {
    executions: [...dripped('streams', CUT, {}).executions, { ...failedBefore, ...later(1_600), fence: 1_000 }],
    views: dripped('streams', {}, { a: partly('uv') }).views,
  },
  /no call of its began with/,
);
finds(
  'a clean end for a follower of a cut call',
  dripped('streams', CUT, { a: partly('abcd'), b: { content: 'abcd', answer: '200 abcd' } }),
  /no call of its key gave/,
);
finds(
  'a clean end for the leader of a cut call',
  dripped('streams', CUT, { a: { content: 'abcd', answer: '200 abcd' } }),
  /not the answer of its call, cut/,
);
finds('a reader that is cut for nothing', dripped('streams', {}, { a: WHOLE, b: partly('ab') }), /no call failed/);
passes('a reader that is cut in trouble', {
  ...dripped('streams', {}, { a: WHOLE, b: partly('ab') }),
  troubles: [trouble(0, 1_000, 1_300)],
});
finds(
  'a reader that is cut when another call has failed',
  {
    executions: [failedBefore, ...dripped('streams', {}, {}).executions],
    views: dripped('streams', {}, { a: WHOLE, b: partly('ab') }).views,
  },
  /no call failed/,
);
finds(
  'pieces that wait for the end',
  dripped('streams', {}, { a: WHOLE, b: { firstMs: 1_505 } }),
  /before its call was/,
);
finds(
  'pieces that wait for the end, for the leader',
  dripped('streams', {}, { a: { firstMs: 1_505 } }),
  /before its call/,
);
passes('pieces that wait where streams are not promised', dripped('fresh', {}, { a: WHOLE, b: { firstMs: 1_505 } }));
passes('pieces that wait in trouble', {
  ...dripped('streams', {}, { a: WHOLE, b: { firstMs: 1_505 } }),
  troubles: [trouble(1, 60, 400)],
});
passes('pieces for one that came late', dripped('streams', {}, { a: WHOLE, b: { startMs: 1_000, firstMs: 1_505 } }));

const LONG = 49_152;
const long: Partial<Execution> = {
  grew: [
    { atMs: 100, bytes: 2 },
    { atMs: 800, bytes: LONG + 1 },
  ],
};
for (const [where, gateway] of [
  ['elsewhere', 1],
  ['beside the leader', 0],
] as const) {
  finds(
    `who reads ${where} is cut when it outgrows`,
    dripped('outgrown', long, { a: WHOLE, b: { ...partly('ab'), gateway } }),
    /no call failed/,
  );
}
for (const [when, beganMs, known] of [
  ['when it has outgrown', 900, {}],
  ['when it was announced as too long', 100, { announcedBytes: LONG + 1 }],
] as const) {
  passes(`a call beside a response ${when}`, {
    executions: [
      ...dripped('outgrown', { ...long, ...known }, {}).executions,
      call('outgrown', 'b', later(beganMs, beganMs + 100)),
    ],
    views: [
      ...dripped('outgrown', {}, { a: WHOLE }).views,
      view('outgrown', 'b', { gateway: 1, ...later(beganMs - 5, beganMs + 110) }),
      problem('outgrown', 'c', 'not-shareable', later(beganMs)),
    ],
  });
}
finds(
  'a call beside a response that may still be shared',
  {
    executions: [...dripped('outgrown', long, {}).executions, call('outgrown', 'b', later(700))],
    views: [...dripped('outgrown', {}, { a: WHOLE }).views, view('outgrown', 'b', later(695))],
  },
  /was running/,
);
finds(
  'a response that is not shared though it is short',
  { executions: [call('outgrown', 'a')], views: [view('outgrown', 'a'), problem('outgrown', 'b', 'not-shareable')] },
  /too long to be shared/,
);

/** Requests of a queue, by the time when each is sent and when its call began (null: it had none), 100 ms long. */
function queued(route: string, ...asked: (readonly [sentMs: number, beganMs: number | null])[]): Shown {
  const first = call(route, 'holder', later(10, 490));
  const turned = asked.flatMap(([, beganMs], at) =>
    beganMs === null ? [] : [{ beganMs, request: `q${at}`, endMs: beganMs + 100 }],
  );
  turned.sort((one, other) => one.beganMs - other.beganMs);
  return {
    executions: [
      first,
      ...turned.map(({ request, beganMs, endMs }) => call(route, request, { startMs: beganMs, endMs })),
    ],
    views: [
      view(route, 'holder', { ...later(5, 495), gateway: 2 }),
      ...asked.map(([startMs, beganMs], at) =>
        beganMs === null
          ? problem(route, `q${at}`, 'wait-timeout', { startMs, endMs: startMs + 3_000, gateway: at })
          : view(route, `q${at}`, { startMs, endMs: beganMs + 105, gateway: at }),
      ),
    ],
  };
}
passes('turns in the order of asking', queued('turns', [20, 500], [450, 610]));
passes('turns of those who asked at about the same time', queued('turns', [20, 610], [300, 500]));
finds('a turn before who asked first', queued('turns', [20, 610], [450, 500]), /passed over by call q1/);
finds(
  'a turn before who asked first, whatever befell the other',
  { ...queued('turns', [20, 610], [450, 500]), troubles: [trouble(1, 460, 470)] },
  /passed over/,
);
passes('a turn before who may have lost its place', {
  ...queued('turns', [20, 610], [450, 500]),
  troubles: [trouble(0, 460, 470)],
});
passes('a turn before who may have lost its place with the store', {
  ...queued('turns', [20, 610], [450, 500]),
  flushesMs: [460],
});
passes('who was not waited for in vain', queued('turns', [20, null], [450, 3_100]));
finds('who was passed over until its time was over', queued('turns', [20, null], [450, 2_000]), /passed over/);
const gone = (endMs: number): Partial<Seen> => {
  const { executions, views } = queued('turns', [20, null], [450, 800]);
  const left = (one: View) =>
    one.request === 'q0' ? view('turns', 'q0', { ...partly('', 'left'), ...later(20, endMs) }) : one;
  return { executions, views: views.map(left) };
};
passes('a turn after who left', gone(700));
finds('a turn before who had not left yet', gone(1_100), /passed over/);
passes('two turns given at about the same time', queued('two', [20, 600], [450, 520]));
finds('of several turns one that is clearly early', queued('two', [20, 800], [450, 520]), /passed over/);
passes('order where no order is promised', queued('lock', [20, 610], [450, 500]));

const leftover = (changes: Partial<Leftover>): Partial<Seen> => ({
  leftovers: [{ name: 's1:{x}', route: 'once', state: 'd', ttlMs: 30_000, ...changes }],
});
passes('what is kept for its time', leftover({}));
finds('what is kept for ever', leftover({ ttlMs: -1 }), /for ever/);
finds('what is kept too long', leftover({ route: 'kept' }), /for 30000 ms more/);
finds(
  'an unknown outcome that is kept though it is released',
  leftover({ route: 'freed', state: 'u' }),
  /for 30000 ms more/,
);
finds('a flight that goes on', leftover({ route: 'lock', state: 'f', ttlMs: 500 }), /goes on/);
finds('a gateway that failed', { oddities: ['gateway 0 ended by itself'] }, /by itself/);

const woken = (request: string, endMs: number): Partial<Seen> => ({
  executions: [call('prompt', 'a')],
  views: [
    view('prompt', 'a'),
    view('prompt', request, { startMs: 20, endMs, gateway: 1, answer: '200 a', cacheStatus: COLLAPSED }),
  ],
});
passes('a wait that a push has ended', woken('b', 120));
finds('a wait that no push has ended', woken('b', 900), /no push can have told it/);
passes('a wait that no push has ended, for the connections of pushes were killed', {
  ...woken('b', 900),
  deafMs: [40],
});
passes('a wait of a gateway that stood still', { ...woken('b', 900), troubles: [trouble(1, 100, 800)] });

const timedOut: Partial<Seen> = {
  executions: [call('waits', 'a', { endMs: 3_000 })],
  views: [view('waits', 'a', { endMs: 3_010 }), problem('waits', 'b', 'wait-timeout', { startMs: 20, endMs: 2_100 })],
};
finds('a repeat that is not told what has its key', timedOut, /the store was there to say/);
passes('a repeat whose gateway stood still until its wait was over', {
  ...timedOut,
  troubles: [trouble(0, 50, 2_000)],
});

const neverArrived: Partial<Seen> = {
  views: [
    view('once', 'a', { endMs: 700, how: 'left', answer: '', content: '' }),
    problem('once', 'b', 'outcome-unknown', { ...later(5_000), afterwards: true }),
  ],
};
finds('a key that is held, though nothing was sent', neverArrived, /nothing was sent whose outcome is unknown/);
passes('a key that is held, for what was sent fell into a hole', {
  ...neverArrived,
  troubles: [{ what: 'black-hole-upstream', gateway: 'upstream', fromMs: 0, toMs: 700 }],
});

for (const what of ['stop', 'slow', 'black-hole']) {
  finds(
    `a store that was there, whatever befell a gateway that nobody asked (${what})`,
    {
      views: [problem('lock', 'a', 'store-unavailable')],
      troubles: [{ ...trouble(2, 0, 100), what }],
    },
    /store was there/,
  );
  passes(`a store that was not there for one that has the key (${what})`, {
    executions: [call('lock', 'b', { startMs: 1, endMs: 300 })],
    views: [problem('lock', 'a', 'store-unavailable'), view('lock', 'b', { gateway: 2, startMs: 0, endMs: 310 })],
    troubles: [{ ...trouble(2, 0, 100), what }],
  });
}
finds(
  'a store that was there, long after a moment of standing still',
  {
    views: [problem('lock', 'a', 'store-unavailable', later(1_500))],
    troubles: [{ ...trouble(0, 0, 250), what: 'slow' }],
  },
  /store was there/,
);

const lateLog = two('turns-held', unanswered('reset', { startMs: 1_500, endMs: 1_510 }), later(2_000));
const asked = lateLog.views!.map((one, at) => (at === 0 ? { ...one, startMs: 100 } : one));
finds(
  'a second send while the outcome is held, however long it took to send the first',
  { ...lateLog, views: asked },
  /outcome was held/,
);
passes('a second send after an outcome that was held since before its log, for that was late', {
  ...lateLog,
  views: asked,
  troubles: [{ ...trouble('all', 400, 1_500), what: 'slow' }],
});

const slow = (fromMs: number, toMs: number): Trouble => ({ what: 'slow', gateway: 0, fromMs, toMs });
const overlap = two('lock', { endMs: 2_000 }, later(1_500, 2_200));
finds(
  'two calls at a time, for the gateway stood still for a moment only',
  { ...overlap, troubles: [slow(900, 1_090)] },
  /was running/,
);
passes('two calls at a time, for the gateway stood still for long', { ...overlap, troubles: [slow(200, 900)] });
finds(
  'two calls at a time, for the gateway stood still for moments that are far apart',
  {
    ...two('lock', { endMs: 3_900 }, later(3_500, 3_950)),
    troubles: [slow(200, 410), slow(1_400, 1_610), slow(2_600, 2_810)],
  },
  /was running/,
);
passes('two calls at a time, for the gateway stood still again and again', {
  ...overlap,
  troubles: [slow(200, 380), slow(350, 500), slow(700, 900)],
});
