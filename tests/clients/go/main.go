// Reads packages that the demonstration loaded, writes them into a table of its own, reads them back and compares; then what
// else the Go client does. BIGTABLE_EMULATOR_HOST says where the server is.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math/rand"
	"os"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func check(holds bool, what string, args ...any) {
	if !holds {
		log.Fatalf(what, args...)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func ok(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// large writes rows of some sizes, of few cells and of many, each between two small ones, and compares what a scan gives and what
// a read of the row alone gives.
func large(ctx context.Context, own *bigtable.Table) {
	random := rand.New(rand.NewSource(7))
	small := bigtable.NewMutation()
	small.Set("about", "n", 1000, []byte("small"))
	for _, cells := range []int{10, 30_000} {
		for _, mib := range []int{1, 5, 20, 64} {
			name := fmt.Sprintf("large %d %d ", cells, mib)
			values, mutation := make([][]byte, cells), bigtable.NewMutation()
			for i := range values {
				values[i] = make([]byte, (mib<<20)/cells)
				random.Read(values[i])
				mutation.Set("about", fmt.Sprintf("%05d", i), 1000, values[i])
			}
			ok(own.Apply(ctx, name+"a", small))
			ok(own.Apply(ctx, name+"b", mutation))
			ok(own.Apply(ctx, name+"c", small))
			compare := func(row bigtable.Row) {
				items := row["about"]
				check(len(items) == cells, "%s: %d cells come back", name, len(items))
				for i, item := range items {
					same := item.Column == fmt.Sprintf("about:%05d", i) && bytes.Equal(item.Value, values[i])
					check(same, "%s: cell %d differs", name, i)
				}
			}
			compare(must(own.ReadRow(ctx, name+"b")))
			ends := ""
			ok(own.ReadRows(ctx, bigtable.PrefixRange(name), func(row bigtable.Row) bool {
				end := row.Key()[len(name):]
				if ends += end; end == "b" {
					compare(row)
				} else {
					items := row["about"]
					check(len(items) == 1 && string(items[0].Value) == "small", "%s%s differs", name, end)
				}
				return true
			}))
			check(ends == "abc", "%s: the rows %s come back", name, ends)
		}
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	admin := must(bigtable.NewAdminClient(ctx, "local", "demo"))
	client := must(bigtable.NewClient(ctx, "local", "demo"))
	// For an emulator the client takes messages of 4 MiB, for the service of 256 MiB.
	messages := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256 << 20))
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection := must(grpc.NewClient(os.Getenv("BIGTABLE_EMULATOR_HOST"), messages, plain))
	wide := must(bigtable.NewClient(ctx, "local", "demo", option.WithGRPCConn(connection)))
	const name = "go"
	_ = admin.DeleteTable(ctx, name)
	ok(admin.CreateTable(ctx, name))
	ok(admin.CreateColumnFamily(ctx, name, "about"))
	ok(admin.SetGCPolicy(ctx, name, "about", bigtable.MaxVersionsPolicy(2)))
	info := must(admin.TableInfo(ctx, name))
	check(len(info.FamilyInfos) == 1, "families: %v", info.FamilyInfos)

	packages, own := client.Open("packages"), client.Open(name)
	var rows []bigtable.Row
	about := bigtable.RowFilter(bigtable.FamilyFilter("about"))
	ok(packages.ReadRows(ctx, bigtable.InfiniteRange("lib"), func(row bigtable.Row) bool {
		rows = append(rows, row)
		return true
	}, about, bigtable.LimitRows(2000)))
	check(len(rows) > 100, "%d rows", len(rows))
	var keys []string
	var mutations []*bigtable.Mutation
	for _, row := range rows {
		mutation := bigtable.NewMutation()
		for _, item := range row["about"] {
			mutation.Set("about", item.Column[len("about:"):], item.Timestamp, item.Value)
		}
		keys, mutations = append(keys, row.Key()), append(mutations, mutation)
	}
	for _, err := range must(own.ApplyBulk(ctx, keys, mutations)) {
		ok(err)
	}
	at := 0
	ok(own.ReadRows(ctx, bigtable.InfiniteRange(""), func(row bigtable.Row) bool {
		check(row.Key() == rows[at].Key() && len(row["about"]) == len(rows[at]["about"]), "row %s differs", row.Key())
		for i, item := range row["about"] {
			check(bytes.Equal(item.Value, rows[at]["about"][i].Value), "a value of row %s differs", row.Key())
		}
		at++
		return true
	}))
	check(at == len(rows), "%d rows of %d came back", at, len(rows))

	increment := bigtable.NewReadModifyWrite()
	increment.Increment("about", "n", 3)
	must(own.ApplyReadModifyWrite(ctx, "counter", increment))
	row := must(own.ApplyReadModifyWrite(ctx, "counter", increment))
	check(row["about"][0].Value[7] == 6, "increment: %v", row)
	then, otherwise := bigtable.NewMutation(), bigtable.NewMutation()
	then.Set("about", "is", bigtable.Now(), []byte("1"))
	otherwise.Set("about", "not", bigtable.Now(), []byte("1"))
	var matched bool
	condition := bigtable.NewCondMutation(bigtable.ColumnFilter("n"), then, otherwise)
	ok(own.Apply(ctx, "counter", condition, bigtable.GetCondMutationResult(&matched)))
	check(matched, "the condition holds")
	chain := bigtable.ChainFilters(bigtable.ColumnFilter("is|n"), bigtable.LatestNFilter(1))
	row = must(own.ReadRow(ctx, "counter", bigtable.RowFilter(chain)))
	check(len(row["about"]) == 2, "filtered: %v", row)
	samples := must(own.SampleRowKeys(ctx))
	check(len(samples) == 0 || samples[0] != "", "samples: %v", samples)
	reversed := ""
	ok(own.ReadRows(ctx, bigtable.InfiniteRange(""), func(row bigtable.Row) bool {
		reversed = row.Key()
		return false
	}, bigtable.ReverseScan(), bigtable.LimitRows(1)))
	check(reversed == rows[len(rows)-1].Key(), "reversed: %s", reversed)
	large(ctx, wide.Open(name))
	ok(admin.DropRowRange(ctx, name, "lib"))
	left := 0
	ok(own.ReadRows(ctx, bigtable.PrefixRange("lib"), func(bigtable.Row) bool { left++; return true }))
	check(left == 0, "%d rows are left", left)
	ok(admin.WaitForReplication(ctx, name))
	ok(admin.DeleteTable(ctx, name))
	fmt.Printf("go: %d rows written and read back\n", len(rows))
}
