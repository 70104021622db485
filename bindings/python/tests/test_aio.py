from __future__ import annotations

import asyncio
import pathlib
import time

import pytest

import siltstone
from siltstone import aio


def test_the_same_calls_awaited(place: pathlib.Path) -> None:
    async def main() -> None:
        async with await aio.open(place, threads=3) as db:
            await asyncio.gather(*(db.put(b"%04d" % n, b"%d" % n) for n in range(3000)))
            assert await db.get(b"0007") == b"7" and await db.get(b"x", b"y") == b"y"
            assert [key async for key, _ in db.scan(b"0100", b"2900")] == [b"%04d" % n for n in range(100, 2900)]
            async with db.batch() as batch:
                batch.put(b"x", b"1")
                batch.delete(b"0007")
            assert await db.get_many([b"x", b"0007"]) == [b"1", None]
            async with db.snapshot() as then:
                await db.delete_range(prefix=b"0")
                assert len([item async for item in then.scan()]) == 3000
            family = await db.create_family("f", timestamps="explicit")
            await family.put_many([b"a"], [b"b"])
            assert [value for _, value in await (await db.family("f")).versions(b"a")] == [b"b"]

            def add(txn: siltstone.Transaction) -> None:
                txn[b"x"] = b"%d" % (int(txn[b"x"]) + 1)

            await asyncio.gather(*(db.transact(add) for _ in range(20)))
            assert await db.get(b"x") == b"21"
            await db.update({b"y": b"2"}, sync=True)
            await db.flush()
            assert (await db.stats())["writes"] > 3000
            async for _ in db.scan():
                break
        await db.close()
        with pytest.raises(siltstone.ClosedError):
            await db.get(b"x")

    asyncio.run(main())


def test_a_scan_that_takes_too_long_is_cancelled(place: pathlib.Path) -> None:
    async def main() -> None:
        async with await aio.open(place, filters={"slow": slow}, families={"default": {"compaction_filter": "slow"}}) as db:
            await db.put_many([b"%04d" % n for n in range(2000)], [b""] * 2000)

            async def read() -> None:
                async for _ in db.scan():
                    pass

            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(read(), 0.05)

    def slow(key: bytes, timestamp: int, value: bytes, now: int) -> bool:
        time.sleep(0.001)
        return False

    asyncio.run(main())
