/**
 * The live page in a browser.
 *
 * Invariant: whatever a test does with it, the page has broken no policy, asked no other host and complained of nothing
 * beyond what the test expects.
 */

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Browser, BrowserContextOptions, Locator, Page } from 'playwright-core';
import type { Test } from 'tap';
import { startBrowser } from './chromium.js';
import type { Gateway } from './gateway.js';

const PICTURES = fileURLToPath(new URL('../../../test-output/page/', import.meta.url));
export const DESKTOP = { width: 1440, height: 900 };
export const PHONE = { width: 360, height: 740 };

/** Roles of what somebody acts on or has to be told of. */
const NAMED: ReadonlySet<string> = new Set([
  'button',
  'link',
  'textbox',
  'combobox',
  'spinbutton',
  'checkbox',
  'radio',
  'table',
  'dialog',
  'image',
  'region',
  'navigation',
]);

let browser: Promise<Browser> | null = null;

export type LivePageOptions = BrowserContextOptions & {
  /** Complaints of the browser that belong to the test. */
  readonly expects?: RegExp;
};

export type LivePage = {
  readonly page: Page;
  readonly urls: readonly string[];
  /** What the number of that name is. */
  tile(name: string): Promise<string>;
  /** What is said of something that the gateway needs. */
  fact(name: string): Promise<string>;
  /** What broke the content security policy. */
  violations(): Promise<string[]>;
  picture(name: string): Promise<void>;
  /** Asserts what holds of every page. */
  close(): Promise<void>;
};

/** Opens the page of a gateway, once it shows something. */
export async function openPage(t: Test, gateway: Gateway, options: LivePageOptions = {}): Promise<LivePage> {
  const { expects = /^$/, ...context } = options;
  const page = await newPage(t, context);
  const complaints: string[] = [];
  const urls: string[] = [];
  page.on('console', (message) => {
    if (!expects.test(message.text())) complaints.push(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => urls.push(request.url()));
  await page.addInitScript(
    "window.violations = []; addEventListener('securitypolicyviolation', (e) => violations.push(e.violatedDirective));",
  );
  const violations = () => page.evaluate<string[]>('window.violations');
  let isClosed = false;
  const close = async (): Promise<void> => {
    t.same(await violations(), [], 'the page keeps its policy');
    t.same(complaints, [], 'the browser has nothing to complain of');
    const elsewhere = urls.filter((url) => !url.startsWith(`${gateway.adminUrl}/`));
    t.same(elsewhere, [], 'it speaks with its own gateway alone');
    isClosed = true;
    await page.context().close();
  };
  t.teardown(async () => {
    if (isClosed) return;
    await page.context().close();
    if (t.passing()) throw new Error('the test has not closed its page, and what it broke is not known');
  });
  await page.goto(gateway.adminUrl);
  await page.locator('main').first().waitFor();
  return {
    page,
    urls,
    tile: (name) => textOf(page.locator(`[data-tile="${name}"] b`)),
    fact: (name) => textOf(page.locator(`[data-fact="${name}"] .state`)),
    violations,
    picture: (name) => picture(page, name),
    close,
  };
}

/** The text of an element, as it was written. */
export async function textOf(element: Locator): Promise<string> {
  return (await element.textContent())?.trim() ?? '';
}

async function newPage(t: Test, options: BrowserContextOptions): Promise<Page> {
  browser ??= startBrowser(rootOf(t));
  const context = await (await browser).newContext({ viewport: DESKTOP, ...options });
  return context.newPage();
}

/** One browser for all tests of a file. */
function rootOf(t: Test): Test {
  return t.parent === undefined ? t : rootOf(t.parent as Test);
}

async function picture(page: Page, name: string): Promise<void> {
  mkdirSync(PICTURES, { recursive: true });
  await page.evaluate('scrollTo(0, 0)');
  await page.screenshot({ path: `${PICTURES}${name}.png`, fullPage: true });
}

/** What is shown without a name for who cannot see it: role and place. Chromium's own tree is asked. */
export async function namelessOf(page: Page): Promise<string[]> {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  await session.detach();
  const shown = nodes.filter(({ ignored, role }) => !ignored && NAMED.has(String(role?.value)));
  if (shown.length === 0) return ['nothing was found'];
  return shown.filter(({ name }) => String(name?.value ?? '').trim() === '').map(({ role }) => String(role?.value));
}

/** Texts whose contrast with what is behind them is less than 4.5 to 1 (WCAG 2.2, 1.4.3). */
export function faintTexts(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(FAINT_TEXTS);
}

// The page's own types are not those of the tests: what runs there is a text.
const FAINT_TEXTS = `(() => {
  const channels = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const groundOf = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const { backgroundColor } = getComputedStyle(at);
      if (channels(backgroundColor)[3] !== 0) return backgroundColor;
    }
    return 'rgb(255, 255, 255)';
  };
  const faint = [];
  for (const element of document.querySelectorAll('body *')) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join('');
    if (text === '' || !element.checkVisibility()) continue;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(groundOf(element))].sort((x, y) => x - y);
    if ((b + 0.05) / (a + 0.05) < 4.5) faint.push(text);
  }
  return faint;
})()`;
