package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

// An outputFlag is -o: text for people, json for programs.
type outputFlag struct{ format string }

func (o *outputFlag) register(flags *pflag.FlagSet) {
	flags.StringVarP(&o.format, "output", "o", "text", "`FORMAT` of what is printed: text or json")
}

func (o *outputFlag) check() error {
	if o.format != "text" && o.format != "json" {
		return usagef("--output %q: want text or json", o.format)
	}
	return nil
}

// printRows prints a list: one JSON object a line, or a table under the given head.
func printRows[T any](o outputFlag, w io.Writer, rows []T, head string, line func(T) string) error {
	if o.format == "json" {
		enc := json.NewEncoder(w)
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, head)
	for _, r := range rows {
		fmt.Fprintln(tw, plain(line(r)))
	}
	return tw.Flush()
}

// printOne prints one thing: a JSON object, or its text.
func printOne[T any](o outputFlag, w io.Writer, v T, text string) error {
	if o.format == "json" {
		return json.NewEncoder(w).Encode(v)
	}
	_, err := io.WriteString(w, text)
	return err
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// whoami names the person who decides, for the record.
func whoami() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
