// A tour of Siltstone from Go, by cgo. Run it against an installed library:
//
//	go run . DIR
package main

/*
#cgo pkg-config: siltstone
#include <siltstone.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// taken makes a Go error of the library's, and frees that.
func taken(err *C.siltstone_error) error {
	if err == nil {
		return nil
	}
	defer C.siltstone_error_free(&err)
	return errors.New(C.GoString(C.siltstone_error_message(err)))
}

// slice lends bytes to C for one call; the pinner keeps them where they are.
func slice(pinner *runtime.Pinner, bytes []byte) C.siltstone_slice {
	if len(bytes) == 0 {
		return C.siltstone_slice{}
	}
	pinner.Pin(&bytes[0])
	return C.siltstone_slice{data: (*C.uint8_t)(unsafe.Pointer(&bytes[0])), len: C.size_t(len(bytes))}
}

// bytes copies what C lends.
func bytes(of C.siltstone_slice) []byte {
	return C.GoBytes(unsafe.Pointer(of.data), C.int(of.len))
}

// Store is a database's default family.
type Store struct {
	db     *C.siltstone_db
	family *C.siltstone_family
}

func Open(dir string) (*Store, error) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	var store Store
	if err := taken(C.siltstone_open(path, nil, &store.db)); err != nil {
		return nil, err
	}
	if err := taken(C.siltstone_family_open(store.db, nil, &store.family)); err != nil {
		C.siltstone_db_free(&store.db)
		return nil, err
	}
	return &store, nil
}

func (s *Store) Close() error {
	err := taken(C.siltstone_close(s.db))
	C.siltstone_family_free(&s.family)
	C.siltstone_db_free(&s.db)
	return err
}

func (s *Store) Put(key, value []byte) error {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	return taken(C.siltstone_put(s.family, slice(&pinner, key), slice(&pinner, value), C.SILTSTONE_BUFFERED))
}

// Get answers nil where the key is not there.
func (s *Store) Get(key []byte) ([]byte, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	var value C.siltstone_value
	if err := taken(C.siltstone_get(s.family, nil, slice(&pinner, key), &value)); err != nil || value.data == nil {
		return nil, err
	}
	defer C.siltstone_value_free(&value)
	return C.GoBytes(unsafe.Pointer(value.data), C.int(value.len)), nil
}

// Each calls a function with each key and value, in order.
func (s *Store) Each(do func(key, value []byte)) error {
	var iterator *C.siltstone_iterator
	if err := taken(C.siltstone_scan(s.family, nil, nil, &iterator)); err != nil {
		return err
	}
	defer C.siltstone_iterator_free(&iterator)
	var entry *C.siltstone_entry
	err := taken(C.siltstone_iterator_first(iterator, &entry))
	for err == nil && entry != nil {
		do(bytes(entry.key), bytes(entry.value))
		err = taken(C.siltstone_iterator_next(iterator, &entry))
	}
	return err
}

func run(dir string) error {
	store, err := Open(dir)
	if err != nil {
		return err
	}
	for i, key := range []string{"ant", "bee", "cat"} {
		if err := store.Put([]byte(key), []byte(fmt.Sprint(i+1))); err != nil {
			return err
		}
	}
	value, err := store.Get([]byte("bee"))
	if err != nil {
		return err
	}
	fmt.Printf("bee is %s\n", value)
	if err := store.Each(func(key, value []byte) { fmt.Printf("%s = %s\n", key, value) }); err != nil {
		return err
	}
	return store.Close()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: tour DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

// Prints:
//     bee is 2
//     ant = 1
//     bee = 2
//     cat = 3
