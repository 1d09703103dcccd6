// Package docs runs the blocks of the pages that people copy from: README.md and docs/operations.md.
//
// # The convention
//
// Every fenced block says by its info string, or by a comment on the line before it, what it is:
//
//	```console                  lines after "$ " are typed into a shell, what stands below them is what they print
//	```sh                       all lines are typed; each has to end with 0, what they print is not compared
//	<!-- file: fleet.yaml -->   the block is that file; it is there before the page's first line is typed
//	<!-- not run: REASON -->    the block cannot be run here, and why
//
// A block without any of them is a mistake. One shell runs all blocks of a page, in order, in a fresh directory that is
// also HOME, with the built program in PATH; what one block exports, the next has. Both streams are compared as they come,
// line by line, where
//
//   - "…" stands for anything within a line, and a line of its own "…" for any number of lines;
//   - a run id (r1- and four letters and …), an attempt, a device, a "pid N on HOST" and an instant stand for one of their
//     kind. The same id on the page is the same id there: who copies an attempt copies it everywhere;
//   - 127.0.0.1:2379 and every other port of 127.0.0.1 stand for one that is free.
//
// A line that ends with & goes on in the background: what it prints is expected where it stands on the page. A serve
// that is started so is waited for until its log says "node started". Where the page says that a command was "Killed",
// it gets KILL once it has printed what stands above that. A line that ends with \ goes on in the next one.
//
// "go run" and "go test" of the page are those of this module, but "go test" is not run: this is a part of it. Blocks
// that speak of $ENDPOINTS find an etcd there.
package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// Pages are the pages that are run, from the root of the module.
var Pages = []string{"README.md", "docs/operations.md"}

// A Kind says what is done with a block.
type Kind int

const (
	Console Kind = iota // typed and compared
	Script              // typed
	File                // written
	NotRun              // left alone
)

// A Block is a fenced block of a page.
type Block struct {
	Line  int // of its first line, counted from 1
	Kind  Kind
	About string // the file, or the reason
	Lines []string
}

var comment = regexp.MustCompile(`^<!-- (file|not run): (\S.*\S) -->$`)

// indented is a line that Markdown shows as code without a fence; an item of a list is none.
var indented = regexp.MustCompile(`^ {4,}[^ *+-]`)

// Blocks takes a page apart. The error names every block that does not say what it is.
func Blocks(page string) (blocks []Block, err error) {
	var bad []string
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		info, fence := strings.CutPrefix(strings.TrimLeft(lines[i], " "), "```")
		if !fence {
			if i > 0 && strings.TrimSpace(lines[i-1]) == "" && indented.MatchString(lines[i]) {
				bad = append(bad, fmt.Sprintf("line %d: a block that is only indented: put a fence around it", i+1))
			}
			continue
		}
		b := Block{Line: i + 2}
		before := ""
		if i > 0 {
			before = strings.TrimSpace(lines[i-1])
		}
		said := comment.FindStringSubmatch(before)
		if said != nil && i > 1 && comment.MatchString(strings.TrimSpace(lines[i-2])) {
			bad = append(bad, fmt.Sprintf("line %d: said twice what the block is", i-1))
		}
		for i++; i < len(lines) && !strings.HasPrefix(strings.TrimLeft(lines[i], " "), "```"); i++ {
			b.Lines = append(b.Lines, lines[i])
		}
		switch {
		case i == len(lines):
			bad = append(bad, fmt.Sprintf("line %d: the block has no end", b.Line))
		case said != nil && said[1] == "file":
			b.Kind, b.About = File, said[2]
		case said != nil:
			b.Kind, b.About = NotRun, said[2]
		case info == "console" && len(b.Lines) > 0 && strings.HasPrefix(b.Lines[0], "$ "):
			b.Kind = Console
		case info == "console":
			bad = append(bad, fmt.Sprintf("line %d: the first line of a console begins with \"$ \"", b.Line))
		case info == "sh":
			b.Kind = Script
		default:
			bad = append(bad, fmt.Sprintf("line %d: neither ```console nor ```sh, and no <!-- file: NAME --> or <!-- not run: REASON --> on the line before it", b.Line))
		}
		blocks = append(blocks, b)
	}
	if bad != nil {
		return nil, fmt.Errorf("blocks that do not say what they are (see the comment of package test/docs):\n%s", strings.Join(bad, "\n"))
	}
	return blocks, nil
}

// A Step is what is typed, and what is to be printed then.
type Step struct {
	Line    int // on the page
	Command string
	Want    []string
}

// Steps are the commands of a block that is run.
func (b Block) Steps() (steps []Step) {
	goesOn := false
	for i, line := range b.Lines {
		command, typed := strings.CutPrefix(line, "$ ")
		switch {
		case goesOn:
			last := &steps[len(steps)-1]
			last.Command += "\n" + line
			goesOn = strings.HasSuffix(line, `\`)
			continue
		case b.Kind == Script && strings.TrimSpace(line) == "":
			continue
		case b.Kind == Script:
			command = line
		case !typed:
			last := &steps[len(steps)-1]
			last.Want = append(last.Want, line)
			continue
		}
		steps = append(steps, Step{Line: b.Line + i, Command: command})
		goesOn = strings.HasSuffix(command, `\`)
	}
	return steps
}
