package node

import (
	"context"
	"log/slog"
)

// A trouble is a kind of failure. Errors of one kind differ in numbers and words, and are one piece of news.
type trouble struct {
	kind  string
	level slog.Level
}

// A change logs when something begins to fail, when the trouble becomes another, and when it is over.
type change struct {
	log  *slog.Logger
	what string
	kind string // of the trouble that lasts; empty: none
}

func (c *change) note(err error, t trouble) {
	switch {
	case err != nil && t.kind != c.kind:
		c.kind = t.kind
		c.log.Log(context.Background(), t.level, c.what+" failed; it is tried again", "trouble", t.kind, "err", err)
	case err == nil && c.kind != "":
		c.kind = ""
		c.log.Info(c.what + " works again")
	}
}
