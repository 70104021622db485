"""Siltstone for asyncio: its most used calls, awaited.

>>> import asyncio, tempfile
>>> from siltstone import aio
>>> async def main():
...     async with await aio.open(tempfile.mkdtemp()) as db:
...         await db.put(b"silt", b"settles")
...         return await db.get(b"silt"), [key async for key, _ in db.scan()]
>>> asyncio.run(main())
(b'settles', [b'silt'])

Each call runs in a thread of its own pool, as the engine's calls may wait for the disk. One event loop can have as many
calls under way as the pool has threads (``open(..., threads=8)``).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import typing as _t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import TracebackType

import siltstone as _sync

__all__ = ["Db", "Family", "Reader", "Snapshot", "open"]

_T = _t.TypeVar("_T")
_Item = _t.Tuple[bytes, bytes]
_Time = _t.Union[int, datetime]
_Times = _t.Tuple[_t.Optional[_Time], _t.Optional[_Time]]
_ROWS = 1024


class _Pool(ThreadPoolExecutor):
    is_closed = False


def _taken(scan: _t.Iterator[_T]) -> list[_T]:
    rows: list[_T] = []
    for row in scan:
        rows.append(row)
        if len(rows) == _ROWS:
            break
    return rows


class Reader:
    """See :class:`siltstone.Reader`."""

    def __init__(self, inner: _sync.Reader, pool: _Pool) -> None:
        self._inner = inner
        self._pool = pool

    async def _run(self, call: _t.Callable[..., _T], *args: _t.Any, **named: _t.Any) -> _T:
        if self._pool.is_closed:
            raise _sync.ClosedError("the database is closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(call, *args, **named))

    async def get(self, key: bytes, default: _t.Optional[bytes] = None) -> _t.Optional[bytes]:
        return await self._run(self._inner.get, key, default)

    async def get_many(self, keys: _t.Sequence[bytes]) -> list[_t.Optional[bytes]]:
        return await self._run(self._inner.get_many, keys)

    async def versions(
        self, key: bytes, limit: _t.Optional[int] = None, *, times: _t.Optional[_Times] = None
    ) -> list[tuple[int, bytes]]:
        return await self._run(self._inner.versions, key, limit, times=times)

    async def first(self) -> _t.Optional[_Item]:
        return await self._run(self._inner.first)

    async def last(self) -> _t.Optional[_Item]:
        return await self._run(self._inner.last)

    async def scan(
        self,
        start: _t.Optional[bytes] = None,
        stop: _t.Optional[bytes] = None,
        *,
        prefix: _t.Optional[bytes] = None,
        reverse: bool = False,
        times: _t.Optional[_Times] = None,
    ) -> _t.AsyncIterator[_Item]:
        """The entries of a range, 1,024 at a time from the pool."""
        scan = await self._run(self._inner.scan, start, stop, prefix=prefix, reverse=reverse, times=times)
        try:
            while rows := await self._run(_taken, scan):
                for row in rows:
                    yield row
        finally:
            # Of a step that was cancelled the thread may still hold it: then it goes with that.
            with contextlib.suppress(RuntimeError):
                scan.close()


class Family(Reader):
    """See :class:`siltstone.Family`."""

    def __init__(self, inner: _sync.Family, pool: _Pool) -> None:
        super().__init__(inner, pool)
        self._family = inner

    async def put(
        self, key: bytes, value: bytes, *, timestamp: _t.Optional[_Time] = None, sync: bool = False
    ) -> None:
        await self._run(self._family.put, key, value, timestamp=timestamp, sync=sync)

    async def delete(
        self, key: bytes, *, timestamp: _t.Optional[_Time] = None, sync: bool = False
    ) -> None:
        await self._run(self._family.delete, key, timestamp=timestamp, sync=sync)

    async def merge(
        self, key: bytes, operand: bytes, *, timestamp: _t.Optional[_Time] = None, sync: bool = False
    ) -> None:
        await self._run(self._family.merge, key, operand, timestamp=timestamp, sync=sync)

    async def delete_range(
        self,
        start: _t.Optional[bytes] = None,
        stop: _t.Optional[bytes] = None,
        *,
        prefix: _t.Optional[bytes] = None,
        sync: bool = False,
    ) -> None:
        await self._run(self._family.delete_range, start, stop, prefix=prefix, sync=sync)

    async def put_many(self, keys: _t.Any, values: _t.Any = None, *, sync: bool = False) -> int:
        return await self._run(self._family.put_many, keys, values, sync=sync)

    async def update(
        self, items: _t.Union[_t.Mapping[bytes, bytes], _t.Iterable[_Item]], *, sync: bool = False
    ) -> None:
        await self._run(self._family.update, items, sync=sync)

    def batch(self, *, sync: bool = False) -> Batch:
        return Batch(self._family.batch(sync=sync), self._pool)

    async def flush(self) -> None:
        await self._run(self._family.flush)

    async def compact(
        self,
        start: _t.Optional[bytes] = None,
        stop: _t.Optional[bytes] = None,
        *,
        prefix: _t.Optional[bytes] = None,
        rewrite: bool = False,
    ) -> None:
        await self._run(self._family.compact, start, stop, prefix=prefix, rewrite=rewrite)


class Batch:
    """Writes that become true together, when the block ends: see :class:`siltstone.Batch`."""

    def __init__(self, inner: _sync.Batch, pool: _Pool) -> None:
        self._inner = inner
        self._pool = pool

    def put(self, key: bytes, value: bytes) -> None:
        self._inner.put(key, value)

    def delete(self, key: bytes) -> None:
        self._inner.delete(key)

    def merge(self, key: bytes, operand: bytes) -> None:
        self._inner.merge(key, operand)

    async def write(self) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._inner.write)

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(
        self,
        kind: _t.Optional[type[BaseException]],
        error: _t.Optional[BaseException],
        traceback: _t.Optional[TracebackType],
    ) -> None:
        if kind is None:
            await self.write()
        else:
            with contextlib.suppress(RuntimeError):
                self._inner.clear()


class Snapshot(Reader):
    """See :class:`siltstone.Snapshot`."""

    def __init__(self, inner: _sync.Snapshot, pool: _Pool) -> None:
        super().__init__(inner, pool)
        self._snapshot = inner

    async def __aenter__(self) -> Snapshot:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._snapshot.close()


class Db(Family):
    """See :class:`siltstone.Db`."""

    def __init__(self, inner: _sync.Db, pool: _Pool) -> None:
        super().__init__(inner, pool)
        self._db = inner

    async def family(self, name: str) -> Family:
        return Family(await self._run(self._db.family, name), self._pool)

    async def create_family(self, name: str, **options: _t.Any) -> Family:
        return Family(await self._run(self._db.create_family, name, **options), self._pool)

    def snapshot(self) -> Snapshot:
        return Snapshot(self._db.snapshot(), self._pool)

    async def transact(
        self, work: _t.Callable[[_sync.Transaction], _T], *, retries: int = 100, sync: bool = False
    ) -> _T:
        """Runs ``work``, which is an ordinary function, in the pool, again while others write to what it read."""
        return await self._run(self._db.transact, work, retries=retries, sync=sync)

    async def backup(self, directory: str) -> dict[str, _t.Any]:
        return await self._run(self._db.backup, directory)

    async def sync(self) -> None:
        await self._run(self._db.sync)

    async def wait_idle(self) -> None:
        await self._run(self._db.wait_idle)

    async def stats(self) -> dict[str, _t.Any]:
        return await self._run(self._db.stats)

    async def close(self) -> None:
        """May be called again. Calls that come later raise ClosedError."""
        if not self._pool.is_closed:
            self._pool.is_closed = True
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._db.close)
            finally:
                self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Db:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()


async def open(path: _t.Any, *, threads: int = 4, **named: _t.Any) -> Db:
    """:func:`siltstone.open`, with a pool of so many threads for the calls."""
    pool = _Pool(threads, thread_name_prefix="siltstone")
    try:
        inner = await asyncio.get_running_loop().run_in_executor(pool, functools.partial(_sync.open, path, **named))
    except BaseException:
        pool.shutdown(wait=False)
        raise
    return Db(inner, pool)
