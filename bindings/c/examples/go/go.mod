module siltstone.example/tour

go 1.21
