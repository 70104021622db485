"""Siltstone: a log-structured merge key-value store whose compactions are not felt.

>>> import siltstone, tempfile
>>> with siltstone.open(tempfile.mkdtemp()) as db:
...     db[b"silt"] = b"settles"
...     db.get(b"silt"), b"sand" in db, list(db.scan(prefix=b"si"))
(b'settles', False, [(b'silt', b'settles')])

Keys and values are bytes. A :class:`Db` is read and written like a dictionary, its default family; other families are made by
:meth:`Db.create_family`. Every call that may wait for the disk lets other Python threads run meanwhile.
"""

from __future__ import annotations

import atexit as _atexit
import os as _os
import typing as _t
import weakref as _weakref

from . import _siltstone
from ._errors import (
    BusyError,
    CanceledError,
    ChangesLostError,
    ClosedError,
    ConflictError,
    CorruptionError,
    DiskFullError,
    Error,
    InvalidError,
    IoError,
    MergeRefusedError,
    NotFoundError,
    OutOfRangeError,
    PoisonedError,
    ReadOnlyError,
    UnsupportedError,
)
from ._siltstone import (
    ArrowScan,
    Batch,
    Cursor,
    Db,
    Family,
    Reader,
    Scan,
    Snapshot,
    Transaction,
    TransactionScan,
    __version__,
    check,
    destroy,
    list_backups,
    repair,
    restore,
)

__all__ = [
    "ArrowScan",
    "Batch",
    "BusyError",
    "CanceledError",
    "ChangesLostError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "Cursor",
    "Db",
    "DiskFullError",
    "Error",
    "Family",
    "InvalidError",
    "IoError",
    "MergeRefusedError",
    "NotFoundError",
    "OutOfRangeError",
    "PoisonedError",
    "ReadOnlyError",
    "Reader",
    "Scan",
    "Snapshot",
    "Transaction",
    "TransactionScan",
    "UnsupportedError",
    "__version__",
    "check",
    "destroy",
    "list_backups",
    "open",
    "repair",
    "restore",
]

_FamilyOptions = _t.Mapping[str, _t.Any]
_MergeOperator = _t.Callable[[bytes, _t.Optional[bytes], _t.List[bytes]], bytes]
_Filter = _t.Callable[[bytes, int, bytes, int], bool]

_opened: _weakref.WeakSet[Db] = _weakref.WeakSet()


def open(
    path: _t.Union[str, _os.PathLike[str]],
    *,
    read_only: bool = False,
    families: _t.Optional[_t.Mapping[str, _FamilyOptions]] = None,
    merge_operators: _t.Optional[_t.Mapping[str, _MergeOperator]] = None,
    filters: _t.Optional[_t.Mapping[str, _Filter]] = None,
    shared: _t.Union[str, _os.PathLike[str], None] = None,
    **options: _t.Any,
) -> Db:
    """Opens the database in a directory, which is made if it is not there.

    Options go by their names in the engine, such as ``memory_budget`` and ``write_memory`` in bytes,
    ``create_if_missing`` or ``sstable_reads``. ``families`` names families with their options, and makes those that are not
    there: ``{"events": {"timestamps": "explicit", "ttl": timedelta(days=30), "strategy": "size_tiered{runs=4}"}}``.

    A merge operator is called with a key, its value or None, and operands, oldest first; it returns the value, or
    raises, which is a refusal. A filter is called with a key, a timestamp, a value and the time in microseconds; it says
    whether the value is unwanted. Families name them by the options ``merge_operator`` and ``filter``. Threads of the
    engine call them too.

    A shared database lies in the directory ``shared``, whole; ``path`` is a cache of it, which may be lost, and each
    write waits until it is in ``shared``. Whoever opens it last owns it: writes of a former owner raise BusyError or
    PoisonedError.

    Raises BusyError if another process has it open, and CorruptionError, naming file and offset, if it is damaged.
    """
    if shared is not None:
        options["shared"] = shared
    db = _siltstone.open(
        path,
        read_only=read_only,
        families=None if families is None else {name: dict(said) for name, said in families.items()},
        merge_operators=None if merge_operators is None else dict(merge_operators),
        filters=None if filters is None else dict(filters),
        **options,
    )
    _opened.add(db)
    return db


@_atexit.register
def _close_all() -> None:
    # While Python ends, operators that are written in it cannot be called any more.
    for db in list(_opened):
        try:
            db.close()
        except Error:
            pass
    _siltstone._ends()
