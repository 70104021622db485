module siltstone/patterns

go 1.24
