/**
 * The proxies that are compared: each with one thread of work, connections to the upstream kept, and no log.
 *
 * Invariant: all are asked to do the same. `pass`: forward, keep nothing. `collapse`: one upstream call per key at a
 * time, by whatever the proxy has for that, and everybody else gets its response.
 */

import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Program, programOf, type Wanted } from '../test/support/debian-package.js';
import { freePort } from '../test/support/ports.js';
import { type Command, Measured, newFolder } from './cores.js';
import { gatewayYaml, PROGRAM } from './gateway-config.js';

export type Task = 'pass' | 'collapse';

type Place = {
  readonly task: Task;
  readonly folder: string;
  readonly port: number;
  readonly upstream: URL;
  readonly file: (name: string, text: string) => string;
};

export type Peer = {
  readonly name: string;
  readonly version: string;
  /** Whether it has anything to collapse requests with. */
  readonly collapses: boolean;
  start(task: Task, upstream: string): Promise<Measured>;
};

type Setup = (program: Program, place: Place) => Omit<Command, 'url'>;
type Installed = Wanted & { readonly collapses: boolean; readonly version: RegExp; readonly setup: Setup };

const KEPT_CONNECTIONS = 256;

const nginx: Setup = ({ path, env }, { task, folder, port, upstream, file }) => {
  const collapse = `
      proxy_cache kept;
      proxy_cache_key $request_uri;
      proxy_cache_valid 200 1m;
      proxy_cache_lock on;
      proxy_cache_lock_timeout 60s;
      proxy_cache_lock_age 60s;`;
  const config = file(
    'nginx.conf',
    `
daemon off; master_process off; worker_processes 1; pid ${folder}/pid; error_log ${folder}/error.log crit;
worker_rlimit_nofile 20000;
events { worker_connections 19000; }
http {
  access_log off;
  keepalive_requests 1000000000;
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => `${kind}_temp_path ${folder}/${kind};`).join(' ')}
  proxy_cache_path ${folder}/cache keys_zone=kept:10m;
  upstream api { server ${upstream.host}; keepalive ${KEPT_CONNECTIONS}; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:${port} backlog=8192;
    location / {
      proxy_pass http://api;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;${task === 'collapse' ? collapse : ''}
    }
  }
}`,
  );
  return { program: path, env, args: ['-c', config, '-e', join(folder, 'error.log')] };
};

const haproxy: Setup = ({ path, env }, { port, upstream, file }) => {
  const config = file(
    'haproxy.cfg',
    `
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option forwardfor
  http-reuse always
frontend in
  bind 127.0.0.1:${port} backlog 8192
  default_backend api
backend api
  server one ${upstream.host} pool-max-conn ${KEPT_CONNECTIONS}
`,
  );
  return { program: path, env, args: ['-db', '-f', config] };
};

const varnish: Setup = ({ path, env }, { task, folder, port, upstream, file }) => {
  const pass = 'sub vcl_recv { return (pass); }';
  // Its workers are threads, one for each request that is not waiting on its list.
  const config = file(
    'bench.vcl',
    `vcl 4.1;
backend api { .host = "${upstream.hostname}"; .port = "${upstream.port}"; }
${task === 'pass' ? pass : 'sub vcl_recv { return (hash); } sub vcl_backend_response { set beresp.ttl = 60s; }'}`,
  );
  const parameters = ['listen_depth=8192', 'thread_pools=1', 'thread_pool_min=100'].flatMap((one) => ['-p', one]);
  const args = ['-F', '-j', 'none', '-n', folder, '-a', `127.0.0.1:${port}`, '-f', config, '-s', 'malloc,256m'];
  return { program: path, env, args: [...args, ...parameters] };
};

const trafficServer: Setup = ({ path, env, root }, { task, folder, port, upstream, file }) => {
  const at = root ?? '';
  for (const name of ['', 'etc', 'run', 'log', 'cache']) {
    mkdirSync(join(folder, name), { recursive: true });
    chmodSync(join(folder, name), 0o777);
  }
  cpSync(`${at}/etc/trafficserver/body_factory`, join(folder, 'body_factory'), { recursive: true });
  file(
    'runroot.yaml',
    [
      `prefix: ${folder}`,
      `exec_prefix: ${folder}`,
      `bindir: ${at}/usr/bin`,
      `sbindir: ${at}/usr/sbin`,
      `sysconfdir: ${folder}/etc`,
      `datadir: ${folder}/cache`,
      `includedir: ${at}/usr/include`,
      `libdir: ${at}/usr/lib/trafficserver`,
      `libexecdir: ${at}/usr/lib/trafficserver/modules`,
      `localstatedir: ${folder}/run`,
      `runtimedir: ${folder}/run`,
      `logdir: ${folder}/log`,
      `mandir: ${folder}`,
      `infodir: ${folder}`,
      `cachedir: ${folder}/cache`,
    ].join('\n'),
  );
  file('etc/remap.config', `map / http://${upstream.host}/\n`);
  file('etc/storage.config', `${folder}/cache 256M\n`);
  file('etc/ip_allow.yaml', 'ip_allow:\n  - { apply: in, ip_addrs: 0/0, action: allow, methods: ALL }\n');
  for (const name of ['plugin.config', 'hosting.config', 'parent.config', 'volume.config', 'cache.config'])
    file(`etc/${name}`, '');
  for (const name of ['ssl_multicert.config', 'socks.config', 'splitdns.config']) file(`etc/${name}`, '');
  file('etc/logging.yaml', 'logging: {}\n');
  file('etc/sni.yaml', 'sni: []\n');
  const settings = [
    `proxy.config.http.server_ports STRING ${port}:ip-in=127.0.0.1`,
    // It does not run as root, and gives up what it needs it for at the start.
    `proxy.config.admin.user_id STRING ${process.getuid?.() === 0 ? 'nobody' : '#-1'}`,
    'proxy.config.crash_log_helper STRING NULL',
    `proxy.config.body_factory.template_sets_dir STRING ${folder}/body_factory`,
    'proxy.config.exec_thread.autoconfig INT 0',
    'proxy.config.exec_thread.limit INT 1',
    'proxy.config.accept_threads INT 0',
    'proxy.config.net.listen_backlog INT 8192',
    'proxy.config.net.connections_throttle INT 19000',
    'proxy.config.log.logging_enabled INT 0',
    'proxy.config.url_remap.pristine_host_hdr INT 1',
    'proxy.config.http.insert_squid_x_forwarded_for INT 1',
    `proxy.config.http.cache.http INT ${task === 'pass' ? 0 : 1}`,
    'proxy.config.http.cache.required_headers INT 0',
    // "Reducing origin server requests" of its manual: readers wait for the one writer, who is tried again and again.
    'proxy.config.cache.enable_read_while_writer INT 1',
    'proxy.config.http.background_fill_active_timeout INT 0',
    'proxy.config.http.background_fill_completed_threshold FLOAT 0.0',
    'proxy.config.http.cache.open_write_fail_action INT 5',
    'proxy.config.http.cache.max_open_read_retries INT 1000',
    'proxy.config.http.cache.open_read_retry_time INT 10',
    'proxy.config.http.cache.max_open_write_retries INT 1',
  ];
  file('etc/records.config', settings.map((line) => `CONFIG ${line}\n`).join(''));
  return { program: path, env: { ...env, TS_RUNROOT: join(folder, 'runroot.yaml') }, args: [] };
};

const squid: Setup = ({ path, env, root }, { task, folder, port, upstream, file }) => {
  const at = root ?? '';
  // It does not run as root, and this is who it becomes then.
  chmodSync(folder, 0o777);
  mkdirSync(join(folder, 'icons'));
  const config = file(
    'squid.conf',
    `
http_port 127.0.0.1:${port} accel no-vhost defaultsite=bench
cache_peer ${upstream.hostname} parent ${upstream.port} 0 no-query originserver no-digest name=api
http_access allow all
cache_peer_access api allow all
never_direct allow all
access_log none
cache_log ${folder}/cache.log
cache_store_log none
pid_filename none
coredump_dir ${folder}
mime_table ${at}/usr/share/squid/mime.conf
icon_directory ${folder}/icons
error_directory ${folder}
unlinkd_program /bin/true
pinger_enable off
shutdown_lifetime 0 seconds
cache_mem 256 MB
max_filedescriptors 20000
workers 1
collapsed_forwarding on
forwarded_for on
${task === 'pass' ? 'cache deny all' : 'refresh_pattern . 1 100% 1'}
`,
  );
  errorPages(folder);
  return { program: path, env, args: ['-N', '-f', config] };
};

/** The pages without which squid does not start. */
function errorPages(folder: string): void {
  const names = ['ERR_ACCESS_DENIED', 'ERR_CANNOT_FORWARD', 'ERR_CONNECT_FAIL', 'ERR_READ_ERROR', 'ERR_READ_TIMEOUT'];
  for (const name of names) writeFileSync(join(folder, name), name);
}

const INSTALLED: readonly Installed[] = [
  {
    ...{ name: 'nginx', programs: ['nginx'], packages: ['nginx'], path: 'usr/sbin/nginx' },
    ...{ collapses: true, version: /nginx\/(\S+)/, setup: nginx },
  },
  {
    ...{ name: 'haproxy', programs: ['haproxy'], packages: ['haproxy'], path: 'usr/sbin/haproxy' },
    ...{ collapses: false, version: /version (\d[\d.]*)/, setup: haproxy },
  },
  {
    ...{ name: 'varnish', programs: ['varnishd'], packages: ['varnish'], path: 'usr/sbin/varnishd' },
    ...{ collapses: true, version: /varnish-(\d[\d.]*)/, setup: varnish },
  },
  {
    ...{ name: 'trafficserver', programs: ['traffic_server'], packages: ['trafficserver'] },
    ...{ path: 'usr/bin/traffic_server', collapses: true, version: /Traffic Server (\d[\d.]*)/, setup: trafficServer },
  },
  {
    ...{ name: 'squid', programs: ['squid'], packages: ['squid', 'squid-common'], path: 'usr/sbin/squid' },
    ...{ collapses: true, version: /Version (\S+)/, setup: squid },
  },
];

/** The peers that there are, or can be had; of each other one `tell` is given a line that says why not. */
export async function peers(tell: (line: string) => void): Promise<Peer[]> {
  const found: Peer[] = [];
  for (const wanted of INSTALLED) {
    try {
      const program = await programOf(wanted);
      found.push({
        name: wanted.name,
        version: versionOf(program, wanted.version),
        collapses: wanted.collapses,
        start: (task, upstream) => startWith(wanted.setup, program, task, upstream),
      });
    } catch (error) {
      tell(`${wanted.name} is left out: ${firstLine(error)}`);
    }
  }
  return [...found, nodePeer('node:http + undici', 'bare'), nodePeer('@fastify/http-proxy', 'fastify-proxy')];
}

async function startWith(setup: Setup, program: Program, task: Task, upstream: string): Promise<Measured> {
  const folder = newFolder();
  const port = await freePort();
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const command = setup(program, { task, folder, port, upstream: new URL(upstream), file });
  return Measured.start({ ...command, url: `http://127.0.0.1:${port}` }, folder);
}

function nodePeer(name: string, file: string): Peer {
  return {
    name,
    version: file === 'bare' ? packageVersion('undici') : packageVersion(name),
    collapses: false,
    start: async (_task, upstream) => {
      const port = await freePort();
      const args = [fileURLToPath(new URL(`peers/${file}.js`, import.meta.url)), upstream, String(port)];
      return Measured.start({ program: process.execPath, args, url: `http://127.0.0.1:${port}` });
    },
  };
}

/** Oneflight itself, as users start it. `log`: with an access log, which a file takes. */
export async function startOneflight(upstream: string, log: boolean, store = '{ kind: memory }'): Promise<Measured> {
  const folder = newFolder();
  const port = await freePort();
  const file = join(folder, 'gateway.yaml');
  writeFileSync(file, gatewayYaml({ upstream, port, store, log: log ? 'info' : 'warn' }));
  const args = [...profiling(), PROGRAM, 'start', '-c', file];
  return Measured.start({ program: process.execPath, args, url: `http://127.0.0.1:${port}` }, folder);
}

/** `PROFILE=folder npm run bench -- pass` has each gateway write a CPU profile there when it ends. */
function profiling(): string[] {
  const { PROFILE } = process.env;
  return PROFILE === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${PROFILE}`];
}

function versionOf({ path, env }: Program, pattern: RegExp): string {
  for (const option of ['-v', '-V']) {
    try {
      const script = `"$0" ${option} 2>&1`;
      const said = execFileSync('/bin/sh', ['-c', script, path], { env, stdio: ['ignore', 'pipe', 'ignore'] });
      const version = pattern.exec(String(said))?.[1];
      if (version !== undefined) return version;
    } catch {
      // It takes the other one.
    }
  }
  throw new Error('it does not tell its version');
}

function packageVersion(name: string): string {
  const file = fileURLToPath(new URL(`../../node_modules/${name}/package.json`, import.meta.url));
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version : '';
}

export function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';
}
