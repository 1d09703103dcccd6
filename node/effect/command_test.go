package effect

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/node/config"
)

func runs(t *testing.T, d Deps, argv ...string) dispatch.Ended {
	t.Helper()
	e, err := For(config.Agent{Command: argv}, d).Start(t.Context(), permit())
	if err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	return e.Ended()
}

func TestACommandSeesItsRunAndItsOutputIsKept(t *testing.T) {
	t.Parallel()
	d := deps(t)
	d.Environ = []string{"PATH=" + os.Getenv("PATH"), "SYNCNODE_PASSWORD_FILE=x"}
	script := `echo "to out"; echo "to err" >&2; cat; env | grep SYNCNODE | sort; exit 3`
	if e := runs(t, d, "sh", "-c", script); e != (dispatch.Ended{ExitCode: 3}) {
		t.Errorf("%+v", e)
	}
	got := strings.Split(strings.TrimSpace(printed(t, d, permit().Run, permit().Attempt)), "\n")
	fence := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "SYNCNODE_RUN_FENCE=/") })
	if fence < 0 {
		t.Fatalf("no fence: %q", got)
	}
	want := []string{"to out", "to err", "SYNCNODE_RUN_AGENT=crm", "SYNCNODE_RUN_ATTEMPT=" + permit().Attempt, "SYNCNODE_RUN_DEADLINE=2026-03-29T02:00:00Z",
		"SYNCNODE_RUN_EPOCH=7", "SYNCNODE_RUN_ID=" + permit().Run, "SYNCNODE_RUN_OCCURRENCE=Zürich 1"}
	if got = slices.Delete(got, fence, fence+1); !slices.Equal(got, want) {
		t.Errorf("printed %q\nwant %q", got, want)
	}
}

// A program that is named by a relative path lies beside the configuration.
func TestARelativeProgramLiesBesideTheConfiguration(t *testing.T) {
	t.Parallel()
	d := deps(t)
	if err := os.WriteFile(d.Path("job"), []byte("#!/bin/sh\necho from the job\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if e := runs(t, d, "./job"); !e.OK() {
		t.Errorf("%+v", e)
	}
	if got := printed(t, d, permit().Run, permit().Attempt); got != "from the job\n" {
		t.Errorf("printed %q", got)
	}
	_, err := For(config.Agent{Command: []string{"no-such-program-anywhere"}}, d).Start(t.Context(), permit())
	coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err)
	if !ok || coded.ExitCode() != dispatch.ExitNotFound {
		t.Errorf("%v, want 127", err)
	}
}

func TestWithoutWorkThereIsNoStarterAndNoProbe(t *testing.T) {
	t.Parallel()
	if s := For(config.Agent{ID: "api-only"}, Deps{}); s != nil {
		t.Errorf("%v", s)
	}
	if Probe(config.Agent{}, Deps{}) != nil {
		t.Error("a probe of nothing")
	}
}

func TestAProbeDecidesAndWhatItSaysIsKept(t *testing.T) {
	t.Parallel()
	d := deps(t)
	probe := Probe(config.Agent{Policy: config.Policy{Probe: []string{"sh", "-c", `echo "looking for $SYNCNODE_RUN_ID"; exit 1`}}}, d)
	happened, known, err := probe(t.Context(), permit())
	if happened || !known || err != nil {
		t.Errorf("%v, %v, %v", happened, known, err)
	}
	if got := printed(t, d, permit().Run, permit().Attempt+"-probe"); got != "looking for "+permit().Run+"\n" {
		t.Errorf("printed %q", got)
	}
}

// A real child, so that a pipe that is not read would stop it.
func TestAChildThatPrintsAGigabyteEndsAndCostsLittleMemory(t *testing.T) {
	printed := thorough.Of(1<<30, 1<<27)
	d := deps(t)
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	e, err := For(config.Agent{Command: []string{"head", "-c", strconv.Itoa(printed), "/dev/zero"}}, d).Start(t.Context(), permit())
	if err != nil {
		t.Fatal(err)
	}
	most := uint64(0)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for done := false; !done; {
		select {
		case <-e.Done():
			done = true
		case <-look.C:
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
		}
	}
	if got := e.Ended(); !got.OK() {
		t.Errorf("%+v", got)
	}
	if most > before.HeapInuse+32<<20 {
		t.Errorf("the heap grew to %d MiB", most>>20)
	}
	list, err := d.Output.List(permit().Run)
	if err != nil || len(list) != 1 || list[0].Kept > 1<<20 || list[0].Kept+list[0].Cut+d.Output.Stats().Lost < int64(printed) {
		t.Errorf("%+v, %v", list, err)
	}
	files, err := filepath.Glob(d.Path("output/*"))
	if err != nil || len(files) != 8 {
		t.Errorf("%d files, %v", len(files), err)
	}
}
