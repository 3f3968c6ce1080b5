/** Whether somebody listens there. */

import { once } from 'node:events';
import { connect } from 'node:net';

export async function reachable(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on('error', () => {});
  const [how] = await Promise.race([
    once(socket, 'connect').then(() => ['connected'] as const),
    once(socket, 'close').then(() => ['refused'] as const),
  ]).catch(() => ['refused'] as const);
  socket.destroy();
  return how === 'connected';
}
