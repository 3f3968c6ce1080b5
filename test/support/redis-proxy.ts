/** A TCP proxy on loopback that fails in chosen ways: replies lost, bytes held back, silence. */

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** One connection through the proxy. */
type Line = {
  readonly client: Socket;
  readonly server: Socket;
  /** What the client has sent, kept back. */
  held: Buffer[] | null;
  subscriber: boolean;
};

export type TcpProxy = {
  readonly port: number;
  /** Passes on the next request that contains the text, then drops the connection in place of its reply. */
  loseReplyTo(text: string): void;
  /**
   * Keeps back what comes over the connections that are open now. The returned function lets the first packet of each
   * go to the server; the rest is lost.
   */
  holdRequests(): () => void;
  /** From now on nothing passes, either way, and new connections are accepted in silence; or everything passes again. */
  silence(on: boolean): void;
  /** Keeps back what the server sends over the connections that are open now and have subscribed. */
  deafenSubscribers(): void;
  connections(): number;
  close(): Promise<void>;
};

export async function startTcpProxy(targetPort: number): Promise<TcpProxy> {
  const lines = new Set<Line>();
  const deaf = new Set<Line>();
  let silent = false;
  let losing: string | null = null;

  const server = createServer((client) => {
    const line: Line = { client, server: connect(targetPort, '127.0.0.1'), held: null, subscriber: false };
    lines.add(line);
    let replyIsLost = false;
    client.on('data', (chunk: Buffer) => {
      const text = chunk.toString('latin1');
      if (/subscribe/i.test(text)) line.subscriber = true;
      if (silent) return;
      if (losing !== null && text.includes(losing)) {
        losing = null;
        replyIsLost = true;
      }
      if (line.held === null) line.server.write(chunk);
      else line.held.push(chunk);
    });
    line.server.on('data', (chunk: Buffer) => {
      if (silent || deaf.has(line)) return;
      if (replyIsLost) client.destroy();
      else client.write(chunk);
    });
    client.on('error', () => {});
    line.server.on('error', () => client.destroy());
    // Held bytes outlive their client, as bytes in a network do.
    client.on('close', () => line.held === null && line.server.destroy());
    line.server.on('close', () => {
      client.destroy();
      lines.delete(line);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');

  return {
    port: address.port,
    loseReplyTo: (text) => {
      losing = text;
    },
    holdRequests: () => {
      const holding = [...lines];
      for (const line of holding) line.held = [];
      return () => {
        for (const line of holding) {
          const [first] = line.held ?? [];
          if (first !== undefined) line.server.write(first);
        }
      };
    },
    silence: (on) => {
      silent = on;
    },
    deafenSubscribers: () => {
      for (const line of lines) if (line.subscriber) deaf.add(line);
    },
    connections: () => lines.size,
    close: async () => {
      server.close();
      for (const line of lines) {
        line.client.destroy();
        line.server.destroy();
      }
      await once(server, 'close');
    },
  };
}
