/** docs/recipes/llm.md: a paid answer is read by everybody who asked for it, token by token, and paid for once. */

import t from 'tap';
import { Watching } from '../support/client.js';
import { COLLAPSED, HIT, isProblem, LED } from '../support/expect.js';
import { Gate } from '../support/gate.js';
import type { Gateway } from '../support/gateway.js';
import { type Call, inTurn, type StubUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';
import { startRecipe } from './recipe.js';

t.setTimeout(60_000);

const PATH = '/v1/chat/completions';
const QUESTION = '{"model":"small","stream":true,"messages":[{"role":"user","content":"Count."}]}';
const SAME_QUESTION = '{ "stream": true, "messages": [{"content":"Count.","role":"user"}], "model": "small" }';
const TOKENS = ['data: one\n\n', 'data: two\n\n', 'data: [DONE]\n\n'] as const;
const WHOLE = TOKENS.join('');

/** A model that writes the first token at once, and the others when the gate opens. */
function writes(upstream: StubUpstream, gate: Gate): void {
  upstream.on(PATH, async (call: Call) => {
    await call.received;
    call.head(200, 'OK', ['Content-Type', 'text/event-stream', 'Transfer-Encoding', 'chunked']);
    const [first, ...others] = TOKENS;
    call.raw(chunkBytes(Buffer.from(first)));
    await gate.opened;
    for (const token of others) call.raw(chunkBytes(Buffer.from(token)));
    call.raw(lastChunkBytes());
    call.finish();
  });
}

function asks(gateway: Gateway, caller: string, body = QUESTION): Watching {
  const headers = ['Authorization', `Bearer ${caller}`, 'Content-Type', 'application/json'];
  return new Watching(gateway.url, { method: 'POST', path: PATH, headers, body });
}

t.test('the same question is answered by one call, for whoever asks while it is written', async (t) => {
  const { upstream, first } = await startRecipe(t, 'llm.md');
  const gate = new Gate();
  writes(upstream, gate);
  const leader = asks(first, 'a');
  await leader.received(TOKENS[0].length);
  const follower = asks(first, 'a', SAME_QUESTION);
  await follower.received(TOKENS[0].length);
  t.equal(upstream.count(PATH), 1, 'and has what is written so far before there is more');
  gate.open();
  for (const [who, cacheStatus] of [
    [leader, LED],
    [follower, COLLAPSED],
  ] as const) {
    const answer = await who.answer;
    t.equal(answer.text, WHOLE);
    t.equal(answer.cacheStatus, cacheStatus);
  }
  const late = await asks(first, 'a').answer;
  t.equal(late.text, WHOLE);
  t.match(late.cacheStatus, HIT);
  t.equal(upstream.count(PATH), 1);

  t.equal((await asks(first, 'b').answer).cacheStatus, LED, 'another caller');
  t.equal((await asks(first, 'a', QUESTION.replace('Count', 'Add')).answer).cacheStatus, LED, 'another question');
  t.equal((await asks(first, 'a', QUESTION.replace('true', 'false')).answer).cacheStatus, LED, 'another form of it');
  t.equal(upstream.count(PATH), 4);
});

t.test('all have left: the call goes on, and whoever comes back has its answer', async (t) => {
  const { upstream, first } = await startRecipe(t, 'llm.md');
  const gate = new Gate();
  writes(upstream, gate);
  const reader = asks(first, 'a');
  await reader.received(TOKENS[0].length);
  reader.leave();
  await reader.answer.catch(() => {});
  await first.caughtUp();
  const back = asks(first, 'a');
  await back.received(TOKENS[0].length);
  gate.open();
  t.equal((await back.answer).text, WHOLE);
  const [call] = upstream.callsOf(PATH);
  t.equal(call!.aborted, false);
  t.equal(upstream.count(PATH), 1);
});

t.test('an answer that breaks off is whole for nobody', async (t) => {
  const { upstream, first } = await startRecipe(t, 'llm.md');
  const gate = new Gate();
  upstream.on(PATH, async (call) => {
    await call.received;
    call.head(200, 'OK', ['Content-Type', 'text/event-stream', 'Transfer-Encoding', 'chunked']);
    call.raw(chunkBytes(Buffer.from(TOKENS[0])));
    await gate.opened;
    call.hangUp();
  });
  const readers = [asks(first, 'a'), asks(first, 'a')];
  await Promise.all(readers.map((reader) => reader.received(TOKENS[0].length)));
  gate.open();
  for (const { answer } of readers) t.equal((await answer).cut, true);
  t.equal(upstream.count(PATH), 1);
});

t.test('errors are kept for nobody', async (t) => {
  const { upstream, first } = await startRecipe(t, 'llm.md');
  upstream.on(
    PATH,
    inTurn(
      (call) => call.answer({ status: 429, reason: 'Too Many Requests' }),
      (call) => call.answer({ content: 'an answer' }),
    ),
  );
  t.equal((await asks(first, 'a').answer).status, 429);
  t.equal((await asks(first, 'a').answer).text, 'an answer');
  t.equal(upstream.count(PATH), 2);
});

t.test('without stream: true a follower is refused, and nobody pays twice', async (t) => {
  const { upstream, first } = await startRecipe(t, 'llm.md', ({ stream, ...route }) => route);
  const gate = new Gate();
  // Its fields come only when the follower is there.
  upstream.on(PATH, async (call) => {
    await call.received;
    await gate.opened;
    call.answer({ fields: ['Content-Type', 'text/event-stream'], content: WHOLE });
  });
  const leader = asks(first, 'a');
  await upstream.arrived(1, PATH);
  const follower = asks(first, 'a');
  await first.caughtUp();
  gate.open();
  t.equal((await leader.answer).text, WHOLE);
  isProblem(t, await follower.answer, 'not-shareable');
  t.equal(upstream.count(PATH), 1);
});
