/**
 * The floor: what a proxy on node:http and undici's dispatch costs that does nothing but forward. Field lines cross raw,
 * connection-specific ones are left out, head and content of a short response go out in one write.
 */

import { createServer, type ServerResponse } from 'node:http';
import { type Dispatcher, Pool } from 'undici';

const [upstream = '', port = ''] = process.argv.slice(2);
const pool = new Pool(upstream, { pipelining: 1 });

function crosses(name: string): boolean {
  switch (name.length) {
    case 10:
      return name.toLowerCase() !== 'connection' && name.toLowerCase() !== 'keep-alive';
    case 17:
      return name.toLowerCase() !== 'transfer-encoding';
    default:
      return true;
  }
}

class Forwarding {
  readonly #res: ServerResponse;
  #abort: (() => void) | null = null;
  #resume: (() => void) | null = null;
  #status = 0;
  #reason = '';
  #fields: string[] | null = null;

  constructor(res: ServerResponse) {
    this.#res = res;
    res.once('close', () => {
      if (!res.writableFinished) this.#abort?.();
    });
  }

  onConnect(abort: () => void): void {
    this.#abort = abort;
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void, reason: string): boolean {
    if (status < 200) return true;
    const fields: string[] = [];
    for (let i = 0; i + 1 < raw.length; i += 2) {
      const name = (raw[i] as Buffer).toString('latin1');
      if (crosses(name)) fields.push(name, (raw[i + 1] as Buffer).toString('latin1'));
    }
    this.#status = status;
    this.#reason = reason;
    this.#fields = fields;
    this.#resume = resume;
    return true;
  }

  onData(chunk: Buffer): boolean {
    this.#head();
    if (this.#res.write(chunk)) return true;
    this.#res.once('drain', () => this.#resume?.());
    return false;
  }

  onComplete(): void {
    this.#head();
    this.#res.end();
  }

  onError(): void {
    if (this.#fields === null && !this.#res.headersSent) this.#res.writeHead(502);
    this.#res.destroy();
  }

  #head(): void {
    if (this.#fields === null) return;
    this.#res.writeHead(this.#status, this.#reason, this.#fields);
    this.#fields = null;
  }
}

const server = createServer({ keepAliveTimeout: 65_000 }, (req, res) => {
  res.sendDate = false;
  const raw = req.rawHeaders;
  const fields: string[] = [];
  let hasContent = false;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    if (crosses(name)) fields.push(name, raw[i + 1] as string);
    else if (name.length === 17) hasContent = true;
    if (name.length === 14 && name.toLowerCase() === 'content-length') hasContent = true;
  }
  const options: Dispatcher.DispatchOptions = {
    path: req.url as string,
    method: req.method as Dispatcher.HttpMethod,
    headers: fields,
    body: hasContent ? req : null,
  };
  pool.dispatch(options, new Forwarding(res) as unknown as Dispatcher.DispatchHandler);
});
server.listen({ host: '127.0.0.1', port: Number(port), backlog: 8_192 });
