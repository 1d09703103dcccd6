package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// span reads a duration from least to most.
func (r *reader) span(v value, into *time.Duration, least, most time.Duration) {
	if v.Kind != yaml.ScalarNode || v.Tag == "!!null" || v.Tag == "!!bool" {
		r.want(v, "a duration such as 90s, 15m or 24h", "")
		return
	}
	if v.Tag == "!!int" || v.Tag == "!!float" || digits(v.Value) {
		hint := "write 90s, 15m, 24h or 1h30m"
		if len(v.Value) < 12 {
			hint = "write " + v.Value + "s, or with ms, m or h"
		}
		r.fail(v, short(v.Value)+" has no unit", hint)
		return
	}
	d, err := time.ParseDuration(v.Value)
	switch {
	case err != nil:
		hint := "write 90s, 15m, 24h or 1h30m"
		if days, ok := strings.CutSuffix(v.Value, "d"); ok {
			if n, err := strconv.ParseUint(days, 10, 16); err == nil {
				hint = fmt.Sprintf("a day has not always 24 hours: write %dh", n*24)
			}
		}
		r.fail(v, short(v.Value)+" is not a duration", hint)
	case d < least:
		r.fail(v, fmt.Sprintf("%s is below %s", v.Value, showSpan(least)), "")
	case d > most:
		r.fail(v, fmt.Sprintf("%s is above %s", v.Value, showSpan(most)), "")
	default:
		*into = d
	}
}

// digits reports whether a text is a number in quotes.
func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// showSpan writes a duration as people do: 24h, not 24h0m0s.
func showSpan(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// number reads a whole number from least to most.
func (r *reader) number(v value, into *int, least, most int) {
	n, err := strconv.Atoi(v.Value)
	switch {
	case v.Kind != yaml.ScalarNode || v.Tag != "!!int" || err != nil || strconv.Itoa(n) != v.Value:
		r.want(v, fmt.Sprintf("a whole number from %d to %d", least, most), "")
	case n < least || n > most:
		r.fail(v, fmt.Sprintf("%d is not in %d to %d", n, least, most), "")
	default:
		*into = n
	}
}

var sizes = []struct {
	unit string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// size reads a number of bytes.
func (r *reader) size(v value, into *int64, most int64) {
	if v.Kind == yaml.ScalarNode && (v.Tag == "!!int" || digits(v.Value)) {
		r.fail(v, short(v.Value)+" has no unit", "write B, KiB, MiB or GiB after it")
		return
	}
	text, ok := r.text(v, "a size such as 1MiB")
	if !ok {
		return
	}
	for _, s := range sizes {
		digits, ok := strings.CutSuffix(text, s.unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
			break
		}
		if n > most/s.size {
			r.fail(v, text+" is above "+showSize(most), "")
			return
		}
		*into = n * s.size
		return
	}
	r.fail(v, short(text)+" is not a size", "write a whole number and B, KiB, MiB or GiB: 512MiB")
}

func showSize(n int64) string {
	for _, s := range sizes {
		if n%s.size == 0 && n >= s.size {
			return fmt.Sprintf("%d%s", n/s.size, s.unit)
		}
	}
	return "0B"
}

var periods = []struct {
	unit string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// rate reads N/s, N/m or N/h, or none.
func (r *reader) rate(v value, into *Rate) {
	const hint = "write 60/m, 5/s, 100/h or none"
	if v.Kind == yaml.ScalarNode && (v.Tag == "!!int" || digits(v.Value)) {
		r.fail(v, short(v.Value)+" has no unit", hint)
		return
	}
	text, ok := r.text(v, "a rate such as 60/m")
	if !ok {
		return
	}
	if text == "none" {
		*into = Rate{}
		return
	}
	count, unit, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(count)
	for _, p := range periods {
		if unit == p.unit && err == nil && n >= 1 && n <= 1_000_000 && strconv.Itoa(n) == count {
			*into = Rate{N: n, Per: p.per}
			return
		}
	}
	r.fail(v, short(text)+" is not a rate", hint)
}

func (rate Rate) String() string {
	for _, p := range periods {
		if rate.N > 0 && rate.Per == p.per {
			return fmt.Sprintf("%d/%s", rate.N, p.unit)
		}
	}
	return "none"
}

// word reads one of a few words.
func word[W ~string](r *reader, v value, into *W, words ...W) {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	want := strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	text, ok := r.text(v, want)
	switch {
	case !ok:
	case index(names, text) < 0:
		r.fail(v, short(text)+" is not known", "write "+want)
	default:
		*into = W(text)
	}
}

// argv reads a command: a program and its arguments, no shell.
func (r *reader) argv(v value, into *[]string) {
	const want = "a list: the program and its arguments"
	items, ok := r.list(v, want)
	if !ok {
		return
	}
	args := make([]string, 0, len(items))
	for _, item := range items {
		if r.full() {
			return
		}
		if text, ok := r.text(item, "a text"); ok {
			args = append(args, text)
		}
	}
	switch {
	case len(items) == 0:
		r.fail(v, "is empty, want "+want, "")
	case len(args) == len(items) && args[0] == "":
		r.fail(items[0], "the program has no name", "")
	case len(args) == len(items):
		*into = args
	}
}

// path reads the path of a file, as it is written.
func (r *reader) path(v value, into *string) {
	text, ok := r.text(v, "the path of a file")
	switch {
	case !ok:
	case text == "":
		r.fail(v, "is empty, want the path of a file", "")
	default:
		*into = text
	}
}

// codes reads a list of exit codes.
func (r *reader) codes(v value, into *[]int) {
	items, ok := r.list(v, "a list of exit codes")
	if !ok {
		return
	}
	seen := map[int]bool{}
	*into = nil
	for _, item := range items {
		if r.full() {
			return
		}
		n := -1
		r.number(item, &n, 1, math.MaxUint8)
		if n >= 0 && seen[n] {
			r.fail(item, fmt.Sprintf("%d is there twice", n), "")
		}
		if n >= 0 && !seen[n] {
			*into = append(*into, n)
		}
		seen[n] = true
	}
}
