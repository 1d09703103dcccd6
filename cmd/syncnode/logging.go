package main

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/internal/telling"
)

// loggingFlags say how a node writes its log.
type loggingFlags struct{ format, level string }

func (f *loggingFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "text", "write the log as `FORMAT`: text or json, a line for each change of state")
	flags.StringVar(&f.level, "log-level", "info", "write nothing below this `LEVEL`: debug, info, warn or error")
}

func (f *loggingFlags) check() error {
	_, err := f.open(io.Discard)
	return err
}

func (f *loggingFlags) open(w io.Writer) (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[f.level]
	if !ok {
		return nil, usagef("--log-level %q: want debug, info, warn or error", f.level)
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: toldAttr}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usagef("--log-format %q: want text or json", f.format)
}

// toldAttr writes what errors say as it is told to people.
func toldAttr(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(telling.Text(err.Error()))
	}
	return a
}
