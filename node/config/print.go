package config

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/schedule/due"
)

// Print writes a file that reads the same: each key with what it means, its units and its limits, and of each agent
// all that holds for it.
func Print(f *File) []byte {
	var out bytes.Buffer
	for _, k := range fileKeys {
		line(&out, "", k, f)
	}
	out.WriteString("\n# What holds for each agent that does not say otherwise.\ndefaults:\n")
	for _, k := range policyKeys {
		line(&out, "  ", k, &f.Defaults)
	}
	if len(f.Agents) == 0 {
		out.WriteString("\nagents: {}\n" + example())
		return out.Bytes()
	}
	out.WriteString("\nagents:\n")
	for _, a := range f.Agents {
		out.WriteString("  " + strconv.Quote(a.ID) + ":\n")
		for _, k := range agentKeys {
			if text, ok := k.show(&a); ok {
				out.WriteString("    " + k.name + ": " + text + "\n")
			}
		}
		for _, k := range policyKeys {
			if text, ok := k.show(&a.Policy); ok && counts(k.name, &a) {
				out.WriteString("    " + k.name + ": " + text + "\n")
			}
		}
	}
	return out.Bytes()
}

// counts says whether a key means anything for an agent.
func counts(name string, a *Agent) bool {
	switch name {
	case "catchup", "catchup_window":
		return a.Schedule != nil
	case "catchup_limit":
		return a.Schedule != nil && a.CatchUp == due.CatchUpAll
	case "probe":
		return a.OnDoubt == dispatch.DoubtProbe
	}
	return true
}

// line writes a key under its comment; one without a value goes into the comment.
func line[T any](out *bytes.Buffer, indent string, k key[T], v *T) {
	text, ok := k.show(v)
	doc := k.doc
	if !ok {
		doc += "\n" + k.name + ": " + k.example
	}
	for l := range strings.SplitSeq(doc, "\n") {
		out.WriteString(indent + "# " + l + "\n")
	}
	if ok {
		out.WriteString(indent + k.name + ": " + text + "\n")
	}
}

// example is an agent in comments: what has no default is explained there.
func example() string {
	var out strings.Builder
	out.WriteString("#  nightly-report:\n")
	for _, k := range agentKeys {
		out.WriteString("#    # " + k.doc + "\n")
		if k.example != "" {
			out.WriteString("#    " + k.name + ": " + k.example + "\n")
		} else {
			out.WriteString("#    # " + k.name + ": { url: \"http://127.0.0.1:8080/report\" }\n")
		}
	}
	return out.String()
}
