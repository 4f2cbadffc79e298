module shardwright.io/kind/runtime

go 1.26.0
