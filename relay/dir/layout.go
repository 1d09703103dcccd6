package dir

import (
	"bytes"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

const (
	version   = 1 // the v of every header and of every small file
	tmpSuffix = ".tmp"

	devicesDir     = "devices"
	generationFile = "generation.txt"
	segmentsDir    = "segments"
	beatFile       = "beat.json"
	roleFile       = "role.json"
	ackFile        = "ack.json"
	floorFile      = "floor.json"
	checkpointsDir = "checkpoints"

	maxSmall   = 8 << 20  // bytes of a small file that is read
	maxSegment = 16 << 20 // bytes of a segment that are read
)

// maxPlain is the longest device id with escapes that is a file name; a longer one is written in base32.
const maxPlain = 200

var lower32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// folderName spells a device id as a file name. No two ids have names that a case-folding file system takes for one,
// and no name that a synchroniser makes of another is the name of a device.
func folderName(device string) string {
	b := []byte("d-")
	for i := range len(device) {
		switch c := device[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			b = append(b, c)
		default:
			b = append(b, '=')
			b = hex.AppendEncode(b, []byte{c})
		}
	}
	if len(b) > maxPlain {
		return "b-" + lower32.EncodeToString([]byte(device))
	}
	return string(b)
}

// namespaceFolder spells a namespace as folderName spells a device, and is the name of no device.
func namespaceFolder(namespace string) string {
	kind, rest, _ := strings.Cut(folderName(namespace), "-")
	return map[string]string{"d": "n-", "b": "m-"}[kind] + rest
}

// folderDevice reads a name as folderName writes it.
func folderDevice(name string) (string, bool) {
	var device []byte
	switch {
	case strings.HasPrefix(name, "b-"):
		var err error
		if device, err = lower32.DecodeString(name[2:]); err != nil {
			return "", false
		}
	case strings.HasPrefix(name, "d-"):
		for i := 2; i < len(name); i++ {
			if name[i] != '=' {
				device = append(device, name[i])
				continue
			}
			if i+2 >= len(name) {
				return "", false
			}
			c, err := hex.DecodeString(name[i+1 : i+3])
			if err != nil {
				return "", false
			}
			device, i = append(device, c...), i+2
		}
	}
	d := string(device)
	return d, ident.Check("device", d) == nil && folderName(d) == name
}

// segmentName is the name of the segment that takes ops from seq base on.
func segmentName(base uint64) string { return fmt.Sprintf("%016d.jsonl", base) }

// segmentBase reads a name as segmentName writes it.
func segmentBase(name string) (uint64, bool) {
	text, ok := strings.CutSuffix(name, ".jsonl")
	if !ok || len(text) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && n <= oplog.MaxInt && segmentName(n) == name
}

func deviceDir(device string) string        { return path.Join(devicesDir, folderName(device)) }
func deviceFile(device, name string) string { return path.Join(deviceDir(device), name) }
func segmentDir(device string) string       { return deviceFile(device, segmentsDir) }
func segmentFile(device string, b uint64) string {
	return path.Join(segmentDir(device), segmentName(b))
}

// A header is the first line of a segment, and with Next its seal: from seq Next on no op counts that stands after it.
type header struct {
	Relay  string `json:"relay"`
	V      int    `json:"v"`
	Device string `json:"device"`
	Base   uint64 `json:"base"`
	Next   uint64 `json:"next,omitempty"`
}

const headerName = "syncnode"

// headerMark begins every header and no op.
var headerMark = []byte(`{"relay":"`)

// group is the header as a group of its own.
func (h header) group() []byte { return append(encode(h), "\n\n"...) }

func newHeader(device string, base, next uint64) header {
	return header{Relay: headerName, V: version, Device: device, Base: base, Next: next}
}

var errVersion = errors.New("written by a newer release")

// parseHeader reads a line that begins with headerMark. Only the one spelling is a header.
func parseHeader(line []byte, device string, base uint64) (header, error) {
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, err
	}
	if h.Relay == headerName && h.V > version {
		return header{}, errVersion
	}
	want := newHeader(device, base, h.Next)
	if !bytes.Equal(encode(want), line) || h.Next != 0 && h.Next <= base {
		return header{}, errors.New("not the header of this segment")
	}
	return h, nil
}

// beat is the contact of a device with the folder. Times are for people and for eviction.
type beat struct {
	V        int    `json:"v"`
	Device   string `json:"device"`
	Instance string `json:"instance"` // the least that the device has seen
	AddedMS  int64  `json:"added_ms"`
	SeenMS   int64  `json:"seen_ms"`
}

// roleValue is what a device enrolled as.
type roleValue struct {
	V      int        `json:"v"`
	Device string     `json:"device"`
	Role   relay.Role `json:"role"`
}

// ackValue is what a device has folded.
type ackValue struct {
	V      int            `json:"v"`
	Device string         `json:"device"`
	Folded oplog.Frontier `json:"folded"`
}

// floorValue is up to where a device's own chain was collected. The chain begins there for whoever reads it anew.
type floorValue struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	posTime
	Kept     uint64 `json:"kept"`      // the first seq that was not deleted; up to Seq they are marked
	MarkedMS int64  `json:"marked_ms"` // since when
}

// marked is how many ops are below the floor and not deleted.
func (f floorValue) marked() int {
	if f.V == 0 || f.Kept > f.Seq {
		return 0
	}
	return int(f.Seq - f.Kept + 1)
}

func (f floorValue) check(device string) error {
	if err := relay.CheckFrontier(oplog.Frontier{device: f.pos()}); err != nil {
		return err
	}
	if f.Kept > f.Seq+1 {
		return fmt.Errorf("op %d is kept and the floor is %d", f.Kept, f.Seq)
	}
	return checkValue(f.V, f.Device, device)
}

func (b beat) check(device string) error {
	if raw, err := hex.DecodeString(b.Instance); err != nil || len(raw) != 16 || strings.ToLower(b.Instance) != b.Instance {
		return errors.New("instance is not 32 hex digits")
	}
	return checkValue(b.V, b.Device, device)
}

func (r roleValue) check(device string) error {
	if err := relay.CheckRole(r.Role); err != nil {
		return err
	}
	return checkValue(r.V, r.Device, device)
}

func (a ackValue) check(device string) error {
	if err := relay.CheckFrontier(a.Folded); err != nil {
		return err
	}
	return checkValue(a.V, a.Device, device)
}

func checkValue(v int, got, want string) error {
	switch {
	case v > version:
		return errVersion
	case v != version:
		return fmt.Errorf("format version %d", v)
	case got != want:
		return fmt.Errorf("belongs to device %.140q", got)
	}
	return nil
}

// decode reads a small file of a device.
func decode[T interface{ check(device string) error }](data []byte, device string) (T, error) {
	var value, zero T
	if err := json.Unmarshal(data, &value); err != nil {
		return zero, err
	}
	if err := value.check(device); err != nil {
		return zero, err
	}
	return value, nil
}

func encode(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // our own types
	}
	return b
}

func nonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
