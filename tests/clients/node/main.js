// Reads packages that the demonstration loaded, writes them into a table of its own, reads them back and compares; then what
// else the Node client does. BIGTABLE_EMULATOR_HOST says where the server is.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { Bigtable } from '@google-cloud/bigtable';

const bigtable = new Bigtable({ projectId: 'local' });
const instance = bigtable.instance('demo');
const packages = instance.table('packages');
const own = instance.table('node');

if ((await own.exists())[0]) await own.delete();
await own.create({ families: [{ name: 'about', rule: { versions: 2 } }] });
const [rows] = await packages.getRows({ start: 'lib', limit: 2000, filter: [{ family: 'about' }] });
assert.ok(rows.length > 100, `${rows.length} rows`);
const entries = rows.map((row) => ({
  key: row.id,
  data: {
    about: Object.fromEntries(
      Object.entries(row.data.about).map(([column, cells]) => [
        column,
        { value: cells[0].value, timestamp: cells[0].timestamp },
      ]),
    ),
  },
}));
await own.insert(entries);
const [back] = await own.getRows();
assert.equal(back.length, rows.length);
back.forEach((row, at) => {
  assert.equal(row.id, rows[at].id);
  assert.deepEqual(row.data, rows[at].data);
});

const counter = own.row('counter');
await counter.increment('about:n', 2);
await counter.increment('about:n', 3);
assert.equal((await counter.get())[0].data.about.n[0].value, 5);
const [matched] = await counter.filter([{ column: 'n' }], {
  onMatch: [{ method: 'insert', data: { about: { hit: 'yes' } } }],
  onNoMatch: [{ method: 'insert', data: { about: { miss: 'yes' } } }],
});
assert.equal(matched, true);
assert.equal((await counter.get())[0].data.about.hit[0].value, 'yes');
await counter.deleteCells(['about:hit']);
assert.equal((await counter.get())[0].data.about.hit, undefined);
await counter.delete();
assert.equal((await counter.exists())[0], false);

// Rows of some sizes, of few cells and of many, each between two small ones: by a scan, and alone.
const sizes = [[10, 1], [10, 5], [10, 20], [10, 64], [30_000, 1], [30_000, 5], [30_000, 20]];
for (const [cells, mib] of sizes) {
  const name = `large ${cells} ${mib} `;
  const size = Math.floor((mib << 20) / cells);
  const column = (n) => `c${String(n).padStart(5, '0')}`;
  const written = Array.from({ length: cells }, () => randomBytes(size).toString('base64').slice(0, size));
  const about = Object.fromEntries(written.map((value, n) => [column(n), value]));
  await own.insert([
    { key: `${name}a`, data: { about: { n: 'small' } } },
    { key: `${name}b`, data: { about } },
    { key: `${name}c`, data: { about: { n: 'small' } } },
  ]);
  const [found] = await own.getRows({ prefix: name });
  assert.deepEqual(found.map((row) => row.id), [`${name}a`, `${name}b`, `${name}c`]);
  for (const row of [found[0], found[2]]) assert.equal(row.data.about.n[0].value, 'small');
  for (const row of [found[1], (await own.row(`${name}b`).get())[0]]) {
    const columns = Object.entries(row.data.about);
    assert.equal(columns.length, cells, name);
    columns.forEach(([found, versions], n) => {
      // Without a text of the whole value where it differs.
      assert.ok(found === column(n) && versions.length === 1 && versions[0].value === written[n], `${name}${found}`);
    });
  }
}

await own.deleteRows('lib');
const [left] = await own.getRows({ prefix: 'lib' });
assert.equal(left.length, 0);
await own.delete();
console.log(`node: ${rows.length} rows written and read back`);
await bigtable.close?.();
process.exit(0);
