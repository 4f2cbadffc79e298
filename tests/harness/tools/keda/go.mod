// KEDA's definition of a ScaledObject, for tests/controlplane/test_scaling.py. Nothing of it is built.
module shardwright.io/harness/tools/keda

go 1.26.0

require github.com/kedacore/keda/v2 v2.21.0
