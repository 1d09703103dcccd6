// Package telling makes a message for people of what errors say.
//
// [Text] leaves out what an error calls itself in Go, the name of its package, where an error begins: at the start of the message, and
// behind a colon, a semicolon or a parenthesis. Of names that are ordinary words only the start and sentences of those packages are meant.
// Errors that were joined follow one another on one line. Nothing else is changed, and nothing within double quotes, or right behind a
// line and a column of a file: what people wrote is put into errors by %q, and there stands a key of the configuration. It is for the
// edges: the program's messages, the log of a node, the problems of the API. Inside, errors are compared by errors.Is, and their text
// stays whole.
//
// It may be used by several goroutines at once.
package telling

import (
	"regexp"
	"strings"
)

const (
	// packages are the names by which errors of the packages of this module begin.
	packages = `(?:book|checkpoint|claim|coord|coord/etcd|coord/remote|dispatch|embedded|fence|fold|guard|hold|identity|index|journal|oplog|relay|` +
		`seal|session|wire): `
	// ordinary are more of them, which are ordinary words.
	ordinary = `(?:api|child|client|config|node|output|schedule|work): `
	// sentences are what the errors say that begin by an ordinary word and are wrapped.
	sentences = `not valid|no such time zone|no occurrence is near|no such agent in this node's configuration|the agent has nothing to run|` +
		`the node is going down|the watcher reads too slowly|not a signal of this system`

	begin  = `(^|: |; |\()`
	quoted = `"(?:[^"\\\n]|\\.)*"`
	place  = `:[0-9]+:[0-9]+: `
)

// named is what stays and, where an error begins, the names of packages, of which only the groups stay.
var named = regexp.MustCompile(`(` + quoted + `|` + place + `)|^(?:` + packages + `|` + ordinary + `)+|` +
	begin + `(?:` + packages + `)*` + ordinary + `(` + sentences + `)|` + begin + `(?:` + packages + `)+`)

// joined is a text in quotes, or what is between errors that were joined, by errors.Join or as a list with stars.
var joined = regexp.MustCompile(quoted + `|:?\s*\n\s*(?:\* )?`)

// Text is the message as it is told.
func Text(message string) string {
	message = joined.ReplaceAllStringFunc(strings.TrimSpace(message), func(s string) string {
		switch s[0] {
		case '"':
			return s
		case ':': // the head of a list
			return ": "
		}
		return "; "
	})
	return named.ReplaceAllString(message, "$1$2$3$4")
}
