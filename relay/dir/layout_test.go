package dir

import (
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/ident"
)

func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "A", "d-a", "d-=41", "d-=4a", "b-me", "0000000000000012.jsonl", "d-a (1)", "b-" + strings.Repeat("a", 205), strings.Repeat("X", 128)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ident.Check("device", s) == nil {
			name := folderName(s)
			if back, ok := folderDevice(name); !ok || back != s {
				t.Fatalf("%q is spelled %q, which reads %q, %v", s, name, back, ok)
			}
			if name != strings.ToLower(name) || len(name) > 210 || strings.Contains(name, ".") {
				t.Fatalf("%q is spelled %q", s, name)
			}
		}
		if device, ok := folderDevice(s); ok && (folderName(device) != s || ident.Check("device", device) != nil) {
			t.Fatalf("%q reads %q, which is spelled %q", s, device, folderName(device))
		}
		if base, ok := segmentBase(s); ok && segmentName(base) != s {
			t.Fatalf("%q reads %d", s, base)
		}
	})
}
