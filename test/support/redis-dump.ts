/** All that a Redis has, and all that is said in it, as somebody would find it who got hold of both. */

import { Redis } from 'ioredis';
import type { RedisServer } from './redis.js';

export type Tap = {
  readonly client: Redis;
  /** Every message on every channel so far. */
  readonly messages: readonly Buffer[];
  /** Names and contents of all keys. */
  dump(): Promise<Buffer[]>;
};

/** Listens to every channel from now on, until the test's end. */
export async function tapRedis(
  t: { teardown(end: () => void): void },
  { port }: Pick<RedisServer, 'port'>,
): Promise<Tap> {
  const client = new Redis({ port, host: '127.0.0.1' });
  const listener = new Redis({ port, host: '127.0.0.1' });
  t.teardown(() => {
    client.disconnect();
    listener.disconnect();
  });
  const messages: Buffer[] = [];
  listener.on('pmessageBuffer', (_pattern: Buffer, channel: Buffer, message: Buffer) =>
    messages.push(channel, message),
  );
  await listener.psubscribe('*');
  return { client, messages, dump: () => dump(client) };
}

async function dump(client: Redis): Promise<Buffer[]> {
  const found: Buffer[] = [];
  let cursor = '0';
  do {
    const [next, names] = await client.scanBuffer(cursor, 'COUNT', 1_000);
    cursor = String(next);
    for (const name of names) found.push(name, ...(await contentsOf(client, name)));
  } while (cursor !== '0');
  return found;
}

async function contentsOf(client: Redis, name: Buffer): Promise<Buffer[]> {
  const type = await client.type(name);
  switch (type) {
    case 'string':
      return [(await client.getBuffer(name)) ?? Buffer.of()];
    case 'hash':
      return (await client.callBuffer('HGETALL', name)) as Buffer[];
    case 'zset':
      return client.zrangeBuffer(name, '0', '-1', 'WITHSCORES');
    case 'stream':
      return (await client.xrangeBuffer(name, '-', '+')).flatMap(([id, fields]) => [id, ...fields]);
    case 'none':
      return [];
    default:
      throw new Error(`nobody looks into a ${type}`);
  }
}

/** The forms in which a text may be found: as it is, in base64 wherever it begins, in hexadecimal, and escaped. */
export function formsOf(text: string): Buffer[] {
  const bytes = Buffer.from(text);
  const aligned = [0, 1, 2].flatMap((before) => {
    // Without the characters that hold bits of what stands before and behind.
    const base64 = Buffer.concat([Buffer.alloc(before), bytes])
      .toString('base64')
      .replace(/=+$/, '');
    const inner = base64.slice(before === 0 ? 0 : before + 1, -1);
    return [inner, inner.replace(/\+/g, '-').replace(/\//g, '_')];
  });
  const escaped = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
  const hex = bytes.toString('hex');
  const texts = [text, encodeURIComponent(text), escaped, escaped.toUpperCase(), hex, hex.toUpperCase(), ...aligned];
  return [...new Set(texts)].map((form) => Buffer.from(form));
}

/** Those of the texts that are found anywhere in one of their forms. */
export function foundIn(haystack: readonly Buffer[], texts: readonly string[]): string[] {
  return texts.filter((text) => formsOf(text).some((form) => haystack.some((one) => one.includes(form))));
}
