package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	keyBytes    = 32
	keyIDPrefix = "k1-"
	keyIDLen    = len(keyIDPrefix) + 32

	fileHeader = "syncnode-seal-keys "
	fileIntro  = "# Who has this file reads and writes all that is sealed. Every member needs the same keys.\n" +
		"# The last key seals, every key opens. Remove none while anything that it sealed is kept.\n"
	maxFile = 64 << 10 // bytes; more than 400 keys
)

// A sealKey is one line of the file.
type sealKey struct {
	id      string
	created time.Time
	secret  Secret
}

// keyID is the first half of a SHA-256 over the key, so that an id stands for one key only.
func keyID(key []byte) string {
	sum := sha256.Sum256(lp(lp(nil, "syncnode/seal/key/v1"), string(key)))
	return keyIDPrefix + hex.EncodeToString(sum[:16])
}

func validKeyID(id string) bool {
	digits, ok := strings.CutPrefix(id, keyIDPrefix)
	return ok && len(id) == keyIDLen && strings.Trim(digits, "0123456789abcdef") == ""
}

func newKey(secret []byte, now time.Time) sealKey {
	return sealKey{id: keyID(secret), created: now.UTC().Truncate(time.Second), secret: newSecret(secret)}
}

// line is the key as it stands in the file.
func (k sealKey) line() string {
	return "key " + k.id + " " + k.created.Format(time.RFC3339) + " " + hex.EncodeToString(k.secret.bytes()) + "\n"
}

// newFile is the content of a file with one key.
func newFile(k sealKey) []byte { return []byte(fileHeader + "1\n" + fileIntro + k.line()) }

// parseFile reads the content of a key file. Its errors are [*FileError].
func parseFile(text []byte) ([]sealKey, error) {
	if len(text) > maxFile {
		return nil, &FileError{Reason: "longer than 65536 bytes"}
	}
	body, ok := bytes.CutSuffix(text, []byte("\n"))
	if !ok {
		return nil, &FileError{Reason: "the end is missing: the last line has no line feed"}
	}
	lines := strings.Split(string(body), "\n")
	if reason := checkHeader(lines[0]); reason != "" {
		return nil, &FileError{Line: 1, Reason: reason}
	}
	var keys []sealKey
	for i, line := range lines[1:] {
		k, comment, reason := parseLine(line)
		if reason == "" && !comment && slices.ContainsFunc(keys, func(o sealKey) bool { return o.id == k.id }) {
			reason = "repeats a key"
		}
		switch {
		case reason != "":
			return nil, &FileError{Line: i + 2, Reason: reason}
		case !comment:
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, &FileError{Reason: "it has no key"}
	}
	return keys, nil
}

func checkHeader(line string) (reason string) {
	version, ok := strings.CutPrefix(line, fileHeader)
	if !ok {
		return "is not the header of a key file"
	}
	if version == "1" {
		return ""
	}
	if n, err := strconv.ParseUint(version, 10, 32); err == nil && n > 1 {
		return "names version " + strconv.FormatUint(n, 10) + ", this release knows 1"
	}
	return "is not the header of a key file"
}

func parseLine(line string) (k sealKey, comment bool, reason string) {
	if strings.HasPrefix(line, "#") {
		if !utf8.ValidString(line) || strings.IndexFunc(line, unicode.IsControl) >= 0 {
			return sealKey{}, true, "has a control character or bad UTF-8"
		}
		return sealKey{}, true, ""
	}
	fields := strings.Split(line, " ")
	if len(fields) != 4 || fields[0] != "key" {
		return sealKey{}, false, `is neither a comment nor "key ID TIME KEY"`
	}
	created, err := time.Parse(time.RFC3339, fields[2])
	if err != nil || created.UTC().Format(time.RFC3339) != fields[2] {
		return sealKey{}, false, "has no time in UTC as 2006-01-02T15:04:05Z"
	}
	secret, err := hex.DecodeString(fields[3])
	if err != nil || len(secret) != keyBytes || strings.ToLower(fields[3]) != fields[3] {
		return sealKey{}, false, "has no key of 64 lower-case hex digits"
	}
	if k = newKey(secret, created); k.id != fields[1] {
		return sealKey{}, false, "has a key that does not give its id"
	}
	return k, false, ""
}
