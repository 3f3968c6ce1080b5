/** The base URL of a listener, as a client on this machine writes it. */

import type { AdminConfig } from '../config/config.js';

/** An unspecified address is no destination: loopback stands for it. */
export function listenerUrl(host: string, port: number, scheme: 'http' | 'https' = 'http'): URL {
  if (host === '0.0.0.0') return new URL(`${scheme}://127.0.0.1:${port}`);
  if (host === '::') return new URL(`${scheme}://[::1]:${port}`);
  return new URL(`${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`);
}

/** Where to ask an admin listener, and what it wants to be told. */
export type AdminAddress = { readonly origin: URL; readonly token: string | null };

/** Throws when there is none. */
export function adminAddress(admin: AdminConfig): AdminAddress {
  if (admin.kind === 'off') throw new Error('the admin listener is switched off');
  return { origin: listenerUrl(admin.host, admin.port), token: admin.token };
}

/** Flat field lines with which an operator asks. */
export function operatorFields({ token }: AdminAddress): string[] {
  return token === null ? [] : ['Authorization', `Bearer ${token}`];
}
