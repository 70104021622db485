"""Reads packages that the demonstration loaded, writes them into a table of its own, reads them back and compares; then what
else the Python clients do: the classic one and the data client. BIGTABLE_EMULATOR_HOST says where the server is."""

import asyncio
import datetime
import random
import warnings

warnings.filterwarnings("ignore")

from google.cloud import bigtable
from google.cloud.bigtable import column_family, row_filters
from google.cloud.bigtable.data import BigtableDataClientAsync, ReadRowsQuery, RowMutationEntry, SetCell
from google.cloud.bigtable.row_set import RowSet

client = bigtable.Client(project="local", admin=True)
instance = client.instance("demo")
packages, own = instance.table("packages"), instance.table("python")

if own.exists():
    own.delete()
day = datetime.timedelta(days=1)
both = column_family.GCRuleIntersection([column_family.MaxVersionsGCRule(2), column_family.MaxAgeGCRule(day)])
own.create(column_families={"about": column_family.MaxVersionsGCRule(2), "depends": both})
assert set(own.list_column_families()) == {"about", "depends"}

rows = list(packages.read_rows(start_key=b"lib", limit=2000))
assert len(rows) > 100, len(rows)
batch = []
for row in rows:
    copy = own.direct_row(row.row_key)
    for family in ("about", "depends"):
        for column, cells in row.cells.get(family, {}).items():
            # All of them: a package may depend on another twice, in the same millisecond or not.
            for cell in cells:
                copy.set_cell(family, column, cell.value, timestamp=cell.timestamp)
    batch.append(copy)
assert {status.code for status in own.mutate_rows(batch)} == {0}
back = list(own.read_rows())
assert [row.row_key for row in back] == [row.row_key for row in rows]
for row, other in zip(back, rows):
    for family in ("about", "depends"):
        assert row.cells.get(family) == other.cells.get(family), row.row_key

some = RowSet()
some.add_row_key(rows[5].row_key)
some.add_row_range_from_keys(rows[50].row_key, rows[60].row_key)
assert [row.row_key for row in own.read_rows(row_set=some)] == [r.row_key for r in [rows[5], *rows[50:60]]]
versions = row_filters.RowFilterChain([
    row_filters.FamilyNameRegexFilter("about"),
    row_filters.ColumnQualifierRegexFilter(b"Version"),
    row_filters.CellsColumnLimitFilter(1),
])
assert all(list(row.cells) == ["about"] for row in own.read_rows(filter_=versions))

counter = own.append_row(b"counter")
counter.increment_cell_value("about", b"n", 5)
counter.append_cell_value("about", b"s", b"ab")
assert counter.commit()["about"][b"n"][0][0] == (5).to_bytes(8, "big")
check = own.conditional_row(b"counter", row_filters.ValueRegexFilter(b"ab"))
check.set_cell("about", b"hit", b"1", state=True)
check.set_cell("about", b"miss", b"1", state=False)
assert check.commit() is True
assert b"hit" in own.read_row(b"counter").cells["about"]
gone = own.direct_row(b"counter")
gone.delete()
gone.commit()
assert own.read_row(b"counter") is None
assert list(own.sample_row_keys())[-1].row_key == b""

# Rows of some sizes, of few cells and of many, each between two small ones: by a scan, and alone.
chance = random.Random(7)
for cells, mib in [(10, 1), (10, 5), (10, 20), (10, 64), (30_000, 1), (30_000, 5), (30_000, 20)]:
    name = b"large %d %d " % (cells, mib)
    written = {b"%05d" % n: chance.randbytes((mib << 20) // cells) for n in range(cells)}
    ends = {b"a": {b"n": b"small"}, b"b": written, b"c": {b"n": b"small"}}
    batch = []
    for end, columns in ends.items():
        row = own.direct_row(name + end)
        for column, value in columns.items():
            row.set_cell("about", column, value)
        batch.append(row)
    assert {status.code for status in own.mutate_rows(batch)} == {0}, name
    found = [own.read_row(name + b"b"), *own.read_rows(start_key=name, end_key=name + b"z")]
    assert [row.row_key for row in found] == [name + end for end in (b"b", *ends)], name
    for row in found:
        back = {column: [cell.value for cell in versions] for column, versions in row.cells["about"].items()}
        expected = ends[row.row_key[len(name):]]
        assert back == {column: [value] for column, value in expected.items()}, row.row_key
own.drop_by_prefix("large")


async def with_data_client():
    async with BigtableDataClientAsync(project="local") as data:
        async with data.get_table("demo", "python") as table:
            async with table.mutations_batcher() as batcher:
                for n in range(500):
                    await batcher.append(RowMutationEntry(f"async{n:03}", SetCell("about", b"n", n)))
            found = await table.read_rows(ReadRowsQuery(row_ranges=None, limit=None))
            return sum(row.row_key.startswith(b"async") for row in found)


assert asyncio.run(with_data_client()) == 500
own.drop_by_prefix("async")
assert len(list(own.read_rows())) == len(rows)
own.delete()
print(f"python: {len(rows)} rows written and read back")
