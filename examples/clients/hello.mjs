// npm install @google-cloud/bigtable; export BIGTABLE_EMULATOR_HOST=127.0.0.1:8086; node hello.mjs
import { Bigtable } from '@google-cloud/bigtable';

const table = new Bigtable({ projectId: 'local' }).instance('demo').table('hello-node');
if (!(await table.exists())[0]) await table.create({ families: ['said'] });
await table.insert({ key: 'greeting', data: { said: { word: 'hello' } } });
const [row] = await table.row('greeting').get();
console.log(row.data.said.word[0].value);
