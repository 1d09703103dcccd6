package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/syncnode/syncnode/oplog"
)

const (
	formatName    = "syncnode"
	formatVersion = 1
	maxHeader     = 1024 // bytes of a segment header, its blank line included
)

// A Series is one of the two sequences of segments in a journal.
type Series string

const (
	Own   Series = "own"   // the device's own chain; a segment's number is the seq of its first op
	Peers Series = "peers" // the ops of all others, as they came; segments are numbered from 0
)

// A header is the first line of a segment. A blank line follows it.
type header struct {
	Journal string `json:"journal"`
	V       int    `json:"v"`
	Series  Series `json:"series"`
	Device  string `json:"device"` // whose journal it is, in both series
	Base    uint64 `json:"base"`   // the number of the segment, as in its name
	// Prev is the id of the last op of the series before this segment, HLC its stamp; absent if there is none.
	Prev oplog.OpID `json:"prev,omitempty"`
	HLC  *oplog.HLC `json:"hlc,omitempty"`
}

// bytes is the header as it stands in the file, with its blank line.
func (h header) bytes() []byte {
	b, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("journal: a header that cannot be encoded: %v", err))
	}
	return append(b, "\n\n"...)
}

// head is the last op of the series before the segment.
func (h header) head() (oplog.Head, bool) {
	if h.Prev == "" {
		return oplog.Head{}, false
	}
	out := oplog.Head{ID: h.Prev, HLC: *h.HLC}
	if h.Series == Own {
		out.Seq = h.Base - 1
	}
	return out, true
}

var errHeader = errors.New("not a segment header")

// parseHeader reads the header at the start of data and gives its length.
func parseHeader(file string, data []byte) (header, int64, error) {
	corrupt := func(err error) error { return &CorruptError{File: file, Err: err} }
	end := bytes.Index(data, []byte("\n\n"))
	if end < 0 {
		return header{}, 0, corrupt(fmt.Errorf("%w: no end", errHeader))
	}
	line := data[:end]
	var tag struct {
		Journal string `json:"journal"`
		V       int    `json:"v"`
	}
	if err := json.Unmarshal(line, &tag); err != nil || tag.Journal != formatName {
		return header{}, 0, corrupt(errHeader)
	}
	if tag.V != formatVersion {
		return header{}, 0, &VersionError{File: file, Have: tag.V}
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil || !bytes.Equal(h.bytes(), data[:end+2]) {
		return header{}, 0, corrupt(fmt.Errorf("%w: not in its one spelling", errHeader))
	}
	if h.Prev != "" && (!h.Prev.Valid() || h.HLC == nil) || h.Prev == "" && (h.HLC != nil || h.Base != 0) ||
		h.Series == Own && h.Base == 0 && h.Prev != "" {
		return header{}, 0, corrupt(fmt.Errorf("%w: prev, hlc and base disagree", errHeader))
	}
	return h, int64(end + 2), nil
}

// readHeader reads and checks the header of a segment.
func readHeader(f File, file string, s Series, number uint64, device string) (header, int64, error) {
	buf := make([]byte, maxHeader)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, 0, fmt.Errorf("read header of %s: %w", file, err)
	}
	h, size, err := parseHeader(file, buf[:n])
	switch {
	case err != nil:
		return header{}, 0, err
	case h.Series != s || h.Base != number:
		return header{}, 0, &CorruptError{File: file, Err: fmt.Errorf("header names segment %d of series %q", h.Base, h.Series)}
	case device != "" && h.Device != device:
		return header{}, 0, &DeviceError{File: file, Have: h.Device, Want: device}
	}
	return h, size, nil
}

func segmentName(s Series, number uint64) string {
	return fmt.Sprintf("%s-%016d.jsonl", s, number)
}

// segmentNumber reads a name as segmentName writes it.
func segmentNumber(s Series, name string) (uint64, bool) {
	text, ok := strings.CutPrefix(name, string(s)+"-")
	if !ok {
		return 0, false
	}
	if text, ok = strings.CutSuffix(text, ".jsonl"); !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && segmentName(s, n) == name
}

// segments lists the numbers of the segments of s, ascending.
func segments(fsys FS, dir string, s Series) ([]uint64, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list journal %s: %w", dir, err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := segmentNumber(s, name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
