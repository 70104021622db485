module siltstone/client

go 1.24

require cloud.google.com/go/bigtable v1.58.0
