package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/config"
)

// manifests are the documents of deploy/kubernetes; that they are what Kubernetes reads is tested there.
func manifests(t *testing.T) (all []map[string]any) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var doc map[string]any
			err := d.Decode(&doc)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			all = append(all, doc)
		}
	}
	return all
}

// everyArgs are the arguments of all containers and probes, wherever they stand.
func everyArgs(node any) (all [][]string) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			list, is := value.([]any)
			probe := key == "command" && len(list) > 1 && list[0] == "/syncnode"
			if probe {
				list = list[1:]
			}
			if !probe && key != "args" || !is {
				all = append(all, everyArgs(value)...)
				continue
			}
			var args []string
			for _, a := range list {
				args = append(args, a.(string))
			}
			all = append(all, args)
		}
	case []any:
		for _, value := range n {
			all = append(all, everyArgs(value)...)
		}
	}
	return all
}

func TestTheManifestsCallVerbsWithFlagsThatExist(t *testing.T) {
	var verbs []string
	for _, doc := range manifests(t) {
		for _, words := range everyArgs(doc) {
			// What Kubernetes puts in.
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "$(POD_UID)", "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0")
				words[i] = strings.ReplaceAll(words[i], "$(JOB_NAME)", "report-29731830")
			}
			cmd, args, err := newRoot().Find(words)
			if err != nil || !cmd.HasParent() {
				t.Errorf("%q: %v", words, err)
				continue
			}
			verbs = append(verbs, cmd.Name())
			if err := cmd.ParseFlags(args); err != nil {
				t.Errorf("%s: %v", cmd.Name(), err)
			}
			if cmd.Name() == "ready" {
				continue
			}
			if id := cmd.Flags().Lookup("device-id").Value.String(); id != "" {
				if err := ident.Check("device", podDevice(id)); err != nil {
					t.Error(err)
				}
			}
			if cmd.Name() == "serve" {
				var f serveFlags
				flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
				f.register(flags)
				if err := errors.Join(flags.Parse(args), f.checkDiskless(flags), f.check()); err != nil {
					t.Errorf("%q: %v", words, err)
				}
			}
			diskless := cmd.Name() == "serve" && cmd.Flags().Changed("no-journal")
			if !cmd.Flags().Changed("endpoints") || !cmd.Flags().Changed("data-dir") && !diskless {
				t.Errorf("%s: it would use an etcd of its own, or write to the image", cmd.Name())
			}
		}
	}
	slices.Sort(verbs)
	if !slices.Equal(verbs, []string{"exec", "ready", "ready", "ready", "serve", "serve"}) {
		t.Errorf("the verbs called are %v", verbs)
	}
}

func TestTheManifestsConfigurationIsRead(t *testing.T) {
	read := 0
	for _, doc := range manifests(t) {
		if doc["kind"] != "ConfigMap" {
			continue
		}
		for name, text := range doc["data"].(map[string]any) {
			read++
			file, err := config.Parse(name, []byte(text.(string)))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if len(file.Agents) == 0 {
				t.Errorf("%s has no agents", name)
			}
		}
	}
	if read != 1 {
		t.Errorf("%d configurations", read)
	}
}
