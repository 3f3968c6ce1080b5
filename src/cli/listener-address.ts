/** The base URL of a listener, as a client on this machine writes it. */

/** An unspecified address is no destination: loopback stands for it. */
export function listenerUrl(host: string, port: number, scheme: 'http' | 'https' = 'http'): URL {
  if (host === '0.0.0.0') return new URL(`${scheme}://127.0.0.1:${port}`);
  if (host === '::') return new URL(`${scheme}://[::1]:${port}`);
  return new URL(`${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`);
}
