package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	relaydir "github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

func TestRelayStatusSaysWhatInAFolderDoesNotCountOrNotYet(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, nil)[0]
	h.run("looks", "k")
	folder := t.TempDir()
	r, err := relaydir.Open(relaydir.Config{Path: folder, Namespace: "default", SegmentBytes: 800})
	must(t, err)
	defer r.Close()
	segments := func(device string) string {
		return filepath.Join(folder, "n-default", "devices", "d-"+device, "segments")
	}
	for _, device := range []string{"gap", "half", "copied", "forked"} {
		a := relaytest.NewAuthor(device)
		for range 9 {
			_, err := r.Push(t.Context(), device, a.Write(t, 1, 60))
			must(t, err)
		}
	}
	status := func() (relayReport, string) {
		args := []string{"relay", "status", "--relay", "dir:" + folder}
		return decode[relayReport](t, h.call(append(args, "-o", "json")...).want(0)), h.call(args...).want(0).out.String()
	}
	row, text := status()
	if len(row.Ignored)+len(row.Waiting)+len(row.Forked)+len(row.Lost) > 0 {
		t.Fatalf("a whole folder: %s", text)
	}

	names := func(device string) (all []string) {
		files, err := os.ReadDir(segments(device))
		must(t, err)
		for _, f := range files {
			all = append(all, filepath.Join(segments(device), f.Name()))
		}
		if len(all) < 3 {
			t.Fatalf("%s has %d segments", device, len(all))
		}
		return all
	}
	// The middle one has not arrived.
	var missing uint64
	middle := names("gap")[1]
	_, err = fmt.Sscanf(filepath.Base(middle), "%d.jsonl", &missing)
	must(t, errors.Join(err, os.Remove(middle)))
	// The last one is there by half.
	last := names("half")[len(names("half"))-1]
	data, err := os.ReadFile(last)
	must(t, errors.Join(err, os.Truncate(last, int64(len(data)-20))))
	// A conflict copy, and a folder with the name of a segment.
	data, err = os.ReadFile(names("copied")[0])
	must(t, err)
	must(t, os.WriteFile(filepath.Join(segments("copied"), "0000000000000000.sync-conflict-20260301-120000-ABCDEFG.jsonl"), data, 0o600))
	must(t, os.Mkdir(filepath.Join(segments("copied"), "0000000000000099.jsonl"), 0o700))
	// A copy of the device wrote another op 0.
	twin := relaytest.NewAuthor("forked")
	twin.Write(t, 1, 61)
	lines := string(twin.Ops[0].AppendLine(nil)) + "\n\n"
	must(t, os.WriteFile(filepath.Join(segments("forked"), "0000000000000001.jsonl"), []byte(`{"relay":"syncnode","v":1,"device":"forked","base":1}`+"\n\n"+lines), 0o600))

	row, text = status()
	for _, want := range []ignoredRow{
		{Path: "devices/d-half/segments/" + filepath.Base(last), Reason: "an unfinished group at the end"},
		{Path: "devices/d-copied/segments/0000000000000000.sync-conflict-20260301-120000-ABCDEFG.jsonl", Reason: "conflict copy"},
		{Path: "devices/d-copied/segments/0000000000000099.jsonl", Reason: "a directory named like a file"},
	} {
		if !slices.Contains(row.Ignored, want) || !strings.Contains(text, "ignored      "+want.Path+": "+want.Reason+"\n") {
			t.Errorf("%+v is not among what is ignored", want)
		}
	}
	if want := (waitingRow{Device: "gap", Next: missing}); len(row.Waiting) != 1 || row.Waiting[0] != want {
		t.Errorf("waiting: %+v, want %+v", row.Waiting, want)
	}
	if f := row.Forked; len(f) != 1 || f[0].Device != "forked" || f[0].Seq != 0 || f[0].Other != twin.Ops[0].ID {
		t.Errorf("forked: %+v, want at op 0 by %s", f, twin.Ops[0].ID)
	}
	for _, want := range []string{
		fmt.Sprintf("waiting      gap: op %d is missing, its file is damaged or has not arrived; what stands behind it waits\n", missing),
		"forked       forked: two ops at 0, ", fmt.Sprintf(" and %.15s does not: two copies of the device", twin.Ops[0].ID),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestRelayStatusSaysWhatWaitsBehindAMissingOpAndWhatWentAway(t *testing.T) {
	row := relayReport{Waiting: []waitingRow{{Device: "a", Next: 4, Ahead: 9}}, Lost: []lostRow{{Device: "b", Times: 2}}}
	for _, want := range []string{"a: op 4 is missing", "; ops up to 9 stand behind it and wait\n", "lost         b: ops went away during this look (2 times)"} {
		if text := row.text(); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
