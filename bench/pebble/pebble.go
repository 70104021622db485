// Pebble as a library of C functions, for siltstone-bench to measure beside other stores.
//
// A call from C into Go costs some 50 ns; whoever counts those against Pebble may use it from Go. So each function
// does as much as its caller needs at once: a get copies the value out, a step of a scan many entries. All return a
// count, or FAILED, with the reason in the buffer; a count over the buffer's size means that nothing was copied.
package main

// #include <stdint.h>
import "C"

import (
	"context"
	"encoding/binary"
	"io"
	"log"
	"runtime/cgo"
	"time"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

const (
	failed  = -1
	missing = -2
	// A store is settled when nothing was seen to run for so long: a flush that ends can start a compaction.
	quiet = 20
	poll  = 10 * time.Millisecond
)

type store struct {
	db    *pebble.DB
	write *pebble.WriteOptions
}

func bytes(from *C.uint8_t, count C.int64_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(from)), int(count))
}

func fail(err error, out *C.uint8_t, room C.int64_t) C.int64_t {
	count := copy(bytes(out, room), err.Error())
	if int64(count) < int64(room) {
		bytes(out, room)[count] = 0
	}
	return failed
}

func done(err error, out *C.uint8_t, room C.int64_t) C.int64_t {
	if err != nil {
		return fail(err, out, room)
	}
	return 0
}

func of(handle C.uintptr_t) *store { return cgo.Handle(handle).Value().(*store) }

//export pebble_open
func pebble_open(dir *C.uint8_t, dirBytes, memtable, cache, sync C.int64_t, handle *C.uintptr_t,
	out *C.uint8_t, room C.int64_t) C.int64_t {
	options := &pebble.Options{
		CacheSize:    int64(cache),
		MemTableSize: uint64(memtable),
		Logger:       quietly{},
	}
	// What its own benchmark and CockroachDB set beside the defaults.
	options.EnsureDefaults()
	for level := range options.Levels {
		options.Levels[level].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(string(bytes(dir, dirBytes)), options)
	if err != nil {
		return fail(err, out, room)
	}
	write := pebble.NoSync
	if sync != 0 {
		write = pebble.Sync
	}
	*handle = C.uintptr_t(cgo.NewHandle(&store{db, write}))
	return 0
}

// It says what it recovers, and ends the process where it cannot go on.
type quietly struct{}

func (quietly) Infof(string, ...interface{})              {}
func (quietly) Errorf(format string, args ...interface{}) { log.Printf(format, args...) }
func (quietly) Fatalf(format string, args ...interface{}) { log.Fatalf(format, args...) }

//export pebble_close
func pebble_close(handle C.uintptr_t) {
	_ = of(handle).db.Close()
	cgo.Handle(handle).Delete()
}

//export pebble_put
func pebble_put(handle C.uintptr_t, key *C.uint8_t, keyBytes C.int64_t, value *C.uint8_t, valueBytes C.int64_t,
	out *C.uint8_t, room C.int64_t) C.int64_t {
	to := of(handle)
	return done(to.db.Set(bytes(key, keyBytes), bytes(value, valueBytes), to.write), out, room)
}

//export pebble_delete
func pebble_delete(handle C.uintptr_t, key *C.uint8_t, keyBytes C.int64_t, out *C.uint8_t, room C.int64_t) C.int64_t {
	to := of(handle)
	return done(to.db.Delete(bytes(key, keyBytes), to.write), out, room)
}

// Entries one behind the other: lengths of key and value, four bytes each, then both.
//
//export pebble_put_many
func pebble_put_many(handle C.uintptr_t, entries *C.uint8_t, count C.int64_t, out *C.uint8_t, room C.int64_t) C.int64_t {
	to := of(handle)
	batch := to.db.NewBatch()
	defer batch.Close()
	for rest := bytes(entries, count); len(rest) > 0; {
		key, value := binary.LittleEndian.Uint32(rest), binary.LittleEndian.Uint32(rest[4:])
		rest = rest[8:]
		if err := batch.Set(rest[:key], rest[key:key+value], nil); err != nil {
			return fail(err, out, room)
		}
		rest = rest[key+value:]
	}
	return done(batch.Commit(to.write), out, room)
}

//export pebble_get
func pebble_get(handle C.uintptr_t, key *C.uint8_t, keyBytes C.int64_t, out *C.uint8_t, room C.int64_t) C.int64_t {
	value, closer, err := of(handle).db.Get(bytes(key, keyBytes))
	if err == pebble.ErrNotFound {
		return missing
	}
	if err != nil {
		return fail(err, out, room)
	}
	defer func(closer io.Closer) { _ = closer.Close() }(closer)
	if len(value) <= int(room) {
		copy(bytes(out, room), value)
	}
	return C.int64_t(len(value))
}

//export pebble_scan
func pebble_scan(handle C.uintptr_t, from *C.uint8_t, fromBytes C.int64_t, iterator *C.uintptr_t,
	out *C.uint8_t, room C.int64_t) C.int64_t {
	found, err := of(handle).db.NewIter(nil)
	if err != nil {
		return fail(err, out, room)
	}
	found.SeekGE(bytes(from, fromBytes))
	*iterator = C.uintptr_t(cgo.NewHandle(found))
	return 0
}

// Up to so many entries, as pebble_put_many takes them; how many bytes they have, 0 at the end. An entry that alone is
// larger than the buffer is told by its size.
//
//export pebble_next
func pebble_next(iterator C.uintptr_t, most C.int64_t, out *C.uint8_t, room C.int64_t) C.int64_t {
	from := cgo.Handle(iterator).Value().(*pebble.Iterator)
	into, used := bytes(out, room), 0
	for ; most > 0 && from.Valid(); most-- {
		key, value := from.Key(), from.Value()
		needed := 8 + len(key) + len(value)
		if used+needed > len(into) {
			if used == 0 {
				used = needed
			}
			break
		}
		binary.LittleEndian.PutUint32(into[used:], uint32(len(key)))
		binary.LittleEndian.PutUint32(into[used+4:], uint32(len(value)))
		copy(into[used+8:], key)
		copy(into[used+8+len(key):], value)
		used += needed
		from.Next()
	}
	if err := from.Error(); err != nil {
		return fail(err, out, room)
	}
	return C.int64_t(used)
}

//export pebble_end
func pebble_end(iterator C.uintptr_t) {
	_ = cgo.Handle(iterator).Value().(*pebble.Iterator).Close()
	cgo.Handle(iterator).Delete()
}

//export pebble_settle
func pebble_settle(handle C.uintptr_t, out *C.uint8_t, room C.int64_t) C.int64_t {
	db := of(handle).db
	if err := db.Flush(); err != nil {
		return fail(err, out, room)
	}
	for still, ended := 0, int64(-1); still < quiet; time.Sleep(poll) {
		metrics := db.Metrics()
		busy := metrics.Compact.NumInProgress > 0 || metrics.Flush.NumInProgress > 0 || metrics.Compact.Count != ended
		ended = metrics.Compact.Count
		still++
		if busy {
			still = 0
		}
	}
	return 0
}

//export pebble_major
func pebble_major(handle C.uintptr_t, out *C.uint8_t, room C.int64_t) C.int64_t {
	db := of(handle).db
	last, err := db.NewIter(nil)
	if err != nil {
		return fail(err, out, room)
	}
	defer last.Close()
	if !last.Last() {
		return 0
	}
	end := append(append([]byte(nil), last.Key()...), 0)
	return done(db.Compact(context.Background(), []byte{}, end, true), out, room)
}

// Bytes flushed, compacted and logged; flushes and compactions; hits and misses of the cache; compactions that run.
//
//export pebble_numbers
func pebble_numbers(handle C.uintptr_t, into *C.uint64_t) {
	metrics := of(handle).db.Metrics()
	numbers := unsafe.Slice((*uint64)(unsafe.Pointer(into)), 8)
	var compacted uint64
	for _, level := range metrics.Levels {
		compacted += level.TableBytesCompacted
	}
	copy(numbers, []uint64{
		metrics.Levels[0].TableBytesFlushed, compacted, metrics.WAL.BytesWritten,
		uint64(metrics.Flush.Count), uint64(metrics.Compact.Count - metrics.Compact.MoveCount),
		uint64(metrics.BlockCache.Hits), uint64(metrics.BlockCache.Misses), uint64(metrics.Compact.NumInProgress),
	})
}

func main() {}
