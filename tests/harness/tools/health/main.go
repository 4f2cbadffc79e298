// Command health says of a list of objects what kstatus and Argo CD, with the script of its first argument, say of them.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	luajson "layeh.com/gopher-json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type answer struct {
	Kstatus string `json:"kstatus"`
	Argo    string `json:"argo"`
}

func argo(script string, object map[string]any) (string, error) {
	state := lua.NewState()
	defer state.Close()
	content, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	value, err := luajson.Decode(state, content)
	if err != nil {
		return "", err
	}
	state.SetGlobal("obj", value)
	if err := state.DoString(script); err != nil {
		return "", err
	}
	found, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", fmt.Errorf("the script returns no table")
	}
	return found.RawGetString("status").String(), nil
}

func main() {
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var objects []map[string]any
	given, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	if err := kubejson.Unmarshal(given, &objects); err != nil { // whole numbers stay whole, as clients of Kubernetes read them
		panic(err)
	}
	answers := []answer{}
	for _, object := range objects {
		said, err := status.Compute(&unstructured.Unstructured{Object: object})
		if err != nil {
			panic(err)
		}
		healthy, err := argo(string(script), object)
		if err != nil {
			panic(err)
		}
		answers = append(answers, answer{Kstatus: said.Status.String(), Argo: healthy})
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}
