/**
 * A real browser: Chromium or Chrome on PATH, else Debian's Chromium without a window, unpacked without root into the
 * user's cache folder, with a font.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';
import { type Program, programOf } from './debian-package.js';

/** Finds the program, or fetches it. Rejects with one line that says what to install. */
export async function browserProgram(): Promise<Program> {
  try {
    return await programOf({
      name: 'chromium',
      programs: ['chromium-headless-shell', 'chromium', 'google-chrome', 'google-chrome-stable', 'chromium-browser'],
      packages: ['chromium-headless-shell', 'chromium-common', 'fonts-dejavu-core'],
      // The one in usr/bin is a script that looks for it in the root folder.
      path: 'usr/lib/chromium/chromium-headless-shell',
    });
  } catch (cause) {
    throw new Error('no chromium or google-chrome on PATH, and none could be fetched: install Chromium', { cause });
  }
}

/** Starts it. */
export async function startBrowser(t: { teardown(end: () => Promise<void>): void }): Promise<Browser> {
  const program = await browserProgram();
  const env = program.root === null ? program.env : { ...program.env, FONTCONFIG_FILE: fontsOf(program.root) };
  const browser = await chromium.launch({ executablePath: program.path, env: env as Record<string, string> });
  t.teardown(() => browser.close());
  return browser;
}

/** Where there are no fonts there would be no text; with its own the pictures are the same everywhere. */
function fontsOf(root: string): string {
  const file = join(root, 'fonts.conf');
  writeFileSync(
    file,
    `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>${root}/usr/share/fonts</dir><cachedir>${root}/fonts-cache</cachedir></fontconfig>\n`,
  );
  return file;
}
