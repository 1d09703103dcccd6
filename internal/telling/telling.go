// Package telling makes a message for people of what errors say.
//
// [Text] changes no word of a message but this: what an error calls itself in Go, the name of its package, is left out where an error
// begins, and errors that were joined follow one another on one line. It is for the edges: the program's messages, the log of a node,
// the problems of the API. Inside, errors are compared by errors.Is, and their text stays whole.
//
// It may be used by several goroutines at once.
package telling

import (
	"regexp"
	"strings"
)

// packages are the names by which errors of the packages of this module begin.
const packages = `api|book|checkpoint|child|claim|client|config|coord|coord/etcd|coord/remote|dispatch|embedded|fence|fold|guard|hold|identity|index|journal|` +
	`node|oplog|output|relay|schedule|seal|session|wire|work`

// packageName is the name of a package where an error begins.
var packageName = regexp.MustCompile(`(^|: |; |\()(?:(?:` + packages + `): )+`)

// joined is what is between errors that were joined, by errors.Join or as a list with stars.
var joined = regexp.MustCompile(`\s*\n\s*(?:\* )?`)

// Text is the message as it is told.
func Text(message string) string {
	message = joined.ReplaceAllString(strings.TrimSpace(message), "; ")
	message = strings.ReplaceAll(message, ":; ", ": ") // the head of a list
	return packageName.ReplaceAllString(message, "$1")
}
