/**
 * Plays a schedule: sends its requests, treats the upstream's calls as it says, breaks what it breaks, and writes down
 * what is seen.
 *
 * Invariants: every request is waited for, longer than any bound allows; when everything is whole again, some keys of
 * every route are asked for once more.
 */

import { type Answered, type Sent, send } from '../support/client.js';
import { problemOf } from '../support/expect.js';
import { delay, eventually, within } from '../support/gate.js';
import type { Scope } from '../support/gateway.js';
import type { RedisServer } from '../support/redis.js';
import { type Answer, answers, type Call } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';
import { LEASE_MS, ROUTES } from './routes.js';
import type { RequestPlan, Schedule, Step } from './schedule.js';
import { answerText, type Execution, type Seen, type View } from './seen.js';
import { Stage } from './stage.js';

/** When a client gives up: beyond any bound (check-bounds.ts), with as much again for a machine that is busy. */
const HUNG_MS = 25_000;
/** Paths of each route that are asked for when everything is over. */
const AFTERWARDS = 2;

/** How a call ended, noted when it is made to end; a call without it was ended by the gateway. */
type Ended = { how: Execution['how']; status: number; answer: string };
type Written = { -readonly [Field in 'content' | 'announcedBytes' | 'grew']: Execution[Field] };
type Drip = Step & { readonly kind: 'drips' };

class Playing {
  readonly #ended = new Map<Call, Ended>();
  readonly #written = new Map<Call, Written>();
  readonly #views: Promise<View>[] = [];
  #over = false;

  constructor(
    readonly schedule: Schedule,
    readonly stage: Stage,
  ) {}

  async play(): Promise<Seen> {
    const { schedule, stage } = this;
    const beganMs = performance.now();
    for (const path of Object.keys(schedule.steps)) stage.upstream.on(path, (call) => this.#treat(call));
    const faults = Promise.all(
      schedule.faults.map(async (fault) => {
        await delay(fault.atMs);
        await stage.play(fault, (gateway, sinceMs) => this.#upstreamDown(gateway, sinceMs));
      }),
    );
    // Nobody waits for it yet: a failure is told when somebody does.
    faults.catch(() => {});
    for (const [at, plan] of schedule.requests.entries()) {
      const inMs = beganMs + plan.atMs - performance.now();
      if (inMs > 0) await delay(inMs);
      this.#views.push(this.#ask(`r${at}`, plan, false));
    }
    await Promise.all([faults, ...this.#views]);
    const notWhole = await this.#afterwards();
    const oddities = [...notWhole, ...(await stage.oddities())];
    const lostAServer = await stage.noteSurprises();
    const leftovers = lostAServer ? [] : await stage.leftovers();
    stage.close();
    return this.#shifted(beganMs, {
      executions: stage.upstream.calls
        .filter(({ path }) => path in schedule.steps)
        .map((call) => this.#executionOf(call)),
      views: await Promise.all(this.#views),
      troubles: stage.troubles,
      flushesMs: stage.flushesMs,
      deafMs: stage.deafMs,
      leftovers,
      oddities,
    });
  }

  /** Asks when every lease of a gateway that is gone has passed, and every call is over. */
  async #afterwards(): Promise<string[]> {
    const { stage, schedule } = this;
    await eventually('every call being over', () => stage.upstream.calls.every(({ endedAtMs }) => endedAtMs !== null));
    await delay(LEASE_MS + 200);
    const notWhole = await stage.whole();
    this.#over = true;
    const plans = ROUTES.flatMap(({ name }) => {
      const paths = [...new Set(schedule.requests.filter(({ route }) => route === name).map(({ path }) => path))];
      return paths.slice(-AFTERWARDS).map((path, at) => ({ route: name, path, gateway: at % schedule.processes }));
    });
    const last = plans.map((plan, at) =>
      this.#ask(`after${at}`, { ...plan, atMs: 0, body: 'A', leavesAfterMs: null }, true),
    );
    this.#views.push(...last);
    await Promise.all(last);
    return notWhole;
  }

  async #treat(call: Call): Promise<void> {
    const steps = this.schedule.steps[call.path]!;
    const step: Step = this.#over
      ? { kind: 'answers', afterMs: 0, status: 200, bytes: 100 }
      : steps[(call.ordinal - 1) % steps.length]!;
    const { whole } = await call.received;
    if (!whole) return;
    if (step.kind === 'stalls') return call.closed;
    if (step.kind !== 'drips') await delay(step.afterMs);
    if (call.endedAtMs !== null) return;
    switch (step.kind) {
      case 'answers': {
        const answer = this.#answerTo(call, step.status, step.bytes);
        this.#write(call, answer.content, answer.content.length);
        this.#end(call, 'answered', answer);
        return answers(answer)(call);
      }
      case 'drips':
        return this.#drip(call, this.#answerTo(call, step.status, step.bytes), step);
      case 'hangs-up':
        this.#end(call, 'hung-up');
        return call.hangUp();
      case 'resets':
        this.#end(call, 'reset');
        return call.reset();
      case 'cuts-length':
      case 'cuts-chunked': {
        const length = step.kind === 'cuts-length';
        call.head(200, 'OK', length ? ['Content-Length', '1000'] : ['Transfer-Encoding', 'chunked']);
        const begun = `${call.path} ${call.ordinal} cut off`;
        this.#write(call, begun, length ? 1_000 : null);
        call.raw(length ? begun : chunkBytes(Buffer.from(begun)));
        this.#end(call, 'cut');
        return call.hangUp();
      }
    }
  }

  async #drip(call: Call, answer: Answer & { content: string; status: number }, step: Drip): Promise<void> {
    const { content } = answer;
    const chunked = step.framing === 'chunked';
    call.head(
      answer.status,
      'OK',
      chunked ? ['Transfer-Encoding', 'chunked'] : ['Content-Length', `${content.length}`],
    );
    this.#write(call, '', chunked ? null : content.length);
    for (let at = 0; at < step.pieces; at += 1) {
      await delay(step.afterMs);
      if (call.endedAtMs !== null) return;
      if (at === step.cutAt) {
        this.#end(call, 'cut');
        return call.hangUp();
      }
      const piece = pieceOf(content, at, step.pieces);
      this.#write(call, piece, chunked ? null : content.length);
      call.raw(chunked ? chunkBytes(Buffer.from(piece)) : piece);
    }
    if (chunked) call.raw(lastChunkBytes());
    this.#end(call, 'answered', answer);
    call.finish();
  }

  /** Notes what is about to be written. */
  #write(call: Call, more: string, announcedBytes: number | null): void {
    const before = this.#written.get(call)?.content ?? '';
    const grew = this.#written.get(call)?.grew ?? [];
    const content = before + more;
    const now = more === '' ? [] : [{ atMs: performance.now(), bytes: content.length }];
    this.#written.set(call, { content, announcedBytes, grew: [...grew, ...now] });
  }

  #end(call: Call, how: Execution['how'], answer?: { status: number; content: string }): void {
    const text = answer === undefined ? '' : answerText(answer.status, Buffer.from(answer.content));
    this.#ended.set(call, { how, status: answer?.status ?? 0, answer: text });
  }

  /** What is under way of that gateway, and what was answered since then, may be lost. */
  #upstreamDown(gateway: number | 'all', sinceMs: number): void {
    for (const call of this.stage.upstream.calls) {
      if (call.endedAtMs !== null && call.endedAtMs < sinceMs) continue;
      if (gateway !== 'all' && this.#gatewayOf(call) !== gateway) continue;
      const ended = this.#ended.get(call);
      if (ended?.how === 'answered') ended.how = 'perhaps';
      else if (ended === undefined) this.#ended.set(call, { status: 0, answer: '', how: 'reset' });
    }
  }

  #gatewayOf(call: Call): number | undefined {
    const at = /^r(\d+)$/.exec(call.header('x-request') ?? '')?.[1];
    return this.schedule.requests[Number(at)]?.gateway;
  }

  /** No two calls are answered alike, nor two parts of an answer. */
  #answerTo(call: Call, status: number, bytes: number): { status: number; content: string } {
    const said = `${call.path} ${call.ordinal} ${String(call.content)}`;
    let content = said;
    for (let line = 1; content.length < bytes; line += 1) content += ` ${line}\n${said}`;
    return { status, content: content.slice(0, Math.max(bytes, said.length)) };
  }

  #executionOf(call: Call): Execution {
    const { path, startedAtMs, endedAtMs } = call;
    return {
      route: path.split('/')[1]!,
      path,
      body: String(call.content ?? ''),
      request: call.header('x-request') ?? '',
      fence: Number(call.header('x-fence') ?? 0),
      startMs: startedAtMs,
      endMs: endedAtMs ?? performance.now(),
      ...(this.#written.get(call) ?? { content: '', announcedBytes: null, grew: [] }),
      ...(this.#ended.get(call) ?? { how: 'abandoned', status: 0, answer: '' }),
    };
  }

  async #ask(request: string, plan: RequestPlan, afterwards: boolean): Promise<View> {
    const { route, path, body, gateway } = plan;
    const headers = ['X-Request', request, 'Idempotency-Key', path, 'Content-Type', 'text/plain'];
    const startMs = performance.now();
    const sent = send(this.stage.gateway(gateway).url, { method: 'POST', path, headers, body });
    const { tookMs, ...seen } = await this.#await(sent, plan.leavesAfterMs);
    const firstMs = tookMs === null ? null : startMs + tookMs;
    return { route, path, body, request, gateway, afterwards, startMs, endMs: performance.now(), firstMs, ...seen };
  }

  async #await(sent: Sent, leavesAfterMs: number | null) {
    let left = false;
    const answer = within(HUNG_MS, 'hung', sent.answer);
    if (leavesAfterMs !== null) {
      void sent.sent.then(async () => {
        await delay(leavesAfterMs);
        left = true;
        sent.leave();
      });
    }
    const nothing = {
      status: 0,
      answer: '',
      content: '',
      tookMs: null,
      problem: null,
      cacheStatus: '',
      replayed: false,
    };
    try {
      const came = await answer;
      if (came.cut) return { ...nothing, ...part(came), how: left ? 'left' : 'cut' } as const;
      return { ...told(came), how: 'answered' } as const;
    } catch (error) {
      if (left) return { ...nothing, how: 'left' } as const;
      const { code, message } = error as { code?: string; message: string };
      if (message.startsWith('hung')) sent.leave();
      const how = message.startsWith('hung') ? 'hung' : code === 'ECONNREFUSED' ? 'refused' : 'cut';
      return { ...nothing, how } as const;
    }
  }

  /** All times from the beginning of the schedule. */
  #shifted(beganMs: number, seen: Seen): Seen {
    const from = <T extends { startMs: number; endMs: number }>(thing: T): T => ({
      ...thing,
      startMs: thing.startMs - beganMs,
      endMs: thing.endMs - beganMs,
    });
    return {
      ...seen,
      executions: seen.executions.map((call) => ({
        ...from(call),
        grew: call.grew.map(({ atMs, bytes }) => ({ atMs: atMs - beganMs, bytes })),
      })),
      views: seen.views.map((view) => ({
        ...from(view),
        firstMs: view.firstMs === null ? null : view.firstMs - beganMs,
      })),
      troubles: seen.troubles.map((one) => ({ ...one, fromMs: one.fromMs - beganMs, toMs: one.toMs - beganMs })),
      flushesMs: seen.flushesMs.map((atMs) => atMs - beganMs),
      deafMs: seen.deafMs.map((atMs) => atMs - beganMs),
    };
  }
}

/** What came of an answer of the upstream's. */
function part(came: Answered) {
  const own = came.header('content-type')?.startsWith('application/problem+json') ?? false;
  return { status: came.status, content: own ? '' : came.text, tookMs: came.firstMs };
}

/** One of so many pieces of about one size. None is empty, for behind the last byte there is nothing to cut off. */
function pieceOf(content: string, at: number, pieces: number): string {
  const placeOf = (piece: number) => Math.floor((content.length * piece) / pieces);
  return content.slice(placeOf(at), placeOf(at + 1));
}

function told(came: Answered) {
  return {
    ...part(came),
    answer: answerText(came.status, came.body),
    problem: problemOf(came),
    cacheStatus: came.cacheStatus ?? '',
    replayed: came.header('idempotent-replayed') === 'true',
  };
}

/** Plays one schedule on a Redis that no other schedule uses at the same time. */
export async function play(schedule: Schedule, server: RedisServer, scope: Scope, program?: string): Promise<Seen> {
  const stage = await Stage.open(schedule, server, scope, program);
  return new Playing(schedule, stage).play();
}
