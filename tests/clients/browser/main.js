// The server's page in a real browser: light and dark, wide and narrow, by mouse and by keyboard. PAGE says where it is.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
const errors = [];
for (const [name, options] of [
  ['light', { viewport: { width: 1200, height: 900 }, colorScheme: 'light' }],
  ['dark', { viewport: { width: 1200, height: 900 }, colorScheme: 'dark' }],
  ['phone', { viewport: { width: 390, height: 844 }, colorScheme: 'light' }],
]) {
  const page = await browser.newPage(options);
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  page.on('requestfailed', (request) => errors.push(request.url()));
  page.on('request', (request) => assert.ok(request.url().startsWith(process.env.PAGE), request.url()));
  await page.goto(process.env.PAGE);
  await page.getByText('ready', { exact: true }).waitFor();
  const table = page.getByText(/^packages: /);
  await table.waitFor();
  if (name === 'dark') {
    // By keyboard alone.
    for (let n = 0; n < 20 && !(await table.evaluate((summary) => summary === document.activeElement)); n += 1) {
      await page.keyboard.press('Tab');
    }
    await page.keyboard.press('Enter');
  } else {
    await table.click();
  }
  const region = page.getByText('from the first row').first();
  await region.click();
  await page.locator('.store .run').first().waitFor();
  // It is still open after the page has looked again.
  await page.waitForTimeout(2500);
  assert.ok((await page.locator('.store .run > i').count()) > 0, 'tables and segments are drawn');
  assert.ok((await page.locator('#rate polyline').count()) === 2, 'two lines are drawn');
  assert.ok((await page.locator('#events tr').count()) > 0, 'decisions are listed');
  assert.match(await page.locator('#live').textContent(), /^About .+ of .+ is live/, 'the log says what is live');
  assert.match(await page.locator('#compactors tbody').textContent(), /^127\.0\.0\.1:\d+0 of 7/, 'the compaction server is shown');
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${name}: ${overflow} pixels too wide`);
  await page.screenshot({ path: `${name}.png`, fullPage: true });
  await page.close();
}
await browser.close();
assert.deepEqual(errors.filter((error) => !error.includes('favicon')), []);
console.log('browser: the page works in light, dark and narrow');
