/** The base URL of a listener, as a client on this machine writes it. */

/** An unspecified address is no destination: loopback stands for it. */
export function listenerUrl(host: string, port: number): URL {
  if (host === '0.0.0.0') return new URL(`http://127.0.0.1:${port}`);
  if (host === '::') return new URL(`http://[::1]:${port}`);
  return new URL(`http://${host.includes(':') ? `[${host}]` : host}:${port}`);
}
