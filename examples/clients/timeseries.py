# A time series whose values go by themselves: see docs/walkthrough.md. Run as hello.py is.
import datetime, struct, time
from google.cloud import bigtable
from google.cloud.bigtable.column_family import MaxAgeGCRule
from google.cloud.bigtable.row_set import RowSet

LIVES = datetime.timedelta(seconds=3)  # a month or a year in earnest
table = bigtable.Client("local", admin=True).instance("demo").table("measured")
if table.exists():
    table.delete()
table.create(column_families={"v": MaxAgeGCRule(LIVES)})


def row_key(sensor, at):
    """The newest value of a sensor comes first: its rows are in the order of the time that is left until the year 2255."""
    return sensor.encode() + b"#" + struct.pack(">Q", 9_000_000_000_000_000 - int(at.timestamp() * 1_000_000))


def write(sensor, values):
    rows = []
    for value in values:
        at = datetime.datetime.now(datetime.timezone.utc)
        row = table.direct_row(row_key(sensor, at))
        row.set_cell("v", b"celsius", struct.pack(">d", value), timestamp=at)
        rows.append(row)
    assert all(status.code == 0 for status in table.mutate_rows(rows))


def newest(sensor, count):
    rows = RowSet()
    rows.add_row_range_with_prefix(sensor + "#")
    found = table.read_rows(row_set=rows, limit=count)
    return [struct.unpack(">d", row.cells["v"][b"celsius"][0].value)[0] for row in found]


write("kitchen", [20.5, 20.7, 21.0])
write("cellar", [11.0])
print("kitchen:", newest("kitchen", 2))
assert newest("kitchen", 2) == [21.0, 20.7] and newest("cellar", 9) == [11.0]
time.sleep(LIVES.total_seconds() + 0.5)
write("cellar", [11.5])
print("later, kitchen:", newest("kitchen", 9), "cellar:", newest("cellar", 9))
assert newest("kitchen", 9) == [] and newest("cellar", 9) == [11.5]
