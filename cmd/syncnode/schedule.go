package main

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // an image may have no zones of its own

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/schedule"
)

// scheduleOf reads a schedule; where says which flag it is from.
func scheduleOf(where, spec, zone string) (*schedule.Schedule, error) {
	s, err := schedule.New(spec, zone)
	switch {
	case errors.Is(err, schedule.ErrZone):
		return nil, usagef("--tz: %w", err)
	case err != nil:
		return nil, usagef("%s%w", where, err)
	}
	return s, nil
}

func newSchedule() *cobra.Command {
	cmd := &cobra.Command{Use: "schedule", Short: "see when a schedule is due, and what changes of the clock do to it", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newScheduleNext())
	return cmd
}

const scheduleNextLong = `next prints the occurrences of a schedule after an instant: the name that exec --cron and a node give to each, which
is its time in UTC, what the clock of the zone shows, and what a change of the clock has to do with it. It needs no etcd.

A schedule is five columns: minute, hour, day of month, month, day of week; or @hourly, @daily, @midnight, @weekly,
@monthly, @yearly, @annually, or @every D, which means the multiples of D since 1970 in UTC. Columns hold *, */5,
1,2,3, 1-5, 1-10/3 and names (JAN, MON). If both day columns name days, either is enough; one that begins with *
does not name days: the other one counts, and */2 restricts it.

With named hours a local time that does not exist runs at the first instant after the gap, and one that exists twice runs at
the first. With * or */n in the hour the hours of the clock run as they come.`

// maxNext bounds what one call prints.
const maxNext = 100_000

// scheduleRow is an occurrence as it is printed.
type scheduleRow struct {
	Occurrence string `json:"occurrence"`
	UTC        string `json:"utc"`
	Local      string `json:"local"`
	Zone       string `json:"zone"` // its abbreviation at that time
	Remark     string `json:"remark,omitempty"`
	text       string
}

func scheduleRowOf(s *schedule.Schedule, at time.Time) scheduleRow {
	local := at.In(s.Zone())
	form := "Mon 2006-01-02 15:04 MST"
	if local.Second() != 0 {
		form = "Mon 2006-01-02 15:04:05 MST"
	}
	return scheduleRow{
		Occurrence: ident.AtOccurrence(at), UTC: at.Format(time.RFC3339), Local: local.Format(time.RFC3339),
		Zone: local.Format("MST"), Remark: s.Remark(at), text: local.Format(form),
	}
}

func newScheduleNext() *cobra.Command {
	var zone, from string
	var n int
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "next SPEC [--tz ZONE] [--from INSTANT] [-n N]",
		Short: "print the next occurrences of a schedule, their names and local times; needs no etcd",
		Long:  scheduleNextLong,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("which schedule? usage: %s", cmd.UseLine())
			case len(args) > 1:
				return usagef("unexpected argument %q: write the schedule as one argument, in quotes: '30 2 * * *'", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if n < 1 || n > maxNext {
				return usagef("-n %d: want 1 to %d", n, maxNext)
			}
			s, err := scheduleOf("", args[0], zone)
			if err != nil {
				return err
			}
			after := time.Now()
			if from != "" {
				if after, err = fromOf(from, s.Zone()); err != nil {
					return err
				}
			}
			var rows []scheduleRow
			for at := range s.After(after) {
				if rows = append(rows, scheduleRowOf(s, at)); len(rows) == n {
					break
				}
			}
			if note := s.Spec().Note(); note != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "syncnode: note: %s\n", note)
			}
			return printRows(out, cmd.OutOrStdout(), rows, "OCCURRENCE\tLOCAL TIME\tREMARK", func(r scheduleRow) string {
				return fmt.Sprintf("%s\t%s\t%s", r.Occurrence, r.text, dash(r.Remark))
			})
		},
	}
	flags := cmd.Flags()
	registerZone(flags, &zone)
	flags.Lookup("tz").Usage = "the time `ZONE` of the schedule, an IANA name such as Europe/Berlin; never the host's own"
	flags.StringVar(&from, "from", "", "what comes after this `INSTANT`: RFC 3339, or without an offset what the clock of --tz shows; now if not given")
	flags.IntVarP(&n, "count", "n", 5, "how many, `N`")
	out.register(flags)
	return cmd
}

// fromOf reads an instant, or a local time of the zone: the first of two, and the end of a gap.
func fromOf(text string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if local, err := time.Parse(form, text); err == nil {
			return schedule.Shown(local, zone), nil
		}
	}
	return time.Time{}, usagef("--from %q: want an instant such as 2026-03-01T02:30:00Z, or a local time such as 2026-03-01T02:30 or 2026-03-01", text)
}
