/** Where the API is asked: what a URL may look like, and what may stand for its placeholder. */

import fc from 'fast-check';
import t from 'tap';
import { parseQuestionUrl, questionTarget } from '../../src/core/question-url.js';
import type { QuestionUrl } from '../../src/core/rule.js';

function urlOf(text: string): QuestionUrl {
  const parsed = parseQuestionUrl(text);
  if (parsed.kind === 'fault') throw new Error(`${text}: ${parsed.expected}`);
  return parsed.url;
}

function faultOf(text: string): string {
  const parsed = parseQuestionUrl(text);
  return parsed.kind === 'fault' ? parsed.expected : 'no fault';
}

t.test('a path of the upstream, or a URL of its own', async (t) => {
  t.same(urlOf('/operations/{key}'), { origin: null, target: '/operations/{key}', placeholder: 'key' });
  t.same(urlOf('/op?by={idempotencyKey}&x=1'), {
    origin: null,
    target: '/op?by={idempotencyKey}&x=1',
    placeholder: 'idempotencyKey',
  });
  t.same(urlOf('https://status.example.com:8443/op/{key}'), {
    origin: 'https://status.example.com:8443',
    target: '/op/{key}',
    placeholder: 'key',
  });
  t.same(urlOf('HTTP://[::1]:80?key={key}'), { origin: 'HTTP://[::1]:80', target: '/?key={key}', placeholder: 'key' });
  t.same(urlOf('/{key}/again/{key}').target, '/{key}/again/{key}');
});

t.test('what is no URL to ask at', async (t) => {
  for (const text of ['operations/{key}', 'ftp://h/{key}', '//h/{key}', '?key={key}', '{key}']) {
    t.match(faultOf(text), /^a path such as/, text);
  }
  for (const text of ['', '/a b/{key}', '/é/{key}', '/{key}#x', '/a\\{key}', '/a\n{key}', '/"{key}"']) {
    t.match(faultOf(text), /^a URL of visible ASCII/, text);
  }
  for (const text of ['http://{key}.h/', 'http://u:p@h/{key}', 'https:///{key}', 'http:/h/{key}', 'http://h:x/{key}']) {
    t.match(faultOf(text), /^an http:\/\/ or https:\/\/ URL without credentials/, text);
  }
  for (const text of ['/a', '/{id}', '/{key}/{id}', '/{key}/{idempotencyKey}', '/{key', '/key}', '/{{key}}', '/{}']) {
    t.match(faultOf(text), /^\{key\} or \{idempotencyKey\} in it/, text);
  }
});

t.test('a value is one path segment or one query value, whatever is in it', async (t) => {
  const path = urlOf('/op/{key}/state?k={key}&x=1');
  t.equal(questionTarget(path, 'abc-1._~'), '/op/abc-1._~/state?k=abc-1._~&x=1');
  t.equal(
    questionTarget(path, 'a/b?c=d&e#f %'),
    '/op/a%2Fb%3Fc%3Dd%26e%23f%20%25/state?k=a%2Fb%3Fc%3Dd%26e%23f%20%25&x=1',
  );
  t.equal(questionTarget(urlOf('/op/{key}'), '\x00\r\n\xc3\xa9'), '/op/%00%0D%0A%C3%A9');
  t.equal(questionTarget(urlOf('/op/{key}'), "$&$1'"), '/op/%24%26%241%27', 'no pattern of replace');
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 40 }), (bytes) => {
      const value = Buffer.from(bytes).toString('latin1');
      const target = questionTarget(urlOf('/op/{key}?k={key}'), value);
      if (target === null) return value.split(/[/\\]/).some((piece) => /^(?:\.|%2e){1,2}$/i.test(piece));
      const { pathname, searchParams } = new URL(target, 'http://h');
      const [, segment = ''] = /^\/op\/([^/]+)$/.exec(pathname) ?? [];
      return unescapedBytes(segment) === value && [...searchParams].length === 1;
    }),
  );
});

function unescapedBytes(text: string): string {
  return text.replace(/%([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

t.test('no value leads to another path, and none asks for everything', async (t) => {
  const url = urlOf('/op/{key}');
  for (const value of ['', '.', '..', '../admin', 'a/../../admin', '..\\admin', '%2e%2E', 'a/%2e./b', '/..']) {
    t.equal(questionTarget(url, value), null, value);
  }
  for (const value of ['...', '.a', 'a..', 'a/b', '%2', '..%']) t.not(questionTarget(url, value), null, value);
  t.equal(questionTarget(urlOf('/op/.{key}'), '.'), null, 'completed by the text around it');
  t.equal(questionTarget(urlOf('/op/{key}.'), '%2e'), null);
  t.equal(questionTarget(url, '\u0125'), null, 'no byte text');
  t.equal(questionTarget(url, 'a'.repeat(4_092)), `/op/${'a'.repeat(4_092)}`);
  t.equal(questionTarget(url, 'a'.repeat(4_093)), null, 'too long');
});
