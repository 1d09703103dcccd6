package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/node/config"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "check and print the file that says what a node is to run; needs no etcd", Args: noArgs,
		Long: `The configuration of a node is one YAML file: its agents, when they are due, and by which rules they run.
config print --defaults explains every key. serve --config runs its agents.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newConfigCheck(), newConfigPrint())
	return cmd
}

const configCheckLong = `check reads a configuration as a node would: 0 if it is right, 2 with all its mistakes, each with its line and
column. It prints the agents with their next occurrence, and warns of what is often meant otherwise. FILE is - for
standard input. It looks at nothing but the file: a command, a URL or a secret may be on another host only.`

// checkRow is an agent as check prints it.
type checkRow struct {
	Agent    string       `json:"agent"`
	Schedule string       `json:"schedule,omitempty"`
	TZ       string       `json:"tz,omitempty"`
	Next     *scheduleRow `json:"next,omitempty"`
}

func checkRowOf(a config.Agent, after time.Time) checkRow {
	if a.Schedule == nil {
		return checkRow{Agent: a.ID}
	}
	row := checkRow{Agent: a.ID, Schedule: a.Schedule.Spec().String(), TZ: a.Schedule.Zone().String()}
	if at, ok := a.Schedule.Next(after); ok {
		next := scheduleRowOf(a.Schedule, at)
		row.Next = &next
	}
	return row
}

func (r checkRow) line() string {
	var next scheduleRow
	if r.Next != nil {
		next = *r.Next
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", r.Agent, dash(r.Schedule), dash(r.TZ), dash(next.Occurrence), dash(next.text), dash(next.Remark))
}

func newConfigCheck() *cobra.Command {
	var from string
	var out outputFlag
	cmd := &cobra.Command{
		Use: "check FILE [--from INSTANT]", Short: "check a configuration: 0, or 2 with all its mistakes", Long: configCheckLong, Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			after := time.Now()
			if from != "" {
				var err error
				if after, err = fromOf(from, time.UTC); err != nil {
					return err
				}
			}
			f, err := givenConfig(cmd, args[0])
			if err != nil {
				return err
			}
			for _, n := range f.Notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", plain(fmt.Sprintf("%s:%d:%d: warning: %s: %s", args[0], n.Line, n.Column, n.Key, n.Text)))
			}
			var rows []checkRow
			for _, a := range f.Agents {
				rows = append(rows, checkRowOf(a, after))
			}
			return printRows(out, cmd.OutOrStdout(), rows, "AGENT\tSCHEDULE\tTZ\tNEXT\tLOCAL TIME\tREMARK", checkRow.line)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the next occurrence after this `INSTANT`: RFC 3339, or without an offset in UTC; after now if not given")
	out.register(cmd.Flags())
	return cmd
}

func newConfigPrint() *cobra.Command {
	var defaults bool
	cmd := &cobra.Command{
		Use: "print [--defaults] [FILE]", Short: "print a configuration with all that holds, or the defaults; each key is explained",
		Long: `print writes a configuration that reads the same as FILE (- for standard input), with every key that holds for each
agent; with --defaults it writes the one that says nothing: a file to begin with. Paths stay as they are written.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := atMost(1)(cmd, args); err != nil {
				return err
			}
			if defaults == (len(args) == 1) {
				return usagef("which configuration? Give either FILE or --defaults")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f := config.Defaults()
			if !defaults {
				read, err := givenConfig(cmd, args[0])
				if err != nil {
					return err
				}
				f = *read
			}
			_, err := cmd.OutOrStdout().Write(config.Print(&f))
			return err
		},
	}
	cmd.Flags().BoolVar(&defaults, "defaults", false, "the defaults, with an agent as a comment")
	return cmd
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("usage: %s", cmd.UseLine())
	}
	return nil
}

// givenConfig reads the configuration that a verb is about: one that is not there, or cannot be read, is as wrong as one with mistakes. For
// a node it is not, since it may be there when the node is started again.
func givenConfig(cmd *cobra.Command, path string) (*config.File, error) {
	f, err := loadConfig(cmd, path)
	if _, judged := errors.AsType[*exitError](err); err != nil && !judged {
		return nil, &exitError{exitUsage, err}
	}
	return f, err
}

// loadConfig reads a configuration; its mistakes are told line by line, so that editors find them.
func loadConfig(cmd *cobra.Command, path string) (*config.File, error) {
	var f *config.File
	var err error
	if path == "-" {
		f, err = config.Read(path, cmd.InOrStdin())
	} else {
		f, err = config.Load(path)
	}
	if !errors.Is(err, config.ErrInvalid) {
		return f, err
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(cmd.ErrOrStderr(), plain(line))
	}
	return nil, &exitError{exitUsage, fmt.Errorf("%s has %s", path, mistakes(err))}
}

func mistakes(err error) string {
	n := 1
	if all, ok := errors.AsType[*multierror.Error](err); ok {
		n = len(all.Errors)
	}
	if n == 1 {
		return "a mistake"
	}
	return fmt.Sprintf("%d mistakes", n)
}
