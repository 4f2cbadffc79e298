// An OCI runtime in front of runc for machines that may not raise resource limits.
//
// Where the bounding set lacks CAP_SYS_RESOURCE (a sandbox, a container without it), runc can neither give that
// capability to a container nor raise a limit above its own: "unable to apply caps: operation not permitted". This
// program takes the three demands out of what it is handed, the bundle's config.json on create and run and the process
// file on exec, and becomes runc. Where the capability is there it changes nothing.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	capability    = "CAP_SYS_RESOURCE"
	capabilityBit = 24
)

var runtimes = []string{"/usr/sbin/runc", "/usr/local/sbin/runc", "/usr/bin/runc", "/usr/local/bin/runc"}

func main() {
	if !mayRaiseLimits() {
		if err := relax(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "runc-unprivileged-limits:", err)
			os.Exit(1)
		}
	}
	for _, path := range runtimes {
		if _, err := os.Stat(path); err == nil {
			err = syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ())
			fmt.Fprintln(os.Stderr, "runc-unprivileged-limits:", path, err)
			os.Exit(1)
		}
	}
	fmt.Fprintln(os.Stderr, "runc-unprivileged-limits: no runc in", strings.Join(runtimes, ", "))
	os.Exit(1)
}

func mayRaiseLimits() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return true
	}
	for _, line := range strings.Split(string(status), "\n") {
		if value, found := strings.CutPrefix(line, "CapBnd:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err != nil || set&(1<<capabilityBit) != 0
		}
	}
	return true
}

// relax edits the file that the command line names, if it names one.
func relax(arguments []string) error {
	for _, word := range arguments {
		switch word {
		case "create", "run", "restore":
			bundle := option(arguments, ".", "--bundle", "-b")
			return edit(filepath.Join(bundle, "config.json"), func(spec map[string]any) {
				if process, ok := spec["process"].(map[string]any); ok {
					relaxProcess(process)
				}
			})
		case "exec":
			if file := option(arguments, "", "--process", "-p"); file != "" {
				return edit(file, relaxProcess)
			}
			return nil
		}
	}
	return nil
}

func relaxProcess(process map[string]any) {
	delete(process, "rlimits")
	delete(process, "oomScoreAdj")
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		names, _ := set.([]any)
		kept := make([]any, 0, len(names))
		for _, one := range names {
			if one != capability {
				kept = append(kept, one)
			}
		}
		sets[name] = kept
	}
}

func option(arguments []string, absent string, names ...string) string {
	for at, word := range arguments {
		for _, name := range names {
			if value, found := strings.CutPrefix(word, name+"="); found {
				return value
			}
			if word == name && at+1 < len(arguments) {
				return arguments[at+1]
			}
		}
	}
	return absent
}

// edit keeps every number as it was written: a size of 2^63 must not become a float.
func edit(path string, change func(map[string]any)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	content := map[string]any{}
	if err := decoder.Decode(&content); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	change(content)
	written, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, written, 0o600)
}
