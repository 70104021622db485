// go get cloud.google.com/go/bigtable; export BIGTABLE_EMULATOR_HOST=127.0.0.1:8086; go run hello.go
package main

import (
	"context"
	"fmt"
	"log"

	"cloud.google.com/go/bigtable"
)

func main() {
	ctx := context.Background()
	admin, err := bigtable.NewAdminClient(ctx, "local", "demo")
	client, err2 := bigtable.NewClient(ctx, "local", "demo")
	if err != nil || err2 != nil {
		log.Fatal(err, err2)
	}
	conf := bigtable.TableConf{TableID: "hello-go", Families: map[string]bigtable.GCPolicy{"said": bigtable.NoGcPolicy()}}
	_ = admin.CreateTableFromConf(ctx, &conf) // an error where it exists
	table, word := client.Open("hello-go"), bigtable.NewMutation()
	word.Set("said", "word", bigtable.Now(), []byte("hello"))
	if err := table.Apply(ctx, "greeting", word); err != nil {
		log.Fatal(err)
	}
	row, _ := table.ReadRow(ctx, "greeting")
	fmt.Println(string(row["said"][0].Value))
}
