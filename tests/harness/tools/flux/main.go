// Command flux says of a list of objects what Flux says of them by the health check expressions of its first argument, a JSON file.
package main

import (
	"context"
	"encoding/json"
	"io"
	"os"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubejson "k8s.io/apimachinery/pkg/util/json"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	content, err := os.ReadFile(os.Args[1])
	must(err)
	var expressions kustomize.HealthCheckExpressions
	must(json.Unmarshal(content, &expressions))
	evaluator, err := cel.NewStatusEvaluator(&expressions)
	must(err)
	given, err := io.ReadAll(os.Stdin)
	must(err)
	var objects []map[string]any
	must(kubejson.Unmarshal(given, &objects)) // whole numbers stay whole, as clients of Kubernetes read them
	answers := []string{}
	for _, object := range objects {
		said, err := evaluator.Evaluate(context.Background(), &unstructured.Unstructured{Object: object})
		must(err)
		answers = append(answers, said.Status.String())
	}
	must(json.NewEncoder(os.Stdout).Encode(answers))
}
