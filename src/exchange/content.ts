/** Reading a request's whole content for its key, up to a limit. What is read here goes upstream byte for byte. */

import type { ClientRequest } from './client-side.js';

export type ContentRead =
  | { readonly kind: 'whole'; readonly content: Buffer }
  | { readonly kind: 'too-large' }
  /** The client left, or its message broke off. */
  | { readonly kind: 'broken' };

/** Reads at most `limitBytes`. A larger announced length is refused before anything is read. */
export function readContent(req: ClientRequest, limitBytes: number): Promise<ContentRead> {
  if (Number(req.headers['content-length'] ?? 0) > limitBytes) return Promise.resolve({ kind: 'too-large' });
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const finish = (read: ContentRead) => {
      req.off('data', onData).off('end', onEnd).off('close', onBroken);
      resolve(read);
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > limitBytes) {
        req.pause();
        finish({ kind: 'too-large' });
      } else {
        chunks.push(chunk);
      }
    };
    const onEnd = () =>
      finish({ kind: 'whole', content: chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes) });
    const onBroken = () => finish({ kind: 'broken' });
    req.on('data', onData).on('end', onEnd).on('close', onBroken);
  });
}
