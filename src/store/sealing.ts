/**
 * Contents sealed for a store that others may read: AES-256-GCM, so that what was changed does not open either.
 *
 * Sealed frame: marker, version and binding (1 byte each), key id (8), nonce (12), ciphertext, tag (16).
 * Invariants: the key of a frame is derived (HKDF-SHA-256) from a secret and the material of the request's key, of which
 * the store sees neither; the head, the key's digest and the flight's id are authenticated, so that a frame opens only where
 * it was put; every frame has a nonce of its own; the first secret seals, all of them open; whatever does not open is an
 * `UnreadableFrame` and never half a frame.
 *
 * An operator knows a digest, not the request: such a frame is sealed under the secret alone, says so in its binding, and
 * opens for whoever has the secret.
 */

import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import type { KeyMaterial } from '../core/claim.js';
import { UnreadableFrame } from './codec.js';

/** Where a frame belongs, and what it is sealed with there; without material it is an operator's. */
export type SealedPlace = { readonly key: string; readonly flight: string; readonly material: KeyMaterial };

/** No version of a plain frame, and no word of a script, begins with it. */
const MARKER = 0xf5;
const VERSION = 1;
const BY_REQUEST = 1;
const BY_OPERATOR = 2;
const ID_AT = 3;
const ID_BYTES = 8;
const NONCE_AT = ID_AT + ID_BYTES;
const NONCE_BYTES = 12;
const HEAD_BYTES = NONCE_AT + NONCE_BYTES;
const TAG_BYTES = 16;
const KEY_BYTES = 32;

/** What is made of one secret: its name in frames, and the key that frames' keys are derived with. */
type SealingSecret = { readonly id: Buffer; readonly key: Buffer };

/** Whether a frame says of itself that it is sealed. */
export function isSealed(frame: Buffer): boolean {
  return frame[0] === MARKER;
}

export class Sealing {
  readonly #secrets: readonly SealingSecret[];

  /** At least one secret; the first is the one that seals. */
  constructor(secrets: readonly string[]) {
    this.#secrets = secrets.map((secret) => ({
      id: labelled(secret, 'oneflight key id 1').subarray(0, ID_BYTES),
      key: labelled(secret, 'oneflight sealing key 1'),
    }));
  }

  seal(plain: Buffer, place: SealedPlace): Buffer {
    const secret = this.#secrets[0]!;
    const binding = place.material === null ? BY_OPERATOR : BY_REQUEST;
    const nonce = randomBytes(NONCE_BYTES);
    const head = Buffer.concat([Buffer.of(MARKER, VERSION, binding), secret.id, nonce]);
    const cipher = createCipheriv('aes-256-gcm', frameKey(secret, binding, place), nonce);
    cipher.setAAD(authenticated(head, place));
    return Buffer.concat([head, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  }

  /** Throws `UnreadableFrame`. */
  open(sealed: Buffer, place: SealedPlace): Buffer {
    if (sealed.length < HEAD_BYTES + TAG_BYTES) throw new UnreadableFrame('a sealed frame is cut');
    if (sealed[0] !== MARKER) throw new UnreadableFrame('the frame is not sealed');
    if (sealed[1] !== VERSION) throw new UnreadableFrame(`sealed version ${sealed[1]}, expected ${VERSION}`);
    const id = sealed.subarray(ID_AT, NONCE_AT);
    const secret = this.#secrets.find((known) => known.id.equals(id));
    if (secret === undefined) throw new UnreadableFrame('the frame is sealed with a secret that is not known here');
    const head = sealed.subarray(0, HEAD_BYTES);
    const end = sealed.length - TAG_BYTES;
    const key = frameKey(secret, sealed[2] as number, place);
    const decipher = createDecipheriv('aes-256-gcm', key, head.subarray(NONCE_AT), { authTagLength: TAG_BYTES });
    decipher.setAAD(authenticated(head, place));
    decipher.setAuthTag(sealed.subarray(end));
    const plain = decipher.update(sealed.subarray(HEAD_BYTES, end));
    try {
      // Of GCM there is nothing left to come: the last step only compares.
      decipher.final();
    } catch (cause) {
      throw new UnreadableFrame('the frame does not open: changed, or not of this key and flight', { cause });
    }
    return plain;
  }
}

function labelled(secret: string, label: string): Buffer {
  return createHmac('sha256', secret).update(label).digest();
}

function frameKey(secret: SealingSecret, binding: number, { material }: SealedPlace): Buffer {
  const derived = (from: Parameters<typeof hkdfSync>[1], label: string) =>
    Buffer.from(hkdfSync('sha256', from, secret.key, `oneflight frame ${VERSION} ${label}`, KEY_BYTES));
  if (binding === BY_OPERATOR) return derived(secret.key, 'operator');
  if (binding !== BY_REQUEST) throw new UnreadableFrame(`sealed binding ${binding} is not known`);
  if (material === null) throw new UnreadableFrame('the frame opens only for a request of its key');
  return derived(material, 'request');
}

/** The head, and the place with its lengths, so that no two places are one text. */
function authenticated(head: Buffer, { key, flight }: SealedPlace): Buffer {
  return Buffer.concat([head, Buffer.from(`${key.length}:${key} ${flight.length}:${flight}`)]);
}
