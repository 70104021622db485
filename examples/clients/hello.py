# pip install google-cloud-bigtable; export BIGTABLE_EMULATOR_HOST=127.0.0.1:8086; python3 hello.py
from google.cloud import bigtable

table = bigtable.Client("local", admin=True).instance("demo").table("hello-python")
if not table.exists():
    table.create(column_families={"said": None})
row = table.direct_row(b"greeting")
row.set_cell("said", b"word", b"hello")
assert row.commit().code == 0  # it returns a status, and raises nothing
print(table.read_row(b"greeting").cells["said"][b"word"][0].value.decode())
