package dir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// A folder on a USB stick, on Windows or on a Mac takes two names that differ in case for one, and has neither owners nor links.
func TestConformanceOnAFileSystemThatFoldsCase(t *testing.T) {
	t.Parallel()
	thorough.Only(t)
	mount := foldingMount(t)
	conform(t, 2000, func(t *testing.T) string {
		root, err := os.MkdirTemp(mount, "relay-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(root) })
		return root
	})
}

func TestDevicesThatDifferInCaseAloneDoNotMeetOnAFileSystemThatFoldsCase(t *testing.T) {
	r := at(t, foldingMount(t))
	upper, lower := relaytest.NewAuthor("Host"), relaytest.NewAuthor("host")
	for range 3 {
		push(t, r, upper.Write(t, 2, 60))
		push(t, r, lower.Write(t, 1, 60))
	}
	got := pull(t, r)
	wantOps(t, got["Host"], upper.Ops)
	wantOps(t, got["host"], lower.Ops)
	if rep := report(t, r); len(rep.Oddities)+len(rep.Forks)+len(rep.Waiting) != 0 {
		t.Errorf("report %+v", rep)
	}
}

// foldingMount is an exFAT file system in a file. It needs root, loop devices, FUSE, and the Debian packages exfatprogs and
// exfat-fuse; where only the packages are missing, CI fails.
func foldingMount(t *testing.T) string {
	t.Helper()
	for _, device := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(device); err != nil || os.Geteuid() != 0 {
			t.Skip("an exFAT file system can only be mounted by root, with loop devices and FUSE")
		}
	}
	for _, tool := range []string{"mkfs.exfat", "mount.exfat-fuse", "losetup", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("SYNCNODE_CI") != "" {
				t.Fatalf("%v: install exfatprogs and exfat-fuse", err)
			}
			t.Skipf("%v: it is in the packages exfatprogs and exfat-fuse", err)
		}
	}
	run := func(args ...string) (string, error) {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	mount := filepath.Join(t.TempDir(), "mount")
	memory, err := os.MkdirTemp("/dev/shm", "exfat-") // the image is not what has to last
	if err != nil {
		memory = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(memory) })
	image := filepath.Join(memory, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 128<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := run("mkfs.exfat", image); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	loop, err := run("losetup", "--find", "--show", image)
	if err != nil {
		t.Skipf("no loop device is to be had: %s", loop)
	}
	t.Cleanup(func() {
		if out, err := run("losetup", "--detach", loop); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if out, err := run("mount.exfat-fuse", loop, mount); err != nil {
		if strings.Contains(out, "not permitted") {
			t.Skipf("mounting is not permitted: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := run("umount", mount); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if err := os.WriteFile(filepath.Join(mount, "Case"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(mount, "cASE")); err != nil {
		t.Fatalf("it does not fold case: %v", err)
	}
	return mount
}
